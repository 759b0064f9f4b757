"""The gateway's actor: accepts connections, serves them, and passes on what the switchboard sends.

The listening sockets belong to the process, not to the actor. When the actor crashes and is restarted, clients that connect in
between wait in the kernel's backlog instead of being refused. The HTTP server listens and accepts with the same functions.

Connections that have shown no token yet must not keep out those that can. So a connection passes three stages:

1. *Pending*: it was accepted and has sent nothing. It costs a descriptor and a task, and there may be MAX_PENDING of them. When
   they are that many, those that have been silent for SILENT_TIME are cut, so a thousand silent connections keep out nobody
   for longer than a second.
2. *Newcomer*: it has sent something, and holds one of MAX_NEWCOMERS places until it has greeted or ended. For each there is
   memory and work, within the bounds of `Connection`.
3. *Client*: it has greeted with the token. There may be `max_connections` of them.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeAlias

import trio

from actors import Inbox, Signal
from pegasus.channels import AdapterMessage, CatchUp, DeliverReply
from pegasus.gateway.config import MAX_NEWCOMERS, MAX_PENDING, SILENT_TIME, GatewayConfig, LateMethods, Methods
from pegasus.gateway.delivery import Hub, Listeners, OpenApprovals, OpenTasks
from pegasus.gateway.services import GatewayServices, ServeConnection
from pegasus.intake import Intake
from pegasus.messages import ApprovalNotice, FileEdit, ReplyDraft, Said, TaskProgress, Typing
from pegasus.observe import Logger, get_logger
from pegasus.protocol import GOING_AWAY, STOPPING
from pegasus.settings import LiveValue

if TYPE_CHECKING:  # imports wsproto and h11, which a daemon without clients does not need
    from pegasus.gateway.connection import Connection

GOODBYE_TIME = 2.0
"""Seconds that all clients together have to answer the close frame when the gateway stops."""
BACKLOG = 1024
"""Connections that the kernel keeps for us, also while the server is being restarted."""
RETRY_DELAY = 0.1
"""Seconds before accepting again after the system was short of resources; nothing reports when there are some."""
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""Errors of accept() that pass by themselves."""

_log = get_logger("gateway")


GatewayMessage: TypeAlias = AdapterMessage | ServeConnection


async def run_gateway(
    inbox: Inbox[GatewayMessage],
    config: LiveValue[GatewayConfig],
    intake: Intake,
    sockets: Sequence[trio.SocketListener],
    methods: Methods,
    open_tasks: OpenTasks | None = None,
    open_approvals: OpenApprovals | None = None,
    listeners: Listeners | None = None,
) -> None:
    """Serve WebSocket clients on the sockets, which stay open when this ends.

    open_tasks, open_approvals: return the unfinished tasks, and the calls that wait for an owner, which a client is shown after its
    welcome; None: there are none. listeners: readers in the process of what the agent says; None: there are none.
    Stopped: accepts no more, closes all connections (GOODBYE_TIME seconds), ends. Cancelled: cuts all connections.
    """
    # Hub and connections belong to this run. After a crash the clients connect again, and the new hub fills by that;
    # the sockets are older than the actor, so clients that connect meanwhile wait in the backlog instead of being
    # refused.
    hub = Hub(intake.journal, open_tasks, open_approvals, intake.owners, listeners or Listeners())
    all_methods = LateMethods(lambda: {**methods, "clients": hub.list_clients})
    server = Server(GatewayServices(config, intake, hub, all_methods))
    async with trio.open_nursery() as nursery:
        accepting = trio.CancelScope()
        nursery.start_soon(_accept_all, server, sockets, accepting, nursery)
        inbox.started()
        async for message in inbox:
            match message:
                case DeliverReply(reply):
                    await hub.deliver(reply)
                case Typing():
                    hub.typing(message)
                case ReplyDraft():
                    hub.progress(message)
                case TaskProgress():
                    hub.task(message)
                case FileEdit():
                    hub.edit(message)
                case Said():
                    hub.said(message)
                case ApprovalNotice():
                    hub.approval(message)
                case CatchUp():
                    hub.catch_up()
                case ServeConnection():
                    nursery.start_soon(server.serve_visitor, message)
        # First nobody new comes in, then those that are here are told to go, and last, whoever has not gone is cut.
        accepting.cancel()
        await server.close_all()
        nursery.cancel_scope.cancel()


async def _accept_all(
    server: Server, sockets: Sequence[trio.SocketListener], scope: trio.CancelScope, connections: trio.Nursery
) -> None:
    """Accept from all sockets until the scope is cancelled; the connections live on in their own nursery."""

    def serve(stream: trio.SocketStream) -> None:
        connections.start_soon(server.admit, stream)

    with scope:
        async with trio.open_nursery() as nursery:
            for socket in sockets:
                nursery.start_soon(accept_connections, socket, server.wait_for_room, serve, _log)


class Server:
    """The connections of one run of the gateway, in their three stages (see the top of this file).

    A test may leave out the first stage and the listener: `serve(stream, await take_place())`.
    """

    def __init__(self, services: GatewayServices) -> None:
        self._services = services
        self._connections: dict[Connection, None] = {}
        """All open connections, the oldest first."""
        self._places = trio.Semaphore(MAX_NEWCOMERS)
        """The places for newcomers."""
        self._pending = 0
        """Connections that were accepted and have no place yet."""
        self._pending_changed = Signal()
        """Given whenever a pending connection has got a place or ended."""
        self._silent: dict[trio.CancelScope, float] = {}
        """The connections that have sent nothing yet: the scope whose cancellation closes each, and Trio's time at which it was
        accepted."""
        self._ended = Signal()
        """Given whenever a connection has ended."""

    async def wait_for_room(self) -> None:
        """Wait until fewer than MAX_PENDING connections are pending, cutting silent ones.

        Only those that have been silent for SILENT_TIME are cut. When many real clients connect at the same moment, their
        process may take a while to send something on the last of its connections.
        """
        while self._pending >= MAX_PENDING:
            with trio.move_on_after(SILENT_TIME) as patience:
                await self._pending_changed.wait()
            if patience.cancelled_caught:  # nobody has left by itself
                now = trio.current_time()
                for scope, accepted_at in self._silent.items():
                    if now - accepted_at >= SILENT_TIME:
                        scope.cancel()

    async def admit(self, stream: trio.SocketStream) -> None:
        """Wait until a connection has sent something, then for a place, then serve it.

        A connection that sends nothing within the hello timeout is closed. The wait for a place has no deadline of its own:
        each place becomes free within the hello timeout and the close timeout.
        """
        self._pending += 1
        try:
            with trio.move_on_after(self._services.config.now.hello_timeout) as scope:
                self._silent[scope] = trio.current_time()
                # Nothing is read here. A program that connects and says nothing costs a socket and a small task, not a
                # place.
                await trio.lowlevel.wait_readable(stream.socket)
            if not scope.cancelled_caught:
                place = await self.take_place()
        finally:
            # Both on success and on a cancel: a connection that is counted for ever would take a place from all later
            # ones.
            self._silent.pop(scope, None)
            self._pending -= 1
            self._pending_changed.notify()
        if scope.cancelled_caught:
            await trio.aclose_forcefully(stream)
        else:
            await self.serve(stream, place)

    async def take_place(self) -> ExitStack:
        """Wait for one of the places for newcomers. It is free again once what is returned is closed."""
        await self._places.acquire()
        place = ExitStack()
        place.callback(self._places.release)
        return place

    async def serve_visitor(self, request: ServeConnection) -> None:
        """Serve a client of the HTTP server, which has limits of its own for connections that say nothing."""
        # The asker is the HTTP server. When it leaves, the scope is cancelled, and with it the connection is cut.
        with request.reply.scope():
            place = await self.take_place()
            await self.serve(request.stream, place, request)
            request.reply.send(None)

    async def serve(self, stream: trio.abc.Stream, place: ExitStack, visitor: ServeConnection | None = None) -> None:
        """Serve one connection from its first byte to its last, then close its stream. visitor: see `Connection`.

        A failure in it is logged and ends this connection only: a mistake in the code for one client must not disconnect all
        others, which a crash of the actor would. Cancelled, the connection is cut.
        """
        # With wsproto and h11, which a start need not wait for (15 ms) and an agent that nobody talks to this way never needs.
        from pegasus.gateway.connection import Connection

        # The limit is asked before the connection counts itself. A refused client still gets its handshake, because
        # only over an open WebSocket can it be told why.
        connection = Connection(self._services, stream, place, self._refusal(), visitor)
        self._connections[connection] = None
        try:
            with failures_logged(_log):
                await connection.run()
        finally:
            del self._connections[connection]
            place.close()
            self._ended.notify()
            await trio.aclose_forcefully(stream)

    async def close_all(self) -> None:
        """Close all connections. Returns when they have ended, or after GOODBYE_TIME seconds."""
        for connection in self._connections:
            connection.close(GOING_AWAY, STOPPING)
        with trio.move_on_after(GOODBYE_TIME):
            while self._connections:
                await self._ended.wait()

    def _refusal(self) -> str:
        """Return why the next connection is refused, "" if there is room. The client gets it as an error frame after its handshake."""
        limit = self._services.config.now.max_connections
        return "" if len(self._connections) < limit else f"{limit} clients are connected, which is the limit; try later"


# ------------------------------------------------------------------ listening, for the HTTP server too


async def open_listeners(host: str, port: int) -> list[trio.SocketListener]:
    """Listen for the gateway; port 0 takes any free one (the same for all, if `host` has several addresses).

    The caller keeps and closes the listeners, which outlive restarts of the gateway. Raises OSError (port taken, no such
    address).
    """
    listeners = await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)
    taken = listeners[0].socket.getsockname()[1]
    # The system gave each address a port of its own. The first one is tried for all of them; another process may have
    # taken it on the other address, which is then an OSError of the caller.
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
