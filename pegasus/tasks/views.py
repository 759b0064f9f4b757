"""A task as others may see it, and what its submitter is told of it."""

from __future__ import annotations

from pegasus.events import Event
from pegasus.tasks.fsm import TaskFSM
from pegasus.tasks.messages import Notification, TaskView
from pegasus.tasks.replay import notification_of as told_by


def task_view(fsm: TaskFSM, doing: str = "") -> TaskView:
    """The task as of now. doing: what it is at, e.g. "thinking" or the name of a tool."""
    known, given = fsm.draft, fsm.draft.base
    return TaskView(
        task_id=fsm.task_id,
        state=fsm.state,
        description=given.description,
        input_text=known.input_text,
        task_type=given.task_type,
        source=given.source,
        iteration=known.iteration,
        created_at=fsm.created_at,
        updated_at=fsm.updated_at,
        doing=doing,
        result=response_of(known.final_result),
        error=known.error,
        question=known.question,
        metadata=given.input_metadata,
    )


def response_of(final_result: object) -> str | None:
    """The answer in a final result, None if there is none."""
    response = final_result.get("response") if isinstance(final_result, dict) else None
    return response if isinstance(response, str) else None


def notification(task: TaskView, n: int, trigger: Event) -> Notification | None:
    """What the submitter is told when this event has moved the task; most events are the task's own business (C.3 55)."""
    told = told_by(trigger)
    if told is None:
        return None
    kind, text, result = told
    return Notification(task.task_id, n, kind, text, task.metadata, result)
