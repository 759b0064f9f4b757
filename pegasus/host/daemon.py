"""Announcement of a daemon that is ready: `run/daemon.json`, the ready line on stdout, and systemd's READY=1.

Clients on the same machine find the daemon by daemon.json: its port may be any free one, and its process is the one to send
a signal to. The file is written when the gateway listens, never before, so that whoever finds it can connect.

A daemon that was killed leaves the file behind, so that a reader also checks that the process is alive. Another process may
have got the same number meanwhile; a client then fails to connect, and the next daemon replaces the file. Whether a daemon
may start is not decided here but by the lock of the home, which cannot be left behind.

systemd's notify protocol (sd_notify(3)) is datagrams of `NAME=value` lines to a Unix socket: systemd starts dependent services
after READY=1, restarts a service whose WATCHDOG=1 stays away, and takes a reload for finished at the READY=1 behind
RELOADING=1. It is two dozen lines, so that no library is needed. Nothing of it blocks or fails: a supervisor that does not
listen is ignored.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from typing import Final

import attrs
import trio

from pegasus import __version__
from pegasus.host.home import Home, write_private
from pegasus.host.process import command_name, print_line, wall_clock
from pegasus.wire import decode_json, encode_line, from_wire, to_wire

TRIAL_LINE: Final = "pegasus has started for a trial"
"""Line on stdout of a version that an update tries. The version before reads it, so it must not change."""

# ------------------------------------------------------------------ systemd


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
        self._variables: dict[str, str] = {}
        """The variables that it was made from."""
        self._status = ""
        """The status of a process that is ready, "" before and once it stops."""
        self.watchdog = watchdog if address else None

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] = os.environ) -> Notifier:
        """Make one from NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, which are removed: they are not meant for children."""
        notifier = cls(environ.get("NOTIFY_SOCKET", ""), _watchdog_seconds(environ))
        for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
            if (value := environ.pop(name, None)) is not None:
                notifier._variables[name] = value
        return notifier

    def hand_on(self, environ: MutableMapping[str, str] = os.environ) -> None:
        """Give the connection to the program that goes on as this process."""
        self._status = ""
        environ.update(self._variables)
        self.sign_of_life()

    def ready(self, status: str) -> None:
        """Notify that everything listens. status: the line that `systemctl status` shows."""
        self._status = status
        self._send(f"READY=1\nSTATUS={status}")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Notify that the settings are being read while the body runs, and that the process is ready again after it, also on an error.

        Nothing is sent before the process is ready and once it stops: the end of the reload would claim the contrary. One at a time.
        """
        if self._status:
            # systemd tells by the time which of its requests is answered; it is that of CLOCK_MONOTONIC.
            self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}\nSTATUS=reading the settings")
        try:
            yield
        finally:
            if self._status:
                self.ready(self._status)

    def stopping(self) -> None:
        """Notify that the process is about to end."""
        self._status = ""
        self._send("STOPPING=1\nSTATUS=stopping")

    def sign_of_life(self) -> None:
        """Send one sign of life, if they are wanted."""
        if self.watchdog:
            self._send("WATCHDOG=1")

    async def keep_alive(self) -> None:
        """Send signs of life, twice as often as wanted, until cancelled; return at once where none are wanted.

        They come from the event loop, so that they stop when it hangs: then the supervisor restarts the process.
        """
        while self.watchdog:
            self.sign_of_life()
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


# ------------------------------------------------------------------ daemon.json


@attrs.frozen
class DaemonInfo:
    """Contents of daemon.json.

    Example::

        daemon = read_daemon(home)
        if daemon is not None:
            print(daemon.ws)  # ws://127.0.0.1:7717
    """

    pid: int
    """Process of the daemon."""
    ws: str
    """Address of the gateway: "ws://127.0.0.1:7717"."""
    http: str | None
    """Address of the HTTP server: "http://127.0.0.1:7718"; None if it is off."""
    version: str
    """Version of Pegasus that runs, which may be older than the one installed now."""
    started_at: int
    """Ms since the epoch."""

    @property
    def ready_line(self) -> str:
        """The line on stdout by which a service manager knows that everything listens."""
        return f"pegasus ready ws={self.ws} http={self.http or '-'} pid={self.pid}"

    @property
    def greeting(self) -> str:
        """The same for a person at a terminal."""
        command = command_name()
        greeting = (
            f"Pegasus is running (process {self.pid}, {self.ws}). Ctrl-C stops it; `{command} chat` in another window "
            "talks with it."
        )
        return f"{greeting} The web page is at {self.http}; `{command} open` signs you in." if self.http else greeting


@contextmanager
def announced(
    home: Home,
    notifier: Notifier,
    *,
    ws: str,
    http: str | None = None,
    clock: Callable[[], int] = wall_clock,
) -> Iterator[DaemonInfo]:
    """Announce the daemon while the body runs.

    On entry: daemon.json, the ready line, READY=1. On exit: STOPPING=1 unless the process is to start again (`ask_to_start_again`),
    and daemon.json is gone. Raises HomeError where daemon.json cannot be written. A closed stdout is no error.
    """
    info = DaemonInfo(os.getpid(), ws, http, __version__, clock())
    with suppress(OSError):  # of a process that had this number and was killed
        home.restart.unlink(missing_ok=True)
    write_private(home.daemon, encode_line(to_wire(info)).decode())
    try:
        # Programs wait for the ready line; a person who sits there gets a sentence instead.
        print_line(info.greeting if os.isatty(1) else info.ready_line)
        notifier.ready(info.ready_line)
        yield info
    finally:
        if is_asked_to_start_again(home):
            notifier.hand_on()
        else:
            notifier.stopping()
        with suppress(OSError):
            home.daemon.unlink(missing_ok=True)


def ask_to_start_again(home: Home, pid: int) -> None:
    """Let this daemon start again, in the same process, when it is stopped in order. Raises HomeError.

    The process keeps its environment, with keys that nobody else has, its terminal, and its place below whoever watches over it.
    """
    write_private(home.restart, f"{pid}\n")


def is_asked_to_start_again(home: Home) -> bool:
    """Return whether this process is to start again."""
    try:
        return home.restart.read_text().strip() == str(os.getpid())
    except (OSError, ValueError):
        return False


def read_daemon(home: Home) -> DaemonInfo | None:
    """Return the daemon of this home, None where none runs: no file, an unreadable one, or one left by a dead process."""
    try:
        info = from_wire(decode_json(home.daemon.read_bytes()), DaemonInfo)
    except (OSError, ValueError):
        return None
    return info if is_alive(info.pid) else None


def is_alive(pid: int) -> bool:
    """Return True if the process runs. One of another user runs too, which kill(2) reports as a missing permission."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0 and not _is_defunct(pid)


def _is_defunct(pid: int) -> bool:
    """Return True for a process that has ended and was not reaped (proc(5), on Linux).

    A container's first process may never reap its children.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])
