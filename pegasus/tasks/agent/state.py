"""State that the parts of the agent share: the tasks in memory, their notifications on the way, and finding and recording for both.

While a task has an actor, its actor records its events; otherwise the agent does, under the lock of the entry. Either way there is
one writer for a task at a time, and the order in its log is the order in which it took the events.

A task without an actor is moved as any other: its event is written and published, and the agent hears it. Who has recorded an event
waits for that (`record`). An event that the agent hears and nobody waits for is of an actor that has crashed, whose log is replayed.

Memory holds the tasks that wait for a slot, are at work or are suspended, and the last that are over. Everything else is read
from the logs, so memory does not grow with what was done. `TaskRegistry` is plain bookkeeping and never waits.

An entry is never replaced, and is removed only when its task is over, has no actor and is not among the last REMEMBERED. Tasks
that reflect come on top of these. So parts of the agent may keep an entry across an `await`; they must look at its fields again
afterwards.

Notifications go to the one listener, each in the order of its task, until it was taken. Those that wait together are sent together,
so that a listener which stores them needs one durable step for many. Those of one task are sent one behind the other, since of what
is sent together nobody knows which is stored first.

Nothing is stored here. Every notification follows from an event in a log, so after a crash recovery adds all notifications of each
pending task again, with the same numbers. That is why a task leaves the pending list only when the listener has taken its last one.

What the listener refuses is tried again after a fixed pause and without a limit. The listener is an actor of the same process, and
is expected to take notifications again once it runs and can store them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from actors import ActorError, Ref, Reply, Signal
from pegasus.access import ROLE, Role
from pegasus.events import Emit, Event, EventType
from pegasus.formatting import quote
from pegasus.messages import account_of
from pegasus.observe import get_logger
from pegasus.retry import retry
from pegasus.storage import Changed
from pegasus.tasks.agent.messages import Notify
from pegasus.tasks.core.fsm import TaskFSM
from pegasus.tasks.core.task_events import TaskEventData
from pegasus.tasks.core.task_states import FOR_PERSON, TaskError, TaskState
from pegasus.tasks.core.views import Notification, TaskView, no_such_number, parse_number, task_view
from pegasus.tasks.log.format import create_event
from pegasus.tasks.log.task_logs import TaskLogs
from pegasus.tasks.run.deps import TaskDeps
from pegasus.tasks.run.task import TaskMessage, TaskUpdate, move_task

# ------------------------------------------------------------------ the tasks in memory


HOOK: Final = "hook"
"""Key of a task's metadata: the webhook that has begun it."""
WAITING_OF_HOOK: Final = 100
"""Tasks of one webhook that may wait for their first slot. A service sends what has happened at once, and not once more."""
REMEMBERED: Final = 200
"""Finished tasks whose views are kept in memory: enough for a list of what happened lately, and a bound on memory."""


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
    run: int = 0
    """Id of the event that started its actor, 0 without one. What an actor tells that another event has started is old."""
    notified: int = 0
    """Notifications that were handed to the notifier."""
    is_told: bool = False
    """True while its submitter knows of its end and it is on the pending list still."""
    reflects: bool = False
    """True if a reflection on its result runs or is due."""
    holds_slot: bool = False
    """True if it holds one of the slots, since `since`."""
    since: float = 0.0
    """Trio time."""
    is_ending: bool = False
    """True if it is being cancelled: it starts nothing any more."""
    pausing: trio.Event | None = None
    """Not None while a person wants it to pause and it has not. Set when it has, or rests for another reason, or is over."""
    is_resuming: bool = False
    """True if TASK_RESUMED is on its way to the disk."""
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
    rests: trio.Event = attrs.field(factory=trio.Event)
    """Set, and replaced, whenever the task is suspended or over."""

    def take_slot(self) -> None:
        """Note that the task holds a slot from now on."""
        self.holds_slot, self.since = True, trio.current_time()

    @property
    def task_id(self) -> str:
        """Id of the task."""
        return self.view.task_id

    @property
    def is_from_guest(self) -> bool:
        """True if a guest has asked for it."""
        return self.view.metadata.get(ROLE) == Role.GUEST

    @property
    def hook(self) -> str:
        """Name of the webhook that has begun it, "" if none has."""
        return str(self.view.metadata.get(HOOK) or "")

    @property
    def is_waiting(self) -> bool:
        """True while it waits for its first slot."""
        return self.view.state is TaskState.IDLE and not self.holds_slot

    @property
    def sender(self) -> str:
        """The person who has asked for it, "" if nobody on a channel has."""
        return account_of(self.view.channel, self.view.metadata) if self.view.channel is not None else ""

    def is_of(self, type: str, channel_id: str) -> bool:
        """Return whether it was asked for on this channel."""
        channel = self.view.channel
        return channel is not None and (channel.type, channel.channel_id) == (type, channel_id)

    @property
    def is_idle(self) -> bool:
        """True if the task is over, and nothing of it runs or is due: its log says all that memory knows."""
        return self.is_over and self.ref is None and self.starting is None and not self.reflects

    @property
    def is_over(self) -> bool:
        """True if the task is over, and is not being resumed."""
        return self.view.is_over and not self.is_resuming


@attrs.define(eq=False, repr=False)
class TaskRegistry:
    """Tasks by id, in order of registration; the queue of those that want a slot; the last that are over.

    Example:
        registry = TaskRegistry()
        registry.enqueue(registry.register(TaskEntry(task_view(fsm), fsm)), created)
        registry.dequeue()  # the most urgent entry
    """

    _remembered: int = REMEMBERED
    """Finished tasks that are kept."""
    tasks: dict[str, TaskEntry] = attrs.field(factory=dict, init=False)
    """Tasks in memory by id. Only `register`, `finished` and `drop` change it."""
    _queue: deque[TaskEntry] = attrs.field(factory=deque, init=False)
    """Tasks that want a slot, in order of arrival. It is searched for the most urgent one, which is cheap at its length."""
    _finished: dict[str, None] = attrs.field(factory=dict, init=False)
    """Ids of tasks that are over, in the order in which they have ended last."""

    def __iter__(self) -> Iterator[TaskEntry]:
        """Iterate over a copy: tasks may be registered and removed meanwhile."""
        return iter(tuple(self.tasks.values()))

    def register(self, entry: TaskEntry) -> TaskEntry:
        """Hold a task, unless one of its id is held already; returns the one that is held."""
        return self.tasks.setdefault(entry.task_id, entry)

    def count_guests_at_work(self) -> int:
        """Return how many tasks of guests, and of webhooks, hold a slot."""
        return sum(entry.is_from_guest and entry.holds_slot for entry in self.tasks.values())

    def count_waiting(self, *, guests: bool, hook: str = "") -> int:
        """Return how many tasks wait for their first slot, of guests or of owners; with `hook` of this webhook."""
        waiting = [entry for entry in self.tasks.values() if entry.is_waiting and entry.hook == hook]
        return sum(entry.is_from_guest == guests for entry in waiting)

    def count_of_guest(self, sender: str) -> int:
        """Return how many tasks of this guest have not ended. sender: as `account_of` names them."""
        return sum(
            entry.is_from_guest and not entry.is_over and entry.sender == sender for entry in self.tasks.values()
        )

    @property
    def active(self) -> int:
        """Number of tasks that hold a slot."""
        return sum(entry.holds_slot for entry in self.tasks.values())

    def enqueue(self, entry: TaskEntry, start: Event) -> None:
        """Put a task into the queue for a slot. start: the event that starts it, which is on disk."""
        entry.start = start
        self._queue.append(entry)

    def dequeue(self, *, guests: bool = True) -> TaskEntry | None:
        """Take the most urgent task out of the queue, None if there is none: owners' before guests', the first among equals.

        guests: a guest's may be taken.
        """
        entries = [entry for entry in self._queue if guests or not entry.is_from_guest]
        if not entries:
            return None
        entry = min(
            entries, key=lambda entry: (entry.is_from_guest, entry.fsm.priority if entry.fsm is not None else 0)
        )
        self._queue.remove(entry)
        return entry

    def withdraw(self, entry: TaskEntry) -> None:
        """Take a task out of the queue if it is there."""
        if entry in self._queue:
            self._queue.remove(entry)

    def finished(self, entry: TaskEntry) -> None:
        """Add a task to those that are over, and remove the oldest of them from memory.

        One that reflects or is being resumed is passed over, and looked at again when the next task is over.
        """
        self._finished.pop(entry.task_id, None)  # it goes to the end if it was resumed and has ended again
        self._finished[entry.task_id] = None
        for task_id in tuple(self._finished)[: -self._remembered]:
            oldest = self.tasks[task_id]
            if not oldest.view.is_over:  # it was resumed, and is added again when it is over
                del self._finished[task_id]
            elif oldest.is_idle:
                self.drop(oldest)

    def drop(self, entry: TaskEntry) -> None:
        """Remove an idle task from memory."""
        self._finished.pop(entry.task_id, None)
        self.tasks.pop(entry.task_id, None)


# ------------------------------------------------------------------ notifications


_log = get_logger("tasks")

SENT_TOGETHER: Final = 64
"""Notifications that are sent together."""


@attrs.frozen(eq=False, repr=False)
class _Waiting:
    """A notification that the listener has not taken yet."""

    notification: Notification
    """The notification."""
    is_last: bool
    """The task is over with it: it leaves the pending list when the listener has taken it."""


@attrs.define(eq=False, repr=False)
class TaskNotifier:
    """The queue of notifications. It is not bounded: its items are few and small, and none may be lost.

    Example: `notifier.add(notification, is_last=view.is_over)`; `run` sends it.
    """

    _listener: Ref[Notify]
    """Receives the notifications of all tasks."""
    _queue: deque[_Waiting] = attrs.field(factory=deque, init=False)
    """Notifications in order of arrival, which is the order of the log for each task."""
    _added: Signal = attrs.field(factory=Signal, init=False)
    """Given when one was added."""

    def add(self, notification: Notification, *, is_last: bool) -> None:
        """Put a notification into the queue. Never waits."""
        self._queue.append(_Waiting(notification, is_last))
        self._added.notify()

    async def run(self, told: Callable[[Sequence[Notification]], Awaitable[None]]) -> None:
        """Send notifications until it is cancelled. Cancelled: those that were not taken are sent again after the next start.

        told: called with the last notifications of tasks when the listener has taken them.
        """
        while True:
            while not self._queue:
                await self._added.wait()
            batch = self._next_batch()
            await self._send(batch)
            if ends := [waiting.notification for waiting in batch if waiting.is_last]:
                await told(ends)

    def _next_batch(self) -> list[_Waiting]:
        """Take the first notifications of different tasks off the queue."""
        batch: dict[str, _Waiting] = {}
        while self._queue and len(batch) < SENT_TOGETHER and self._queue[0].notification.task_id not in batch:
            waiting = self._queue.popleft()
            batch[waiting.notification.task_id] = waiting
        return list(batch.values())

    async def _send(self, batch: Sequence[_Waiting]) -> None:
        """Send a batch; return when the listener has taken it."""

        def log(error: Exception, seconds: float) -> None:
            tasks = ", ".join(waiting.notification.task_id for waiting in batch)
            _log.info("task notifications not taken yet, retrying", tasks=tasks, error=str(error), seconds=seconds)

        notifications = tuple(waiting.notification for waiting in batch)
        await retry(partial(self._listener.ask, Notify, notifications), ActorError, log)


# ------------------------------------------------------------------ the state


@attrs.define(eq=False, repr=False)
class TaskAgentState:
    """The tasks in memory and the objects that all parts of the agent work with.

    Example: `entry = await state.find(task_id)`.
    """

    deps: TaskDeps
    """Models, tools, bus, clock and limits."""
    logs: TaskLogs
    """Logs of all tasks."""
    notifier: TaskNotifier
    """Queue of notifications for submitters."""
    registry: TaskRegistry
    """Tasks in memory."""
    _awaited: dict[int, tuple[TaskEntry, trio.Event | None]] = attrs.field(factory=dict, init=False)
    """Events of tasks without an actor that were not heard yet, by id: the task, and for the last of a step what is set then."""
    _is_stopping: bool = attrs.field(default=False, init=False)
    """True if nothing is heard any more."""

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
        task_id, newest = await self.logs.find_numbered(number)
        if task_id is None:
            raise no_such_number(number, newest)
        return task_id

    async def find(self, task_id: str) -> TaskEntry:
        """Return a task that is in memory or on disk. Raises TaskError if there is none, StorageError."""
        if entry := self.registry.tasks.get(task_id):
            return entry
        found = await self.logs.replay(task_id)
        if found.task is None:
            raise TaskError(f"there is no task {quote(task_id)}")
        return self.take_in(found.task, found.number)

    def take_in(self, fsm: TaskFSM, number: int) -> TaskEntry:
        """Hold a task as its log has it, and return its entry, or the one that is held by now."""
        entry = TaskEntry(task_view(fsm, number=number), notified=fsm.context.notified)
        entry.created.set()
        entry = self.registry.register(entry)
        if entry.view.is_over:
            self.registry.finished(entry)
        return entry

    def make_event(self, entry: TaskEntry, data: TaskEventData, cause: Event | None = None) -> Event:
        """Return an event of a task with the agent as its source. It is neither recorded nor applied."""
        return create_event(data, entry.task_id, "agent", self.deps.clock(), cause)

    async def record(self, entry: TaskEntry, event: Event) -> None:
        """Record an event of a task that has no actor. Returns when it has moved the task. The caller holds the lock of the entry.

        Raises StorageError or ActorError if the log cannot be read, TaskError if the task is another node's; nothing is recorded then.
        """
        entry.fsm = entry.fsm or await self.logs.load(entry.task_id)
        if entry.fsm is None:
            raise TaskError(f"there is no log of task {entry.task_id}")
        try:
            await self.record_all(((entry, event),))
        except Changed:
            raise TaskError("another node has begun to work on this task") from None

    async def record_all(self, moves: Sequence[tuple[TaskEntry, Event]]) -> Mapping[str, int]:
        """Record events of tasks as one step, and return when they have moved the tasks. Returns the numbers of those that are new.

        The caller holds the locks of the entries, which have their tasks. Raises Changed if one that these events begin is another
        node's.
        """
        heard, last = trio.Event(), moves[-1][1]
        self._awaited |= {event.id: (entry, heard if event is last else None) for entry, event in moves}
        try:
            numbers = await self.logs.record([event for _, event in moves])
        except Changed:
            for _, event in moves:
                del self._awaited[event.id]
            raise
        if not self._is_stopping:
            await heard.wait()
        await self.hear([event for _, event in moves])  # what was not heard, since the process stops
        return numbers

    async def hear(self, events: Sequence[Event]) -> None:
        """Move tasks without an actor by the events that were recorded of them. What follows from all is published as one message."""
        published: list[Event] = []
        for event in events:
            entry, heard = self._awaited.pop(event.id, (None, None))
            if entry is not None:
                published += self._move(entry, event)
            if heard is not None:
                heard.set()
        if published:
            await self.deps.bus.tell(Emit(tuple(published)))

    def stop_hearing(self) -> None:
        """Let nobody wait any longer for what the bus delivers: the process stops."""
        self._is_stopping = True
        for _, heard in self._awaited.values():
            if heard is not None:
                heard.set()

    def _move(self, entry: TaskEntry, event: Event) -> Sequence[Event]:
        """Move a task by an event. Returns what is to be published of it. The actor of a new one moves it, when it gets its slot."""
        if event.type is EventType.TASK_CREATED or entry.fsm is None:
            return ()
        changes, notifications = move_task(entry.fsm, event)
        view = task_view(entry.fsm, number=entry.view.number)
        self.update(entry, view, notifications)
        return *changes, self.updated(entry, notifications)

    async def told(self, ends: Sequence[Notification]) -> None:
        """Note that the submitters of tasks know of their ends. One that was resumed meanwhile has another end before it."""
        entries = [self.registry.tasks.get(end.task_id) for end in ends]
        for entry, end in zip(entries, ends, strict=True):
            if entry is not None:
                entry.is_told = end.n == entry.notified
        gone = [end.task_id for entry, end in zip(entries, ends, strict=True) if entry is None]
        await self.settle(*(entry for entry in entries if entry is not None), gone=gone)

    async def settle(self, *entries: TaskEntry, gone: Sequence[str] = ()) -> None:
        """Take tasks off the pending list of which nothing is left: they are over, their submitters know, and they do not reflect.

        gone: tasks that are over and not in memory any more.
        """
        settled = [entry for entry in entries if entry.is_over and entry.is_told and not entry.reflects]
        for entry in settled:
            entry.is_told = False
        if settled or gone:
            await self.logs.forget(*(entry.task_id for entry in settled), *gone)

    def updated(self, entry: TaskEntry, notifications: Sequence[Notification] = ()) -> Event:
        """Return the event that says how a task without an actor is now."""
        update = TaskUpdate(entry.view, tuple(notifications))
        return Event(EventType.TASK_UPDATED, entry.view.updated_at, "agent", entry.task_id, data=update)

    def update(self, entry: TaskEntry, view: TaskView, notifications: Sequence[Notification]) -> None:
        """Show the new state of a task: notify its submitter, and answer those who wait for its end or its rest."""
        was_over, entry.view = entry.view.is_over, view
        is_resting = view.is_over or view.state is TaskState.SUSPENDED
        if entry.pausing is not None and is_resting:
            entry.pausing.set()
            # One that waits for an answer goes on after it, and pauses then.
            entry.pausing = None if view.is_over or view.waits_for == FOR_PERSON else entry.pausing
        for notification in notifications:
            self.notifier.add(notification, is_last=view.is_over and notification is notifications[-1])
            entry.notified = notification.n
        if view.is_over and not was_over:
            entry.start = entry.fsm = None
            for reply in entry.waiting:
                reply.send(view)
            entry.waiting.clear()
            self.registry.finished(entry)
        if not view.is_over:
            entry.is_told = entry.reflects = False
        if is_resting:
            entry.rests.set()
            entry.rests = trio.Event()
