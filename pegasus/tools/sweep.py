"""Ending processes whose guard cannot: a last look through /proc. Blocking; runs in a thread, for two seconds at most."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Final

from pegasus.tools.guard import children

_LONGEST: Final = 2.0  # seconds


def marked(mark: str) -> None:
    """KILL every process that was started with `mark` ("NAME=value") in its environment."""
    _repeat(lambda: _bearers(mark.encode()))


def below(pid: int) -> None:
    """KILL every process below `pid`, which is left to collect them."""
    _repeat(lambda: _descendants(pid))


def _repeat(find: Callable[[], Iterator[int]]) -> None:
    until = time.monotonic() + _LONGEST
    while time.monotonic() < until:
        found = [pid for pid in find() if _kill(pid)]
        if not found:
            return


def _kill(pid: int) -> bool:
    """True if it was there, alive, and ours to end."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            if file.read().rpartition(b")")[2].split()[0] in b"ZX":
                return False
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def _bearers(mark: bytes) -> Iterator[int]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        yield int(name)
            except OSError:
                continue


def _descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from _descendants(child)
