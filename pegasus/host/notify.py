"""systemd's notify protocol (sd_notify(3)), spoken directly: datagrams of `NAME=value` lines to a Unix socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping

import trio


class Notifier:
    """Speaks to the supervisor that started the process; without one every call does nothing.

    address: the socket's path, "@…" for an abstract one, "" for none. watchdog: seconds within which the supervisor
    wants a sign of life, or None. A message is never waited for: if it cannot be sent at once, it is lost.
    """

    def __init__(self, address: str = "", watchdog: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog = watchdog if address else None

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] = os.environ) -> Notifier:
        """As NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID say. They are removed: they are not meant for children."""
        notifier = cls(environ.get("NOTIFY_SOCKET", ""), _watchdog_seconds(environ))
        for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
            environ.pop(name, None)
        return notifier

    def ready(self, status: str) -> None:
        """Everything listens; status is the line that `systemctl status` shows."""
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        """The process is about to end."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def alive(self) -> None:
        """One sign of life."""
        self._send("WATCHDOG=1")

    async def keep_alive(self) -> None:
        """Signs of life, twice as often as wanted, until cancelled; returns at once where none are wanted.

        They come from the event loop, so that they stop when it hangs, which is what the watchdog is for.
        """
        while self.watchdog:
            self.alive()
            await trio.sleep(self.watchdog / 2)

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(message.encode(), self._address)
        except (OSError, ValueError):
            return


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    usec = environ.get("WATCHDOG_USEC", "")
    return int(usec) / 1e6 if usec.isascii() and usec.isdigit() and int(usec) > 0 else None
