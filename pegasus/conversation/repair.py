"""Repair of a loaded log: every tool call gets exactly one result, right behind the entry that made it.

A crash may come between a call and its result; a damaged line may take either of them away. Providers refuse a conversation in
which that is not in order, so it is repaired once, at load, and written back.

The rules: a result belongs to the latest call before it that has its id. Results without a call, and second results of one call,
are dropped. A call without a result gets one: the true one, if its effect is recorded elsewhere (a reply in the outbox, a task that
was created), else one that says it was cancelled. An id that comes again is made unique together with its result, since some
providers count their ids from 0 in every answer.

Repairing a repaired log changes nothing, so a crash before the outcome is written back does no harm: the next start does the same
again. Dropped results are not lost for people, since the caller logs them; the model could not have used them.

Everything here is pure. The caller finds out which effects are recorded, writes the outcome back, and logs the notes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from pegasus.conversation.entry import Entry
from pegasus.models import ToolCall
from pegasus.wire import encode_json


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
