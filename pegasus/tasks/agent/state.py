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
from pegasus.tasks.core.fsm import TaskFSM
from pegasus.tasks.core.task_events import TaskEventData
from pegasus.tasks.core.views import Notification, TaskError, TaskView, no_such_number, parse_number, task_view
from pegasus.tasks.log.format import create_event
from pegasus.tasks.log.task_logs import TaskLogs
from pegasus.tasks.run.deps import TaskDeps
from pegasus.tasks.run.task import apply_recorded


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
        return self.registry.register(entry)

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
        await self.apply(((entry, fsm, (event,)),))

    async def apply(self, recorded: Sequence[tuple[TaskEntry, TaskFSM, Sequence[Event]]]) -> None:
        """Apply events that are on disk to tasks that have no actor. They are published together."""
        applied = [(entry, fsm, *apply_recorded(fsm, events)) for entry, fsm, events in recorded]
        if published := tuple(event for _, _, events, _ in applied for event in events):
            await self.deps.bus.tell(Emit(published))
        for entry, fsm, _, notifications in applied:
            self._take_over(entry, task_view(fsm, number=entry.view.number), notifications)
        if over := [entry.task_id for entry, *_ in applied if entry.view.is_over]:
            self.deps.over(over)

    def update(self, entry: TaskEntry, view: TaskView, notifications: Sequence[Notification]) -> None:
        """Take over the new state of a task: notify its submitter, and answer those who wait for its end."""
        self._take_over(entry, view, notifications)
        if view.is_over:
            self.deps.over((entry.task_id,))

    def _take_over(self, entry: TaskEntry, view: TaskView, notifications: Sequence[Notification]) -> None:
        was_over, entry.view = entry.view.is_over, view
        for notification in notifications:
            self.notifier.add(notification, is_last=view.is_over and notification is notifications[-1])
            entry.notified = notification.n
        if ends := view.is_over and not was_over:
            entry.start = entry.fsm = None
            for reply in entry.waiting:
                reply.send(view)
            entry.waiting.clear()
            self.registry.finished(entry)
        self.deps.observe(view, ends)
