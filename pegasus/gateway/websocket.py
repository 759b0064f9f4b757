"""The server's end of a WebSocket on trio-websocket.

trio-websocket's own server has one queue more than we need, gathers what is too large, closes before it can be said why,
and waits a minute for a handshake that cannot come any more. So this class overrides its event handlers, which are private
names: they are touched here and in pegasus/client/websocket.py only, and tests/pegasus/gateway/test_websocket.py fails if
they change.
"""

from __future__ import annotations

from typing import Protocol

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, Request, TextMessage
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

RECEIVE_BYTES = 16 * 1024
LINGER = 2.0
"""Seconds a client whose bytes make no WebSocket frames any more gets to read why, before the connection is cut."""

Headers = list[tuple[bytes, bytes]]


class Listener(Protocol):
    """Who hears what a client says. While one of these runs, the client is not read: that is the backpressure."""

    def heard(self) -> None:
        """Some sign of life came."""

    async def opened(self, headers: Headers) -> None:
        """The WebSocket handshake is done."""

    async def text(self, data: str) -> None:
        """A whole text message came."""

    async def binary(self) -> None:
        """A whole binary message came; its content was not kept."""

    async def too_large(self) -> None:
        """A message went beyond the limit. What follows is read and dropped until the connection is closed."""

    async def broken(self, code: int, reason: str) -> None:
        """The client's bytes are no WebSocket frames; nothing more can be understood. code: what to close with."""


class ServerSocket(WebSocketConnection):
    """One accepted connection. `run` reads it; `write`, `ping` and `finish` may be called once `opened` was heard."""

    def __init__(self, stream: trio.abc.Stream, listener: Listener, *, subprotocol: str, max_bytes: int) -> None:
        super().__init__(stream, WSConnection(ConnectionType.SERVER), receive_buffer_size=RECEIVE_BYTES)
        self._listener = listener
        self._offered = subprotocol
        self._max_bytes = max_bytes
        self._deaf = False
        self._broken = False

    async def run(self) -> None:
        """Read until the client has gone or the connection is closed; errors of the network end it like that too."""
        try:
            await self._reader_task()
            while self._broken and await self._stream.receive_some(RECEIVE_BYTES):
                pass  # what it still sends is dropped, so that our last frames are not lost in a TCP reset
        except (ConnectionClosed, LocalProtocolError, RemoteProtocolError):
            pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._close_handshake.set()  # nobody need wait for a goodbye any more

    async def write(self, frames: list[str]) -> None:
        """Send text messages with one system call. Raises ConnectionClosed; cancelled, the connection is of no more use."""
        if self._close_reason:
            raise ConnectionClosed(self._close_reason)
        data = b"".join([self._serialise(frame) for frame in frames])
        try:
            self._stream_lock.acquire_nowait()  # nearly always free, and then it costs no turn of the scheduler
        except trio.WouldBlock:
            await self._stream_lock.acquire()
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self._abort_web_socket()
            raise ConnectionClosed(self._close_reason) from None
        finally:
            self._stream_lock.release()

    def _serialise(self, frame: str) -> bytes:
        try:
            return self._wsproto.send(TextMessage(data=frame))
        except UnicodeEncodeError:  # half a surrogate pair, as a model may produce one
            return self._wsproto.send(TextMessage(data=frame.encode("utf-8", "replace").decode()))

    async def probe(self) -> None:
        """Send a ping; the pong is heard like everything else. Raises ConnectionClosed."""
        if self._close_reason:
            raise ConnectionClosed(self._close_reason)
        await self._send(Ping())

    async def finish(self, code: int, reason: str) -> None:
        """Say goodbye and wait for the client's; the caller sets the deadline."""
        if not self._broken:
            await self.aclose(code, reason)
            return
        with trio.move_on_after(LINGER):
            await self._send(CloseConnection(code=code, reason=reason))
            if isinstance(self._stream, trio.abc.HalfCloseableStream):
                await self._stream.send_eof()
            await self._close_handshake.wait()

    # -------------------------------------------------------- trio-websocket's event handlers

    async def _handle_request_event(self, event: Request) -> None:
        agreed = self._offered if self._offered in event.subprotocols else None
        await self._accept(event, agreed, [])
        self._listener.heard()
        await self._listener.opened(list(event.extra_headers))

    async def _handle_message_event(self, event: BytesMessage | TextMessage) -> None:
        self._listener.heard()
        if self._deaf:
            return
        data = event.data
        self._message_size += len(data.encode()) if isinstance(data, str) and not data.isascii() else len(data)
        if self._message_size > self._max_bytes:
            self._deaf = True
            self._message_parts = []
            await self._listener.too_large()
            return
        if data and isinstance(data, str):
            self._message_parts.append(data)
        if event.message_finished:
            parts, self._message_parts, self._message_size = self._message_parts, [], 0
            if isinstance(data, str):
                await self._listener.text("".join(parts))  # type: ignore[arg-type]
            else:
                await self._listener.binary()

    async def _handle_ping_event(self, event: Ping) -> None:
        self._listener.heard()
        await super()._handle_ping_event(event)

    async def _handle_pong_event(self, event: Pong) -> None:
        self._listener.heard()

    async def _handle_close_connection_event(self, event: CloseConnection) -> None:
        if self._wsproto.state is ConnectionState.OPEN:  # no close frame came: wsproto gave up on the client's bytes
            self._broken = True
            self._reader_running = False  # or it would gather what it can no longer parse
            await self._listener.broken(int(event.code), event.reason or "no WebSocket frame")
            return
        await super()._handle_close_connection_event(event)
