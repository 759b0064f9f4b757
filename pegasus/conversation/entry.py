"""One line of a session file, and one message of a task (interfaces section 5)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, get_args

import attrs

from pegasus.messages import Json, Metadata
from pegasus.models import ToolCall

Role = Literal["user", "assistant", "tool", "system"]
_ROLES: frozenset[str] = frozenset(get_args(Role))
_OBJECT = (dict, Mapping)  # in this order: asking the abstract class is slow, and long logs are read with this
_NUMBER = (int, float)
_PLAIN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ESCAPED = json.JSONEncoder(separators=(",", ":"))


@attrs.frozen
class Entry:
    """What was said, thought, called or returned. ts: wall clock, ms since the epoch.

    metadata of a user entry: "item" (its number in the inbox); of an assistant entry: "thinking", "thinkingOf", "usage",
    "stopReason"; of a tool entry: "error" (true if the call failed); of any: "type" (a note of ours).
    """

    ts: int
    role: Role
    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    metadata: Metadata = attrs.field(factory=dict)

    @property
    def item(self) -> int | None:
        """The inbox number of the message that this user entry holds."""
        n = self.metadata.get("item")
        return n if type(n) is int and self.role == "user" else None

    @property
    def failed(self) -> bool:
        """Whether this is the result of a call that failed or was cancelled."""
        return self.metadata.get("error") is True


class BadEntry(ValueError):
    """A line that is JSON, but no session entry; says what is wrong."""


def encode(entry: Entry) -> bytes:
    """The entry as one JSON line with its newline; what is empty is absent."""
    line = to_json(entry)
    try:
        return _PLAIN.encode(line).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can carry: another program wrote it so
        return _ESCAPED.encode(line).encode() + b"\n"


def to_json(entry: Entry) -> dict[str, Json]:
    """The entry as a JSON object; what is empty is absent. `decode` is the way back."""
    line: dict[str, Json] = {"ts": entry.ts, "role": entry.role}
    if entry.content:
        line["content"] = entry.content
    if entry.calls:
        line["toolCalls"] = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in entry.calls]
    if entry.call_id is not None:
        line["toolCallId"] = entry.call_id
    if entry.metadata:
        line["metadata"] = entry.metadata
    return line


def decode(value: object) -> Entry:
    """The entry of a parsed line. Raises BadEntry. Unknown keys are ignored, so that newer files can be read."""
    if type(value) is not dict and not isinstance(value, Mapping):
        raise BadEntry(f"an object is wanted, found {type(value).__name__}")
    get = value.get
    role: Any = get("role")
    ts, content, metadata = get("ts", 0), get("content", ""), get("metadata")
    call_id, calls = get("toolCallId"), get("toolCalls")
    known: Any = type(role) is str and role in _ROLES  # (a list has no hash)
    if not known:
        raise BadEntry(f"unknown role {role!r}")
    if metadata is None and "metadata" not in value:
        metadata = {}
    if type(ts) is not int or type(content) is not str or type(metadata) is not dict:  # rare: asking by type is quicker
        if not isinstance(ts, _NUMBER) or not isinstance(content, str) or not isinstance(metadata, _OBJECT):
            raise BadEntry("ts must be a number, content a string, metadata an object")
        ts = _whole(ts)
    if (role == "tool") is not isinstance(call_id, str):
        raise BadEntry("toolCallId belongs to role tool, and only there")
    if calls is None and "toolCalls" not in value:
        return Entry(ts, role, content, (), call_id, metadata)
    if not isinstance(calls, list):
        raise BadEntry("toolCalls must be a list")
    return Entry(ts, role, content, tuple([_decode_call(call) for call in calls]), call_id, metadata)


def _whole(ts: float) -> int:
    try:
        return int(ts)
    except (ValueError, OverflowError) as error:  # NaN, Infinity
        raise BadEntry("ts must be a number") from error


def _decode_call(value: Any) -> ToolCall:
    if not isinstance(value, _OBJECT):
        raise BadEntry("a tool call must be an object")
    call_id, name, arguments = value.get("id"), value.get("name"), value.get("arguments", {})
    if isinstance(arguments, str):  # as other programs wrote it
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {}
    if not isinstance(call_id, str) or not isinstance(name, str) or not isinstance(arguments, _OBJECT):
        raise BadEntry("a tool call needs id, name and an arguments object")
    return ToolCall(call_id, name, arguments)
