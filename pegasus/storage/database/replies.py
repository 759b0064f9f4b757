"""Replies on their way to the adapters of this node, and queries about replies.

A reply is posted by the node that owns the chat, and goes out at the node that has the connection: to a client of the address, or to
the bridge or adapter of its type. Nothing goes from node to node. A node *follows* the addresses that it has connections for: it knows
the seq that it has handed on, and reads what is above it when a notice says that there is more, or LOOK seconds later. Since the seq
of an address has no gaps, nothing is missed; what comes twice is recognised by its number.

What this node posts itself for such an address is handed on without being read. A reply to an address that nobody is connected for
is handed on here, too: readers within the process may listen to it. It is left to others if a type is served by another node alone.

What was posted before somebody connected is not followed but read, with `Unacknowledged` (see `messages`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count
from typing import Final

import trio

from pegasus.messages import Address, OutboundMessage
from pegasus.storage.database.calls import DatabaseCalls
from pegasus.storage.database.node import NodeLease
from pegasus.storage.database.notes import Notes
from pegasus.storage.database.tables import Database, Numbering, StoredReply
from pegasus.storage.messages import (
    LastSeq,
    OpenReplies,
    Posted,
    Unacknowledged,
    UnacknowledgedChannels,
)
from pegasus.storage.outbox import GONE, OutboxEntry
from pegasus.storage.reply_queries import ReplyHandout, ReplyQuery

LOOK_AT_TYPES: Final = 2.0
"""Seconds between two looks at the types that other nodes serve."""
PLACES: Final = "replies/"
"""Beginning of the keys under which connections, and queries about replies, follow one another."""
READ_AT_ONCE: Final = 200
"""Replies that are read with one call."""


class FollowedReplies:
    """The addresses that this node has connections for, and their replies.

    Example: `replies.posted(result)` for each reply of a commit, then `handout.hand_out()`.
    """

    def __init__(self, database: Database, calls: DatabaseCalls, notes: Notes, on_behind: Callable[[], None]) -> None:
        """on_behind: called when there are replies to be read."""
        self._database = database
        self._calls = calls
        self._notes = notes
        self._on_behind = on_behind
        self.handout = ReplyHandout()
        """Replies that go to the adapters of this node."""
        self.connections: Counter[tuple[str, str | None]] = Counter()
        """Number of clients by type and channelId; (type, None): bridges and adapters."""
        self._numbers = count(1)
        """Numbers of calls that tell the other nodes of connections."""
        self._handed: dict[Address, int] = {}
        """By followed address, the seq up to which replies were handed on, or were there before somebody connected."""
        self._behind: set[Address] = set()
        """Followed addresses with replies to be read."""
        self._served: frozenset[str] = frozenset()
        """Types that some node serves, as of the last look at them."""
        self._looked_at = -math.inf
        """Trio's clock at that look."""

    # ------------------------------------------------------------------ connections

    def is_followed(self, address: Address) -> bool:
        """Return whether a client, bridge or adapter of this node is connected for an address."""
        return (address.type, address.channel_id) in self.connections or (address.type, None) in self.connections

    def connected(self, type: str, channel_id: str | None) -> bool:
        """Note a connection. Return whether it is the first one for its place, which has to be followed from now on."""
        self.connections[type, channel_id] += 1
        return self.connections[type, channel_id] == 1

    def disconnected(self, type: str, channel_id: str | None) -> bool:
        """Note the end of a connection. Return whether it was the last one for its place."""
        if (type, channel_id) not in self.connections:
            return False
        self.connections -= Counter([(type, channel_id)])
        if (type, channel_id) in self.connections:
            return False
        for address in [address for address in self._handed if not self.is_followed(address)]:
            del self._handed[address]
        return True

    async def follow(self, node: NodeLease, type: str, channel_id: str | None) -> None:
        """Tell the other nodes of a connection, and follow from the replies on that are there now.

        A node that is to register anew tells of all its connections then (`connect_all`).
        """
        await self._tell(node, [(type, channel_id)], is_connected=True)
        if channel_id is None:
            numbers = await self._calls.until_done(lambda: self._database.owed(node.id))
        else:
            address = Address(type, channel_id)
            numbers = await self._calls.until_done(lambda: self._database.numberings([address]))
            numbers = {address: numbers.get(address, Numbering())}
        for address, numbering in numbers.items():
            if self.is_followed(address):
                # One that is followed already may have replies that are still to be read.
                self._handed.setdefault(address, numbering.last)

    async def connect_all(self, node: NodeLease) -> None:
        """Tell the other nodes of all connections, after this node has registered anew."""
        await self._tell(node, tuple(self.connections), is_connected=True)

    async def leave(self, node: NodeLease, type: str, channel_id: str | None) -> None:
        """Tell the other nodes of the end of the last connection for a place, unless there is another by now."""
        place = (type, channel_id)
        if place not in self.connections:
            await self._tell(node, [place], is_connected=False)

    async def _tell(self, node: NodeLease, places: Collection[tuple[str, str | None]], *, is_connected: bool) -> None:
        number = next(self._numbers)
        await self._calls.until_done(lambda: self._database.connect(node.id, number, places, is_connected=is_connected))

    # ------------------------------------------------------------------ following

    def posted(self, replies: Iterable[OutboundMessage]) -> None:
        """Hand on replies that this node has just posted, or have them read if others before them are missing."""
        for reply in replies:
            address = reply.channel.address
            handed = self._handed.get(address)
            if not self.is_followed(address):
                if address.type not in self._served:
                    self._add(reply)
            elif reply.seq == (handed or 0) + 1:  # nothing is before the first reply of an address
                self._hand_on(reply)
            elif handed is None or reply.seq > handed:
                self.note(address)
        self.handout.hand_out()

    def acknowledge(self, address: Address, seq: int) -> None:
        """Note that a client has the replies of an address up to this seq. Those of them that were not handed out yet need not be."""
        self._notes.acknowledge(address, seq)
        for _, reply in self.handout.outgoing:
            if reply.seq <= seq and reply.channel.address == address:
                reply.message = None

    def note(self, address: Address) -> None:
        """Note that an address may have new replies."""
        if self.is_followed(address):
            self._behind.add(address)
            self._on_behind()

    async def look(self, node: int) -> None:
        """Read the replies that were posted by other nodes, and hand them on."""
        if trio.current_time() >= self._looked_at + LOOK_AT_TYPES:
            self._looked_at, self._served = trio.current_time(), await self._database.served_types()
        if self.connections:
            behind, self._behind = self._behind, set()
            owed = await self._database.owed(node)
            unknown = [address for address in behind if address not in owed]
            numbers = {**owed, **(await self._database.numberings(unknown) if unknown else {})}
            after: dict[Address, int] = {}
            for address, numbering in numbers.items():
                # Of an address of a type nothing is known while everything was acknowledged: what is owed now is new.
                handed = self._handed.setdefault(address, numbering.acknowledged) if self.is_followed(address) else None
                if handed is not None and numbering.last > handed:
                    after[address] = handed
            await self._read(after)
        self.handout.hand_out()

    async def _read(self, after: dict[Address, int]) -> None:
        """Read the replies of these addresses above a seq, and hand them on in order."""
        while after:
            found = await self._database.replies(after, READ_AT_ONCE)
            for stored in found:
                reply, address = stored.message, stored.message.channel.address
                # A number is missing only where texts were removed long ago: those of an address are committed in their order.
                if address in self._handed and reply.seq > self._handed[address]:
                    self._hand_on(reply, is_wanted=not stored.is_acknowledged)
            if len(found) < READ_AT_ONCE:
                return
            after = {address: self._handed[address] for address in after if address in self._handed}

    def _hand_on(self, reply: OutboundMessage, *, is_wanted: bool = True) -> None:
        self._handed[reply.channel.address] = reply.seq
        if is_wanted:
            self._add(reply)

    def _add(self, reply: OutboundMessage) -> None:
        self.handout.add([OutboxEntry(reply.key, reply.channel, reply.seq, 0, GONE, reply)])

    # ------------------------------------------------------------------ queries

    def keys_of(self, query: ReplyQuery) -> tuple[str, ...]:
        """Return the keys in whose order a query is answered: behind the beginning of connections that it depends on."""
        match query:
            case Unacknowledged(_, type, channel_id):
                return (place_key(type, None), place_key(type, channel_id))
            case LastSeq(address=Address() as address) | OpenReplies(address=Address() as address):
                return (place_key(address.type, address.channel_id),)
            case UnacknowledgedChannels(_, type):
                return (place_key(type, None),)
        return ()

    async def answer(self, query: ReplyQuery) -> object:
        """Return the answer to a query."""
        until_done, database = self._calls.until_done, self._database
        if not isinstance(query, Posted):
            await self._notes.flush()
        match query:
            case LastSeq(address=one):
                return (await until_done(lambda: database.numberings([one]))).get(one, Numbering()).last
            case Posted(_, keys):
                found = await until_done(lambda: database.posted(keys))
                return tuple(stored and stored.message for stored in found)
            case Unacknowledged():
                return await self._unacknowledged(query)
            case OpenReplies(address=address, limit=limit):
                return await until_done(lambda: database.open_replies(address, limit))
            case UnacknowledgedChannels(_, type):
                return await until_done(lambda: database.open_channels(type))

    async def _unacknowledged(self, query: Unacknowledged) -> tuple[OutboundMessage, ...]:
        until_done, database = self._calls.until_done, self._database
        type, channel_id = query.type, query.channel_id
        if query.after:
            known = {Address(type, client): seq for client, seq in query.after}
            await until_done(lambda: database.note((), known))
        found = await until_done(lambda: database.unacknowledged(type, channel_id, query.limit))
        if (
            query.with_acknowledged
            and channel_id is not None
            and (seen := dict(query.after).get(channel_id)) is not None
        ):
            above = {Address(type, channel_id): seen}
            found = _by_seq([*found, *await until_done(lambda: database.replies(above, query.limit))])[: query.limit]
        return tuple(stored.message for stored in found)


def _by_seq(replies: Sequence[StoredReply]) -> tuple[StoredReply, ...]:
    """Return the replies of one address by their numbers, each once."""
    return tuple(stored for _, stored in sorted({stored.message.seq: stored for stored in replies}.items()))


def place_key(type: str, channel_id: str | None) -> str:
    """Return the key under which connections of a place, and queries about it, follow one another."""
    return f"{PLACES}{type}" if channel_id is None else f"{PLACES}{type}:{channel_id}"
