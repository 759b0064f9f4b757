"""Ending processes whose guard cannot: a last look through /proc. Blocking; runs in a thread, for two seconds at most."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from typing import Final

from pegasus.tools.guard import children

_LONGEST: Final = 2.0  # seconds
_PAUSE: Final = 0.05  # seconds between two looks, far longer than a process takes to become another program


def marked(mark: str) -> None:
    """KILL every process that was started with `mark` ("NAME=value") in its environment."""
    wanted, before = mark.encode(), frozenset[int]()
    until = time.monotonic() + _LONGEST
    while time.monotonic() < until:
        bearers, hidden = _look(wanted)
        if not _kill_all(bearers):
            if hidden <= before:
                return
            before = hidden
            time.sleep(_PAUSE)


def below(pid: int) -> None:
    """KILL every process below `pid`, which is left to collect them."""
    until = time.monotonic() + _LONGEST
    while time.monotonic() < until and _kill_all(_descendants(pid)):
        pass


def _kill_all(pids: Iterable[int]) -> int:
    """How many were there."""
    return sum(map(_kill, pids))


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


def _look(mark: bytes) -> tuple[list[int], frozenset[int]]:
    """Who bears the mark, and whose environment is empty: one that is just becoming another program shows none for a moment."""
    bearers: list[int] = []
    hidden: list[int] = []
    for name in _names_in_proc():
        if name.isdigit() and int(name) != os.getpid():
            try:
                environment = _environment(name)
            except OSError:
                continue
            if not environment:
                hidden.append(int(name))
            elif mark in environment.split(b"\0"):
                bearers.append(int(name))
    return bearers, frozenset(hidden)


def _names_in_proc() -> list[str]:
    try:
        return os.listdir("/proc")
    except OSError:
        return []


def _environment(pid: str) -> bytes:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()


def _descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from _descendants(child)
