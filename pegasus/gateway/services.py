"""Objects that the connections of one run of the gateway share, and the question by which the HTTP server hands one over.

`connection` stands on wsproto and h11 and is imported when the first client connects; this is what the server needs before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from actors import Reply
from pegasus.access import TokenGrant
from pegasus.gateway.config import GatewayConfig, Methods
from pegasus.gateway.delivery import Hub
from pegasus.intake import Intake
from pegasus.observe import get_logger
from pegasus.settings import LiveValue

if TYPE_CHECKING:  # imports wsproto and h11, which a daemon without clients does not need
    from pegasus.websocket import Handshake

_log = get_logger("gateway")


class RefusalLog:
    """The log lines about refused clients, at most PER_MINUTE.

    A program without a token can connect, and be refused, as often as it likes. Without a bound it could fill the disk with log
    lines.
    """

    PER_MINUTE = 20
    """Lines a minute. Somebody who sets up a client and gets the token wrong sees all of them."""

    def __init__(self) -> None:
        self._since = -60.0
        """Begin of the present minute, on Trio's clock."""
        self._lines = 0
        """Refusals since then, logged or not."""

    def log(self, client: str, code: str, reason: str) -> None:
        """Log that a client was refused. What is left out is counted, and the count is logged a minute later at the earliest."""
        now = trio.current_time()
        if now - self._since >= 60.0:
            if self._lines > self.PER_MINUTE:
                _log.info("more clients were refused than were logged", unlogged=self._lines - self.PER_MINUTE)
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines <= self.PER_MINUTE:
            _log.info("refused a client", client=client, code=code, reason=reason)


@attrs.frozen(eq=False, repr=False)
class GatewayServices:
    """The objects that all connections of one run of the gateway share."""

    config: LiveValue[GatewayConfig]
    """Bounds, token, and the agent's name."""
    intake: Intake
    """Takes the clients' messages."""
    hub: Hub
    """Gives the clients what comes from the agent."""
    methods: Methods
    """Methods that the clients may call."""
    refusals: RefusalLog = attrs.field(factory=RefusalLog)
    """Log of refused clients."""


@attrs.frozen(eq=False, repr=False)
class ServeConnection:
    """Question: serve a client that has connected to the HTTP server; answered when it has gone.

    The HTTP server has looked at its handshake: it comes from an allowed page, or from no page at all. The gateway owns the stream
    from now on. If the asker leaves, the connection is cut.
    """

    reply: Reply[None]
    """Handle for the end of the connection; its value is always None."""
    stream: trio.abc.Stream
    """The connection, from which the request of a WebSocket handshake was read."""
    handshake: Handshake
    """That request."""
    grant: TokenGrant | None
    """Rights of its cookie, which count where the hello has no token; None: it has none."""
