"""The two wire formats, as little of them as a turn needs: bodies from fragments that are serialised once, answers from events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

import attrs

from benchmarks.history import Exchange, encode

HEADERS = {
    "content-type": "application/json",
    "authorization": "Bearer no-key",
    "x-api-key": "no-key",
    "anthropic-version": "2023-06-01",
}
"""Of a request of either kind."""

_SYSTEM = "You are the keeper of a harbour lamp. What you write is private; only the reply tool speaks. " * 24
_PARAMETERS = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("text", "channelId", "channelType")},
    "required": ["text", "channelId"],
}


@attrs.define
class Answer:
    """What came of a call. arguments: the JSON text of the reply call's arguments."""

    text: str = ""
    call_id: str = ""
    arguments: str = ""

    def exchange(self, number: int, question: str) -> Exchange:
        return Exchange(number, question, self.text, json.loads(self.arguments)["text"], self.call_id)


class Wire(Protocol):
    """name: the provider's type. path: below the base URL. stream: whether to ask for events."""

    name: str
    path: str

    def head(self, *, stream: bool) -> bytes: ...
    def question(self, content: str, before: Exchange | None) -> bytes: ...
    def answer(self, pair: Exchange) -> bytes: ...
    def feed(self, event: Any, answer: Answer) -> None: ...


def body(wire: Wire, fragments: Sequence[bytes], *, stream: bool = True) -> bytes:
    """Return a whole request: the head, then the turns."""
    return b"%s%s]}" % (wire.head(stream=stream), b",".join(fragments))


def fragments_of(wire: Wire, history: Sequence[Exchange]) -> list[bytes]:
    fragments: list[bytes] = []
    before: Exchange | None = None
    for pair in history:
        fragments += (wire.question(pair.content, before), wire.answer(pair))
        before = pair
    return fragments


class OpenAi:
    """OpenAI's wire format: chat completions."""

    name = "openai"
    path = "/chat/completions"

    def head(self, *, stream: bool) -> bytes:
        tool = {"type": "function", "function": {"name": "reply", "description": "Speak.", "parameters": _PARAMETERS}}
        head = {
            "model": "echo",
            "stream": stream,
            "tools": [tool],
            "messages": [{"role": "system", "content": _SYSTEM}],
        }
        return encode(head)[:-2] + b","

    def question(self, content: str, before: Exchange | None) -> bytes:
        return encode({"role": "user", "content": content})

    def answer(self, pair: Exchange) -> bytes:
        function = {"name": "reply", "arguments": json.dumps(pair.arguments)}
        calls = [{"id": pair.call_id, "type": "function", "function": function}]
        turn = encode({"role": "assistant", "content": pair.thought, "tool_calls": calls})
        return turn + b"," + encode({"role": "tool", "tool_call_id": pair.call_id, "content": pair.result})

    def feed(self, event: Any, answer: Answer) -> None:
        for choice in event["choices"]:
            delta = choice["delta"]
            answer.text += delta.get("content") or ""
            for call in delta.get("tool_calls") or ():
                answer.call_id = call.get("id") or answer.call_id
                answer.arguments += call["function"].get("arguments") or ""


class Anthropic:
    """Anthropic's wire format: messages."""

    name = "anthropic"
    path = "/v1/messages"

    def head(self, *, stream: bool) -> bytes:
        tool = {"name": "reply", "description": "Speak.", "input_schema": _PARAMETERS}
        head = {
            "model": "echo",
            "max_tokens": 8192,
            "stream": stream,
            "system": _SYSTEM,
            "tools": [tool],
            "messages": [],
        }
        return encode(head)[:-2]

    def question(self, content: str, before: Exchange | None) -> bytes:
        blocks: list[Any] = [{"type": "text", "text": content}]
        if before is not None:
            blocks.insert(0, {"type": "tool_result", "tool_use_id": before.call_id, "content": before.result})
        return encode({"role": "user", "content": blocks})

    def answer(self, pair: Exchange) -> bytes:
        use = {"type": "tool_use", "id": pair.call_id, "name": "reply", "input": pair.arguments}
        thought = [{"type": "text", "text": pair.thought}] if pair.thought else []
        return encode({"role": "assistant", "content": [*thought, use]})

    def feed(self, event: Any, answer: Answer) -> None:
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            answer.call_id = event["content_block"]["id"]
        elif event["type"] == "content_block_delta":
            answer.text += event["delta"].get("text", "")
            answer.arguments += event["delta"].get("partial_json", "")


WIRES: dict[str, Wire] = {wire.name: wire for wire in (OpenAi(), Anthropic())}
