"""Refusals: answers to a person who wants of a task what it cannot do now. The sentences say what the task does instead."""

from __future__ import annotations

from pegasus.formatting import quote
from pegasus.tasks.agent.state import TaskEntry
from pegasus.tasks.core.fsm import is_interrupted
from pegasus.tasks.core.task_states import FOR_APPROVAL, FOR_PERSON, TaskError, TaskState
from pegasus.tasks.core.views import TaskView


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


def check_resumable(entry: TaskEntry, text: str, name: str) -> None:
    """Raise TaskError, which says why, if the task cannot be resumed with this text, or is being resumed. name: as it was called."""
    if entry.is_resuming:
        raise TaskError(f"task {name} is being resumed; only suspended and completed tasks can be resumed")
    check_resting(entry, text)


def check_resting(entry: TaskEntry, text: str) -> None:
    """Raise TaskError, which says why, if the task is not in a state in which it can be resumed with this text."""
    state = entry.view.state
    is_resting = state in (TaskState.SUSPENDED, TaskState.COMPLETED) or is_interrupted(state, entry.view.error)
    name = entry.view.number or entry.task_id
    if entry.is_ending or not is_resting:
        raise TaskError(f"task {name} is {state.value}; only suspended and completed tasks can be resumed")
    if state is TaskState.COMPLETED and not text.strip():
        raise TaskError(f"task {name} is completed; say what it is to do now")


def check_running(entry: TaskEntry, name: str) -> None:
    """Raise TaskError unless the task is at work, waits, or reflects. name: as it was called."""
    if entry.is_ending:
        raise not_running(name, ": it is being stopped already")
    if entry.is_over and entry.ref is None and not entry.reflects:
        raise not_running(name, ": it has ended")


def not_running(name: str, why: str = "") -> TaskError:
    """Return the error for a task that cannot be cancelled. name: as it was called."""
    return TaskError(f"task {quote(name)} is not running{why}")
