"""`HttpServer`: accepts connections and runs them. Imported when the first client connects (`actor`).

At most `max_connections` are open. When they are that many, the one that has been idle the longest is closed; where none is idle, new
ones wait. So somebody who opens connections and says nothing keeps nobody out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import h11
import trio

from actors import ActorError, Signal
from pegasus.gateway import ServeConnection, accept_connections
from pegasus.observe import get_logger
from pegasus.storage import StorageError
from pegasus.web.app import Doors, WebApplication, build_application
from pegasus.web.config import WebServices
from pegasus.web.connection import HttpConnection
from pegasus.web.routes import EventFeed, gather_events
from pegasus.web.visitors import AccessRules, ApiError, RequestIdentity
from pegasus.websocket import Handshake

LAST_WORDS: Final = 1.0
"""Seconds in which clients whose requests are ended by a stop may read that."""

_log = get_logger("web")


class HttpServer:
    """The connections of one run of the server.

    An object serves one run of the actor. After a crash the next run makes a new one; the listeners stay.

    How it stops: no connection is accepted any more; idle ones are closed; those with a request under way have `stop_time` seconds;
    those that are left are told that the agent stops, and whoever does not read that is cut. Streams of events end at once, since they
    would never end by themselves.
    """

    def __init__(self, services: WebServices, rules: AccessRules, application: WebApplication, feed: EventFeed) -> None:
        self._services = services
        self._rules = rules
        self._application = application
        self._feed = feed
        self._stopping: trio.Event
        """Set when the server stops; connections are closed behind the response that is under way."""
        self._limit = services.config.now.max_connections
        self._nursery: trio.Nursery
        """The tasks of the connections."""
        self._open: dict[HttpConnection, None] = {}
        self._idle: dict[HttpConnection, None] = {}
        """Those that wait for a request, the one that has waited the longest first."""
        self._changed = Signal()
        """Woken whenever a connection has ended."""

    async def run(self, listeners: Sequence[trio.SocketListener], stopping: trio.Event) -> None:
        """Accept connections and serve them until `stopping` is set, and for `stop_time` seconds those whose requests are under way.

        Raises OSError if a listener is broken. Cancelled, all connections are cut.
        """
        self._stopping = stopping
        async with trio.open_nursery() as self._nursery:
            # Ends with the nursery; it belongs to the server and not to one stream.
            self._nursery.start_soon(gather_events, self._services, self._feed)
            async with trio.open_nursery() as accepting:
                self._application.nursery = accepting
                for listener in listeners:
                    accepting.start_soon(accept_connections, listener, self._wait_for_room, self._begin, _log)
                await stopping.wait()
                accepting.cancel_scope.cancel()
            if self._services.process_ends.is_set():
                for listener in listeners:
                    await listener.aclose()
            self._feed.close()
            for connection in list(self._idle):
                connection.cut()
            await self._wait_for_all(self._services.config.now.stop_time)
            self._application.end_requests()
            await self._wait_for_all(LAST_WORDS)
            self._nursery.cancel_scope.cancel()

    async def _wait_for_all(self, seconds: float) -> None:
        """Wait until no connection is open, or for so many seconds."""
        with trio.move_on_after(seconds):
            while self._open:
                await self._changed.wait()

    async def _wait_for_room(self) -> None:
        """Wait until there is room for a connection; close the one that has been idle the longest if there is none.

        Called before each accept, so further clients wait in the kernel's backlog. A connection that is cut
        leaves `_open` only when its task has ended, for which this waits as well.
        """
        while len(self._open) >= self._limit:
            if self._idle:
                connection = next(iter(self._idle))
                del self._idle[connection]
                connection.cut()
            await self._changed.wait()

    def _begin(self, stream: trio.SocketStream) -> None:
        self._nursery.start_soon(self._serve, stream)

    async def _serve(self, stream: trio.SocketStream) -> None:
        """Serve a connection to its end.

        It counts as open before its first byte was read. However its task ends, also by a cancel, it is taken out again, and an
        accept that waits for room is woken.
        """
        parts = (self._application, self._services.config, self._stopping, stream)
        connection = HttpConnection(*parts, self._admits, self._upgrade, self._note_idle)
        self._open[connection] = None
        try:
            await connection.run()
        finally:
            self._open.pop(connection)
            self._idle.pop(connection, None)
            self._changed.notify()

    def _note_idle(self, connection: HttpConnection, is_idle: bool) -> None:
        """Note that a connection has become idle or busy. The idle ones are sorted by the time at which their wait began."""
        self._idle.pop(connection, None)
        if is_idle:
            self._idle[connection] = None
            self._changed.notify()

    def _admits(self, request: h11.Request) -> bool:
        """Return whether a WebSocket is opened. If not, the application answers with the reason."""
        try:
            self._rules.admit_socket(request.headers)
        except ApiError:
            return False
        return True

    async def _upgrade(self, stream: trio.abc.Stream, handshake: Handshake) -> None:
        """Hand a WebSocket to the gateway, and wait until its client has gone.

        The cookie is checked again, because the settings may have changed since `_admits`. If it cannot be checked, or when the
        client is signed out, the connection is closed. The gateway answers when the client has gone; if the gateway crashes, its
        clients are cut and connect again.
        """
        try:
            visitor = await self._rules.identify_socket(handshake.request.headers)
        except (StorageError, ActorError) as error:
            _log.warning("a WebSocket is closed: it cannot be known whether its cookie counts", error=str(error))
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cut_with_session, visitor, nursery.cancel_scope)
            try:
                await self._services.gateway.ask(ServeConnection, stream, handshake, visitor.grant)
            except ActorError as error:
                _log.warning("a WebSocket ends with the gateway", error=str(error))
            nursery.cancel_scope.cancel()

    async def _cut_with_session(self, visitor: RequestIdentity, work: trio.CancelScope) -> None:
        """End a WebSocket when its browser is signed out. The gateway itself ends those whose token is revoked, and says so."""
        if visitor.session:
            await self._services.sessions.until_ended(visitor.session)
            work.cancel()


def make_server(services: WebServices, doors: Doors) -> HttpServer:
    """Return a server with all routes. Reads the files of the page, so it blocks for some milliseconds."""
    rules = AccessRules(services.config, services.gateway_config, services.sessions)
    feed = EventFeed(services.clock())
    return HttpServer(services, rules, build_application(services, rules, feed, doors), feed)
