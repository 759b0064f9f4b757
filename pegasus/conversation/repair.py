"""Making a loaded session well-formed: every call with exactly one result, right behind its turn (trap T17).

Pure: the caller says which effects are recorded elsewhere, writes the outcome back and tells the world. A result belongs to the
latest call before it that has its id; an id that comes again (some providers count from 0 in every answer) is made unique.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import attrs

from pegasus.conversation.entry import Entry
from pegasus.models import ToolCall

CANCELLED = json.dumps({"cancelled": True, "reason": "process restarted"}, separators=(",", ":"))


@attrs.frozen
class OpenCall:
    """A call without a result. item: the inbox number of the message it was made for, None if unknown."""

    call: ToolCall
    item: int | None


@attrs.frozen
class Repaired:
    """entries: well-formed. notes: what was mended, in words; empty if nothing was."""

    entries: tuple[Entry, ...]
    notes: tuple[str, ...]


@attrs.define(eq=False)
class _Call:
    call: ToolCall
    item: int | None
    result: Entry | None = None


@attrs.define(eq=False)
class _Paired:
    """The entries that are no results, each with its calls; and what did not fit."""

    heads: list[tuple[Entry, list[_Call]]] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)


def _pair(entries: Sequence[Entry]) -> _Paired:
    paired = _Paired()
    latest: dict[str, _Call] = {}
    item: int | None = None
    for entry in entries:
        if entry.role == "tool":
            caller = latest.get(entry.call_id or "")
            if caller is None:
                paired.notes.append(f"dropped a result without a call: {entry.call_id}")
            elif caller.result is not None:
                paired.notes.append(f"dropped a second result of call {entry.call_id}")
            else:
                caller.result = entry
            continue
        item = entry.item if entry.item is not None else item
        calls = [_Call(call, item) for call in entry.calls]
        latest.update((made.call.id, made) for made in calls)
        paired.heads.append((entry, calls))
    return paired


def is_well_formed(entries: Sequence[Entry]) -> bool:
    """Whether `repair` would find nothing to mend: each turn's results are right behind it, in order, and no id comes twice."""
    used: set[str] = set()
    wanted: list[str] = []  # the last one first
    for entry in entries:
        if entry.role == "tool":
            if not wanted or wanted.pop() != entry.call_id:
                return False
        elif wanted:
            return False
        elif entry.calls:
            wanted = [call.id for call in reversed(entry.calls)]
            before = len(used)
            used.update(wanted)
            if len(used) != before + len(wanted) or "" in used:
                return False
    return not wanted


def open_calls(entries: Sequence[Entry]) -> tuple[OpenCall, ...]:
    """The calls that have no result."""
    return tuple(
        OpenCall(made.call, made.item) for _, calls in _pair(entries).heads for made in calls if made.result is None
    )


def repair(entries: Sequence[Entry], recorded: Callable[[OpenCall], str | None], now: int) -> Repaired:
    """Put every result behind its call, add the missing ones, drop orphans and repeats, make call ids unique.

    recorded(open_call): the true result (JSON) of a call whose effect is recorded elsewhere, else None; the others get
    `{"cancelled":true,"reason":"process restarted"}` (interfaces 8.5). now: wall clock, ms.
    """
    paired = _pair(entries)
    notes = paired.notes
    used: set[str] = set()
    mended: list[Entry] = []
    for head, made_calls in paired.heads:
        ids = unique_ids([made.call.id for made in made_calls], used)
        if any(made.call.id != call_id for made, call_id in zip(made_calls, ids, strict=True)):
            notes.append("made repeated call ids unique")
            calls = tuple(attrs.evolve(made.call, id=i) for made, i in zip(made_calls, ids, strict=True))
            head = attrs.evolve(head, calls=calls)
        mended.append(head)
        for made, call_id in zip(made_calls, ids, strict=True):
            result = made.result or _closing(made, recorded(OpenCall(made.call, made.item)), now, notes)
            mended.append(result if result.call_id == call_id else attrs.evolve(result, call_id=call_id))
    if not notes and any(a is not b for a, b in zip(mended, entries, strict=False)):
        notes.append("moved results behind their calls")
    return Repaired(tuple(mended), tuple(notes))


def unique_ids(ids: Sequence[str], used: set[str]) -> list[str]:
    """The ids with a suffix where one was used before; `used` takes them all up."""
    fresh: list[str] = []
    for call_id in ids:
        candidate, k = call_id or "call", 1
        while candidate in used:
            k += 1
            candidate = f"{call_id or 'call'}-{k}"
        used.add(candidate)
        fresh.append(candidate)
    return fresh


def _closing(made: _Call, result: str | None, now: int, notes: list[str]) -> Entry:
    call = made.call
    if result is not None:
        notes.append(f"{call.name} call {call.id} had taken effect: gave it its result")
        return Entry(now, "tool", result, call_id=call.id)
    notes.append(f"{call.name} call {call.id} was open: marked as cancelled")
    return Entry(now, "tool", CANCELLED, call_id=call.id, metadata={"error": True})
