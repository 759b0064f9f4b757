r"""The text of what a program writes to a terminal: without control sequences, and of each line its last state.

A progress bar that is written over itself (`10 %\r50 %\r100 %`) is one line, "100 %". Moves of the cursor are not carried out, so
a program that fills the screen gives what it has written, in the order in which it wrote it; a move to a place begins a line.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

_SEQUENCE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,256}[ -/]{0,16}(?P<final>[@-~])?"
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c|(?=\x1b))"  # texts for the terminal, such as titles
    r"|\x1b(?:[()*+].|[^\x00-\x1f])?"
    r"|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
"""A control sequence, or a control character other than those that make lines. No part backtracks over another."""
_UNFINISHED: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,256}[ -/]{0,16}\Z|\x1b(?:[\]PX^_][^\x07\x1b\x9c]{0,4096}\x1b?|[()*+])?\Z"
)
"""Beginning of a sequence at the end of what was read."""
_LONGEST_LINE: Final = 4_096
"""Characters of an unfinished line that are kept for the next reading."""


class TerminalText:
    r"""Reader of what a program writes to a terminal.

    Example::

        text = TerminalText()
        text.read(b"loading 10%\rloading 100%\r\n>>> ")  # "loading 100%\n>>>"
        text.read(b"1+1\r\n2\r\n")  # ">>> 1+1\n2"
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished = ""
        """Beginning of a sequence whose rest was not read yet."""
        self._line = ""
        """The line that has no end yet, as it was written."""

    def read(self, data: bytes) -> str:
        """Return the lines that this output has added to or changed, without blanks and empty lines at their ends."""
        written = self._unfinished + self._decoder.decode(data)
        cut = _UNFINISHED.search(written)
        self._unfinished = cut[0] if cut is not None else ""
        written = _SEQUENCE.sub(_replacement, written.removesuffix(self._unfinished))
        before = _last_state(self._line)
        *lines, self._line = (self._line + written).split("\n")
        states = [*map(_last_state, lines), _last_state(self._line)]
        self._line = self._line[-_LONGEST_LINE:]
        # A line that was returned as it stands, and has only got its end now, is nothing new.
        return "\n".join(states[1:] if before and states[0] == before else states).rstrip("\n")


def _replacement(sequence: re.Match[str]) -> str:
    """Return the text in place of a sequence: a line's end for a move to another place."""
    return "\n" if sequence["final"] in ("H", "f") else ""


def _last_state(line: str) -> str:
    """Return what stands in a line in the end: behind the last return to its start, without characters that were taken back."""
    state = next((part for part in reversed(line.split("\r")) if part), "")
    if "\b" in state:
        kept: list[str] = []
        for character in state:
            if character != "\b":
                kept.append(character)
            elif kept:
                kept.pop()
        state = "".join(kept)
    return state.rstrip()
