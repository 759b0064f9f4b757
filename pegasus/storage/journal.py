"""The journal: the actor that writes everything below `<home>/data`, and remembers accepted work.

One actor does it all, since its order is the argument for the order on disk: a message that is sent after another one
to the same actor takes effect after it. The loop has four steps:

1. **Gather** what waits in the mailbox, up to a message about a whole file. Notes take effect here, in memory.
2. **Write** the requests as one batch and answer them. What arrives meanwhile is the next batch, so that a hundred
   waiting requests share their syncs.
3. **Answer** the queries, then the message about a whole file. They see every request that came before them.
4. Rewrite a log that has become mostly dead, and **hand out** items and replies.

**Group commit.** A sync takes a hundred times as long as anything else here, and costs the same for one record as for a
hundred. So everything that waits in the mailbox is one *batch*:

* Each request is staged beside inbox and outbox. One that is invalid by itself is left out, and answered with its error.
* The bytes of the whole batch are put together, at best one piece for each file: inbox first, then the appends, then
  the outbox. Within a request the order is kept, since an append may only be on disk after the one before it. Files
  between which there is no order, such as the sessions of different chats, share a step (see `Batch`).
* The disk's thread writes step by step, each synced before the next one is begun.
* Only then do the staged changes become part of inbox and outbox, and the requests are answered.

If the disk refuses, the files are as they were (see `volume`), the staged changes are forgotten, and the requests are
tried one by one. So a request that cannot succeed, such as one that is too large for the space that is left, fails
nobody else.

The order of the files is what the promises need. The inbox comes first, so that a session or a reply about a message
exists only if the message does. The outbox comes last, so that a reply exists only if the session that decided it does. A
power failure leaves the first steps, and perhaps some files of the next, of which nobody was told anything.

**Notes** (done, acknowledged, addresses) go along when their file is written anyway. Otherwise they are written after
`FLUSH_AFTER` seconds; what the disk refuses stays in memory. While there is nothing to be flushed no timer runs, so
that an idle process does not wake up. Work has no deadline, only the wait for a message does.

When the actor stops, is cancelled or crashes, a batch that is being written is finished and answered, since the disk's
work is not interrupted, and the notes are flushed.

Errors of single requests are answers (StorageError) and never end the actor. It crashes only if its own logs
cannot be read at the start, or by a defect. A restart then reads the files again: they hold everything that was
answered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeAlias

import attrs
import trio

from actors import Inbox, Reply
from pegasus.messages import OutboundMessage
from pegasus.observe import Activity, MessageDone, ReplyPosted, get_logger
from pegasus.storage.directory import Directory, resolve
from pegasus.storage.disk import Batch, Disk, repeats
from pegasus.storage.inbox import MAX_WAITING, InboxLog
from pegasus.storage.inbox_messages import (
    Accept,
    Accepted,
    CompleteItem,
    Discard,
    LostChats,
    Overloaded,
    ReturnItem,
    TakeItem,
    Waiting,
)
from pegasus.storage.item_queue import MAIN, ItemQueries, ItemQuery
from pegasus.storage.leases import GiveBack, Lease, LeaseLost, LostLease, TakeLease
from pegasus.storage.messages import (
    Acknowledge,
    Archive,
    ArchiveName,
    Changed,
    Commit,
    Connected,
    Disconnected,
    JournalMessage,
    KnownAddresses,
    NextChange,
    NextReplies,
    NextTold,
    PostResult,
    PutRows,
    ReadFile,
    ReadFiles,
    ReadRows,
    RemoveOldFiles,
    ReplaceFile,
    ReserveBudget,
    Route,
    SetAside,
    SettleBudget,
    StorageError,
    StoredRows,
    TellNodes,
    WholeCollection,
    WholeFile,
)
from pegasus.storage.outbox import GIVEN_UP_DAYS, OutboxEntry, OutboxLog, given_up_item
from pegasus.storage.record_log import RecordLog, Report
from pegasus.storage.reply_queries import ReplyQueries, ReplyQuery
from pegasus.storage.row_files import rows_path
from pegasus.storage.volume import Volume

FLUSH_AFTER = 0.05
"""Seconds that notes, and commits that may be made soon, wait for a write to go along with."""
RETRY_AFTER = 1.0
"""Seconds after which a flush that the disk refused is tried again, which must not burden a full disk."""
BATCH_BYTES = 4 << 20
"""A batch takes no more requests once they hold about this many bytes. It bounds memory and the time until the
first of them is answered."""
KEPT_COUNTS = 10_000
"""Files whose numbers of lines are kept. One that is forgotten is counted again, which reads it once."""
NOTICE_PRIORITY = 2
"""Priority of an item about an undelivered reply: after what people write, like the notifications of tasks."""

Request: TypeAlias = Accept | Discard | Commit
Query: TypeAlias = Waiting | ReplyQuery | KnownAddresses | Route
"""Queries that are answered at once."""
Immediate: TypeAlias = (
    CompleteItem
    | ReturnItem
    | Acknowledge
    | Connected
    | Disconnected
    | TakeLease
    | GiveBack
    | ReserveBudget
    | SettleBudget
    | TellNodes
)
"""Messages that take effect in memory as soon as they are taken from the mailbox."""

_OWN_FILES = (InboxLog.path, OutboxLog.path)
"""Files that only the journal itself may append to; a request for them is refused."""

_log = get_logger("journal")


async def run_journal(
    mailbox: Inbox[JournalMessage],
    disk: Disk,
    *,
    clock: Callable[[], int],
    max_waiting: int = MAX_WAITING,
    report: Report = _log.warning,
    activity: Activity | None = None,
    hands_out: bool = True,
) -> None:
    """Run the actor. It takes messages once inbox and outbox are read.

    mailbox: brings the messages of this actor; the inbox is a file. clock: wall clock, ms since the epoch. max_waiting: items that
    may wait in a lane. report: logs damage, rewrites and refusals of the disk. activity: counts messages and replies. hands_out:
    False: who asks for an item waits, and nothing is worked on. Raises StorageError if inbox or outbox cannot be read.

    >>> Child("journal", partial(run_journal, clock=now), FileDisk(home.data), mailbox=Mailbox(1024))
    """
    journal = _Journal(mailbox, disk, clock, max_waiting, report, activity or Activity(clock), hands_out)
    await journal.load()
    try:
        await journal.serve()
    finally:
        with trio.CancelScope(shield=True):
            journal.drop_staged()  # nothing is staged, unless the journal has crashed in the middle of a batch
            await journal.flush()


class _Journal:
    """State and loop of the actor."""

    def __init__(
        self,
        mailbox: Inbox[JournalMessage],
        disk: Disk,
        clock: Callable[[], int],
        max_waiting: int,
        report: Report,
        activity: Activity,
        hands_out: bool,
    ) -> None:
        self._activity = activity
        self._hands_out = hands_out
        self._held: list[LostChats | LostLease | NextChange | NextTold] = []
        """Queries about what other nodes do. They are never answered."""
        self._mailbox = mailbox
        self._disk = disk
        self._clock = clock
        self._report = report
        self._directory = Directory()
        """Known addresses: they come from accepted messages and connections, and replies go to them."""
        self._inbox = InboxLog(self._directory, max_waiting)
        self._outbox = OutboxLog()
        self._items = ItemQueries(self._inbox.queue, partial(self._inbox.read_message, disk, report))
        self._replies = ReplyQueries(disk, self._outbox, report)
        self._leases: dict[str, int] = {}
        """Fencing token of the newest lease of each owner key."""
        self._lines: dict[str, int] = {}
        """Lines of the files to which commits with `after` append, those that are staged included; what was counted first is first.

        A file is counted when the first such commit comes, and again after anything else than an append that succeeds."""
        self._versions: dict[str, int] = {}
        """Version of each collection of rows that was changed, by its path. Like leases they begin anew with the journal."""
        self._soon: list[Request] = []
        """Commits that may wait for a write to go along with, as notes do."""
        self._refusal = ""
        """The error of the last write, "" if it succeeded."""
        self._may_rewrite = False
        """A log was written to that has grown enough to be rewritten, if most of it is dead."""
        self._flush_at = math.inf
        """Time at which the notes are to be flushed; infinite if there are none."""

    # ------------------------------------------------------------------ start

    async def load(self) -> None:
        """Read inbox and outbox. Raises StorageError."""
        damaged: list[RecordLog[Any]] = [
            log for log in (self._inbox, self._outbox) if await log.load(self._disk, self._report)
        ]
        # Numbers of items must not come twice, since sessions name them. The time in seconds is far above any that was given.
        if self._outbox.size and not self._inbox.size:
            _log.warning("the inbox is gone or empty, though there are replies; what waited in it is lost")
            self._inbox.start_numbers_after(self._clock() // 1000)
        await self._rewrite(damaged)

    # ------------------------------------------------------------------ the loop

    async def serve(self) -> None:
        """Work until the actor is to stop.

        Only the wait has a deadline, the time of the next flush, if there is one. The work is outside of that scope: a message that
        arrives at the very moment of the deadline is worked on like any other.
        """
        while True:
            message = None
            with trio.CancelScope(deadline=self._flush_at) if self._flush_at < math.inf else nullcontext():
                try:
                    message = await self._mailbox.receive()
                except trio.EndOfChannel:
                    return
            await self._work(message)

    async def _work(self, message: JournalMessage | None) -> None:
        """Do one round of the loop, beginning with a message, and set the time of the next flush. None: only a flush is due.

        The time is set when the first note is made and not moved by later ones, so that a steady stream of messages
        does not put the flush off.
        """
        requests, queries, whole_file = self._gather(message)
        if requests or (self._soon and whole_file is not None):
            await self._commit(requests)
        # Queries come after the writes of their round, so an asker sees in the answer what it has asked for before.
        for query in queries:
            await self._answer(query)
        # It was the last message of the round, so all appends from before it are in the file by now, and none from
        # after it.
        if whole_file is not None:
            await self._do_whole_file(whole_file)
        # The deadline may have passed while the batch was written; the flush is then due in this round.
        if self._flush_at <= trio.current_time():
            await self.flush()
            self._flush_at = math.inf
        if self._may_rewrite:
            await self._rewrite()
        # Items and replies are handed out at the end: whatever was accepted or posted in this round is on disk.
        if self._hands_out and self._items.has_changed:
            await self._items.answer()
        self._replies.hand_out()
        if not (self._inbox.notes or self._outbox.notes or self._soon):
            self._flush_at = math.inf
        elif self._flush_at == math.inf:
            self._flush_at = trio.current_time() + (RETRY_AFTER if self._refusal else FLUSH_AFTER)

    def _gather(
        self, message: JournalMessage | None
    ) -> tuple[list[Request], list[Query], WholeFile | WholeCollection | None]:
        """Return the requests and queries that wait in the mailbox, up to a message about a whole file. Others take effect.

        A file that is read, replaced or archived must contain every append that was asked for before and none that was
        asked for after, so such a message ends the round.
        """
        requests: list[Request] = []
        queries: list[Query] = []
        size = 0
        while True:
            if isinstance(message, Request):
                is_soon = isinstance(message, Commit) and message.soon
                (self._soon if is_soon else requests).append(message)
                size += _size_of(message)
            elif isinstance(message, Query):
                queries.append(message)
            elif isinstance(message, ItemQuery):
                if isinstance(message, TakeItem) and self._is_lost(message.lease):
                    message.reply.fail(_lease_lost(message.lease))
                else:
                    self._items.ask(message)
            elif isinstance(message, NextReplies):
                self._replies.ask(message)
            elif isinstance(message, LostChats | LostLease | NextChange | NextTold):
                self._hold(message)
            elif isinstance(message, WholeFile | WholeCollection):
                return requests, queries, message
            elif message is not None:
                self._apply(message)
            # The rest waits in the mailbox and is the next batch.
            if size > BATCH_BYTES:
                return requests, queries, None
            try:
                message = self._mailbox.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                return requests, queries, None

    def _apply(self, message: Immediate) -> None:
        """Let a message take effect that needs no write before."""
        match message:
            case CompleteItem(n, lease):
                if not self._is_lost(lease):
                    self._complete(n)
            case ReturnItem(n, lease):
                if not self._is_lost(lease):
                    self._inbox.queue.take_back(n)
            case Acknowledge(address, seq):
                if acknowledged := self._outbox.acknowledge(address, seq, self._clock()):
                    self._activity.replies_acknowledged(address.type, acknowledged)
            case Connected(type, channel_id):
                self._inbox.connected(type, channel_id)
            case Disconnected(type, channel_id):
                self._directory.disconnected(type, channel_id)
            case TakeLease(reply, owner):
                self._leases[owner] = self._leases.get(owner, 0) + 1
                reply.send(Lease(owner, self._leases[owner]))
            case ReserveBudget(reply):
                reply.send(None)

    def _complete(self, n: int) -> None:
        """Take an item out of the queue, and count it."""
        now = self._clock()
        if (item := self._inbox.done(n, now)) is not None:
            self._items.note_change(item)
            self._activity.message_done(
                MessageDone(n=n, address=item.address, began=item.at, ended=now, is_internal=item.is_internal)
            )

    async def _answer(self, query: Query) -> None:
        """Answer a query. One of several parts whose disk cannot be read fails as a whole."""
        try:
            match query:
                case Waiting(reply, address, lane, priority, apart):
                    reply.send(self._inbox.queue.count_waiting(address, lane, priority, apart))
                case KnownAddresses(reply):
                    reply.send(self._directory.newest())
                case Route(reply, posts):
                    reply.send(tuple([resolve(self._directory, post) for post in posts]))
                case _:
                    await self._replies.answer(query)
        except StorageError as error:
            query.reply.fail(error)

    def _hold(self, query: LostChats | LostLease | NextChange | NextTold) -> None:
        """Keep a query that is never answered, since its asker would fail if nobody could answer any more."""
        self._held = [other for other in self._held if not other.reply.abandoned]
        self._held.append(query)

    async def _do_whole_file(self, message: WholeFile | WholeCollection) -> None:
        """Read, replace or archive a file. Everything that was asked for before is in it already.

        Invalid paths (ValueError) and errors of the disk go to the asker.
        """
        try:
            if isinstance(message, WholeCollection):
                await self._do_collection(message, rows_path(message.collection, message.owner))
                return
            check_paths(message.paths if isinstance(message, ReadFiles | RemoveOldFiles) else (message.path,))
            self._check_lease(getattr(message, "lease", None))
            reply: Reply[Any] = message.reply
            reply.send(await self._use_file(message))
        except (StorageError, LeaseLost, Changed, ValueError) as error:
            message.reply.fail(error)

    async def _use_file(self, message: WholeFile) -> object:
        """Do what a message with a valid path asks for, and return the answer. Raises StorageError."""
        run = self._disk.run
        match message:
            case ReadFile(_, path):
                return await run(Volume.read, path)
            case ReadFiles(_, paths):
                return await run(Volume.read_each, paths)
            case ReplaceFile(_, path, content):
                self._lines.pop(path, None)
                return await run(Volume.replace, path, content)
            case SetAside(_, path, content):
                return await run(Volume.keep_copy, path, content)
            case RemoveOldFiles(_, paths, since, before, limit, names, spared):
                return await run(Volume.remove_old, paths, since, before, limit, names, spared)
            case ArchiveName(_, path, at, prefix):
                return await run(Volume.archive_name, path, at, prefix)
            case Archive(_, path, content, at, name, prefix):
                self._lines.pop(path, None)
                # A session that was archived cannot show any more what is done.
                if (error := await self.flush()) is not None:
                    raise error
                return await run(Volume.archive, path, content, at, name, prefix)

    async def _do_collection(self, message: WholeCollection, path: str) -> None:
        """Read or replace the rows in a file. Raises StorageError, Changed and ValueError."""
        check_paths((path,))
        version = self._versions.get(path, 0)
        match message:
            case ReadRows(reply):
                reply.send(StoredRows(await self._disk.run(Volume.read, path), version))
            case PutRows(reply, content=content, version=known):
                if known < version:
                    raise Changed(f"{path} was changed by somebody else")
                await self._disk.run(Volume.replace, path, content())
                self._versions[path] = max(version, known) + 1
                reply.send(self._versions[path])

    def _is_lost(self, lease: Lease | None) -> bool:
        """Return whether somebody else has taken this lease since."""
        return lease is not None and lease.token < self._leases.get(lease.owner, 0)

    def _check_lease(self, lease: Lease | None) -> None:
        """Raise LeaseLost if somebody else has taken this lease since."""
        if self._is_lost(lease):
            raise _lease_lost(lease)

    # ------------------------------------------------------------------ group commit

    async def _commit(self, requests: Sequence[Request]) -> None:
        """Write what could wait, then these requests, and answer each of them. Raises nothing."""
        requests, self._soon = [*self._soon, *requests], []
        error = await self._write(requests)
        if error is None:
            return
        for request in requests:
            # The batch failed as a whole, and perhaps because of one request, such as a path that is a folder. Each is
            # tried alone, so that the others of its round do not fail with it.
            if len(requests) > 1:
                error = await self._write([request])
            if error is not None:
                request.reply.fail(StorageError(str(error)))

    async def flush(self) -> StorageError | None:
        """Write the notes and what could wait. Return the error if the disk refuses, after reporting it once."""
        before, (waiting, self._soon) = self._refusal, (self._soon, [])
        error = await self._write(waiting, with_notes=True)
        if error is not None and waiting:
            # They stay in their order, and are tried again with the notes, which may be written without them.
            self._soon = [request for request in waiting if not request.reply.abandoned]
            error = await self._write((), with_notes=True)
        if error is not None and str(error) != before:
            self._report(f"{error}; what need not be durable at once waits in memory")
        return error

    async def _write(self, requests: Sequence[Request], *, with_notes: bool = False) -> StorageError | None:
        """Stage, write and answer. If an error is returned, nothing has happened and nobody was answered."""
        answers = [(request, await self._stage(request)) for request in requests]
        commits = [
            request for request, answer in answers if isinstance(request, Commit) and not isinstance(answer, Exception)
        ]
        try:
            await self._append(commits, with_notes=with_notes)
        except StorageError as error:
            self.drop_staged()
            self._refusal = str(error)
            self._activity.failed("disk", "refused")
            return error
        for request, answer in answers:
            reply: Reply[Any] = request.reply
            if isinstance(answer, Changed) and isinstance(request, Commit):
                await self._answer_repeated(request, answer)
            elif isinstance(answer, Exception):
                reply.fail(answer)
            else:
                reply.send(answer)
        return None

    async def _answer_repeated(self, commit: Commit, changed: Changed) -> None:
        """Answer a commit that was decided by another number of lines: as done, if it was made before and its lines are there."""
        try:
            is_done = repeats(commit, await self._disk.run(Volume.read, commit.appends[0][0]))
        except StorageError as error:
            commit.reply.fail(error)
            return
        if not is_done:
            commit.reply.fail(changed)
        else:
            # Posts are recognised by their keys; those that a crash has kept from the disk are made now.
            await self._commit([attrs.evolve(commit, appends=(), together=())])

    async def _append(self, commits: Sequence[Commit], *, with_notes: bool) -> None:
        """Write what is staged together with the appends of these commits, and make it part of inbox and outbox. Raises StorageError.

        The order on disk is inbox, sessions, outbox: each is written before what refers to it. A reply whose session lines are missing
        cannot come about, nor an inbox that looks lost beside replies. Notes come behind the sessions.

        A batch in which nothing changes (duplicates, keys that are known) needs no write. Answering it at once is safe, since what a
        duplicate repeats is on disk: staged changes never survive the batch that they belong to.
        """
        inbox, outbox, batch = self._inbox, self._outbox, Batch()
        if begins := bool(outbox.staged) and not inbox.size:
            inbox.begin()
        accepted = inbox.unwritten() if inbox.staged or begins or with_notes else b""
        posted = outbox.unwritten() if outbox.staged or with_notes else b""
        for commit in commits:
            batch.add(commit.appends, commit.together)
        steps = batch.steps()
        # What is accepted stands before the sessions that speak of it, and what is done behind those that show it.
        place = len(steps) if with_notes else 0
        before = sum(map(len, steps[:place]))
        if accepted:
            steps.insert(place, [(inbox.path, accepted)])
        if posted:
            steps.append([(outbox.path, posted)])
        if not steps:
            return
        offsets = await self._disk.run(Volume.append_steps, steps)
        self._refusal = ""
        while len(self._lines) > KEPT_COUNTS:
            del self._lines[next(iter(self._lines))]
        if accepted:
            for item in inbox.written(offsets[before]):
                self._items.note_change(item)
                self._activity.message_accepted(item.address.type, is_internal=item.is_internal)
        if posted:
            # Only now may an adapter send them: what is sent and not on disk would be sent again with another number.
            replies = outbox.written(offsets[-1])
            self._replies.add(replies)
            for reply in replies:
                address = reply.channel.address
                self._activity.reply_posted(ReplyPosted(key=reply.key, address=address, seq=reply.seq, at=reply.at))
        self._may_rewrite = inbox.size > inbox.rewrite_above or outbox.size > outbox.rewrite_above

    def drop_staged(self) -> None:
        """Forget what is staged, since it could not be written."""
        self._inbox.drop_staged()
        self._outbox.drop_staged()
        self._lines.clear()

    async def _stage(self, request: Request) -> object:
        """Return the answer to be given after the write, or an error. With an error nothing of the request is staged."""
        try:
            if isinstance(request, Accept):
                answer = self._inbox.accept(
                    request.message,
                    request.lane,
                    self._clock(),
                    request.priority,
                    owner=request.owner,
                    sender=request.sender,
                    max_of_sender=request.max_of_sender,
                )
                if isinstance(answer, Overloaded):
                    self._activity.failed("inbox", "overloaded")
                return answer
            self._check_lease(request.lease)
            if isinstance(request, Discard):
                return self._inbox.discard(request, self._clock())
            for lease in request.leases:
                self._check_lease(lease)
            return await self._stage_commit(request)
        except (TypeError, ValueError) as error:
            return ValueError(f"cannot be written: {error}")
        except (LeaseLost, Changed, StorageError) as error:
            return error

    async def _stage_commit(self, commit: Commit) -> tuple[PostResult, ...]:
        """Stage posts and count lines. Raises ValueError, TypeError, Changed, and StorageError if a file cannot be counted."""
        appends, lines, outbox = (*commit.appends, *commit.together), self._lines, self._outbox
        check_paths(path for path, _ in appends)
        if commit.after is not None and commit.appends:
            path = commit.appends[0][0]
            if path not in lines:
                lines[path] = await self._disk.run(Volume.count_lines, path)
            if lines[path] != commit.after:
                raise Changed(f"{path} has {lines[path]} lines, and not {commit.after} as when this was decided")
        staged_replies = len(outbox.staged)
        try:
            posted = [outbox.post(post, resolve(self._directory, post), self._clock()) for post in commit.posts]
        except (TypeError, ValueError):
            outbox.drop_staged(keep=staged_replies)  # the posts before the one that cannot be written
            raise
        for path, data in appends:
            if path in lines:
                lines[path] += data.count(b"\n")
        return tuple(posted)

    # ------------------------------------------------------------------ rewriting

    async def _rewrite(self, damaged: Sequence[RecordLog[Any]] = ()) -> None:
        """Rewrite the logs that are mostly dead, and those with damage. A refusal is reported and leaves the file."""
        logs: tuple[RecordLog[Any], ...] = (self._outbox, self._inbox)
        self._may_rewrite = False
        for log in logs:
            if not log.should_rewrite() and log not in damaged:
                continue
            if log is self._outbox:
                await self._give_up()
            plan = log.plan_rewrite()
            try:
                log.rewritten(plan, await self._disk.run(Volume.rewrite, log.path, plan.parts))
            except StorageError as error:
                self._report(f"{error}; the file stays as it is")
            # After a refusal, too: a full disk would be asked again with every message otherwise.
            log.note_rewrite()

    async def _give_up(self) -> None:
        """Report replies that are too old to the Main Agent, one item for each address, then take them for acknowledged.

        While the inbox has no room, or the disk refuses, they stay.
        """
        reported: list[list[OutboxEntry]] = []
        for replies in self._outbox.given_up(self._clock()):
            newest = replies[-1]
            try:
                [found] = await self._replies.messages_of([newest])
            except StorageError:
                continue
            item = given_up_item(found or OutboundMessage("", newest.channel, newest.seq), len(replies))
            if isinstance(self._inbox.accept(item, MAIN, self._clock(), NOTICE_PRIORITY), Accepted):
                reported.append(replies)
        if await self._write(()) is not None:
            return
        for replies in reported:
            address = replies[-1].channel.address
            self._outbox.acknowledge(address, replies[-1].seq)
            days = f"nobody acknowledged them for {GIVEN_UP_DAYS} days"
            self._report(f"{len(replies)} replies to {address} were dropped: {days}")


def _lease_lost(lease: Lease | None) -> LeaseLost:
    return LeaseLost(f"somebody else has the lease of {lease.owner}" if lease is not None else "")


def check_paths(paths: Iterable[str]) -> None:
    """Raise ValueError for a path that is not below data/, or that belongs to the journal itself."""
    for path in paths:
        if not path or path in _OWN_FILES or path[0] == "/" or "\0" in path or ".." in path.split("/"):
            raise ValueError(f"{path!r} is no path below data/ that may be written")


def _size_of(request: Request) -> int:
    """Return about how many bytes it takes to write what is asked for."""
    if isinstance(request, Accept):
        return len(request.message.text) + sum(len(media.data) for media in request.message.media)
    if isinstance(request, Discard):
        return len(request.report.text)
    size = 0
    for _, data in (*request.appends, *request.together):
        size += len(data)
    for post in request.posts:
        size += len(post.text)
    return size
