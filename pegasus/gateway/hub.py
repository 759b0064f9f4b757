"""What the gateway's connections share: who is connected, and what comes from the agent for them."""

from __future__ import annotations

import trio

from actors import Ref
from pegasus.gateway import render
from pegasus.gateway.config import GatewayConfig
from pegasus.gateway.connection import Connection
from pegasus.gateway.control import Methods
from pegasus.gateway.frames import Hello
from pegasus.gateway.replies import Replies
from pegasus.gateway.routes import Routes
from pegasus.intake import Intake
from pegasus.messages import Address, OutboundMessage, Progress, Typing
from pegasus.observe import get_logger
from pegasus.protocol import GOING_AWAY
from pegasus.storage import JournalMessage

GOODBYE = 2.0
"""Seconds all clients together have to answer our goodbye when the gateway stops."""

_log = get_logger("gateway")


class Hub:
    """One for each run of the gateway."""

    def __init__(self, config: GatewayConfig, journal: Ref[JournalMessage], methods: Methods) -> None:
        self.config = config
        self.journal = journal
        self.methods = methods
        self.intake = Intake(journal, config.access, config.owners)
        self.routes: Routes[Connection] = Routes()
        self._connections: dict[Connection, None] = {}
        self._all_gone = trio.Event()

    # ---------------------------------------------------------------- what comes from the agent

    def deliver(self, message: OutboundMessage) -> None:
        """A reply, for whoever is connected; it waits in the outbox for the others."""
        for client in self.routes.clients(message.channel.address):
            if client.replies is not None:
                client.replies.deliver(message)

    def typing(self, typing: Typing) -> None:
        """Tell that the agent thinks, or has thought. The end of a turn is told after the replies it gave."""
        if listeners := self._listeners(typing.channel.address):
            frame = render.typing(typing)
            for replies in listeners:
                replies.after(typing.channel.channel_id, frame, typing.after)

    def progress(self, draft: Progress) -> None:
        """Show a reply while it is written. A client that is behind goes without: the next one has all of the text."""
        if listeners := self._listeners(draft.channel.address):
            frame = render.progress(draft)
            for replies in listeners:
                replies.draft(draft.channel.channel_id, frame)

    def _listeners(self, address: Address) -> list[Replies]:
        """Of those who are connected for an address, the ones that have their welcome."""
        return [one.replies for one in self.routes.clients(address) if one.greeted and one.replies is not None]

    def catch_up(self) -> None:
        """Some replies were not handed over: everybody reads what is missing."""
        for client in list(self._connections):
            if client.replies is not None:
                client.replies.catch_up_all()

    # ---------------------------------------------------------------- connections

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection from its first byte to its last; its mistakes, and ours in it, cost nobody else anything."""
        try:
            if len(self._connections) < 2 * self.config.max_connections:
                await self._serve(Connection(self, stream, refused=self._refusal()))
        except Exception as error:
            _log.exception("a connection failed", error=error)
        except BaseExceptionGroup as group:  # a failure and a cancellation at once
            failures, rest = group.split(Exception)
            if failures is not None:
                _log.exception("a connection failed", error=failures)
            if rest is not None:
                raise rest from None
        finally:
            await trio.aclose_forcefully(stream)

    async def _serve(self, connection: Connection) -> None:
        self._connections[connection] = None
        try:
            await connection.run()
        finally:
            del self._connections[connection]
            if not self._connections:
                self._all_gone.set()

    def _refusal(self) -> str:
        limit = self.config.max_connections
        return "" if len(self._connections) < limit else f"{limit} clients are connected, which is the limit; try later"

    def left(self, connection: Connection, hello: Hello) -> None:
        """A greeted client has gone; bridges take over what it did not acknowledge."""
        bridges = self.routes.remove(hello, connection)
        for bridge in bridges:
            if bridge.replies is not None and hello.channel is not None:
                bridge.replies.catch_up(hello.channel.channel_id)

    async def keep_alive(self) -> None:
        """Once in a while, ping who is silent, and cut off who did not answer the last time."""
        while True:
            await trio.sleep(self.config.keepalive)
            now = trio.current_time()
            for client in list(self._connections):
                silent = now - client.heard_at
                if client.pinged_at > client.heard_at:
                    _log.info("a client is taken for dead", client=str(client), silent=round(silent))
                    client.cut()
                elif silent >= self.config.keepalive:
                    client.pinged_at = now
                    client.outgoing.ping()

    async def goodbye(self) -> None:
        """Close all connections; returns when they are, or after GOODBYE seconds."""
        for client in list(self._connections):
            client.close(GOING_AWAY, "the gateway is stopping")
        if self._connections:
            self._all_gone = trio.Event()
            with trio.move_on_after(GOODBYE):
                await self._all_gone.wait()
