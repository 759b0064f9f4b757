"""The first line of a compacted session: the summary, and behind it what code carries over."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pegasus.conversation import Entry, escape_imitations, sanitize_for_prompt
from pegasus.formatting import plural
from pegasus.main_agent.compaction.carried import Carried, caps, to_metadata
from pegasus.main_agent.compaction.outlook import OpenTask
from pegasus.main_agent.compaction.planning import COMPACT, MEMORY_INDEX, clip
from pegasus.main_agent.compaction.source import when
from pegasus.messages import Address, Json


@attrs.frozen
class Summary:
    """mechanical: made by code. late: because the model took too long."""

    text: str
    mechanical: bool
    late: bool = False


@attrs.frozen
class Rest:
    """What stands behind the summary. tasks: None if nobody could say which are open, then the session's errands are told."""

    carried: Carried
    tasks: Sequence[OpenTask] | None
    timers: Sequence[str]
    window: int


def opening(now: int, archived: str, summary: Summary, rest: Rest) -> Entry:
    """The line (role system). now: wall clock, ms. archived: file name of the session that it summarises."""
    text = clean(summary.text) or "(Nothing was summarised; long texts were shortened.)"
    parts = [
        f"Summary of our conversations so far. All of it is in the archive {archived}, which session_archive_read shows.",
        text,
        *_sections(rest),
    ]
    metadata: dict[str, Json] = {
        "type": COMPACT,
        "previousSession": archived,
        "summary": text,
        "mechanical": summary.mechanical,
        "carried": to_metadata(rest.carried),
    }
    return Entry(now, "system", "\n\n".join(parts), metadata=metadata)


def memory_entry(now: int, index: str) -> Entry:
    """The message that lists long-term memory: at a fresh start, and behind the opening of a compacted session."""
    return Entry(now, "user", index, metadata={"type": MEMORY_INDEX})


def clean(text: str) -> str:
    """As it may stand in the session: what people wrote is in it, and must not pass for more."""
    return escape_imitations(sanitize_for_prompt(text).strip())


def _sections(rest: Rest) -> list[str]:
    most, excerpt = caps(rest.window)
    carried = rest.carried
    sections = {
        "Background tasks that are not done": _tasks(rest, most, excerpt),
        "Questions that wait for an answer": [
            f"{f'I asked on {q.address}' if q.ours else f'{q.address} asked'} ({when(q.ts)}): {quoted(q.text)}"
            for q in carried.questions
        ],
        "What I said I would do (look whether it is done)": [
            f"on {p.address} ({when(p.ts)}): {quoted(p.text)}{_with_tasks(p.tasks)}" for p in carried.promises
        ],
        "Timers": [one_line(clip(timer, excerpt)) for timer in rest.timers[:most]],
        "Conversations": [
            f"{place.address}: {plural(place.messages, 'message')}, the last {when(place.last)}{_by(place.users)}"
            for place in carried.places
        ],
    }
    return [
        f"{title}:\n" + "\n".join(f"- {clean(line)}" for line in lines) for title, lines in sections.items() if lines
    ]


def _tasks(rest: Rest, most: int, excerpt: int) -> list[str]:
    if rest.tasks is None:
        return [
            f"{e.task_id}{_where(e.address)}: {one_line(e.description)}{_asks(e.question)}"
            for e in rest.carried.errands
        ]
    lines = [
        f"{t.task_id} ({t.kind}, {t.state}{_where(t.address)}): {one_line(clip(t.description, 200))}"
        f"{_asks(clip(t.question, excerpt))}"
        for t in rest.tasks[-most:]
    ]
    more = len(rest.tasks) - most
    return [f"({plural(more, 'older task')}: see task_list)", *lines] if more > 0 else lines


def _where(address: Address | None) -> str:
    return f", asked for on {address}" if address is not None and address.type else ""


def _asks(question: str) -> str:
    return f" — it wants to know: {quoted(question)}" if question else ""


def _with_tasks(tasks: Sequence[str]) -> str:
    return f" (task {', '.join(tasks)})" if tasks else ""


def _by(users: Sequence[str]) -> str:
    return f", by {', '.join(users)}" if users else ""


def quoted(text: str) -> str:
    """A text on one line, in quotes."""
    return f"“{one_line(text)}”"


def one_line(text: str) -> str:
    """Without line breaks, so that nothing in it begins a line."""
    return " ".join(text.split())
