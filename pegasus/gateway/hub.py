"""`Hub`: hands what comes from the agent to the feeds of the clients that are connected for it.

The hub never waits for a client, so one that is slow delays nobody. It knows feeds, not connections: a feed is here from the
moment its client has greeted, before the journal is read for it, so that no reply falls between the two.
"""

from __future__ import annotations

import trio

from actors import Ref
from pegasus.gateway.delivery import Routes
from pegasus.gateway.reply_feed import ReplyFeed
from pegasus.gateway.send_queue import SendQueue
from pegasus.messages import OutboundMessage, Progress, Typing
from pegasus.protocol import HelloFrame, TypingFrame, encode_frame
from pegasus.storage import Acknowledge, Connected, Disconnected, JournalMessage


class Hub:
    """The feeds of all greeted clients; one hub for each run of the gateway.

    After a crash of the gateway a new hub begins empty, and fills as the clients connect again. Nothing is lost by that: what
    was pushed and not acknowledged is read from the journal when its client greets.
    """

    def __init__(self, journal: Ref[JournalMessage]) -> None:
        self._journal = journal
        self._routes: Routes[ReplyFeed] = Routes()

    # ---------------------------------------------------------------- clients come and go

    def join(self, hello: HelloFrame, queue: SendQueue) -> ReplyFeed:
        """Return a new feed for a client that has greeted. From now on it is given what is for its channel."""
        feed = ReplyFeed(hello, queue, self._journal, self._routes)
        self._routes.add(hello.channel, feed)
        return feed

    async def announce(self, feed: ReplyFeed) -> None:
        """Let the journal know that the client is there, so that the agent may address its channel. Raises ActorError."""
        await self._journal.tell(Connected(feed.channel.type, feed.channel.channel_id))
        feed.is_announced = True

    async def leave(self, feed: ReplyFeed) -> None:
        """Forget a client that has gone; bridges take over what it did not acknowledge.

        The journal gets Disconnected if it got Connected. That takes a second at most, also when cancelled.
        """
        for bridge in self._routes.remove(feed.channel, feed):
            if feed.channel.channel_id is not None:
                bridge.catch_up(feed.channel.channel_id)
        if feed.is_announced:
            with trio.move_on_after(1.0) as scope:
                scope.shield = True
                await self._journal.tell(Disconnected(feed.channel.type, feed.channel.channel_id))

    async def acknowledge(self, acknowledgement: Acknowledge) -> None:
        """Let the journal know which replies have arrived. Waits while its mailbox is full."""
        await self._journal.tell(acknowledgement)

    # ---------------------------------------------------------------- what comes from the agent

    def deliver(self, reply: OutboundMessage) -> None:
        """Hand a reply to the clients of its address, or the bridges of its type. For the others it waits in the outbox."""
        for feed in self._routes.recipients(reply.channel.address):
            feed.deliver(reply)

    def typing(self, typing: Typing) -> None:
        """Announce that the agent thinks, or has stopped thinking. The end of a turn follows the replies it gave."""
        frame = encode_frame(TypingFrame(typing.channel, typing.active))
        for feed in self._routes.recipients(typing.channel.address):
            feed.send_behind(typing.channel.channel_id, frame, typing.after)

    def progress(self, draft: Progress) -> None:
        """Show a reply while it is written."""
        frame = encode_frame(draft)
        for feed in self._routes.recipients(draft.channel.address):
            feed.send_draft(draft.channel.channel_id, frame)

    def catch_up(self) -> None:
        """Have every feed read the journal: some replies were not handed over."""
        for feed in self._routes.all():
            feed.catch_up_all()
