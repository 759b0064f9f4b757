"""Handing out what the logs hold: items to the Main Agent, replies to the adapters, and answers about both.

Some queries wait until there is something to hand out. They are kept here, and `hand_out` answers those that can be
answered, each time after a batch was written. So nothing is handed out that is not on disk.

A text that is not held in memory is read back from the log's file. One that is not there any more (somebody has edited
the file) is reported and passed over; it must not stop what comes after it. If the disk cannot be read at all, the
asker gets the StorageError and may ask again.

An asker that has left (its task was cancelled) is skipped. Nothing counts as handed out to it.

The order of `hand_out` has reasons. `Take` comes before `NextItem`, so that an item which is asked for by its
number is not handed to somebody else first. `Newer` comes after both, because it only shows items that nobody
has taken. Replies come last; they depend on none of these.

There is one taker for each lane and one reader of replies. A second query of the same kind comes from a new
incarnation of that actor, whose predecessor has crashed; it takes over, and the old query fails instead of
swallowing an item.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeAlias

from actors import Reply
from pegasus.messages import Address, InboundMessage, OutboundMessage
from pegasus.storage.inbox import message_in
from pegasus.storage.lanes import QueuedItem
from pegasus.storage.loading import Logs, Report
from pegasus.storage.messages import (
    Item,
    KnownAddresses,
    LastSeq,
    Newer,
    NextItem,
    NextReplies,
    Posted,
    QueuedReply,
    StorageError,
    Take,
    Unacknowledged,
    Waiting,
)
from pegasus.storage.outbox import StoredReply, reply_in
from pegasus.storage.volume import Disk, Volume

REPLIES_AT_ONCE = 100
"""Replies that one answer to `NextReplies` holds at most. It bounds the memory of an answer; the rest follows at
the next query."""

Query: TypeAlias = Waiting | Posted | Unacknowledged | LastSeq | KnownAddresses
"""Queries that are answered at once."""
WaitingQuery: TypeAlias = NextItem | Newer | Take | NextReplies
"""Queries that are answered after the next write, or later."""

_NOT_A_RECORD = (ValueError, KeyError, TypeError)
"""Errors of a line that was read back and does not hold what it should."""


class Dispatcher:
    """The open queries, and the replies that were not confirmed yet.

    Handing out is not durable. An item counts as handed out until it is done, a reply until its position is confirmed by
    the next `NextReplies`; a taker that crashes in between gets them again.

    >>> dispatcher.keep(NextItem(reply))
    >>> await dispatcher.hand_out()
    """

    def __init__(self, disk: Disk, logs: Logs, report: Report) -> None:
        self._disk = disk
        """Reads texts back that are not held in memory."""
        self._logs = logs
        """Inbox, outbox and directory; this class changes only who has taken an item."""
        self._report = report
        """Logs a line that is not in its file any more."""
        self._takers: dict[str, NextItem] = {}
        """The query for the next item, by lane."""
        self._takes: list[Take] = []
        """Queries for an item by its number."""
        self._watchers: list[Newer] = []
        """Queries for the next item of an address."""
        self._replies_wanted: Reply[tuple[QueuedReply, ...]] | None = None
        """Where the next replies go."""
        self._outgoing: deque[tuple[int, StoredReply]] = deque()
        """Replies of this process that were not confirmed, with their positions."""
        self._position = 0
        """The last position that was given."""

    def add_replies(self, replies: Iterable[StoredReply]) -> None:
        """Queue replies that are on disk now.

        Called after a batch was written, never before: a reply that an adapter has sent must be on disk.
        """
        for reply in replies:
            self._position += 1
            self._outgoing.append((self._position, reply))

    # ------------------------------------------------------------------ queries that wait

    def keep(self, query: WaitingQuery) -> None:
        """Keep a query until the next `hand_out`. An earlier one that it replaces fails."""
        match query:
            case NextItem(lane=lane):
                if (before := self._takers.get(lane)) is not None:
                    before.reply.fail(StorageError("another NextItem for this lane has taken the place of this one"))
                self._takers[lane] = query
            case Take():
                self._takes.append(query)
            case Newer():
                self._watchers.append(query)
            case NextReplies(reply, handed):
                if self._replies_wanted is not None:
                    self._replies_wanted.fail(StorageError("another NextReplies has taken the place of this one"))
                self._replies_wanted = reply
                # The query confirms all positions up to `handed`; these replies have reached their adapters.
                while self._outgoing and self._outgoing[0][0] <= handed:
                    self._outgoing.popleft()

    async def hand_out(self) -> None:
        """Answer the kept queries that can be answered now."""
        while self._takes:
            await self._answer_take(self._takes.pop(0))
        for lane in list(self._takers):
            await self._answer_next_item(self._takers.pop(lane))
        watchers, self._watchers = self._watchers, []
        for query in watchers:
            await self._answer_newer(query)
        if self._replies_wanted is not None and self._outgoing:
            await self._answer_next_replies(self._replies_wanted)

    async def _answer_next_item(self, query: NextItem) -> None:
        """Hand out the item that is due. The query is kept if there is none."""
        while not query.reply.abandoned:
            item = self._logs.inbox.due(query.lane, query.prefer)
            if item is None:
                self._takers[query.lane] = query
                return
            try:
                message = await self._message_of(item)
            except StorageError as error:
                query.reply.fail(error)
                return
            if message is not None:
                self._hand_over(query, item, message)
                return

    async def _answer_take(self, query: Take) -> None:
        """Hand out the item with this number, or answer None if it is done or unknown."""
        item = self._logs.inbox.item(query.n)
        if query.reply.abandoned:
            return
        try:
            message = None if item is None else await self._message_of(item)
        except StorageError as error:
            query.reply.fail(error)
            return
        if item is None or message is None:
            query.reply.send(None)
        else:
            self._hand_over(query, item, message)

    async def _answer_newer(self, query: Newer) -> None:
        """Show the next item of an address, which stays in the queue. The query is kept if it may wait for one."""
        while not query.reply.abandoned:
            item = self._logs.inbox.newer(query.address, query.after)
            if item is None:
                if query.wait:
                    self._watchers.append(query)
                else:
                    query.reply.send(None)
                return
            try:
                message = await self._message_of(item)
            except StorageError as error:
                query.reply.fail(error)
                return
            if message is not None:
                query.reply.send(Item(item.n, message, item.attempts, item.priority))
                return

    def _hand_over(self, query: NextItem | Take, item: QueuedItem, message: InboundMessage) -> None:
        """Note the taker and answer, without a checkpoint in between: the asker cannot leave unnoticed."""
        self._logs.inbox.hand_out(item)
        query.reply.send(Item(item.n, message, item.attempts, item.priority))

    async def _answer_next_replies(self, reply: Reply[tuple[QueuedReply, ...]]) -> None:
        """Give the next replies that are not acknowledged already. The query is kept if there are none.

        Replies that were acknowledged before they were handed out (by a client that knew them from an earlier
        process) are passed over.
        """
        if reply.abandoned:
            self._replies_wanted = None
            return
        while self._outgoing and self._outgoing[0][1].acked:
            self._outgoing.popleft()
        entries = list(islice((entry for entry in self._outgoing if not entry[1].acked), REPLIES_AT_ONCE))
        if not entries:
            return
        self._replies_wanted = None
        try:
            messages = await self._messages_of([stored for _, stored in entries])
        except StorageError as error:
            reply.fail(error)
            return
        pairs = zip(entries, messages, strict=True)
        reply.send(tuple(QueuedReply(position, message) for (position, _), message in pairs if message is not None))

    # ------------------------------------------------------------------ queries that are answered at once

    async def answer(self, query: Query) -> None:
        """Answer from the logs as they are now.

        A query of several parts whose disk cannot be read fails as a whole.
        """
        try:
            match query:
                case Waiting(reply):
                    reply.send(self._logs.inbox.waiting)
                case LastSeq(reply, address):
                    reply.send(self._logs.outbox.last_seq(address))
                case KnownAddresses(reply):
                    reply.send(self._logs.directory.newest())
                case Posted():
                    await self._answer_posted(query)
                case Unacknowledged():
                    await self._answer_unacknowledged(query)
        except StorageError as error:
            query.reply.fail(error)

    async def _answer_posted(self, query: Posted) -> None:
        """Return the reply of each key, None for keys without one, in the order of the keys."""
        found = [self._logs.outbox.find(key) for key in query.keys]
        messages = iter(await self._messages_of([stored for stored in found if stored is not None]))
        query.reply.send(tuple(None if stored is None else next(messages) for stored in found))

    async def _answer_unacknowledged(self, query: Unacknowledged) -> None:
        """Take over what the client says it has, then answer with what is left."""
        for channel_id, seq in query.after:
            self._logs.outbox.acknowledge(Address(query.type, channel_id), seq)
        found = self._logs.outbox.unacknowledged(query.type, query.channel_id, query.limit)
        messages = await self._messages_of(found)
        query.reply.send(tuple(message for message in messages if message is not None))

    # ------------------------------------------------------------------ reading back

    async def _message_of(self, item: QueuedItem) -> InboundMessage | None:
        """Return the message of an item. If it is not in the file any more, mark the item as done and return None."""
        if item.message is not None:
            return item.message
        path = self._logs.inbox.path
        [line] = await self._disk.run(Volume.read_spans, path, (item.span,))
        try:
            return message_in(line)
        except _NOT_A_RECORD as error:
            self._report(f"{path}: item {item.n} was accepted but is not in the file any more ({error})")
            self._logs.inbox.done(item.n)
            return None

    async def _messages_of(self, replies: Sequence[StoredReply]) -> list[OutboundMessage | None]:
        """Return the replies with their texts: "" where a rewrite has dropped it, None where the file does not hold it."""
        missing = [stored for stored in replies if stored.message is None and stored.span.length]
        lines: dict[str, bytes] = {}
        if missing:
            spans = [stored.span for stored in missing]
            read = await self._disk.run(Volume.read_spans, self._logs.outbox.path, spans)
            lines = {stored.key: line for stored, line in zip(missing, read, strict=True)}
        return [stored.message or self._parse_reply(stored, lines.get(stored.key)) for stored in replies]

    def _parse_reply(self, stored: StoredReply, line: bytes | None) -> OutboundMessage | None:
        """Return a reply that was read back. No line means that a rewrite has dropped the text."""
        if line is None:
            return OutboundMessage("", stored.channel, stored.seq)
        try:
            return reply_in(line)
        except _NOT_A_RECORD as error:
            self._report(
                f"{self._logs.outbox.path}: reply {stored.seq} to {stored.channel.address} "
                f"is not in the file any more ({error})"
            )
            return None
