"""The task as others see it: the view that lists and status commands show, and the notifications its submitter receives.

Both are made of the task and its events alone. So a task that is only on disk has the same view as one in memory, and a
notification that is sent again after a crash is equal to the first one, number included: the listener can recognise it.

A view is small and does not hold the conversation. Lists of tasks are therefore cheap, and a finished task can be remembered by its
view after its context was dropped. Whoever needs the conversation asks for the context (`GetContext`), which comes from the log.
"""

from __future__ import annotations

from typing import Final

import attrs

from pegasus.events import Event
from pegasus.formatting import truncate
from pegasus.messages import ChannelInfo, Json, Metadata, TaskProgress
from pegasus.outside import Untrusted
from pegasus.tasks.core.fsm import TaskFSM
from pegasus.tasks.core.task_events import NeedMoreInfo, TaskCompleted, TaskFailed, TaskNotify
from pegasus.tasks.core.task_states import DEFAULT_CHANNEL, FOR_APPROVAL, FOR_PERSON, TaskError, TaskState
from pegasus.wire import to_wire

DESCRIPTION_LENGTH: Final = 80
"""Characters of a description that a line has room for."""


def parse_number(name: str) -> int:
    """Return the number that a person names a task by ("7" or "#7"), 0 if the text is no number but an id.

    An id of 16 hexadecimal characters may consist of digits; numbers are shorter.
    """
    digits = name.strip().removeprefix("#")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0


def no_such_number(number: int, newest: int) -> TaskError:
    """Return the error for a number that no task has. newest: the number of the newest task, 0 if there is none."""
    return TaskError(
        f"there is no task {number}; " + (f"the newest is {newest}" if newest else "there are no tasks yet")
    )


@attrs.frozen(eq=False, repr=False)
class TaskView:
    """A task as others may see it.

    Example: `(await agent.ask(Wait, task_id)).result`.
    """

    task_id: str
    """Id of the task."""
    state: TaskState
    """State after the last event that the agent knows of."""
    description: str
    """A few words of the submitter, may be empty."""
    input_text: str
    """The work to do."""
    task_type: str
    """Name of its type, e.g. "general"."""
    source: str
    """Submitter, e.g. "main-agent"."""
    iteration: int
    """Model calls since the start or the last resume."""
    created_at: int
    """Wall clock, ms."""
    updated_at: int
    """Wall clock of the last event, ms."""
    doing: str = ""
    """Current activity, e.g. "thinking" or "shell_exec"; "" if nothing runs."""
    commands: tuple[str, ...] = ()
    """Background commands that run, e.g. "c1 npm run dev"."""
    result: str | None = None
    """The answer of a completed task."""
    error: str | None = None
    """The reason of a failure, for people."""
    reason: str = ""
    """STOPPED for a failed task that a person has ended: it is shown as stopped."""
    question: str | None = None
    """The question that a suspended task waits for."""
    waits_for: str = ""
    """Reason of the suspension of a suspended task; FOR_APPROVAL if an owner is asked about a call, FOR_PERSON if it is paused."""
    pausing: bool = False
    """True if a person has paused it and the step that runs has not ended yet."""
    metadata: Metadata = attrs.field(factory=dict)
    """Metadata of its Submit."""
    number: int = 0
    """Number by which people name it: that of its line in the index. 0 until it is on disk, or if the index does not name it."""
    outside: tuple[Untrusted, ...] = ()
    """Labels of the text from outside that it has read."""
    channel: ChannelInfo | None = None
    """Channel in its metadata, on which it was asked for; None if there is none that can be read."""
    cause: str = ""
    """Message, job, hook or task that it comes of, e.g. "job a1b2"; "" if unknown."""
    is_over: bool = attrs.field(init=False)
    """True if the task has failed, or has completed and its result is on disk."""

    @is_over.default
    def _has_ended(self) -> bool:
        return self.state is TaskState.FAILED or (self.state is TaskState.COMPLETED and self.result is not None)

    def progress(self, now: int) -> TaskProgress:
        """Return its state for the people of its conversation. now: wall clock, ms.

        The number of a step counts model calls: one that runs counts, so the tools that it asks for have the same number. The time
        counts from the creation of the task, as on its page and in `pegasus tasks show`, so that a restart does not begin it anew. It
        is 0 while the task waits for its first turn.
        """
        is_acting = self.state is TaskState.ACTING
        until = self.updated_at if self.is_over else now
        return TaskProgress(
            channel=self.channel or DEFAULT_CHANNEL,
            task_id=self.task_id,
            number=self.number,
            description=truncate(self.description or self.input_text, DESCRIPTION_LENGTH),
            state=self.state.name,
            tool=self.doing if is_acting else "",
            step=self.iteration + (self.state is TaskState.REASONING),
            elapsed_ms=0 if self.state is TaskState.IDLE else max(0, until - self.created_at),
            commands=self.commands,
            waits_for=self.waits_for if self.waits_for in (FOR_APPROVAL, FOR_PERSON) else "",
            pausing=self.pausing,
            reason=self.reason,
        )


@attrs.frozen
class Notification:
    """A message about a task for its submitter."""

    task_id: str
    """Id of the task."""
    n: int
    """Number of the notification: 1, 2, 3 … per task, in the order of the log. (task_id, n) identifies it across crashes."""
    type: str
    """"completed", "failed", "stopped" (a person has ended it), "notify" or "needs_info"."""
    text: str
    """The response, the error, the message or the question."""
    metadata: Metadata = attrs.field(factory=dict)
    """Metadata of the task's Submit."""
    result: Json = None
    """For "completed": {taskId, input, response, iterations}."""
    outside: tuple[Untrusted, ...] = ()
    """Labels of the text from outside that the task has read."""
    channel: ChannelInfo | None = None
    """Channel of the task (`TaskView.channel`)."""


def task_view(
    fsm: TaskFSM, doing: str = "", number: int = 0, commands: tuple[str, ...] = (), *, pausing: bool = False
) -> TaskView:
    """Return the view of a task. doing: its current activity. number: its number, where it is known. commands: those that run."""
    context = fsm.context
    response = (context.final_result or {}).get("response")
    return TaskView(
        task_id=fsm.task_id,
        state=fsm.state,
        description=context.description,
        input_text=context.input_text,
        task_type=context.task_type,
        source=context.source,
        iteration=context.iteration,
        created_at=fsm.created_at,
        updated_at=fsm.updated_at,
        doing=doing,
        commands=commands,
        result=response if isinstance(response, str) else None,
        error=context.error,
        reason=context.fail_reason,
        question=context.question,
        waits_for=context.suspend_reason or "" if fsm.state is TaskState.SUSPENDED else "",
        pausing=pausing,
        metadata=context.input_metadata,
        number=number,
        outside=context.outside,
        channel=context.channel,
        cause=context.cause,
    )


def task_json(view: TaskView) -> dict[str, Json]:
    """Return a task as it appears on the wire, where its state is a word.

    Keys are the camelCase names of TaskView's fields; those with a default value are left out. The channel is left out, too: it is in
    the metadata.
    """
    return {**to_wire(attrs.evolve(view, channel=None)), "state": view.state.value}


def notification_of(task: TaskFSM, event: Event) -> Notification:
    """Return the notification that an event makes.

    task: the task that has just accepted the event, and has counted the notification (`TaskContext.notified`).
    """
    context, result = task.context, None
    match event.data:
        case TaskNotify(message):
            type, text = "notify", message
        case NeedMoreInfo(question=question):
            type, text = "needs_info", question
        case TaskFailed(error):
            type, text = context.fail_reason or "failed", error
        case TaskCompleted(final_result):
            response = final_result.get("response")
            type, text, result = "completed", "" if response is None else str(response), dict(final_result)
        case _:
            raise ValueError(f"{event.type.name} notifies nobody")
    n, metadata = context.notified, context.input_metadata
    return Notification(task.task_id, n, type, text, metadata, result, context.outside, context.channel)
