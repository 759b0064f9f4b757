"""The entries of a conversation, one for each line of a session file and each message of a task; and the repair of a loaded log.

An entry is written once and never changed. On disk it is a JSON object whose empty parts are absent; `item` and `failed` stand in its
metadata, as "item" and "error":

    {"ts":1772029800000,"role":"assistant","content":"…","toolCalls":[{"id":"c1","name":"reply","arguments":{…}}],"metadata":{…}}

Reading is more lenient than `wire.from_wire`, and deliberately so. `from_wire` guards against what strangers send: it refuses JSON
that is nested deeply, or a number where a whole number belongs. An entry is our own record of something that has happened, perhaps
written by another program or an older version, and refusing it would lose it. So `decode` takes every line that can be
understood, and its own BadEntry says what is wrong with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, get_args

import attrs

from pegasus.messages import Json, Metadata
from pegasus.models import ToolCall
from pegasus.outside import OUTSIDE, Untrusted, parse_outside
from pegasus.wire import decode_object, encode_json, encode_line, use_functions

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


# ------------------------------------------------------------------ repair

# A loaded log is repaired so that every tool call gets exactly one result, right behind the entry that made it.
#
# A crash may come between a call and its result; a damaged line may take either of them away. Providers refuse a conversation in
# which that is not in order, so it is repaired once, at load, and written back.
#
# The rules: a result belongs to the latest call before it that has its id. Results without a call, and second results of one call,
# are dropped. A call without a result gets one: the true one, if its effect is recorded elsewhere (a reply in the outbox, a task that
# was created), else one that says it was cancelled. An id that comes again is made unique together with its result, since some
# providers count their ids from 0 in every answer.
#
# Repairing a repaired log changes nothing, so a crash before the outcome is written back does no harm: the next start does the same
# again. Dropped results are not lost for people, since the caller logs them; the model could not have used them.
#
# Everything here is pure. The caller finds out which effects are recorded, writes the outcome back, and logs the notes.


def cancelled_result(reason: str) -> str:
    """Return the result (JSON) of a call that never came to its end. reason: words for the model, such as "stopped by the user"."""
    return encode_json({"cancelled": True, "reason": reason})


CANCELLED = cancelled_result("process restarted")
"""Result of a call that a crash interrupted and whose effect is recorded nowhere."""


@attrs.frozen(eq=False, repr=False)
class OpenCall:
    """A call without a result.

    Example: `OpenCall(ToolCall("c1", "reply", {…}), 17)`. Its effect is looked up under the key of item 17 and call c1.
    """

    call: ToolCall
    """The call as the model made it."""
    item: int | None
    """Inbox number of the message that it was made for, None if unknown."""


@attrs.frozen(eq=False, repr=False)
class RepairedLog:
    """Outcome of a repair.

    Example: `repair_log(entries, lambda call: None, now).notes` is `()` for a log that is well-formed.
    """

    entries: tuple[Entry, ...]
    """The log, well-formed."""
    notes: tuple[str, ...]
    """A sentence for each repair, for the log; empty if the log was well-formed."""


@attrs.define(eq=False)
class _PairedCall:
    """A call with the result that belongs to it."""

    open: OpenCall
    """The call, with the item that it was made for."""
    result: Entry | None = None
    """Its result; None while none was found, and then the call is open."""


def _pair(entries: Sequence[Entry]) -> tuple[list[tuple[Entry, list[_PairedCall]]], list[str]]:
    """Give every result to the latest call before it that has its id.

    Returns the entries of every role but "tool", in the order of the log, each with its calls; and a note for each result that was
    dropped. Calls and results are matched by position as well as by id, because ids are only unique within one answer of some
    providers.
    """
    heads: list[tuple[Entry, list[_PairedCall]]] = []
    notes: list[str] = []
    latest: dict[str, _PairedCall] = {}
    item: int | None = None
    for entry in entries:
        if entry.role == "tool":
            caller = latest.get(entry.call_id or "")
            if caller is None:
                notes.append(f"dropped a result without a call: {entry.call_id}")
            elif caller.result is not None:
                notes.append(f"dropped a second result of call {entry.call_id}")
            else:
                caller.result = entry
            continue
        if entry.role == "user":
            item = entry.item if entry.item is not None else item
        calls = [_PairedCall(OpenCall(call, item)) for call in entry.calls]
        latest.update((paired.open.call.id, paired) for paired in calls)
        heads.append((entry, calls))
    return heads, notes


def is_well_formed(entries: Sequence[Entry]) -> bool:
    """Return whether `repair_log` would change nothing: the results of each entry follow it in order, and no call id comes twice.

    This is asked at every start, of sessions of any length, and before each thought of a task. It is much cheaper than rebuilding.
    """
    used_ids: set[str] = set()
    missing: list[str] = []  # ids of the calls whose results must follow now, the next one last
    for entry in entries:
        if entry.role == "tool":
            if not missing or missing.pop() != entry.call_id:
                return False
        elif missing:
            return False
        elif entry.calls:
            missing = [call.id for call in reversed(entry.calls)]
            before = len(used_ids)
            used_ids.update(missing)
            if len(used_ids) != before + len(missing) or "" in used_ids:
                return False
    return not missing


def open_calls(entries: Sequence[Entry]) -> tuple[OpenCall, ...]:
    """Return the calls that have no result."""
    return tuple(paired.open for _, calls in _pair(entries)[0] for paired in calls if paired.result is None)


def repair_log(entries: Sequence[Entry], recorded: Callable[[OpenCall], str | None], now: int) -> RepairedLog:
    """Return the log well-formed: results behind their calls, missing ones added, orphans and repeats dropped, ids unique.

    recorded: returns the true result (JSON) of an open call whose effect is recorded elsewhere, else None. now: wall clock, ms, of
    the entries that are added.
    """
    return RepairedLog(tuple(entries), ()) if is_well_formed(entries) else rebuild_log(entries, recorded, now)


def rebuild_log(entries: Sequence[Entry], recorded: Callable[[OpenCall], str | None], now: int) -> RepairedLog:
    """Return what `repair_log` does, put together entry by entry whether the log needs it or not."""
    heads, notes = _pair(entries)
    used_ids: set[str] = set()
    repaired: list[Entry] = []
    for head, calls in heads:
        own_calls = with_unique_ids(head.calls, used_ids)
        if own_calls != head.calls:
            notes.append("made repeated call ids unique")
            head = attrs.evolve(head, calls=own_calls)
        repaired.append(head)
        for paired, call in zip(calls, own_calls, strict=True):
            result = paired.result or _missing_result(paired.open, recorded, now, notes)
            repaired.append(result if result.call_id == call.id else attrs.evolve(result, call_id=call.id))
    if not notes and any(a is not b for a, b in zip(repaired, entries, strict=False)):
        notes.append("moved results behind their calls")
    return RepairedLog(tuple(repaired), tuple(notes))


def with_unique_ids(calls: Sequence[ToolCall], used: set[str]) -> tuple[ToolCall, ...]:
    """Return the calls, with a suffix to their id where it was used before, and add the ids to `used`. An empty id becomes "call".

    The suffix begins at the number of ids, so that a server which counts from 0 in each answer costs the same however long the
    conversation is.
    """
    unique: list[ToolCall] = []
    for call in calls:
        call_id, number = call.id or "call", len(used) + 1
        while call_id in used:
            call_id = f"{call.id or 'call'}-{number}"
            number += 1
        used.add(call_id)
        unique.append(call if call_id == call.id else attrs.evolve(call, id=call_id))
    return tuple(unique)


def _missing_result(
    open_call: OpenCall, recorded: Callable[[OpenCall], str | None], now: int, notes: list[str]
) -> Entry:
    """Return a result for an open call, the true one if it is recorded, and add a note about it."""
    call, result = open_call.call, recorded(open_call)
    if result is not None:
        notes.append(f"{call.name} call {call.id} had taken effect: gave it its result")
        return Entry(now, "tool", result, call_id=call.id)
    notes.append(f"{call.name} call {call.id} was open: marked as cancelled")
    return Entry(now, "tool", CANCELLED, call_id=call.id, failed=True)
