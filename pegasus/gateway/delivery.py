"""Delivery of what comes from the agent: to whom a reply goes (`Hub`, `Routes`), and when (`ReplyFeed`; `cursor` decides).

**Routes.** A reply goes to all clients that greeted with its exact address. If there are none it goes to the bridges of its
channel type. Dictionaries make this cost the same with one client and with thousands. The hub never waits for a client, so
one that is slow delays nobody.

**Feed.** One task for each connection (`ReplyFeed.run`) does all reading, so the readings of a bridge's addresses follow one
another. Reading waits for room in the queue, so a client with a long backlog gets it at its own speed. It waits *before* the
cursor counts a reply as sent: whatever may not overtake that reply would otherwise be queued before it. If the journal cannot
be read, replies would be missing without the client noticing it. So it is disconnected with 1011, and gets what is missing
when it connects again. Cancelled, nothing has to be undone: the journal knows what was acknowledged.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeAlias

import attrs
import trio

from actors import ActorError, Ref
from pegasus.gateway.cursor import Cursor, PushDecision
from pegasus.gateway.listeners import Listeners
from pegasus.gateway.send_queue import SendQueue
from pegasus.intake import JOURNAL_TIMEOUT
from pegasus.messages import Address, ApprovalNotice, ChannelInfo, OutboundMessage, Progress, TaskProgress, Typing
from pegasus.observe import get_logger
from pegasus.policy import OWNER_GRANT, TokenGrant, is_owner
from pegasus.protocol import SERVER_ERROR, HelloFrame, encode_frame
from pegasus.storage import Connected, Disconnected, JournalMessage, LastSeq, StorageError, Unacknowledged, load_files

PAGE = 200
"""Replies asked for in one question. Each further question asks for twice as many from the start of the backlog, because a
question for those *after* a number would acknowledge that number."""

OpenTasks: TypeAlias = Callable[[], Awaitable[Sequence[TaskProgress]]]
"""Returns the present state of all unfinished tasks, () if the task system does not answer. Raises nothing."""

OpenApprovals: TypeAlias = Callable[[], Awaitable[Sequence[ApprovalNotice]]]
"""Returns the calls that wait for an owner, () if that cannot be told now. Raises nothing."""

_log = get_logger("gateway")


async def _no_tasks() -> Sequence[TaskProgress]:
    """Return no tasks: there is no task system."""
    return ()


async def _no_approvals() -> Sequence[ApprovalNotice]:
    """Return no approvals: nobody is asked."""
    return ()


class Hub:
    """The feeds of all greeted clients; one hub for each run of the gateway.

    After a crash of the gateway a new hub begins empty, and fills as the clients connect again. Nothing is lost by that: what
    was pushed and not acknowledged is read from the journal when its client greets.
    """

    def __init__(
        self,
        journal: Ref[JournalMessage],
        open_tasks: OpenTasks | None = None,
        open_approvals: OpenApprovals | None = None,
        owners: Collection[str] = (),
        listeners: Listeners | None = None,
    ) -> None:
        """Prepare.

        listeners: readers within the process; None: there are none.

        open_tasks: returns the unfinished tasks of all conversations; None: there are none. open_approvals: returns the calls that
        wait for an owner; None: nobody is asked. owners: the setting `agent.owners`.
        """
        self._journal = journal
        self._routes = Routes()
        self._open_tasks = open_tasks or _no_tasks
        self._open_approvals = open_approvals or _no_approvals
        self._owners = owners
        self._listeners = listeners or Listeners()

    async def join(self, hello: HelloFrame, queue: SendQueue, grant: TokenGrant = OWNER_GRANT) -> ReplyFeed:
        """Return a new feed for a client that has greeted. From now on it is given what is for its channel.

        grant: rights of its token. A client that may not get replies only makes calls.

        The journal gets Connected, so that the agent may write to the channel, unless the client only makes calls.
        Raises ActorError. Cancelled, nobody has joined.
        """
        hello = hello if grant.hears else attrs.evolve(hello, calls_only=True)
        if not hello.calls_only:
            await self._journal.tell(Connected(hello.channel.type, hello.channel.channel_id))
        feed = ReplyFeed(hello, queue, self._journal, self._routes, grant)
        if grant.hears:
            self._routes.add(feed)
        return feed

    async def leave(self, feed: ReplyFeed) -> None:
        """Forget a client that has gone; bridges take over what it did not acknowledge.

        The journal gets Disconnected if it got Connected. That takes a second at most, also when cancelled.
        """
        for bridge in self._routes.remove(feed):
            bridge.catch_up(feed.channel.channel_id)
        if not feed.calls_only:
            with trio.move_on_after(1.0) as scope:
                scope.shield = True
                await self._journal.tell(Disconnected(feed.channel.type, feed.channel.channel_id))

    def deliver(self, reply: OutboundMessage) -> None:
        """Hand a reply to the clients of its address, or the bridges of its type. For the others it waits in the outbox."""
        frame = encode_frame(reply)
        self._listeners.publish(reply)
        for feed in self._routes.recipients(reply.channel.type, reply.channel.channel_id):
            feed.deliver(reply.channel.channel_id, reply.seq, frame)

    def typing(self, typing: Typing) -> None:
        """Announce that the agent thinks, or has stopped thinking. The end of a turn follows the replies it gave."""
        frame = encode_frame(attrs.evolve(typing, after=0))
        self._listeners.publish(typing)
        for feed in self._routes.recipients(typing.channel.type, typing.channel.channel_id):
            feed.send_behind(typing.channel.channel_id, typing.after, frame)

    def progress(self, draft: Progress) -> None:
        """Show a reply while it is written."""
        frame = encode_frame(draft)
        self._listeners.publish(draft)
        for feed in self._routes.recipients(draft.channel.type, draft.channel.channel_id):
            feed.send_draft(draft.channel.channel_id, frame, is_withdrawal=draft.is_withdrawal)

    def task(self, task: TaskProgress) -> None:
        """Show what a task is doing."""
        frame = encode_frame(task)
        for feed in self._routes.recipients(task.channel.type, task.channel.channel_id):
            feed.show_state(task.task_id, frame)

    def approval(self, notice: ApprovalNotice) -> None:
        """Show owners a call that waits for them, or what became of it."""
        frame = encode_frame(notice)
        self._listeners.publish(notice)
        for feed in self._routes.all():
            if feed.is_owners(self._owners):
                feed.show_state(_approval_name(notice), frame)

    async def show_what_is_open(self, feed: ReplyFeed) -> None:
        """Show a client that was welcomed the unfinished tasks of its conversations, and an owner the approvals.

        A state that was pushed meanwhile is newer.
        """
        if feed.is_owners(self._owners):
            for notice in await self._open_approvals():
                feed.show_state(_approval_name(notice), encode_frame(notice), is_old=True)
        tasks = await self._open_tasks()
        for task in tasks:
            if feed in self._routes.recipients(task.channel.type, task.channel.channel_id):
                feed.show_state(task.task_id, encode_frame(task), is_old=True)
        feed.states_shown()

    def catch_up(self) -> None:
        """Have every feed read the journal: some replies were not handed over."""
        for feed in self._routes.all():
            feed.catch_up()


def _approval_name(notice: ApprovalNotice) -> str:
    """Return the name of an approval among the states that are shown. No task has such an id."""
    return f"approval {notice.id}"


class Routes:
    """Feeds by channel type and channelId; those of bridges by channel type and None."""

    def __init__(self) -> None:
        self._feeds: dict[tuple[str, str | None], list[ReplyFeed]] = {}
        """No list is empty: a present address has a client."""

    def add(self, feed: ReplyFeed) -> None:
        """Send replies for the feed's channel to it from now on."""
        self._feeds.setdefault((feed.channel.type, feed.channel.channel_id), []).append(feed)

    def remove(self, feed: ReplyFeed) -> Collection[ReplyFeed]:
        """Forget a feed. Return the bridges that its address falls to, if it was the last one there."""
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
        """Return all feeds."""
        return [feed for feeds in self._feeds.values() for feed in feeds]

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
    ) -> None:
        self._grant = grant
        """Rights of the client's token."""
        self.channel = hello.channel
        """The address, or the type, whose replies these are."""
        self.calls_only = hello.calls_only
        """The journal does not know of the client."""
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
        """Whether the welcome is queued; until then no other frame may be."""
        self._is_caught_up = False
        """Whether a bridge's first reading is over; until then the cursor of a new address keeps all pushes."""
        self._shown: set[str] | None = set()
        """Names of what was pushed since the welcome, until everything that is open was shown; None afterwards."""
        self._to_read_in, self._to_read = trio.open_memory_channel[str](math.inf)
        """ChannelIds to be read. Bounded by the cursors: an address is read or queued here at most once at a time."""
        if hello.channel.channel_id is not None:
            self._cursor(hello.channel.channel_id)

    # ---------------------------------------------------------------- what comes from the agent; none of it waits

    def deliver(self, channel_id: str, seq: int, frame: str) -> None:
        """Take a pushed reply."""
        self._follow(self._cursor(channel_id).offer(seq, frame), channel_id, frame)

    def send_behind(self, channel_id: str, seq: int, frame: str) -> None:
        """Send a frame that must not overtake the replies up to `seq` (0: none), nor the welcome and what follows that."""
        after = seq if self._is_welcomed else math.inf
        self._follow(self._cursor(channel_id).hold(after, frame), channel_id, frame)

    def send_draft(self, channel_id: str, frame: str, *, is_withdrawal: bool = False) -> None:
        """Send a draft in place of one that waits. Dropped before the welcome and, unless it withdraws, while replies are missing."""
        if self._is_welcomed and (is_withdrawal or not self._cursor(channel_id).is_reading):
            self._queue.push_draft(channel_id, frame, is_withdrawal=is_withdrawal)

    def show_state(self, name: str, frame: str, *, is_old: bool = False) -> None:
        """Send the state of a task or an approval in place of one that waits. name: its id.

        Nothing that is pushed is sent before the welcome, which everything that is open follows. is_old: the state is one of these; a
        newer one may have been pushed since.
        """
        if name in (self._shown or ()) if is_old else not self._is_welcomed:
            return
        if self._shown is not None:
            self._shown.add(name)
        self._queue.push_state(name, frame)

    def states_shown(self) -> None:
        """Note that everything that is open was shown."""
        self._shown = None

    def is_owners(self, owners: Collection[str]) -> bool:
        """Return whether an owner sits at this client. A bridge speaks for many people, and a program that only calls sees nothing."""
        channel = self.channel.info
        may_see = channel is not None and not self.calls_only and self._grant.vouches_for(channel.type)
        return channel is not None and may_see and is_owner(channel, owners)

    def catch_up(self, channel_id: str | None = None) -> None:
        """Read what may have been missed at this address; None: at all addresses that were seen here."""
        for address in list(self._cursors) if channel_id is None else [channel_id]:
            if self._cursor(address).note_gap():
                self._to_read_in.send_nowait(address)

    def _follow(self, decision: PushDecision, channel_id: str, frame: str) -> None:
        """Do what a cursor has decided about a frame."""
        if decision is PushDecision.SEND:
            self._queue.push(frame)
        elif decision is PushDecision.READ:
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
        return await self._journal.ask(LastSeq, Address(self.channel.type, channel_id), timeout=JOURNAL_TIMEOUT)

    def _cursor(self, channel_id: str) -> Cursor:
        """Return the cursor of an address. A new one begins at 0, so that a gap shows what is owed."""
        cursor = self._cursors.get(channel_id)
        if cursor is None:
            cursor = self._cursors[channel_id] = Cursor(0, is_reading=not self._is_caught_up)
        return cursor
