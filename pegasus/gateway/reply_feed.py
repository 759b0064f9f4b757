"""`ReplyFeed`: the replies for one client, to whom they go (`Routes`) and when (`Cursor`).

A client must get each reply of its address once, in order, and without gaps. Replies reach its connection in two
ways. They are *pushed* by the switchboard as they are made, and they are *read* from the journal. At the hello everything is read
that nobody has acknowledged. Later the journal is read when a gap in the numbers shows that something is missing: the switchboard
drops replies for an adapter whose mailbox is full, and after a crash it pushes some twice. A reply may come both ways, in any order.
One `Cursor` for each address decides by the numbers alone:

* `sent` is the last number that was queued for this client. A push with a smaller number is dropped, the next number is
  queued at once, and a larger number means that something is missing: the push is *kept*, and the journal is to be read.
* While the journal is being read, pushes are kept and drafts are dropped. Afterwards the pushes are queued behind what was
  read; what was read already is dropped by its number.
* Before each reading the last assigned number is asked for. What is not found up to that number was acknowledged by somebody,
  so it need not be sent any more, and the gap is closed. A kept push beyond that number may have a real gap before it, so the journal
  is read once more.

For example, 3 was sent and a push of 6 comes. It is kept. The journal says that 6 is the last number, and the reading finds only
4 and 6. So somebody has acknowledged 5. 4 and 6 are queued, and the kept push of 6 is dropped by its number. A push of 8 that came
during this reading stays kept, because 7 may be missing: the journal is read again.

A frame that must not overtake replies (the end of a turn) is *held* until they are queued.

One task for each connection (`ReplyFeed.run`) does all reading, so the readings of a bridge's addresses follow one
another. Reading waits for room in the queue, so a client with a long backlog gets it at its own speed. It waits *before* the
cursor counts a reply as sent: whatever may not overtake that reply would otherwise be queued before it. If the journal cannot
be read, replies would be missing without the client noticing it. So it is disconnected with 1011, and gets what is missing
when it connects again. Cancelled, nothing has to be undone: the journal knows what was acknowledged.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from enum import Enum

import trio

from actors import ActorError, Ref
from pegasus.access import OWNER_GRANT, TokenGrant
from pegasus.gateway.send_queue import SendQueue
from pegasus.intake import JOURNAL_TIMEOUT
from pegasus.messages import Address, ChannelInfo, OutboundMessage, Said
from pegasus.observe import get_logger
from pegasus.protocol import SERVER_ERROR, HelloFrame, encode_frame
from pegasus.storage import JournalMessage, LastSeq, StorageError, Unacknowledged, load_files

GREETING_TIME = 8.0
"""Seconds that the journal has for the greeting of a client, which would wait for 10 s and then not know why."""
PAGE = 200
"""Replies asked for in one question. Each further question asks for twice as many from the start of the backlog, because a
question for those *after* a number would acknowledge that number."""
SCREENS = ("cli", "web")
"""Channel types whose clients show a whole conversation to the person before them."""
MAX_KEPT = 100
"""Pushes that are kept while the journal is read. Older ones are dropped beyond that, and read from the journal afterwards."""

_log = get_logger("gateway")


class PushAction(Enum):
    """The answer of a cursor: what the caller does with a pushed frame."""

    SEND = 1
    """Queue it now; the cursor counts a reply as sent."""
    SKIP = 2
    """Nothing: it was sent already, or it is kept and the journal is being read."""
    READ = 3
    """The frame is kept. Read the journal, then queue what `next_kept` returns, then call `finish_reading`."""


class Cursor:
    """The place of one connection in the replies of one address. Pure: numbers and frames in, decisions out.

    Example::

        cursor = Cursor(sent=3)
        cursor.offer(4, frame_4)  # SEND
        cursor.offer(6, frame_6)  # READ: 5 is missing, 6 is kept
        cursor.take(5)            # True: read from the journal, to be queued
        cursor.next_kept(last=6)  # frame_6
        cursor.finish_reading(6)  # []: no frames were held
    """

    __slots__ = ("_held", "_kept", "_read_again", "is_reading", "sent")

    def __init__(self, sent: int, *, is_reading: bool = False) -> None:
        self.sent = sent
        """The number of the last reply that was queued for this client, or need not be sent to it."""
        self.is_reading = is_reading
        """The journal is being read for this address, so pushes are kept. It is set when a reading is asked for."""
        self._read_again = False
        """Something happened during a reading that this reading may not have seen."""
        self._kept: deque[tuple[int, str]] = deque()
        """Pushes (number and frame) that wait for the end of a reading, in the order in which they came."""
        self._held: list[str] = []
        """Frames that wait behind replies, in order."""

    @property
    def is_holding(self) -> bool:
        """True if a frame waits behind replies."""
        return bool(self._held)

    def offer(self, seq: int, frame: str) -> PushAction:
        """Decide about a pushed reply. SEND counts it as sent."""
        if seq <= self.sent:
            return PushAction.SKIP
        if seq == self.sent + 1 and not self.is_reading:
            self.sent = seq
            return PushAction.SEND
        if len(self._kept) >= MAX_KEPT:
            self._kept.popleft()
            self._read_again = True
        self._kept.append((seq, frame))
        return self._start_reading()

    def hold(self, seq: float, frame: str) -> PushAction:
        """Decide about a frame that must not overtake the replies up to `seq`, nor a frame that waits already."""
        if self.sent >= seq and not self._held:
            return PushAction.SEND
        self._held.append(frame)
        return self._start_reading()

    def take(self, seq: int) -> bool:
        """Return whether a reply read from the journal is to be queued; if so, count it as sent."""
        is_new = seq > self.sent
        self.skip_to(seq)
        return is_new

    def skip_to(self, seq: int) -> None:
        """Count everything up to `seq` as sent, because it need not be sent."""
        self.sent = max(self.sent, seq)

    def next_kept(self, last: int) -> str | None:
        """Return the next kept push to be queued, after the journal was read when `last` was the last assigned number.

        None when there is no more, or when a reply before it was neither read nor pushed: then the journal is to be read again.
        """
        while self._kept:
            seq, frame = self._kept[0]
            if seq - 1 > max(self.sent, last):
                self._read_again = True
                return None
            self._kept.popleft()
            if self.take(seq):
                return frame
        return None

    def note_gap(self) -> bool:
        """Note that replies may have been missed. Return whether to start reading the journal.

        False means that it is being read already, and will be read once more.
        """
        self._read_again = self.is_reading
        return self._start_reading() is PushAction.READ

    def must_read_again(self) -> bool:
        """Return whether the last reading was not enough, and forget it."""
        again, self._read_again = self._read_again, False
        return again

    def finish_reading(self, last: int) -> list[str]:
        """Let pushes through again: the journal was read when `last` was the last assigned number.

        Return the held frames, which the caller queues behind the replies.
        """
        self.is_reading = False
        self.skip_to(last)
        held, self._held = self._held, []
        return held

    def stop_reading(self) -> list[str]:
        """End a reading because the address has clients of its own, which get its replies instead of this bridge.

        Kept pushes are dropped, since the journal has them. `sent` stays where it is: if those clients leave, the next push to this
        bridge has a larger number than `sent` + 1, and what is missing is read. Return the held frames.
        """
        self._read_again = False
        self._kept.clear()
        return self.finish_reading(self.sent)

    def _start_reading(self) -> PushAction:
        """Note that the journal is being read. SKIP if it was so already: one reading at a time is enough."""
        was_reading, self.is_reading = self.is_reading, True
        return PushAction.SKIP if was_reading else PushAction.READ


class Routes:
    """Feeds by channel type and channelId; those of bridges by channel type and None."""

    def __init__(self) -> None:
        self._feeds: dict[tuple[str, str | None], list[ReplyFeed]] = {}
        """No list is empty: a present address has a client."""

    def add(self, feed: ReplyFeed) -> None:
        """Send replies for the feed's channel to it from now on."""
        self._feeds.setdefault((feed.channel.type, feed.channel.channel_id), []).append(feed)

    def remove(self, feed: ReplyFeed) -> Collection[ReplyFeed]:
        """Remove a feed. Return the bridges that serve its address from now on, if it was the last one there."""
        key = (feed.channel.type, feed.channel.channel_id)
        if feed not in self._feeds.get(key, ()):
            return ()
        self._feeds[key].remove(feed)
        if self._feeds[key]:
            return ()
        del self._feeds[key]
        return self._feeds.get((feed.channel.type, None), ())

    def recipients(self, type: str, channel_id: str) -> Collection[ReplyFeed]:
        """Return the feeds of this address, or if it has none, those of the bridges of its type."""
        return self._feeds.get((type, channel_id)) or self._feeds.get((type, None)) or ()

    def all(self) -> Collection[ReplyFeed]:
        """Return the feeds of all clients and bridges."""
        return [feed for feeds in self._feeds.values() for feed in feeds]

    def of_chat(self, chat: str, channel: ChannelInfo) -> Collection[ReplyFeed]:
        """Return the feeds of a chat's own clients, and of those of the channel. chat: `<type>:<channelId>`."""
        type, _, channel_id = chat.partition(":")
        addresses = {(type, channel_id), (channel.type, channel.channel_id)}
        return [feed for address in addresses for feed in self._feeds.get(address, ())]

    def has_own_client(self, channel: ChannelInfo) -> bool:
        """Return whether a client of exactly this address is connected, so that bridges leave it alone."""
        return (channel.type, channel.channel_id) in self._feeds


def known_seqs(hello: HelloFrame) -> dict[str, int]:
    """Return the last reply that the client says it has, by channelId."""
    if hello.channel.channel_id is None:
        return {name: seq for name, seq in hello.last_seqs.items() if isinstance(seq, int)}
    return {} if hello.last_seq is None else {hello.channel.channel_id: hello.last_seq}


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
        routes: Routes,
        grant: TokenGrant = OWNER_GRANT,
        sent: Collection[str] = (),
    ) -> None:
        self._grant = grant
        """Rights of the client's token."""
        self._sent = sent
        """Ids of the last messages that the client has sent."""
        self.channel = hello.channel
        """The address, or the type, whose replies these are."""
        self.calls_only = hello.calls_only
        """The journal does not know of the client."""
        self._every_reply = hello.every_reply
        """The client also gets what another one has acknowledged."""
        self._queue = queue
        self._journal = journal
        self._routes = routes
        self._known = known_seqs(hello)
        """The last reply that the client has, by channelId. Empty after the first reading, which lets the journal know."""
        self._welcome_seq = 0
        """The last reply made for the client's address when it greeted. What is not found up to it was acknowledged before."""
        self._cursors: dict[str, Cursor] = {}
        """Place in the replies of each address, by channelId."""
        self._is_welcomed = False
        """True if the welcome is queued; until then no other frame may be."""
        self._is_caught_up = False
        """True if a bridge's first reading is over; until then the cursor of a new address keeps all pushes."""
        self._shown: set[str] | None = set()
        """Names of what was pushed since the welcome, until everything that is open was shown; None afterwards."""
        self._to_read_in, self._to_read = trio.open_memory_channel[str](math.inf)
        """ChannelIds to be read. Bounded by the cursors: an address is read or queued here at most once at a time."""
        if hello.channel.channel_id is not None:
            self._cursor(hello.channel.channel_id)

    # ---------------------------------------------------------------- what comes from the agent; none of it waits

    def deliver(self, channel_id: str, seq: int, frame: str) -> None:
        """Send a pushed reply in its turn: the cursor of the conversation says whether others have to be read before."""
        self._follow(self._cursor(channel_id).offer(seq, frame), channel_id, frame)

    def send_behind(self, channel_id: str, seq: int, frame: str) -> None:
        """Send a frame that must not overtake the replies up to `seq` (0: none), nor the welcome and what follows that."""
        after = seq if self._is_welcomed else math.inf
        self._follow(self._cursor(channel_id).hold(after, frame), channel_id, frame)

    def send_draft(self, channel_id: str, frame: str, *, is_last: bool = False) -> None:
        """Send a draft in place of one that waits. Dropped before the welcome and, if others follow, while replies are missing."""
        if self._is_welcomed and (is_last or not self._cursor(channel_id).is_reading):
            self._queue.push_draft(channel_id, frame, is_last=is_last)

    def show_state(self, name: str, frame: str, *, is_old: bool = False) -> None:
        """Send the state of a task or an approval in place of one that waits. name: its id.

        Nothing that is pushed is sent before the welcome, which everything that is open follows. is_old: the state is one of these; a
        newer one may have been pushed since.
        """
        if not self._is_welcomed and not is_old:
            return
        if self._shown is not None:
            if is_old and name in self._shown:
                return
            self._shown.add(name)
        self._queue.push_state(name, frame)

    def states_shown(self) -> None:
        """Note that everything that is open was shown."""
        self._shown = None

    def is_owners(self, owners: Collection[str]) -> bool:
        """Return whether this client is an owner's. A bridge and a program that only makes calls are not."""
        channel = self.channel.info
        return channel is not None and not self.calls_only and self._grant.is_owner(channel, owners)

    def hears(self, said: Said, owners: Collection[str]) -> bool:
        """Return whether the client is shown something that was said.

        It is an owner's terminal or page, it is of the same conversation, and it does not know it already: from a reply, or because
        it has sent it. In the conversation of all channels that is every client that has shown the owner's token. Another token
        belongs to one conversation, whoever has it.
        """
        channel = self.channel.info
        if channel is None or channel.type not in SCREENS or not self.is_owners(owners):
            return False
        if said.from_ == "user" and said.id in self._sent:
            return False
        if channel.address == said.channel.address:
            return said.from_ == "user"
        return said.chat == str(channel.address) if said.chat else self._grant.is_home

    def show_said(self, frame: str) -> None:
        """Send what was said elsewhere. Dropped before the welcome and for a client that is behind: the history has it."""
        if self._is_welcomed and not self._queue.is_behind:
            self._queue.push(frame)

    @property
    def has_own_door(self) -> bool:
        """True if its owner may allow more than single calls."""
        return self._grant.is_own_door(self.channel.channel_id)

    def catch_up(self, channel_id: str | None = None) -> None:
        """Read what may have been missed at this address; None: at all addresses that were seen here."""
        for address in list(self._cursors) if channel_id is None else [channel_id]:
            if self._cursor(address).note_gap():
                self._to_read_in.send_nowait(address)

    def _follow(self, decision: PushAction, channel_id: str, frame: str) -> None:
        """Do what a cursor has decided about a frame."""
        if decision is PushAction.SEND:
            self._queue.push(frame)
        elif decision is PushAction.READ:
            self._to_read_in.send_nowait(channel_id)

    # ---------------------------------------------------------------- the connection

    async def look_up_seqs(self) -> int:
        """Return the `seq` of the welcome: the last number assigned to the client's address, 0 for a bridge.

        A client may claim to have replies that were never made, if it has talked to a home that is gone. Such a claim is cut
        down to what there is, or it would hide the replies to come. Raises ActorError, StorageError.
        """
        for channel_id, seq in self._known.items():
            self._known[channel_id] = min(seq, await self._last_seq(channel_id))
        if self.channel.channel_id is not None:
            self._welcome_seq = await self._last_seq(self.channel.channel_id)
        return self._welcome_seq

    async def run(self) -> None:
        """Queue what waited at the hello, then read addresses as cursors ask for it, until cancelled or the journal fails."""
        self._is_welcomed = True
        try:
            for channel_id, seq in self._known.items():
                self._cursor(channel_id).skip_to(seq)
            if self.channel.channel_id is None:
                await self._read_type()
            else:
                await self._read_address(self.channel.channel_id)
            self._known.clear()
            async for channel_id in self._to_read:
                await self._read_address(channel_id)
        except (ActorError, StorageError) as error:
            _log.error(
                "replies could not be read; the client is to connect again", client=str(self.channel), reason=str(error)
            )
            self._queue.close(SERVER_ERROR, "replies could not be read; connect again")

    async def _read_address(self, channel_id: str) -> None:
        """Read one address until nothing of it is missing, then let its pushes through again."""
        cursor = self._cursor(channel_id)
        while True:
            last = await self._last_seq(channel_id)
            if await self._read_pages(channel_id):
                self._push_all(cursor.stop_reading())
                return
            cursor.skip_to(self._welcome_seq)
            await self._queue_kept(cursor, last)
            if not cursor.must_read_again():
                self._push_all(cursor.finish_reading(last))
                return

    async def _read_type(self) -> None:
        """Read what waits for a whole channel type, then let the pushes of its addresses through."""
        with_own_client = await self._read_pages(None)
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

    async def _read_pages(self, channel_id: str | None) -> set[str]:
        """Queue what nobody acknowledged, unless it was sent here before. channel_id None: of the whole type.

        Return the channelIds that a bridge leaves to clients of their own. Of those no more was queued, so that the gap shows
        when they fall to the bridge. To ask for replies after a number acknowledges that number, as `lastSeq` means.

        For example, of 500 replies the four questions (at most 200, 400, 800, 1600) find 200, 400, 500 and 500. Each begins at the
        same place; the cursor knows what was queued before. The last one finds nothing new, so there is no more.
        """
        with_own_client: set[str] = set()
        limit, found = PAGE, 0
        while True:
            known = tuple(self._known.items())
            every = self._every_reply and bool(known)
            replies = await self._journal.ask(
                Unacknowledged, self.channel.type, channel_id, known, limit, every, timeout=JOURNAL_TIMEOUT
            )
            for reply in replies:
                await self._queue_read(reply, with_own_client)
            if len(replies) <= found:  # not `< limit`: a reply that cannot be read back is missing from a page
                return with_own_client
            limit, found = limit * 2, len(replies)

    async def _queue_read(self, reply: OutboundMessage, with_own_client: set[str]) -> None:
        """Queue a reply read from the journal, unless it was sent here before or belongs to a client of its own."""
        await self._queue.wait_for_room()
        channel_id = reply.channel.channel_id
        if self.channel.channel_id is None and self._routes.has_own_client(reply.channel):
            with_own_client.add(channel_id)
        if channel_id not in with_own_client and self._cursor(channel_id).take(reply.seq):
            self._queue.push(encode_frame(await load_files(reply, self._journal)))

    async def _queue_kept(self, cursor: Cursor, last: int) -> None:
        """Queue the pushes that were kept during a reading, as far as they follow what was read without a gap."""
        await self._queue.wait_for_room()
        while (frame := cursor.next_kept(last)) is not None:
            self._queue.push(frame)
            await self._queue.wait_for_room()

    def _push_all(self, frames: list[str]) -> None:
        for frame in frames:
            self._queue.push(frame)

    async def _last_seq(self, channel_id: str) -> int:
        """Return the last number assigned at an address of this type, 0 if none. Raises ActorError, StorageError."""
        return await self._journal.ask(LastSeq, Address(self.channel.type, channel_id), timeout=GREETING_TIME)

    def _cursor(self, channel_id: str) -> Cursor:
        """Return the cursor of an address. A new one begins at 0, so that the first gap shows what was not sent."""
        cursor = self._cursors.get(channel_id)
        if cursor is None:
            cursor = self._cursors[channel_id] = Cursor(0, is_reading=not self._is_caught_up)
        return cursor
