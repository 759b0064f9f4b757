"""The logs of tasks: the actor that writes everything below `data/tasks`, and writing and reading for all others.

While the daemon runs, only the persister writes and reads: it alone knows that everything requested
before is written. There is one way to write, `_Store.write`. `TaskLogs` makes them; `TaskLogs.record` is how events come into a log.

Without a daemon the files do not change, and a command such as `pegasus tasks` reads them directly (`read_task`,
`read_tasks_of_day`).

Requests to the persister to write that wait together become one durable Commit of the journal: an
index line for each new task, then a line for each event. Before that, tasks that begin or are resumed are put into pending.json.
The order makes every crash harmless:

* pending.json names a task before its log has a line, so the next start finds every unfinished log. A pending
  task without a log was never promised to anybody, and recovery drops it.
* The index line is on disk no later than the first line of the log: both are in one Commit, the index first. The logs of
  different tasks follow in any order and are synced at the same time, since none relies on another.
* A task leaves pending.json some time after its submitter has taken its end. A crash before that notifies it again, under the
  same number.

If the disk refuses, the Commit wrote nothing. Each request is then tried alone, so that one log that cannot be written holds
up no other task; those that are refused again are answered with the error. Asking again is up to the one who asked
(`TaskLogs.record`): the persister holds nothing back, and an actor that was stopped meanwhile leaves nothing behind that would be
written later.

Requests are handled in order. A read sees every line that was requested before it, which recovery relies on: a new agent reads the
logs behind the last request of the agent that crashed.

The index says in which day's folder the log of a task is. Without an index line (the index was lost or damaged) the day on which
the task became pending is the best guess. A log that this run did not begin is read once before it is appended to, for recovery or
here:

* A torn end is moved to `<log>.bad-<n>`: otherwise the next line would be joined to it, and be lost with it. It is kept and not
  deleted, because it shows that there was a crash or a failing disk, and may hold text that somebody misses. In the index an empty
  line takes its place, so that the number of that line is not given to another task.
* If the persister was restarted, lines that the log has already are left out: the run before may have written them without
  being able to answer, and the sender has repeated its request.

A log that this run has begun, or has appended to, needs neither: its last Commit was either written whole or not at all. Its path is
remembered while the task is pending, which makes the usual write one Commit without any read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import attrs
import trio

from actors import ActorError, Inbox, Ref, Reply
from pegasus.events import BusMessage, Emit, Event, EventType
from pegasus.formatting import format_day
from pegasus.observe import get_logger
from pegasus.retry import retry
from pegasus.storage import (
    Commit,
    JournalMessage,
    ReadFile,
    ReadFiles,
    RemoveOldFiles,
    ReplaceFile,
    SetAside,
    StorageError,
)
from pegasus.tasks.core.fsm import TaskFSM
from pegasus.tasks.core.views import TaskView, no_such_number, parse_number, task_view
from pegasus.tasks.log.format import (
    FOLDER,
    INDEX,
    PENDING,
    IndexEntry,
    PendingTask,
    find_date,
    find_dates,
    find_entries,
    find_latest,
    find_numbered,
    index_line,
    is_date,
    is_task_id,
    last_number,
    parse_events,
    pending_content,
    read_index,
    read_pending,
    task_path,
)
from pegasus.tasks.log.replay import ReplayedTask, replay

_log = get_logger("tasks")
_persister_log = get_logger("persister")


# ------------------------------------------------------------------ requests to the persister


@attrs.frozen(eq=False, repr=False)
class RecordEvents:
    """Write a line for each of these events, as one durable step, in this order.

    Answered when they are on disk. Fails with StorageError if the disk refuses; then none of them was written. Whoever asks may
    ask again for the same events: they are written once, also if the persister was restarted in between.

    Only one request may be under way for a task: its actor asks while there is one, the agent otherwise.

    Example: `await persister.ask(RecordEvents, (created,))`; usually by `TaskLogs.record`, which asks again.
    """

    reply: Reply[Mapping[str, int]]
    """Answered when every line is synced, with the numbers of the tasks among them that are new in the index."""
    events: tuple[Event, ...]
    """Events in the order of their lines, as `create_events` makes them; they may belong to several tasks."""


@attrs.frozen(eq=False, repr=False)
class GetPending:
    """Return every pending task, oldest first. A list that was missing or damaged has been rebuilt from the logs.

    Example: `[task.task_id for task in await persister.ask(GetPending)]`.
    """

    reply: Reply[tuple[PendingTask, ...]]
    """Receives the list as it is in memory, which may be ahead of the file."""


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
    RecordEvents | GetPending | Forget | ReadLogs | ListLogs | FindNumbered | ReadLatest | RemoveLogs
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

    async def views(self, date: str) -> tuple[TaskView, ...]:
        """Return the tasks of a day (UTC, YYYY-MM-DD), oldest first; without those whose log cannot be read."""
        found = await self.replays(await self._persister.ask(ListLogs, date))
        replays = (each for each in found if isinstance(each, ReplayedTask))
        return tuple(task_view(each.task, number=each.number) for each in replays if each.task is not None)

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


# ------------------------------------------------------------------ the persister


RETRY_AFTER: Final = 15.0
"""Seconds until a refused replacement of pending.json is tried again, if nobody waits for it."""
FORGET_AFTER: Final = 1.0
"""Seconds that a removal from pending.json waits, so that many removals cost one replacement of the file."""
REBUILD_DAYS: Final = 7
"""Days with tasks whose logs are searched for unfinished tasks when pending.json is damaged."""
RECENT_MS: Final = 3_600_000
"""Of the tasks found in that search, one that ended within this time is notified again: its submitter may not know."""
HANDLED_TOGETHER: Final = 64
"""Messages that are taken at a time; requests to write among them become one Commit."""
READ_TOGETHER: Final = 64
"""Logs that are read at a time: other requests to the journal wait no longer than that."""

_LOGS: Final = r"[A-Za-z0-9_-]{1,64}\.jsonl(\.bad-\d+)?"
"""Names of logs, and of torn ends of them."""
_BEGINS: Final = (EventType.TASK_CREATED, EventType.TASK_RESUMED)
"""Events by which a task becomes pending."""


async def task_persister(
    inbox: Inbox[PersisterMessage], journal: Ref[JournalMessage], clock: Callable[[], int]
) -> None:
    """Run the persister. clock: wall clock, ms.

    It is up once it knows what is pending; raises StorageError if the disk does not let it. Stopped: requests that it has taken
    are still written; those in the mailbox fail for their askers. Cancelled or crashed: a request that was not answered may
    be written or not.
    """
    store = _Store(journal, clock, is_restart=inbox.attempt > 1)
    await store.load()
    inbox.started()
    with suppress(trio.EndOfChannel):
        while True:
            messages: list[PersisterMessage] = []
            with trio.move_on_at(store.rewrite_at):
                messages.append(await inbox.receive())
            with suppress(trio.WouldBlock, trio.EndOfChannel):
                while messages and len(messages) < HANDLED_TOGETHER:
                    messages.append(inbox.receive_nowait())
            await store.handle(messages)
            if trio.current_time() >= store.rewrite_at:
                await store.rewrite_pending()
    if store.rewrite_at < math.inf:
        await store.rewrite_pending()


@attrs.frozen(eq=False, repr=False)
class _OpenLog:
    """A log that lines may be appended to."""

    path: str
    """Path below data/."""
    new_date: str = ""
    """Date for the index, "" if the index has the task already."""
    number: int = 0
    """Number of the task, 0 if the index does not have it yet."""
    written: frozenset[bytes] = frozenset()
    """Lines that must not be written again."""


class _Store:
    """The files of the task system, and the list of pending tasks. Methods raise StorageError as the journal does."""

    def __init__(self, journal: Ref[JournalMessage], clock: Callable[[], int], *, is_restart: bool) -> None:
        """Begin with an empty list of pending tasks, which `load` reads. clock: wall clock, ms.

        is_restart: a persister of this process has written before.
        """
        self.rewrite_at = math.inf
        """Trio time at which pending.json is due to be replaced; inf = it is up to date, or has a few tasks too many."""
        self._journal = journal
        self._clock = clock
        self._is_restart = is_restart
        self._logs: dict[str, _OpenLog] = {}
        """Logs of pending tasks that lines can be appended to without a look at the disk, by task id."""
        self._pending: dict[str, PendingTask] = {}
        """Pending tasks by id, oldest first: the list as it should be on disk."""
        self._listed: frozenset[str] = frozenset()
        """Tasks in pending.json as it is on disk."""
        self._last_number = 0
        """Number of the last line of the index."""

    # ------------------------------------------------------------------ at the start

    async def load(self) -> None:
        """Read pending.json; rebuild it from the logs if it is missing or damaged and there may be tasks at all.

        A list or an index that cannot be read (a folder is in its place, say) counts as missing: the daemon starts, and what
        the logs tell can still be read. New tasks are refused by the disk until somebody moves the folder away.
        """
        index = await self._read_or_report(INDEX)
        if index:
            index = await self._repair(INDEX, index, placeholder=b"\n")
        self._last_number = last_number(index)
        found = read_pending(await self._read_or_report(PENDING))
        self._pending = {entry.task_id: entry for entry in found.entries}
        if found.problem and (index or found.entries):
            self._pending |= {entry.task_id: entry for entry in await self._find_unfinished()}
            _persister_log.warning(
                "pending.json was rebuilt from the logs", problem=found.problem, tasks=len(self._pending)
            )
            self.rewrite_at = trio.current_time()
        else:
            self._listed = frozenset(self._pending)

    async def _read_or_report(self, path: str) -> bytes:
        """Return the content of a list, b"" if it cannot be read, which is logged with what to do about it."""
        try:
            return await self._journal.ask(ReadFile, path)
        except StorageError as error:
            _persister_log.error("a list of tasks cannot be read, move it away", path=path, error=str(error))
            return b""

    async def _find_unfinished(self) -> list[PendingTask]:
        """Return the tasks of the last days that are not over, or were over only lately. Unreadable logs are left out."""
        entries = await self._index()
        days = sorted({entry.date for entry in entries})[-REBUILD_DAYS:]
        recent = dict.fromkeys([entry.task_id for entry in entries if entry.date in days])
        unfinished: list[PendingTask] = []
        for task_id, log in zip(recent, await self._read_logs(recent), strict=True):
            if isinstance(log.content, StorageError):
                _persister_log.error("the log of a task cannot be read", task=task_id, error=str(log.content))
                continue
            found = replay(log.content, task_id)
            is_known = found.is_over and found.last_at < self._clock() - RECENT_MS
            if found.task is not None and not is_known:
                unfinished.append(PendingTask(task_id, found.task.created_at))
        return unfinished

    # ------------------------------------------------------------------ requests

    async def handle(self, messages: Sequence[PersisterMessage]) -> None:
        """Handle messages in order; neighbouring requests to write together."""
        requests: list[RecordEvents] = []
        for message in messages:
            if isinstance(message, RecordEvents):
                requests.append(message)
                continue
            await self.write(requests)
            requests = []
            if isinstance(message, Forget):
                self._forget(message.task_ids)
            else:
                await self._answer(message)
        await self.write(requests)

    def _forget(self, task_ids: Iterable[str]) -> None:
        """Take tasks off the list in memory; the file follows within FORGET_AFTER."""
        for task_id in task_ids:
            self._logs.pop(task_id, None)
            if self._pending.pop(task_id, None) is not None and self.rewrite_at == math.inf:
                self.rewrite_at = trio.current_time() + FORGET_AFTER

    async def _answer(self, message: GetPending | ReadLogs | ListLogs | FindNumbered | ReadLatest | RemoveLogs) -> None:
        try:
            match message:
                case GetPending(reply):
                    reply.send(tuple(self._pending.values()))
                case ReadLogs(reply, task_ids):
                    reply.send(tuple(await self._read_logs(task_ids)))
                case ListLogs(reply, date):
                    entries = await self._index()
                    reply.send(tuple(dict.fromkeys(entry.task_id for entry in entries if entry.date == date)))
                case FindNumbered(reply, number):
                    index = await self._journal.ask(ReadFile, INDEX)
                    reply.send((find_numbered(index, number), last_number(index)))
                case ReadLatest(reply, count, known):
                    reply.send(await self._read_latest(count, known))
                case RemoveLogs(reply, since, before, limit):
                    reply.send(await self._remove_old(since, before, limit))
        except StorageError as error:
            message.reply.fail(error)

    # ------------------------------------------------------------------ writing

    async def write(self, requests: Sequence[RecordEvents]) -> None:
        """Write these requests, together if the disk takes them, else each alone. Each is answered.

        Cancelled: the requests that were not answered may be written or not.
        """
        if not requests:
            return
        try:
            numbers = await self._commit([event for request in requests for event in request.events])
        except StorageError as error:
            if len(requests) == 1:
                requests[0].reply.fail(error)
            else:
                for request in requests:
                    await self.write((request,))
            return
        for request in requests:
            begun = {event.task_id or "" for event in request.events}
            request.reply.send({task_id: number for task_id, number in numbers.items() if task_id in begun})

    async def _commit(self, events: Sequence[Event]) -> dict[str, int]:
        """Write these events as one durable step: the index first, then each log in order of the events.

        Returns the numbers of their tasks. Raises StorageError; then none of the events was written.
        """
        await self._list_new(events)
        logs = await self._open_logs(events)
        index = b"".join(index_line(task_id, log.new_date) for task_id, log in logs.items() if log.new_date)
        lines: dict[str, list[bytes]] = {}
        for event in events:
            log = logs[event.task_id or ""]
            if event.line not in log.written:
                lines.setdefault(log.path, []).append(event.line)
        if index or lines:
            first = ((INDEX, index),) if index else ()
            logged = tuple((path, b"".join(some)) for path, some in lines.items())
            await self._journal.ask(partial(Commit, appends=first, together=logged))
        self._remember(logs)
        return {task_id: log.number for task_id, log in logs.items()}

    async def _list_new(self, events: Sequence[Event]) -> None:
        """Put tasks that these events begin into pending.json. Raises StorageError.

        In memory a task stays on the list even then: its submitter asks again, and a task too many on the list does no harm.
        """
        for event in events:
            if event.type in _BEGINS and event.task_id:
                self._pending.setdefault(event.task_id, PendingTask(event.task_id, event.timestamp))
        if any(event.task_id in self._pending and event.task_id not in self._listed for event in events):
            await self._write_pending()

    async def _open_logs(self, events: Sequence[Event]) -> dict[str, _OpenLog]:
        """Return the logs that these events go to, by task. A new one has the number that its line of the index will have."""
        logs: dict[str, _OpenLog] = {}
        number = self._last_number
        for event in events:
            task_id = event.task_id or ""
            if task_id not in logs:
                log = self._logs.get(task_id) or await self._open(task_id, event)
                if log.new_date:
                    number += 1
                    log = attrs.evolve(log, number=number)
                logs[task_id] = log
        return logs

    def _remember(self, logs: Mapping[str, _OpenLog]) -> None:
        """Note that lines for these logs are on disk, and those of new ones in the index."""
        self._last_number += sum(bool(log.new_date) for log in logs.values())
        for task_id, log in logs.items():
            if task_id in self._pending:
                self._logs[task_id] = _OpenLog(log.path, number=log.number)

    async def _open(self, task_id: str, event: Event) -> _OpenLog:
        """Return the log for this event's line. It is not remembered before the write, so a refused write may be repeated."""
        is_new = event.type is EventType.TASK_CREATED
        if is_new and not self._is_restart:
            date = format_day(event.timestamp)
            return _OpenLog(task_path(task_id, date), date)
        number, entry = find_entries(await self._journal.ask(ReadFile, INDEX), (task_id,)).get(task_id, (0, None))
        pending = None if is_new else self._pending.get(task_id)
        likely_date = format_day(int(pending.ts) if pending is not None else event.timestamp)
        path = task_path(task_id, likely_date if entry is None else entry.date)
        content = await self._repair(path, await self._journal.ask(ReadFile, path))
        written = frozenset(content.splitlines(keepends=True)) if self._is_restart else frozenset[bytes]()
        return _OpenLog(path, likely_date if entry is None else "", number, written)

    async def _repair(self, path: str, content: bytes, placeholder: bytes = b"") -> bytes:
        """Move a torn end out of the file, and return what is left of the content. placeholder: what takes its place.

        The end is copied before the file is cut: a crash in between leaves it in both places, never in none.
        """
        end = content.rfind(b"\n") + 1
        if end == len(content):
            return content
        aside = await self._journal.ask(SetAside, path, content[end:])
        whole = content[:end] + placeholder
        await self._journal.ask(ReplaceFile, path, whole)
        _persister_log.warning("set a torn last line aside", path=path, aside=aside)
        return whole

    async def _write_pending(self) -> None:
        """Replace pending.json. Raises StorageError; the file is then what it was."""
        pending = dict(self._pending)
        await self._journal.ask(ReplaceFile, PENDING, pending_content(pending.values()))
        self._listed = frozenset(pending)
        self.rewrite_at = math.inf

    async def rewrite_pending(self) -> None:
        """Replace pending.json if the disk takes it, else later: a task too many in it costs a repeated notification only."""
        try:
            await self._write_pending()
        except StorageError as error:
            self.rewrite_at = trio.current_time() + RETRY_AFTER
            _persister_log.warning("pending.json not stored yet, retrying", error=str(error), seconds=RETRY_AFTER)

    async def _remove_old(self, since: int, before: int, limit: int) -> tuple[str, ...]:
        """Delete old logs, and what was set aside of them. Nothing is written meanwhile, since the persister waits for the answer."""
        index = await self._journal.ask(ReadFile, INDEX)
        folders = tuple(f"{FOLDER}/{day}" for day in find_dates(index) if day <= format_day(before))
        named = find_entries(index, self._pending)
        pending = {task_path(task_id, entry.date) for task_id, (_, entry) in named.items()}
        pending |= {path for task_id in self._pending if (path := self._likely_path(task_id)) is not None}
        ask = partial(RemoveOldFiles, names=_LOGS, spared=frozenset(pending))
        return await self._journal.ask(ask, folders, since, before, limit) if folders else ()

    # ------------------------------------------------------------------ reading

    async def _index(self) -> list[IndexEntry]:
        """Return all tasks, oldest first."""
        entries, problems = read_index(await self._journal.ask(ReadFile, INDEX))
        if problems:
            _persister_log.warning("the index of tasks has bad lines", lines=len(problems), first=problems[0])
        return entries

    async def _read_latest(self, count: int, known: Set[str]) -> dict[str, StoredLog]:
        """Return the logs of the newest tasks, without the contents of those that are known."""
        index = await self._journal.ask(ReadFile, INDEX)
        numbers = find_latest(index, count)
        wanted = [task_id for task_id in numbers if task_id not in known]
        logs = dict(zip(wanted, await self._read_logs(wanted, index), strict=True))
        return {task_id: logs.get(task_id) or StoredLog(number, b"") for task_id, number in numbers.items()}

    async def _read_logs(self, task_ids: Iterable[str], index: bytes | None = None) -> list[StoredLog]:
        """Return the log of each task. index: None = it is read if needed.

        The log of a pending task that the index names, and whose end is whole, need not be read again to be appended to.
        """
        ids = tuple(task_ids)
        logs = {task_id: log for task_id in ids if (log := self._logs.get(task_id)) is not None}
        named: dict[str, _OpenLog] = {}
        if unknown := [task_id for task_id in ids if task_id not in logs]:
            if index is None:
                index = await self._journal.ask(ReadFile, INDEX)
            for task_id, (number, entry) in find_entries(index, unknown).items():
                logs[task_id] = named[task_id] = _OpenLog(task_path(task_id, entry.date), number=number)
        paths = {task_id: log.path if (log := logs.get(task_id)) else self._likely_path(task_id) for task_id in ids}
        wanted = [path for path in paths.values() if path is not None]
        contents: dict[str | None, bytes | StorageError] = {None: b""}
        for begin in range(0, len(wanted), READ_TOGETHER):
            some = tuple(wanted[begin : begin + READ_TOGETHER])
            contents.update(zip(some, await self._journal.ask(ReadFiles, some), strict=True))
        if not self._is_restart:
            for task_id, log in named.items():
                content = contents[log.path]
                if task_id in self._pending and isinstance(content, bytes) and content.endswith(b"\n"):
                    self._logs[task_id] = log
        return [StoredLog(logs[id].number if id in logs else 0, contents[paths[id]]) for id in ids]

    def _likely_path(self, task_id: str) -> str | None:
        """Return the path of a log that the index does not name: by the day on which the task became pending, if it is pending."""
        pending = self._pending.get(task_id)
        return task_path(task_id, format_day(int(pending.ts))) if pending is not None else None
