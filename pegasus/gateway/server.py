"""The gateway's actor: listens, serves connections, and passes on what the switchboard brings."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial

import trio

from actors import Inbox, Ref
from pegasus.channels import AdapterMessage, CatchUp, DeliverReply
from pegasus.gateway.config import GatewayConfig
from pegasus.gateway.control import Methods
from pegasus.gateway.hub import Hub
from pegasus.messages import Progress, Typing
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage

BACKLOG = 1024
"""Connections the kernel keeps for us, also while the gateway is being restarted."""
_SHORT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_log = get_logger("gateway")


async def open_listeners(host: str, port: int) -> list[trio.SocketListener]:
    """Listen, for the gateway to accept; port 0 takes any free one (the same for all, if `host` has several addresses).

    The caller keeps and closes them: they outlive restarts of the gateway. Raises OSError (port taken, no such address).
    """
    listeners = await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)
    taken = listeners[0].socket.getsockname()[1]
    if port == 0 and len(listeners) > 1:
        for listener in listeners:
            await listener.aclose()
        return await open_listeners(host, taken)
    return listeners


async def run_gateway(
    inbox: Inbox[AdapterMessage],
    config: GatewayConfig,
    journal: Ref[JournalMessage],
    listeners: Sequence[trio.SocketListener],
    methods: Methods,
) -> None:
    """Serve WebSocket clients on the listeners, which stay open when this ends.

    Told to stop: accepts no more, says goodbye to all clients (two seconds), ends. Cancelled: cuts all connections.
    """
    async with trio.open_nursery() as nursery:
        hub = Hub(config, journal, methods)
        accepting = trio.CancelScope()
        nursery.start_soon(_accept, listeners, hub, accepting, nursery)
        nursery.start_soon(hub.keep_alive)
        inbox.started()
        async for message in inbox:
            match message:
                case DeliverReply(reply):
                    hub.deliver(reply)
                case Typing():
                    hub.typing(message)
                case Progress():
                    hub.progress(message)
                case CatchUp():
                    hub.catch_up()
        accepting.cancel()
        await hub.goodbye()
        nursery.cancel_scope.cancel()


async def _accept(
    listeners: Sequence[trio.SocketListener], hub: Hub, scope: trio.CancelScope, connections: trio.Nursery
) -> None:
    with scope:
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                nursery.start_soon(_accept_from, listener, hub, connections)


async def _accept_from(listener: trio.SocketListener, hub: Hub, connections: trio.Nursery) -> None:
    while True:
        try:
            stream = await listener.accept()
        except OSError as error:
            if error.errno not in _SHORT_OF:
                raise
            _log.error("cannot accept clients for want of resources", error=str(error))
            await trio.sleep(0.1)  # as trio.serve_listeners does: nothing tells when there are some again
        else:
            connections.start_soon(partial(hub.serve, stream))
