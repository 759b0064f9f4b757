"""A streamed message of Anthropic's put together again, its thinking blocks in their places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pegasus.messages import Json
from pegasus.models.base import ModelResponse, ToolCall, Usage
from pegasus.models.encoding import mend, read_arguments
from pegasus.models.ids import CallIds
from pegasus.models.stops import CUT, explanation, half_call, stop_reason
from pegasus.models.telling import Tell, nobody

TYPE: Final = "anthropic"
THINKING: Final = ("thinking", "redacted_thinking")


class MessageAssembler:
    """Puts a Message together from its stream events (https://platform.claude.com/docs/en/build-with-claude/streaming).

    names: the tools' own names by those on the wire. tell: told the text as it comes.
    """

    def __init__(self, names: Mapping[str, str], ids: CallIds, tell: Tell = nobody) -> None:
        self._names = names
        self._ids = ids
        self._tell = tell
        self._blocks: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {}
        self._stop = ""
        self._details: object = None
        self.complete = False

    def feed(self, event: Any) -> object:
        """Take one event. Returns an error object if that is what it is, else None."""
        kind = event.get("type") or ("error" if "error" in event else "")
        if kind == "content_block_delta":
            self._grow(self._blocks[event["index"]], event["delta"])
        elif kind == "content_block_start":
            self._blocks[event["index"]] = block = {**event["content_block"], "pieces": []}
            self._speak(block)
        elif kind == "message_start":
            self._count(event["message"].get("usage"))
        elif kind == "message_delta":
            self._stop = event["delta"].get("stop_reason") or self._stop
            self._details = event["delta"].get("stop_details") or self._details
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
        for block in self._blocks.values():
            self._speak(block)
        self._count(body.get("usage"))
        self._stop = body.get("stop_reason") or ""
        self._details = body.get("stop_details")
        self.complete = True
        return None

    def _grow(self, block: dict[str, Any], delta: Any) -> None:
        kind = delta["type"]
        if kind == "text_delta":
            block["pieces"].append(delta["text"])
            if block.get("spoken"):
                self._tell(delta["text"])
            else:
                self._speak(block)
        elif kind == "input_json_delta":
            block["pieces"].append(delta["partial_json"])
        elif kind == "thinking_delta":
            block["pieces"].append(delta["thinking"])
        elif kind == "signature_delta":
            block["signature"] = block.get("signature", "") + delta["signature"]

    def _speak(self, block: dict[str, Any]) -> None:
        """Begin to tell a block's text, once it is more than blanks: a blank block is no part of the answer."""
        text = block.get("text", "") + "".join(block["pieces"]) if block["type"] == "text" else ""
        if text.strip():
            block["spoken"] = True
            self._tell(text)

    def _count(self, usage: Any) -> None:
        """Numbers are cumulative; a later one replaces an earlier one, null says nothing."""
        self._usage.update({key: value for key, value in (usage or {}).items() if isinstance(value, int)})

    def response(self) -> ModelResponse:
        """The answer. Only when complete."""
        blocks = [block for _, block in sorted(self._blocks.items())]
        layout: list[Json] = []
        texts: list[str] = []
        calls: list[ToolCall] = []
        stop = stop_reason(self._stop, calls=any(block["type"] == "tool_use" for block in blocks))
        for block in blocks:
            kind = block["type"]
            if kind == "text":
                text = mend(block.get("text", "") + "".join(block["pieces"]))
                if text.strip():
                    texts.append(text)
                    layout.append({"type": "text", "text": text})
            elif kind == "tool_use":
                calls.append(self._call(block, stop, last=block is blocks[-1]))
                layout.append({"type": "tool_use", "id": calls[-1].id})
            elif kind in THINKING:
                layout.append(_thought(block))
        thinking = _without_order(layout)
        return ModelResponse(
            text="".join(texts) or (explanation(self._details) if stop == "refusal" and not calls else ""),
            calls=tuple(calls),
            usage=self._total(),
            stop_reason=stop,
            thinking=thinking,
            thinking_of=TYPE if thinking else None,
        )

    def _call(self, block: dict[str, Any], stop: str, *, last: bool) -> ToolCall:
        raw = "".join(block["pieces"]) or block.get("input")
        arguments, error = read_arguments(raw, cut=CUT.get(stop, ""))
        error = error or half_call(raw, stop, last=last)
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
