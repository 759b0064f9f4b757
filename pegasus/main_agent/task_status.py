"""The state of background tasks for people.

One line about a task reads the same in the chat, in `pegasus status` and in the terminal's status line, because all of them are made
of the same `TaskProgress`. `TaskProgressSender` shows each change to those who watch. Nothing of this waits or is stored: a task is
never slowed down by people who watch it, and a state that finds no room is lost. The next one, or the next welcome, shows the task as
it is then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs

from actors import ActorError, Ref
from pegasus.formatting import cut_text, format_duration, format_time, truncate
from pegasus.main_agent.queue_items import DEFAULT_CHANNEL
from pegasus.messages import TaskProgress
from pegasus.tasks import FOR_APPROVAL, FOR_PERSON, TaskState

if TYPE_CHECKING:
    from pegasus.tasks import TaskView

DESCRIPTION_LENGTH: Final = 80
"""Characters of a description that a line has room for."""
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


def task_progress(task: TaskView, now: int) -> TaskProgress:
    """Return the state of a task for the people of its conversation. now: wall clock, ms.

    The number of a step counts model calls: one that runs counts, so the tools that it asks for have the same number. The time
    counts from the creation of the task, as on its page and in `pegasus tasks show`, so that a restart does not begin it anew. It is
    0 while the task waits for its first turn.
    """
    is_acting = task.state is TaskState.ACTING
    until = task.updated_at if task.is_over else now
    return TaskProgress(
        channel=task.channel or DEFAULT_CHANNEL,
        task_id=task.task_id,
        number=task.number,
        description=truncate(task.description or task.input_text, DESCRIPTION_LENGTH),
        state=task.state.name,
        tool=task.doing if is_acting else "",
        step=task.iteration + (task.state is TaskState.REASONING),
        elapsed_ms=0 if task.state is TaskState.IDLE else max(0, until - task.created_at),
        commands=task.commands,
        waits_for=task.waits_for if task.waits_for in (FOR_APPROVAL, FOR_PERSON) else "",
        pausing=task.pausing,
        reason=task.reason,
    )


class TaskProgressSender:
    """Sends the changes of tasks to the switchboard, each once.

    Example: `progress.observe(update.task, update.ends)` for each TASK_UPDATED of the bus.
    """

    def __init__(self, switchboard: Ref[TaskProgress], clock: Callable[[], int]) -> None:
        """Begin without a task that was seen. clock: wall clock, ms."""
        self._switchboard = switchboard
        """Shows the states to the people of each conversation."""
        self._clock = clock
        """Wall clock, ms."""
        self._last: dict[str, TaskProgress] = {}
        """The last state of each unfinished task, without the time that had passed."""

    def observe(self, task: TaskView, ends: bool = False) -> None:
        """Take the view of a task that may have changed, and send its state if it differs from the last one.

        ends: it has ended with this change. Never waits, never fails.
        """
        if task.is_over:
            was_shown = self._last.pop(task.task_id, None) is not None
            if not was_shown and not ends:
                return  # e.g. a reflection on a task that has ended, or one that was found ended at a start
            progress = task_progress(task, task.updated_at)
        elif task.state is TaskState.COMPLETED:
            return  # its result is not on disk yet
        else:
            progress = task_progress(task, self._clock())
            # The time goes on by itself, and viewers count it; it is no change.
            present = attrs.evolve(progress, elapsed_ms=0) if progress.elapsed_ms else progress
            if self._last.get(task.task_id) == present:
                return
            self._last[task.task_id] = present
        with suppress(ActorError):
            self._switchboard.tell_nowait(progress)


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
    unfinished = [task_line(task_progress(task, now)) for task in tasks if not task.is_over]
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
    progress = task_progress(task, now)
    ago = format_duration(max(0, now - task.updated_at) / 1000)
    why = f" ({truncate(task.error, DESCRIPTION_LENGTH)})" if task.error else ""
    state = truncate(task.error, DESCRIPTION_LENGTH) if task.reason and task.error else f"{state_word(progress)}{why}"
    return f"{task_name(task.number, task.task_id)}  {state} {ago} ago: {progress.description}"


def ended_word(task: TaskView) -> str:
    """Return how a task has ended, as the rest of a sentence: "has completed"."""
    return "was stopped" if task.reason else f"has {task.state.value}"


def task_text(task: TaskView, now: int) -> str:
    """Return the answer to /tasks show N: the state of a task, its work, and its question, result or error. now: wall clock, ms."""
    progress = task_progress(task, now)
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
