"""What the parts of the agent share: the registry, the bus, the archive, and where their work runs."""

from __future__ import annotations

from typing import TypeAlias

import attrs
import trio

from actors import Ref, Supervisor
from pegasus.events import Emit, Event, EventType
from pegasus.tasks import payloads
from pegasus.tasks.archive import Archive
from pegasus.tasks.messages import AgentMessage, Notification, TaskError
from pegasus.tasks.ports import TaskDeps, TaskLimits
from pegasus.tasks.registry import TaskEntry, TaskRegistry
from pegasus.tasks.task_messages import Doing, Moved
from pegasus.tasks.views import task_view


@attrs.frozen(eq=False)
class Ended:
    """The actor of a task has ended. crashed: why, if it did not end by itself."""

    task_id: str
    crashed: str


Inward: TypeAlias = AgentMessage | Moved | Doing | Ended


@attrs.define(eq=False)
class Office:
    """me: the agent's own mailbox. news, to_tell: what submitters are to hear, and whether it is the last."""

    deps: TaskDeps
    archive: Archive
    pool: Supervisor
    nursery: trio.Nursery
    me: Ref[Inward]
    registry: TaskRegistry = attrs.field(factory=TaskRegistry)
    news: trio.MemorySendChannel[tuple[Notification, bool]] = attrs.field(init=False)
    to_tell: trio.MemoryReceiveChannel[tuple[Notification, bool]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.news, self.to_tell = trio.open_memory_channel[tuple[Notification, bool]](1_000_000)

    @property
    def limits(self) -> TaskLimits:
        """As set."""
        return self.deps.limits

    async def emit(self, event: Event) -> None:
        """Onto the bus."""
        await self.deps.bus.tell(Emit(event))

    async def fail(self, entry: TaskEntry, error: str) -> None:
        """End a task that cannot say so itself; the event does the rest (trap T1)."""
        entry.ending = True
        make = self.deps.events.create
        await self.emit(make(EventType.TASK_FAILED, "agent", payloads.failed(error), task_id=entry.task_id))

    async def recall(self, task_id: str) -> TaskEntry:
        """A task that is in memory or on disk. Raises TaskError, StorageError."""
        entry = self.registry.get_or_none(task_id)
        if entry is not None:
            return entry
        fsm = await self.archive.load(task_id)
        if fsm is None:
            raise TaskError(f"there is no task {task_id!r}")
        return self.registry.register(TaskEntry(task_view(fsm), notified=fsm.draft.notified, created=True))
