"""Open items: what code carries over a compaction, whatever the summary says; and the opening line that holds both.

A model writes the summary, and a model can forget. Two kinds of things must not be forgotten, and code can recognise both without
understanding what was said:

* **Open tasks**: work that was given to a task and has not come back. The task system is asked; while it does not run, the entries
  of the session answer, from the calls that start tasks and the notifications that end them.
* **Open questions**: a question of the agent that nobody has answered in that conversation, and a question to the agent since
  which it has said nothing there. A text asks if it has a question mark.

Promises in words ("I'll look into it") are not recognised by code: that takes understanding, in every language. The summary is asked
for them instead.

The items are read from the entries on top of what the opening line of the session carries, so they survive any number of
compactions. All of it is bounded, in number and in length: the newest items stay.

The opening line of a compacted session is a system entry. Its content is what the model reads; its metadata is what the next
compaction reads: the archive's name, the summary without the sections that code added, and the open items. People's own words stand
in both, so all text is cleaned like a message: nothing in it may pass for a metadata line or for a task's notification.

The open items stand behind the summary, and the summary that the next compaction reads does not contain them. Otherwise the model
would copy them into its next summary, and tasks that are long done would stay there. Every compaction writes these sections anew.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from actors import ActorError, Ref
from pegasus.conversation import Entry, clean_text, cut_middle
from pegasus.formatting import plural
from pegasus.main_agent.compaction.planning import COMPACT, MEMORY_INDEX, is_opening
from pegasus.main_agent.compaction.transcript import NOWHERE, format_minute, transcript_events
from pegasus.messages import Address, Json, Metadata
from pegasus.outside import Untrusted, outside_metadata
from pegasus.tasks import ListTasks, TaskAgentMessage, TaskState, TaskView

MOST_ITEMS: Final = 20
"""Items of each kind that are carried in a window of ROOMY tokens or more; a smaller window carries fewer."""
TEXT_LENGTH: Final = 500
"""Characters of a question in such a window."""
DESCRIPTION_LENGTH: Final = 200
"""Characters of a task's description, in any window."""
ROOMY: Final = 64_000
"""Tokens of a window that has room for MOST_ITEMS items."""
KEPT_FOR_MS: Final = 30 * 86_400_000
"""Age in ms at which an open question is dropped: nobody waits for its answer any more."""

_QUESTION: Final = re.compile(r"[？؟]|\?(?=[\s\"'”’)\]»*_]|$)")
"""A question mark that ends a word; the one in `https://example.org/?q=1` does not."""


@attrs.frozen
class OpenQuestion:
    """A question that was not answered so far."""

    ts: int
    """Time at which it was asked: wall clock, ms."""
    address: Address
    """Conversation that it was asked in."""
    text: str
    """The sentence that asks, as it was written."""
    ours: bool
    """True if the agent has asked, False if it was asked."""


@attrs.frozen
class OpenTask:
    """A task that has not come to its end."""

    task_id: str
    """Id of the task, which `task_status` takes."""
    description: str
    """Description that the task was begun with, or the beginning of its input."""
    address: Address = NOWHERE
    """Conversation in which the work was asked for; NOWHERE if unknown."""
    kind: str = ""
    """Type of the task; "" if only the session knows of it."""
    state: str = ""
    """State in one word; "" if only the session knows of it."""
    question: str = ""
    """Question of the task that must be answered before it can continue; "" for none."""


@attrs.frozen
class OpenItems:
    """Everything that is carried over, oldest first."""

    questions: tuple[OpenQuestion, ...] = ()
    """Questions in both directions: of the agent, and to it."""
    tasks: tuple[OpenTask, ...] = ()
    """Tasks whose end was not reported."""
    left_out: int = 0
    """Number of older tasks that are open as well and found no room."""


@attrs.frozen(eq=False, repr=False)
class SessionSummary:
    """Text that takes the place of the older part of a session."""

    text: str
    """The summary itself; "" if nothing was summarised."""
    by_code: bool
    """True if code has made it, because no model could or would."""
    timed_out: bool = False
    """True if code has made it because the model took too long."""
    unanswered: bool = False
    """True if code has made it because the model could not be reached, or refused every request."""


# ------------------------------------------------------------------ asking the task system


async def find_open_tasks(agent: Ref[TaskAgentMessage], chat: Address | None = None) -> Sequence[OpenTask] | None:
    """Return the tasks that wait, run or are suspended, oldest first; None while the task system does not run.

    agent: the actor of the task system. chat: the chat whose session is compacted, if each has its own: it is told of its own tasks
    only, and those of others take no room; None: all chats share the session. There is no timeout here; the compactor bounds the call.
    """
    if not agent.alive:
        return None
    try:
        views = await agent.ask(ListTasks, None)
    except ActorError:
        return None
    unfinished = [view for view in views if view.state not in (TaskState.COMPLETED, TaskState.FAILED)]
    tasks = [_open_task(view) for view in sorted(unfinished, key=lambda view: view.created_at)]
    return tasks if chat is None else [task for task in tasks if task.address == chat]


def _open_task(view: TaskView) -> OpenTask:
    """Return a task of the task system as an open item."""
    address = view.channel.address if view.channel is not None else NOWHERE
    state = "waiting" if view.state is TaskState.IDLE else view.state.value
    return OpenTask(
        view.task_id, view.description or view.input_text, address, view.task_type, state, view.question or ""
    )


# ------------------------------------------------------------------ reading the session


def find_open_items(entries: Iterable[Entry], kept: Collection[Entry] = ()) -> OpenItems:
    """Return what a session leaves open, as its entries tell it.

    A message in a conversation answers the agent's questions there, and a reply answers the questions to the agent. Nobody can tell
    by code whether it really answers them; but the person who asked has written again, and can repeat the question.

    kept: entries that stay word for word behind the summary. A question among them need not be carried, since it can be read
    there; a task among them is carried nevertheless, since its notification may come much later.
    """
    questions: list[OpenQuestion] = []
    tasks: dict[str, OpenTask] = {}
    kept_ids = {id(entry) for entry in kept}
    kept_since: int | None = None
    for entry, event in transcript_events(entries):
        if is_opening(entry):
            carried = items_from_metadata(entry.metadata)
            questions, tasks = list(carried.questions), {task.task_id: task for task in carried.tasks}
            continue
        match event.kind, event.label:
            case ("message" | "reply") as kind, _:
                ours = kind == "reply"
                questions = [q for q in questions if q.address != event.address or q.ours is ours]  # answered by this
                if _QUESTION.search(event.text) is not None:
                    questions.append(OpenQuestion(event.ts, event.address, event.text, ours))
                if kept_since is None and id(entry) in kept_ids:
                    kept_since = entry.ts
            case "task start", _:
                tasks[event.task_id] = OpenTask(event.task_id, event.text, event.address)
            case "task report", "completed" | "failed" | "stopped":
                tasks.pop(event.task_id, None)
            case "task report", "needs information" if event.task_id in tasks:
                tasks[event.task_id] = attrs.evolve(tasks[event.task_id], question=event.text)
    if kept_since is not None:
        questions = [question for question in questions if question.ts < kept_since]
    return OpenItems(tuple(questions), tuple(tasks.values()))


def bound_items(items: OpenItems, now: int, window: int) -> OpenItems:
    """Return the newest items, shortened.

    now: wall clock, ms; questions that are older than KEPT_FOR_MS are dropped. window: tokens of the model's window. In a window below
    ROOMY number and length shrink in proportion, but at least three items of each kind stay. Tasks have no age limit, since the task
    system still has them.
    """
    share = min(1.0, window / ROOMY)
    max_items, length = max(3, int(MOST_ITEMS * share)), max(120, int(TEXT_LENGTH * share))
    recent = [question for question in items.questions if now - question.ts < KEPT_FOR_MS]
    return OpenItems(
        tuple(attrs.evolve(question, text=cut_middle(question.text, length)) for question in recent[-max_items:]),
        tuple(
            attrs.evolve(
                task,
                description=cut_middle(task.description, DESCRIPTION_LENGTH),
                question=cut_middle(task.question, length),
            )
            for task in items.tasks[-max_items:]
        ),
        left_out=max(0, len(items.tasks) - max_items),
    )


# ------------------------------------------------------------------ in the metadata of the opening line


def items_to_metadata(items: OpenItems) -> dict[str, Json]:
    """Return the items as the opening line carries them: rows that begin with a time and an address."""
    return {
        "questions": [[q.ts, q.address.type, q.address.channel_id, q.text, q.ours] for q in items.questions],
        "errands": [
            [0, task.address.type, task.address.channel_id, task.task_id, task.description, task.question]
            for task in items.tasks
        ],
    }


def items_from_metadata(metadata: Metadata) -> OpenItems:
    """Return the items that an opening line carries.

    A row that does not have this form, because somebody has edited the file, is left out, and the other rows are read.
    """
    carried = metadata.get("carried")
    if not isinstance(carried, Mapping):
        return OpenItems()
    questions: list[OpenQuestion] = []
    tasks: list[OpenTask] = []
    for row in _rows(carried.get("questions")):
        match row:
            case [int(ts), str(kind), str(channel_id), str(text), bool(ours)]:
                questions.append(OpenQuestion(ts, Address(kind, channel_id), text, ours))
    for row in _rows(carried.get("errands")):
        match row:
            case [_, str(kind), str(channel_id), str(task_id), str(description), str(question)]:
                tasks.append(OpenTask(task_id, description, Address(kind, channel_id), question=question))
    return OpenItems(tuple(questions), tuple(tasks))


def _rows(value: Json) -> list[Any]:
    """Return the rows of a list, none if it is something else: a person may have edited the session."""
    return value if isinstance(value, list) else []


# ------------------------------------------------------------------ the opening line


def summary_entry(
    now: int, archive: str, summary: SessionSummary, items: OpenItems, outside: Sequence[Untrusted] = ()
) -> Entry:
    """Return the opening line of the new session. now: wall clock, ms. archive: file name of the session that it summarises.

    outside: labels of the texts that it sums up.
    """
    text = clean_text(summary.text) or "(Nothing was summarised; long texts were shortened.)"
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
        **outside_metadata(outside),
    }
    return Entry(now, "system", "\n\n".join(content), metadata=metadata)


def memory_index_entry(now: int, index: str) -> Entry:
    """Return the message that lists long-term memory, in a fresh session and behind the opening line of a compacted one."""
    return Entry(now, "user", index, metadata={"type": MEMORY_INDEX})


def on_one_line(text: str) -> str:
    """Return the text without line breaks, so that nothing in it begins a line."""
    return " ".join(text.split())


def _item_sections(items: OpenItems) -> list[str]:
    """Return the sections about open tasks and open questions, in this order; a section without items is left out."""
    tasks = [_task_line(task) for task in items.tasks]
    if items.left_out:
        tasks.insert(0, f"({plural(items.left_out, 'older task')}: see task_list)")
    questions = [
        f"{f'I asked on {question.address}' if question.ours else f'{question.address} asked'}"
        f" ({format_minute(question.ts)}): “{on_one_line(question.text)}”"
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
    asked = f"asked for on {task.address}" if task.address.type else ""
    facts = ", ".join(filter(None, (task.kind, task.state, asked)))
    if task.kind:
        facts = f" ({facts})"
    elif facts:
        facts = f", {facts}"
    question = f" — it wants to know: “{on_one_line(task.question)}”" if task.question else ""
    return f"{task.task_id}{facts}: {on_one_line(task.description)}{question}"
