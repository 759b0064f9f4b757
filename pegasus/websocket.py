"""Both ends of a WebSocket on trio-websocket: `ServerSocket` for the gateway, `ClientSocket` for its clients.

trio-websocket's own server has one queue more than the gateway needs, gathers a message of any size before it looks at the
limit, closes before the reason can be sent, and waits a minute for a handshake that cannot come any more. Its own client
waits for a handshake that cannot succeed any more if the server hangs up in the middle of it, and leaves the stream open
when the server closes first. So the two classes run its reader themselves and override its event handlers. Those are private
names. They are touched in this file only, and a test fails if a new version of trio-websocket changes them
(tests/pegasus/gateway/test_websocket.py).

A `ServerSocket` calls a `SocketHandler` for each thing that the client does. While a handler runs, nothing more is read from
this client: that is the backpressure. Handlers are checkpoints, and so is each fragment of a message, for which no handler
is called: 16 KiB of empty fragments are 2,700 events, which would keep the event loop from everybody else.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import trio
from trio_websocket import ConnectionClosed, HandshakeError, WebSocketConnection
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Pong, Request, TextMessage
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from pegasus.http_framing import has_body, refuse_ambiguous

RECEIVE_BYTES = 16 * 1024
"""Bytes that are read from the network at a time."""
LINGER = 2.0
"""Seconds that a client whose bytes are no WebSocket frames gets to read the reason, before the connection is cut."""
MESSAGE_QUEUE = 16
"""Messages that a client's socket keeps until they are asked for. Beyond that the connection is not read, and TCP slows the
server down."""

Headers: TypeAlias = list[tuple[bytes, bytes]]
"""Names and values of the handshake's header fields, as they came."""


class _Socket(WebSocketConnection):
    """The reader that both ends share. The stream belongs to the caller."""

    async def run(self) -> None:
        """Read until the other side has gone or the handshake has failed, neither of which is an error here.

        Afterwards nobody waits any more: neither for the end of a handshake nor for a message.
        """
        try:
            await self._reader_task()
        except (ConnectionClosed, HandshakeError, LocalProtocolError, RemoteProtocolError):
            pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._open_handshake.set()
            self._close_handshake.set()


class SocketHandler(Protocol):
    """The receiver of what a client does. The client is not read while one of these methods runs.

    Example: `ServerSocket(stream, handler, subprotocol="pegasus.v1", max_bytes=65_536)` calls these methods; the gateway's
    `Connection` is such a handler.
    """

    async def on_open(self, headers: Headers) -> None:
        """Handle the end of the WebSocket handshake."""

    async def on_text(self, data: str) -> None:
        """Handle a whole text message."""

    async def on_binary(self) -> None:
        """Handle a whole binary message, whose content was not kept."""

    async def on_oversize(self) -> None:
        """Handle a message beyond the limits. What follows is read and dropped until the connection is closed."""

    async def on_broken(self, code: int, reason: str) -> None:
        """Handle bytes that are no WebSocket frames; nothing more can be understood. code: what to close with."""


class ServerSocket(_Socket):
    """One accepted connection. `run` reads it; the other methods may be called once `on_open` was.

    Reading and writing are independent: `write` may be called while a handler runs. Only one task may write.

    Example::

        socket = ServerSocket(stream, handler, subprotocol="pegasus.v1", max_bytes=65_536)
        nursery.start_soon(socket.run)  # calls the handler
        await socket.write(['{"type":"welcome", …}'])
        await socket.finish(1001, "the gateway is stopping")
    """

    def __init__(self, stream: trio.abc.Stream, handler: SocketHandler, *, subprotocol: str, max_bytes: int) -> None:
        """max_bytes: of the first message, which must also come in one piece; see `allow`."""
        protocol = WSConnection(ConnectionType.SERVER)
        refuse_ambiguous(protocol.handshake._h11_connection)
        super().__init__(stream, protocol, receive_buffer_size=RECEIVE_BYTES)
        self._handler = handler
        self._offered = subprotocol
        """The subprotocol that is agreed if the client offers it."""
        self._max_bytes = max_bytes
        """Bytes of a message, over all its fragments."""
        self._takes_fragments = False
        """A message may come in several frames. A large frame that arrives in pieces is no such message."""
        self._is_dropping = False
        """A message was too large; everything that follows is read and dropped."""
        self._is_broken = False
        """The client's bytes are no WebSocket frames any more."""
        self.active_at = trio.current_time()
        """Time of the client's last frame, if only a pong, on Trio's clock: it was reachable then."""

    def allow(self, max_bytes: int) -> None:
        """Take messages of so many bytes from now on, also in fragments: the client has shown who it is."""
        self._max_bytes = max_bytes
        self._takes_fragments = True

    async def write(self, frames: list[str]) -> None:
        """Send text messages in one write. Raises ConnectionClosed. Cancelled, the connection is of no more use."""
        if self._close_reason:
            raise ConnectionClosed(self._close_reason)
        data = b"".join([self._wsproto.send(TextMessage(data=frame)) for frame in frames])
        try:
            self._stream_lock.acquire_nowait()  # usually it is free; sending is the checkpoint
        except trio.WouldBlock:
            await self._stream_lock.acquire()
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self._abort_web_socket()
            raise ConnectionClosed(self._close_reason) from None
        finally:
            self._stream_lock.release()

    async def probe(self) -> None:
        """Send a ping; the pong changes `active_at`. Raises ConnectionClosed."""
        if self._close_reason:
            raise ConnectionClosed(self._close_reason)
        await self._send(Ping())

    async def finish(self, code: int, reason: str) -> None:
        """Send the close frame and wait for the client's; the caller sets the deadline."""
        if not self._is_broken:
            await self.aclose(code, reason)
            return
        with trio.move_on_after(LINGER):
            await self._send(CloseConnection(code=code, reason=reason))
            if isinstance(self._stream, trio.abc.HalfCloseableStream):
                await self._stream.send_eof()
            await self._close_handshake.wait()

    # -------------------------------------------------------- trio-websocket's event handlers

    async def _handle_request_event(self, event: Request) -> None:
        if has_body(event.extra_headers):
            await self._reject(400, [(b"connection", b"close")], b"")
            await self._close_stream()
            return
        # A client that offers no subprotocol, or another one, is served all the same; nothing is agreed then.
        agreed = self._offered if self._offered in event.subprotocols else None
        await self._accept(event, agreed, [])
        await self._handler.on_open(list(event.extra_headers))

    async def _handle_message_event(self, event: BytesMessage | TextMessage) -> None:
        self.active_at = trio.current_time()
        if self._is_dropping or not event.message_finished:
            await trio.lowlevel.checkpoint()
        if self._is_dropping:
            return
        data = event.data
        is_fragment = event.frame_finished and not event.message_finished
        self._message_size += len(data.encode()) if isinstance(data, str) else len(data)
        if self._message_size > self._max_bytes or (is_fragment and not self._takes_fragments):
            self._is_dropping = True
            self._message_parts = []
            await self._handler.on_oversize()
            return
        if data and isinstance(data, str):
            self._message_parts.append(data)
        if event.message_finished:
            parts, self._message_parts, self._message_size = self._message_parts, [], 0
            if isinstance(data, str):
                await self._handler.on_text("".join(parts))  # type: ignore[arg-type]
            else:
                await self._handler.on_binary()

    async def _handle_ping_event(self, event: Ping) -> None:
        self.active_at = trio.current_time()
        await super()._handle_ping_event(event)

    async def _handle_pong_event(self, event: Pong) -> None:
        await trio.lowlevel.checkpoint()
        self.active_at = trio.current_time()

    async def _handle_close_connection_event(self, event: CloseConnection) -> None:
        if self._wsproto.state is ConnectionState.OPEN:  # no close frame came: wsproto gave up on the client's bytes
            self._is_broken = True
            self._reader_running = False  # or it would gather what it can no longer parse
            await self._handler.on_broken(int(event.code), event.reason or "no WebSocket frame")
            while await self._stream.receive_some(RECEIVE_BYTES):
                pass  # what it still sends is dropped, so that our last frames are not lost in a TCP reset
            return
        await super()._handle_close_connection_event(event)


class ClientSocket(_Socket):
    """One connection to a server, over a stream that the caller opens and closes.

    Its life: start `run` in a task, `wait_open`, look at `is_open`, then use `send_message`, `get_message` and `aclose`.

    Example::

        socket = ClientSocket(stream, host="127.0.0.1:7717", path="/", subprotocol="pegasus.v1", max_bytes=1 << 20)
        nursery.start_soon(socket.run)
        await socket.wait_open()
        if socket.is_open:
            await socket.send_message("…")
    """

    def __init__(self, stream: trio.abc.Stream, *, host: str, path: str, subprotocol: str, max_bytes: int) -> None:
        """subprotocol: "" for a server that has none."""
        super().__init__(
            stream,
            WSConnection(ConnectionType.CLIENT),
            host=host,
            path=path,
            client_subprotocols=[subprotocol] if subprotocol else [],
            message_queue_size=MESSAGE_QUEUE,
            max_message_size=max_bytes,
            receive_buffer_size=RECEIVE_BYTES,
        )
        self.is_open = False
        """The handshake has succeeded."""

    async def wait_open(self) -> None:
        """Wait until the handshake has succeeded or cannot succeed any more; `is_open` says which."""
        await self._open_handshake.wait()

    async def _handle_accept_connection_event(self, event: AcceptConnection) -> None:
        self.is_open = True
        await super()._handle_accept_connection_event(event)
