"""A summary made by code, where no model can or will make one: the last words of every conversation, and what came of work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pegasus.conversation import Entry
from pegasus.main_agent.compaction.checks import HEADINGS
from pegasus.main_agent.compaction.planning import Weigh, clip, weigh
from pegasus.main_agent.compaction.source import summary_in, when
from pegasus.main_agent.compaction.talk import Heard, Returned, Said, events
from pegasus.messages import Address

LAST: Final = 3
"""Messages and replies of a conversation that are quoted."""
PLACES: Final = 8
RESULTS: Final = 5


def mechanical_summary(entries: Sequence[Entry], most: int, weigh: Weigh = weigh) -> str:
    """What code can tell of these entries, in the form a model would give it; at most `most` tokens."""
    excerpt = 400
    while True:
        text = _summary(entries, excerpt, before=excerpt * 10)
        if weigh(text) <= most or excerpt <= 20:
            return text if weigh(text) <= most else clip(text, max(1, most))
        excerpt //= 2


def _summary(entries: Sequence[Entry], excerpt: int, before: int) -> str:
    talks: dict[Address, list[str]] = {}
    results: list[str] = []
    for _, event in events(entries):
        if isinstance(event, Heard | Said):
            lines = talks.setdefault(event.address, [])
            talks[event.address] = lines = talks.pop(event.address)  # the newest last
            who = "I replied" if isinstance(event, Said) else f"{event.user or 'they'} wrote"
            lines.append(f"  - [{when(event.ts)}] {who}: {clip(' '.join(event.text.split()), excerpt)}")
            del lines[: -2 * LAST]
        elif isinstance(event, Returned) and event.kind in ("completed", "failed"):
            text = clip(" ".join(event.text.split()), excerpt)
            results.append(f"- [{when(event.ts)}] task {event.task_id} {event.kind}: {text}")
    quoted = [f"- {address}\n" + "\n".join(lines) for address, lines in list(talks.items())[-PLACES:]]
    earlier = clip(summary_in(entries), before)
    sections = (
        "(This summary was made without a model: the last words of each conversation, and the last results.)",
        "\n".join(quoted) or "none",
        "\n".join([*results[-RESULTS:], *([f"Before that:\n{_demoted(earlier)}"] if earlier else [])]) or "none",
        "see below",
    )
    return "\n".join(f"{heading}\n{text}" for heading, text in zip(HEADINGS, sections, strict=True))


def _demoted(summary: str) -> str:
    """Without headings of its own, so that summaries do not nest."""
    return "\n".join(line for line in summary.splitlines() if line.strip() not in HEADINGS)
