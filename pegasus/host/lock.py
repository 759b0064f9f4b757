"""Lock that keeps a second daemon out of a home.

It is an flock(2) on `<home>/lock`: the kernel releases it when the process ends, in whatever way, so that no lock file has
to be cleaned up after a crash. The descriptor is not inherited, so that a command that outlives the daemon does not hold it.

Commands that change files while no daemon runs (`pegasus memory undo`) hold the same lock, so that a daemon cannot start in
the middle of their change. On a network file system the lock is only as safe as that system's flock(2).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from pegasus.host.home import Home, HomeError, reason


class HomeBusy(HomeError):
    """A home that another daemon owns."""

    pid: int | None
    """Process of that daemon, where it is known."""

    def __init__(self, home: Home, pid: int | None) -> None:
        who = f"process {pid}" if pid else "another process"
        message = f"{home}: {who} already runs Pegasus here; stop it, or give another --home or --profile"
        super().__init__(message, exit_code=75)
        self.pid = pid


@contextmanager
def own_home(home: Home) -> Iterator[None]:
    """Make the home's folders and hold the lock while the body runs. Raises HomeBusy, HomeError."""
    home.prepare()
    descriptor = _open(home)
    try:
        _acquire(descriptor, home)
        yield
    finally:
        os.close(descriptor)


def _open(home: Home) -> int:
    """Open the lock file, which is made if it is not there."""
    try:
        return os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HomeError(f"{home.lock}: cannot be opened ({reason(error)}); the home must be writable") from None


def _acquire(descriptor: int, home: Home) -> None:
    """Lock the file and write the pid into it, for the error message of the next daemon: daemon.json comes only later."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        raise HomeBusy(home, _owner(descriptor)) from None
    except OSError as error:
        raise HomeError(f"{home.lock}: cannot be locked ({reason(error)}); is the disk full or read-only?") from None


def _owner(descriptor: int) -> int | None:
    """Return the pid in the lock file, None if there is none."""
    try:
        return int(os.pread(descriptor, 32, 0))
    except (OSError, ValueError):
        return None
