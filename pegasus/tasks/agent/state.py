"""State that the parts of the agent share: finding a task, and recording events of tasks without an actor.

While a task has an actor, its actor records its events; otherwise the agent does, under the lock of the entry. Either way there is
one writer for a task at a time, and the order in its log is the order in which it took the events.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pegasus.events import Emit, Event
from pegasus.formatting import quote
from pegasus.tasks.agent.notifier import TaskNotifier
from pegasus.tasks.agent.registry import TaskEntry, TaskRegistry
from pegasus.tasks.core.fsm import FOR_PERSON, TaskFSM
from pegasus.tasks.core.task_events import TaskEventData, TaskState
from pegasus.tasks.core.views import Notification, TaskError, TaskView, no_such_number, parse_number, task_view
from pegasus.tasks.log.format import create_event
from pegasus.tasks.log.task_logs import TaskLogs
from pegasus.tasks.run.deps import TaskDeps
from pegasus.tasks.run.task import apply_events


@attrs.frozen(eq=False, repr=False)
class TaskChange:
    """The outcome of events of a task that has no actor. It is announced when they are on disk.

    Example: `await state.announce((TaskChange.by_events(entry, fsm, events),))`.
    """

    entry: TaskEntry
    """Entry of the task."""
    published: tuple[Event, ...]
    """Events to publish: those, and what follows from them."""
    view: TaskView
    """The task after them."""
    notifications: tuple[Notification, ...]
    """Notifications that they make."""

    @classmethod
    def by_events(cls, entry: TaskEntry, fsm: TaskFSM, events: Sequence[Event]) -> TaskChange:
        """Apply events to a task. The caller holds the lock of the entry, or is the only one to know it."""
        published, notifications = apply_events(fsm, events)
        return cls(entry, published, task_view(fsm, number=entry.view.number), notifications)


@attrs.frozen(eq=False, repr=False)
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
        """Record an event of a task that has no actor, then apply it. The caller holds the lock of the entry.

        Raises StorageError or ActorError if the log cannot be read; then nothing was recorded.
        """
        fsm = entry.fsm or await self.logs.load(entry.task_id)
        if fsm is None:
            raise TaskError(f"there is no log of task {entry.task_id}")
        entry.fsm = fsm
        await self.logs.record((event,))
        await self.announce((TaskChange.by_events(entry, fsm, (event,)),))

    async def announce(self, changes: Sequence[TaskChange]) -> None:
        """Publish the events of changes, which are on disk, and show the changes. What is for all of them is sent as one message."""
        if published := tuple(event for change in changes for event in change.published):
            await self.deps.bus.tell(Emit(published))
        ended = [
            change.entry.task_id
            for change in changes
            if self._update_entry(change.entry, change.view, change.notifications)
        ]
        if ended:
            self.deps.over(ended)

    def update(self, entry: TaskEntry, view: TaskView, notifications: Sequence[Notification]) -> None:
        """Show the new state of a task: notify its submitter, and answer those who wait for its end."""
        if self._update_entry(entry, view, notifications):
            self.deps.over((entry.task_id,))

    def _update_entry(self, entry: TaskEntry, view: TaskView, notifications: Sequence[Notification]) -> bool:
        """Put the new view of a task into its entry, and tell all who want to know. Return whether the task ends by it.

        The approvals of one that ends are left to the caller, who may withdraw those of several tasks together.
        """
        was_over, entry.view = entry.view.is_over, view
        if entry.pausing is not None and (view.is_over or view.state is TaskState.SUSPENDED):
            entry.pausing.set()
            # One that waits for an answer goes on after it, and pauses then.
            entry.pausing = None if view.is_over or view.waits_for == FOR_PERSON else entry.pausing
        for notification in notifications:
            self.notifier.add(notification, is_last=view.is_over and notification is notifications[-1])
            entry.notified = notification.n
        if ends := view.is_over and not was_over:
            entry.start = entry.fsm = None
            for reply in entry.waiting:
                reply.send(view)
            entry.waiting.clear()
            self.registry.finished(entry)
        self.deps.observe(entry.shown, ends)
        return ends
