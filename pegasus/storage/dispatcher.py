"""Giving out what the logs hold: items to the Main Agent, replies to the switchboard, and answers about both.

An item or reply is held in memory when it is fresh and read back from its file when it is not. A record that
cannot be read back as what it was is reported and passed over; it must not stop what comes after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeAlias

from actors import Reply
from pegasus.messages import Address, InboundMessage, OutboundMessage
from pegasus.storage import inbox, outbox, replies
from pegasus.storage.disk import Disk
from pegasus.storage.lanes import Pending
from pegasus.storage.loading import Logs, Report
from pegasus.storage.messages import (
    Item,
    KnownAddresses,
    LastSeq,
    Newer,
    NextItem,
    NextReplies,
    Outgoing,
    Posted,
    StorageError,
    Take,
    Unacknowledged,
    Waiting,
)
from pegasus.storage.replies import Stored
from pegasus.storage.volume import Volume

REPLIES_AT_ONCE = 100

Query: TypeAlias = Waiting | Posted | Unacknowledged | LastSeq | KnownAddresses
_NO_RECORD = (ValueError, KeyError, TypeError)


class Dispatcher:
    """Where items and replies are asked for; a question that cannot be answered yet is kept."""

    def __init__(self, disk: Disk, logs: Logs, report: Report) -> None:
        self._disk = disk
        self._logs = logs
        self._report = report
        self._takers: dict[str, NextItem] = {}
        self._takes: list[Take] = []
        self._watchers: list[Newer] = []
        self._courier: Reply[tuple[Outgoing, ...]] | None = None
        self._outgoing: deque[tuple[int, Stored]] = deque()
        self._position = 0

    def posted(self, new: Iterable[Stored]) -> None:
        """These replies are on disk now and want to be handed out."""
        for stored in new:
            self._position += 1
            self._outgoing.append((self._position, stored))

    # ------------------------------------------------------------------ long polls

    def want_item(self, question: NextItem) -> None:
        """Keep the question until there is an item; who asked before for this lane is told that it was replaced."""
        if (before := self._takers.pop(question.lane, None)) is not None:
            before.reply.fail(StorageError("another NextItem for this lane has taken the place of this one"))
        self._takers[question.lane] = question

    def want_one(self, question: Take | Newer) -> None:
        """Keep the question until what was said before it is written."""
        if isinstance(question, Take):
            self._takes.append(question)
        else:
            self._watchers.append(question)

    def want_replies(self, question: NextReplies) -> None:
        """Keep the question until there are replies; those up to `handed` are confirmed and need not be given again."""
        if self._courier is not None:
            self._courier.fail(StorageError("another NextReplies has taken the place of this one"))
        self._courier = question.reply
        while self._outgoing and self._outgoing[0][0] <= question.handed:
            self._outgoing.popleft()

    async def hand_out(self) -> None:
        """Answer what can be answered now."""
        while self._takes:
            await self._hand_one(self._takes.pop(0))
        for lane in list(self._takers):
            await self._hand_item(self._takers.pop(lane))
        if self._watchers:
            watchers, self._watchers = self._watchers, []
            for question in watchers:
                await self._show(question)
        if self._courier is not None and self._outgoing:
            await self._hand_replies()

    async def _hand_item(self, question: NextItem) -> None:
        while not question.reply.abandoned:
            pending = self._logs.inbox.due(question.lane, question.prefer)
            if pending is None:
                self._takers[question.lane] = question
                return
            try:
                message = await self._message_of(pending)
            except StorageError as error:
                question.reply.fail(error)
                return
            if message is not None:
                self._hand_over(question, pending, message)
                return

    async def _hand_one(self, question: Take) -> None:
        pending = self._logs.inbox.item(question.n)
        if question.reply.abandoned:
            return
        try:
            message = None if pending is None else await self._message_of(pending)
        except StorageError as error:
            question.reply.fail(error)
            return
        if pending is None or message is None:
            question.reply.send(None)
        else:
            self._hand_over(question, pending, message)

    async def _show(self, question: Newer) -> None:
        """The next item of an address, which stays where it is; the question is kept if it may wait for one."""
        reply = question.reply
        while not reply.abandoned:
            pending = self._logs.inbox.newer(question.address, question.after)
            if pending is None:
                if question.wait:
                    self._watchers.append(question)
                else:
                    reply.send(None)
                return
            try:
                message = await self._message_of(pending)
            except StorageError as error:
                reply.fail(error)
                return
            if message is not None:
                reply.send(Item(pending.n, message, pending.attempts, pending.rank))
                return

    def _hand_over(self, question: NextItem | Take, pending: Pending, message: InboundMessage) -> None:
        self._logs.inbox.hand_out(pending)
        question.reply.send(Item(pending.n, message, pending.attempts, pending.rank))

    async def _hand_replies(self) -> None:
        """The next replies that are not acknowledged already; the question stays if there are none."""
        reply = self._courier
        if reply is None or reply.abandoned:
            self._courier = None
            return
        while self._outgoing and self._outgoing[0][1].acked:
            self._outgoing.popleft()
        some = list(islice((entry for entry in self._outgoing if not entry[1].acked), REPLIES_AT_ONCE))
        if not some:
            return
        self._courier = None
        try:
            messages = await self._messages([stored for _, stored in some])
        except StorageError as error:
            reply.fail(error)
            return
        pairs = zip(some, messages, strict=True)
        reply.send(tuple(Outgoing(position, message) for (position, _), message in pairs if message is not None))

    # ------------------------------------------------------------------ questions

    async def answer(self, query: Query) -> None:
        """Answer from the logs as they are now."""
        if type(query) is Waiting:
            query.reply.send(self._logs.inbox.waiting)
        elif type(query) is LastSeq:
            query.reply.send(self._logs.outbox.last_seq(query.address))
        elif type(query) is KnownAddresses:
            query.reply.send(self._logs.directory.newest())
        elif type(query) is Posted:
            await self._answer_posted(query)
        elif type(query) is Unacknowledged:
            await self._answer_unacknowledged(query)

    async def _answer_posted(self, query: Posted) -> None:
        found = [self._logs.outbox.find(key) for key in query.keys]
        try:
            messages = iter(await self._messages([stored for stored in found if stored is not None]))
        except StorageError as error:
            query.reply.fail(error)
        else:
            query.reply.send(tuple(None if stored is None else next(messages) for stored in found))

    async def _answer_unacknowledged(self, query: Unacknowledged) -> None:
        for channel_id, seq in query.after:
            self._logs.outbox.acknowledge(Address(query.type, channel_id), seq)
        found = self._logs.outbox.unacknowledged(query.type, query.channel_id, query.limit)
        try:
            messages = await self._messages(found)
        except StorageError as error:
            query.reply.fail(error)
        else:
            query.reply.send(tuple(message for message in messages if message is not None))

    # ------------------------------------------------------------------ reading back

    async def _message_of(self, pending: Pending) -> InboundMessage | None:
        """What the item says; None if it is not in the file any more, and then it is done. Raises StorageError."""
        if pending.message is not None:
            return pending.message
        [line] = await self._disk.run(Volume.read_spans, inbox.PATH, (pending.span,))
        try:
            return inbox.message_in(line)
        except _NO_RECORD as error:
            self._report(f"{inbox.PATH}: item {pending.n} was accepted but is not in the file any more ({error})")
            self._logs.inbox.done(pending.n)
            return None

    async def _messages(self, found: Sequence[Stored]) -> list[OutboundMessage | None]:
        """The replies with their text, "" where a compaction has dropped it; None where the file does not hold it any more."""
        missing = [stored for stored in found if stored.message is None and stored.span.length]
        lines: dict[str, bytes] = {}
        if missing:
            read = await self._disk.run(Volume.read_spans, outbox.PATH, [stored.span for stored in missing])
            lines = {stored.key: line for stored, line in zip(missing, read, strict=True)}
        return [stored.message or self._message(stored, lines.get(stored.key)) for stored in found]

    def _message(self, stored: Stored, line: bytes | None) -> OutboundMessage | None:
        if line is None:
            return OutboundMessage("", stored.channel, stored.seq)
        try:
            message = replies.message_in(line)
        except _NO_RECORD as error:
            self._report(
                f"{outbox.PATH}: reply {stored.seq} to {stored.channel.address} is not in the file any more ({error})"
            )
            return None
        return message
