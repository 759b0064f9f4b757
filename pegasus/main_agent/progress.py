"""Where the work on a queue item stands, read from the session alone: nothing else has to survive a crash."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import attrs

from pegasus.conversation.entry import Entry
from pegasus.main_agent.messages import Ended

OUTWARD = frozenset({"reply", "spawn_subagent", "spawn_task", "resume_task"})
"""Tools whose success leads to no further thought (seed 000; trap T22)."""


class Next(Enum):
    """What an item needs next."""

    RECORD = "its message is not in the session yet"
    THINK = "a thought"
    NOTHING = "it is done"


@attrs.frozen
class Progress:
    """next: what to do; thoughts: how many were made about the item; replied: whether one of them spoke; end: the note of it."""

    next: Next
    thoughts: int = 0
    replied: bool = False
    end: Entry | None = None


def progress_of(entries: Sequence[Entry], n: int) -> Progress:
    """Where item n stands. entries must be repaired. Items are worked on one after another, so all behind it is its own."""
    start = _start_of(entries, n)
    if start is None:
        return Progress(Next.NOTHING if _closed_through(entries) >= n else Next.RECORD)
    thoughts, replied, pending = 0, False, True
    calls: dict[str, str] = {}
    for entry in entries[start + 1 :]:
        if entry.item is not None:
            return Progress(Next.NOTHING, thoughts, replied)
        if entry.metadata.get("ends") is True:
            return Progress(Next.NOTHING, thoughts, replied, entry)
        if entry.role == "assistant":
            thoughts, pending = thoughts + 1, False
            calls = {call.id: call.name for call in entry.calls}
        elif entry.role == "tool":
            name = calls.get(entry.call_id or "", "")
            replied = replied or (name == "reply" and not entry.failed)
            pending = pending or entry.failed or name not in OUTWARD
    return Progress(Next.THINK if pending else Next.NOTHING, thoughts, replied)


def began_after(entries: Sequence[Entry], n: int) -> bool:
    """Whether the session was begun by /new as item n: its first line says so, or later items are in it."""
    return _closed_through(entries) == n or any(entry.item is not None and entry.item > n for entry in entries)


def thoughts_ended(entries: Sequence[Entry]) -> dict[int, Ended]:
    """What each /stop has ended, by its item number."""
    notes: list[Any] = [entry.metadata for entry in entries if "stop" in entry.metadata]
    return {note["stop"]: Ended("thought", str(note.get("what")), float(note.get("seconds") or 0)) for note in notes}


def _start_of(entries: Sequence[Entry], n: int) -> int | None:
    """Where the item's user entry is. Numbers grow, so the search ends at a smaller one: constant cost for a new item."""
    for i in range(len(entries) - 1, -1, -1):
        item = entries[i].item
        if item is not None and item <= n:
            return i if item == n else None
    return None


def _closed_through(entries: Sequence[Entry]) -> int:
    """The highest item that a line at the head of the session declares done (after /new)."""
    through = entries[0].metadata.get("doneThrough") if entries else None
    return through if isinstance(through, int) else 0
