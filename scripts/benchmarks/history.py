"""A conversation of a given length, in Pegasus's session format and in both providers'."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

_PROSE = (
    "the harbour lamp was lit again this morning and the keeper wrote down wind water and passing sails "
    "before the first boat came in with news from the other shore about prices weather and an old friend"
)
_WORDS = _PROSE.split()
_BEGAN = 1_767_225_600_000  # some moment, ms since the epoch

CHANNEL_TYPE, CHANNEL_ID = "web", "bench"
METADATA_LINE = f"[channel: {CHANNEL_TYPE} | id: {CHANNEL_ID}]"
MESSAGES_PER_EXCHANGE = 3


@attrs.frozen
class Exchange:
    """A question, a thought with a reply, and that reply's result: three messages."""

    number: int
    question: str
    thought: str
    reply: str
    call_id: str

    @property
    def content(self) -> str:
        """The question as the model is shown it."""
        return f"{METADATA_LINE}\n{self.question}"

    @property
    def arguments(self) -> dict[str, str]:
        return {"text": self.reply, "channelId": CHANNEL_ID, "channelType": CHANNEL_TYPE}

    @property
    def result(self) -> str:
        result = {"queued": True, "channelType": CHANNEL_TYPE, "channelId": CHANNEL_ID, "seq": self.number}
        return json.dumps(result, separators=(",", ":"))


def exchange(number: int) -> Exchange:
    """The texts are of the length people's messages have (about 150 characters)."""
    question, thought, reply = _text(number, 24), _text(number + 7, 16), _text(number + 3, 32)
    return Exchange(number, f"{number}: {question}?", thought, f"{number}: {reply}", f"call_{number}")


def _text(start: int, words: int) -> str:
    return " ".join(_WORDS[(start + i) % len(_WORDS)] for i in range(words))


def conversation(messages: int) -> list[Exchange]:
    """So many messages, or up to two fewer."""
    return [exchange(number) for number in range(1, messages // MESSAGES_PER_EXCHANGE + 1)]


def session_lines(history: Sequence[Exchange]) -> Iterator[bytes]:
    """Yield the lines of the session file in which Pegasus keeps such a conversation."""
    for pair in history:
        ts = _BEGAN + pair.number * 60_000
        yield encode({"ts": ts, "role": "user", "content": pair.content}) + b"\n"
        call = {"id": pair.call_id, "name": "reply", "arguments": pair.arguments}
        yield encode({"ts": ts + 1, "role": "assistant", "content": pair.thought, "toolCalls": [call]}) + b"\n"
        yield encode({"ts": ts + 2, "role": "tool", "content": pair.result, "toolCallId": pair.call_id}) + b"\n"


def encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
