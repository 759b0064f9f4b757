"""systemd's notify protocol (sd_notify(3)): datagrams of `NAME=value` lines to a Unix socket.

systemd starts dependent services after READY=1, and restarts a service whose WATCHDOG=1 stays away. The protocol is a
dozen lines, so that no library is needed. Nothing here blocks or fails: a supervisor that does not listen is ignored.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping

import trio


class Notifier:
    """Connection to the supervisor that started the process; without one every call does nothing.

    address: the socket's path, "@…" for an abstract one, "" for none. A message that cannot be sent at once is lost.

    Example::

        notifier = Notifier.from_environment()
        nursery.start_soon(notifier.keep_alive)
        notifier.ready("pegasus ready")
    """

    watchdog: float | None
    """Seconds within which the supervisor wants a sign of life, None if it wants none."""

    def __init__(self, address: str = "", watchdog: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog = watchdog if address else None

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] = os.environ) -> Notifier:
        """Make one from NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, which are removed: they are not meant for children."""
        notifier = cls(environ.get("NOTIFY_SOCKET", ""), _watchdog_seconds(environ))
        for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
            environ.pop(name, None)
        return notifier

    def ready(self, status: str) -> None:
        """Notify that everything listens. status: the line that `systemctl status` shows."""
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        """Notify that the process is about to end."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def alive(self) -> None:
        """Send one sign of life."""
        self._send("WATCHDOG=1")

    async def keep_alive(self) -> None:
        """Send signs of life, twice as often as wanted, until cancelled; return at once where none are wanted.

        They come from the event loop, so that they stop when it hangs: then the supervisor restarts the process.
        """
        while self.watchdog:
            self.alive()
            await trio.sleep(self.watchdog / 2)

    def _send(self, message: str) -> None:
        """Send one datagram. A socket that does not exist or is full is ignored; ValueError: a path that is too long."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(message.encode(), self._address)
        except (OSError, ValueError):
            return


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """Return the interval of the watchdog if it is meant for this process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    usec = environ.get("WATCHDOG_USEC", "")
    return int(usec) / 1e6 if usec.isascii() and usec.isdigit() and int(usec) > 0 else None
