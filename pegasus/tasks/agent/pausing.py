"""Answers to a person who wants a task to pause that cannot. The sentences say what the task does instead."""

from __future__ import annotations

from pegasus.tasks.agent.registry import TaskEntry
from pegasus.tasks.core.fsm import FOR_APPROVAL, FOR_PERSON
from pegasus.tasks.core.task_events import TaskState
from pegasus.tasks.core.views import TaskError, TaskView


def check_pausable(entry: TaskEntry) -> None:
    """Raise TaskError, which says why, if the task cannot be paused."""
    view, name = entry.view, entry.view.number or entry.task_id
    if entry.is_over or view.state is TaskState.COMPLETED or entry.is_ending:
        raise TaskError(
            f"task {name} cannot be paused: it {'is being stopped' if entry.is_ending else activity_of(view)}"
        )
    if entry.pausing is not None:
        raise TaskError(f"task {name} is being paused already: it {activity_of(view)}")
    if view.state is TaskState.SUSPENDED and not entry.is_resuming:
        is_paused = view.waits_for == FOR_PERSON
        raise TaskError(
            f"task {name} is paused already" if is_paused else f"task {name} does nothing now: it {activity_of(view)}"
        )


def activity_of(view: TaskView) -> str:
    """Return what a task does, as the rest of a sentence: "waits for an answer"."""
    if view.is_over or view.state is TaskState.COMPLETED:
        return "was stopped" if view.reason else f"has {view.state.value}"
    if view.state is TaskState.SUSPENDED:
        return "waits for the yes or no to a call" if view.waits_for == FOR_APPROVAL else "waits for an answer"
    if view.state is TaskState.IDLE:
        return "waits for its turn"
    return f"is at {view.doing}" if view.doing and view.doing != "thinking" else "thinks"
