"""Where stderr goes while the prompt is on the screen: above it, line by line, instead of into the typed text."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

LONGEST = 10_000
"""Characters of a line without an end that are kept before they are shown all the same."""


class StrayLines(io.TextIOBase):
    """A text file whose complete lines are given to `show`; once `end`ed it is the original file again."""

    def __init__(self, show: Callable[[str], None], original: TextIO) -> None:
        self._show = show
        self._original = original
        self._rest = ""
        self._ended = False

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
        if len(self._rest) > LONGEST:
            lines, newline, self._rest = lines + newline + self._rest, "\n", ""
        if newline:
            self._show(lines)
        return len(text)

    def end(self) -> None:
        """From now on writing reaches the original; whoever kept this file may go on using it."""
        self._ended = True
        self._original.write(self._rest)
        self._rest = ""


@contextmanager
def stderr_above(show: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, what is written to sys.stderr goes to `show`; nothing changes if it is no terminal."""
    original = sys.stderr
    if not original.isatty():
        yield
        return
    stray = StrayLines(show, original)
    sys.stderr = stray
    try:
        yield
    finally:
        sys.stderr = original
        stray.end()
