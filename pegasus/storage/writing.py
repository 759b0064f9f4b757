"""Writing for many at once: staged, written in one hop, then answered; undone and tried singly if the disk refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from actors import Reply
from pegasus.storage import inbox, outbox
from pegasus.storage.addresses import resolve
from pegasus.storage.appending import Write
from pegasus.storage.batch import Batch
from pegasus.storage.compaction import Log, P, worth_it
from pegasus.storage.disk import Disk
from pegasus.storage.loading import Logs, Report
from pegasus.storage.messages import Accept, Commit, Post, PostResult, StorageError, Unroutable
from pegasus.storage.redo import Debt
from pegasus.storage.replies import Stored
from pegasus.storage.volume import Volume

OWED_BYTES = 4 << 20
"""Owed appends that are held for a disk that refuses; beyond it, Commit with durable=False is refused too."""

Request: TypeAlias = Accept | Commit
_UNWRITABLE = (TypeError, ValueError, RecursionError)


def is_durable(request: Request) -> bool:
    """Every request waits for the disk, whatever `durable` says."""
    return True


class Writer:
    """The way of the journal's logs, and of everybody's appends, to the disk.

    posted: told the replies that are on disk now, oldest first.
    """

    def __init__(
        self,
        disk: Disk,
        logs: Logs,
        clock: Callable[[], int],
        report: Report,
        posted: Callable[[list[Stored]], None],
    ) -> None:
        self._disk = disk
        self._logs = logs
        self._clock = clock
        self._report = report
        self._posted = posted
        self._owed: list[tuple[tuple[str, bytes], ...]] = []
        self._owed_bytes = 0
        self._refusal = ""
        self._looked_at = {inbox.PATH: 0, outbox.PATH: 0}

    # ------------------------------------------------------------------ what is owed

    @property
    def owes(self) -> bool:
        """Something waits for a write to go along with."""
        return bool(self._owed) or self._logs.inbox.owes or self._logs.outbox.owes

    @property
    def refusal(self) -> str:
        """What the disk said when it refused the last write, "" if it did not."""
        return self._refusal

    @property
    def is_refused(self) -> bool:
        """The disk refused the last write."""
        return bool(self._refusal)

    def may_redo(self, path: str) -> bool:
        """The outbox carries what belongs into this file, which must not become another one before a full flush."""
        return self._logs.outbox.carries(path)

    def owe(self, commit: Commit) -> None:
        """Take over appends that need not be durable at once, and answer."""
        try:
            check_paths(commit.appends)
        except ValueError as error:
            commit.reply.fail(error)
            return
        size = sum(len(data) for _, data in commit.appends)
        if self._refusal and self._owed_bytes + size > OWED_BYTES:
            commit.reply.fail(StorageError(self._refusal))
            return
        self._owed.append(commit.appends)
        self._owed_bytes += size
        commit.reply.send(())

    async def flush(self, *, sync: bool) -> None:
        """Write all that is owed. What the disk refuses stays owed, and is reported once."""
        self._logs.inbox.dropped()  # nothing is staged, unless a crash of the journal comes first
        self._logs.outbox.dropped()
        refusal = self._refusal
        error = await self._write((), everything=True, sync=sync)
        if error is not None and str(error) != refusal:
            self._report(f"{error}; what need not be durable at once waits in memory")

    async def flush_appends(self) -> None:
        """Write the appends that are owed, so that files can be read or replaced. Raises StorageError."""
        if self._owed and (error := await self._write((), everything=False, sync=False)) is not None:
            raise StorageError(str(error))

    # ------------------------------------------------------------------ requests

    async def commit(self, requests: Sequence[Request]) -> None:
        """Write these and answer each; what is not durable among them goes along in its place."""
        error = await self._write(requests, everything=False, sync=True)
        if error is None:
            return
        for request in requests:  # in their order, so that what is owed stays in its place too
            if isinstance(request, Commit) and not is_durable(request):
                self.owe(request)
                continue
            if len(requests) > 1:
                error = await self._write((request,), everything=False, sync=True)
            if error is not None:
                request.reply.fail(StorageError(str(error)))

    async def _write(self, requests: Sequence[Request], *, everything: bool, sync: bool) -> StorageError | None:
        """Stage, write and answer. On an error nothing of it has happened and nobody was answered."""
        log_in, log_out = self._logs.inbox, self._logs.outbox
        batch = Batch()
        for appends in self._owed:
            batch.add(appends)
        answers = [(request, self._stage(request, batch)) for request in requests]
        pieces = batch.pieces()
        if has_in := bool(log_in.staged or (everything and log_in.owes)):
            pieces.insert(0, (inbox.PATH, log_in.unwritten()))
        settled = everything and (log_out.debt is Debt.OWED or (sync and log_out.debt is not Debt.NONE))
        if has_out := bool(log_out.staged or (everything and (log_out.owes or settled))):
            pieces.append((outbox.PATH, log_out.unwritten(settled=settled)))
        if pieces:
            try:
                write = Write(pieces, sync, settle=settled)
                done = await self._disk.run(Volume.write, write)
            except StorageError as error:
                log_in.dropped()
                log_out.dropped()
                self._refusal = str(error)
                return error
            self._refusal = ""
            self._owed.clear()
            self._owed_bytes = 0
            if has_in:
                log_in.written(done.offsets[0])
            if has_out:
                self._posted(log_out.written(done.offsets[-1], settled=settled, redo=done.redo, synced=sync))
        for request, answer in answers:
            reply: Reply[Any] = request.reply
            if isinstance(answer, Exception):
                reply.fail(answer)
            else:
                reply.send(answer)
        return None

    def _stage(self, request: Request, batch: Batch) -> object:
        """What the asker will be told: an answer, or an error of the request itself, of which nothing is kept then."""
        mark = None
        try:
            if isinstance(request, Accept):
                return self._logs.inbox.accept(request.message, request.lane, self._clock(), request.rank)
            check_paths(request.appends)
            results: tuple[PostResult, ...] = ()
            if request.posts:
                mark = self._logs.outbox.staged
                results = tuple(map(self._stage_post, request.posts))
            batch.add(request.appends)
            return results
        except _UNWRITABLE as error:
            if mark is not None:
                self._logs.outbox.dropped(mark)
            return ValueError(f"cannot be written: {error}")

    def _stage_post(self, post: Post) -> PostResult:
        """The same key gets the same reply, also when its address could not be resolved any more."""
        channel = known.channel if (known := self._logs.outbox.find(post.key)) else resolve(self._logs.directory, post)
        return channel if isinstance(channel, Unroutable) else self._logs.outbox.post(post, channel, self._clock())

    # ------------------------------------------------------------------ compaction

    async def compact(self, damaged: Sequence[str] = ()) -> None:
        """Rewrite a log that is mostly dead, and `damaged` ones."""
        await self._compact(inbox.PATH, self._logs.inbox, inbox.PATH in damaged)
        await self._compact(outbox.PATH, self._logs.outbox, outbox.PATH in damaged)

    async def _compact(self, path: str, log: Log[P], damaged: bool) -> None:
        if not damaged and not worth_it(log.size, log.live, self._looked_at[path]):
            return
        try:
            if path == outbox.PATH:
                await self._settle()
            plan = log.compaction(self._clock())
            size = await self._disk.run(Volume.rewrite, path, plan.parts)
        except StorageError as error:
            self._report(f"{error}; the file stays as it is")
        else:
            for note in log.compacted(plan, size):
                self._report(note)
        self._looked_at[path] = log.size

    async def _settle(self) -> None:
        """Bring everything that the outbox carries into its own file, durably. Raises StorageError."""
        if self._logs.outbox.debt is not Debt.NONE:
            error = await self._write((), everything=True, sync=True)
            if error is not None:
                raise error


def check_paths(appends: Iterable[tuple[str, bytes]]) -> None:
    """Refuse a path that is not below data/, or belongs to the journal itself, by ValueError."""
    before = None
    for path, _ in appends:
        if path is before:
            continue
        before = path
        if not _is_allowed(path):
            raise ValueError(f"{path!r} is no path below data/ that may be written")


@lru_cache(maxsize=1024)
def _is_allowed(path: str) -> bool:
    return bool(path) and path not in _OWN and path[0] != "/" and "\0" not in path and ".." not in path.split("/")


_OWN = (inbox.PATH, outbox.PATH)
