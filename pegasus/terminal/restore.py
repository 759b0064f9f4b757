"""Gives the terminal back whatever happens: its modes are noted before the screen changes them.

prompt_toolkit restores them itself when its thread ends in order. This is for the other ends: a process that exits at
once (a second signal), or a thread that hangs in a write to a terminal that does not take it.
"""

from __future__ import annotations

import atexit
import os
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_SANE = b"\x1b[?2004l\x1b[?25h\x1b[0m\x1b[J\r"
"""Bracketed paste off, cursor on, plain colours, and nothing left below the cursor."""

_noted: list[tuple[int, list[Any]]] = []


@contextmanager
def terminal_noted() -> Iterator[None]:
    """While the block runs, `restore_terminal` brings back the modes the terminal on stdin has now."""
    try:
        fd = sys.stdin.fileno()
        _noted.append((fd, termios.tcgetattr(fd)))
    except (OSError, ValueError, termios.error):  # no terminal, nothing to restore
        yield
        return
    atexit.register(restore_terminal)
    try:
        yield
    finally:
        _noted.clear()
        atexit.unregister(restore_terminal)


def restore_terminal() -> None:
    """Bring the terminal back to what it was before the chat; does nothing when it is that already.

    Safe in a signal handler and just before os._exit: takes no lock, waits for nothing but the terminal itself.
    """
    while _noted:
        fd, modes = _noted.pop()
        if _in_background(fd):  # setting it would stop us, and it is another's now
            continue
        with suppress(OSError):
            os.write(fd, _SANE)
        with suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSANOW, modes)


def _in_background(fd: int) -> bool:
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:  # not the terminal of this session
        return False


def forget_stdout() -> None:
    """The terminal is gone: what stdout still holds for it must not fail again when the process ends."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
