"""The journal: the one actor that writes below data/, and the only place where accepted work is remembered.

Group commit: what waits in the mailbox is taken out, applied to the logs in memory as *staged*, written in one hop to
the disk's thread (inbox, then appends, then outbox, each synced before the next), and only then answered. Whatever
arrives meanwhile waits and is the next batch, so that a hundred waiting requests cost as many syncs as one. If the
write fails, the staged changes are undone and the requests are tried one by one: one that cannot succeed fails
nobody else.

What need not be durable at once (done, acknowledged, sightings) is true in memory at
once and *owed* to the disk: it goes along with the next write of its file, or is flushed after 50 ms. Owed appends
go first, so nothing gets ahead of them. While nothing is owed no timer runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

import trio

from actors import Inbox
from pegasus.messages import InboundMessage
from pegasus.observe import get_logger
from pegasus.storage.disk import Disk
from pegasus.storage.dispatcher import Dispatcher, Query
from pegasus.storage.inbox import MAX_WAITING
from pegasus.storage.loading import Logs, Report, load
from pegasus.storage.messages import (
    Accept,
    Acknowledge,
    Archive,
    ArchiveName,
    Commit,
    Connected,
    Disconnected,
    Done,
    JournalMessage,
    KnownAddresses,
    LastSeq,
    Newer,
    NextItem,
    NextReplies,
    Posted,
    ReadFile,
    ReadFiles,
    ReplaceFile,
    StorageError,
    Take,
    Unacknowledged,
    Waiting,
)
from pegasus.storage.volume import Volume
from pegasus.storage.writing import Request, Writer, check_paths, is_durable

FLUSH_AFTER = 0.05
"""Seconds that something owed waits for a write to go along with."""
RETRY_AFTER = 1.0
"""Seconds after which a flush that the disk refused is tried again."""
MAX_READS = 64
"""Files that are read in one hop to the disk's thread; whoever asks for something else waits no longer than that."""
BATCH_BYTES = 4 << 20
"""A batch takes no more requests once they hold about this many bytes."""

_log = get_logger("journal")


async def journal(
    inbox: Inbox[JournalMessage],
    disk: Disk,
    *,
    clock: Callable[[], int],
    max_waiting: int = MAX_WAITING,
    report: Report = _log.warning,
) -> None:
    """The actor. clock: wall clock, ms since the epoch. report: told about damage, compaction and a disk that refuses.

    It is up once inbox and outbox are read. Raises StorageError if they cannot be. Stopped, cancelled or crashed:
    a batch that is being written is finished and answered, and what is owed is flushed.
    """
    logs = await load(disk, max_waiting, report, clock())
    dispatcher = Dispatcher(disk, logs, report)
    writer = Writer(disk, logs, clock, report, dispatcher.posted)
    try:
        if writer.owes:
            await writer.flush(sync=True)
        await writer.compact(logs.damaged)
        await _Journal(disk, logs, writer, dispatcher).serve(inbox)
    finally:
        with trio.CancelScope(shield=True):
            await writer.flush(sync=True)
        disk.close()


class _Work(NamedTuple):
    """What was in the mailbox: done in this order."""

    requests: list[Request]
    queries: list[Query]
    whole_file: ReplaceFile | Archive | ArchiveName | None = None
    reads: Sequence[ReadFile | ReadFiles] = ()


class _Journal:
    """The loop: gather, write, answer, hand out."""

    def __init__(self, disk: Disk, logs: Logs, writer: Writer, dispatcher: Dispatcher) -> None:
        self._disk = disk
        self._logs = logs
        self._writer = writer
        self._dispatcher = dispatcher
        self._flush_at = math.inf
        self._left: JournalMessage | None = None

    async def serve(self, inbox: Inbox[JournalMessage]) -> None:
        """Until it is told to stop."""
        goes_on = True
        while goes_on:
            # One scope for all waits up to a flush: for each, it would be most of their cost.
            with trio.CancelScope() as due:
                goes_on = await self._serve(inbox, due)
            if goes_on:
                await self._do(self._take_left(), inbox)

    async def _serve(self, inbox: Inbox[JournalMessage], due: trio.CancelScope) -> bool:
        """Until a flush is due, or until it is told to stop: False. A flush ends a wait only: work has no deadline."""
        while True:
            message = self._take_left()
            if message is None:
                due.deadline = self._flush_at
                try:
                    message = await inbox.receive()
                except trio.EndOfChannel:
                    return False
                due.deadline = math.inf
                if due.cancel_called:  # both at once: in here, its work might be cut short
                    self._left = message
                    return True
            await self._do(message, inbox)

    def _take_left(self) -> JournalMessage | None:
        message, self._left = self._left, None
        return message

    async def _do(self, message: JournalMessage | None, inbox: Inbox[JournalMessage]) -> None:
        """What this message and those behind it want, then what is due."""
        work = self._gather(message, inbox)
        await self._write(work.requests)
        for query in work.queries:
            await self._dispatcher.answer(query)
        if work.reads:
            await self._read(work.reads)
        if work.whole_file is not None:
            await self._do_whole_file(work.whole_file)
        if self._flush_at <= trio.current_time():
            await self._writer.flush(sync=False)
            self._flush_at = math.inf
        await self._dispatcher.hand_out()
        await self._writer.compact()
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._writer.owes:
            self._flush_at = math.inf
        elif self._flush_at == math.inf:
            self._flush_at = trio.current_time() + (RETRY_AFTER if self._writer.is_refused else FLUSH_AFTER)

    def _gather(self, message: JournalMessage | None, inbox: Inbox[JournalMessage]) -> _Work:
        """All that waits in the mailbox, up to a message that concerns a whole file. What needs no answer is done here."""
        requests: list[Request] = []
        queries: list[Query] = []
        size = 0
        while True:
            match message:
                case Commit():
                    requests.append(message)
                    for _, data in message.appends:
                        size += len(data)
                    for post in message.posts:
                        size += len(post.text)
                case Accept():
                    requests.append(message)
                    size += _weight(message.message)
                case ReadFile() | ReadFiles():
                    return _Work(requests, queries, reads=self._gather_reads(message, inbox))
                case ReplaceFile() | Archive() | ArchiveName():
                    return _Work(requests, queries, message)
                case Waiting() | Posted() | Unacknowledged() | LastSeq() | KnownAddresses():
                    queries.append(message)
                case None:
                    pass
                case _:
                    self._note(message)
            if size > BATCH_BYTES:
                return _Work(requests, queries)
            try:
                message = inbox.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                return _Work(requests, queries)

    def _gather_reads(self, first: ReadFile | ReadFiles, inbox: Inbox[JournalMessage]) -> list[ReadFile | ReadFiles]:
        """It and those that follow at once; what comes behind them is left for the next time."""
        reads, files = [first], len(_paths(first))
        try:
            while files < MAX_READS:
                message = inbox.receive_nowait()
                if not isinstance(message, ReadFile | ReadFiles):
                    self._left = message
                    break
                reads.append(message)
                files += len(_paths(message))
        except (trio.WouldBlock, trio.EndOfChannel):
            pass
        return reads

    def _note(
        self, message: NextItem | Newer | Take | NextReplies | Done | Acknowledge | Connected | Disconnected
    ) -> None:
        match message:
            case NextItem():
                self._dispatcher.want_item(message)
            case Newer() | Take():
                self._dispatcher.want_one(message)
            case NextReplies():
                self._dispatcher.want_replies(message)
            case Done(n):
                self._logs.inbox.done(n)
            case Acknowledge(address, seq):
                self._logs.outbox.acknowledge(address, seq)
            case Connected(type, channel_id):
                self._logs.inbox.connected(type, channel_id)
            case Disconnected(type, channel_id):
                self._logs.directory.disconnected(type, channel_id)

    async def _write(self, requests: list[Request]) -> None:
        if any(map(is_durable, requests)):
            await self._writer.commit(requests)
            return
        for request in requests:
            if isinstance(request, Commit):
                self._writer.owe(request)

    async def _flush_all(self) -> None:
        """Make everything that is owed durable. Raises StorageError."""
        await self._writer.flush(sync=True)
        if self._writer.owes:
            raise StorageError(self._writer.refusal)

    async def _read(self, reads: Sequence[ReadFile | ReadFiles]) -> None:
        """Read files in one hop, each with everything that was said before in it."""
        try:
            await self._writer.flush_appends()
        except StorageError as error:
            for message in reads:
                message.reply.fail(error)
            return
        found = iter(await self._disk.run(_read_each, [path for message in reads for path in _paths(message)]))
        for message in reads:
            if isinstance(message, ReadFiles):
                _answer_several(message, list(islice(found, len(message.paths))))
            elif isinstance(content := next(found), Exception):
                message.reply.fail(content)
            else:
                message.reply.send(content)

    async def _do_whole_file(self, message: ReplaceFile | Archive | ArchiveName) -> None:
        """Replace or archive a file, with everything that was said before in it."""
        try:
            check_paths(((message.path, b""),))
            if isinstance(message, Archive):
                await self._flush_all()  # a session tells what is done; put aside, it cannot, so the inbox must know
            elif isinstance(message, ReplaceFile) and self._writer.may_redo(message.path):
                await self._flush_all()
            else:
                await self._writer.flush_appends()
            match message:
                case ReplaceFile(reply, path, content):
                    await self._disk.run(Volume.replace, path, content)
                    reply.send(None)
                case Archive(reply, path, content, at, _, name):
                    reply.send(await self._disk.run(Volume.archive, path, content, at, name))
                case ArchiveName(reply, path, at):
                    reply.send(await self._disk.run(Volume.archive_name, path, at))
        except (StorageError, ValueError) as error:
            message.reply.fail(error)


def _paths(message: ReadFile | ReadFiles) -> Sequence[str]:
    return message.paths if isinstance(message, ReadFiles) else (message.path,)


def _answer_several(message: ReadFiles, contents: Sequence[bytes | Exception]) -> None:
    given = tuple([content for content in contents if isinstance(content, bytes | StorageError)])
    if len(given) == len(contents):
        message.reply.send(given)
    else:
        message.reply.fail(next(content for content in contents if isinstance(content, ValueError)))


def _read_each(volume: Volume, paths: Sequence[str]) -> list[bytes | Exception]:
    """The content of each, or why it cannot be read."""
    found: list[bytes | Exception] = []
    for path in paths:
        try:
            check_paths(((path, b""),))
            found.append(volume.read(path))
        except (StorageError, ValueError) as error:
            found.append(error)
    return found


def _weight(message: InboundMessage) -> int:
    """About how many bytes it takes to write it."""
    return len(message.text) + sum(len(media.data) for media in message.media)
