"""The opening line of a compacted session: the summary, and behind it the open items that code carries over.

The line is a system entry. Its content is what the model reads; its metadata is what the next compaction reads: the archive's name,
the summary without the sections that code added, and the open items. People's own words stand in both, so all text is cleaned like
a message: nothing in it may pass for a metadata line or for a task's notification.

The open items stand behind the summary, and the summary that the next compaction reads does not contain them. Otherwise the model
would copy them into its next summary, and tasks that are long done would stay there. Every compaction writes these sections anew.

The functions are pure. The session is changed by `Compactor`, which passes them to `Session.restart`.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pegasus.conversation import Entry, escape_imitations, sanitize_for_prompt
from pegasus.formatting import plural
from pegasus.main_agent.compaction.open_items import OpenItems, OpenTask, items_to_metadata
from pegasus.main_agent.compaction.planning import COMPACT, MEMORY_INDEX
from pegasus.main_agent.compaction.transcript import format_minute
from pegasus.messages import Json

_NOTHING_SUMMARISED = "(Nothing was summarised; long texts were shortened.)"


@attrs.frozen
class SessionSummary:
    """Text that takes the place of the older part of a session.

    Example: `SessionSummary("## Now …", by_code=False)`.
    """

    text: str
    """The summary itself; "" if nothing was summarised."""
    by_code: bool
    """True if code has made it, because no model could or would."""
    timed_out: bool = False
    """True if code has made it because the model took too long."""


def opening_entry(now: int, archive: str, summary: SessionSummary, items: OpenItems) -> Entry:
    """Return the opening line of the new session. now: wall clock, ms. archive: file name of the session that it summarises."""
    text = clean_text(summary.text) or _NOTHING_SUMMARISED
    content = [
        f"Summary of our conversations so far. All of it is in the archive {archive}, which session_archive_read shows.",
        text,
        *_item_sections(items),
    ]
    metadata: dict[str, Json] = {
        "type": COMPACT,
        "previousSession": archive,
        "summary": text,
        "mechanical": summary.by_code,
        "carried": items_to_metadata(items),
    }
    return Entry(now, "system", "\n\n".join(content), metadata=metadata)


def memory_index_entry(now: int, index: str) -> Entry:
    """Return the message that lists long-term memory, in a fresh session and behind the opening line of a compacted one."""
    return Entry(now, "user", index, metadata={"type": MEMORY_INDEX})


def clean_text(text: str) -> str:
    """Return the text as it may stand in the session: without invisible characters, and without imitated metadata lines."""
    return escape_imitations(sanitize_for_prompt(text).strip())


def one_line(text: str) -> str:
    """Return the text without line breaks, so that nothing in it begins a line."""
    return " ".join(text.split())


def _item_sections(items: OpenItems) -> list[str]:
    """Return the sections about open tasks and open questions, in this order; a section without items is left out."""
    tasks = [_task_line(task) for task in items.tasks]
    if items.left_out:
        tasks.insert(0, f"({plural(items.left_out, 'older task')}: see task_list)")
    questions = [
        f"{f'I asked on {question.address}' if question.ours else f'{question.address} asked'}"
        f" ({format_minute(question.ts)}): “{one_line(question.text)}”"
        for question in items.questions
    ]
    sections = {"Background tasks that are not done": tasks, "Questions that wait for an answer": questions}
    return [_section(title, lines) for title, lines in sections.items() if lines]


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{title}:", *(f"- {clean_text(line)}" for line in lines)])


def _task_line(task: OpenTask) -> str:
    """Return an open task as one line.

    The facts stand in brackets if the task system gave them. If only the session knows the task, they follow a comma.
    """
    asked = f"asked for on {task.address}" if task.address is not None and task.address.type else ""
    facts = ", ".join(filter(None, (task.kind, task.state, asked)))
    if task.kind:
        facts = f" ({facts})"
    elif facts:
        facts = f", {facts}"
    question = f" — it wants to know: “{one_line(task.question)}”" if task.question else ""
    return f"{task.task_id}{facts}: {one_line(task.description)}{question}"
