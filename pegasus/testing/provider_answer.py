"""Answers of the test provider: a model's answer or a fault, as the bytes of either wire format.

ProviderAnswer("Hello", (Call("reply", {"text": "hi"}),), pieces=3)  # streamed in three pieces
refuse(429, retry_after=2)  # an error status
cut(ProviderAnswer("Hello"), after=2)  # the connection is closed after two events

A script returns a `ProviderAnswer`, which is the same for both formats; this module turns it into bytes. The
answer describes faults too: a status, a broken connection, silence, an error in the middle of the stream. So
one script can test that both clients behave alike in each of these cases.

Everything is built as a list of finished events. The server may then stop, pause or hang between any two of
them, and a fault is simply a position in that list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from pegasus.messages import Json, Metadata
from pegasus.models import Usage

_USAGE = Usage(100, 20)
"""Usage that an answer reports unless a test chooses another; the numbers have no meaning."""


@attrs.frozen
class Call:
    """Tool call in an answer. Arguments as a string are sent as they are, so that they can be malformed. id "": a new one."""

    name: str
    """Name of the tool."""
    arguments: Metadata | str = attrs.field(factory=dict)
    """Arguments, or the text to send in their place."""
    id: str = ""
    """Id of the call; "" for a new one."""


@attrs.frozen
class ProviderAnswer:
    """Answer to one request.

    All fields have defaults, so that a script names only what matters to its test. Where several faults are
    given, the server takes the first of `reset`, `body`, `status`, and then those of the stream.
    """

    text: str = ""
    """Text of the answer; "" for an answer that consists of calls."""
    calls: tuple[Call, ...] = ()
    """Tool calls, after the text."""
    thinking: tuple[Json, ...] = ()
    """Thinking blocks of Anthropic's format."""
    usage: Usage = _USAGE
    """Tokens that the provider claims to have counted."""
    stop_reason: str = ""
    """The API's own word; "" for the one that fits the answer."""
    pieces: int = 1
    """Deltas that each text and the arguments of each call are sent in."""
    status: int = 200
    """HTTP status. Another one than 200 sends `message` as an error instead of an answer."""
    message: str = ""
    """Message of an error status."""
    body: bytes | None = None
    """Body to send as it is, with `status` and `content_type`."""
    content_type: str = "text/event-stream"
    """Content type of `body`."""
    retry_after: float | None = None
    """Seconds for the `Retry-After` header of an error status."""
    error: tuple[str, str] | None = None
    """Type and message of an error event after the other events."""
    cut_after: int | None = None
    """Events to send before the connection is closed."""
    hang_after: int | None = None
    """Events to send before silence, until the client hangs up."""
    reset: bool = False
    """Reset the connection instead of answering."""
    pause: float = 0.0
    """Seconds before each event."""


def refuse(status: int, message: str = "", *, retry_after: float | None = None) -> ProviderAnswer:
    """Return an error status with the API's own error body."""
    return ProviderAnswer(status=status, message=message or f"refused with {status}", retry_after=retry_after)


def page(
    text: str = "<html><title>Sign in</title><body>Please sign in</body></html>", status: int = 200
) -> ProviderAnswer:
    """Return a web page, as from a wrong address or a captive portal."""
    return ProviderAnswer(status=status, body=text.encode(), content_type="text/html; charset=utf-8")


def cut(answer: ProviderAnswer, after: int) -> ProviderAnswer:
    """Return the answer, with the connection closed after so many events."""
    return attrs.evolve(answer, cut_after=after)


def hang(after: int = 0) -> ProviderAnswer:
    """Return an answer of so many events and then nothing, until the client hangs up."""
    return ProviderAnswer("never ending", hang_after=after)


def reset() -> ProviderAnswer:
    """Return an answer that resets the connection."""
    return ProviderAnswer(reset=True)


def failing(kind: str, message: str = "it broke") -> ProviderAnswer:
    """Return an answer that begins well and then has an error event."""
    return ProviderAnswer("Well, ", error=(kind, message))


NewId = Callable[[], str]
"""Returns a new unique id for a tool call."""


def events(answer: ProviderAnswer, form: str, new_id: NewId, *, usage: bool = True) -> list[bytes]:
    """Return the stream, event by event. form: "anthropic" or "openai". usage: send the usage, in OpenAI's format."""
    return _anthropic(answer, new_id) if form == "anthropic" else _openai(answer, new_id, usage=usage)


def complete_body(answer: ProviderAnswer, form: str, new_id: NewId) -> bytes:
    """Return the answer in one piece, for a request that does not stream."""
    return _dump(_message(answer, new_id) if form == "anthropic" else _completion(answer, new_id))


def error_body(form: str, status: int, message: str, n: int) -> bytes:
    """Return an error body as the API has it. n: number for the request id."""
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
"""Types of errors by HTTP status, as Anthropic documents them. Others are `api_error` from 500 on."""


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _split(text: str, pieces: int) -> list[str]:
    """Split a text into pieces of equal length."""
    size = max(1, -(-len(text) // max(pieces, 1)))
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]


def _arguments(call: Call) -> str:
    """Return the arguments as JSON text."""
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)


# ------------------------------------------------------------------ Anthropic


def _named(name: str, data: Any) -> bytes:
    """Return one event."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), _dump({"type": name, **data}))


def _anthropic(answer: ProviderAnswer, new_id: NewId) -> list[bytes]:
    """Return the events of a message.

    Every content block is announced, sent in deltas and closed; then follow the stop reason with the final
    usage, and the end. The usage at the start has one token of output, since nothing was generated at that
    time.
    """
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
    """Return the events of one content block."""
    return [
        _named("content_block_start", {"index": index, "content_block": start}),
        *(_named("content_block_delta", {"index": index, "delta": delta}) for delta in deltas),
        _named("content_block_stop", {"index": index}),
    ]


def _thinking_parts(block: Any, pieces: int) -> tuple[Any, list[Any]]:
    """Return how a thinking block begins, and its deltas.

    A redacted block arrives whole. The signature of a thinking block is a delta of its own, after the text.
    """
    if block["type"] != "thinking":
        return block, []
    deltas: list[Any] = [{"type": "thinking_delta", "thinking": piece} for piece in _split(block["thinking"], pieces)]
    deltas.append({"type": "signature_delta", "signature": block["signature"]})
    return {"type": "thinking", "thinking": "", "signature": ""}, deltas


def _anthropic_stop(answer: ProviderAnswer) -> str:
    return answer.stop_reason or ("tool_use" if answer.calls else "end_turn")


def _anthropic_usage(answer: ProviderAnswer) -> dict[str, int]:
    """Return the usage as this API counts it.

    Here `input_tokens` excludes the tokens that were read from or written to the cache, while
    `Usage.prompt_tokens` includes them, as OpenAI's `prompt_tokens` does.
    """
    usage = answer.usage
    return {
        "input_tokens": usage.prompt_tokens - usage.cache_read_tokens - usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "output_tokens": usage.completion_tokens,
    }


def _message(answer: ProviderAnswer, new_id: NewId) -> Any:
    """Return a message that is not streamed."""
    content: list[Any] = [*answer.thinking]
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    for call in answer.calls:
        use = {"type": "tool_use", "id": call.id or f"toolu_{new_id()}", "name": call.name, "input": call.arguments}
        content.append(use)
    base = {"id": "msg_test", "type": "message", "role": "assistant", "model": "test", "content": content}
    return {**base, "stop_reason": _anthropic_stop(answer), "usage": _anthropic_usage(answer)}


# ------------------------------------------------------------------ OpenAI


def _openai(answer: ProviderAnswer, new_id: NewId, *, usage: bool) -> list[bytes]:
    """Return the chunks of a completion.

    The first chunk of a call has its id and name; the following ones are matched by `index` alone. Usage is a
    chunk without choices after the last delta, and only sent if the request asks for it.
    """
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
"""Fields that every chunk and completion repeats."""


def _chunk(delta: Any, finish: str | None = None) -> bytes:
    """Return one chunk with this delta. finish: the stop reason, in the last chunk only."""
    return b"data: %s\n\n" % _dump({**_BASE, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _openai_stop(answer: ProviderAnswer) -> str:
    return answer.stop_reason or ("tool_calls" if answer.calls else "stop")


def _openai_usage(answer: ProviderAnswer) -> Any:
    usage = answer.usage
    details = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": details,
    }


def _completion(answer: ProviderAnswer, new_id: NewId) -> Any:
    """Return a completion that is not streamed."""
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
