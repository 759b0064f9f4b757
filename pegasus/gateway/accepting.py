"""Accepting connections, for this gateway and for the HTTP server: listening sockets, shortages, failures of one connection."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import trio

from pegasus.observe import Logger

BACKLOG = 1024
"""Connections that the kernel keeps for us, also while the server is being restarted."""
RETRY_DELAY = 0.1
"""Seconds before accepting again after the system was short of resources; nothing reports when there are some."""
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""Errors of accept() that pass by themselves."""


async def open_listeners(host: str, port: int) -> list[trio.SocketListener]:
    """Listen for the gateway; port 0 takes any free one (the same for all, if `host` has several addresses).

    The caller keeps and closes the listeners, which outlive restarts of the gateway. Raises OSError (port taken, no such
    address).
    """
    listeners = await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)
    taken = listeners[0].socket.getsockname()[1]
    if port == 0 and len(listeners) > 1:
        for listener in listeners:
            await listener.aclose()
        return await open_listeners(host, taken)
    return listeners


async def accept_connections(
    listener: trio.SocketListener,
    wait_for_room: Callable[[], Awaitable[None]],
    serve: Callable[[trio.SocketStream], None],
    log: Logger,
) -> None:
    """Accept connections for ever. Raises OSError if the listener is broken.

    wait_for_room: waits until another connection may be accepted. serve: begins to serve one, and does not wait for its end.
    """
    while True:
        await wait_for_room()
        try:
            stream = await listener.accept()
        except OSError as error:
            if error.errno not in SHORTAGES:
                raise
            log.error("cannot accept clients for want of resources", error=str(error))
            await trio.sleep(RETRY_DELAY)
        else:
            serve(stream)


@contextmanager
def failures_logged(log: Logger) -> Iterator[None]:
    """Log a failure of one connection, which must not end the others as a crash of the actor would. A cancellation goes on."""
    try:
        yield
    except Exception as error:
        log.exception("a connection failed", error=error)
    except BaseExceptionGroup as group:  # a failure and a cancellation at the same time
        failures, rest = group.split(Exception)
        if failures is not None:
            log.exception("a connection failed", error=failures)
        if rest is not None:
            raise rest from None
