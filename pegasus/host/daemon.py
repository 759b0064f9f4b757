"""Announcement of a daemon that is ready: `run/daemon.json`, the ready line on stdout, and systemd's READY=1.

Clients on the same machine find the daemon by daemon.json: its port may be any free one, and its process is the one to send
a signal to. The file is written when the gateway listens, never before, so that whoever finds it can connect.

A daemon that was killed leaves the file behind, so that a reader also checks that the process is alive. Another process may
have got the same number meanwhile; a client then fails to connect, and the next daemon replaces the file. Whether a daemon
may start is not decided here but by the lock (`lock`), which cannot be left behind.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import attrs

from pegasus import __version__
from pegasus.host.home import Home, write_private
from pegasus.host.notify import Notifier
from pegasus.host.streams import print_line


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
    """Address of the HTTP server, None when it is off."""
    version: str
    """Version of Pegasus that runs, which may be older than the one installed now."""
    started_at: int
    """Ms since the epoch."""

    @property
    def ready_line(self) -> str:
        """The line on stdout by which a service manager knows that everything listens."""
        return f"pegasus ready ws={self.ws} http={self.http or '-'} pid={self.pid}"


@contextmanager
def announced(
    home: Home,
    notifier: Notifier,
    *,
    ws: str,
    http: str | None = None,
    clock: Callable[[], float] = time.time,
) -> Iterator[DaemonInfo]:
    """Announce the daemon while the body runs.

    On entry: daemon.json, the ready line, READY=1. On exit: STOPPING=1, and daemon.json is gone. Raises HomeError
    where daemon.json cannot be written. A closed stdout is no error.
    """
    info = DaemonInfo(os.getpid(), ws, http, __version__, int(clock() * 1000))
    write_private(home.daemon, _encode(info))
    try:
        print_line(info.ready_line)
        notifier.ready(info.ready_line)
        yield info
    finally:
        notifier.stopping()
        with suppress(OSError):
            home.daemon.unlink(missing_ok=True)


def read_daemon(home: Home) -> DaemonInfo | None:
    """Return the daemon of this home, None where none runs: no file, an unreadable one, or one left by a dead process."""
    try:
        raw = json.loads(home.daemon.read_bytes())
        info = DaemonInfo(int(raw["pid"]), str(raw["ws"]), raw["http"], str(raw["version"]), int(raw["startedAt"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    return info if _is_alive(info.pid) else None


def _encode(info: DaemonInfo) -> str:
    """Return the contents of the file."""
    fields = {"pid": info.pid, "ws": info.ws, "http": info.http, "version": info.version, "startedAt": info.started_at}
    return json.dumps(fields) + "\n"


def _is_alive(pid: int) -> bool:
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
