"""The tasks that are in memory: what is at work, what waits, and the last that are done."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from pegasus.tasks.context import TaskState
from pegasus.tasks.messages import TaskView

KEEP: Final = 100
"""Finished tasks of which a view is kept; all of them are in the logs."""


class Held(Protocol):
    """What a registry needs to know of a task: `TaskFSM` is one."""

    @property
    def task_id(self) -> str: ...
    @property
    def state(self) -> TaskState: ...
    @property
    def is_done(self) -> bool: ...
    @property
    def is_active(self) -> bool: ...


T = TypeVar("T", bound=Held)


class TaskNotFound(KeyError):
    """There is no task of this id in memory."""

    def __str__(self) -> str:
        return f"there is no task {self.args[0]!r} in memory"


class TaskRegistry(Generic[T]):
    """Tasks by id, in order of registration. keep: views of finished tasks that `cleanup` keeps, the last ones."""

    def __init__(self, keep: int = KEEP) -> None:
        self._tasks: dict[str, T] = {}
        self._finished: deque[TaskView] = deque(maxlen=keep)
        self._ended: Counter[TaskState] = Counter()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._tasks.values()))

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._tasks

    def register(self, task: T) -> None:
        """Hold it; one of the same id is replaced."""
        self._tasks[task.task_id] = task

    def get(self, task_id: str) -> T:
        """The task. Raises TaskNotFound."""
        try:
            return self._tasks[task_id]
        except KeyError:
            raise TaskNotFound(task_id) from None

    def get_or_none(self, task_id: str) -> T | None:
        """The task, None if there is none."""
        return self._tasks.get(task_id)

    def remove(self, task_id: str) -> T | None:
        """Hold it no longer; it, or None if there was none."""
        return self._tasks.pop(task_id, None)

    def all(self) -> tuple[T, ...]:
        """Every task that is held."""
        return tuple(self._tasks.values())

    def active(self) -> tuple[T, ...]:
        """Those at work: REASONING or ACTING."""
        return tuple(task for task in self._tasks.values() if task.is_active)

    def by_state(self, state: TaskState) -> tuple[T, ...]:
        """Those in this state."""
        return tuple(task for task in self._tasks.values() if task.state is state)

    def cleanup(self, view: Callable[[T], TaskView], over: Callable[[T], bool] = lambda task: task.is_done) -> int:
        """Let go of the finished ones, but for views of the last; how many. over: what counts as finished."""
        finished = [task for task in self._tasks.values() if over(task)]
        for task in finished:
            del self._tasks[task.task_id]
            self._finished.append(view(task))
            self._ended[task.state] += 1
        return len(finished)

    def finished(self) -> tuple[TaskView, ...]:
        """The last that `cleanup` let go of, oldest first."""
        return tuple(self._finished)

    def counts(self) -> dict[TaskState, int]:
        """How many tasks of this run are or ended in each state."""
        return dict(self._ended + Counter(task.state for task in self._tasks.values()))
