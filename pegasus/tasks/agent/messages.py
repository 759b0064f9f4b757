"""Messages of the task system: requests to the agent, and the notifications that its listener receives.

A request is answered when its effect is certain: creating and resuming when the event is on disk, cancelling when nothing runs.
A request names a task by its id or, as people do, by its number ("7"). A number that no task has is a TaskError.

Requests fail with TaskError for reasons of the task, with StorageError if a log cannot be read, and with ActorError if the agent is
down or crashes before it has answered. After an ActorError the effect is unknown; `Submit.key` and `Resume.key` are the means
to ask again safely.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from actors import Reply
from pegasus.events import Deliver, Event
from pegasus.messages import Metadata
from pegasus.outside import Untrusted
from pegasus.policy import OwnerMessage
from pegasus.tasks.core.task_types import DEFAULT_TASK_TYPE

if TYPE_CHECKING:
    from pegasus.tasks.core.fsm import TaskContext
    from pegasus.tasks.core.views import Notification, TaskView


def task_id_of(key: str) -> str:
    """Return the id of the task that is submitted with this key: 16 hexadecimal characters, always the same for the same key.

    Example: `await agent.ask(GetTask, task_id_of("main/17/call_1"))` finds a task whose Submit may or may not have arrived.
    """
    return blake2b(key.encode(), digest_size=8).hexdigest()


@attrs.frozen(eq=False, repr=False)
class Submit:
    """Create a task. Answered with its id when TASK_CREATED is on disk, before any work is done.

    Fails with TaskError for an unknown type or model, an empty text, or more than `tasks.max_queued` waiting tasks.

    Example: `task_id = await agent.ask(Submit, "find papers about otters")`.
    """

    reply: Reply[str]
    """Receives the task id. A request that was abandoned before the task is created creates none."""
    text: str
    """The work to do."""
    source: str = "user"
    """Submitter."""
    task_type: str = DEFAULT_TASK_TYPE
    """Name of a `TaskType`."""
    description: str = ""
    """A few words for people."""
    metadata: Metadata = attrs.field(factory=dict)
    """Kept with the task and given back with every notification, e.g. {"channel": {…}}."""
    key: str | None = None
    """The same key gives the same task, however often it is submitted (after a crash, say). None: always a new task."""
    priority: int | None = None
    """Smaller goes first among tasks that wait for a slot; None = the usual priority."""
    model: str = ""
    """Model that thinks instead of the type's: "<provider>/<model>" or a role; "" = the type's."""
    tools: tuple[str, ...] | None = None
    """Names or patterns that limit the tools of the type; None = all of them. Kept with the task, as `model` is."""
    cause: str = ""
    """Message, job, hook or task that it comes of, e.g. "job a1b2"; stands in the first line of its log."""


@attrs.frozen(eq=False, repr=False)
class Resume:
    """Continue a suspended or completed task, or one that a restart interrupted. Answered when TASK_RESUMED is on disk.

    Fails with TaskError if there is no such task, or it is at work.

    Example: `await agent.ask(Resume, task_id, "The blue one.")` answers the question of a suspended task.
    """

    reply: Reply[None]
    """Answered when TASK_RESUMED is on disk; the task may still have to wait for a slot."""
    task_id: str
    """Id of the task."""
    input: str
    """Text for the task; may be empty for a suspended task, which then goes on as before."""
    key: str = ""
    """Stands with the input in the task's messages, so that the caller can see later whether this resume has happened."""
    outside: tuple[Untrusted, ...] = ()
    """Labels of the text from outside that the caller has read."""
    owner_messages: tuple[OwnerMessage, ...] = ()
    """Messages of owners that this comes of."""


@attrs.frozen(eq=False, repr=False)
class Suspend:
    """Pause a task for a person, before its next step: a call that runs is not cut, and its result is kept.

    A task that waits for a slot pauses at once. One whose step ends in a question, or in a call that waits for an owner, pauses when
    that is answered. It waits without a limit of time, over restarts, and goes on by `Continue`, or by a `Resume` with new input.

    Fails with TaskError, whose text is for people, if the task has ended, is paused already, or waits for somebody anyway.

    Example: `view = await agent.ask(Suspend, task_id, timeout=4)`, then `view.waits_for == FOR_PERSON`.
    """

    reply: Reply[TaskView]
    """Receives the task when it is paused, and that is on disk; or when it rests for another reason, is over, or is to go on."""
    task_id: str
    """Id of the task."""


@attrs.frozen(eq=False, repr=False)
class Continue:
    """Let a task go on that a person has paused, or takes a pause back that has not begun.

    Fails with TaskError, whose text is for people, if the task is not paused.

    Example: `await agent.ask(Continue, "3")`.
    """

    reply: Reply[TaskView]
    """Receives the task when TASK_RESUMED is on disk; it may still have to wait for a slot."""
    task_id: str
    """Id of the task."""


@attrs.frozen(eq=False, repr=False)
class ResumeApproved:
    """Let a task go on whose approval is answered. The answer may come before the task is suspended; then that is waited for.

    Example: `await agent.ask(ResumeApproved, task_id, "approval/a-7kq2")`.
    """

    reply: Reply[bool]
    """Answered when TASK_RESUMED is on disk, or when there is nothing to resume: the task is over, or waits for something else.

    False: the task is another node's, which hears of the answer itself.
    """
    task_id: str
    """Id of the task."""
    key: str
    """As that of `Resume`."""


@attrs.frozen(eq=False, repr=False)
class StoppedTask:
    """A task that a Cancel ended.

    Example: `StoppedTask("t1", "find papers", "thinking", 12.5, 7)` was task 7, in its 13th second.
    """

    task_id: str
    """Id of the task."""
    what: str
    """Its description, or its input."""
    doing: str
    """The activity that was ended, e.g. "thinking" or a tool; "waiting" for a task without a slot; `REFLECTING` for a task that is
    over, whose reflection ran or was due."""
    seconds: float
    """Time since it got its slot; 0 for a task without one."""
    number: int = 0
    """Number of the task, by which people name it; 0 if it has none yet."""


@attrs.frozen(eq=False, repr=False)
class Cancel:
    """End a task for certain: answered when nothing of it runs any more (model call, tool, processes).

    That it was stopped is on disk by then, unless the disk refuses or takes longer than a second.

    Example: `(await agent.ask(Cancel, task_id, "the owner")).doing`.
    """

    reply: Reply[StoppedTask]
    """Fails with TaskError if the task is not running, also if its result is being written: nothing is left to end."""
    task_id: str
    """Id of the task."""
    by: str
    """Name for the error of the task: "stopped by <by>"."""


@attrs.frozen(eq=False, repr=False)
class CancelAll:
    """End all tasks of a channel, or all tasks, with the reflections on tasks that are over. Answered as `Cancel` is.

    Example::

        await agent.ask(CancelAll, "the owner", ("telegram", "42"))   # the tasks of one channel
        await agent.ask(CancelAll, "the owner", None, True)           # those of all guests
    """

    reply: Reply[tuple[StoppedTask, ...]]
    """Receives the tasks that were ended, by id; () if none was running, which is no error."""
    by: str
    """Name for the error of the tasks, as in `Cancel`."""
    channel: tuple[str, str] | None = None
    """(type, channelId) in the metadata of the tasks; None = all tasks."""
    guests_only: bool = False
    """Spare the tasks that an owner has asked for."""


@attrs.frozen(eq=False, repr=False)
class Wait:
    """Wait for the outcome of a task: answered when it is completed or failed. Fails with TaskError if there is no such task.

    Example: `view = await agent.ask(Wait, task_id)`, then `view.result` or `view.error`.
    """

    reply: Reply[TaskView]
    """Receives the task. A suspended task may keep it waiting for days, so an asker should have a deadline."""
    task_id: str
    """Id of the task."""


@attrs.frozen(eq=False, repr=False)
class GetTask:
    """Return a task, from memory or from the logs; None if there is none.

    Example: `view = await agent.ask(GetTask, "7")` by its number; `None if view is None else view.state`.
    """

    reply: Reply[TaskView | None]
    """Receives the task as the agent knows it."""
    task_id: str
    """Id of the task."""


@attrs.frozen(eq=False, repr=False)
class GetContext:
    """Return everything that a task knows, from its log; None if there is no such task.

    Example: `(await agent.ask(GetContext, task_id)).messages` is the conversation of the task.
    """

    reply: Reply[TaskContext | None]
    """Receives the context after the last recorded event. It may be large: it holds the whole conversation."""
    task_id: str
    """Id of the task."""


@attrs.frozen(eq=False, repr=False)
class GetEvents:
    """Return the events in the log of a task, oldest first; () if there is no such task.

    Example: `[event.type for event in await agent.ask(GetEvents, task_id)]` begins with TASK_CREATED.
    """

    reply: Reply[tuple[Event, ...]]
    """Receives the events that can be read; damaged lines are left out."""
    task_id: str
    """Id of the task."""


@attrs.frozen(eq=False, repr=False)
class ListTasks:
    """Return the tasks in memory (waiting, at work, suspended, lately finished), or all tasks of a day.

    Example: `await agent.ask(ListTasks)` or, for one day, `await agent.ask(ListTasks, "2026-02-10")`.
    """

    reply: Reply[tuple[TaskView, ...]]
    """Receives the tasks; those of a day are in the order of the index. A task whose log cannot be read is left out."""
    date: str | None = None
    """UTC date, YYYY-MM-DD; None = the tasks in memory."""


@attrs.frozen(eq=False, repr=False)
class ListPending:
    """Return the tasks that are unfinished, or have ended and are not reported to their submitter yet.

    Example: `len(await agent.ask(ListPending))` is what a restart would take up.
    """

    reply: Reply[tuple[TaskView, ...]]
    """Receives the tasks, oldest first."""


LATELY: Final = 24 * 3600 * 1000
"""Age up to which lists show a task that has ended, ms."""


@attrs.frozen(eq=False, repr=False)
class LatestTasks:
    """Return the newest tasks, from memory or from their logs.

    Example: `await agent.ask(LatestTasks, 20, now - LATELY)` for a list of the last day.
    """

    reply: Reply[tuple[TaskView, ...]]
    """Receives the tasks, oldest first. A task whose log cannot be read is left out."""
    count: int
    """Number of tasks; each that is not in memory costs a read of its log."""
    since: float = 0.0
    """Wall clock, ms; tasks that have not changed since are left out."""


@attrs.frozen(eq=False, repr=False)
class LimitsChanged:
    """Note that the limits have changed (`TaskDeps.limits`): tasks and tool calls that wait may begin.

    Example: `await agent.tell(LimitsChanged())` after new settings are in force. There is no answer.
    """


@attrs.frozen(eq=False, repr=False)
class Notify:
    """To the listener: take responsibility for these notifications.

    Answered when all are safe. Sent again, with the same numbers, until it is answered; also after a crash.

    Example::

        async for message in inbox:   # the listener
            await store(message.notifications)
            message.reply.send(None)
    """

    reply: Reply[None]
    """To be answered when they are stored or handled. A failure, or no answer after a crash, means "send them again"."""
    notifications: tuple[Notification, ...]
    """Notifications of different tasks; the listener recognises a repeated one by its task id and number."""


TaskAgentMessage: TypeAlias = (
    Submit
    | Resume
    | ResumeApproved
    | Suspend
    | Continue
    | Cancel
    | CancelAll
    | Wait
    | GetTask
    | GetContext
    | GetEvents
    | ListTasks
    | ListPending
    | LatestTasks
    | LimitsChanged
    | Deliver
)
"""Everything that others may send to the agent; `Deliver` comes from the bus."""
