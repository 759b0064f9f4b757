"""The client's end of a WebSocket on trio-websocket.

trio-websocket's own `open_websocket_url` waits for a handshake that cannot succeed any more, if the server hangs up in the middle of
it, and leaves the stream open when the server closes first. `ClientSocket` runs the same reader itself, so that the end of the
stream ends both waits, and leaves the stream to its caller.

It uses private names of trio-websocket. They are touched in this file and in pegasus/gateway/websocket.py only, and a test fails if
a new version changes them (tests/pegasus/gateway/test_websocket.py).
"""

from __future__ import annotations

import trio
from trio_websocket import ConnectionClosed, HandshakeError, WebSocketConnection
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

RECEIVE_BYTES = 16 * 1024
"""Bytes that are read from the network at a time."""
MESSAGE_QUEUE = 16
"""Messages that are kept until they are asked for. Beyond that the connection is not read, and TCP slows the server down."""


class ClientSocket(WebSocketConnection):
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
        super().__init__(
            stream,
            WSConnection(ConnectionType.CLIENT),
            host=host,
            path=path,
            client_subprotocols=[subprotocol],
            message_queue_size=MESSAGE_QUEUE,
            max_message_size=max_bytes,
            receive_buffer_size=RECEIVE_BYTES,
        )
        self.is_open = False
        """The handshake has succeeded."""

    async def run(self) -> None:
        """Read until the server has gone or has refused the handshake, neither of which is an error here.

        Afterwards nobody waits any more: `wait_open` returns, and `get_message` raises ConnectionClosed.
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

    async def wait_open(self) -> None:
        """Wait until the handshake has succeeded or cannot succeed any more; `is_open` says which."""
        await self._open_handshake.wait()

    async def _handle_accept_connection_event(self, event: AcceptConnection) -> None:
        self.is_open = True
        await super()._handle_accept_connection_event(event)
