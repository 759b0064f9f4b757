"""What the model that summarises is given: the session as a transcript, shortened, in parts that fit its window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from pegasus.conversation import Entry
from pegasus.formatting import format_time
from pegasus.main_agent.compaction.planning import Weigh, clip, is_memory_index, is_opening, weigh
from pegasus.main_agent.compaction.talk import Event, Handed, Heard, Noted, Returned, Said, events

SAID: Final = 2_000
"""Characters of what people and agent have said to each other."""
RESULT: Final = 1_500
"""Characters of a task's result."""
THOUGHT: Final = 300
NOTED: Final = 200
"""Characters of thoughts, and of what tools gave: they led to what was said, which is here."""
MOST_PARTS: Final = 8
"""Calls that one summary may take; of what is longer still, every text is shortened more."""


@attrs.frozen
class Source:
    """previous: the summary before, "" if there is none. parts: the transcript, oldest first."""

    previous: str
    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join((self.previous, *self.parts))


def source_of(entries: Sequence[Entry], room: int, weigh: Weigh = weigh) -> Source:
    """The transcript of these entries, in parts of at most `room` tokens, at most MOST_PARTS of them."""
    happened = [
        (entry, event) for entry, event in events(entries) if not is_opening(entry) and not is_memory_index(entry)
    ]
    share = 1.0
    while True:
        parts = _parts((_line(event, share) for _, event in happened), room, weigh)
        if len(parts) <= MOST_PARTS or share < 0.02:
            return Source(summary_in(entries), tuple(parts[-MOST_PARTS:]))
        share /= max(2.0, len(parts) / MOST_PARTS)


def summary_in(entries: Sequence[Entry]) -> str:
    """The summary that an earlier compaction has left, without what code had added to it."""
    found = next((entry.metadata.get("summary") for entry in entries if is_opening(entry)), "")
    return found if isinstance(found, str) else ""


def _parts(lines: Iterable[str], room: int, weigh: Weigh) -> list[str]:
    parts: list[str] = []
    waiting: list[str] = []
    weight = 0
    for line in lines:
        line = clip(line, max(1, room))  # a token has a character at least
        size = weigh(line)
        if waiting and weight + size > room:
            parts.append("\n".join(waiting))
            waiting, weight = [], 0
        waiting.append(line)
        weight += size
    if waiting:
        parts.append("\n".join(waiting))
    return parts


def _line(event: Event, share: float) -> str:
    at = when(event.ts)
    match event:
        case Heard(_, address, text, _, user):
            who = f"{user} on {address}" if user else str(address)
            return f"[{at}] {who} wrote: {clip(text, int(SAID * share))}"
        case Said(_, address, text):
            return f"[{at}] I replied on {address}: {clip(text, int(SAID * share))}"
        case Handed(_, _, task, description):
            return f"[{at}] I gave work to task {task}: {clip(description, int(SAID * share))}"
        case Returned(_, address, task, kind, text):
            return f"[{at}] Task {task} ({kind}; asked for on {address}): {clip(text, int(RESULT * share))}"
        case Noted(_, "thought", text):
            return f"[{at}] (I thought: {clip(text, int(THOUGHT * share))})"
        case Noted(_, what, text):
            return f"[{at}] ({what}: {clip(text, int(NOTED * share))})"


def when(ts: int) -> str:
    """A time as it stands in transcript and summary: UTC, to the minute."""
    return format_time(ts, "%Y-%m-%d %H:%M")
