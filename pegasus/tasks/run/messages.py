"""Messages between the agent and the actor of a task."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from actors import Reply
from pegasus.events import Event
from pegasus.tasks.core.views import Notification, TaskView


@attrs.frozen(eq=False)
class CancelStage:
    """End the running stage with everything it has started, then fail the task.

    Answered with the activity that was ended ("" if there was none) when nothing of it runs any more. That the task has failed is
    recorded after the answer, since a disk that refuses must not keep `/stop` from stopping. A reflection is ended too; its task
    stays completed.
    """

    reply: Reply[str]
    error: str
    """Error of the failed task, e.g. "stopped by the owner"."""


@attrs.frozen(eq=False)
class SuspendAfterStage:
    """Let the running stage finish, record what it did, then suspend the task."""

    reason: str


@attrs.frozen(eq=False)
class FinishStage:
    """Let the running stage finish and record what it did; begin nothing new. Answered when that is on disk."""

    reply: Reply[None]


@attrs.frozen(eq=False)
class ResumeTask:
    """Record a resume of a completed task whose reflection is still running, and go on. The reflection is ended.

    Answered when TASK_RESUMED is on disk.
    """

    reply: Reply[None]
    text: str
    key: str
    cause: Event | None
    """Event from outside that asks for this, if there is one."""


TaskMessage: TypeAlias = CancelStage | SuspendAfterStage | FinishStage | ResumeTask


@attrs.frozen(eq=False)
class StateChanged:
    """To the agent: the task as it is now, after events were recorded or a stage began or ended."""

    task: TaskView
    notifications: tuple[Notification, ...] = ()
    """Notifications that the submitter is owed for the recorded events."""


@attrs.frozen(eq=False)
class TaskActorEnded:
    """To the agent: the actor of a task has ended."""

    task_id: str
    crashed: str
    """Reason, "" if it ended by itself."""


TaskReport: TypeAlias = StateChanged | TaskActorEnded
