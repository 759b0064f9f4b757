"""Queries about replies: what was posted and not acknowledged, and handing out what goes to the adapters.

Replies go two ways. Those that are posted while this process runs are queued here in the order in which they were
synced, and the switchboard takes them with `NextReplies`. All others are read from the outbox when somebody connects,
with `Unacknowledged`. So this queue may be lost: a reply that was not delivered is not acknowledged, and is found again.

Texts that are not in memory are read back from the file, many with one call of the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeAlias

import attrs

from pegasus.messages import Address, OutboundMessage
from pegasus.storage.disk import Disk
from pegasus.storage.messages import (
    DueReply,
    LastSeq,
    NextReplies,
    OpenReplies,
    Posted,
    StorageError,
    Unacknowledged,
    UnacknowledgedChannels,
    UnacknowledgedReply,
)
from pegasus.storage.outbox import GONE, OutboxEntry, OutboxLog
from pegasus.storage.record_log import Report
from pegasus.storage.volume import Volume
from pegasus.wire import decode_object, from_wire

REPLIES_AT_ONCE = 100
"""Replies that one answer to `NextReplies` holds at most. It bounds the memory of an answer; the rest follows at
the next query."""


ReplyQuery: TypeAlias = Posted | Unacknowledged | UnacknowledgedChannels | OpenReplies | LastSeq
"""Queries that are answered at once."""


class ReplyHandout:
    """Replies of this process that have not reached their adapters yet, and the query that the next ones answer.

    Handing out is not durable. A reply counts as handed out when its position is confirmed by the next `NextReplies`; an
    asker that crashes in between gets it again. There is one asker. A second query comes from a new incarnation of that
    actor, and the old query fails, so that no reply is given to an actor that is gone.

    >>> replies.ask(NextReplies(reply))
    >>> replies.hand_out()
    """

    def __init__(self) -> None:
        self.open: NextReplies | None = None
        """Query that the next replies answer."""
        self.outgoing: deque[tuple[int, OutboxEntry]] = deque()
        """Replies of this process that were not confirmed, with their positions."""
        self._position = 0
        """The last position that was given."""

    def add(self, replies: Iterable[OutboxEntry]) -> None:
        """Queue replies for the switchboard. They must be on disk: what an adapter has sent may not be lost by a crash."""
        for reply in replies:
            self._position += 1
            self.outgoing.append((self._position, reply))

    def ask(self, query: NextReplies) -> None:
        """Take a query for the next `hand_out`. It confirms all positions up to `handed`, and replaces an earlier one."""
        if self.open is not None:
            self.open.reply.fail(StorageError("another NextReplies has taken the place of this one"))
        self.open = query
        while self.outgoing and self.outgoing[0][0] <= query.handed:
            # Confirmed, so the text is not needed in memory. It stays in the file until it is acknowledged and
            # rewritten.
            self.outgoing.popleft()[1].message = None

    def hand_out(self) -> None:
        """Give the next replies to whoever waits for them.

        Until it is confirmed the text of a reply is in memory. A reply without one was acknowledged before it was handed out
        (by a client that knew it from an earlier process), and is passed over.
        """
        if self.open is None:
            return
        waiting = (DueReply(position, stored.message) for position, stored in self.outgoing if stored.message)
        replies = tuple(islice(waiting, REPLIES_AT_ONCE))
        if replies:
            self.open.reply.send(replies)
            self.open = None
        else:
            self.outgoing.clear()


class ReplyQueries(ReplyHandout):
    """Answers about replies, and the replies of this process that have not reached their adapters yet."""

    def __init__(self, disk: Disk, log: OutboxLog, report: Report) -> None:
        super().__init__()
        self._disk = disk
        """Reads texts back that are not held in memory."""
        self._log = log
        self._report = report
        """Logs a line that is not in its file any more."""

    async def answer(self, query: ReplyQuery) -> None:
        """Answer from the log as it is now. Raises StorageError if a text cannot be read back."""
        match query:
            case LastSeq(reply, address):
                reply.send(self._log.last_seq(address))
            case Posted(reply, keys):
                found = [self._log.find(key) for key in keys]
                messages = iter(await self.messages_of([stored for stored in found if stored is not None]))
                reply.send(tuple(None if stored is None else next(messages) for stored in found))
            case Unacknowledged(reply, type, channel_id, after, limit):
                for client, seq in after:  # what the client says it has counts as acknowledged
                    self._log.acknowledge(Address(type, client), seq)
                stored = self._log.unacknowledged(type, channel_id, limit)
                if query.with_acknowledged and channel_id is not None:
                    seen = dict(after).get(channel_id, self._log.last_seq(Address(type, channel_id)))
                    # Acknowledged ones have smaller numbers than those that are not, so the order of seq is kept.
                    stored = [*self._log.acknowledged_above(Address(type, channel_id), seen), *stored][:limit]
                waiting = await self.messages_of(stored)
                reply.send(tuple(message for message in waiting if message is not None))
            case OpenReplies(reply, address, limit):
                unread = self._log.open_replies(address, limit)
                reply.send(
                    tuple(UnacknowledgedReply(stored.channel.address, stored.seq, stored.key) for stored in unread)
                )
            case UnacknowledgedChannels(reply, type):
                reply.send(self._log.unacknowledged_channels(type))

    async def messages_of(self, replies: Sequence[OutboxEntry]) -> list[OutboundMessage | None]:
        """Return the replies with their texts: "" where a rewrite has dropped it, None where the file does not hold it."""
        missing = [stored for stored in replies if stored.message is None and stored.span != GONE]
        lines: dict[str, bytes] = {}
        # One call of the disk for all of them: a client that was away for long asks for hundreds.
        if missing:
            read = await self._disk.run(Volume.read_spans, self._log.path, [stored.span for stored in missing])
            lines = {stored.key: line for stored, line in zip(missing, read, strict=True)}
        return [stored.message or self._parse_reply(stored, lines.get(stored.key)) for stored in replies]

    def _parse_reply(self, stored: OutboxEntry, line: bytes | None) -> OutboundMessage | None:
        """Return a reply that was read back. No line means that a rewrite has dropped the text."""
        if line is None:
            return OutboundMessage("", stored.channel, stored.seq, key=stored.key)
        try:
            return attrs.evolve(reply_in(line), key=stored.key)
        except (ValueError, KeyError, TypeError) as error:
            self._report(
                f"{self._log.path}: reply {stored.seq} to {stored.channel.address} is not in the file any more ({error})"
            )
            return None


def reply_in(line: bytes) -> OutboundMessage:
    """Return the reply of a record that was read back. Raises ValueError or KeyError if there is none."""
    return from_wire(decode_object(line)["message"], OutboundMessage)
