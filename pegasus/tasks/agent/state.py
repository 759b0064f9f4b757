"""State that the parts of the agent share: finding a task, and recording events of tasks without an actor.

While a task has an actor, its actor records its events; otherwise the agent does, under the lock of the entry. Either way there is
one writer for a task at a time, and the order in its log is the order in which it took the events.

A task without an actor is moved as any other: its event is written and published, and the agent hears it. Who has recorded an event
waits for that (`record`). An event that the agent hears and nobody waits for is of an actor that has crashed, whose log is replayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import trio

from pegasus.events import Emit, Event, EventType
from pegasus.formatting import quote
from pegasus.tasks.agent.notifier import TaskNotifier
from pegasus.tasks.agent.registry import TaskEntry, TaskRegistry
from pegasus.tasks.core.fsm import FOR_PERSON, TaskFSM
from pegasus.tasks.core.task_events import TaskEventData, TaskState
from pegasus.tasks.core.views import Notification, TaskError, TaskView, no_such_number, parse_number, task_view
from pegasus.tasks.log.format import create_event
from pegasus.tasks.log.task_logs import TaskLogs
from pegasus.tasks.run.deps import TaskDeps
from pegasus.tasks.run.messages import TaskUpdate
from pegasus.tasks.run.task import apply_events


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

    async def load_view(self, task_id: str) -> TaskView | None:
        """Return the view of a task that is not in memory, None if there is none. Raises StorageError."""
        loaded = await self._load(task_id)
        return None if loaded is None else loaded[1]

    async def find(self, task_id: str) -> TaskEntry:
        """Return a task that is in memory or on disk. Raises TaskError if there is none, StorageError."""
        entry = self.registry.tasks.get(task_id)
        if entry is not None:
            return entry
        loaded = await self._load(task_id)
        if loaded is None:
            raise TaskError(f"there is no task {quote(task_id)}")
        fsm, view = loaded
        entry = TaskEntry(view, notified=fsm.context.notified)
        entry.created.set()
        entry = self.registry.register(entry)
        if entry.view.is_over:
            self.registry.finished(entry)
        return entry

    async def _load(self, task_id: str) -> tuple[TaskFSM, TaskView] | None:
        found = await self.logs.replay(task_id)
        return None if found.task is None else (found.task, task_view(found.task, number=found.number))

    def make_event(self, entry: TaskEntry, data: TaskEventData, cause: Event | None = None) -> Event:
        """Return an event of a task with the agent as its source. It is neither recorded nor applied."""
        return create_event(data, entry.task_id, "agent", self.deps.clock(), cause)

    async def record(self, entry: TaskEntry, event: Event) -> None:
        """Record an event of a task that has no actor. Returns when it has moved the task. The caller holds the lock of the entry.

        Raises StorageError or ActorError if the log cannot be read; then nothing was recorded.
        """
        entry.fsm = entry.fsm or await self.logs.load(entry.task_id)
        if entry.fsm is None:
            raise TaskError(f"there is no log of task {entry.task_id}")
        await self.record_all(((entry, event),))

    async def record_all(self, moves: Sequence[tuple[TaskEntry, Event]]) -> Mapping[str, int]:
        """Record events of tasks as one step, and return when they have moved the tasks. Returns the numbers of those that are new.

        The caller holds the locks of the entries, which have their tasks.
        """
        heard, last = trio.Event(), moves[-1][1]
        self._awaited |= {event.id: (entry, heard if event is last else None) for entry, event in moves}
        numbers = await self.logs.record([event for _, event in moves])
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
        changes, notifications = apply_events(entry.fsm, (event,))
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
        return Event(EventType.TASK_UPDATED, self.deps.clock(), "agent", entry.task_id, data=update)

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
