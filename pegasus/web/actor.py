"""`run_http`: the actor of the HTTP server.

The listening sockets belong to the process, as the gateway's do: they listen before the daemon says that it is ready, and clients
that connect while the actor is being restarted wait in the kernel's backlog.

Starlette and everything that needs it are imported when the first client connects, not before: 4 MB and a tenth of a second
that an agent which is only used from a terminal never pays for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from actors import Inbox
from pegasus.web.config import WebServices

if TYPE_CHECKING:
    from pegasus.web.app import Doors
    from pegasus.web.server import HttpServer


async def run_http(
    inbox: Inbox[object],
    services: WebServices,
    listeners: Sequence[trio.SocketListener],
    doors: Doors = lambda conversations: (),
) -> None:
    """Serve HTTP on the listeners, which stay open when this ends. doors: returns the routes of other protocols.

    Stopped: accepts no more, lets requests end for a moment, ends. Cancelled: cuts all connections.
    """
    inbox.started()
    stopping = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch_inbox, inbox, stopping)
        if await _has_client(services, listeners, stopping):
            # The import takes a tenth of a second, for which no other actor has to wait.
            server = await trio.to_thread.run_sync(_make_server, services, doors)
            await server.run(listeners, stopping)


def _make_server(services: WebServices, doors: Doors) -> HttpServer:
    """Return the server; import it, and its libraries, first."""
    from pegasus.web.server import make_server

    return make_server(services, doors)


async def _watch_inbox(inbox: Inbox[object], stopping: trio.Event) -> None:
    """Note when the actor is to stop. Nobody sends it messages."""
    async for _ in inbox:
        pass
    stopping.set()


async def _has_client(services: WebServices, listeners: Sequence[trio.SocketListener], stopping: trio.Event) -> bool:
    """Wait until people may connect and somebody has connected; nothing is accepted. Return False if the actor is stopped before."""
    async with trio.open_nursery() as nursery:

        async def wait_for_stop() -> None:
            """Set the block free when the actor is to stop."""
            await stopping.wait()
            nursery.cancel_scope.cancel()

        async def wait_for_client(listener: trio.SocketListener) -> None:
            """Set the block free when a connection waits to be accepted. The server accepts it, once it is imported."""
            await trio.lowlevel.wait_readable(listener.socket)
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait_for_stop)
        # Clients may connect while the daemon is still starting. They stay in the backlog until the agent can
        # answer them.
        await services.may_serve.wait()
        for listener in listeners:
            nursery.start_soon(wait_for_client, listener)
    return not stopping.is_set()
