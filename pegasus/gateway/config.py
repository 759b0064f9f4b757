"""What the gateway is told by its settings."""

from __future__ import annotations

import attrs

from pegasus.intake import Access


@attrs.frozen(eq=False, repr=False, kw_only=True)
class GatewayConfig:
    """How the gateway behaves.

    token: what a client must show. agent: the name in `welcome`. origins: what a browser's Origin header may be.
    access: `allow_from` by channel type. owners: whose messages go first (`agent.owners`).
    Times in seconds: hello_timeout from the TCP connection to a good hello; keepalive:
    how often the silent are pinged, and how long they have to answer; send_timeout for one write.
    queue_frames, queue_bytes: what may wait for one client before it is disconnected.
    """

    token: str
    agent: str = "Pegasus"
    origins: frozenset[str] = frozenset()
    access: Access = attrs.field(factory=Access)
    owners: tuple[str, ...] = ()
    max_frame_bytes: int = 1 << 20
    max_connections: int = 1000
    hello_timeout: float = 10.0
    keepalive: float = 60.0
    send_timeout: float = 30.0
    close_timeout: float = 5.0
    queue_frames: int = 256
    queue_bytes: int = 1 << 20

    def __attrs_post_init__(self) -> None:
        if not self.token:
            raise ValueError("GatewayConfig.token is empty, which everybody would know")


def local_origins(port: int) -> frozenset[str]:
    """The Origins of pages that our own HTTP server gives out on loopback."""
    return frozenset(f"http://{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]"))
