"""The tasks in memory, and the events that the agent records for tasks without an actor.

`TaskRegistry` is plain bookkeeping and never waits. `AgentState` adds what the parts of the agent share: finding a task that
is only on disk, recording an event for a task without an actor, and taking over a new state with everything that follows from it.

Memory holds the tasks that wait for a slot, are at work or are suspended, and the last that are over. Everything else is read
from the logs, so memory does not grow with what was done.

While a task has an actor, its actor records its events; otherwise the agent does, under the lock of the entry. Either way there is
one writer for a task at a time, and the order in its log is the order in which it took the events.

An entry is never replaced, and is removed only when its task is over, has no actor and is not among the last REMEMBERED. So parts
of the agent may keep an entry across an `await`; they must look at its fields again afterwards.

Submitters are notified through one listener (`TaskNotifier`): every notification, in the order of its task, until it was taken.
Notifications that wait together are sent together, so that a listener which stores them needs one durable step for many. Those of
one task are sent one behind the other: if the first is refused, the second must not overtake it.

Nothing is stored here. Every notification follows from an event in a log, so after a crash recovery adds all notifications of each
pending task again, with the same numbers. That is why a task leaves the pending list only when the listener has taken its last one.

A refused notification is tried again after a fixed pause and without a limit. The listener is an actor of the same process, and
is expected to take notifications again once it runs and can store them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
import trio

from actors import ActorError, Ref, Reply
from pegasus.events import Event, EventType
from pegasus.messages import ChannelInfo, Metadata
from pegasus.observe import get_logger
from pegasus.policy import ROLE, Role
from pegasus.storage import sender_of_channel
from pegasus.tasks.agent.messages import Notify
from pegasus.tasks.core.context import Payload, TaskState
from pegasus.tasks.core.fsm import TaskFSM
from pegasus.tasks.core.views import Notification, TaskError, TaskView, no_such_number, parse_number, task_view
from pegasus.tasks.log.task_logs import TaskLogs
from pegasus.tasks.run.stages import TaskDeps
from pegasus.tasks.run.task import TaskMessage, apply_recorded
from pegasus.wire import WireError, from_wire

SENT_TOGETHER: Final = 64
"""Notifications that are sent before the first of them is answered."""
RETRY_AFTER: Final = 1.0
"""Seconds until a notification that the listener did not take is sent again."""

REMEMBERED: Final = 200
"""Finished tasks whose views are kept in memory: enough for a list of what happened lately, and a bound on memory."""

_log = get_logger("agent")


@attrs.define(eq=False, repr=False)
class TaskEntry:
    """A task in memory.

    Example: `TaskEntry(task_view(fsm), fsm)` for a task that waits for its first slot.
    """

    view: TaskView
    """The task as others see it, after the last event that the agent knows of."""
    fsm: TaskFSM | None = None
    """The task itself, if it is in memory and no actor has it; else it is read from its log when it is needed."""
    ref: Ref[TaskMessage] | None = None
    """Its actor, while there is one."""
    notified: int = 0
    """Notifications that were handed to the notifier."""
    holds_slot: bool = False
    """Whether it holds one of the slots, since `since`."""
    since: float = 0.0
    """Trio time."""
    is_ending: bool = False
    """Whether it is being cancelled: it starts nothing any more."""
    is_resuming: bool = False
    """Whether TASK_RESUMED is on its way to the disk."""
    start: Event | None = None
    """The event that starts it when it gets a slot. It is on disk, and waits for its actor; None: the task does not want a slot."""
    created: trio.Event = attrs.field(factory=trio.Event)
    """Set when TASK_CREATED is on disk."""
    starting: trio.Event | None = None
    """Set when its actor, which is being started, is up; None while none is being started."""
    ended: trio.Event = attrs.field(factory=trio.Event)
    """Set when its last actor has ended and the agent knows all that it recorded."""
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    """Held while the agent records an event of the task."""
    waiting: list[Reply[TaskView]] = attrs.field(factory=list)
    """Requests to answer when the task is over."""

    @property
    def task_id(self) -> str:
        """Id of the task."""
        return self.view.task_id

    @property
    def is_guests(self) -> bool:
        """True if a guest has asked for it."""
        return self.view.metadata.get(ROLE) == Role.GUEST

    @property
    def is_waiting(self) -> bool:
        """True while it waits for its first slot."""
        return self.view.state is TaskState.IDLE and not self.holds_slot

    @property
    def sender(self) -> str:
        """The person who has asked for it, "" if that is not known."""
        return sender_in(self.view.metadata)

    @property
    def is_over(self) -> bool:
        """The task is over, and is not being resumed."""
        return self.view.is_over and not self.is_resuming


def sender_in(metadata: Metadata) -> str:
    """Return the person in the metadata of a task, "" if nobody on a channel has asked for it."""
    try:
        return sender_of_channel(from_wire(metadata.get("channel"), ChannelInfo))
    except WireError:
        return ""


class TaskRegistry:
    """Tasks by id, in order of registration; the queue of those that want a slot; the last that are over.

    Example:
        registry = TaskRegistry()
        registry.enqueue(registry.register(TaskEntry(task_view(fsm), fsm)), created)
        registry.dequeue()  # the most urgent entry
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        """Prepare. remembered: finished tasks to keep."""
        self._tasks: dict[str, TaskEntry] = {}
        self._queue: deque[TaskEntry] = deque()
        """Tasks that want a slot, in order of arrival. It is searched for the most urgent one, which is cheap at its length."""
        self._finished: deque[str] = deque()
        """Ids of tasks that are over, oldest first; an id is there twice if its task was resumed and has finished again."""
        self._remembered = remembered

    def __iter__(self) -> Iterator[TaskEntry]:
        """Iterate over a copy: tasks may be registered and removed meanwhile."""
        return iter(tuple(self._tasks.values()))

    def __getitem__(self, task_id: str) -> TaskEntry:
        """Return the task. Raises KeyError for an id that is not in memory."""
        return self._tasks[task_id]

    def get(self, task_id: str) -> TaskEntry | None:
        """Return the task, None if there is none in memory."""
        return self._tasks.get(task_id)

    def register(self, entry: TaskEntry) -> TaskEntry:
        """Hold a task, unless one of its id is held already; returns the one that is held."""
        return self._tasks.setdefault(entry.task_id, entry)

    def count_guests(self, *, holding: bool) -> int:
        """Return how many tasks of guests hold a slot (holding), or wait for their first one."""
        entries = (entry for entry in self._tasks.values() if entry.is_guests)
        return sum(entry.holds_slot if holding else entry.is_waiting for entry in entries)

    def count_of_guest(self, sender: str) -> int:
        """Return how many tasks of this guest have not ended. sender: as `sender_of_channel` names them."""
        return sum(entry.is_guests and not entry.is_over and entry.sender == sender for entry in self._tasks.values())

    @property
    def active(self) -> int:
        """Number of tasks that hold a slot."""
        return sum(entry.holds_slot for entry in self._tasks.values())

    @property
    def waiting(self) -> int:
        """Number of tasks that wait for their first slot, including those that are not on disk yet."""
        return sum(entry.is_waiting for entry in self._tasks.values())

    def enqueue(self, entry: TaskEntry, start: Event) -> None:
        """Put a task into the queue for a slot. start: the event that starts it, which is on disk."""
        entry.start = start
        self._queue.append(entry)

    def dequeue(self, *, guests: bool = True) -> TaskEntry | None:
        """Take the most urgent task out of the queue, None if there is none: owners' before guests', the first among equals.

        guests: a guest's may be taken.
        """
        entries = [entry for entry in self._queue if guests or not entry.is_guests]
        if not entries:
            return None
        entry = min(entries, key=lambda entry: (entry.is_guests, entry.fsm.priority if entry.fsm is not None else 0))
        self._queue.remove(entry)
        return entry

    def withdraw(self, entry: TaskEntry) -> None:
        """Take a task out of the queue if it is there."""
        if entry in self._queue:
            self._queue.remove(entry)

    def finished(self, entry: TaskEntry) -> None:
        """Add a task to those that are over, and remove the oldest of them from memory."""
        self._finished.append(entry.task_id)
        while len(self._finished) > self._remembered:
            task_id = self._finished.popleft()
            oldest = self._tasks.get(task_id)
            if oldest is not None and oldest.is_over and oldest.ref is None and task_id not in self._finished:
                del self._tasks[task_id]


@attrs.frozen
class _Waiting:
    """A notification that waits."""

    notification: Notification
    """The notification."""
    is_last: bool
    """The task is over with it: it leaves the pending list when the listener has taken it."""


class TaskNotifier:
    """The queue of notifications. It is not bounded: its items are few and small, and none may be lost.

    Example: `notifier.add(notification, is_last=view.is_over)`; `run` sends it.
    """

    def __init__(self, archive: TaskLogs, listener: Ref[Notify], registry: TaskRegistry) -> None:
        self._archive = archive
        self._listener = listener
        self._registry = registry
        self._queue: deque[_Waiting] = deque()
        """Notifications in order of arrival, which is the order of the log for each task."""
        self._added = trio.Event()

    def add(self, notification: Notification, *, is_last: bool) -> None:
        """Put a notification into the queue. Never waits."""
        self._queue.append(_Waiting(notification, is_last))
        self._added.set()

    async def run(self) -> None:
        """Send notifications until it is cancelled. Cancelled: those that were not taken are sent again after the next start."""
        while True:
            if not self._queue:
                self._added = trio.Event()
                await self._added.wait()
            batch = self._next_batch()
            while batch := await self._send(batch):  # noqa: ASYNC110 the listener does not say when it is ready
                await trio.sleep(RETRY_AFTER)

    def _next_batch(self) -> list[_Waiting]:
        """Take the first notifications of different tasks off the queue."""
        batch: dict[str, _Waiting] = {}
        while self._queue and len(batch) < SENT_TOGETHER and self._queue[0].notification.task_id not in batch:
            waiting = self._queue.popleft()
            batch[waiting.notification.task_id] = waiting
        return list(batch.values())

    async def _send(self, batch: Sequence[_Waiting]) -> list[_Waiting]:
        """Send a batch and return the notifications that the listener did not take.

        A task that was resumed since its last notification was made stays on the pending list.
        """
        answers = [(waiting, await self._listener.request(Notify, waiting.notification)) for waiting in batch]
        refused: list[_Waiting] = []
        finished: list[str] = []
        for waiting, answer in answers:
            task_id = waiting.notification.task_id
            try:
                await answer.get()
            except ActorError as error:
                _log.info("task notification not taken yet, retrying", task=task_id, error=str(error))
                refused.append(waiting)
                continue
            entry = self._registry.get(task_id)
            if waiting.is_last and (entry is None or entry.is_over):
                finished.append(task_id)
        if finished:
            await self._archive.forget(*finished)
        return refused


class AgentState:
    """The tasks in memory and the objects that all parts of the agent work with.

    Example: `entry = await state.find(task_id)`.
    """

    def __init__(self, deps: TaskDeps, archive: TaskLogs, listener: Ref[Notify]) -> None:
        self.deps = deps
        """Models, tools, bus, clock and limits."""
        self.archive = archive
        """Logs of all tasks."""
        self.registry = TaskRegistry()
        """Tasks in memory."""
        self.notifier = TaskNotifier(archive, listener, self.registry)
        """Queue of notifications for submitters."""

    async def resolve(self, name: str) -> str:
        """Return the id of the task that is named by its id or its number. An unknown id is returned as it is.

        Raises TaskError for a number that no task has, and StorageError.
        """
        number = parse_number(name)
        if not number:
            return name
        entry = next((entry for entry in self.registry if entry.view.number == number), None)
        if entry is not None:
            return entry.task_id
        task_id, newest = await self.archive.find_numbered(number)
        if task_id is None:
            raise no_such_number(number, newest)
        return task_id

    async def load_view(self, task_id: str) -> TaskView | None:
        """Return the view of a task that is not in memory, None if there is none. Raises StorageError."""
        fsm = await self.archive.load(task_id)
        if fsm is None:
            return None
        return task_view(fsm, number=(await self.archive.numbers((task_id,))).get(task_id, 0))

    async def find(self, task_id: str) -> TaskEntry:
        """Return a task that is in memory or on disk. Raises TaskError if there is none, StorageError."""
        entry = self.registry.get(task_id)
        if entry is not None:
            return entry
        fsm = await self.archive.load(task_id)
        if fsm is None:
            raise TaskError(f"there is no task {task_id!r}")
        number = (await self.archive.numbers((task_id,))).get(task_id, 0)
        entry = TaskEntry(task_view(fsm, number=number), notified=fsm.context.notified)
        entry.created.set()
        return self.registry.register(entry)

    def make_event(self, entry: TaskEntry, type: EventType, payload: Payload, cause: Event | None = None) -> Event:
        """Return an event of a task with the agent as its source. It is neither recorded nor applied."""
        return self.deps.events.create(type, "agent", payload, task_id=entry.task_id, cause=cause)

    async def record(self, entry: TaskEntry, event: Event) -> None:
        """Record an event of a task that has no actor, then apply it. The caller holds the lock of the entry.

        Raises StorageError or ActorError if the log cannot be read; then nothing was recorded.
        """
        fsm = entry.fsm or await self.archive.load(entry.task_id)
        if fsm is None:
            raise TaskError(f"there is no log of task {entry.task_id}")
        entry.fsm = fsm
        await self.archive.record((event,))
        await self.apply(entry, fsm, event)

    async def apply(self, entry: TaskEntry, fsm: TaskFSM, event: Event) -> None:
        """Apply an event that is on disk to a task that has no actor."""
        notification = await apply_recorded(self.deps, fsm, event)
        self.update(entry, task_view(fsm), (notification,) if notification is not None else ())

    def update(self, entry: TaskEntry, view: TaskView, notifications: tuple[Notification, ...]) -> None:
        """Take over the new state of a task: notify its submitter, and answer those who wait for its end.

        view: as the actor or the log gives it, which do not know the number of the task and the time of its slot.
        """
        was_over, is_over = entry.view.is_over, view.is_over
        entry.view = view = attrs.evolve(view, number=entry.view.number, started_at=entry.view.started_at)
        for notification in notifications:
            self.notifier.add(notification, is_last=is_over and notification is notifications[-1])
            entry.notified = notification.n
        if is_over and not was_over:
            entry.start = entry.fsm = None
            for reply in entry.waiting:
                reply.send(view)
            entry.waiting.clear()
            self.registry.finished(entry)
        self.deps.observe(view)
