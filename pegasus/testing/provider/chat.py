"""Server side of OpenAI's Chat Completions: checks of a request, chunks of an answer (https://developers.openai.com/api/reference/resources/chat).

Tool results are messages of their own in this format. They are collected until the next user or assistant message, and become the
results of one `UserTurn`.

The format is spoken by many services that differ in what they tolerate. The checks take the strictest of the
common rules, so that a request which passes is understood everywhere: no empty texts or lists, ids of at most
forty characters, arguments that are JSON objects in a string, a system message only at the beginning. The rules
of order are in `TurnBuilder`, for both formats.

    turns, system, tools = read_chat(json.loads(body))                 # Invalid for what a service would refuse
    stream = chunks(ProviderAnswer("hello"), lambda: "1", usage=True)   # bytes of server-sent events
"""

from __future__ import annotations

from typing import Any

from pegasus.models import AssistantTurn, Image, ToolCall, Turn
from pegasus.testing.provider.answers import NewId, ProviderAnswer, arguments_text, dump, split
from pegasus.testing.provider.dialects import PLAIN, Dialect
from pegasus.testing.provider.requests import (
    Invalid,
    TurnBuilder,
    check_schema,
    check_tool_names,
    refuse_other_keys,
    require,
    require_arguments,
    require_data_url,
    require_text,
    require_tool_name,
)

_ALLOWED = (
    "model messages stream stream_options max_tokens max_completion_tokens tools tool_choice parallel_tool_calls "
    "reasoning_effort temperature top_p prompt_cache_key metadata user store n stop service_tier"
)
"""Fields of a request's body. Some services ignore unknown ones, others refuse them; here they are refused."""
_KEYS = frozenset(_ALLOWED.split())
_LONGEST_ID = 40
"""Characters that the id of a tool call may have; the service refuses longer ones."""


def read_chat(raw: dict[str, Any]) -> tuple[tuple[Turn, ...], str, tuple[str, ...]]:
    """Return turns, system prompt and tool names of a request. Raises Invalid.

    A request of a service with additions has lost them before (`Dialect.plain`).
    """
    refuse_other_keys(raw, _KEYS, "body")
    require_text(raw.get("model"), "model")
    # The older and the newer name of the same limit; services know one or the other.
    limits = [raw[key] for key in ("max_tokens", "max_completion_tokens") if key in raw]
    require(len(limits) <= 1, "max_tokens and max_completion_tokens cannot both be set")
    require(all(isinstance(limit, int) and limit >= 1 for limit in limits), "max_tokens: must be at least 1")
    options = raw.get("stream_options")
    require(options is None or raw.get("stream") is True, "stream_options: only allowed when stream is enabled")
    tools = _tools(raw.get("tools"), raw.get("tool_choice"))
    require(isinstance(raw.get("messages"), list) and bool(raw["messages"]), "messages: must not be empty")
    system, turns = _messages(raw["messages"])
    return turns, system, tools


def _tools(value: Any, choice: Any) -> tuple[str, ...]:
    """Check the tools and the choice among them; return their names.

    choice: "auto", "none", "required", or an object that names one of the tools.
    """
    names: list[str] = []
    for index, tool in enumerate(value or ()):
        where = f"tools[{index}]"
        refuse_other_keys(tool, ("type", "function"), where)
        require(tool.get("type") == "function", f"{where}.type: unexpected value")
        function = tool.get("function")
        refuse_other_keys(function, ("name", "description", "parameters", "strict"), f"{where}.function")
        check_schema(function.get("parameters", {"type": "object"}), f"{where}.function.parameters")
        names.append(require_tool_name(function.get("name"), f"{where}.function.name"))
    check_tool_names(names, value, is_chosen=choice is not None)
    if choice is not None:
        named = choice.get("function", {}).get("name") if isinstance(choice, dict) else None
        require(choice in ("auto", "none", "required") or named in names, "tool_choice: unexpected value")
    return tuple(names)


def _messages(messages: list[Any]) -> tuple[str, tuple[Turn, ...]]:
    """Return the system prompt and the turns.

    Results of tools are handed to `TurnBuilder` one by one, which puts those of one turn together.
    """
    conversation = TurnBuilder()
    system = ""
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        require(isinstance(message, dict), f"{where}: an object is required")
        role = message.get("role")
        if role in ("system", "developer"):
            require(index == 0, f"{where}: a system message after the first is not expected here")
            system = _content(message, where)
        elif role == "tool":
            _result(conversation, message, where)
        elif role == "user":
            refuse_other_keys(message, ("role", "content", "name"), where)
            text, images = _user(message, where)
            conversation.user(text, where, images)
        elif role == "assistant":
            conversation.assistant(_assistant(message, where), where)
        else:
            raise Invalid(f"{where}.role: {role!r} is not one of system, developer, user, assistant, tool")
    return system, conversation.end(f"messages[{len(messages)}]")


def _user(message: Any, where: str) -> tuple[str, tuple[Image, ...]]:
    """Return text and pictures of a user message.

    Text parts and pictures may be mixed in any order; their relative order is not kept.
    """
    content = message.get("content")
    # A content that is a text has no pictures.
    pictures = [part for part in content if part.get("type") == "image_url"] if isinstance(content, list) else []
    rest = [part for part in content if part not in pictures] if pictures else content
    text = "" if pictures and not rest else _content({"content": rest}, where)
    return text, tuple(_image(part, where) for part in pictures)


def _image(part: Any, where: str) -> Image:
    refuse_other_keys(part, ("type", "image_url"), where)
    refuse_other_keys(part["image_url"], ("url", "detail"), f"{where}.image_url")
    return require_data_url(part["image_url"].get("url"), f"{where}.image_url.url")


def _content(message: Any, where: str) -> str:
    """Return the text of a message, also if it is a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        require(bool(content), f"{where}.content: must not be empty")
        return "".join(require_text(part.get("text"), f"{where}.content") for part in content)
    return require_text(content, f"{where}.content")


def _result(conversation: TurnBuilder, message: Any, where: str) -> None:
    """Add a tool result to the conversation. The format marks errors only by their text.

    A tool that failed is therefore recognised by "Error" at the beginning, which Pegasus's client writes there.
    """
    refuse_other_keys(message, ("role", "content", "tool_call_id"), where)
    call_id = message.get("tool_call_id")
    require(isinstance(call_id, str), f"{where}.tool_call_id: missing")
    content = _content(message, where)
    conversation.result(call_id, content, is_error=content.startswith("Error"))


def _assistant(message: Any, where: str) -> AssistantTurn:
    """Return an assistant message. Its content may be null or empty only beside calls."""
    refuse_other_keys(message, ("role", "content", "tool_calls", "refusal", "name"), where)
    raw = message.get("tool_calls")
    require(
        "tool_calls" not in message or (isinstance(raw, list) and bool(raw)), f"{where}.tool_calls: must not be empty"
    )
    calls = tuple(_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(raw or ()))
    content = message.get("content")
    if calls and (content is None or content == ""):
        return AssistantTurn("", calls)
    return AssistantTurn(_content(message, where), calls)


def _call(call: Any, where: str) -> ToolCall:
    """Check a tool call.

    `extra_content` is accepted unchecked: Google's service demands its own signatures back in that field.
    """
    refuse_other_keys(call, ("id", "type", "function", "extra_content"), where)
    # Ids of other providers may be longer; a client must shorten them the same way in the call and in its result.
    call_id, function = call.get("id"), call.get("function")
    require(isinstance(call_id, str) and 0 < len(call_id) <= _LONGEST_ID, f"{where}.id: 1 to {_LONGEST_ID} characters")
    require(call.get("type") == "function", f"{where}.type: unexpected value")
    refuse_other_keys(function, ("name", "arguments"), f"{where}.function")
    arguments = require_arguments(function.get("arguments"), f"{where}.function.arguments")
    return ToolCall(call_id, require_tool_name(function.get("name"), f"{where}.function.name"), arguments)


# ------------------------------------------------------------------ answers


def chunks(answer: ProviderAnswer, new_id: NewId, *, usage: bool, dialect: Dialect = PLAIN) -> list[bytes]:
    """Return the chunks of a completion.

    The first chunk of a call has its id and name; the following ones are matched by `index` alone. Usage is a
    chunk without choices after the last delta, and only sent if the request asks for it.
    """
    stream = [_chunk({"role": "assistant", "content": ""})]
    stream += map(_chunk, dialect.reasoning_deltas(answer))
    if answer.text:
        stream += [_chunk({"content": piece}) for piece in split(answer.text, answer.pieces)]
    for index, call in enumerate(answer.calls):
        # Arguments come as pieces of a text, which is JSON only when it is whole.
        first, *rest = split(arguments_text(call), answer.pieces)
        opening = {"index": index, "type": "function", **dialect.call_fields(index, call, new_id)}
        stream.append(_chunk({"tool_calls": [{**opening, "function": {"name": call.name, "arguments": first}}]}))
        stream += [_chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}) for piece in rest]
    if answer.error:
        # No "[DONE]" behind an error: a client must not wait for it.
        error = {"type": answer.error[0], "message": answer.error[1]}
        return [*stream, b"data: %s\n\n" % dump({"error": error})]
    stream.append(_chunk({}, _stop_word(answer)))
    if usage:
        stream.append(b"data: %s\n\n" % dump({**_BASE, "choices": [], "usage": dialect.usage(_usage(answer), answer)}))
    return [*stream, b"data: [DONE]\n\n"]


_BASE = {"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 0, "model": "test"}
"""Fields that every chunk and completion repeats."""


def _chunk(delta: Any, finish: str | None = None) -> bytes:
    """Return one chunk with this delta. finish: the stop reason, in the last chunk only."""
    return b"data: %s\n\n" % dump({**_BASE, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _stop_word(answer: ProviderAnswer) -> str:
    """Return the reason why the answer ends, in the words of this API."""
    return answer.stop_reason or ("tool_calls" if answer.calls else "stop")


def _usage(answer: ProviderAnswer) -> Any:
    """Return the usage as this API counts it: tokens of the cache are part of the prompt's."""
    usage = answer.usage
    details = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": details,
    }


def completion(answer: ProviderAnswer, new_id: NewId) -> bytes:
    """Return a completion that is not streamed.

    `content` is null beside calls without text, as the service has it.
    """
    reasoning = {"reasoning_content": answer.reasoning} if answer.reasoning else {}
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, **reasoning}
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.id or f"call_{new_id()}",
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_text(call)},
            }
            for call in answer.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": _stop_word(answer)}
    return dump({**_BASE, "object": "chat.completion", "choices": [choice], "usage": _usage(answer)})
