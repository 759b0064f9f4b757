"""The entries of a conversation, one for each line of a session file and each message of a task.

An entry is written once and never changed. On disk it is a JSON object whose empty parts are absent; `item` and `failed` stand in its
metadata, as "item" and "error":

    {"ts":1772029800000,"role":"assistant","content":"…","toolCalls":[{"id":"c1","name":"reply","arguments":{…}}],"metadata":{…}}

Reading is more lenient than `wire.from_wire`, and deliberately so. `from_wire` guards against what strangers send: it refuses JSON
that is nested deeply, or a number where a whole number belongs. An entry is our own record of something that has happened, perhaps
written by another program or an older version, and refusing it would lose it. So `decode` takes every line that can be
understood, and its own BadEntry says what is wrong with the others.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import attrs

from pegasus.messages import Json, Metadata
from pegasus.models import ToolCall
from pegasus.outside import OUTSIDE, Untrusted, parse_outside
from pegasus.wire import decode_object, encode_line, use_functions

Role = Literal["user", "assistant", "tool", "system"]
"""Author of an entry. Notes of the program ("system") are shown to a provider as text of the user, in their place."""

_ROLES: Final[frozenset[str]] = frozenset(get_args(Role))


@attrs.frozen
class Entry:
    """Something that was said, thought, called or returned.

    Example: `Entry(now, "tool", '{"queued":true}', call_id="c1")` is the result of the call `c1`.
    """

    ts: int
    """Wall clock, ms since the epoch."""
    role: Role
    """Author: "user" (a message, a notification), "assistant" (a thought), "tool" (a result) or "system" (a note of the program)."""
    content: str = ""
    """Text. Of a user entry the first line is the metadata line of its channel."""
    calls: tuple[ToolCall, ...] = ()
    """Tool calls of an assistant entry."""
    call_id: str | None = None
    """Of a tool entry: the call that it is the result of. None for every other role."""
    metadata: Metadata = attrs.field(factory=dict)
    """Facts beside the text.

    user: "messageId", "userId", "media", "skill". assistant: "thinking", "thinkingOf", "usage",
    "stopReason", "spoken", "sends" (files that go out with it). tool: "gathered" (a file that
    waits for the end of the turn). Any role: "type" (kind of a note of ours), "ends" (true if the
    note ends the work on its item), "outside", "fence" and "fencedFrom" (text from outside; see `sanitize`).
    """

    item: int | None = attrs.field(default=None, kw_only=True)
    """Number in the inbox of the message that this user entry holds; None for every other entry."""
    failed: bool = attrs.field(default=False, kw_only=True)
    """True if this is the result of a call that failed or was cancelled."""

    @property
    def outside(self) -> tuple[Untrusted, ...]:
        """Labels of the text from outside that it has, or that it was made of (see `sanitize`)."""
        return parse_outside(self.metadata) if OUTSIDE in self.metadata else ()


class BadEntry(ValueError):
    """JSON that is no entry. The text says what is wrong, for the log line about the damaged line.

    Example::

        try:
            entry = decode(line.value)
        except BadEntry as error:
            log.warning("damaged line in the session", line=line.number, problem=str(error))
    """


def encode(entry: Entry) -> bytes:
    """Return the entry as one JSON line, newline included."""
    return encode_line(to_json(entry))


def to_json(entry: Entry) -> dict[str, Json]:
    """Return the entry as a JSON object without its empty parts. `decode` is the way back."""
    line: dict[str, Json] = {"ts": entry.ts, "role": entry.role}
    if entry.content:
        line["content"] = entry.content
    if entry.calls:
        line["toolCalls"] = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in entry.calls]
    if entry.call_id is not None:
        line["toolCallId"] = entry.call_id
    metadata = dict(entry.metadata)
    if entry.item is not None:
        metadata = {"item": entry.item, **metadata}
    if entry.failed:
        metadata["error"] = True
    if metadata:
        line["metadata"] = metadata
    return line


def decode(value: object) -> Entry:
    """Return the entry of a parsed line. Unknown keys are ignored, so that files of newer versions can be read. Raises BadEntry."""
    if not isinstance(value, dict):
        raise BadEntry(f"an object is wanted, found {type(value).__name__}")
    role: Any = value.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise BadEntry(f"unknown role {role!r}")
    ts, content, metadata = value.get("ts", 0), value.get("content", ""), value.get("metadata", {})
    if not isinstance(ts, (int, float)) or not isinstance(content, str) or not isinstance(metadata, dict):
        raise BadEntry("ts must be a number, content a string, metadata an object")
    call_id, calls = value.get("toolCallId"), value.get("toolCalls", [])
    if (role == "tool") is not isinstance(call_id, str):
        raise BadEntry("toolCallId belongs to role tool, and only there")
    if not isinstance(calls, list):
        raise BadEntry("toolCalls must be a list")
    facts = dict(metadata)
    item = facts.pop("item") if role == "user" and type(facts.get("item")) is int else None
    failed = facts.get("error") is True and facts.pop("error")
    known_role: Any = role
    return Entry(
        _whole(ts), known_role, content, tuple(map(_decode_call, calls)), call_id, facts, item=item, failed=failed
    )


def _whole(ts: float) -> int:
    """Return a time as whole ms. Other programs wrote fractions. Raises BadEntry for NaN and infinity."""
    try:
        return int(ts)
    except (ValueError, OverflowError) as error:  # NaN, Infinity
        raise BadEntry("ts must be a number") from error


def _decode_call(value: Any) -> ToolCall:
    """Return a call of a parsed line. Arguments that cannot be read become {}, since the call has happened. Raises BadEntry."""
    if not isinstance(value, dict):
        raise BadEntry("a tool call must be an object")
    call_id, name, arguments = value.get("id"), value.get("name"), value.get("arguments", {})
    if isinstance(arguments, str):  # JSON within a string, as other programs have written it
        try:
            arguments = decode_object(arguments)
        except ValueError:
            arguments = {}
    if not isinstance(call_id, str) or not isinstance(name, str) or not isinstance(arguments, dict):
        raise BadEntry("a tool call needs id, name and an arguments object")
    return ToolCall(call_id, name, arguments)


use_functions(Entry, to_json, decode)
