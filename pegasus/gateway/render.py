"""What the gateway says, as text frames. Pure."""

from __future__ import annotations

import json
from functools import cache

from pegasus.gateway.frames import Hello
from pegasus.messages import Json, OutboundMessage, Progress, Typing
from pegasus.wire import to_wire

PROTOCOL = 1


@cache
def _encoder() -> json.JSONEncoder:
    return json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _frame(frame: dict[str, Json]) -> str:
    return _encoder().encode(frame)


def welcome(agent: str, hello: Hello, seq: int) -> str:
    """The answer to a good hello; seq is the last one assigned to the address, 0 for a bridge."""
    channel: dict[str, Json] = {"type": hello.type} if hello.channel is None else to_wire(hello.channel)
    return _frame({"type": "welcome", "protocol": PROTOCOL, "agent": agent, "channel": channel, "seq": seq})


def accepted(id: str) -> str:
    """The message is on disk."""
    return _frame({"type": "accepted", "id": id})


def reply(message: OutboundMessage) -> str:
    """Something the agent says."""
    return _frame({"type": "reply", **to_wire(message)})


def typing(typing: Typing) -> str:
    """The agent began or ended thinking about a message of this channel."""
    return _frame({"type": "typing", "channel": to_wire(typing.channel), "active": typing.active})


def progress(draft: Progress) -> str:
    """What the agent is about to say on this channel, as far as it is written."""
    return _frame({"type": "progress", "channel": to_wire(draft.channel), "text": draft.text})


def result(id: str, value: Json) -> str:
    """The answer to a call. Raises ValueError, TypeError or RecursionError if the value is not JSON."""
    return _frame({"type": "result", "id": id, "result": value})


def error(code: str, message: str, id: str | None = None) -> str:
    """What was wrong, in words for a person; codes in interfaces section 3."""
    frame: dict[str, Json] = {"type": "error", "code": code, "message": message}
    return _frame(frame if id is None else {**frame, "id": id})
