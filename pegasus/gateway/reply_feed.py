"""`ReplyFeed`: the replies that one greeted client is owed, pushed as they come and read from the journal where some are missing.

One task for each connection (`run`) does all reading, so the readings of a bridge's addresses follow one another. A push never
waits: it is queued, dropped, or kept by the `Cursor` of its address (see `delivery`), which asks for a reading if something is
missing. Reading waits for room in the queue, so a client with a long backlog gets it at its own speed. It waits *before* the
cursor counts a reply as sent: whatever may not overtake that reply would otherwise be queued before it.

If the journal cannot be read, replies would be missing without the client noticing it. So it is disconnected with 1011, and gets
what is missing when it connects again. Cancelled, nothing has to be undone: the journal knows what was acknowledged.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import trio

from actors import ActorError, Ref
from pegasus.gateway.delivery import Cursor, PushDecision, Routes
from pegasus.gateway.frames import known_seqs
from pegasus.gateway.send_queue import SendQueue
from pegasus.intake import JOURNAL_TIMEOUT
from pegasus.messages import Address, OutboundMessage
from pegasus.observe import get_logger
from pegasus.protocol import SERVER_ERROR, HelloFrame, encode_frame
from pegasus.storage import JournalMessage, LastSeq, StorageError, Unacknowledged

SeqsByChannel: TypeAlias = tuple[tuple[str, int], ...]
"""Number of the last reply that the client has, for each channelId; the form of the journal's question."""

PAGE = 200
"""Replies asked for in one question. Each further question asks for twice as many from the start of the backlog, because a
question for those *after* a number would acknowledge that number."""
MAX_READINGS = 20
"""Times that an address is read again because more pushes came meanwhile than could be kept."""

_log = get_logger("gateway")


class ReplyFeed:
    """All replies for one client. A bridge has one cursor for each address, any other client has a single one.

    Its life: `look_up_seqs` at the hello, then the welcome is queued, then `run` for as long as the connection lasts. Between
    the hello and the end of the first reading all pushes are kept, so no reply falls between the two and none precedes the
    welcome.
    """

    def __init__(
        self,
        hello: HelloFrame,
        queue: SendQueue,
        journal: Ref[JournalMessage],
        routes: Routes[ReplyFeed],
    ) -> None:
        self.channel = hello.channel
        """The address, or the type, whose replies these are."""
        self.is_announced = False
        """Whether the journal knows that the client is there."""
        self._claimed = known_seqs(hello)
        """What the client says it has, by channelId."""
        self._queue = queue
        self._journal = journal
        self._routes = routes
        self._cursors: dict[str, Cursor] = {}
        """Place in the replies of each address, by channelId."""
        self._known: dict[str, int] = {}
        """`_claimed`, each number reduced to that of the last reply that was ever made (`look_up_seqs`)."""
        self._welcome_seq = 0
        """The last reply made for the client's address when it greeted."""
        self._is_welcomed = False
        """Whether the welcome is queued; until then no other frame may be."""
        self._is_caught_up = False
        """Whether a bridge's first reading is over; until then the cursor of a new address keeps all pushes."""
        self._to_read_in, self._to_read = trio.open_memory_channel[str](math.inf)
        """ChannelIds to be read. Bounded by the cursors: an address is read or queued here at most once at a time."""
        if hello.channel.channel_id is not None:
            self._cursor(hello.channel.channel_id)

    # ---------------------------------------------------------------- what comes from the agent

    def deliver(self, reply: OutboundMessage) -> None:
        """Take a pushed reply. Never waits."""
        channel_id = reply.channel.channel_id
        decision = self._cursor(channel_id).offer(reply)
        if decision is PushDecision.SEND:
            self._queue.push(encode_frame(reply))
        elif decision is PushDecision.READ:
            self._to_read_in.send_nowait(channel_id)

    def send_behind(self, channel_id: str, frame: str, seq: int) -> None:
        """Send a frame that must not overtake the replies up to `seq` (0: none), nor the welcome."""
        if not self._is_welcomed:
            self._cursor(channel_id).hold(frame)
            return
        cursor = self._cursors.get(channel_id)
        if cursor is None and seq == 0:
            self._queue.push(frame)
            return
        now, must_read = (cursor or self._cursor(channel_id)).hold_until(frame, seq)
        if now is not None:
            self._queue.push(now)
        if must_read:
            self._to_read_in.send_nowait(channel_id)

    def send_draft(self, channel_id: str, frame: str) -> None:
        """Send a draft. Dropped before the welcome, and while the client is behind or waits for replies."""
        cursor = self._cursors.get(channel_id)
        if self._is_welcomed and (cursor is None or not cursor.is_holding):
            self._queue.push_draft(frame)

    def catch_up(self, channel_id: str) -> None:
        """Read what may have been missed at this address."""
        if self._cursor(channel_id).note_gap():
            self._to_read_in.send_nowait(channel_id)

    def catch_up_all(self) -> None:
        """Read what may have been missed at all addresses that were seen here."""
        for channel_id in list(self._cursors):
            self.catch_up(channel_id)

    # ---------------------------------------------------------------- the connection

    async def look_up_seqs(self) -> int:
        """Return the `seq` of the welcome: the last number assigned to the client's address, 0 for a bridge.

        A client may claim to have replies that were never made, if it has talked to a home that is gone. Such a claim is cut
        down to what there is, or it would hide the replies to come. Raises ActorError, StorageError.
        """
        for channel_id, seq in self._claimed.items():
            self._known[channel_id] = min(seq, await self._last_seq(channel_id))
        if self.channel.channel_id is not None:
            self._welcome_seq = await self._last_seq(self.channel.channel_id)
        return self._welcome_seq

    async def run(self) -> None:
        """Queue what waited at the hello, then read addresses as cursors ask for it, until cancelled or the journal fails."""
        self._is_welcomed = True
        try:
            await self._read_first()
            async for channel_id in self._to_read:
                await self._read_address(channel_id, (), 0)
        except (ActorError, StorageError) as error:
            self._disconnect(str(error))

    async def _read_first(self) -> None:
        """Queue what waited at the hello. Asking for what comes after a number acknowledges that number, as `lastSeq` means."""
        for channel_id, seq in self._known.items():
            self._cursor(channel_id).skip_to(seq)
        known = tuple(self._known.items())
        if self.channel.channel_id is None:
            await self._read_type(known)
        else:
            await self._read_address(self.channel.channel_id, known, self._welcome_seq)

    async def _read_address(self, channel_id: str, known: SeqsByChannel, not_owed: int) -> None:
        """Read one address until nothing of it is missing, then let its pushes through again.

        not_owed: what is not found up to this number was acknowledged, and is not sent even if it is pushed once more.
        """
        cursor = self._cursor(channel_id)
        for _ in range(MAX_READINGS):
            last = await self._last_seq(channel_id)
            if await self._read_pages(channel_id, known):
                self._push_all(cursor.stop_reading())
                return
            cursor.skip_to(not_owed)
            await self._queue_kept(cursor, last)
            if not cursor.must_read_again():
                self._push_all(cursor.finish_reading(last))
                return
        self._disconnect(f"replies to {channel_id} come faster than they can be read")

    async def _read_type(self, known: SeqsByChannel) -> None:
        """Read what waits for a whole channel type, then let the pushes of its addresses through."""
        with_own_client = await self._read_pages(None, known)
        self._is_caught_up = True
        for channel_id, cursor in list(self._cursors.items()):
            if channel_id in with_own_client:
                self._push_all(cursor.stop_reading())
                continue
            await self._queue_kept(cursor, cursor.sent)
            if cursor.must_read_again() or cursor.is_holding:
                self._to_read_in.send_nowait(channel_id)
            else:
                cursor.finish_reading(cursor.sent)

    async def _read_pages(self, channel_id: str | None, known: SeqsByChannel) -> set[str]:
        """Queue what nobody acknowledged, unless it was sent here before. channel_id None: of the whole type.

        Return the channelIds that a bridge leaves to clients of their own. Of those no more was queued, so that the gap shows
        when they fall to the bridge.
        """
        with_own_client: set[str] = set()
        limit, found = PAGE, 0
        while True:
            replies = await self._journal.ask(
                Unacknowledged, self.channel.type, channel_id, known, limit, timeout=JOURNAL_TIMEOUT
            )
            for reply in replies:
                await self._queue_read(reply, with_own_client)
            if len(replies) <= found:  # not `< limit`: a reply that cannot be read back is missing from a page
                return with_own_client
            limit, found = limit * 2, len(replies)

    async def _queue_read(self, reply: OutboundMessage, with_own_client: set[str]) -> None:
        """Queue a reply read from the journal, unless it was sent here before or belongs to a client of its own."""
        await self._queue.wait_for_room()
        address = reply.channel.address
        cursor = self._cursor(address.channel_id)
        if self.channel.channel_id is None and self._routes.has_own_client(address):
            with_own_client.add(address.channel_id)
        if address.channel_id not in with_own_client and cursor.take(reply):
            self._queue.push(encode_frame(reply))

    async def _queue_kept(self, cursor: Cursor, last: int) -> None:
        """Queue the pushes that were kept during a reading, as far as they follow what was read without a gap."""
        await self._queue.wait_for_room()
        while (reply := cursor.next_kept(last)) is not None:
            self._queue.push(encode_frame(reply))
            await self._queue.wait_for_room()

    def _push_all(self, frames: list[str]) -> None:
        for frame in frames:
            self._queue.push(frame)

    async def _last_seq(self, channel_id: str) -> int:
        """Return the last number assigned at an address of this type, 0 if none. Raises ActorError, StorageError."""
        return await self._journal.ask(LastSeq, Address(self.channel.type, channel_id), timeout=JOURNAL_TIMEOUT)

    def _cursor(self, channel_id: str) -> Cursor:
        """Return the cursor of an address. A new one begins at 0, so that a gap shows what is owed."""
        cursor = self._cursors.get(channel_id)
        if cursor is None:
            cursor = self._cursors[channel_id] = Cursor(0, is_reading=not self._is_caught_up)
        return cursor

    def _disconnect(self, reason: str) -> None:
        """End the connection so that the client connects again and reads from the beginning of what it is owed."""
        _log.error("replies could not be read; the client is to connect again", client=str(self.channel), reason=reason)
        self._queue.close(SERVER_ERROR, "replies could not be read; connect again")
