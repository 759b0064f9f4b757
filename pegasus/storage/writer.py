"""Group commit: many requests are written with as few syncs as possible, then answered.

A sync takes a hundred times as long as anything else here, and costs the same for one record as for a hundred. So
everything that waits in the journal's mailbox is one *batch*:

1. Each request is staged: applied to inbox and outbox in memory. One that is invalid by itself is left out, and answered
   with its error.
2. The bytes of the whole batch are put together, at best one piece for each file: inbox first, then the appends, then
   the outbox. Within a request the order is kept, since an append may only be on disk after the one before it.
3. The disk's thread writes the pieces, each synced before the next one is begun.
4. Only then are the requests answered.

If the disk refuses, the files are as they were (see `volume`), the staged changes are undone, and the requests are
tried one by one. So a request that cannot succeed, such as one that is too large for the space that is left, fails
nobody else.

The buffers of inbox and outbox (done, acknowledged, addresses) go along when their file is written anyway. Otherwise
`flush` writes them. What the disk refuses stays in the buffer.

The order of the three parts is what the promises need. The inbox comes first, so that a session or a reply about a message
exists only if the message does. The outbox comes last, so that a reply exists only if the session that decided it does. A
power failure between two parts leaves a prefix, of which nobody was told anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from actors import Reply
from pegasus.storage.directory import resolve
from pegasus.storage.inbox import InboxLog
from pegasus.storage.loading import Logs, Report
from pegasus.storage.log_file import RecordLog
from pegasus.storage.messages import Accept, Commit, Post, PostResult, StorageError, Unroutable
from pegasus.storage.outbox import OutboxLog, StoredReply
from pegasus.storage.volume import Disk, Volume

Request: TypeAlias = Accept | Commit

_OWN_FILES = (InboxLog.path, OutboxLog.path)
"""Files that only the journal itself may append to; a request for them is refused."""


class Batch:
    """Appends of many requests, in as few pieces as their order allows: usually one for each file.

    The order is kept within a file and within a request. A request that comes back to a file that one of its earlier
    appends has passed gets a new piece for it.

    >>> batch = Batch()
    >>> batch.add([("x", b"1"), ("y", b"2")])
    >>> batch.add([("x", b"3")])
    >>> batch.pieces()
    [('x', b'13'), ('y', b'2')]
    """

    def __init__(self) -> None:
        self._pieces: list[tuple[str, list[bytes]]] = []
        """Paths and the parts of their bytes, in the order of writing."""
        self._latest: dict[str, int] = {}
        """Index of the last piece of each file."""

    def add(self, appends: Iterable[tuple[str, bytes]]) -> None:
        """Add the appends of one request."""
        reached = 0
        for path, data in appends:
            index = self._latest.get(path, -1)
            if index < reached:
                index = self._latest[path] = len(self._pieces)
                self._pieces.append((path, []))
            self._pieces[index][1].append(data)
            reached = index

    def pieces(self) -> list[tuple[str, bytes]]:
        """Return the appends to be made, in order."""
        return [(path, b"".join(data)) for path, data in self._pieces]


class GroupWriter:
    """Writes inbox, outbox and the appends of other packages.

    >>> await writer.commit([Accept(reply, message), Commit(other, appends, posts)])
    """

    def __init__(
        self,
        disk: Disk,
        logs: Logs,
        clock: Callable[[], int],
        report: Report,
        on_posted: Callable[[list[StoredReply]], None],
    ) -> None:
        self._disk = disk
        self._logs = logs
        self._clock = clock
        self._report = report
        self._on_posted = on_posted
        """Called with replies that are on disk now, oldest first."""
        self._refusal = ""
        """The error of the last write, "" if it succeeded."""

    @property
    def has_buffered(self) -> bool:
        """True if something waits to be written along or flushed."""
        return self._logs.inbox.has_buffered or self._logs.outbox.has_buffered

    @property
    def is_refused(self) -> bool:
        """True if the disk refused the last write."""
        return bool(self._refusal)

    async def commit(self, requests: Sequence[Request]) -> None:
        """Write these requests and answer each of them. Raises nothing."""
        error = await self._write(requests)
        if error is None:
            return
        for request in requests:
            if len(requests) > 1:
                error = await self._write([request])
            if error is not None:
                request.reply.fail(StorageError(str(error)))

    async def flush(self) -> StorageError | None:
        """Write the buffers. Return the error if the disk refuses, after reporting it once."""
        self._logs.inbox.drop_staged()  # nothing is staged, unless the journal has crashed in the middle of a batch
        self._logs.outbox.drop_staged()
        refusal = self._refusal
        error = await self._write((), with_buffers=True)
        if error is not None and str(error) != refusal:
            self._report(f"{error}; what need not be durable at once waits in memory")
        return error

    async def _write(self, requests: Sequence[Request], *, with_buffers: bool = False) -> StorageError | None:
        """Stage, write and answer. If an error is returned, nothing has happened and nobody was answered.

        A batch in which nothing changes (duplicates, keys that are known) needs no write and is answered at once. That is
        safe, since what a duplicate repeats is on disk: staged changes never survive the batch that they belong to.
        """
        inbox, outbox = self._logs.inbox, self._logs.outbox
        batch = Batch()
        answers = [(request, self._stage(request, batch)) for request in requests]
        pieces = batch.pieces()
        if has_inbox := bool(inbox.staged or (with_buffers and inbox.has_buffered)):
            pieces.insert(0, (inbox.path, inbox.unwritten()))
        if has_outbox := bool(outbox.staged or (with_buffers and outbox.has_buffered)):
            pieces.append((outbox.path, outbox.unwritten()))
        if pieces:
            try:
                offsets = await self._disk.run(Volume.append, pieces)
            except StorageError as error:
                inbox.drop_staged()
                outbox.drop_staged()
                self._refusal = str(error)
                return error
            self._refusal = ""
            if has_inbox:
                inbox.written(offsets[0])
            if has_outbox:
                self._on_posted(outbox.written(offsets[-1]))
        for request, answer in answers:
            reply: Reply[Any] = request.reply
            if isinstance(answer, Exception):
                reply.fail(answer)
            else:
                reply.send(answer)
        return None

    # ------------------------------------------------------------------ staging

    def _stage(self, request: Request, batch: Batch) -> object:
        """Return the answer to be given after the write, or an error. With an error nothing of the request is staged."""
        staged_replies = self._logs.outbox.staged
        try:
            if isinstance(request, Accept):
                return self._logs.inbox.accept(request.message, request.lane, self._clock(), request.priority)
            check_paths([path for path, _ in request.appends])
            results = tuple(map(self._stage_post, request.posts))
            batch.add(request.appends)
            return results
        except (TypeError, ValueError) as error:
            self._logs.outbox.drop_staged(keep=staged_replies)
            return ValueError(f"cannot be written: {error}")

    def _stage_post(self, post: Post) -> PostResult:
        """Stage a reply. A key that is known gets its reply also when the address could not be resolved any more."""
        known = self._logs.outbox.find(post.key)
        channel = resolve(self._logs.directory, post) if known is None else known.channel
        return channel if isinstance(channel, Unroutable) else self._logs.outbox.post(post, channel, self._clock())

    # ------------------------------------------------------------------ rewriting

    async def rewrite(self, damaged: Sequence[RecordLog[Any]] = ()) -> None:
        """Rewrite the logs that are mostly dead, and those with damage. A refusal is reported and leaves the file."""
        logs: tuple[RecordLog[Any], ...] = (self._logs.inbox, self._logs.outbox)
        for log in logs:
            if log in damaged or log.should_rewrite():
                plan = log.plan_rewrite(self._clock())
                try:
                    size = await self._disk.run(Volume.rewrite, log.path, plan.parts)
                except StorageError as error:
                    self._report(f"{error}; the file stays as it is")
                else:
                    for message in log.rewritten(plan, size):
                        self._report(message)
                log.considered()


def check_paths(paths: Iterable[str]) -> None:
    """Raise ValueError for a path that is not below data/, or that belongs to the journal itself."""
    for path in paths:
        if not path or path in _OWN_FILES or path[0] == "/" or "\0" in path or ".." in path.split("/"):
            raise ValueError(f"{path!r} is no path below data/ that may be written")
