"""Ending the processes of a command whose guard cannot do it any more: a search through /proc.

A command can kill or stop its own guard. Its processes are then found in two ways: as descendants
of the guard, while that still exists, and by a mark in their environment. Only a process that has
also replaced its environment escapes both.

Between reading about a process and killing it, the process can end and its number can be given to
another one. Numbers are reused only after all others have been used, so this does not happen within
the few milliseconds that a search takes.

Everything here blocks, so it runs in a thread, for at most `_MAX_SECONDS`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Final

from pegasus.sandbox.guard import children

_MAX_SECONDS: Final = 2.0
"""A process that forks faster than this can kill would otherwise hold the call for ever."""
_PAUSE: Final = 0.05
"""Seconds between two searches, far longer than a process needs to become another program."""


def kill_marked(mark: str) -> None:
    """Kill every process that has `mark` ("NAME=value") in its environment.

    A process that is just becoming another program shows an empty environment for a moment. So the
    search is repeated until no marked process is left and no process has an empty environment that
    had none before.
    """
    wanted, hidden_before = mark.encode(), frozenset[int]()
    until = time.monotonic() + _MAX_SECONDS
    while time.monotonic() < until:
        marked, hidden = _search(wanted)
        if not sum(map(_kill, marked)):
            if hidden <= hidden_before:
                return
            hidden_before = hidden
            time.sleep(_PAUSE)


def kill_descendants(pid: int) -> None:
    """Kill every process below `pid`, until none is left alive. `pid` itself has to reap them."""
    until = time.monotonic() + _MAX_SECONDS
    while time.monotonic() < until and sum(map(_kill, _descendants(pid))):
        pass


def _kill(pid: int) -> bool:
    """Kill a process. Return False if it was gone, already dead, or not ours."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of a program stands in brackets and may hold anything, so the state is looked for behind the last
            # one.
            if file.read().rpartition(b")")[2].split()[0] in b"ZX":
                return False
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def _search(mark: bytes) -> tuple[list[int], frozenset[int]]:
    """Return the processes that have the mark, and those whose environment is empty."""
    marked: list[int] = []
    hidden: list[int] = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():  # not on macOS
        if name.isdigit() and int(name) != os.getpid():
            try:
                environment = _read_environment(name)
            except OSError:
                continue
            if not environment:
                hidden.append(int(name))
            elif mark in environment.split(b"\0"):
                marked.append(int(name))
    return marked, frozenset(hidden)


def _read_environment(pid: str) -> bytes:
    """Return the environment of a process, as it was when its program started."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()


def _descendants(pid: int) -> Iterator[int]:
    """Yield the processes below `pid`, parents before their children."""
    for child in children(pid):
        yield child
        yield from _descendants(child)
