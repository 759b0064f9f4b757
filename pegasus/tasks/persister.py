"""The persister: the bus's gate, and the one writer of data/tasks.

A Record is one durable Commit: an index line for each new task, on disk before its log begins, then a line for each event.
A new task is in pending.json before its end is written, a resumed one before that it is resumed; so a crash at any moment
leaves no log that nobody looks after: what is unfinished and not in pending.json is among the last in the index.
While the disk refuses, the same is tried again with growing pauses: nothing takes effect before it is written. Given again to
a persister that was restarted, a Record is on disk once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias, TypeVar

import trio

from actors import Inbox, MailboxFull, Ref
from pegasus.events import Event, EventType, Record
from pegasus.observe import get_logger
from pegasus.storage import Commit, JournalMessage, ReplaceFile, StorageError
from pegasus.tasks.index import INDEX, PENDING, index_line, newest_in, pending_content, read_pending
from pegasus.tasks.log import ENDS, begun_at, has_ended, is_task_id, task_line, task_path
from pegasus.tasks.payloads import KEYS
from pegasus.tasks.places import Places
from pegasus.tasks.replay import replay
from pegasus.tasks.storage_messages import Forget, GetPending, LogsOf, Pending, PersisterMessage, ReadLogs

RETRY_FIRST: Final = 0.5
RETRY_LIMIT: Final = 15.0
"""Seconds between two tries to write while the disk refuses."""
LIST_AFTER: Final = 0.05
"""Seconds until a new task is put into pending.json, if there is no better moment before."""
FORGET_AFTER: Final = 1.0
"""Seconds that a removal from pending.json waits for others to go along with."""
REBUILD_DAYS: Final = 7
"""Days with tasks that are searched for unfinished ones when pending.json is not to be trusted."""
STILL_NEWS: Final = 3_600_000
"""ms: of the tasks found then, one that ended no longer ago is told again, for its submitter may not know."""

HANDLED_TOGETHER: Final = 64
"""Messages that are handled before anybody else gets a turn."""

T = TypeVar("T")
Appends: TypeAlias = tuple[tuple[str, bytes], ...]
_log = get_logger("persister")
_BEGINS = (EventType.TASK_CREATED, EventType.TASK_RESUMED)
_LISTED_BEFORE = (*ENDS, EventType.TASK_RESUMED)
_RESULTS = (EventType.TOOL_CALL_COMPLETED, EventType.TOOL_CALL_FAILED)


async def task_persister(
    inbox: Inbox[PersisterMessage], journal: Ref[JournalMessage], clock: Callable[[], int]
) -> None:
    """The actor. clock: wall clock, ms. It is up once it knows what is pending; raises StorageError if that cannot be read.

    Stopped: what it was given is still written. Cancelled or crashed: a Record that was not answered may be written or not.
    """
    places = Places(journal, clock, again=inbox.attempt > 1)
    writer = _Writer(journal, places, clock)
    await writer.load()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.work)
        async for message in inbox:
            await _handle(message, places, writer)
            for _ in range(HANDLED_TOGETHER):  # of tasks that end together, each is to be forgotten
                try:
                    more = inbox.receive_nowait()
                except (trio.WouldBlock, trio.EndOfChannel):
                    break
                await _handle(more, places, writer)
        await writer.finish()
        nursery.cancel_scope.cancel()


async def _handle(message: PersisterMessage, places: Places, writer: _Writer) -> None:
    match message:
        case Record():
            if not (writer.handed_on(message) or await writer.written_at_once(message)):
                writer.add(message)
        case Forget(task_id):
            writer.forget(task_id)
        case GetPending(reply):
            reply.send(tuple(writer.pending.values()))
        case ReadLogs() | LogsOf():
            await _look(message, places, writer)


async def _look(message: ReadLogs | LogsOf, places: Places, writer: _Writer) -> None:
    try:
        match message:
            case ReadLogs(reply, task_ids):
                reply.send(await places.read_logs({task_id: writer.since(task_id) for task_id in task_ids}))
            case LogsOf(reply, date):
                days = await places.index()
                reply.send(tuple(dict.fromkeys(task_id for task_id, created in days if created == date)))
    except StorageError as error:
        message.reply.fail(error)


class _Writer:
    """pending: what pending.json holds, or will hold when it is written next (`_stale`); `_unlisted`: those it does not hold yet."""

    def __init__(self, journal: Ref[JournalMessage], places: Places, clock: Callable[[], int]) -> None:
        self.pending: dict[str, Pending] = {}
        self._journal = journal
        self._places = places
        self._clock = clock
        self._records: deque[Record] = deque()
        self._stale = False
        self._forget_at = math.inf
        self._unlisted: set[str | None] = set()
        self._closing = self._is_writing = False
        self._news = trio.Event()
        self._finished = trio.Event()

    def since(self, task_id: str) -> int | None:
        """When a pending task became so."""
        entry = self.pending.get(task_id)
        return entry.ts if entry is not None else None

    # ------------------------------------------------------------------ at the start

    async def load(self) -> None:
        """Read pending.json; if it is missing or damaged, rebuild it."""
        index = await self._places.mended(INDEX)
        found = read_pending(await self._places.read(PENDING))
        self.pending = {entry.task_id: entry for entry in found.entries}
        if found.problem and (index or self.pending):
            for entry in await self._unfinished():
                self.pending[entry.task_id] = entry
            _log.warning("pending.json was rebuilt from the logs", problem=found.problem, tasks=len(self.pending))
            self._rewrite_within(0.0)
        for entry in await self._begun_last(index):
            self.pending[entry.task_id] = entry
            self._unlisted.add(entry.task_id)
            self._rewrite_within(0.0)
        self._places.expect(self.pending, index)

    async def _begun_last(self, index: bytes) -> list[Pending]:
        """Tasks that a run began, and that it could not put into the list any more."""
        begun: list[Pending] = []
        for task_id, date in reversed(newest_in(index)):
            if task_id in self.pending:
                break  # those before it were in the list when it was
            log = await self._places.read(task_path(task_id, date))
            if has_ended(log):
                break  # likewise
            if (at := begun_at(log)) is not None:
                begun.append(Pending(task_id, at))
        return begun[::-1]

    async def _unfinished(self) -> list[Pending]:
        entries = await self._places.index()
        days = set(sorted({entry.date for entry in entries})[-REBUILD_DAYS:])
        unfinished: list[Pending] = []
        for task_id, date in entries:
            if date in days:
                found = replay(await self._places.read(task_path(task_id, date)), task_id)
                known = found.is_over and found.last_at < self._clock() - STILL_NEWS
                if found.task is not None and not known:
                    unfinished.append(Pending(task_id, found.task.created_at))
        return unfinished

    # ------------------------------------------------------------------ what is asked for

    async def written_at_once(self, record: Record) -> bool:
        """Write and answer it, as most are: lines for logs that are open, while nothing else is to be written before.

        False: it is for `add`, since it is of another kind, or since the disk refuses.
        """
        if self._is_busy:
            return False
        everything = self._simply(record.events)
        if not everything:
            return False
        try:
            await self._journal.ask(Commit, everything)
        except StorageError:
            return False
        record.reply.send(None)
        return True

    def handed_on(self, record: Record) -> bool:
        """The same for one that is not patient: the journal answers it, so that nobody need wake up here to pass the answer on."""
        if record.patient or self._is_busy or not (everything := self._simply(record.events)):
            return False
        with suppress(MailboxFull):
            self._journal.tell_nowait(Commit(record.reply, everything))
            if self._unlisted and any(event.type in _RESULTS for event in record.events):
                self._rewrite_within(0.0)  # the task thinks now: nobody waits for the disk
            return True
        return False

    @property
    def _is_busy(self) -> bool:
        """Something is to be written before anything else."""
        return bool(self._records) or self._is_writing

    def _rewrite_within(self, seconds: float) -> None:
        """The list is to be written, by then at the latest."""
        self._stale, self._forget_at = True, min(self._forget_at, trio.current_time() + seconds)
        self._news.set()

    def _simply(self, events: Sequence[Event]) -> Appends:
        """The lines of events for logs that are open; () if something else is among them."""
        logs = _Logs()
        for event in events:
            path = self._places.known(event.task_id or "")
            if path is None or event.type not in KEYS:
                return ()
            if event.type in _BEGINS and event.task_id not in self.pending:
                return ()
            if event.type in ENDS and event.task_id in self._unlisted:
                return ()
            if len(events) == 1:
                return ((path, task_line(event)),)
            logs.add(path, event)
        return tuple([append for one in logs.commits() for append in one])

    def add(self, record: Record) -> None:
        """To be written, and then answered."""
        self._records.append(record)
        self._news.set()

    def forget(self, task_id: str) -> None:
        """Not pending any more; written with what comes next, or soon."""
        self._places.forget(task_id)
        if self.pending.pop(task_id, None) is not None and not self._stale:
            self._rewrite_within(FORGET_AFTER)

    # ------------------------------------------------------------------ writing

    async def work(self) -> None:
        """Write what there is to write, for ever."""
        while True:
            if self._records:
                self._is_writing = True
                await self._write([self._records.popleft() for _ in range(len(self._records))])
                self._is_writing = False
            elif self._stale and trio.current_time() >= self._forget_at:
                await self._until_written(self._write_pending, PENDING)
            elif self._closing:
                self._finished.set()
                await trio.sleep_forever()
            else:
                self._news = trio.Event()
                with trio.move_on_at(self._forget_at):
                    await self._news.wait()

    async def finish(self) -> None:
        """Write what was given; what is not pending any more, too, if the disk takes it at once."""
        self._closing = True
        self._news.set()
        await self._finished.wait()
        if self._stale:
            try:
                await self._write_pending()
            except StorageError as error:
                _log.warning("pending.json could not be written; some tasks will be told again", error=str(error))

    async def _write(self, records: list[Record]) -> None:
        events = [event for record in records for event in record.events if _is_writable(event)]
        begun = [event for event in events if event.type in _BEGINS and event.task_id not in self.pending]
        for event in begun:
            self.pending[event.task_id or ""] = Pending(event.task_id or "", event.timestamp)
        unlisted = self._unlisted | {event.task_id for event in begun}
        if any(event.type in _LISTED_BEFORE and event.task_id in unlisted for event in events):
            await self._until_written(self._write_pending, PENDING)
            begun = []
        logs = _Logs()
        for event in events:
            path = self._places.known(event.task_id or "")
            if path is not None:
                logs.add(path, event)
                continue
            await self._until_written(partial(self._add_line, logs, event), "a task's log")
        commits = logs.commits()
        while commits:
            commits = await self._until_written(partial(self._commit, commits), commits[-1][-1][0])
        if begun:
            self._unlisted.update([event.task_id for event in begun])
            self._rewrite_within(LIST_AFTER)
        for record in records:
            record.reply.send(None)

    async def _commit(self, commits: Sequence[Appends]) -> list[Appends]:
        """Write these; gives those that the disk refused, if it took any."""
        if len(commits) > 1:
            everything = tuple([append for one in commits for append in one])
            with suppress(StorageError):  # then each for itself, for one that cannot be written holds up no other
                await self._journal.ask(Commit, everything)
                return []
        answers = [(one, await self._journal.request(Commit, one)) for one in commits]
        refused: list[Appends] = []
        why: StorageError | None = None
        for one, answer in answers:
            try:
                await answer.get()
            except StorageError as error:
                refused.append(one)
                why = error
        if why is not None and len(refused) == len(commits):
            raise why
        return refused

    async def _add_line(self, logs: _Logs, event: Event) -> None:
        opened = await self._places.open(event, self.since(event.task_id or ""))
        if opened.dated:
            logs.index.append(index_line(event.task_id or "", opened.dated))
            logs.new.add(opened.path)
        logs.there |= opened.there
        logs.add(opened.path, event)

    async def _write_pending(self) -> None:
        self._stale, self._forget_at = False, math.inf
        try:
            await self._journal.ask(ReplaceFile, PENDING, pending_content(self.pending.values()))
        except StorageError:
            self._rewrite_within(0.0)
            raise
        self._unlisted.clear()

    async def _until_written(self, write: Callable[[], Awaitable[T]], what: str) -> T:
        """Try until the disk takes it; a try itself is never interrupted, a pause may be."""
        pause = RETRY_FIRST
        while True:
            try:
                with trio.CancelScope(shield=True):
                    return await write()
            except StorageError as error:
                _log.error("the disk refuses, will try again", what=what, error=str(error), seconds=pause)
            await trio.sleep(pause)
            pause = min(pause * 2, RETRY_LIMIT)


class _Logs:
    """The lines of a batch, by file. index: those of `new` files. there: lines that a run before has written already."""

    def __init__(self) -> None:
        self.index: list[bytes] = []
        self.new: set[str] = set()
        self.lines: dict[str, list[bytes]] = {}
        self.there: frozenset[bytes] = frozenset()

    def add(self, path: str, event: Event) -> None:
        """The line of this event, unless it is there already."""
        line = task_line(event)
        if line not in self.there:
            self.lines.setdefault(path, []).append(line)

    def commits(self) -> list[Appends]:
        """Each file for itself, so that one that is refused holds up no other; but new ones with the index, and behind it."""
        files = {path: b"".join(lines) for path, lines in self.lines.items()}
        new = [(path, files.pop(path)) for path in list(files) if path in self.new]
        first = [((INDEX, b"".join(self.index)), *new)] if self.index else []
        return [*first, *[(one,) for one in files.items()]]


def _is_writable(event: Event) -> bool:
    if event.type in KEYS and event.task_id is not None and is_task_id(event.task_id):
        return True
    _log.error("an event that belongs in no task's log", type=event.type.name, task=event.task_id)
    return False
