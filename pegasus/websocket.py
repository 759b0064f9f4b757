"""`WebSocket`: one end of a WebSocket on wsproto, for the gateway, its clients, bridges and Slack; on Trio and on asyncio.

trio-websocket's connection gathers a message of any size before it looks at the limit, closes before a reason can be sent, and keeps a
queue and a task of its own for what one caller reads. Its public interface has no place for other bounds, so wsproto, on which it
stands, is used directly. The bounds, each at the place where the bytes come in:

* A message has `max_bytes` at most, over all its fragments; until `takes_fragments` is set it must come in one piece. What is beyond
  is dropped as it comes, and so is what is no WebSocket frame.
* Nothing is read until `receive` is called: TCP slows the other side down.
* Each fragment and each pong is a checkpoint: 16 KiB of empty fragments are 2,700 events, for which nobody else would have a turn.

Deadlines are the callers', by cancel scopes. Cancelled in the middle of a write, the connection is of no more use.
"""

from __future__ import annotations

from collections.abc import Iterator
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


class WebSocket:
    """One connection, over a stream that the caller closes. `accept` or `connect` comes first.

    One task may call `receive` and `drop`. All other methods may be called meanwhile, by any task.
    """

    def __init__(self, stream: ByteStream, max_bytes: int, *, takes_fragments: bool = True) -> None:
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
        self._protocol = WSConnection(ConnectionType.CLIENT)  # of a server from `accept` on
        self._events: Iterator[Event] = iter(())
        """Events of what was read. They are made one by one, as they are asked for."""
        self._parts: list[str] = []
        """Parts of a message whose end has not come."""
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
            await self._write(self._protocol.send(AcceptConnection(subprotocol if is_agreed else None)))
        except (h11.ProtocolError, RemoteProtocolError) as error:
            hint = getattr(error, "event_hint", None)
            status, fields = (hint.status_code, hint.headers) if isinstance(hint, RejectConnection) else (400, [])
            answer = h11.Response(
                status_code=status, headers=[*fields, (b"connection", b"close"), (b"content-length", b"0")]
            )
            await self._write(parser.send(answer) or b"")
            raise self._end() from None
        self._feed(handshake.rest if handshake else parser.trailing_data[0])
        return list(request.headers)

    async def connect(self, host: str, path: str, subprotocol: str = "") -> None:
        """Shake hands with a server. Raises WebSocketClosed; `code` is the HTTP status if it answered with another one."""
        offered = [subprotocol] if subprotocol else []
        await self._write(self._protocol.send(Request(host=host, target=path, subprotocols=offered)))
        try:
            event = await self._next_event()
        except ProtocolError:
            raise self._end() from None
        if not isinstance(event, AcceptConnection):
            raise self._end(event.status_code if isinstance(event, RejectConnection) else None)

    # ---------------------------------------------------------------- reading

    async def receive(self) -> str | None:
        """Return the next text message; None for a binary one, whose content is not kept. Pings are answered meanwhile.

        Raises WebSocketClosed and, once, BadMessage. Cancelled, nothing is lost.
        """
        while True:
            match event := await self._next_event():
                case TextMessage() | BytesMessage():
                    if self._is_dropping or not event.message_finished:
                        await anyio.lowlevel.checkpoint()
                    self._gather(event)
                    if event.message_finished and not self._is_dropping:
                        text, self._parts, self._size = "".join(self._parts), [], 0
                        return text if isinstance(event, TextMessage) else None
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
        self._is_dropping, self._parts = True, []
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
            self._is_dropping, self._parts = True, []
            raise BadMessage(1009, f"found a message of more than {self.max_bytes} bytes, or in pieces")
        if data and isinstance(data, str):
            self._parts.append(data)

    def _lose(self) -> WebSocketClosed:
        """Note that the other side has gone without a close frame, for which RFC 6455 has a code."""
        return self._end(None if self._protocol.state is ConnectionState.CONNECTING else 1006)

    def _end(self, code: int | None = None, reason: str = "") -> WebSocketClosed:
        self._closed = self._closed or WebSocketClosed(code, reason)
        self.ended.set()
        return self._closed

    # ---------------------------------------------------------------- writing

    async def write(self, messages: list[str]) -> None:
        """Send text messages in one write. Raises WebSocketClosed."""
        await self._send(*[TextMessage(data=message) for message in messages])

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
