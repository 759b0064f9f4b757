"""`WebSocket`: one end of a WebSocket on wsproto, for the gateway, its clients, bridges and Slack; on Trio and on asyncio.

trio-websocket's connection gathers a message of any size before it looks at the limit, closes before a reason can be sent, and keeps a
queue and a task of its own for what one caller reads. Its public interface has no place for other bounds, so wsproto, on which it
stands, is used directly. The bounds, each at the place where the bytes come in:

* A message has `max_bytes` at most, over all its fragments; until `takes_fragments` is set it must come in one piece. What is beyond
  is dropped as it comes, and so is what is no WebSocket frame.
* Nothing is read until `receive` is called: TCP slows the other side down.
* What a compressed frame becomes has the same bound, piece by piece: see `BoundedDeflate`.
* Each fragment and each pong is a checkpoint: 16 KiB of empty fragments are 2,700 events, for which nobody else would have a turn.

Deadlines are the callers', by cancel scopes. Cancelled in the middle of a write, the connection is of no more use.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

import anyio
import anyio.lowlevel
import attrs
import h11
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.extensions import Extension, PerMessageDeflate
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol, Opcode, RsvBits
from wsproto.utilities import ProtocolError, RemoteProtocolError

from pegasus.http_framing import has_body, refuse_ambiguous
from pegasus.protocol import WebSocketClosed

RECEIVE_BYTES: Final = 16 * 1024
"""Bytes that are read from the network at a time."""
BROKEN_STREAM: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Names and values of the handshake's header fields, as they came."""


class ByteStream(Protocol):
    """Both directions of bytes, as Trio's streams have them. Other errors than BROKEN_STREAM are passed on."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Return what has come; b"" at the end."""

    async def send_all(self, data: bytes) -> None:
        """Send all of it."""


class BadMessage(Exception):
    """The other side sent a message beyond the limits, or what is no WebSocket frame. Close with its code, and `drop` the rest."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@attrs.frozen
class Handshake:
    """A client's request for a WebSocket, as another server has read it."""

    request: h11.Request
    """Its head. It has no body."""
    rest: bytes
    """Bytes that came behind it."""


class BoundedDeflate(PerMessageDeflate):
    """Compression of messages (permessage-deflate, RFC 7692) that inflates nothing beyond a bound.

    wsproto's own inflates whatever comes, and 16 KiB may become 16 MiB. It serves for everything but the bytes that come in.
    """

    def __init__(self, max_bytes: Callable[[], int]) -> None:
        super().__init__()
        self._max_bytes = max_bytes
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        """Of any window: 15 bits read what was written with fewer."""
        self._is_first = True
        """True if the next frame of data begins a message; that one says whether it is compressed."""
        self._is_compressed = False
        self._is_data = False
        """True if the frame that comes now is no control frame."""

    def accept(self, offer: str) -> bool | str | None:
        """Accept the first offer that can be understood."""
        try:
            return None if self.enabled() else super().accept(offer)
        except ValueError:  # a size of the window that is no number
            return None

    def frame_inbound_header(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, payload_length: int
    ) -> CloseReason | RsvBits:
        """Note whether the frame is compressed; only the first one of a message may say so."""
        self._is_data = not opcode.iscontrol()
        if rsv.rsv1 and not (self._is_data and self._is_first):
            return CloseReason.PROTOCOL_ERROR
        if self._is_data and self._is_first:
            self._is_first, self._is_compressed = False, rsv.rsv1
        return RsvBits(True, False, False)

    def frame_inbound_payload_data(self, proto: FrameDecoder | FrameProtocol, data: bytes) -> bytes | CloseReason:
        """Return what a piece of a frame becomes."""
        return self._inflate(data) if self._is_data and self._is_compressed else data

    def frame_inbound_complete(self, proto: FrameDecoder | FrameProtocol, fin: bool) -> bytes | CloseReason | None:
        """Return what is left at the end of a message."""
        if not (fin and self._is_data):
            return None
        self._is_first = True
        # The sender has left these four bytes out.
        rest = self._inflate(b"\x00\x00\xff\xff") if self._is_compressed else None
        if self.server_no_context_takeover if proto.client else self.client_no_context_takeover:
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        return rest

    def _inflate(self, data: bytes) -> bytes | CloseReason:
        try:
            inflated = self._inflater.decompress(data, self._max_bytes() + 1)
        except zlib.error:
            return CloseReason.INVALID_FRAME_PAYLOAD_DATA
        return CloseReason.MESSAGE_TOO_BIG if self._inflater.unconsumed_tail else inflated


class WebSocket:
    """One connection, over a stream that the caller closes. `accept` or `connect` comes first.

    One task may call `receive` and `drop`. All other methods may be called meanwhile, by any task.
    """

    def __init__(
        self, stream: ByteStream, max_bytes: int, *, takes_fragments: bool = True, compresses: bool = False
    ) -> None:
        self.max_bytes = max_bytes
        """Bytes of a message, over all its fragments. May be changed."""
        self.takes_fragments = takes_fragments
        """A message may come in several frames. A large frame that arrives in pieces is no such message. May be changed."""
        self.active_at = anyio.current_time()
        """Time at which something came last, if only a pong: the other side was reachable then."""
        self.ended = anyio.Event()
        """Set when nothing more can come."""
        self.is_broken = False
        """The other side sends what is no WebSocket frame; its close frame cannot be understood either."""
        self._closed: WebSocketClosed | None = None
        self._stream = stream
        self._extensions: list[Extension] = [BoundedDeflate(lambda: self.max_bytes)] if compresses else []
        self._protocol = WSConnection(ConnectionType.CLIENT)  # of a server from `accept` on
        self._events: Iterator[Event] = iter(())
        """Events of what was read. They are made one by one, as they are asked for."""
        self._parts: list[str] = []
        """Parts of a text message whose end has not come."""
        self._bytes = bytearray()
        """Content of a binary message so far."""
        self._size = 0
        """Bytes of that message."""
        self._is_dropping = False
        self._lock = anyio.Lock(fast_acquire=True)
        """Held during a write."""

    # ---------------------------------------------------------------- handshakes

    async def accept(self, subprotocol: str, handshake: Handshake | None = None) -> Headers:
        """Answer a client's handshake; return its header fields. Raises WebSocketClosed if the client has gone, or was refused.

        A client that offers no subprotocol, or another one, is served all the same; nothing is agreed then. handshake: the request, if
        it was read already.
        """
        parser = h11.Connection(h11.SERVER)
        refuse_ambiguous(parser)
        request: object = handshake.request if handshake else h11.NEED_DATA
        try:
            while request is h11.NEED_DATA and (request := parser.next_event()) is h11.NEED_DATA:
                parser.receive_data(await self._read())
            if not isinstance(request, h11.Request):  # it has gone
                raise self._end()
            if (request.method, request.http_version) != (b"GET", b"1.1") or has_body(request.headers):
                raise RemoteProtocolError("no handshake")
            self._protocol = WSConnection(ConnectionType.SERVER)
            self._protocol.initiate_upgrade_connection(list(request.headers), request.target)
            [event] = self._protocol.events()
            is_agreed = isinstance(event, Request) and subprotocol in event.subprotocols
            answer = AcceptConnection(subprotocol if is_agreed else None, self._extensions)
            await self._write(self._protocol.send(answer))
        except (h11.ProtocolError, RemoteProtocolError) as error:
            hint = getattr(error, "event_hint", None)
            status, fields = (hint.status_code, hint.headers) if isinstance(hint, RejectConnection) else (400, [])
            fields = [*fields, (b"connection", b"close"), (b"content-length", b"0")]
            await self._write(parser.send(h11.Response(status_code=status, headers=fields)) or b"")
            raise self._end() from None
        self._feed(handshake.rest if handshake else parser.trailing_data[0])
        return list(request.headers)

    async def connect(self, host: str, path: str, subprotocol: str = "") -> None:
        """Shake hands with a server. Raises WebSocketClosed; `code` is the HTTP status if it answered with another one."""
        offered = [subprotocol] if subprotocol else []
        await self._write(self._protocol.send(Request(host, path, self._extensions, subprotocols=offered)))
        try:
            event = await self._next_event()
        except (ProtocolError, ValueError):  # ValueError: it has not understood the offer to compress
            raise self._end() from None
        if not isinstance(event, AcceptConnection):
            raise self._end(event.status_code if isinstance(event, RejectConnection) else None)

    # ---------------------------------------------------------------- reading

    async def receive(self) -> str | bytes:
        """Return the next message, str or bytes as the other side says. Pings are answered meanwhile.

        Raises WebSocketClosed and, once, BadMessage. Cancelled, nothing is lost.
        """
        while True:
            match event := await self._next_event():
                case TextMessage() | BytesMessage():
                    if self._is_dropping or not event.message_finished:
                        await anyio.lowlevel.checkpoint()
                    self._gather(event)
                    if event.message_finished and not self._is_dropping:
                        message = "".join(self._parts) if isinstance(event, TextMessage) else bytes(self._bytes)
                        self._forget()
                        return message
                case Ping() if self._protocol.state is ConnectionState.OPEN:
                    await self._write(self._protocol.send(event.response()))
                case CloseConnection() if self._protocol.state is ConnectionState.OPEN:
                    # No close frame came: wsproto gave up on the bytes.
                    self.is_broken = True
                    raise BadMessage(int(event.code), event.reason or "no WebSocket frame")
                case CloseConnection():
                    if self._protocol.state is ConnectionState.REMOTE_CLOSING:
                        await self._write(self._protocol.send(event.response()))
                    raise self._end(int(event.code), event.reason or "")
                case _:
                    await anyio.lowlevel.checkpoint()

    async def drop(self) -> None:
        """Read and drop what still comes, until the other side has gone."""
        self._is_dropping = True
        self._forget()
        try:
            while not self.is_broken:
                with suppress(BadMessage):
                    await self.receive()
            # What cannot be parsed is not gathered either. It is read so that our last frames are not lost in a TCP reset.
            while await self._read():
                pass
        except WebSocketClosed:
            return
        self._lose()

    async def _next_event(self) -> Event:
        if self._closed is not None:
            raise WebSocketClosed(self._closed.code, self._closed.reason)
        while (event := next(self._events, None)) is None:
            data = await self._read()
            if not data:
                raise self._lose()
            self._feed(data)
        return event

    def _feed(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        self._events = self._protocol.events()

    async def _read(self) -> bytes:
        try:
            data = await self._stream.receive_some(RECEIVE_BYTES)
        except BROKEN_STREAM:
            return b""
        self.active_at = anyio.current_time()
        return bytes(data)

    def _gather(self, event: TextMessage | BytesMessage) -> None:
        """Keep a part of a message. Raises BadMessage."""
        if self._is_dropping:
            return
        data = event.data
        is_fragment = event.frame_finished and not event.message_finished
        self._size += len(data.encode()) if isinstance(data, str) else len(data)
        if self._size > self.max_bytes or (is_fragment and not self.takes_fragments):
            self._is_dropping = True
            self._forget()
            raise BadMessage(1009, f"found a message of more than {self.max_bytes} bytes, or in pieces")
        if not isinstance(data, str):
            self._bytes += data
        elif data:
            self._parts.append(data)

    def _forget(self) -> None:
        self._parts, self._bytes, self._size = [], bytearray(), 0

    def _lose(self) -> WebSocketClosed:
        """Note that the other side has gone without a close frame, for which RFC 6455 has a code."""
        return self._end(None if self._protocol.state is ConnectionState.CONNECTING else 1006)

    def _end(self, code: int | None = None, reason: str = "") -> WebSocketClosed:
        self._closed = self._closed or WebSocketClosed(code, reason)
        self.ended.set()
        return self._closed

    # ---------------------------------------------------------------- writing

    async def write(self, messages: Sequence[str | bytes]) -> None:
        """Send messages in one write: str as text, bytes as binary ones. Raises WebSocketClosed."""
        await self._send(
            *[TextMessage(data=each) if isinstance(each, str) else BytesMessage(data=each) for each in messages]
        )

    async def ping(self) -> None:
        """Send a ping, which changes `active_at` if it is answered. Raises WebSocketClosed."""
        await self._send(Ping())

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Send the close frame, unless the connection is closed. The other side's ends `receive` and `drop`, and sets `ended`."""
        with suppress(WebSocketClosed):
            await self._send(CloseConnection(code=code, reason=reason))

    async def _send(self, *events: Event) -> None:
        if self._closed is not None:
            raise WebSocketClosed(self._closed.code, self._closed.reason)
        try:
            data = b"".join([self._protocol.send(event) for event in events])
        except ProtocolError:  # the close frame was sent, or its answer
            raise WebSocketClosed from None
        await self._write(data)

    async def _write(self, data: bytes) -> None:
        async with self._lock:
            try:
                await self._stream.send_all(data)
            except BROKEN_STREAM:
                raise self._lose() from None
