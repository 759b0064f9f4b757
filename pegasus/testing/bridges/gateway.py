"""`BridgeGateway`: the gateway as a bridge sees it, with an inbox and an outbox in memory that outlive the bridge.

Frames are read by the gateway's own rules, so what it would refuse is refused here, and noted in `complaints`. Replies come as they do
from the gateway: those of a conversation in order, and each that is not acknowledged again with each connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, cast

import attrs
import trio

from pegasus.gateway import read_frame, read_hello
from pegasus.messages import Address, ChannelInfo, InboundMessage, Media, Metadata, OutboundMessage, Typing
from pegasus.protocol import (
    BAD_HELLO,
    PROTOCOL,
    SUBPROTOCOL,
    TOO_LARGE,
    UNAUTHORIZED,
    AcceptedFrame,
    BadFrame,
    CallFrame,
    ClientChannel,
    ErrorFrame,
    HelloFrame,
    ServerFrame,
    WebSocketClosed,
    WelcomeFrame,
    encode_frame,
)
from pegasus.storage import Acknowledge
from pegasus.testing.bridges.steps import Step, StepCut, StepPoints, StepRefused
from pegasus.websocket import BadMessage, WebSocket

TOKEN: Final = "token-of-the-bridge"  # noqa: S105 of a gateway that ends with the suite
MAX_BYTES: Final = 1 << 20
"""The gateway's default for a frame."""
MOST_HELD: Final = 0.5
"""Seconds that an answer is held for another one to overtake it. A bridge that waits for each answer sends no other message."""


@attrs.define(eq=False)
class BridgeGateway:
    """Everything that the agent has of the bridge: `accepted`, and an outbox that `say` fills."""

    channel_type: str
    points: StepPoints
    url: str = ""
    accepted: list[InboundMessage] = attrs.field(factory=list)
    """Messages in the order of their acceptance, each id once."""
    outbox: dict[Address, list[OutboundMessage]] = attrs.field(factory=dict)
    """Replies that are not acknowledged."""
    complaints: list[str] = attrs.field(factory=list)
    """Everything that the bridge does wrong, each kind once, such as a frame that is against the protocol."""
    declared: str = ""
    """Delivery class in the last hello; "" for none."""
    are_answers_swapped: bool = False
    """Of two messages that are on their way at once, the later one is answered first."""
    _seqs: dict[Address, int] = attrs.field(factory=dict)
    _ids: set[tuple[Address, str]] = attrs.field(factory=set)
    _changed: trio.Event = attrs.field(factory=trio.Event)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Listen on loopback for as long as the block lasts."""
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            self.url = f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            nursery.start_soon(trio.serve_listeners, self._serve, listeners)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()

    # ---------------------------------------------------------------- for the suite

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds. It is looked at whenever a frame was handled."""
        while not condition():
            await self._changed.wait()

    def say(self, text: str, channel: ChannelInfo, media: tuple[Media, ...] = (), **metadata: str) -> None:
        """Put a reply into the outbox, from which a connected bridge gets it at once."""
        seq = self._seqs[channel.address] = self._seqs.get(channel.address, 0) + 1
        facts: Metadata = dict(metadata)
        self.outbox.setdefault(channel.address, []).append(OutboundMessage(text, channel, seq, facts, media))
        self.note_change()

    def is_acknowledged(self, text: str) -> bool:
        """Return whether no reply with this text in it waits."""
        return not any(text in reply.text for replies in self.outbox.values() for reply in replies)

    # ---------------------------------------------------------------- for a connection

    async def change(self) -> None:
        """Wait until something was said or taken."""
        await self._changed.wait()

    def note_change(self) -> None:
        """Wake up those who wait."""
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def complain(self, message: str) -> None:
        """Note what the bridge does wrong."""
        if message not in self.complaints:
            self.complaints.append(message)

    def take(self, message: InboundMessage) -> None:
        """Accept a message, unless its id is known."""
        key = (message.channel.address, message.id)
        if key not in self._ids:
            self._ids.add(key)
            self.accepted.append(message)

    def acknowledge(self, address: Address, seq: int) -> None:
        """Forget the replies up to this number."""
        self.outbox[address] = [reply for reply in self.outbox.get(address, []) if reply.seq > seq]

    # ---------------------------------------------------------------- connections

    async def _serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection until its end."""
        socket = WebSocket(stream, MAX_BYTES)
        async with stream:
            try:
                await socket.accept(SUBPROTOCOL)
                if not await self._greet(socket):
                    return
                async with trio.open_nursery(strict_exception_groups=True) as nursery:
                    connection = _BridgeConnection(self, socket, nursery)
                    nursery.start_soon(connection.send_outbox)
                    await connection.receive()
            except* (StepCut, WebSocketClosed):
                pass
            except* BadMessage:
                self.complain(f"found a frame of more than {MAX_BYTES} bytes, or no WebSocket frame")
                await socket.close(TOO_LARGE)
        self.note_change()

    async def _greet(self, socket: WebSocket) -> bool:
        """Read the hello and welcome the bridge; return False for one that is not welcome."""
        try:
            hello = self._read_hello(await _receive_text(socket))
        except BadFrame as error:
            self.complain(error.message)
            await socket.write([encode_frame(ErrorFrame(error.code, error.message))])
            await socket.close(UNAUTHORIZED if error.code == "unauthorized" else BAD_HELLO)
            return False
        for channel_id, seq in hello.last_seqs.items():
            self.acknowledge(Address(self.channel_type, channel_id), cast(int, seq))
        self.declared = hello.delivery
        await socket.write([encode_frame(WelcomeFrame(PROTOCOL, "Pegasus", hello.channel, 0))])
        self.note_change()
        return True

    def _read_hello(self, text: str) -> HelloFrame:
        """Return the hello of a bridge that is welcome. Raises BadFrame."""
        hello, own = read_hello(text), ClientChannel(self.channel_type)
        if hello.token != TOKEN:
            raise BadFrame("unauthorized", "hello.token: found another one than PEGASUS_TOKEN")
        if hello.channel != own:
            raise BadFrame("unauthorized", f"hello.channel: found {hello.channel}, allowed: {own}")
        return hello


@attrs.define(eq=False)
class _BridgeConnection:
    """One greeted connection of the bridge."""

    _gateway: BridgeGateway
    _socket: WebSocket
    _nursery: trio.Nursery
    """The connection's."""
    _sent: dict[Address, int] = attrs.field(factory=dict)
    """Last reply that was sent to each address."""
    _held: ServerFrame | None = None
    """Answer that waits for another one to overtake it."""

    async def send_outbox(self) -> None:
        """Send what waits in the outbox and what comes into it. Raises StepCut, WebSocketClosed."""
        while True:
            due = [
                reply
                for replies in self._gateway.outbox.values()
                for reply in replies
                if reply.seq > self._sent.get(reply.channel.address, 0)
            ]
            for reply in due:
                await self._gateway.points.reach(Step.REPLYING)
                self._sent[reply.channel.address] = reply.seq
                await self._send(reply)
            if not due:
                await self._gateway.change()

    async def receive(self) -> None:
        """Carry out the frames of the bridge. Raises StepCut, WebSocketClosed, BadMessage."""
        while True:
            text = await _receive_text(self._socket)
            try:
                frame = read_frame(text, ClientChannel(self._gateway.channel_type))
                if isinstance(frame, CallFrame):
                    raise BadFrame("bad_frame", "found a call, allowed for this token: message, ack")
            except BadFrame as error:
                self._gateway.complain(error.message)
                await self._send(ErrorFrame(error.code, error.message, error.id))
                continue
            if isinstance(frame, Acknowledge):
                await self._take_acknowledgement(frame)
            else:
                await self._take_message(frame)
            self._gateway.note_change()

    async def _take_message(self, message: InboundMessage) -> None:
        """Accept a message and say so."""
        gateway = self._gateway
        try:
            await gateway.points.reach(Step.RECEIVED)
        except StepRefused:
            await self._send(ErrorFrame("overloaded", "too many messages wait; try again later", message.id))
            return
        gateway.take(message)
        gateway.note_change()
        await gateway.points.reach(Step.ACCEPTED)
        answer = AcceptedFrame(message.id)
        if gateway.are_answers_swapped and self._held is None:
            self._held = answer
            self._nursery.start_soon(self._release)
            return
        await self._send(answer)
        await self._send_held()
        await self._send(Typing(message.channel, active=True))

    async def _release(self) -> None:
        await trio.sleep(MOST_HELD)
        await self._send_held()

    async def _send_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            await self._send(held)

    async def _take_acknowledgement(self, ack: Acknowledge) -> None:
        """Remove the replies that the bridge has handled from the outbox."""
        await self._gateway.points.reach(Step.ACKNOWLEDGING)
        self._gateway.acknowledge(ack.address, ack.seq)
        self._gateway.note_change()
        await self._gateway.points.reach(Step.ACKNOWLEDGED)

    async def _send(self, frame: ServerFrame) -> None:
        await self._socket.write([encode_frame(frame)])


async def _receive_text(socket: WebSocket) -> str:
    """Return the next message; "" for a binary one, which is no frame either."""
    message = await socket.receive()
    return message if isinstance(message, str) else ""
