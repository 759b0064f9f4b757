"""Messages between the actor of a task and the agent.

The agent sends requests of people; the actor sends reports. Events do not pass through these messages: the actor applies
them itself once they are recorded, and a report only updates the view that the agent has of the task.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from actors import Reply
from pegasus.events import Event
from pegasus.outside import Outside
from pegasus.policy import OwnerMessage
from pegasus.tasks.core.views import Notification, TaskView

REFLECTING: Final = "reflecting"
"""Activity of a task that is over and reflects on its result, for views and for what a cancel has ended."""


@attrs.frozen(eq=False, repr=False)
class EndedStage:
    """Result of a CancelStage.

    Example: `EndedStage("thinking", False)` of a task that was ended in the middle of a model call.
    """

    activity: str
    """The activity, e.g. "thinking"; "reflecting" also for a reflection that was due only; "" if nothing ran or was due."""
    is_over: bool
    """The task had come to its end before the request, and that end stands: it is on disk or is being written."""


@attrs.frozen(eq=False, repr=False)
class CancelStage:
    """End the running stage with everything it has started, then fail the task, unless it is over.

    Answered when nothing of it runs any more. That the task has failed is recorded after the answer, since a disk that refuses must
    not keep `/stop` from stopping. A reflection that runs or is due is ended too; its task stays completed.

    Example: `ended = await entry.ref.ask(CancelStage, "stopped by the owner")`.
    """

    reply: Reply[EndedStage]
    """Fails with ActorError if the actor has ended before; the agent then records the failure."""
    error: str
    """Error of the failed task, e.g. "stopped by the owner"."""


@attrs.frozen(eq=False, repr=False)
class SuspendAfterStage:
    """Let the running stage finish, record what it did, then suspend the task.

    Example: `await entry.ref.tell(SuspendAfterStage("until tomorrow"))`. A TaskUpdate reports the suspended task.
    """

    reason: str
    """Reason for the log and the view of the task; "" takes a request back that was not carried out yet."""


@attrs.frozen(eq=False, repr=False)
class FinishStage:
    """Let the running stage finish and record what it did; begin nothing new. Answered when that is on disk.

    Example: `await entry.ref.ask(FinishStage)` when the process stops. The task stays pending.
    """

    reply: Reply[None]
    """Answered when nothing of the task runs and all is on disk. Fails with ActorError if the actor ends before."""


@attrs.frozen(eq=False, repr=False)
class ResumeTask:
    """Record a resume of a completed task whose reflection runs or is due, and go on. The reflection is ended.

    Example: `await entry.ref.ask(ResumeTask, "And the red one?", "", None, (), ())`.
    """

    reply: Reply[None]
    """Answered when TASK_RESUMED is on disk. Fails with TaskError if the task cannot be resumed now."""
    text: str
    """New input of the task."""
    key: str
    """Key of the `Resume`, "" if it has none."""
    cause: Event | None
    """Event from outside that asks for this, if there is one."""
    outside: tuple[Outside, ...]
    """Labels of the text."""
    owner_messages: tuple[OwnerMessage, ...]
    """Messages of owners that it comes of."""


TaskMessage: TypeAlias = CancelStage | SuspendAfterStage | FinishStage | ResumeTask
"""Everything that the actor of a task accepts."""


@attrs.frozen(eq=False, repr=False)
class TaskUpdate:
    """To the agent: the task as it is now, and what its submitter is to be told.

    Sent before each stage, after events were recorded, and when a background command has begun or ended. So the state of the task may
    be the same as before; that it has changed is the event TASK_STATE_CHANGED on the bus.

    Example: `await agent.tell(TaskUpdate(view, (notification,)))`.
    """

    task: TaskView
    """The task after the events, with its activity and its background commands."""
    notifications: tuple[Notification, ...] = ()
    """Notifications that the recorded events make for the submitter."""


@attrs.frozen(eq=False, repr=False)
class TaskActorEnded:
    """To the agent: the actor of a task has ended.

    Example: `TaskActorEnded("t1", "")` for an actor that has done its work.
    """

    task_id: str
    """Id of the task."""
    crashed: str
    """Reason, "" if it ended by itself."""


TaskReport: TypeAlias = TaskUpdate | TaskActorEnded
"""Everything that the agent receives about the actors of tasks."""
