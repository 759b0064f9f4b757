"""The state of background tasks for people.

One line about a task reads the same in the chat, in `pegasus status` and in the terminal's status line, because all of them are made
of the same `TaskProgress`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pegasus.formatting import cut_text, format_duration, format_time, truncate
from pegasus.messages import TaskProgress
from pegasus.tasks import FOR_APPROVAL, FOR_PERSON, TaskState

if TYPE_CHECKING:
    from pegasus.tasks import TaskView

REASON_LENGTH: Final = 80
"""Characters of an error that a line has room for."""
EXCERPT: Final = 1500
"""Characters of a text that /tasks show repeats. The whole is in `pegasus tasks show`."""
_WORDS: Final = {
    "IDLE": "waiting for its turn",
    "REASONING": "thinking",
    "ACTING": "acting",
    "SUSPENDED": "waiting for an answer",
    "COMPLETED": "completed",
    "FAILED": "failed",
}
"""By state of a task, the words for people."""
_WAITS: Final = {FOR_APPROVAL: "waiting for your yes or no", FOR_PERSON: "paused"}
"""By reason for which a suspended task waits, the words that take the place of those."""


def task_name(number: int, task_id: str) -> str:
    """Return the name by which a person can call a task: its number, or its id while it has none."""
    return str(number) if number else task_id


def state_word(task: TaskProgress) -> str:
    """Return the state of a task in words."""
    return task.reason or _WAITS.get(task.waits_for) or _WORDS.get(task.state, task.state.lower())


def task_line(task: TaskProgress) -> str:
    """Return a task in one line: `3  shell_exec, step 2, 12 s: find papers`."""
    doing = task.tool or state_word(task)
    if task.state in ("REASONING", "ACTING"):
        doing += f", step {task.step}" if task.step else ""
        doing += f", {format_duration(task.elapsed_ms / 1000)}" if task.elapsed_ms else ""
    doing += ", then paused" if task.pausing else ""
    running = f" (running: {'; '.join(task.commands)})" if task.commands else ""
    return f"{task_name(task.number, task.task_id)}  {doing}: {task.description}{running}"


def tasks_text(tasks: Sequence[TaskView], now: int) -> str:
    """Return the answer to /tasks. tasks: unfinished ones, and those that ended lately. now: wall clock, ms."""
    unfinished = [task_line(task.progress(now)) for task in tasks if not task.is_over]
    # Ended tasks are listed the newest first, since people ask about what has just ended.
    ended = [_ended_line(task, now) for task in reversed(tasks) if task.is_over]
    lines = ["At work or waiting:" if unfinished else "No task is at work.", *unfinished]
    if ended:
        lines += ["Ended lately:", *ended]
    if unfinished:
        lines.append("/tasks show N tells more, /tasks cancel N ends a task.")
    elif ended:
        lines.append("/tasks show N tells more.")
    return "\n".join(lines)


def _ended_line(task: TaskView, now: int) -> str:
    """Return a task that has ended: `2  completed 3.0 min ago: find papers`, `3  stopped by the user (cli) 1.0 s ago: dig`."""
    progress = task.progress(now)
    ago = format_duration(max(0, now - task.updated_at) / 1000)
    why = f" ({truncate(task.error, REASON_LENGTH)})" if task.error else ""
    state = truncate(task.error, REASON_LENGTH) if task.reason and task.error else f"{state_word(progress)}{why}"
    return f"{task_name(task.number, task.task_id)}  {state} {ago} ago: {progress.description}"


def ended_word(task: TaskView) -> str:
    """Return how a task has ended, as the rest of a sentence: "has completed"."""
    return "was stopped" if task.reason else f"has {task.state.value}"


def task_text(task: TaskView, now: int) -> str:
    """Return the answer to /tasks show N: the state of a task, its work, and its question, result or error. now: wall clock, ms."""
    progress = task.progress(now)
    name = task_name(task.number, task.task_id)
    lines = [f"Task {task_line(progress)}", f"Id: {task.task_id}, begun {format_time(task.created_at, local=True)}"]
    if task.is_over:
        took = f" after {format_duration(progress.elapsed_ms / 1000)}" if progress.elapsed_ms else ""
        lines = [f"Task {name}  {state_word(progress)}{took}: {progress.description}", *lines[1:]]
    for title, text in (
        ("Cause", task.cause),
        ("Work", task.input_text),
        ("Question", task.question),
        ("Result", task.result),
        ("Ended" if task.reason else "Error", task.error),
    ):
        if text:
            lines.append(f"{title}: {cut_text(text, EXCERPT)}")
    if not task.is_over:
        pauses = f"/continue {name} lets it go on" if task.waits_for == FOR_PERSON else f"/pause {name} pauses it"
        can_pause = task.state is not TaskState.SUSPENDED or task.waits_for == FOR_PERSON
        lines.append(f"{pauses}, /tasks cancel {name} ends it." if can_pause else f"/tasks cancel {name} ends it.")
    return "\n".join(lines)
