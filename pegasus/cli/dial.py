"""How a command finds the daemon of its home."""

from __future__ import annotations

from pegasus.client import Endpoint, NotConnected
from pegasus.host import Home, HomeError, read_daemon, read_token
from pegasus.settings import Settings


def find_daemon(home: Home, settings: Settings) -> Endpoint:
    """Where it listens and the token. Raises NotConnected, which says how to start one, if none is running."""
    daemon = read_daemon(home)
    if daemon is None:
        raise NotConnected(f"no daemon is running in {home}; start one with: pegasus run")
    try:
        return Endpoint(daemon.ws, read_token(home, settings.gateway.token))
    except HomeError as error:
        raise NotConnected(str(error)) from None
