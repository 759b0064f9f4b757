"""Messages to the actor of a task, and what is told about tasks.

The agent hands the task's events over to the actor (`Deliver`), as they come from the bus, and sends the requests of people. What the
actor has to tell goes out on the bus, as the `data` of TASK_UPDATED, for the agent and for everybody else alike.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from actors import Reply
from pegasus.events import Deliver, Event
from pegasus.outside import Untrusted
from pegasus.policy import OwnerMessage
from pegasus.tasks.core.context import task_resumed
from pegasus.tasks.core.task_events import TaskResumed, TaskState
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

    Example: `ended = await entry.ref.ask(CancelStage, "stopped by the owner", None)`.
    """

    reply: Reply[EndedStage]
    """Fails with ActorError if the actor has ended before; the agent then records the failure."""
    error: str
    """Error of the failed task, e.g. "stopped by the owner"."""
    cause: Event | None
    """Event on the bus that asks for this, if there is one."""


@attrs.frozen(eq=False, repr=False)
class SuspendAfterStage:
    """Let the running stage finish, record what it did, then suspend the task.

    Example: `await entry.ref.tell(SuspendAfterStage("until tomorrow", None))`. A TaskUpdate reports the suspended task.
    """

    reason: str
    """Reason for the log and the view of the task; "" takes a request back that was not carried out yet."""
    cause: Event | None = None
    """Event on the bus that asks for this, if there is one."""


@attrs.frozen(eq=False, repr=False)
class FinishStage:
    """Let the running stage finish and record what it did; begin nothing new. Answered when that is on disk.

    Example: `await entry.ref.ask(FinishStage)` when the process stops. The task stays pending.
    """

    reply: Reply[None]
    """Answered when nothing of the task runs and all is on disk. Fails with ActorError if the actor ends before."""


@attrs.frozen(eq=False, repr=False)
class ResumeOrder:
    """Content of a resume, on its way from the one who asks to the log. Example: `ResumeOrder("And the red one?")`."""

    text: str
    """New input of the task; "" = go on as before."""
    key: str = ""
    """Key of the `Resume`, "" if it has none."""
    cause: Event | None = None
    """Event on the bus that asks for this, if there is one."""
    outside: tuple[Untrusted, ...] = ()
    """Labels of the text."""
    owner_messages: tuple[OwnerMessage, ...] = ()
    """Messages of owners that it comes of."""

    def data(self, state: TaskState, at: int) -> TaskResumed:
        """Return the data of TASK_RESUMED for a task in this state. at: wall clock, ms."""
        return task_resumed(self.text, state, at, self.key, self.outside, self.owner_messages)


@attrs.frozen(eq=False, repr=False)
class ResumeTask:
    """Record a resume of a completed task whose reflection runs or is due, and go on. The reflection is ended.

    Example: `await entry.ref.ask(ResumeTask, ResumeOrder("And the red one?"))`.
    """

    reply: Reply[None]
    """Answered when TASK_RESUMED is on disk. Fails with TaskError if the task cannot be resumed now."""
    order: ResumeOrder
    """Content of the resume."""


TaskMessage: TypeAlias = CancelStage | SuspendAfterStage | FinishStage | ResumeTask | Deliver
"""Everything that the actor of a task accepts."""


@attrs.frozen(eq=False, repr=False)
class TaskUpdate:
    """Data of TASK_UPDATED: the task as it is now, and what its submitter is to be told.

    Published before each stage, after events have moved the task, and when a background command has begun or ended. So the state may
    be the same as before; that it has changed is the event TASK_STATE_CHANGED. At a start each pending task is published once.

    Example: `Event(EventType.TASK_UPDATED, clock(), "task", view.task_id, data=TaskUpdate(view, (notification,)))`.
    """

    task: TaskView
    """The task after the events, with its activity and its background commands."""
    notifications: tuple[Notification, ...] = ()
    """Notifications that the events make for the submitter."""
    run: int = 0
    """Id of the event that started the actor which tells this; 0: the agent does, about a task without one."""
    reflects: bool = False
    """True if a reflection on the result runs or is due."""

    @property
    def ends(self) -> bool:
        """True if the task has ended just now. One that is over already makes no notification."""
        return self.task.is_over and bool(self.notifications)


@attrs.frozen(eq=False, repr=False)
class TaskActorEnded:
    """Data of TASK_UPDATED, for the agent: the actor of a task has ended. Behind everything that the actor has told itself.

    Example: `TaskActorEnded("t1", "", start.id)` for an actor that has done its work.
    """

    task_id: str
    """Id of the task."""
    crashed: str
    """Reason, "" if it ended by itself."""
    run: int
    """Id of the event that started it."""
