"""The window of messages: which of a session leave it, and what code can say about them without a model. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from pegasus.conversation import Entry
from pegasus.main_agent.compaction import CompactionPlan, cut_middle, first_running, format_minute, read_events

EXCERPT: Final = 300
"""Characters of a message in an excerpt."""
LONGEST_EXCERPT: Final = 4_000
"""Characters of an excerpt; the newest messages stay."""
_KINDS: Final = frozenset({"message", "reply", "task report"})
"""Kinds of events that are messages: what people and tasks said, and what was replied."""


def count_messages(entries: Sequence[Entry]) -> int:
    """Return how many messages these entries hold: what people and tasks said, and what was replied."""
    return sum(event.kind in _KINDS for _, event in read_events(entries))


def plan_window(entries: Sequence[Entry], unfinished: Collection[int], window: int) -> CompactionPlan | None:
    """Return the plan that leaves at most half of the window, but at least the newest item; None if nothing is to be done.

    unfinished: numbers of queue items whose entries stay, with all behind them. Half of the window leaves, so that the next
    consolidation comes only after as many messages again. The cut is before the user entry of an item.
    """
    if not window or count_messages(entries) <= window:
        return None
    limit, cut, kept = first_running(entries, unfinished), 0, 0
    starts = [index for index, entry in enumerate(entries) if entry.item is not None and index <= limit]
    for start, end in zip(reversed(starts), [len(entries), *reversed(starts)], strict=False):
        kept += count_messages(entries[start:end])
        if cut and kept > max(1, window // 2):
            break
        cut = start
    plan = CompactionPlan(entries[:cut], entries[cut:])
    return plan if count_messages(plan.summarised) else None


def excerpt_of(entries: Sequence[Entry]) -> str:
    """Return the beginnings of the messages, the newest ones if there is no room for all. It is what stays without a model."""
    lines: list[str] = []
    room = LONGEST_EXCERPT
    events = [event for _, event in read_events(entries) if event.kind in _KINDS]
    for event in reversed(events):
        who = {"reply": "the agent", "task report": f"task {event.task_id}"}.get(event.kind) or event.label or "they"
        line = f"- [{format_minute(event.ts)}] {who}: {cut_middle(' '.join(event.text.split()), EXCERPT)}"
        room -= len(line) + 1
        if room < 0:
            lines.append(f"- ({len(events) - len(lines)} earlier messages are in the archive only)")
            break
        lines.append(line)
    return "\n".join(reversed(lines))
