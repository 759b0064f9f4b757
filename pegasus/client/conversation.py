"""A conversation that outlives connections: dials again, sends again what was not accepted, gives each reply once."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from random import Random
from typing import TypeAlias

import attrs
import trio

from pegasus.client.client import (
    Client,
    ClientEvent,
    MessageAccepted,
    NotConnected,
    Refused,
)
from pegasus.client.connect import background, open_client
from pegasus.messages import ChannelInfo, Json, Metadata, OutboundMessage, Progress, Typing

MAX_UNACCEPTED = 1000
"""Messages a conversation keeps for a daemon that is away; then `send` waits."""
FIRST_DELAY = 0.25
LONGEST_DELAY = 10.0
"""Seconds before dialling again: doubled each time up to the longest, less up to a fifth at random."""
TRY_AGAIN = frozenset({"overloaded", "internal"})
"""Error codes after which the same message may be sent again …"""
AGAIN = 1.0
"""… and after how many seconds that is done."""


@attrs.frozen
class Endpoint:
    """Where a gateway listens (ws://…) and the token it wants."""

    url: str
    token: str


FindEndpoint: TypeAlias = Callable[[], Endpoint]
"""Asked before each dialling, because a daemon may come back on another port; may raise NotConnected."""


@attrs.frozen
class Online:
    """Connected. agent: its name. unaccepted: how many messages are being sent again. seq: the last reply there is."""

    agent: str
    unaccepted: int
    seq: int = 0


@attrs.frozen
class Offline:
    """Not connected. retry_in: seconds until the next attempt, None when there will be none (wrong token)."""

    reason: str
    retry_in: float | None


@attrs.frozen
class MessageRejected:
    """A message the gateway will never take; it is not sent again. code as in interfaces section 3."""

    id: str
    code: str
    message: str


ConversationEvent: TypeAlias = (
    OutboundMessage | Typing | Progress | MessageAccepted | MessageRejected | Online | Offline
)


@attrs.frozen
class _Draft:
    id: str
    text: str
    channel: ChannelInfo
    metadata: Metadata


class Conversation:
    """Talk with the agent as one address; made by `open_conversation`.

    Iterate over it for events: OutboundMessage (a reply, each seq once and in order), Typing, Progress, MessageAccepted,
    MessageRejected, Online, Offline. A reply is acknowledged when the next event is asked for, or when the conversation is
    closed: a process that dies while showing a reply gets it again.
    """

    def __init__(self, locate: FindEndpoint, channel: ChannelInfo, last_seq: int | None, random: Random) -> None:
        self.channel = channel
        self.last_seq = last_seq
        """The last reply handed out, None before the first: keep it to go on in another process."""
        self._locate = locate
        self._random = random
        self._prefix = f"{random.getrandbits(64):016x}"
        self._count = 0
        self._drafts: dict[str, _Draft] = {}
        """Not accepted yet, in order. Of these: what this connection still has to send …"""
        self._unposted: deque[_Draft] = deque()
        """… what it has sent and has no answer to, in order, as answers come …"""
        self._unanswered: dict[str, None] = {}
        """… and what it was told to try again later."""
        self._refused: list[_Draft] = []
        self._again_at = math.inf
        self._news = trio.Event()
        self._room = trio.Condition()
        self._client: Client | None = None
        self._unacked: int | None = None
        self._events_in, self._events = trio.open_memory_channel[ConversationEvent](1)

    @property
    def online(self) -> bool:
        """Whether a connection is up at this moment."""
        return self._client is not None

    @property
    def unaccepted(self) -> int:
        """How many messages were sent and not yet accepted."""
        return len(self._drafts)

    async def send(self, text: str, *, metadata: Metadata | None = None, reply_to: str | None = None) -> str:
        """Hand over a message and return its id; MessageAccepted (or MessageRejected) with that id comes among the events.

        Works offline too: it is sent when the daemon is back. Waits only while MAX_UNACCEPTED messages are not accepted.
        """
        async with self._room:
            while len(self._drafts) >= MAX_UNACCEPTED:
                await self._room.wait()
        self._count += 1
        channel = attrs.evolve(self.channel, reply_to=reply_to) if reply_to is not None else self.channel
        draft = _Draft(f"{self._prefix}-{self._count}", text, channel, metadata or {})
        self._drafts[draft.id] = draft
        self._unposted.append(draft)
        self._news.set()
        return draft.id

    async def call(self, method: str, params: Mapping[str, Json] | None = None, *, timeout: float = 35.0) -> Json:
        """Call a control-plane method over the present connection. Raises NotConnected (also when offline), Refused."""
        if self._client is None:
            raise NotConnected("not connected")
        return await self._client.call(method, params, timeout=timeout)

    def __aiter__(self) -> Conversation:
        return self

    async def __anext__(self) -> ConversationEvent:
        await self._acknowledge()
        try:
            event = await self._events.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        if isinstance(event, OutboundMessage):
            self.last_seq = self._unacked = event.seq
        return event

    async def _acknowledge(self) -> None:
        if self._unacked is None or self._client is None:
            return  # offline, the next hello says it
        seq, self._unacked = self._unacked, None
        with suppress(NotConnected):
            await self._client.ack(seq)

    async def _run(self) -> None:
        delay = FIRST_DELAY
        with self._events_in:
            while True:
                try:
                    reason = await self._connection()
                    delay = FIRST_DELAY
                except NotConnected as error:
                    reason = str(error)
                except Refused as error:
                    if error.code not in TRY_AGAIN:
                        await self._events_in.send(Offline(str(error), None))
                        return
                    reason = str(error)
                wait = delay * (1 - 0.2 * self._random.random())
                await self._events_in.send(Offline(reason, wait))
                await trio.sleep(wait)
                delay = min(delay * 2, LONGEST_DELAY)

    async def _connection(self) -> str:
        daemon = self._locate()
        async with open_client(daemon.url, daemon.token, self.channel, self.last_seq) as client:
            seen = min(self.last_seq or 0, client.welcome.seq)
            self._unposted = deque(self._drafts.values())
            self._unanswered.clear()
            self._refused.clear()
            self._client = client
            try:
                await self._events_in.send(Online(client.welcome.agent, len(self._drafts), client.welcome.seq))
                async with background(partial(self._post_all, client)):
                    async for event in client:
                        seen = await self._hand_on(event, seen)
            finally:
                self._client = None
        return client.closed or "the connection was closed"

    async def _post_all(self, client: Client) -> None:
        """Send the drafts in order, now and as they come, and later what was refused for now."""
        with suppress(NotConnected):  # then they go out with the next connection
            while True:
                while self._unposted:
                    draft = self._unposted.popleft()
                    self._unanswered[draft.id] = None
                    await client.post(draft.text, id=draft.id, channel=draft.channel, metadata=draft.metadata)
                self._news = trio.Event()
                with trio.move_on_at(self._again_at):
                    await self._news.wait()
                    continue
                self._unposted.extend(self._refused)
                self._refused.clear()
                self._again_at = math.inf

    async def _hand_on(self, event: ClientEvent, seen: int) -> int:
        """Pass an event to whoever iterates; gives the last seq that was."""
        match event:
            case Refused():
                await self._not_taken(event)
                return seen
            case MessageAccepted(id):
                self._unanswered.pop(id, None)
                await self._forget(id)
            case OutboundMessage(seq=seq):
                if seq <= seen:
                    return seen
                seen = seq
        await self._events_in.send(event)
        return seen

    async def _not_taken(self, error: Refused) -> None:
        # Answers come in order, so a frame that was too large to be read was the oldest without one.
        id = error.id or (next(iter(self._unanswered), None) if error.code == "too_large" else None)
        draft = self._drafts.get(id or "")
        if draft is None:
            return
        self._unanswered.pop(draft.id, None)
        if error.code in TRY_AGAIN:
            self._refused.append(draft)
            self._again_at = min(self._again_at, trio.current_time() + AGAIN)
            self._news.set()
            return
        await self._forget(draft.id)
        await self._events_in.send(MessageRejected(draft.id, error.code, error.message))

    async def _forget(self, id: str) -> None:
        self._drafts.pop(id, None)
        async with self._room:
            self._room.notify()


@asynccontextmanager
async def open_conversation(
    where: FindEndpoint | Endpoint, channel: ChannelInfo, *, random: Random, last_seq: int | None = None
) -> AsyncIterator[Conversation]:
    """Keep talking as `channel`: connects in the background, and again whenever the connection is lost.

    where: a Endpoint, or a callable that looks it up before each dialling. last_seq: the last reply received in an earlier
    life, None to get everything unacknowledged. random: ids and jitter. Never raises for a daemon that is away: the events
    say so. Leaving the block acknowledges what was handed out and closes the connection; what was not accepted by then
    (`unaccepted`) may never be.
    """
    locate = where if callable(where) else lambda: where
    conversation = Conversation(locate, channel, last_seq, random)
    async with background(conversation._run):
        try:
            yield conversation
        finally:
            with trio.move_on_after(1.0) as scope:
                scope.shield = True
                await conversation._acknowledge()
