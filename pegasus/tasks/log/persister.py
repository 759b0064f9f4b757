"""The persister: the actor that writes everything below `data/tasks`.

There is one way to write, `_Store.write`.

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

Several nodes may share the index and the list of pending tasks. Each run of a persister is then an *owner* with a name and a lease of
its own, under which it writes the logs of its tasks; an entry of the list names the owner of its task. Whoever appends to the index
says how many lines it has, and looks again if another node was first: so no number is given twice. When the lease of an owner can be
taken, its node lives no more, and its tasks go to whoever has taken it (`NextTaken`). The former owner can write nothing to their
logs from then on, and its persister ends as soon as it notices, and the agent and all its tasks with it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import attrs
import trio

from actors import ActorError, Inbox, Ref, Reply
from pegasus.events import Event, EventType
from pegasus.formatting import format_day
from pegasus.observe import get_logger
from pegasus.retry import retry
from pegasus.storage import (
    Changed,
    Commit,
    GiveBack,
    JournalMessage,
    Lease,
    LeaseLost,
    LostLease,
    NextChange,
    PutRows,
    ReadFile,
    ReadFiles,
    ReadRows,
    RemoveOldFiles,
    ReplaceFile,
    SetAside,
    StorageError,
    TakeLease,
    until_owned,
)
from pegasus.tasks.log.format import (
    FOLDER,
    INDEX,
    PENDING,
    PENDING_ROWS,
    IndexEntry,
    PendingList,
    PendingTask,
    find_dates,
    find_entries,
    find_latest,
    find_numbered,
    index_line,
    last_number,
    pending_content,
    pending_text,
    read_index,
    read_pending,
    task_path,
)
from pegasus.tasks.log.replay import replay
from pegasus.tasks.log.task_logs import (
    FindNumbered,
    Forget,
    GetElsewhere,
    GetPending,
    ListLogs,
    NextTaken,
    PersisterMessage,
    ReadLatest,
    ReadList,
    ReadLogs,
    RecordEvents,
    RemoveLogs,
    StoredLog,
)

_log = get_logger("persister")
_T = TypeVar("_T")

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
LOOK: Final = 0.5
"""Seconds between two looks whether the node of a pending task lives."""
READ_TOGETHER: Final = 64
"""Logs that are read at a time: other requests to the journal wait no longer than that."""

_LOGS: Final = r"[A-Za-z0-9_-]{1,64}\.jsonl(\.bad-\d+)?"
"""Names of logs, and of torn ends of them."""
_BEGINS: Final = (EventType.TASK_CREATED, EventType.TASK_RESUMED)
"""Events by which a task becomes pending."""


def lease_key(owner: str) -> str:
    """Return the owner key of the tasks of a run of the persister."""
    return f"tasks/{owner}" if owner else "tasks"


async def task_persister(
    inbox: Inbox[PersisterMessage],
    journal: Ref[JournalMessage],
    clock: Callable[[], int],
    new_owner: Callable[[], str] = lambda: "",
) -> None:
    """Run the persister. clock: wall clock, ms. new_owner: makes a name for this run that no other has; "" = there is one node.

    It is up once it knows what is pending; raises StorageError if the disk does not let it. Stopped: requests that it has taken
    are still written; those in the mailbox fail for their askers. Cancelled or crashed: a request that was not answered may
    be written or not. Raises LeaseLost when another node has taken its tasks.
    """
    store = _Store(journal, clock, is_restart=inbox.attempt > 1, owner=new_owner())
    await store.load()
    inbox.started()
    async with trio.open_nursery() as nursery:
        if store.is_shared:
            nursery.start_soon(store.follow, inbox.ref)
            nursery.start_soon(store.wait_lost)
        try:
            await _serve(inbox, store)
        finally:
            store.fail_waiting()
        store.give_back()
        nursery.cancel_scope.cancel()


async def _serve(inbox: Inbox[PersisterMessage], store: _Store) -> None:
    """Handle messages until the actor is to stop."""
    with suppress(trio.EndOfChannel):
        while True:
            messages: list[PersisterMessage] = []
            with trio.move_on_at(min(store.rewrite_at, store.look_at)):
                messages.append(await inbox.receive())
            with suppress(trio.WouldBlock, trio.EndOfChannel):
                while messages and len(messages) < HANDLED_TOGETHER:
                    messages.append(inbox.receive_nowait())
            await store.handle(messages)
            if trio.current_time() >= store.rewrite_at:
                await store.rewrite_pending()
            if trio.current_time() >= store.look_at:
                await store.look()
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

    def __init__(
        self, journal: Ref[JournalMessage], clock: Callable[[], int], *, is_restart: bool, owner: str = ""
    ) -> None:
        """Begin with an empty list of pending tasks, which `load` reads. clock: wall clock, ms.

        is_restart: a persister of this process has written before. owner: name of this run, "" where there is one node.
        """
        self.rewrite_at = math.inf
        """Trio time at which pending.json is due to be replaced; inf = it is up to date, or has a few tasks too many."""
        self.look_at = math.inf
        """Trio time of the next look at the owners of other tasks; inf = there are none."""
        self.is_shared = bool(owner)
        """True if there may be other nodes."""
        self._journal = journal
        self._clock = clock
        self._is_restart = is_restart
        self._owner = owner
        self._lease = Lease(lease_key(owner), 0)
        """Proof that the tasks of this owner are its own; taken by `load`."""
        self._logs: dict[str, _OpenLog] = {}
        """Logs of pending tasks that lines can be appended to without a look at the disk, by task id."""
        self._pending: dict[str, PendingTask] = {}
        """Pending tasks of all owners by id, oldest first: the list as it should be on disk."""
        self._stored: dict[str, PendingTask] = {}
        """The list as it is on disk."""
        self._version = 0
        """Version of the list on disk."""
        self._claimed: dict[str, str] = {}
        """Tasks that are to become its own with the next write of the list, each with the owner that it is taken from."""
        self._taken: list[PendingTask] = []
        """Tasks that were taken over, and that nobody has asked for."""
        self._waiting: Reply[tuple[PendingTask, ...]] | None = None
        """The query that waits for some."""
        self._last_number = 0
        """Number of the last line of the index."""

    # ------------------------------------------------------------------ at the start

    async def load(self) -> None:
        """Take the lease, and read pending.json; rebuild it from the logs if it is missing or damaged and there may be tasks at all.

        A list or an index that cannot be read (a folder is in its place, say) counts as missing: the daemon starts, and what
        the logs tell can still be read. New tasks are refused by the disk until somebody moves the folder away.
        """
        # A node that gives everything back gets no lease, and begins nothing until that is over.
        self._lease = await until_owned(self._journal, self._lease.owner)
        index = await self._read_or_report(INDEX, partial(self._journal.ask, ReadFile, INDEX)) or b""
        if index:
            index = await self._repair(INDEX, index, placeholder=b"\n")
        self._last_number = last_number(index)
        found = await self._read_pending()
        self._pending = {entry.task_id: entry for entry in found.entries}
        is_missing = found.problem and not (self.is_shared and not found.entries)
        if is_missing and (index or found.entries):
            self._stored = {}
            self._pending |= {entry.task_id: entry for entry in await self._find_unfinished()}
            _log.warning("pending.json was rebuilt from the logs", problem=found.problem, tasks=len(self._pending))
            self.rewrite_at = trio.current_time()
        await self.look()
        self._taken = []  # they are among the pending ones

    async def _read_pending(self) -> PendingList:
        """Read the list as it is on disk. What cannot be read counts as missing, where there is one node."""
        rows = await self._read_or_report(PENDING, partial(self._journal.ask, ReadRows, PENDING_ROWS))
        if rows is None:
            return read_pending(b"")
        found = read_pending(rows.content)
        self._stored, self._version = {entry.task_id: entry for entry in found.entries}, rows.version
        return found

    async def _read_or_report(self, path: str, read: Callable[[], Awaitable[_T]]) -> _T | None:
        """Return what is read of a list, None if that fails where there is one node, which is logged with what to do about it."""
        try:
            return await read()
        except StorageError as error:
            if self.is_shared:
                raise
            _log.error("a list of tasks cannot be read, move it away", path=path, error=str(error))
            return None

    async def _find_unfinished(self) -> list[PendingTask]:
        """Return the tasks of the last days that are not over, or were over only lately. Unreadable logs are left out."""
        entries = await self._index()
        days = sorted({entry.date for entry in entries})[-REBUILD_DAYS:]
        recent = dict.fromkeys([entry.task_id for entry in entries if entry.date in days])
        unfinished: list[PendingTask] = []
        for task_id, log in zip(recent, await self._read_logs(recent), strict=True):
            if isinstance(log.content, StorageError):
                _log.error("the log of a task cannot be read", task=task_id, error=str(log.content))
                continue
            found = replay(log.content, task_id)
            is_known = found.is_over and found.last_at < self._clock() - RECENT_MS
            if found.task is not None and not is_known:
                unfinished.append(PendingTask(task_id, found.task.created_at, self._owner))
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
            match message:
                case Forget(task_ids):
                    self._forget(task_ids)
                case NextTaken(reply):
                    self._waiting = reply
                    self._tell_taken()
                case ReadList(reply):
                    with suppress(StorageError):
                        await self._merge()
                    reply.send(None)
                case _:
                    await self._answer(message)
        await self.write(requests)

    def _forget(self, task_ids: Iterable[str]) -> None:
        """Take tasks off the list in memory; the file follows within FORGET_AFTER."""
        for task_id in task_ids:
            self._logs.pop(task_id, None)
            entry = self._pending.get(task_id)
            if entry is not None and entry.owner == self._owner:
                del self._pending[task_id]
                if self.rewrite_at == math.inf:
                    self.rewrite_at = trio.current_time() + FORGET_AFTER

    async def _answer(
        self, message: GetPending | GetElsewhere | ReadLogs | ListLogs | FindNumbered | ReadLatest | RemoveLogs
    ) -> None:
        try:
            match message:
                case GetPending(reply):
                    self._taken = []
                    reply.send(tuple(entry for entry in self._pending.values() if entry.owner == self._owner))
                case GetElsewhere(reply):
                    if self.is_shared:
                        # Who asks acts on a task here if it is nobody's. An old list does not name the node that has just begun it.
                        await self._merge()
                    reply.send(self._elsewhere())
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

    # ------------------------------------------------------------------ other nodes

    def _elsewhere(self) -> tuple[PendingTask, ...]:
        """Return the pending tasks of other owners, oldest first."""
        return tuple(entry for entry in self._pending.values() if entry.owner != self._owner)

    async def follow(self, persister: Ref[PersisterMessage]) -> None:
        """Tell the persister of each change of the list by another node, until cancelled."""
        with suppress(ActorError):  # one of the two ends
            while True:
                await retry(lambda: self._journal.ask(NextChange, PENDING_ROWS, "", self._version), StorageError)
                await persister.ask(ReadList)

    async def wait_lost(self) -> None:
        """Raise LeaseLost when the tasks of this owner are not its own any more."""
        with suppress(ActorError):
            await self._journal.ask(LostLease, self._lease)
            raise LeaseLost(f"another node has taken the tasks of {self._owner}, or this one has lost the database")

    async def _merge(self) -> None:
        """Read the list, and keep in it what is this owner's. Raises StorageError.

        An entry that another owner has taken meanwhile is that owner's, even if this one was about to take it.
        """
        await self._read_pending()
        mine = {id: entry for id, entry in self._pending.items() if entry.owner == self._owner}
        others = {
            id: entry
            for id, entry in self._stored.items()
            if entry.owner not in (self._owner, self._claimed.get(id, self._owner))
        }
        self._pending = dict(sorted((mine | others).items(), key=lambda item: item[1].ts))
        self._plan_look()

    def _plan_look(self) -> None:
        """Set the time of the next look, if there is anything to look at."""
        self.look_at = trio.current_time() + LOOK if self._elsewhere() else math.inf

    async def look(self) -> None:
        """Take the tasks of each owner that lives no more."""
        self.look_at = math.inf
        gone: set[str] = set()
        try:
            for owner in sorted({entry.owner for entry in self._elsewhere()}):
                with suppress(LeaseLost):  # it lives
                    await self._journal.ask(TakeLease, lease_key(owner))
                    gone.add(owner)
            if left := {entry.task_id: entry for entry in self._elsewhere() if entry.owner in gone}:
                await self._take_over(left)
        except StorageError as error:
            _log.warning("the owners of tasks cannot be looked at, retrying", error=str(error))
        self._plan_look()

    async def _take_over(self, left: Mapping[str, PendingTask]) -> None:
        """Make tasks its own whose owner lives no more. Raises StorageError; then nothing has changed."""
        self._pending |= {id: attrs.evolve(entry, owner=self._owner) for id, entry in left.items()}
        self._claimed |= {id: entry.owner for id, entry in left.items()}
        try:
            await self._write_pending()
        except StorageError:
            self._pending |= left
            self._claimed.clear()
            raise
        # Another node that has seen the same may have been first, and works on some of them.
        if taken := [entry for id in left if (entry := self._pending[id]).owner == self._owner]:
            self._taken += taken
            _log.warning("took over the tasks of a node that lives no more", tasks=len(taken))
            self._tell_taken()

    def _tell_taken(self) -> None:
        if self._taken and self._waiting is not None:
            self._waiting.send(tuple(self._taken))
            self._taken, self._waiting = [], None

    def give_back(self) -> None:
        """Let another node have the tasks at once, since nothing of them runs here any more."""
        with suppress(ActorError):
            self._journal.tell_nowait(GiveBack(self._lease))

    def fail_waiting(self) -> None:
        """Let the agent end at once, since the persister does. Its tasks may be those of another node."""
        if self._waiting is not None:
            self._waiting.fail(LeaseLost("the tasks of this node are not its own any more"))

    # ------------------------------------------------------------------ writing

    async def write(self, requests: Sequence[RecordEvents]) -> None:
        """Write these requests, together if the disk takes them, else each alone. Each is answered.

        Cancelled: the requests that were not answered may be written or not. Raises LeaseLost, also for their askers.
        """
        if not requests:
            return
        try:
            numbers = await self._commit([event for request in requests for event in request.events])
        except LeaseLost as error:
            for request in requests:
                request.reply.fail(error)
            raise
        except (StorageError, Changed) as error:
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

        Returns the numbers of their tasks. Raises StorageError, Changed and LeaseLost; then none of the events was written.
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
            after = self._last_number if index else None
            try:
                await self._journal.ask(
                    partial(Commit, appends=first, together=logged, after=after, leases=(self._lease,))
                )
            except Changed:  # another node has begun a task meanwhile, and its number is the next one now
                self._last_number = last_number(await self._journal.ask(ReadFile, INDEX))
                return await self._commit(events)
        self._remember(logs)
        return {task_id: log.number for task_id, log in logs.items()}

    async def _list_new(self, events: Sequence[Event]) -> None:
        """Put tasks that these events begin into pending.json. Raises StorageError.

        In memory a task stays on the list even then: its submitter asks again, and a task too many on the list does no harm. Raises
        Changed if another node has begun one of them.
        """
        begun = {event.task_id: event for event in events if event.type in _BEGINS and event.task_id}
        for id, event in begun.items():
            known = self._pending.get(id)
            # One without a log was never begun: its owner died before that.
            if known is not None and known.owner != self._owner and event.type is EventType.TASK_CREATED:
                self._claimed[id] = known.owner
                known = None
            if known is None:
                self._pending[id] = PendingTask(id, event.timestamp, self._owner)
        ids = {event.task_id or "" for event in events}
        if any(id in self._pending and self._pending[id] != self._stored.get(id) for id in ids):
            await self._write_pending()
        if any(self._pending[id].owner != self._owner for id in begun):
            raise Changed("another node works on this task")

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
        _log.warning("set a torn last line aside", path=path, aside=aside)
        return whole

    async def _write_pending(self) -> None:
        """Write pending.json. Raises StorageError; the file is then what it was."""
        while True:
            pending = dict(self._pending)
            put = {id: pending_text(entry) for id, entry in pending.items() if entry != self._stored.get(id)}
            gone = frozenset(self._stored.keys() - pending.keys())
            content = partial(pending_content, pending.values())
            try:
                self._version = await self._journal.ask(PutRows, PENDING_ROWS, "", put, gone, content, self._version)
                break
            except Changed:
                await self._merge()
        self._stored, self.rewrite_at = pending, math.inf
        self._claimed.clear()

    async def rewrite_pending(self) -> None:
        """Replace pending.json if the disk takes it, else later: a task too many in it costs a repeated notification only."""
        try:
            await self._write_pending()
        except StorageError as error:
            self.rewrite_at = trio.current_time() + RETRY_AFTER
            _log.warning("pending.json not stored yet, retrying", error=str(error), seconds=RETRY_AFTER)

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
            _log.warning("the index of tasks has bad lines", lines=len(problems), first=problems[0])
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
