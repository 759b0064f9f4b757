"""The logs of tasks: the requests to the actor that writes and reads them, and writing and reading for all others.

While the daemon runs, only the persister writes and reads: it alone knows that everything requested before is written. `TaskLogs`
makes the requests; `TaskLogs.record` is how events come into a log.

Without a daemon the files do not change, and a command such as `pegasus tasks` reads them directly (`read_task`,
`read_tasks_of_day`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import TypeAlias

import attrs

from actors import ActorError, Ref, Reply
from pegasus.events import BusMessage, Emit, Event
from pegasus.observe import get_logger
from pegasus.retry import retry
from pegasus.storage import (
    StorageError,
)
from pegasus.tasks.core.fsm import TaskFSM
from pegasus.tasks.core.views import TaskView, no_such_number, parse_number, task_view
from pegasus.tasks.log.format import (
    FOLDER,
    INDEX,
    PendingTask,
    find_date,
    find_entries,
    find_numbered,
    is_date,
    is_task_id,
    last_number,
    parse_events,
    read_index,
    task_path,
)
from pegasus.tasks.log.replay import ReplayedTask, replay

_log = get_logger("tasks")


# ------------------------------------------------------------------ requests to the persister


@attrs.frozen(eq=False, repr=False)
class RecordEvents:
    """Write a line for each of these events, as one durable step, in this order.

    Answered when they are on disk. Fails with StorageError if the disk refuses; then none of them was written. Whoever asks may
    ask again for the same events: they are written once, also if the persister was restarted in between. Fails with Changed if they
    begin a task on which another node works, and with LeaseLost if this node's tasks are another's.

    Only one request may be under way for a task: its actor asks while there is one, the agent otherwise.

    Example: `await persister.ask(RecordEvents, (created,))`; usually by `TaskLogs.record`, which asks again.
    """

    reply: Reply[Mapping[str, int]]
    """Answered when every line is synced, with the numbers of the tasks among them that are new in the index."""
    events: tuple[Event, ...]
    """Events in the order of their lines, as `create_events` makes them; they may belong to several tasks."""


@attrs.frozen(eq=False, repr=False)
class GetPending:
    """Return every pending task of this node, oldest first. A list that was missing or damaged has been rebuilt from the logs.

    Example: `[task.task_id for task in await persister.ask(GetPending)]`.
    """

    reply: Reply[tuple[PendingTask, ...]]
    """Receives the list as it is in memory, which may be ahead of the file."""


@attrs.frozen(eq=False, repr=False)
class GetElsewhere:
    """Return the pending tasks that belong to other nodes, oldest first. Without other nodes there are none."""

    reply: Reply[tuple[PendingTask, ...]]
    """Receives the list as it was read last."""


@attrs.frozen(eq=False, repr=False)
class NextTaken:
    """Return the tasks whose node lives no more, and that belong to this one now. Answered when there are some.

    Fails with LeaseLost when another node has taken those of this one.
    """

    reply: Reply[tuple[PendingTask, ...]]
    """Receives tasks that `GetPending` has not returned, each once."""


@attrs.frozen(eq=False, repr=False)
class ReadList:
    """Read the list of pending tasks, which another node has changed. The persister asks itself."""

    reply: Reply[None]
    """Answered when it is read, or cannot be."""


@attrs.frozen(eq=False, repr=False)
class Forget:
    """Take tasks off the pending list: they are over, and their submitters know.

    Not durable at once: after a crash a task may be pending again, and its end is then notified again under the same number.

    Example: `await persister.tell(Forget(("t1", "t2")))`. There is no answer.
    """

    task_ids: tuple[str, ...]
    """Ids of the tasks; one that is not on the list is no error."""


@attrs.frozen
class StoredLog:
    """The log of a task as the persister has read it.

    Example: `StoredLog(7, b"")` stands for a task that the index names and whose log is gone.
    """

    number: int
    """Number of the task, which is that of its line in the index; 0 if the index does not name it."""
    content: bytes | StorageError
    """The whole log, b"" if there is none, or the reason why it cannot be read."""


@attrs.frozen(eq=False, repr=False)
class ReadLogs:
    """Return the numbers and the whole logs of tasks. A log that cannot be read is an error among the others.

    Example: `[log] = await persister.ask(ReadLogs, ("t1",))`.
    """

    reply: Reply[tuple[StoredLog, ...]]
    """Receives a log for each id, in their order. Fails with StorageError if the index cannot be read."""
    task_ids: tuple[str, ...]
    """Ids of the tasks; an invalid id counts as a task without a log."""


@attrs.frozen(eq=False, repr=False)
class ListLogs:
    """Return the ids of the tasks that were created on a day (UTC, YYYY-MM-DD), oldest first.

    Example: `await persister.ask(ListLogs, "2026-02-10")`.
    """

    reply: Reply[tuple[str, ...]]
    """Receives each id once. Fails with StorageError if the index cannot be read."""
    date: str
    """UTC date of the creation."""


@attrs.frozen(eq=False, repr=False)
class FindNumbered:
    """Return the id of the task with a number.

    Example: `task_id, newest = await persister.ask(FindNumbered, 7)`.
    """

    reply: Reply[tuple[str | None, int]]
    """Receives the id, None if there is none, and the number of the newest task. Fails with StorageError as ReadLogs does."""
    number: int
    """Number of the task, from 1."""


@attrs.frozen(eq=False, repr=False)
class ReadLatest:
    """Return the numbers and the logs of the newest tasks.

    Example: `(await persister.ask(ReadLatest, 20))["t1"].number`.
    """

    reply: Reply[Mapping[str, StoredLog]]
    """Receives the logs by task id, oldest first. A log that cannot be read is an error among the others; a task whose line in
    the index is damaged is left out. Fails with StorageError if the index cannot be read."""
    count: int
    """Number of tasks."""
    known: Set[str] = frozenset()
    """Tasks whose logs are not wanted: b"" stands for each."""


@attrs.frozen(eq=False, repr=False)
class RemoveLogs:
    """Delete the logs whose last event was written from `since` until `before` (ms), at most `limit`; those of pending tasks stay.

    The index keeps their lines, so that their numbers are not given again.
    """

    reply: Reply[tuple[str, ...]]
    """Receives the paths of the deleted files below data/. Fails with StorageError if the disk refuses."""
    since: int
    """Time in ms since the epoch, and likewise `before`."""
    before: int
    """No event was written since this time."""
    limit: int
    """Files at most."""


PersisterMessage: TypeAlias = (
    RecordEvents
    | GetPending
    | GetElsewhere
    | NextTaken
    | ReadList
    | Forget
    | ReadLogs
    | ListLogs
    | FindNumbered
    | ReadLatest
    | RemoveLogs
)
"""Everything that the persister accepts."""


# ------------------------------------------------------------------ while the daemon runs


@attrs.define(eq=False, repr=False)
class TaskLogs:
    """The logs as the agent and its tasks use them. Damage of a log is logged, and what can be read is returned.

    Reading raises StorageError, or ActorError if the persister ends; writing goes on until the disk takes it.

    Example: `found = await TaskLogs(persister, bus).replay(task_id)`.
    """

    _persister: Ref[PersisterMessage]
    """The actor that reads and writes them."""
    _bus: Ref[BusMessage]
    """Publishes what is written."""

    async def record(self, events: Sequence[Event]) -> Mapping[str, int]:
        """Write these events, then publish them. Asks again, with growing pauses, for as long as the disk refuses.

        Returns the numbers of the tasks that these events create, by id. The tasks are moved when they hear the events.

        There is no limit on the attempts: a task whose events cannot be stored must wait, since going on without them would show
        others a state that a crash takes back. Each refusal is logged. Cancelled: the events may be written or not, and be written and
        not published; then whoever has cancelled it replays the log.

        Raises Changed if another node works on a task that these begin, LeaseLost if the tasks of this node are another's.
        Raises ValueError for an event without a line: it would be answered and never be on disk.
        """
        if not all(event.line for event in events):
            raise ValueError("an event has no line; events that are recorded are made by create_events")

        def log(error: Exception, seconds: float) -> None:
            names, task, reason = ", ".join(event.type.name for event in events), events[0].task_id, str(error)
            _log.error("task events not stored yet, retrying", task=task, events=names, error=reason, seconds=seconds)

        write = partial(self._persister.ask, RecordEvents, tuple(events))
        numbers = await retry(write, (StorageError, ActorError), log)
        await self._bus.tell(Emit(tuple(events)))
        return numbers

    async def load(self, task_id: str) -> TaskFSM | None:
        """Return the task replayed from its log; None if there is none."""
        return (await self.replay(task_id)).task

    async def replay(self, task_id: str) -> ReplayedTask:
        """Return the replay of a task's log. Raises StorageError."""
        [found] = await self.replays((task_id,))
        if isinstance(found, StorageError):
            raise found
        return found

    async def replays(self, task_ids: Sequence[str]) -> Iterator[ReplayedTask | StorageError]:
        """Return the same for several tasks, whose logs are read together; the error of each log that cannot be read.

        A log is replayed when the iterator comes to it, so that a caller who needs them one by one does not hold all these tasks.
        """
        logs = await self._persister.ask(ReadLogs, tuple(task_ids))
        return (_replay(task_id, log) for task_id, log in zip(task_ids, logs, strict=True))

    async def read_events(self, task_id: str) -> tuple[Event, ...]:
        """Return the events in the log of a task, () if there is none; damaged lines are left out. Raises StorageError."""
        [log] = await self._persister.ask(ReadLogs, (task_id,))
        if isinstance(log.content, StorageError):
            raise log.content
        return parse_events(log.content)

    async def views(self, task_ids: Iterable[str]) -> tuple[TaskView, ...]:
        """Return these tasks, without those that have no log or whose log cannot be read."""
        found = (each for each in await self.replays(tuple(task_ids)) if isinstance(each, ReplayedTask))
        return tuple(task_view(each.task, number=each.number) for each in found if each.task is not None)

    async def views_of_day(self, date: str) -> tuple[TaskView, ...]:
        """Return the tasks of a day (UTC, YYYY-MM-DD), oldest first; without those whose log cannot be read."""
        return await self.views(await self._persister.ask(ListLogs, date))

    async def latest(self, count: int, known: Set[str]) -> dict[str, TaskView | None]:
        """Return the newest tasks by id, oldest first: None for those that are known, which are not read.

        Tasks whose log cannot be read are left out.
        """
        found: dict[str, TaskView | None] = {}
        for task_id, log in (await self._persister.ask(ReadLatest, count, known)).items():
            if task_id in known:
                found[task_id] = None
                continue
            replayed = _replay(task_id, log)
            if isinstance(replayed, ReplayedTask) and replayed.task is not None:
                found[task_id] = task_view(replayed.task, number=log.number)
        return found

    async def find_numbered(self, number: int) -> tuple[str | None, int]:
        """Return the id of the task with this number, None if there is none, and the number of the newest task."""
        return await self._persister.ask(FindNumbered, number)

    async def pending(self) -> tuple[PendingTask, ...]:
        """Return the tasks that the last run left unfinished, and those that are unfinished now; oldest first."""
        return await self._persister.ask(GetPending)

    async def elsewhere(self) -> tuple[PendingTask, ...]:
        """Return the pending tasks of other nodes, oldest first."""
        return await self._persister.ask(GetElsewhere)

    async def next_taken(self) -> tuple[PendingTask, ...]:
        """Return tasks that another node has left, and that are this one's now. Raises LeaseLost when those of this one are lost."""
        return await self._persister.ask(NextTaken)

    async def remove_old(self, since: int, before: int, limit: int) -> tuple[str, ...]:
        """Delete the logs of tasks that were over in this time (ms), at most so many; return their paths below data/."""
        return await self._persister.ask(RemoveLogs, since, before, limit)

    async def forget(self, *task_ids: str) -> None:
        """Take tasks off the pending list. Not durable at once."""
        await self._persister.tell(Forget(task_ids))


def _replay(task_id: str, log: StoredLog) -> ReplayedTask | StorageError:
    """Replay a log, and report what is damaged in it. Return the error of one that cannot be read."""
    if isinstance(log.content, StorageError):
        return log.content
    found = replay(log.content, task_id, log.number)
    for problem in found.problems:
        _log.warning("damage in the log of a task", task=task_id, problem=problem)
    return found


# ------------------------------------------------------------------ without a daemon


def read_task(data: Path, name: str) -> ReplayedTask | None:
    """Return a task from the data folder, None if there is none. Blocking; nothing is written. Raises OSError, TaskError.

    name: id or number of the task; TaskError is raised for a number that no task has. The log is found by the index or, where that
    does not name the task, by its file name.
    """
    task_id = name
    if number := parse_number(name):
        index = _read_file(data / INDEX)
        found = find_numbered(index, number)
        if found is None:
            raise no_such_number(number, last_number(index))
        task_id = found
    path = _find_log(data, task_id)
    return replay(path.read_bytes(), path.stem) if path is not None else None


def read_events(data: Path, task_id: str) -> tuple[Event, ...]:
    """Return the events in the log of a task, as `TaskLogs.read_events` does, from the data folder. Blocking. Raises OSError."""
    path = _find_log(data, task_id)
    return parse_events(path.read_bytes()) if path is not None else ()


def read_numbers(data: Path, task_ids: Iterable[str]) -> Mapping[str, int]:
    """Return the numbers of tasks by id, without those that the index does not name. Blocking. Raises OSError."""
    return {task_id: number for task_id, (number, _) in find_entries(_read_file(data / INDEX), task_ids).items()}


def read_tasks_of_day(data: Path, date: str) -> tuple[ReplayedTask, ...]:
    """Return the tasks that were created on a day (UTC, YYYY-MM-DD): those of the index in its order, then any others.

    Blocking; nothing is written. Raises OSError if a log cannot be read.
    """
    if not is_date(date):
        return ()
    indexed = [entry.task_id for entry in read_index(_read_file(data / INDEX))[0] if entry.date == date]
    named = sorted(path.stem for path in (data / FOLDER / date).glob("*.jsonl") if is_task_id(path.stem))
    paths = [data / task_path(task_id, date) for task_id in dict.fromkeys((*indexed, *named))]
    return tuple(replay(path.read_bytes(), path.stem) for path in paths if path.is_file())


def _find_log(data: Path, task_id: str) -> Path | None:
    """Return the path of a log by the index, or by its file name if the index does not have it; None if there is none."""
    if not is_task_id(task_id):
        return None
    date = find_date(_read_file(data / INDEX), task_id)
    if date is not None and (path := data / task_path(task_id, date)).is_file():
        return path
    return next((data / FOLDER).glob(f"*/{task_id}.jsonl"), None)


def _read_file(path: Path) -> bytes:
    """Return the content of a file, b"" if there is none. Raises OSError."""
    return path.read_bytes() if path.is_file() else b""
