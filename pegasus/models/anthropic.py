"""Anthropic's Messages API (https://platform.claude.com/docs/en/api/messages), for Claude and for servers that speak like it.

What is cached by the provider: the tools, the system prompt, and the conversation up to the last block, whose
cache_control moves on with every call. Everything before that marker is, byte for byte, what was sent the time before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pegasus.messages import Json
from pegasus.models.base import (
    AssistantTurn,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolResult,
    ToolSpec,
    Turn,
    Usage,
    UserTurn,
)
from pegasus.models.encoding import encode, mend, read_arguments, wire_id, wire_name
from pegasus.models.ids import CallIds
from pegasus.models.sdk import Sdk, load

TYPE: Final = "anthropic"
BASE_URL: Final = "https://api.anthropic.com"

_EPHEMERAL: Final[Json] = {"type": "ephemeral"}
_MARKER: Final = b',"cache_control":{"type":"ephemeral"}'
_STOP_REASONS = {"end_turn": "end", "stop_sequence": "end", "tool_use": "tool_calls", "max_tokens": "length"}
_THINKING = ("thinking", "redacted_thinking")


def sdk(api_key: str, base_url: str) -> Sdk:
    """The client. Servers other than Anthropic's own get the key in both headers that are in use."""
    options: dict[str, object] = {
        "api_key": api_key or "none",
        "base_url": base_url or BASE_URL,
        "open_telemetry": False,
    }
    if base_url not in ("", BASE_URL):
        options["default_headers"] = {"X-Api-Key": api_key or "none"}
    return Sdk("anthropic", lambda: load("anthropic", "AsyncAnthropic", options, (api_key,)))


class AnthropicWire:
    """The wire format for one model; keeps the head of the body, which seldom changes."""

    path = "/v1/messages"

    def __init__(self, model: str) -> None:
        self._model = model
        self._head: tuple[object, bytes] = (None, b"")

    def body(self, request: ModelRequest) -> bytes:
        """The request as JSON; each turn is serialised once in its life."""
        parts = [turn.fragments.get(TYPE) or _fragment(turn) for turn in request.turns]
        parts[-1] = b"%s%s}]}]}" % (parts[-1][:-3], _MARKER)
        parts[0] = self._cached_head(request) + parts[0]
        return b",".join(parts)

    def assembler(self, request: ModelRequest, body: bytes) -> MessageAssembler:
        """For the answer to this request."""
        return MessageAssembler(request.tools, CallIds(body))

    def adapt(self, status: int, body: object, request: ModelRequest) -> bool:
        """Nothing to learn: there is one dialect."""
        return False

    def _cached_head(self, request: ModelRequest) -> bytes:
        tools = request.tools or _tools_of_history(request.turns)
        choice = request.tool_choice if request.tools else "none"
        key = (request.system, tools, choice, request.max_tokens)
        if self._head[0] != key:
            self._head = (key, self._make_head(request, tools, choice))
        return self._head[1]

    def _make_head(self, request: ModelRequest, tools: tuple[ToolSpec, ...], choice: str) -> bytes:
        head: dict[str, Json] = {"model": self._model, "max_tokens": request.max_tokens, "stream": True}
        if tools:
            specs: list[dict[str, Json]] = [_tool(spec) for spec in tools]
            specs[-1]["cache_control"] = _EPHEMERAL
            head["tools"] = list[Json](specs)
            if choice != "auto":
                head["tool_choice"] = _choice(choice)
        if request.system.strip():
            head["system"] = [{"type": "text", "text": request.system, "cache_control": _EPHEMERAL}]
        return encode(head)[:-1] + b',"messages":['


def _tool(spec: ToolSpec) -> dict[str, Json]:
    return {"name": wire_name(spec.name), "description": spec.description, "input_schema": spec.parameters}


def _choice(choice: str) -> Json:
    known = {"none": "none", "required": "any"}.get(choice)
    return {"type": known} if known else {"type": "tool", "name": wire_name(choice)}


def _tools_of_history(turns: tuple[Turn, ...]) -> tuple[ToolSpec, ...]:
    """Tools must be declared where the conversation has calls of them, also in a call that offers none."""
    names = sorted({call.name for turn in turns if isinstance(turn, AssistantTurn) for call in turn.calls})
    return tuple(ToolSpec(name, "No longer available.", {"type": "object"}) for name in names)


# ------------------------------------------------------------------ a turn


def _fragment(turn: Turn) -> bytes:
    """The turn as one message. It always ends in `}]}`, where the cache marker goes in."""
    if isinstance(turn, UserTurn):
        message: Json = {"role": "user", "content": list(_user_blocks(turn))}
    else:
        message = {"role": "assistant", "content": list(_assistant_blocks(turn))}
    turn.fragments[TYPE] = fragment = encode(message)
    return fragment


def _user_blocks(turn: UserTurn) -> Iterator[Json]:
    for result in turn.results:
        yield _result(result)
    if turn.text.strip():
        yield {"type": "text", "text": turn.text}
    elif not turn.results:
        yield {"type": "text", "text": "(empty message)"}


def _result(result: ToolResult) -> Json:
    block: dict[str, Json] = {
        "type": "tool_result",
        "tool_use_id": wire_id(result.call_id),
        "content": result.content if result.content.strip() else "(no output)",
    }
    return {**block, "is_error": True} if result.is_error else block


def _assistant_blocks(turn: AssistantTurn) -> Iterator[Json]:
    """Thinking first, then text, then calls; where the model had mixed them, in the model's own order."""
    layout = turn.thinking if turn.thinking_of == TYPE else ()
    if not _fits(layout, turn):
        layout = tuple(block for block in layout if _kind(block) in _THINKING)
    mixed = any(_kind(block) == "text" for block in layout)
    calls = {wire_id(call.id): call for call in turn.calls}
    empty = True
    for block in layout:
        if _kind(block) == "tool_use":
            yield _use(calls.pop(_ref(block)))
        else:
            yield block
        empty = _kind(block) in _THINKING
    if turn.text.strip() and not mixed:
        yield {"type": "text", "text": turn.text}
        empty = False
    for call in calls.values():
        yield _use(call)
        empty = False
    if empty:
        yield {"type": "text", "text": "(silence)"}


def _fits(layout: tuple[Json, ...], turn: AssistantTurn) -> bool:
    """Whether the recorded order of blocks still tells of this very text and these very calls."""
    text = "".join(str(block.get("text")) for block in layout if isinstance(block, Mapping) and _kind(block) == "text")
    uses = [_ref(block) for block in layout if _kind(block) == "tool_use"]
    known = {wire_id(call.id) for call in turn.calls}
    return (not text or text == turn.text) and len(uses) == len(set(uses)) and known.issuperset(uses)


def _use(call: ToolCall) -> Json:
    return {"type": "tool_use", "id": wire_id(call.id), "name": wire_name(call.name), "input": call.arguments}


def _kind(block: Json) -> object:
    return block.get("type") if isinstance(block, Mapping) else None


def _ref(block: Json) -> str:
    return str(block.get("id")) if isinstance(block, Mapping) else ""


# ------------------------------------------------------------------ an answer


class MessageAssembler:
    """Puts a Message together from its stream events (https://platform.claude.com/docs/en/build-with-claude/streaming)."""

    def __init__(self, tools: tuple[ToolSpec, ...], ids: CallIds) -> None:
        self._names = {wire_name(tool.name): tool.name for tool in tools}
        self._ids = ids
        self._blocks: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {}
        self._stop = ""
        self.complete = False

    def feed(self, event: Any) -> object:
        """Take one event. Returns an error object if that is what it is, else None."""
        kind = event.get("type") or ("error" if "error" in event else "")
        if kind == "content_block_delta":
            self._grow(self._blocks[event["index"]], event["delta"])
        elif kind == "content_block_start":
            self._blocks[event["index"]] = {**event["content_block"], "pieces": []}
        elif kind == "message_start":
            self._count(event["message"].get("usage"))
        elif kind == "message_delta":
            self._stop = event["delta"].get("stop_reason") or self._stop
            self._count(event.get("usage"))
            self.complete = bool(self._stop)
        elif kind == "message_stop":
            self.complete = True
        elif kind == "error":
            return event.get("error") or event
        return None

    def end(self) -> None:
        """The `[DONE]` of other formats means nothing here."""

    def whole(self, body: Any) -> object:
        """Take a message that came in one piece."""
        if body.get("type") == "error" or "content" not in body:
            return body.get("error") or body
        self._blocks = {index: {**block, "pieces": []} for index, block in enumerate(body["content"])}
        self._count(body.get("usage"))
        self._stop = body.get("stop_reason") or ""
        self.complete = True
        return None

    def _grow(self, block: dict[str, Any], delta: Any) -> None:
        kind = delta["type"]
        if kind == "text_delta":
            block["pieces"].append(delta["text"])
        elif kind == "input_json_delta":
            block["pieces"].append(delta["partial_json"])
        elif kind == "thinking_delta":
            block["pieces"].append(delta["thinking"])
        elif kind == "signature_delta":
            block["signature"] = block.get("signature", "") + delta["signature"]

    def _count(self, usage: Any) -> None:
        """Numbers are cumulative; a later one replaces an earlier one, null says nothing."""
        self._usage.update({key: value for key, value in (usage or {}).items() if isinstance(value, int)})

    def response(self) -> ModelResponse:
        """The answer. Only when complete."""
        blocks = [block for _, block in sorted(self._blocks.items())]
        layout: list[Json] = []
        texts: list[str] = []
        calls: list[ToolCall] = []
        for block in blocks:
            kind = block["type"]
            if kind == "text":
                text = mend(block.get("text", "") + "".join(block["pieces"]))
                if text.strip():
                    texts.append(text)
                    layout.append({"type": "text", "text": text})
            elif kind == "tool_use":
                calls.append(self._call(block))
                layout.append({"type": "tool_use", "id": calls[-1].id})
            elif kind in _THINKING:
                layout.append(_thought(block))
        thinking = _without_order(layout)
        return ModelResponse(
            text="".join(texts),
            calls=tuple(calls),
            usage=self._total(),
            stop_reason=_STOP_REASONS.get(self._stop, self._stop) or ("tool_calls" if calls else "end"),
            thinking=thinking,
            thinking_of=TYPE if thinking else None,
        )

    def _call(self, block: dict[str, Any]) -> ToolCall:
        raw = "".join(block["pieces"]) or block.get("input")
        arguments, error = read_arguments(raw, cut=self._stop == "max_tokens")
        name = str(block["name"])
        return ToolCall(
            self._ids.unique(str(block.get("id") or "")), self._names.get(name, mend(name)), arguments, error
        )

    def _total(self) -> Usage:
        count = self._usage.get
        read, written = count("cache_read_input_tokens", 0), count("cache_creation_input_tokens", 0)
        return Usage(count("input_tokens", 0) + read + written, count("output_tokens", 0), read, written)


def _thought(block: dict[str, Any]) -> Json:
    if block["type"] == "thinking":
        block["thinking"] = mend(block.get("thinking", "") + "".join(block["pieces"]))
    return {key: value for key, value in block.items() if key != "pieces"}


def _without_order(layout: list[Json]) -> tuple[Json, ...]:
    """The thinking blocks alone; with the others in between where the model wrote any before the last of them."""
    thoughts = [index for index, block in enumerate(layout) if _kind(block) in _THINKING]
    if thoughts != list(range(len(thoughts))):
        return tuple(layout)
    return tuple(layout[: len(thoughts)])
