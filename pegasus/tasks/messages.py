"""What may be said to the task system (the orchestrator `agent`), and what it says to whoever submitted work.

It knows nothing of the Main Agent: it is usable alone (checklist 50, 169).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

import attrs

from actors import Reply
from pegasus.events import Deliver
from pegasus.messages import Json, Metadata
from pegasus.tasks.context import TaskContext, TaskState


class TaskError(Exception):
    """It cannot be done with this task; the text says why and what would work."""


def task_id_of(key: str) -> str:
    """The id of the task that is submitted with this key."""
    return blake2b(key.encode(), digest_size=8).hexdigest()


@attrs.frozen
class Submit:
    """A new task. Answered with its id when TASK_CREATED is on disk, before any work is done.

    key: the same key gives the same task, however often it is submitted (after a crash, say); None: always a new one.
    metadata: kept with the task and given back with every notification ({"channel": …}).
    model: who thinks instead of the model of its type, "<provider>/<model>" or a role. tools: names or patterns, what it may
    use of its type's tools; None = all of them. Both are kept with the task.
    Fails with TaskError for an unknown type or model, an empty input, or more than `tasks.max_queued` waiting tasks.
    """

    reply: Reply[str]
    text: str
    source: str = "user"
    task_type: str = "general"
    description: str = ""
    metadata: Metadata = attrs.field(factory=dict)
    key: str | None = None
    priority: int | None = None
    model: str = ""
    tools: tuple[str, ...] | None = None


@attrs.frozen
class Resume:
    """Go on with more information: a suspended, completed or restart-interrupted task (X8). Answered when it is on disk.

    key: stands with the input in the task's messages, so that whoever asked can see later whether it has happened.
    TaskError: no such task, or it runs.
    """

    reply: Reply[None]
    task_id: str
    input: str
    key: str = ""


@attrs.frozen
class Suspend:
    """Hold a running task; what is being done is finished and kept (trap T7)."""

    reply: Reply[None]
    task_id: str
    reason: str


@attrs.frozen
class Stopped:
    """What a Cancel ended. what: a short description; doing: the stage or tool it was in; seconds: how long it had run."""

    task_id: str
    what: str
    doing: str
    seconds: float


@attrs.frozen
class Cancel:
    """End a task for certain: answered when nothing of it runs any more. by: as it will stand in its error (interfaces 8.9)."""

    reply: Reply[Stopped]
    task_id: str
    by: str


@attrs.frozen
class CancelAll:
    """End all tasks whose metadata has this channel (type, channelId), or all with None."""

    reply: Reply[tuple[Stopped, ...]]
    by: str
    channel: tuple[str, str] | None = None


@attrs.frozen
class Wait:
    """Answered with the outcome when the task is done (COMPLETED or FAILED). TaskError: no such task."""

    reply: Reply[TaskView]
    task_id: str


@attrs.frozen
class TaskView:
    """A task as others may see it. created_at, updated_at: wall clock, ms. doing: e.g. "thinking", "shell_exec"."""

    task_id: str
    state: TaskState
    description: str
    input_text: str
    task_type: str
    source: str
    iteration: int
    created_at: int
    updated_at: int
    doing: str = ""
    result: str | None = None
    error: str | None = None
    question: str | None = None
    metadata: Metadata = attrs.field(factory=dict)


@attrs.frozen
class GetTask:
    """A task, running or from the logs; None if there is none."""

    reply: Reply[TaskView | None]
    task_id: str


@attrs.frozen
class GetContext:
    """The whole context, for a replay; None if there is no such task."""

    reply: Reply[TaskContext | None]
    task_id: str


@attrs.frozen
class ListTasks:
    """The tasks of a day (UTC, YYYY-MM-DD; None = those in memory: waiting, running, suspended and recently done)."""

    reply: Reply[tuple[TaskView, ...]]
    date: str | None = None


@attrs.frozen
class Notification:
    """Something about a task that its submitter should know.

    type: "completed" (text: the response), "failed" (text: the error), "notify" (text: the message) or "needs_info" (text: the
    question). n: 1 for the first notification of the task, growing: (task_id, n) says which are the same.
    result: for "completed", {taskId, input, response, iterations}.
    """

    task_id: str
    n: int
    type: str
    text: str
    metadata: Metadata = attrs.field(factory=dict)
    result: Json = None


@attrs.frozen
class Notify:
    """To the listener: take responsibility for this. Answered when it is safe; asked again after a crash (same n)."""

    reply: Reply[None]
    notification: Notification


AgentMessage: TypeAlias = (
    Submit | Resume | Suspend | Cancel | CancelAll | Wait | GetTask | GetContext | ListTasks | Deliver
)
