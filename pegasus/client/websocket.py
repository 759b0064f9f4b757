"""The client's end of a WebSocket on trio-websocket.

trio-websocket's own client waits for a handshake that cannot succeed any more and leaves streams open. This class overrides
two of its private event handlers; tests/pegasus/gateway/test_websocket.py fails if trio-websocket changes them.
"""

from __future__ import annotations

import trio
from trio_websocket import ConnectionClosed, HandshakeError, WebSocketConnection
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

RECEIVE_BYTES = 16 * 1024
"""Bytes read from the network at a time."""


class ClientSocket(WebSocketConnection):
    """Our end of a connection to a server; messages come from `get_message`. The caller closes the stream."""

    def __init__(self, stream: trio.abc.Stream, *, host: str, path: str, subprotocol: str, max_bytes: int) -> None:
        super().__init__(
            stream,
            WSConnection(ConnectionType.CLIENT),
            host=host,
            path=path,
            client_subprotocols=[subprotocol],
            message_queue_size=16,
            max_message_size=max_bytes,
            receive_buffer_size=RECEIVE_BYTES,
        )
        self.is_open = False

    async def run(self) -> None:
        """Read until the server has gone or refused us, which is no error here."""
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
        """Wait until the handshake is done, or cannot be any more; `is_open` tells which."""
        await self._open_handshake.wait()

    async def _handle_accept_connection_event(self, event: AcceptConnection) -> None:
        self.is_open = True
        await super()._handle_accept_connection_event(event)
