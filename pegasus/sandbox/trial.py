"""A trial of the walls from within: a program that builds them around itself as a command's guard does, and tries what they must stop.

`pegasus.sandbox.probe` runs this file with the bare interpreter, within bubblewrap where that is tried. It prints the names of what
was not stopped, and ends with 0 if the walls stand. Nothing is changed where something is not stopped: rights are set to what they
are, limits are only read. Like the guard it imports nothing of Pegasus.
"""

from __future__ import annotations

import marshal
import os
import resource
import sys

TYPE_CHECKING = False  # importing `typing` takes as long as starting the interpreter
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final
if TYPE_CHECKING or __package__:  # as a part of Pegasus, and not in the bare interpreter
    from pegasus.sandbox import landlock, mounts
else:
    import landlock
    import mounts

_REMOVE: Final = 0
"""Command of semctl that removes a set of semaphores: IPC_RMID."""


def main() -> None:
    """Build the walls of the order on stdin, and print what they do not stop."""
    order: dict[str, Any] = marshal.loads(sys.stdin.buffer.read())  # noqa: S302  from the daemon itself
    walls = order["walls"]
    if walls["mounts"] is not None:
        mounts.change(walls["mounts"])
    os.chdir(order["workspace"])
    landlock.restrict(walls)
    attempts: dict[str, Callable[[], None]] = {
        "files": lambda: os.chmod(order["outside"], os.stat(order["outside"]).st_mode & 0o7777),
        "limits": lambda: _read_limits(order["daemon"]),
        "memory": _make_semaphore,
    }
    found = " ".join(name for name, attempt in attempts.items() if _succeeds(attempt))
    os.write(1, found.encode())


def _succeeds(attempt: Callable[[], None]) -> bool:
    """Return whether an attempt was not refused."""
    try:
        attempt()
    except OSError:
        return False
    return True


def _read_limits(pid: int) -> None:
    """Read a limit of a process; whoever may do that may also set it. Raises OSError."""
    resource.prlimit(pid, resource.RLIMIT_CORE)


def _make_semaphore() -> None:
    """Make System V semaphores that no other program can find, and remove them. Raises OSError."""
    made = landlock.call("semget", 0, 1, 0o600)
    landlock.require(made)
    landlock.call("semctl", made, 0, _REMOVE)


if __name__ == "__main__":
    main()
