"""Server side of Anthropic's Messages API: checks of a request, events of an answer.

Every check has a message as the real service words it. Checked against API version 2026-10-21
(https://platform.claude.com/docs/en/api/messages).

The checks are those that a client can violate by a mistake of its own: unknown fields, empty texts, wrong order
of blocks, ids and names with characters that are not allowed, results without calls, too many cache markers.
What depends on the model (limits of tokens, supported parameters) is not checked.

`_Reader` walks through the body in order and builds Pegasus's own turns, so that scripts and tests see the same
conversation for both formats. `where` and `at` are paths into the body, which the service puts in front of its
messages.

    turns, system, tools = read_messages(json.loads(body))             # Invalid for what the service would refuse
    events = message_events(ProviderAnswer("hello"), lambda: "1")       # bytes of server-sent events

To accept a new field, add it to `_ALLOWED` after a look at the reference. A test that fails for an unknown field is meant
to fail: the product sends something that nobody has checked.
"""

from __future__ import annotations

import re
from typing import Any

from pegasus.messages import Json
from pegasus.models import AssistantTurn, Image, ToolCall, Turn
from pegasus.testing.provider.answers import NewId, ProviderAnswer, arguments_text, dump, split
from pegasus.testing.provider.requests import (
    Invalid,
    TurnBuilder,
    check_schema,
    refuse_other_keys,
    require,
    require_image,
    require_text,
    require_tool_name,
)

_ALLOWED = (
    "model messages max_tokens stream system tools tool_choice stop_sequences metadata thinking cache_control container "
    "diagnostics inference_geo output_config service_tier speed temperature top_p"
)
"""Fields of a request's body. Another one is refused, as the service does it, so a misspelt field does not pass."""
_KEYS = frozenset(_ALLOWED.split())
_ID = re.compile(r"[a-zA-Z0-9_-]+")
"""Allowed ids of tool calls. Ids of other providers may have other characters, and a client must translate them."""
_MARKERS = 4
"""Blocks of one request that may have a cache marker."""


def read_messages(raw: dict[str, Any]) -> tuple[tuple[Turn, ...], str, tuple[str, ...]]:
    """Return turns, system prompt and tool names of a request. Raises Invalid.

    A request has passed all checks when this returns; the script sees it then.
    """
    refuse_other_keys(raw, _KEYS, "body")
    require_text(raw.get("model"), "model")
    # Required here, unlike in OpenAI's format: the service has no default.
    limit = raw.get("max_tokens")
    require(isinstance(limit, int) and limit >= 1, "max_tokens: Input should be greater than or equal to 1")
    reader = _Reader()
    # Tools, system prompt, messages: the order in which the service caches them, which matters for markers (`_mark`).
    tools = reader.tools(raw.get("tools"), raw.get("tool_choice"))
    system = reader.system(raw.get("system"))
    _check_thinking(raw, limit)
    require(isinstance(raw.get("messages"), list), "messages: Field required")
    for index, message in enumerate(raw["messages"]):
        reader.message(message, f"messages.{index}")
    turns = reader.conversation.end(f"messages.{len(raw['messages'])}")
    # Without definitions the service refuses blocks of tools, even those of earlier turns.
    used = any(isinstance(turn, AssistantTurn) and turn.calls for turn in turns)
    require(bool(tools) or not used, "Requests which include `tool_use` or `tool_result` blocks must define tools")
    require(reader.markers <= _MARKERS, f"A maximum of {_MARKERS} blocks with cache_control may be provided")
    return turns, system, tools


def _check_thinking(raw: dict[str, Any], limit: Any) -> None:
    """Check the parameters of thinking, which some others exclude, as the service words it."""
    thinking, choice = raw.get("thinking") or {"type": "disabled"}, (raw.get("tool_choice") or {}).get("type")
    kinds = {
        "enabled": ("type", "budget_tokens", "display"),
        "adaptive": ("type", "display"),
        "disabled": ("type",),
        "between_tools": ("type",),
    }
    require(thinking.get("type") in kinds, "thinking.type: Input tag does not match any of the expected tags")
    refuse_other_keys(thinking, kinds[thinking["type"]], "thinking")
    if thinking["type"] == "enabled":
        budget = thinking.get("budget_tokens")
        require(isinstance(budget, int) and budget >= 1024, "thinking.enabled.budget_tokens: must be at least 1024")
        require(budget < limit, "`max_tokens` must be greater than `thinking.budget_tokens`")
    if thinking["type"] in ("enabled", "adaptive"):
        require(choice not in ("any", "tool"), "Thinking may not be enabled when tool_choice forces tool use.")
        # The value that may be set is the default; a client should leave it out.
        require(raw.get("temperature", 1) == 1, "`temperature` may only be set to 1 when thinking is enabled.")
    config = raw.get("output_config") or {}
    refuse_other_keys(config, ("effort", "format"), "output_config")
    efforts = (None, "low", "medium", "high", "xhigh", "max")
    require(config.get("effort") in efforts, "output_config.effort: unexpected value")


class _Reader:
    """Reader of the parts of a request, in the order of the body.

    Example::

        reader = _Reader()
        reader.message({"role": "user", "content": "hello"}, "messages.0")
        turns = reader.conversation.end("messages.1")
    """

    def __init__(self) -> None:
        self.conversation = TurnBuilder()
        self.markers = 0
        self.has_short = False
        """True once a cache marker of five minutes was found; tools come first, then the system prompt, then messages."""

    def system(self, value: Any) -> str:
        """Return the system prompt: a text, or the joined texts of a list of blocks."""
        if value is None:
            return ""
        if isinstance(value, str):
            return require_text(value, "system")
        require(isinstance(value, list), "system: Input should be a valid list")
        return "".join(self._text(block, f"system.{index}") for index, block in enumerate(value))

    def tools(self, value: Any, choice: Any) -> tuple[str, ...]:
        """Check the tools and the choice among them; return their names in order.

        An empty list is refused: a client without tools must leave the field out.
        """
        names: list[str] = []
        for index, tool in enumerate(value or ()):
            where = f"tools.{index}"
            refuse_other_keys(tool, ("name", "description", "input_schema", "cache_control", "type"), where)
            self._mark(tool, where)
            check_schema(tool.get("input_schema"), f"{where}.input_schema")
            require(
                isinstance(tool.get("description", ""), str), f"{where}.description: Input should be a valid string"
            )
            names.append(require_tool_name(tool.get("name"), f"{where}.name"))
        require(len(names) == len(set(names)), "tools: Tool names must be unique")
        require(value is None or bool(names), "tools: List should have at least 1 item")
        if choice is not None:
            require(bool(names), "tool_choice: may only be specified while providing `tools`")
            require(choice.get("type") in ("auto", "any", "none", "tool"), "tool_choice.type: unexpected value")
            require(choice["type"] != "tool" or choice.get("name") in names, "tool_choice.name: no such tool")
        return tuple(names)

    def message(self, message: Any, where: str) -> None:
        """Read one message. A content that is a plain text stands for one text block."""
        refuse_other_keys(message, ("role", "content"), where)
        role, content = message.get("role"), message.get("content")
        require(role in ("user", "assistant"), f"{where}.role: Input should be 'user' or 'assistant'")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        require(isinstance(content, list) and bool(content), f"{where}.content: must be non-empty")
        if role == "user":
            self._user(content, where)
        else:
            self._assistant(content, where)

    def _user(self, content: list[Any], where: str) -> None:
        """Read the blocks of a user message: results first, then text and pictures.

        The service refuses a text before a result, because results must directly follow the calls.
        """
        texts: list[str] = []
        images: list[Image] = []
        for index, block in enumerate(content):
            at = f"{where}.content.{index}"
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "tool_result":
                require(not texts and not images, f"{at}: tool_result blocks must come first")
                self._result(block, at)
            elif kind == "text":
                texts.append(self._text(block, at))
            elif kind == "image":
                images.append(self._image(block, at))
            else:
                raise Invalid(f"{at}.type: {kind!r} is not permitted in a user message")
        self.conversation.user("".join(texts), where, tuple(images))

    def _assistant(self, content: list[Any], where: str) -> None:
        """Read the blocks of an assistant message, which must not end in thinking.

        The thinking blocks are kept with the turn, as a client must send them back unchanged.
        """
        texts: list[str] = []
        calls: list[ToolCall] = []
        thinking: list[Json] = []
        for index, block in enumerate(content):
            at = f"{where}.content.{index}"
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "text":
                texts.append(self._text(block, at))
            elif kind == "tool_use":
                calls.append(self._use(block, at))
            elif kind in ("thinking", "redacted_thinking"):
                thinking.append(_thinking(block, at))
            else:
                raise Invalid(f"{at}.type: {kind!r} is not permitted in an assistant message")
        # An answer that was cut while the model thought must not be sent back.
        require(content[-1]["type"] in ("text", "tool_use"), f"{where}: the final block cannot be `thinking`")
        turn = AssistantTurn("".join(texts), tuple(calls), tuple(thinking), "anthropic" if thinking else None)
        self.conversation.assistant(turn, where)

    def _text(self, block: Any, where: str) -> str:
        """Return the text of a text block. Raises Invalid if it is blank, which the service refuses too."""
        refuse_other_keys(block, ("type", "text", "cache_control"), where)
        self._mark(block, where)
        return require_text(block.get("text"), f"{where}.text")

    def _image(self, block: Any, where: str) -> Image:
        """Return the picture of an image block; only base64 data, since Pegasus sends nothing else."""
        refuse_other_keys(block, ("type", "source", "cache_control"), where)
        self._mark(block, where)
        source = block.get("source")
        refuse_other_keys(source, ("type", "media_type", "data"), f"{where}.source")
        require(source.get("type") == "base64", f"{where}.source.type: unexpected value")
        return require_image(source.get("media_type"), source.get("data"), f"{where}.source")

    def _result(self, block: Any, where: str) -> None:
        """Add a tool result to the conversation.

        A result without its call is refused by `TurnBuilder`, and so is a call without its result.
        """
        refuse_other_keys(block, ("type", "tool_use_id", "content", "is_error", "cache_control"), where)
        self._mark(block, where)
        call_id, failed = block.get("tool_use_id"), block.get("is_error", False)
        require(isinstance(call_id, str), f"{where}.tool_use_id: Field required")
        require(isinstance(failed, bool), f"{where}.is_error: Input should be a valid boolean")
        self.conversation.result(call_id, require_text(block.get("content"), f"{where}.content"), is_error=failed)

    def _use(self, block: Any, where: str) -> ToolCall:
        """Return the call of a tool_use block; its arguments are an object, not a text as in OpenAI's format."""
        refuse_other_keys(block, ("type", "id", "name", "input", "cache_control"), where)
        self._mark(block, where)
        call_id = block.get("id")
        require(
            isinstance(call_id, str) and bool(_ID.fullmatch(call_id)), f"{where}.id: should match '^[a-zA-Z0-9_-]+$'"
        )
        require(isinstance(block.get("input"), dict), f"{where}.input: Input should be a valid dictionary")
        return ToolCall(call_id, require_tool_name(block.get("name"), f"{where}.name"), block["input"])

    def _mark(self, block: Any, where: str) -> None:
        """Count the cache marker of a block.

        Markers count over the whole request. A marker of an hour must stand before those of five minutes.
        """
        marker = block.get("cache_control")
        if marker is not None:
            known = ({"type": "ephemeral"}, {"type": "ephemeral", "ttl": "5m"}, {"type": "ephemeral", "ttl": "1h"})
            require(marker in known, f"{where}.cache_control: unexpected value")
            is_long = marker.get("ttl") == "1h"
            require(
                not (is_long and self.has_short),
                f"{where}.cache_control.ttl: ttl='1h' must not come after ttl='5m'",
            )
            self.has_short = self.has_short or not is_long
            self.markers += 1


def _thinking(block: Any, where: str) -> Json:
    """Check a thinking block.

    It is returned unchanged: its signature covers every character.
    """
    if block["type"] == "redacted_thinking":
        refuse_other_keys(block, ("type", "data"), where)
        require_text(block.get("data"), f"{where}.data")
    else:
        refuse_other_keys(block, ("type", "thinking", "signature"), where)
        require(isinstance(block.get("thinking"), str), f"{where}.thinking: Field required")
        require_text(block.get("signature"), f"{where}.signature")
    result: Json = block
    return result


# ------------------------------------------------------------------ answers


def _named(name: str, data: Any) -> bytes:
    """Return one event.

    name: stands in the event line and in the data, as at the service.
    """
    return b"event: %s\ndata: %s\n\n" % (name.encode(), dump({"type": name, **data}))


def message_events(answer: ProviderAnswer, new_id: NewId) -> list[bytes]:
    """Return the events of a message.

    Every content block is announced, sent in deltas and closed; then follow the stop reason with the final
    usage, and the end. The usage at the start has one token of output, since nothing was generated at that
    time.
    """
    opening = {"id": "msg_test", "type": "message", "role": "assistant", "model": "test", "content": []}
    # The usage of the prompt is known at the start, that of the answer at the end only. Clients add up both.
    usage = {**_usage(answer), "output_tokens": 1}
    stream = [_named("message_start", {"message": {**opening, "stop_reason": None, "usage": usage}})]
    index = 0
    for block in answer.thinking:
        stream += _block(index, *_thinking_parts(block, answer.pieces))
        index += 1
    if answer.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in split(answer.text, answer.pieces)]
        stream += _block(index, {"type": "text", "text": ""}, deltas)
        index += 1
    for call in answer.calls:
        start = {"type": "tool_use", "id": call.id or f"toolu_{new_id()}", "name": call.name, "input": {}}
        pieces = split(arguments_text(call), answer.pieces)
        stream += _block(index, start, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces])
        index += 1
    # The status was 200 when the stream began, so an error can only be an event. Nothing follows it.
    if answer.error:
        error = {"type": answer.error[0], "message": answer.error[1]}
        return [*stream, _named("error", {"error": error})]
    ending = {"delta": {"stop_reason": _stop_word(answer), "stop_sequence": None}}
    total = {"output_tokens": answer.usage.completion_tokens}
    return [*stream, _named("message_delta", {**ending, "usage": total}), _named("message_stop", {})]


def _block(index: int, start: Any, deltas: list[Any]) -> list[bytes]:
    """Return the events of one content block.

    index: place of the block in the message, by which a client puts deltas together.
    """
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
    deltas: list[Any] = [{"type": "thinking_delta", "thinking": piece} for piece in split(block["thinking"], pieces)]
    deltas.append({"type": "signature_delta", "signature": block["signature"]})
    return {"type": "thinking", "thinking": "", "signature": ""}, deltas


def _stop_word(answer: ProviderAnswer) -> str:
    """Return the reason why the answer ends, in the words of this API."""
    return answer.stop_reason or ("tool_use" if answer.calls else "end_turn")


def _usage(answer: ProviderAnswer) -> dict[str, Any]:
    """Return the usage as this API counts it.

    Here `input_tokens` excludes the tokens that were read from or written to the cache, while
    `Usage.prompt_tokens` includes them, as OpenAI's `prompt_tokens` does.
    """
    usage = answer.usage
    return {
        "input_tokens": usage.prompt_tokens - usage.cache_read_tokens - usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_creation": {
            "ephemeral_1h_input_tokens": usage.cache_hour_tokens,
            "ephemeral_5m_input_tokens": usage.cache_write_tokens - usage.cache_hour_tokens,
        },
        "output_tokens": usage.completion_tokens,
    }


def whole_message(answer: ProviderAnswer, new_id: NewId) -> bytes:
    """Return a message that is not streamed.

    Arguments are put in as they are: a malformed text stays a text, which a client must bear.
    """
    content: list[Any] = [*answer.thinking]
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    for call in answer.calls:
        use = {"type": "tool_use", "id": call.id or f"toolu_{new_id()}", "name": call.name, "input": call.arguments}
        content.append(use)
    base = {"id": "msg_test", "type": "message", "role": "assistant", "model": "test", "content": content}
    return dump({**base, "stop_reason": _stop_word(answer), "usage": _usage(answer)})
