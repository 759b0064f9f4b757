"""`Bridge`: a library for bridges, programs that connect a chat service with the agent. It runs on asyncio and on Trio.

A bridge serves a whole channel type. It hands over what people write on the service, and brings them the agent's replies:

    async with Bridge("ws://127.0.0.1:7717", token, "matrix") as bridge:
        await bridge.send("hello", "!room:example.org", user_id="@anna:example.org", id=event_id)
        async for reply in bridge:
            await post(reply.channel.channel_id, reply.text)

What the library promises:

* `send` returns when the message is on the agent's disk, however often the connection breaks before that. The same `id` in the same
  conversation is one message, so a bridge that takes the service's own ids may hand over everything again after a crash of its own.
* A reply is acknowledged when the loop asks for the next one. So one whose handling raised, or during which the bridge was killed,
  comes again. It has the same `seq` then: `reply_id` gives an id for services that recognise repeated calls.
* Replies of one conversation come in order, and each once as long as the bridge runs. When the connection is lost the bridge connects
  again, for ever. Only a refusal of the token, or of the channel type, ends it (`BridgeRefused`).

Questions to an owner, such as an approval, are replies like any other. Their `reply.metadata` has the id as "approval", for a service
with buttons. The owner's answer is a message: `/approve ID` or `/deny ID`.

Log lines go to the logger `pegasus.bridge`. The connection is that of `pegasus.client`.
"""

from __future__ import annotations

import base64
import logging
import random
import uuid
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import anyio
import attrs

from pegasus.client import Client, ClientError, ClientEvent, MessageAccepted, NotConnected, Refused, open_client
from pegasus.formatting import quote
from pegasus.intake import NAME_RULE, is_name
from pegasus.messages import ChannelInfo, Media, Metadata, OutboundMessage, ReplyDraft, Typing
from pegasus.protocol import MessageFrame, encode_frame
from pegasus.retry import Pauses
from pegasus.wire import describe

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""First and longest of the growing pauses between attempts, seconds."""
CONNECT_TIME: Final = 15.0
"""Seconds for each step of connecting and greeting."""
MOST_WAITING: Final = 1000
"""Replies that wait for the loop. The gateway keeps those beyond, and is asked for them later."""
MOST_OF_CONVERSATION: Final = 100
"""Replies of a conversation that are taken before one is acknowledged, so that one that is stuck leaves room for all others."""

BridgeEvent: TypeAlias = OutboundMessage | Typing | ReplyDraft

_log = logging.getLogger("pegasus.bridge")


class BridgeRefused(Exception):
    """The gateway says no: to one message (`send`), or to the bridge itself (`send` and the loop). str() is for a person.

    Decide by the code: "bad_frame" (a field is wrong, or this person may not write), "too_large", "unauthorized" …

    Example::

        except BridgeRefused as error:
            if error.code == "too_large":
                await tell_sender(str(error))  # anything else of the bridge goes on
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@attrs.define(eq=False, repr=False)
class PendingMessage:
    """A message on its way to the agent's disk."""

    frame: MessageFrame
    """The message as it is sent, and sent again over each new connection."""
    answered: anyio.Event = attrs.field(factory=anyio.Event)
    """Set when the gateway has accepted or refused it, or refuses the bridge itself."""
    error: Refused | BridgeRefused | None = None
    """The refusal; None if it was accepted."""


def reply_id(reply: OutboundMessage) -> str:
    """Return an id of this reply that is the same whenever it comes: for transaction ids and the like."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"pegasus:{reply.channel.address}#{reply.seq}"))


def files_of(reply: OutboundMessage) -> list[tuple[str, str, bytes]]:
    """Return name, MIME type and content of the files of a reply."""
    return [(file.name, file.mime, base64.b64decode(file.data)) for file in reply.media]


class Bridge:
    """A connection for one channel type, made anew whenever it is lost. Use it as in the example at the top of this file."""

    def __init__(
        self,
        url: str,
        token: str,
        type: str,
        *,
        account: str = "",
        last_seqs: Mapping[str, int] | None = None,
        delivery: str = "",
    ) -> None:
        """Make a bridge without a connection, which the block opens.

        url: of the gateway, ws:// or wss://. token: one that `pegasus token add NAME --type TYPE --bridge` has made. account: the
        agent's account at the service, put before the ids of messages: many services number messages for each account, so after a
        change of it another message may have a known number. last_seqs: by channelId the last reply that was handled, for a bridge
        that keeps this itself; None: the gateway's notes count. delivery: class that the bridge declares to the conformance suite.
        """
        self.type = type
        self.account = account
        """The agent's account at the service, which numbers messages; "" where ids are unique without it."""
        self.last_seqs: dict[str, int] = dict(last_seqs or {})
        """By channelId, the last reply that was handled. A bridge may write it down and give it to the next one."""
        self.agent = ""
        """Name of the agent, known from the first greeting on."""
        self._url, self._token, self._delivery = url, token, delivery
        self._client: Client | None = None
        """The connection, while the gateway has greeted us on it."""
        self._connection = anyio.CancelScope()
        """Around the work of the connection."""
        self._pending: dict[str, PendingMessage] = {}
        """By id, messages that were not answered yet, in the order of `send`."""
        self._queue: deque[BridgeEvent] = deque()
        """Events that the loop was not given yet."""
        self._seen: dict[str, int] = {}
        """By channelId, the last reply that was put into the queue."""
        self._open: Counter[str] = Counter()
        """By channelId, how many replies were put into the queue and are not acknowledged."""
        self._behind: set[str] = set()
        """ChannelIds of which replies were left out, because too many were open."""
        self._handled: OutboundMessage | None = None
        """The reply that the loop is working on."""
        self.refusal: BridgeRefused | None = None
        """The reason why the gateway does not want this bridge; None as long as it does."""
        self._changed = anyio.Event()
        """Replaced whenever the loop may have something to do."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Bridge:
        """Begin to connect, in the background. It does not matter whether the agent runs already."""
        await self._stack.enter_async_context(self._running())
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the connection. Replies that were not acknowledged come again."""
        await self._stack.aclose()

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        """Run the connection beside the caller's block; it is cancelled when the block is left."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stay_connected)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    # ---------------------------------------------------------------- for the bridge

    async def send(
        self,
        text: str,
        channel_id: str,
        *,
        user_id: str | None = None,
        reply_to: str | None = None,
        id: str | None = None,
        metadata: Metadata | None = None,
        files: Sequence[tuple[str, str, bytes]] = (),
    ) -> None:
        """Hand over what somebody wrote; return when it is on the agent's disk.

        channel_id: the conversation. user_id: who wrote. reply_to: the thread. id: the service's id of the message; None: a new one.
        metadata: {"group": True, "mentioned": False} says that several people read along, and that the agent was not meant.
        files: name, MIME type and content of each. Waits while the agent is away or overloaded.

        Raises BridgeRefused. Cancelled, the message may or may not have been taken: send it again with the same id.
        """
        # One frame, made once: each attempt sends the same id, by which the agent recognises a message that it has
        # already.
        media = tuple(Media(name, mime, base64.b64encode(content).decode()) for name, mime, content in files)
        channel = ChannelInfo(self.type, channel_id, user_id, reply_to)
        if id and self.account:
            id = f"{self.account}/{id}"
        if id and not is_name(id):
            # The gateway does not repeat such an id, so nobody would know which message it refuses.
            raise BridgeRefused("bad_frame", f"message.id: found {describe(id)}, allowed: {NAME_RULE}")
        frame = MessageFrame(id or str(uuid.uuid4()), text, channel, metadata or {}, media)
        pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            error = await self._post(frame)
            if error is None:
                return
            # These two pass by themselves: the queue is full, or the disk refuses. All others would be the same the
            # next time.
            if error.code not in ("overloaded", "internal"):
                raise BridgeRefused(error.code, str(error))
            _log.warning("a message was not taken and is sent again: %s", error)
            await anyio.sleep(pauses.next())

    def __aiter__(self) -> Bridge:
        """Iterate over the replies, for ever. Asking for the next one acknowledges the one before."""
        return self

    async def __anext__(self) -> OutboundMessage:
        """Return the next reply. Raises BridgeRefused. Cancelled, nothing is lost."""
        while True:
            event = await self.next_event()
            if isinstance(event, OutboundMessage):
                return event

    async def next_event(self) -> BridgeEvent:
        """Return the next reply, or before it what the agent is doing: `Typing`, or `ReplyDraft` with the whole draft so far.

        For a bridge that shows these, in place of the loop; it acknowledges in the same way. Raises BridgeRefused.
        """
        if self._handled is not None:
            # Not before the next one is asked for: until then the bridge may crash, and the reply must come again.
            await self.acknowledge(self._handled)
        event = await self.take_event()
        if isinstance(event, OutboundMessage):
            self._handled = event
        return event

    async def take_event(self) -> BridgeEvent:
        """Return what `next_event` returns, and leave it to the caller to `acknowledge` each reply, in the order of its conversation.

        For a bridge that serves several conversations at once. Raises BridgeRefused. Cancelled, nothing is lost.
        """
        while not self._queue:
            if self.refusal is not None:
                raise self.refusal
            if self._client is not None and any(not self._open[channel_id] for channel_id in self._behind):
                self._connection.cancel()  # the greeting of the next connection asks for what was left out
            await self._changed.wait()
        return self._queue.popleft()

    async def acknowledge(self, reply: OutboundMessage) -> None:
        """Acknowledge this reply and those before it in its conversation, so that they never come again.

        For a bridge that wants a reply rather lost than repeated: before it hands the reply to the service.
        """
        channel = reply.channel
        if self._handled is reply:
            self._handled = None
        # Noted first and written then: if the connection is gone, the next greeting says the same.
        if reply.seq > self.last_seqs.get(channel.channel_id, 0):
            self.last_seqs[channel.channel_id] = reply.seq
            self._open[channel.channel_id] -= 1
        if reply.seq >= self._seen.get(channel.channel_id, 0):
            del self._open[channel.channel_id]
            self._wake()  # what was left out of this conversation can be asked for
        if self._client is not None:
            with suppress(NotConnected):  # the next greeting says it
                await self._client.ack(reply.seq, channel)

    # ---------------------------------------------------------------- the connection

    async def _stay_connected(self) -> None:
        # Varied, so that all bridges of a gateway that restarts do not come back at the same moment.
        pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE, random.Random())  # noqa: S311 no secret
        while self.refusal is None:
            begun = anyio.current_time()
            try:
                await self._connect_once()
            except BridgeRefused as error:
                self.refusal = error
                # Nobody will answer the messages that wait, so each `send` gets the refusal.
                for pending in self._pending.values():
                    pending.error = error
                    pending.answered.set()
                self._wake()
                return
            except ClientError as error:
                _log.warning("no connection to the agent: %s", error)
            else:  # ended by us, to ask for what was left out
                pauses.reset()
            # A connection that has lasted was a good one, so the next loss begins with a short pause again.
            if anyio.current_time() - begun > LONGEST_PAUSE:
                pauses.reset()
            await anyio.sleep(pauses.next())

    async def _connect_once(self) -> None:
        """Connect, say hello, and read until the connection ends. Raises ClientError, and BridgeRefused for what stays so."""
        parts = urlsplit(self._url)
        if parts.scheme not in ("ws", "wss") or not parts.hostname:
            raise BridgeRefused("bad_url", f"found {quote(self._url)}, allowed: ws://HOST:PORT or wss://HOST")
        with anyio.CancelScope() as self._connection:
            try:
                async with open_client(
                    self._url,
                    self._token,
                    self.type,
                    last_seqs=self.last_seqs,
                    delivery=self._delivery,
                    timeout=CONNECT_TIME,
                ) as client:
                    await self._use(client)
            except Refused as error:
                if error.code in ("unauthorized", "bad_frame"):
                    raise BridgeRefused(error.code, error.message) from None
                raise

    async def _use(self, client: Client) -> None:
        """Send what has no answer yet, and take what comes. Raises NotConnected at the end of the connection."""
        self.agent, self._client = client.welcome.agent, client
        # The greeting has asked for all that is not acknowledged. Whoever is still full is left behind anew.
        self._behind.clear()
        _log.info("connected with %s as the bridge of %s", self.agent, self.type)
        try:
            # In the order of `send`. A copy, since answers that come meanwhile remove some.
            for pending in list(self._pending.values()):
                await self._send_frame(pending.frame)
            async for event in client:
                self._take(event)
        finally:
            self._client = None
        raise NotConnected(client.closed or "the connection was closed")

    def _take(self, event: ClientEvent) -> None:
        """Handle what the gateway has sent."""
        match event:
            case MessageAccepted(id=id):
                self._answer(id, None)
            case Refused(id=str(id)) if id in self._pending:
                self._answer(id, event)
            case Refused(code="too_large") if self._pending:
                # It was not read, so the answer has no id. The largest message on its way is too large if any is.
                self._answer(max(self._pending, key=lambda id: len(encode_frame(self._pending[id].frame))), event)
            case Refused(code="unauthorized"):  # the token was revoked
                raise event
            case Refused():
                _log.warning("the gateway says %s: %s", event.code, event.message)
            case OutboundMessage():
                self._queue_reply(event)
            case Typing() | ReplyDraft():
                self._queue_sign(event)

    def _answer(self, id: str, error: Refused | None) -> None:
        pending = self._pending.pop(id, None)
        if pending is not None:
            pending.error = error
            pending.answered.set()

    def _queue_reply(self, reply: OutboundMessage) -> None:
        channel_id = reply.channel.channel_id
        if reply.seq <= self._seen.get(channel_id, self.last_seqs.get(channel_id, 0)):
            return  # it came before the connection was lost
        # Once one was left out, all behind it in its conversation are left out as well, or they would change their order.
        if (
            channel_id in self._behind
            or self._open[channel_id] >= MOST_OF_CONVERSATION
            or len(self._queue) >= MOST_WAITING
        ):
            self._behind.add(channel_id)
            return
        self._seen[channel_id] = reply.seq
        self._open[channel_id] += 1
        self._queue.append(reply)
        self._wake()

    def _queue_sign(self, sign: Typing | ReplyDraft) -> None:
        """Put a sign into the queue. The newest draft of a conversation replaces one that waits; none waits in a long queue."""
        last = self._queue[-1] if self._queue else None
        if isinstance(last, ReplyDraft) and isinstance(sign, ReplyDraft) and last.channel == sign.channel:
            self._queue[-1] = sign
        elif len(self._queue) < MOST_WAITING // 2:
            self._queue.append(sign)
            self._wake()

    def _wake(self) -> None:
        # An event of anyio cannot be reset, so it is replaced; whoever waits holds the old one.
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def _post(self, frame: MessageFrame) -> Refused | BridgeRefused | None:
        """Send a message over this connection and the next ones until it is answered; return the refusal, None if it was accepted."""
        if self.refusal is not None:
            raise self.refusal
        encode_frame(frame)  # raises for what is no JSON, here and not in the background
        while (
            other := self._pending.get(frame.id)
        ) is not None:  # the answers have the id alone, whatever the conversation
            await other.answered.wait()
        pending = PendingMessage(frame)
        self._pending[frame.id] = pending
        try:
            await self._send_frame(frame)
            await pending.answered.wait()
            return pending.error
        finally:
            # Cancelled before the answer. The message may have been taken; it is not sent again by this bridge.
            if self._pending.get(frame.id) is pending:
                del self._pending[frame.id]

    async def _send_frame(self, frame: MessageFrame) -> None:
        """Send a message if there is a connection. What is lost with it is sent over the next one."""
        if self._client is not None:
            with suppress(NotConnected):  # the reader notices, too
                await self._client.post(
                    frame.text, id=frame.id, channel=frame.channel, metadata=frame.metadata, media=frame.media
                )
