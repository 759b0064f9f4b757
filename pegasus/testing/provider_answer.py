"""What the test provider answers: a model's answer or a fault, as the bytes of either wire format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from pegasus.messages import Json, Metadata
from pegasus.models import Usage

_USAGE = Usage(100, 20)


@attrs.frozen
class Call:
    """A tool call. arguments as a string are sent as they are, so that they can be broken. id "": a new one."""

    name: str
    arguments: Metadata | str = attrs.field(factory=dict)
    id: str = ""


@attrs.frozen
class Answer:
    """One answer to one request.

    pieces: how many deltas each text and each arguments come in. stop_reason "": what fits.
    status, body, content_type, retry_after: an answer that is no model's. error: (type, message) of an error event
    after the other events. cut_after, hang_after: events to send before the connection is closed, or silent until
    the client hangs up. reset: the connection is reset instead of answered. pause: seconds before each event.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: tuple[Json, ...] = ()
    usage: Usage = _USAGE
    stop_reason: str = ""
    pieces: int = 1
    status: int = 200
    message: str = ""
    body: bytes | None = None
    content_type: str = "text/event-stream"
    retry_after: float | None = None
    error: tuple[str, str] | None = None
    cut_after: int | None = None
    hang_after: int | None = None
    reset: bool = False
    pause: float = 0.0


def refuse(status: int, message: str = "", *, retry_after: float | None = None) -> Answer:
    """An error status with the API's own error body."""
    return Answer(status=status, message=message or f"refused with {status}", retry_after=retry_after)


def page(text: str = "<html><title>Sign in</title><body>Please sign in</body></html>", status: int = 200) -> Answer:
    """A web page, as a wrong address or a captive portal gives."""
    return Answer(status=status, body=text.encode(), content_type="text/html; charset=utf-8")


def cut(answer: Answer, after: int) -> Answer:
    """The connection is closed after so many events."""
    return attrs.evolve(answer, cut_after=after)


def hang(after: int = 0) -> Answer:
    """So many events, then nothing until the client hangs up."""
    return Answer("never ending", hang_after=after)


def reset() -> Answer:
    """The connection is reset."""
    return Answer(reset=True)


def failing(kind: str, message: str = "it broke") -> Answer:
    """An answer that begins well and then has an error event."""
    return Answer("Well, ", error=(kind, message))


NewId = Callable[[], str]


def events(answer: Answer, form: str, new_id: NewId, *, usage: bool = True) -> list[bytes]:
    """The stream, event by event."""
    return _anthropic(answer, new_id) if form == "anthropic" else _openai(answer, new_id, usage=usage)


def whole(answer: Answer, form: str, new_id: NewId) -> bytes:
    """The same in one piece, for a request that does not stream."""
    return _dump(_message(answer, new_id) if form == "anthropic" else _completion(answer, new_id))


def error_body(form: str, status: int, message: str, n: int) -> bytes:
    """An error as the API words it."""
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    if form == "anthropic":
        error: Json = {"type": kind, "message": message}
        return _dump({"type": "error", "error": error, "request_id": f"req_{n}"})
    return _dump({"error": {"message": message, "type": kind, "param": None, "code": None}})


_ERRORS: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _split(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // max(pieces, 1)))
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]


def _arguments(call: Call) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)


# ------------------------------------------------------------------ Anthropic


def _named(name: str, data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), _dump({"type": name, **data}))


def _anthropic(answer: Answer, new_id: NewId) -> list[bytes]:
    opening = {"id": "msg_test", "type": "message", "role": "assistant", "model": "test", "content": []}
    usage = {**_anthropic_usage(answer), "output_tokens": 1}
    stream = [_named("message_start", {"message": {**opening, "stop_reason": None, "usage": usage}})]
    index = 0
    for block in answer.thinking:
        stream += _block(index, *_thinking_parts(block, answer.pieces))
        index += 1
    if answer.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in _split(answer.text, answer.pieces)]
        stream += _block(index, {"type": "text", "text": ""}, deltas)
        index += 1
    for call in answer.calls:
        start = {"type": "tool_use", "id": call.id or f"toolu_{new_id()}", "name": call.name, "input": {}}
        pieces = _split(_arguments(call), answer.pieces)
        stream += _block(index, start, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces])
        index += 1
    if answer.error:
        error = {"type": answer.error[0], "message": answer.error[1]}
        return [*stream, _named("error", {"error": error})]
    ending = {"delta": {"stop_reason": _anthropic_stop(answer), "stop_sequence": None}}
    total = {"output_tokens": answer.usage.completion_tokens}
    return [*stream, _named("message_delta", {**ending, "usage": total}), _named("message_stop", {})]


def _block(index: int, start: Any, deltas: list[Any]) -> list[bytes]:
    return [
        _named("content_block_start", {"index": index, "content_block": start}),
        *(_named("content_block_delta", {"index": index, "delta": delta}) for delta in deltas),
        _named("content_block_stop", {"index": index}),
    ]


def _thinking_parts(block: Any, pieces: int) -> tuple[Any, list[Any]]:
    if block["type"] != "thinking":
        return block, []
    deltas: list[Any] = [{"type": "thinking_delta", "thinking": piece} for piece in _split(block["thinking"], pieces)]
    deltas.append({"type": "signature_delta", "signature": block["signature"]})
    return {"type": "thinking", "thinking": "", "signature": ""}, deltas


def _anthropic_stop(answer: Answer) -> str:
    return answer.stop_reason or ("tool_use" if answer.calls else "end_turn")


def _anthropic_usage(answer: Answer) -> dict[str, int]:
    usage = answer.usage
    return {
        "input_tokens": usage.prompt_tokens - usage.cache_read_tokens - usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "output_tokens": usage.completion_tokens,
    }


def _message(answer: Answer, new_id: NewId) -> Any:
    content: list[Any] = [*answer.thinking]
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    for call in answer.calls:
        use = {"type": "tool_use", "id": call.id or f"toolu_{new_id()}", "name": call.name, "input": call.arguments}
        content.append(use)
    base = {"id": "msg_test", "type": "message", "role": "assistant", "model": "test", "content": content}
    return {**base, "stop_reason": _anthropic_stop(answer), "usage": _anthropic_usage(answer)}


# ------------------------------------------------------------------ OpenAI


def _openai(answer: Answer, new_id: NewId, *, usage: bool) -> list[bytes]:
    stream = [_chunk({"role": "assistant", "content": ""})]
    if answer.text:
        stream += [_chunk({"content": piece}) for piece in _split(answer.text, answer.pieces)]
    for index, call in enumerate(answer.calls):
        first, *rest = _split(_arguments(call), answer.pieces)
        opening = {"index": index, "id": call.id or f"call_{new_id()}", "type": "function"}
        stream.append(_chunk({"tool_calls": [{**opening, "function": {"name": call.name, "arguments": first}}]}))
        stream += [_chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}) for piece in rest]
    if answer.error:
        error = {"type": answer.error[0], "message": answer.error[1]}
        return [*stream, b"data: %s\n\n" % _dump({"error": error})]
    stream.append(_chunk({}, _openai_stop(answer)))
    if usage:
        stream.append(b"data: %s\n\n" % _dump({**_BASE, "choices": [], "usage": _openai_usage(answer)}))
    return [*stream, b"data: [DONE]\n\n"]


_BASE = {"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 0, "model": "test"}


def _chunk(delta: Any, finish: str | None = None) -> bytes:
    return b"data: %s\n\n" % _dump({**_BASE, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _openai_stop(answer: Answer) -> str:
    return answer.stop_reason or ("tool_calls" if answer.calls else "stop")


def _openai_usage(answer: Answer) -> Any:
    usage = answer.usage
    details = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": details,
    }


def _completion(answer: Answer, new_id: NewId) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.id or f"call_{new_id()}",
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call)},
            }
            for call in answer.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": _openai_stop(answer)}
    return {**_BASE, "object": "chat.completion", "choices": [choice], "usage": _openai_usage(answer)}
