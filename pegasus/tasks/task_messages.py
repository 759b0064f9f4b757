"""What the agent says to the actor of a task, and what that says back."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from actors import Reply
from pegasus.events import Event
from pegasus.tasks.messages import TaskView


@attrs.frozen(eq=False)
class Handle:
    """This happened, and is on disk."""

    event: Event


@attrs.frozen(eq=False)
class Begin:
    """The task is as its log tells, this event included: go on. awaited: events that are on their way to it still."""

    event: Event
    awaited: int = 0


@attrs.frozen(eq=False)
class Halt:
    """End what is being done, for certain. Answered with what it was when nothing of it runs any more; no stage follows."""

    reply: Reply[str]


@attrs.frozen(eq=False)
class Hold:
    """Suspend: what is being done is finished, nothing new is begun."""

    reason: str


@attrs.frozen(eq=False)
class Drain:
    """The process is about to stop: finish what is being done, begin nothing new. Answered when nothing runs."""

    reply: Reply[None]


@attrs.frozen(eq=False)
class StageOver:
    """A stage has ended."""


TaskMessage: TypeAlias = Handle | Begin | Halt | Hold | Drain | StageOver


@attrs.frozen(eq=False)
class Moved:
    """To the agent, after each event: the task as it is now. trigger: what moved it; notified: notifications so far."""

    task: TaskView
    notified: int
    trigger: Event


@attrs.frozen(eq=False)
class Doing:
    """To the agent: what the task is at now, "" for nothing."""

    task_id: str
    what: str
