"""A streamed message of Anthropic's put together again, its thinking blocks in their places."""

from __future__ import annotations

from typing import Any, Final

from pegasus.messages import Json
from pegasus.models.base import ModelResponse, ToolCall, ToolSpec, Usage
from pegasus.models.encoding import mend, read_arguments, wire_name
from pegasus.models.ids import CallIds

TYPE: Final = "anthropic"
THINKING: Final = ("thinking", "redacted_thinking")

_STOP_REASONS = {"end_turn": "end", "stop_sequence": "end", "tool_use": "tool_calls", "max_tokens": "length"}


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
            elif kind in THINKING:
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
    thoughts = [n for n, block in enumerate(layout) if isinstance(block, dict) and block.get("type") in THINKING]
    if thoughts != list(range(len(thoughts))):
        return tuple(layout)
    return tuple(layout[: len(thoughts)])
