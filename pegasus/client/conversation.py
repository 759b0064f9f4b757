"""`Conversation`: talks with the agent as one address, over as many connections as it takes.

While a connection is up, two tasks use it: one sends the messages that are not accepted yet, in order, the other passes events
on. When the connection is lost it is dialled again, after the growing pauses of `pegasus.retry`.

**Messages.** Each message gets an id when it is handed over and is kept until the gateway has accepted it or refused it for
good. On every new connection all kept messages are sent again, in order; the gateway takes each id once. After a refusal that
may pass (RETRYABLE), sending pauses, and the message is tried again.

**Replies.** Each is yielded once, in order. The number of the last one yielded is sent in the next hello, so the gateway sends
all that comes after it, and nothing else. A reply is acknowledged when the *next* event is asked for, not when it is yielded: a
process that ends while it shows a reply has not acknowledged it, and gets it again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from random import Random
from typing import TypeAlias

import attrs
import trio

from pegasus.client.client import Client, ClientEvent, MessageAccepted, NotConnected, Refused, background, open_client
from pegasus.messages import ChannelInfo, Json, Media, Metadata, OutboundMessage, ReplyDraft, Typing
from pegasus.protocol import AgentEvent, EventFrame, MessageFrame
from pegasus.retry import Pauses

MAX_UNACCEPTED = 1000
"""Messages that a conversation keeps for a daemon that is away; then `send` waits."""
MAX_DELAY = 10.0
"""Longest pause between attempts to connect, seconds."""
RETRYABLE = frozenset({"overloaded", "internal"})
"""Error codes after which the same message, or the same hello, may be sent again."""


@attrs.frozen
class Endpoint:
    """The address of a gateway and the token that it wants."""

    url: str
    """`ws://host:port`, or `wss://` where a TLS proxy stands before the gateway."""
    token: str = attrs.field(repr=False)
    """The secret; kept out of the repr, which may be logged."""


FindEndpoint: TypeAlias = Callable[[], Endpoint]
"""Looks the endpoint up before each attempt to connect, because a daemon may come back on another port. May raise NotConnected."""


@attrs.frozen
class Online:
    """A connection is up.

    Example: `Online("Pegasus", unaccepted=2, seq=13)`: two messages are on their way again, and reply 13 is the newest.
    """

    agent: str
    """The agent's name."""
    unaccepted: int
    """Messages that are being sent again."""
    seq: int = 0
    """The last reply that there is for this address."""


@attrs.frozen
class Offline:
    """No connection is up. It comes after each lost connection, and after each attempt that failed.

    Example: `Offline("the agent is not running", retry_in=1.8)`. With `retry_in=None` the conversation ends after it.
    """

    reason: str
    """Reason, in one line for a person."""
    retry_in: float | None
    """Seconds until the next attempt; None when there will be none (wrong token)."""


@attrs.frozen
class MessageRejected:
    """A message that the gateway will never take; it is not sent again."""

    id: str
    """The id that `Conversation.send` returned."""
    code: str
    """The code of the error frame."""
    message: str
    """The reason, for a person."""


ConversationEvent: TypeAlias = AgentEvent | EventFrame | MessageAccepted | MessageRejected | Online | Offline
"""Values that iteration over a Conversation yields."""


class Conversation:
    """Talk with the agent as one address; made by `open_conversation`.

    Iterate over it for events: OutboundMessage (a reply, each seq once and in order), Typing, ReplyDraft, MessageAccepted,
    MessageRejected, Online, Offline. It ends after an Offline without retry. Everything may be called while offline.

    Example::

        async with open_conversation(find_endpoint, ChannelInfo("web", "me"), random=Random()) as conversation:
            await conversation.send("hello")
            async for event in conversation:
                if isinstance(event, OutboundMessage):
                    print(event.text)
    """

    def __init__(
        self,
        find: FindEndpoint,
        channel: ChannelInfo,
        last_seq: int | None,
        random: Random,
        metadata: Metadata | None = None,
    ) -> None:
        self.channel = channel
        """The address that messages come from."""
        self.last_seq = last_seq
        """The last reply that was yielded, None before the first. Keep it to continue in another process."""
        self._find = find
        self._metadata = metadata or {}
        """Metadata of every message that brings none of its own."""
        self._random = random
        """For ids and for the jitter of delays."""
        self._id_prefix = f"{random.getrandbits(64):016x}"
        self._count = 0
        """Messages so far; ids are made from it."""
        self._unaccepted: dict[str, MessageFrame] = {}
        """All messages that are not accepted yet, in order, by id. An id begins with a random prefix of the conversation, so that no
        other process uses the same on this address."""
        self._urgent: set[str] = set()
        """Ids of those among them that go before the others."""
        self._unposted: deque[MessageFrame] = deque()
        """Those that the present connection still has to send."""
        self._unanswered: dict[str, None] = {}
        """Ids of those that it has sent and that have no answer, in the order in which answers come."""
        self._refusals = Pauses(1.0, random=random)
        """Pauses after messages that were refused for the moment, in which none is sent; the refused one then comes last."""
        self._pause_until = -math.inf
        """Time until which nothing is sent, because the gateway has refused a message for now; on Trio's clock."""
        self._news = trio.Event()
        """Wakes the sending task: there is a message to send."""
        self._room = trio.Condition()
        """Notified when a message is no longer kept."""
        self._client: Client | None = None
        """The present connection."""
        self._drafted: ChannelInfo | None = None
        """Channel of the draft that was passed on and is not ended yet."""
        self._unacked: int | None = None
        """The last reply that was yielded, until it is acknowledged."""
        self._events_in, self._events = trio.open_memory_channel[ConversationEvent](1)
        """Events on their way to the iteration. Almost no buffer: what is not shown is not read from the connection either."""

    @property
    def unaccepted(self) -> int:
        """The number of messages that were handed over and not yet accepted."""
        return len(self._unaccepted)

    @property
    def unaccepted_texts(self) -> tuple[str, ...]:
        """Their texts, in the order in which they were handed over."""
        return tuple(frame.text for frame in self._unaccepted.values())

    async def send(
        self,
        text: str,
        *,
        media: Sequence[Media] = (),
        metadata: Metadata | None = None,
        reply_to: str | None = None,
        is_urgent: bool = False,
    ) -> str:
        """Hand over a message and return its id; MessageAccepted or MessageRejected with that id comes among the events.

        Works offline too: the message is sent when the daemon is back. Waits only while MAX_UNACCEPTED messages are not
        accepted; cancelled in this wait, nothing was handed over.

        is_urgent: it goes before those that are not sent yet, and does not wait for room: a `/stop`, which would be of no use behind
        the messages that it is to stop.
        """
        async with self._room:
            while len(self._unaccepted) >= MAX_UNACCEPTED and not is_urgent:
                await self._room.wait()
        self._count += 1
        channel = attrs.evolve(self.channel, reply_to=reply_to) if reply_to is not None else self.channel
        frame = MessageFrame(
            f"{self._id_prefix}-{self._count}", text, channel, metadata or self._metadata, tuple(media)
        )
        self._unaccepted[frame.id] = frame
        if is_urgent:
            self._urgent.add(frame.id)
            self._unposted.appendleft(frame)
        else:
            self._unposted.append(frame)
        self._news.set()
        return frame.id

    async def discard(self) -> int:
        """Give up all messages that are not accepted yet; return how many of them the present connection has not sent.

        One that was sent may still be accepted.
        """
        unsent = len(self._unposted) if self._client is not None else len(self._unaccepted)
        self._unaccepted.clear()
        self._urgent.clear()
        self._unposted.clear()
        async with self._room:
            self._room.notify_all()
        return unsent

    def is_own(self, id: str) -> bool:
        """Return whether a message with this id was sent by this conversation, and not by another client of its address."""
        return id.startswith(f"{self._id_prefix}-")

    async def call(self, method: str, params: Mapping[str, Json] | None = None, *, timeout: float = 10.0) -> Json:
        """Return the result of a method of the control plane, over the present connection. timeout: seconds.

        Raises ClientError: Refused for what the daemon refuses, NotConnected while there is no connection or when it is lost.
        """
        if self._client is None:
            raise NotConnected("there is no connection to the agent at present")
        return await self._client.call(method, params, timeout=timeout)

    def __aiter__(self) -> Conversation:
        return self

    async def __anext__(self) -> ConversationEvent:
        await self.acknowledge()
        try:
            event = await self._events.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        if isinstance(event, OutboundMessage):
            self.last_seq = self._unacked = event.seq
        return event

    async def acknowledge(self) -> None:
        """Acknowledge the reply that was yielded last, if that was not done yet.

        Iteration calls it by itself. Offline it does nothing: the next hello carries the number.
        """
        if self._unacked is None or self._client is None:
            return
        seq, self._unacked = self._unacked, None
        with suppress(NotConnected):
            await self._client.ack(seq)

    async def run(self) -> None:
        """Connect, and connect again, until cancelled or refused for good. Started by `open_conversation`."""
        pauses = Pauses(limit=MAX_DELAY, random=self._random)
        with self._events_in:
            while True:
                try:
                    reason = await self._use_connection()
                    pauses.reset()
                except NotConnected as error:
                    reason = str(error)
                except Refused as error:
                    if error.code not in RETRYABLE:
                        await self._events_in.send(Offline(str(error), None))
                        return
                    reason = str(error)
                wait = pauses.next()
                await self._events_in.send(Offline(reason, wait))
                await trio.sleep(wait)

    async def _use_connection(self) -> str:
        """Connect and pass events on until the connection ends; return why it did. Raises NotConnected, Refused."""
        endpoint = self._find()
        # Another client of the address may have acknowledged what this one has missed.
        again = self.last_seq is not None
        async with open_client(endpoint.url, endpoint.token, self.channel, self.last_seq, every_reply=again) as client:
            seen = min(self.last_seq or 0, client.welcome.seq)
            self._unposted = deque(sorted(self._unaccepted.values(), key=lambda frame: frame.id not in self._urgent))
            self._unanswered.clear()
            self._client = client
            try:
                await self._events_in.send(Online(client.welcome.agent, len(self._unaccepted), client.welcome.seq))
                async with background(partial(self._post_all, client)):
                    async for event in client:
                        seen = await self._pass_on(event, seen)
            finally:
                self._client = None
        if self._drafted is not None:  # nobody else could withdraw it
            await self._events_in.send(ReplyDraft(self._drafted, ""))
            self._drafted = None
        return client.closed or "the connection was closed"

    async def _post_all(self, client: Client) -> None:
        """Send the messages in order, now and as they come."""
        with suppress(NotConnected):  # they go out with the next connection
            while True:
                while self._unposted:
                    if trio.current_time() < self._pause_until and self._unposted[0].id not in self._urgent:
                        self._news = trio.Event()
                        with trio.move_on_at(self._pause_until):
                            await self._news.wait()
                        continue
                    frame = self._unposted.popleft()
                    self._unanswered[frame.id] = None
                    await client.post(
                        frame.text, id=frame.id, channel=frame.channel, metadata=frame.metadata, media=frame.media
                    )
                self._news = trio.Event()
                await self._news.wait()

    async def _pass_on(self, event: ClientEvent, seen: int) -> int:
        """Make an event of the connection one of the conversation; return the number of the last reply passed on.

        seen: that number before. A reply with a smaller or equal number is one that the gateway has sent twice.
        """
        match event:
            case Refused():
                await self._handle_refusal(event)
                return seen
            case MessageAccepted(id):
                self._unanswered.pop(id, None)
                self._refusals.reset()
                await self._forget(id)
            case OutboundMessage(seq=seq):
                if seq <= seen:
                    return seen
                seen = seq
                self._drafted = None
            case Typing(active=False):
                self._drafted = None
            case ReplyDraft(channel=channel):
                self._drafted = None if event.is_last else channel
        await self._events_in.send(event)
        return seen

    async def _handle_refusal(self, error: Refused) -> None:
        """Note that a message was refused: for now, then it is tried again, or for good, then it is given up."""
        # Answers come in order, so a frame that was too large to be read was the oldest one without an answer.
        id = error.id or (next(iter(self._unanswered), None) if error.code == "too_large" else None)
        frame = self._unaccepted.get(id or "")
        if frame is None:
            return
        self._unanswered.pop(frame.id, None)
        if error.code in RETRYABLE:
            self._unposted.append(frame)
            # Several messages may be on their way when the inbox is full; their answers are one failure.
            if (now := trio.current_time()) >= self._pause_until:
                self._pause_until = now + self._refusals.next()
            self._news.set()
            return
        await self._forget(frame.id)
        await self._events_in.send(MessageRejected(frame.id, error.code, error.message))

    async def _forget(self, id: str) -> None:
        """Keep a message no longer, and let a `send` that waits for room go on."""
        self._unaccepted.pop(id, None)
        self._urgent.discard(id)
        async with self._room:
            self._room.notify()


@asynccontextmanager
async def open_conversation(
    endpoint: FindEndpoint | Endpoint,
    channel: ChannelInfo,
    *,
    random: Random,
    last_seq: int | None = None,
    metadata: Metadata | None = None,
) -> AsyncIterator[Conversation]:
    """Keep talking as `channel`: connects in the background, and again whenever the connection is lost.

    endpoint: an Endpoint, or a callable that looks it up before each attempt. random: for ids and jitter.
    last_seq: the last reply that an earlier process received; None: everything that was not acknowledged comes again. metadata: of
    each message that is sent without any.
    Never raises for a daemon that is away: the events say so. Leaving the block acknowledges what was yielded and closes the
    connection; what was not accepted by then (`unaccepted`) may never be.

    Example::

        async with open_conversation(Endpoint(url, token), ChannelInfo("web", "me"), random=Random()) as conversation:
            await conversation.send("What time is it?")
            async for event in conversation:
                print(event)
    """
    find = endpoint if callable(endpoint) else lambda: endpoint
    conversation = Conversation(find, channel, last_seq, random, metadata)
    async with background(conversation.run):
        try:
            yield conversation
        finally:
            with trio.move_on_after(1.0) as scope:
                scope.shield = True
                await conversation.acknowledge()
