"""Terminal: harmless text for it, its modes restored whatever happens, and stderr above the prompt.

prompt_toolkit restores the modes itself when its thread ends in order. `terminal_modes_saved` and `restore_terminal` are for the
other ends: a process that exits at once after a second signal, or a thread that hangs in a write to a terminal that does
not take it. While the prompt is on the screen, a line on stderr (a warning, a notice of the command line) would be
printed into the middle of the typed text; `stderr_above` shows it above the prompt instead.

A terminal that is left in raw mode shows no typed characters and ignores Ctrl-C, and most people do not know that `reset` helps.
Only kill -9 of the chat leaves it so. The modes are kept in a module variable, because a signal handler and an exit function
must reach them, and a process has one terminal.

`neutralise` removes control characters from text that strangers wrote. A terminal executes the control sequences in its input: an
escape sequence can retitle the window, write to the clipboard or repaint an earlier line; a bidirectional override can make a
command read as another one. So whatever the agent says, or a web page that it quotes, or the name of somebody's task, is shown as
text only. Controls become the visible pictures Unicode has for them (ESC is ␛), so that nobody has to guess why half a message is
missing; characters that are invisible by design are dropped.

The rule is a list of what is removed, not of sequences that are recognised: terminals differ in what they accept, and a parser of
sequences that misses one has failed. Of visible text only a few flags are lost, which Unicode writes with tag characters. The
function is idempotent, so that it may be applied twice.
"""

from __future__ import annotations

import atexit
import io
import os
import re
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
    """

    def __init__(self, show: Callable[[str], None], original: TextIO) -> None:
        self._show = show
        self._original = original
        self._rest = ""
        """Beginning of a line whose end was not written yet."""
        self._ended = False
        """`end` was called."""

    def isatty(self) -> bool:
        """Return True: programs that colour their output on a terminal still do."""
        return True

    def fileno(self) -> int:
        """Return the number of the original file, for code that writes past Python. Such text is not shown above the prompt."""
        return self._original.fileno()

    def write(self, text: str) -> int:
        """Show the lines that are complete now; keep the rest for the next call. After `end` write to the original file."""
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


# ------------------------------------------------------------------ text

_HARMFUL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1 (0x9b is a CSI to some terminals)
    "\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, bidirectional
    "\u2028\u2029"  # line and paragraph separators
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"  # shorthand, music, tags (hidden ASCII)
    "\ud800-\udfff]"  # halves of surrogate pairs: no encoder takes them
)
"""Characters that must not reach a terminal."""
_LINE_ENDS: Final = re.compile("\r\n|[\r\u2028\u2029]")
"""Line ends that become a newline. A carriage return alone would let a line overwrite itself."""


def neutralise(text: str) -> str:
    r"""Return the text without control characters. Newlines and tabs stay; other line ends become newlines.

    >>> neutralise("a\x1b[31mred\u202eb")
    'a␛[31mredb'
    """
    return _HARMFUL.sub(_replacement, _LINE_ENDS.sub("\n", text))


def is_utf8(encoding: str | None) -> bool:
    """Return True for the encoding of a terminal that shows all characters."""
    return (encoding or "").lower().replace("-", "") == "utf8"


def repair_unicode(text: str) -> str:
    """Return typed text as valid Unicode: bytes from the keyboard that are not UTF-8 become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _replacement(match: re.Match[str]) -> str:
    """Return the visible picture of a control character, U+FFFD for one without a picture, nothing for invisible ones."""
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return "\ufffd" if code <= 0x9F or 0xD800 <= code <= 0xDFFF else ""
