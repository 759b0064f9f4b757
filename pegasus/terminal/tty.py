"""Terminal around the chat: its modes are restored whatever happens, and stderr appears above the prompt.

prompt_toolkit restores the modes itself when its thread ends in order. `terminal_modes_saved` and `restore_terminal` are for the
other ends: a process that exits at once after a second signal, or a thread that hangs in a write to a terminal that does
not take it. While the prompt is on the screen, a line on stderr (a warning, a notice of the command line) would be
printed into the middle of the typed text; `stderr_above` shows it above the prompt instead.

A terminal that is left in raw mode shows no typed characters and ignores Ctrl-C, and most people do not know that `reset` helps.
Only kill -9 of the chat leaves it so. The modes are kept in a module variable, because a signal handler and an exit function
must reach them, and a process has one terminal.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

LONGEST_LINE: Final = 10_000
"""Characters of a line without an end that are kept before they are shown all the same."""

_SANE: Final = b"\x1b[?2004l\x1b[?25h\x1b[0m\x1b[J\r"
"""Bracketed paste off, cursor on, plain colours, and nothing left below the cursor."""

_saved: list[tuple[int, list[Any]]] = []
"""Descriptor and modes of the terminal that a chat uses now; empty outside of `terminal_modes_saved`."""


# ------------------------------------------------------------------ modes


@contextmanager
def terminal_modes_saved() -> Iterator[None]:
    """While the block runs, `restore_terminal` brings back the modes the terminal on stdin has now."""
    try:
        fd = sys.stdin.fileno()
        _saved.append((fd, termios.tcgetattr(fd)))
    except (OSError, ValueError, termios.error):  # no terminal, nothing to restore
        yield
        return
    atexit.register(restore_terminal)
    try:
        yield
    finally:
        _saved.clear()
        atexit.unregister(restore_terminal)


def restore_terminal() -> None:
    """Bring the terminal back to its modes before the chat. No effect if that has been done already.

    Safe in a signal handler and just before os._exit: takes no lock, and waits for nothing but the terminal itself.
    """
    while _saved:
        fd, modes = _saved.pop()
        if _is_in_background(fd):  # the terminal belongs to another job now, and setting it would stop this one
            continue
        with suppress(OSError):
            os.write(fd, _SANE)
        with suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSANOW, modes)


def _is_in_background(fd: int) -> bool:
    """Return True if another process group has the terminal; changing its modes would then stop this process."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:  # not the terminal of this session
        return False


# ------------------------------------------------------------------ stderr


class StderrLines(io.TextIOBase):
    """Text file that passes complete lines to `show`. After `end` writes reach the original file again.

    Whoever has kept this object, such as a logging handler, may go on using it after the end.

    Example::

        lines = StderrLines(screen.notice, sys.stderr)
        lines.write("a warning" + newline)  # shown above the prompt
        lines.end()
    """

    def __init__(self, show: Callable[[str], None], original: TextIO) -> None:
        self._show = show
        self._original = original
        self._rest = ""
        """Beginning of a line whose end was not written yet."""
        self._ended = False
        """`end` was called."""

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._original.fileno()

    def write(self, text: str) -> int:
        if self._ended:
            return self._original.write(text)
        lines, newline, self._rest = (self._rest + text).rpartition("\n")
        if len(self._rest) > LONGEST_LINE:
            lines, newline, self._rest = lines + newline + self._rest, "\n", ""
        if newline:
            self._show(lines)
        return len(text)

    def end(self) -> None:
        """Write the incomplete last line to the original file, and everything from now on."""
        self._ended = True
        self._original.write(self._rest)
        self._rest = ""


@contextmanager
def stderr_above(show: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, pass what is written to sys.stderr to `show`; no effect if stderr is not a terminal."""
    original = sys.stderr
    if not original.isatty():
        yield
        return
    lines = StderrLines(show, original)
    sys.stderr = lines
    try:
        yield
    finally:
        sys.stderr = original
        lines.end()
