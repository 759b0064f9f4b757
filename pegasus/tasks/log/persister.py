"""The persister: the actor that writes everything below `data/tasks`. There is one way to write, `_Store.write`.

Requests to write that wait together become one durable Commit of the journal: an index line for each new task, then a line
for each event. Before that, tasks that begin or are resumed are put into pending.json. The order makes every crash harmless:

* pending.json names a task before its log has a line, so the next start finds every unfinished log. A pending
  task without a log was never promised to anybody, and recovery drops it.
* The index line is on disk no later than the first line of the log: both are in one Commit, the index first.
* A task leaves pending.json some time after its submitter has taken its end. A crash before that notifies it again, under the
  same number.

If the disk refuses, the Commit wrote nothing. Each request is then tried alone, so that one log that cannot be written holds
up no other task; those that are refused again are answered with the error. Asking again is up to the one who asked (`record`): the
persister holds nothing back, and an actor that was stopped meanwhile leaves nothing behind that would be written later.

Requests are handled in order. A read sees every line that was requested before it, which recovery relies on: a new agent reads the
logs behind the last request of the agent that crashed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import attrs
import trio

from actors import ActorError, Inbox, Ref
from pegasus.events import Event, EventType
from pegasus.observe import get_logger
from pegasus.storage import Commit, JournalMessage, ReplaceFile, StorageError
from pegasus.tasks.core.context import PAYLOADS
from pegasus.tasks.log.format import INDEX, PENDING, PendingTask, index_line, is_task_id, pending_content, task_line
from pegasus.tasks.log.log_files import LogFiles, OpenedLog
from pegasus.tasks.log.messages import Forget, GetPending, ListLogs, PersisterMessage, ReadLogs, RecordEvents
from pegasus.tasks.log.replay import replay

RETRY_FIRST: Final = 0.5
"""Seconds until a refused write is asked for again; doubled each time."""
RETRY_LIMIT: Final = 15.0
"""Longest pause between two tries, seconds."""
FORGET_AFTER: Final = 1.0
"""Seconds that a removal from pending.json waits, so that many removals cost one replacement of the file."""
REBUILD_DAYS: Final = 7
"""Days with tasks whose logs are searched for unfinished tasks when pending.json is damaged."""
RECENT: Final = 3_600_000
"""ms. Of the tasks found in that search, one that ended within this time is notified again: its submitter may not know."""
HANDLED_TOGETHER: Final = 64
"""Messages that are taken at a time; requests to write among them become one Commit."""

_log = get_logger("persister")
_BEGINS: Final = (EventType.TASK_CREATED, EventType.TASK_RESUMED)
"""Events by which a task becomes pending."""


async def record(persister: Ref[PersisterMessage], events: Sequence[Event]) -> None:
    """Return when these events are on disk. Asks again, with growing pauses, for as long as the disk refuses.

    There is no limit on the attempts: a task whose events cannot be stored must wait, since going on without them would show
    others a state that a crash takes back. Each refusal is logged. Raises nothing. Cancelled: the events may be written or not.

    Example: `await record(persister, (created,))`.
    """
    pause = RETRY_FIRST
    while True:
        try:
            return await persister.ask(RecordEvents, tuple(events))
        except (StorageError, ActorError) as error:
            names = ", ".join(event.type.name for event in events)
            task = events[0].task_id if events else ""
            _log.error("task events not stored yet, retrying", task=task, events=names, error=str(error), seconds=pause)
        await trio.sleep(pause)
        pause = min(pause * 2, RETRY_LIMIT)


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


@attrs.frozen
class _Written:
    """Lines of one Commit, and the logs that they belong to."""

    appends: tuple[tuple[str, bytes], ...]
    """(path below data/, bytes), the index first; () if every line was there already."""
    paths: dict[str, str]
    """Path of the log of each task, to be remembered once the Commit has succeeded."""


class _Store:
    """The files of the task system, and the list of pending tasks."""

    def __init__(self, journal: Ref[JournalMessage], clock: Callable[[], int], *, is_restart: bool) -> None:
        self.rewrite_at = math.inf
        """Trio time at which pending.json is due to be replaced; inf = it is up to date, or has a few tasks too many."""
        self._journal = journal
        self._clock = clock
        self._files = LogFiles(journal, clock, is_restart=is_restart)
        self._pending: dict[str, PendingTask] = {}
        """Pending tasks by id, oldest first: the list as it should be on disk."""
        self._listed: frozenset[str] = frozenset()
        """Tasks in pending.json as it is on disk."""

    # ------------------------------------------------------------------ at the start

    async def load(self) -> None:
        """Read pending.json; rebuild it from the logs if it is missing or damaged."""
        found, has_tasks = await self._files.load_pending()
        self._pending = {entry.task_id: entry for entry in found.entries}
        if found.problem and has_tasks:
            self._pending |= {entry.task_id: entry for entry in await self._find_unfinished()}
            _log.warning("pending.json was rebuilt from the logs", problem=found.problem, tasks=len(self._pending))
            self.rewrite_at = trio.current_time()
        else:
            self._listed = frozenset(self._pending)

    async def _find_unfinished(self) -> list[PendingTask]:
        """Return the tasks of the last days that are not over, or were over only lately. Unreadable logs are left out."""
        entries = await self._files.index()
        days = sorted({entry.date for entry in entries})[-REBUILD_DAYS:]
        recent = dict.fromkeys([entry.task_id for entry in entries if entry.date in days])
        unfinished: list[PendingTask] = []
        for task_id, log in zip(recent, await self._files.read_logs(recent), strict=True):
            if isinstance(log, StorageError):
                _log.error("the log of a task cannot be read", task=task_id, error=str(log))
                continue
            found = replay(log, task_id)
            is_known = found.is_over and found.last_at < self._clock() - RECENT
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
            await self._answer(message)
        await self.write(requests)

    async def _answer(self, message: Forget | GetPending | ReadLogs | ListLogs) -> None:
        """Answer a request to read, or take a task off the pending list."""
        match message:
            case Forget(task_id):
                self._forget(task_id)
            case GetPending(reply):
                reply.send(tuple(self._pending.values()))
            case ReadLogs(reply, task_ids):
                try:
                    reply.send(await self._files.read_logs({id: self._pending.get(id) for id in task_ids}))
                except StorageError as error:
                    reply.fail(error)
            case ListLogs(reply, date):
                try:
                    entries = await self._files.index()
                except StorageError as error:
                    reply.fail(error)
                else:
                    reply.send(tuple(dict.fromkeys(entry.task_id for entry in entries if entry.date == date)))

    def _forget(self, task_id: str) -> None:
        """Take a task off the list in memory; the file follows within FORGET_AFTER."""
        self._files.forget(task_id)
        if self._pending.pop(task_id, None) is not None and self.rewrite_at == math.inf:
            self.rewrite_at = trio.current_time() + FORGET_AFTER

    # ------------------------------------------------------------------ writing

    async def write(self, requests: Sequence[RecordEvents]) -> None:
        """Write these requests, together if the disk takes them, else each alone. Each is answered.

        Cancelled: the requests that were not answered may be written or not.
        """
        try:
            await self._commit([event for request in requests for event in request.events])
        except StorageError as error:
            if len(requests) == 1:
                requests[0].reply.fail(error)
            else:
                for request in requests:
                    await self.write((request,))
            return
        for request in requests:
            request.reply.send(None)

    async def _commit(self, events: Sequence[Event]) -> None:
        """Write these events as one durable step. Raises StorageError; then none of them was written.

        A task that becomes pending stays on the list in memory even if the write is refused: its submitter asks again, and a task
        too many on the list does no harm.
        """
        events = [event for event in events if _is_writable(event)]
        if not events:
            return
        for event in events:
            if event.type in _BEGINS and event.task_id:
                self._pending.setdefault(event.task_id, PendingTask(event.task_id, event.timestamp))
        if any(event.task_id in self._pending and event.task_id not in self._listed for event in events):
            await self._write_pending()
        written = await self._lines(events)
        if written.appends:
            await self._journal.ask(Commit, written.appends)
        for task_id, path in written.paths.items():
            self._files.remember(task_id, path)

    async def _lines(self, events: Sequence[Event]) -> _Written:
        """Return the appends of these events: the index first, then each log in order of the events."""
        index: list[bytes] = []
        lines: dict[str, list[bytes]] = {}
        opened: dict[str, OpenedLog] = {}
        for event in events:
            task_id = event.task_id or ""
            log = opened.get(task_id)
            if log is None:
                log = opened[task_id] = await self._files.open(event, self._pending.get(task_id))
                if log.new_date:
                    index.append(index_line(task_id, log.new_date))
            line = task_line(event)
            if line not in log.written:
                lines.setdefault(log.path, []).append(line)
        appends = [(INDEX, b"".join(index))] if index else []
        appends += [(path, b"".join(some)) for path, some in lines.items()]
        return _Written(tuple(appends), {task_id: log.path for task_id, log in opened.items()})

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
            self.rewrite_at = trio.current_time() + RETRY_LIMIT
            _log.warning("pending.json not stored yet, retrying", error=str(error), seconds=RETRY_LIMIT)


def _is_writable(event: Event) -> bool:
    """Return whether the event is a line of a log. Another one is a defect of the caller; it is logged and passed over."""
    if event.type in PAYLOADS and event.task_id is not None and is_task_id(event.task_id):
        return True
    _log.error("an event is not a line of any task log, ignored", type=event.type.name, task=event.task_id)
    return False
