"""The tasks that are in memory: what is at work, what waits for a place, what is suspended, and the last that are done."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import attrs
import trio

from actors import Ref, Reply
from pegasus.events import Event
from pegasus.tasks.context import TaskState
from pegasus.tasks.fsm import TaskFSM
from pegasus.tasks.messages import TaskView
from pegasus.tasks.task_messages import TaskMessage

REMEMBERED: Final = 200
"""Finished tasks whose views are kept; older ones are read from their logs."""


class TaskNotFound(KeyError):
    """There is no task of this id in memory."""

    def __str__(self) -> str:
        return f"there is no task {self.args[0]!r} in memory"


@attrs.define(eq=False, repr=False)
class TaskEntry:
    """A task that is in memory. fsm: while no actor has it. ref: of its actor, while one runs.

    created: its TASK_CREATED is on disk (`known` is set then). begin: the event that an actor was to begin with and has not
    confirmed. working: it holds one of the places, since `since` (trio time). owed: events of a recovery that are on their way.
    starting: set when its actor, which is being started, is up; None: none is. resumed: likewise, when the TASK_RESUMED that is on
    its way is on disk.
    """

    view: TaskView
    fsm: TaskFSM | None = None
    ref: Ref[TaskMessage] | None = None
    notified: int = 0
    created: bool = False
    working: bool = False
    ending: bool = False
    starting: trio.Event | None = None
    resumed: trio.Event | None = None
    since: float = 0.0
    owed: int = 0
    begin: Event | None = None
    known: trio.Event = attrs.field(factory=trio.Event)
    waiting: list[Reply[TaskView]] = attrs.field(factory=list)

    @property
    def task_id(self) -> str:
        """As in the logs."""
        return self.view.task_id

    @property
    def is_done(self) -> bool:
        """Nothing more comes of it."""
        return self.view.state is TaskState.FAILED or (
            self.view.state is TaskState.COMPLETED and self.view.result is not None
        )


class TaskRegistry:
    """Tasks by id, in order of registration; a queue of those that wait for a place; the last that were finished."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._tasks: dict[str, TaskEntry] = {}
        self._queue: deque[TaskEntry] = deque()
        self._finished: deque[str] = deque()
        self._remembered = remembered

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[TaskEntry]:
        return iter(tuple(self._tasks.values()))

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._tasks

    def register(self, entry: TaskEntry) -> TaskEntry:
        """Hold it, unless one of its id is held already; gives the one that is held."""
        return self._tasks.setdefault(entry.task_id, entry)

    def get(self, task_id: str) -> TaskEntry:
        """The task. Raises TaskNotFound."""
        try:
            return self._tasks[task_id]
        except KeyError:
            raise TaskNotFound(task_id) from None

    def get_or_none(self, task_id: str) -> TaskEntry | None:
        """The task, None if there is none."""
        return self._tasks.get(task_id)

    @property
    def active(self) -> int:
        """How many hold a place."""
        return sum(entry.working for entry in self._tasks.values())

    @property
    def waiting(self) -> int:
        """How many wait for their first place, those included that are not on disk yet."""
        return sum(entry.view.state is TaskState.IDLE and not entry.working for entry in self._tasks.values())

    def enqueue(self, entry: TaskEntry) -> None:
        """It wants a place."""
        self._queue.append(entry)

    @property
    def queued(self) -> int:
        """How many want a place."""
        return len(self._queue)

    def dequeue(self) -> TaskEntry | None:
        """The most urgent of those that want a place, the first among equals; None if there is none."""
        if not self._queue:
            return None
        entry = min(self._queue, key=lambda one: one.fsm.priority if one.fsm is not None else 0)
        self._queue.remove(entry)
        return entry

    def withdraw(self, entry: TaskEntry) -> None:
        """It wants no place any more."""
        if entry in self._queue:
            self._queue.remove(entry)

    def finished(self, entry: TaskEntry) -> None:
        """It is done: of the tasks that are, only the last are remembered."""
        self._finished.append(entry.task_id)
        while len(self._finished) > self._remembered:
            task_id = self._finished.popleft()
            oldest = self._tasks.get(task_id)
            if oldest is not None and oldest.is_done and oldest.ref is None and task_id not in self._finished:
                del self._tasks[task_id]
