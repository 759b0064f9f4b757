"""The journal: the actor that writes everything below `<home>/data`, and remembers accepted work.

One actor does it all, since its order is the argument for the order on disk: a message that is sent after another one
to the same actor takes effect after it. The loop has four steps:

1. **Gather** what waits in the mailbox, up to a message about a whole file. Notes take effect here, in memory.
2. **Write** the requests as one batch and answer them (`writer`). What arrives meanwhile is the next batch, so that a
   hundred waiting requests share their syncs.
3. **Answer** the queries, then the message about a whole file. They see every request that came before them.
4. **Hand out** items and replies (`dispatcher`), and rewrite a log that has become mostly dead.

Notes are written with the next write of their file, or after `FLUSH_AFTER` seconds. While there is nothing to be
flushed no timer runs, so that an idle process does not wake up. Work has no deadline, only the wait for a message does.

When the actor stops, is cancelled or crashes, a batch that is being written is finished and answered, since the disk's
work is not interrupted, and the buffers are flushed.

Messages about whole files end a round, because a file that is read must hold every append that was asked for
before it. They are rare (a start, a compaction, an archive), so the round they cut short costs nothing.

Errors of single requests are answers (StorageError) and never end the actor. It crashes only if its own logs
cannot be read at the start, or by a defect. A restart then reads the files again: they hold everything that was
answered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import trio

from actors import Inbox
from pegasus.messages import InboundMessage
from pegasus.observe import get_logger
from pegasus.storage.dispatcher import Dispatcher, Query
from pegasus.storage.inbox import MAX_WAITING
from pegasus.storage.loading import Logs, Report, load_logs
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
from pegasus.storage.volume import Disk, Volume
from pegasus.storage.writer import GroupWriter, Request, check_paths

FLUSH_AFTER = 0.05
"""Seconds that notes wait for a write to go along with."""
RETRY_AFTER = 1.0
"""Seconds after which a flush that the disk refused is tried again: long enough not to burden a full disk, short
enough that nobody notices once there is room."""
BATCH_BYTES = 4 << 20
"""A batch takes no more requests once they hold about this many bytes. It bounds memory and the time until the
first of them is answered."""

WholeFile: TypeAlias = ReadFile | ReadFiles | ReplaceFile | Archive | ArchiveName
"""Messages that read or change a file as a whole."""

_log = get_logger("journal")


async def run_journal(
    inbox: Inbox[JournalMessage],
    disk: Disk,
    *,
    clock: Callable[[], int],
    max_waiting: int = MAX_WAITING,
    report: Report = _log.warning,
) -> None:
    """Run the actor. It takes messages once inbox and outbox are read.

    clock: wall clock, ms since the epoch. max_waiting: items that may wait in a lane. report: logs damage, rewrites
    and refusals of the disk. Raises StorageError if inbox or outbox cannot be read.

    >>> Child("journal", partial(run_journal, clock=now), FileDisk(home.data), mailbox=Mailbox(1024))
    """
    logs = await load_logs(disk, max_waiting, report, clock())
    dispatcher = Dispatcher(disk, logs, report)
    writer = GroupWriter(disk, logs, clock, report, dispatcher.add_replies)
    try:
        await writer.rewrite(logs.damaged)
        await _Journal(inbox, disk, logs, writer, dispatcher).serve()
    finally:
        with trio.CancelScope(shield=True):
            await writer.flush()


class _Work(NamedTuple):
    """Messages that were taken from the mailbox, to be worked on in this order.

    `requests` and `queries` are in the order of the mailbox. `whole_file`, if there is one, came after all of
    them.
    """

    requests: list[Request]
    queries: list[Query]
    whole_file: WholeFile | None = None


class _Journal:
    """The loop."""

    def __init__(
        self, inbox: Inbox[JournalMessage], disk: Disk, logs: Logs, writer: GroupWriter, dispatcher: Dispatcher
    ) -> None:
        self._inbox = inbox
        """The mailbox."""
        self._disk = disk
        """Does the work on whole files."""
        self._logs = logs
        self._writer = writer
        """Writes the batches."""
        self._dispatcher = dispatcher
        """Answers queries."""
        self._flush_at = math.inf
        """Time at which the buffers are to be flushed; infinite if there is nothing to flush."""

    async def serve(self) -> None:
        """Work until the actor is to stop.

        Only the wait has a deadline, the time of the next flush. The work is outside of that scope: a message that arrives
        at the very moment of the deadline is worked on like any other.
        """
        while True:
            message = None
            with trio.CancelScope(deadline=self._flush_at):
                try:
                    message = await self._inbox.receive()
                except trio.EndOfChannel:
                    return
            await self._work(self._gather(message))

    async def _work(self, work: _Work) -> None:
        """Do one round of the loop, and set the time of the next flush.

        The time is set when the first note is buffered and not moved by later ones, so that a steady stream of messages
        does not put the flush off.
        """
        await self._writer.commit(work.requests)
        for query in work.queries:
            await self._dispatcher.answer(query)
        if work.whole_file is not None:
            await self._do_whole_file(work.whole_file)
        # The deadline may have passed while the batch was written; the flush is then due in this round.
        if self._flush_at <= trio.current_time():
            await self._writer.flush()
            self._flush_at = math.inf
        await self._dispatcher.hand_out()
        await self._writer.rewrite()
        if not self._writer.has_buffered:
            self._flush_at = math.inf
        elif self._flush_at == math.inf:
            self._flush_at = trio.current_time() + (RETRY_AFTER if self._writer.is_refused else FLUSH_AFTER)

    def _gather(self, message: JournalMessage | None) -> _Work:
        """Return what waits in the mailbox, beginning with `message`, up to a message about a whole file.

        A file that is read, replaced or archived must contain every append that was asked for before and none that was
        asked for after, so such a message ends the round. `message` is None when only a flush is due.
        """
        requests: list[Request] = []
        queries: list[Query] = []
        size = 0
        while True:
            match message:
                case Accept():
                    requests.append(message)
                    size += _size_of(message.message)
                case Commit():
                    requests.append(message)
                    size += sum(len(data) for _, data in message.appends) + sum(len(p.text) for p in message.posts)
                case Waiting() | Posted() | Unacknowledged() | LastSeq() | KnownAddresses():
                    queries.append(message)
                case ReadFile() | ReadFiles() | ReplaceFile() | Archive() | ArchiveName():
                    return _Work(requests, queries, message)
                case NextItem() | Newer() | Take() | NextReplies():
                    self._dispatcher.keep(message)
                case Done(n):
                    self._logs.inbox.done(n)
                case Acknowledge(address, seq):
                    self._logs.outbox.acknowledge(address, seq)
                case Connected(type, channel_id):
                    self._logs.inbox.connected(type, channel_id)
                case Disconnected(type, channel_id):
                    self._logs.directory.disconnected(type, channel_id)
                case None:
                    pass
            # The rest waits in the mailbox and is the next batch.
            if size > BATCH_BYTES:
                return _Work(requests, queries)
            try:
                message = self._inbox.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                return _Work(requests, queries)

    async def _do_whole_file(self, message: WholeFile) -> None:
        """Read, replace or archive a file. Everything that was asked for before is in it already.

        Invalid paths (ValueError) and errors of the disk go to the asker. Archiving first flushes the buffers,
        so that nothing which belongs to the old file is written to the new one.
        """
        try:
            check_paths(message.paths if isinstance(message, ReadFiles) else (message.path,))
            match message:
                case ReadFile(reply, path):
                    reply.send(await self._disk.run(Volume.read, path))
                case ReadFiles(reply, paths):
                    reply.send(await self._disk.run(_read_each, paths))
                case ReplaceFile(reply, path, content):
                    await self._disk.run(Volume.replace, path, content)
                    reply.send(None)
                case Archive(reply, path, content, at, name):
                    if (error := await self._writer.flush()) is not None:
                        raise StorageError(str(error))
                    reply.send(await self._disk.run(Volume.archive, path, content, at, name))
                case ArchiveName(reply, path, at):
                    reply.send(await self._disk.run(Volume.archive_name, path, at))
        except (StorageError, ValueError) as error:
            message.reply.fail(error)


def _read_each(volume: Volume, paths: Sequence[str]) -> tuple[bytes | StorageError, ...]:
    """Return the content of each file, or the error if it cannot be read."""
    return tuple(_read_or_error(volume, path) for path in paths)


def _read_or_error(volume: Volume, path: str) -> bytes | StorageError:
    """Return the content, or the error in its place, so that one bad file does not hide the others."""
    try:
        return volume.read(path)
    except StorageError as error:
        return error


def _size_of(message: InboundMessage) -> int:
    """Return about how many bytes it takes to write the message."""
    return len(message.text) + sum(len(media.data) for media in message.media)
