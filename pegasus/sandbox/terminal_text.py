r"""The text of what a program writes to a terminal: without control sequences, and of each line its last state.

A progress bar that is written over itself (`10 %\r50 %\r100 %`) is one line, "100 %", and so is one of several lines, whose program
goes up and writes them anew. A screen of its own, as editors and pagers have, leaves nothing behind when it is closed. Columns are not
counted: what is written behind a return to the start of a line takes the place of the whole line, and a move to a place of the screen
begins a line, or writes the line anew that was begun there before.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

import attrs

_TOKEN: Final = re.compile(
    r"(?P<text>[^\x00-\x08\x0a-\x1f\x7f-\x9f]+)"
    r"|(?:\x1b\[|\x9b)(?P<parameters>[0-?]{0,256})[ -/]{0,16}(?P<final>[@-~])?"
    r"|\x1b[\]PX^_][^\n\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c|(?=\x1b))"  # texts for the terminal, such as titles
    r"|\x1b(?:[()*+].|(?P<escape>[^\x00-\x1f]))?"
    r"|(?P<control>[\x00-\x1f\x7f-\x9f])"
)
"""Text, a control sequence, or a control character. No part backtracks over another."""
_UNFINISHED: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,256}[ -/]{0,16}\Z|\x1b(?:[\]PX^_][^\n\x07\x1b\x9c]{0,4096}\x1b?|[()*+])?\Z"
)
"""Beginning of a sequence at the end of what was read."""
_IS_DRAWN: Final = re.compile(r"[\x08\x1b\x9b]|\r(?!\r*\n)")
"""Sign in a text that a terminal shows it otherwise than it was written."""
_OWN_SCREEN: Final = frozenset({"?47", "?1047", "?1049"})
"""Parameters of the sequences that open and close a screen of a program's own."""
_LONGEST_LINE: Final = 4_096
"""Characters of an unfinished line that are kept for the next reading."""
_MOST_LINES: Final = 500
"""Lines that a program can go up to after a reading."""


@attrs.define(eq=False, repr=False)
class _Lines:
    """Lines of a screen, and the place in them where text is written."""

    rows: list[list[str]] = attrs.field(factory=lambda: [[]])
    """Characters of each line."""
    row: int = 0
    """Index of the line."""
    at_start: bool = False
    """The next character takes the place of what is in the line."""
    placed: dict[str, int] = attrs.field(factory=dict)
    """Lines that were begun by a move, by their number on the screen."""
    reported: list[str] = attrs.field(factory=list)
    """The lines as they were returned last."""
    saved: tuple[int, bool] = (0, True)

    def write(self, text: str) -> None:
        """Write a text without control characters."""
        if self.at_start:
            self.rows[self.row] = []
            self.at_start = False
        self.rows[self.row].extend(text)

    def go(self, row: int) -> None:
        """Go to the start of a line, which is made if it is the next one."""
        self.row = max(0, row)
        while self.row >= len(self.rows):
            self.rows.append([])
        self.at_start = bool(self.rows[self.row])

    def back(self, count: int) -> None:
        """Take back characters of the line."""
        if not self.at_start:
            del self.rows[self.row][max(0, len(self.rows[self.row]) - count) :]

    def erase(self, final: str, parameters: str) -> None:
        """Erase the line, or the lines below too, as far as they are behind the place."""
        if parameters == "2" if final == "K" else parameters in ("2", "3"):
            # A screen that is cleared stays: a person has seen it, and a model reads it once.
            if final == "K":
                self.rows[self.row], self.at_start = [], False
            return
        if parameters not in ("", "0"):
            return
        if self.at_start:
            self.rows[self.row], self.at_start = [], False
        if final == "J":
            del self.rows[self.row + 1 :]

    def place(self, parameters: str) -> None:
        """Go to a line of the screen by its number."""
        number, _, column = parameters.partition(";")
        number = number or "1"
        if number in self.placed and self.placed[number] < len(self.rows):
            self.row = self.placed[number]
            self.at_start = column in ("", "0", "1") and bool(self.rows[self.row])
            return
        self.go(len(self.rows))
        self.placed[number] = self.row

    def states(self) -> list[str]:
        """Return the lines, without blanks at their ends."""
        return ["".join(row).rstrip() for row in self.rows]

    def news(self) -> str:
        """Return the lines that were added or changed since the last call."""
        states = self.states()
        first = next(
            (n for n, state in enumerate(states) if n >= len(self.reported) or state != self.reported[n]), None
        )
        text = "" if first is None else "\n".join(states[first:]).rstrip("\n")
        # Empty lines at the end were not returned: they come with what follows them.
        while states and not states[-1]:
            states.pop()
        gone = max(0, len(self.rows) - _MOST_LINES) if self.row >= _MOST_LINES else 0
        gone = min(gone, self.row)
        del self.rows[:gone]
        self.reported, self.row = states[gone:], self.row - gone
        self.placed = {number: row - gone for number, row in self.placed.items() if row >= gone}
        current = self.rows[self.row]
        if len(current) > _LONGEST_LINE:
            del current[:-_LONGEST_LINE]
            if self.row < len(self.reported):
                self.reported[self.row] = "".join(current).rstrip()
        return text


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
        self._lines = _Lines()
        """Lines of the screen that is shown."""
        self._main: _Lines | None = None
        """Lines of the usual screen while a program shows one of its own."""

    def read(self, data: bytes) -> str:
        """Return the lines that this output has added to or changed, without blanks and empty lines at their ends."""
        self._take(self._decoder.decode(data))
        return self._lines.news()

    def read_all(self, text: str) -> str:
        """Return all that is shown after a whole output."""
        self._take(text)
        return "\n".join(self._lines.states()).rstrip("\n")

    def _take(self, text: str) -> None:
        """Carry out what was written."""
        written = self._unfinished + text
        cut = _UNFINISHED.search(written)
        self._unfinished = cut[0] if cut is not None else ""
        for token in _TOKEN.finditer(written, 0, len(written) - len(self._unfinished)):
            if token["text"] is not None:
                self._lines.write(token["text"])
            elif token["control"] is not None:
                self._obey_character(token["control"])
            elif token["final"] is not None:
                self._obey(token["final"], token["parameters"])
            elif token["escape"] == "M":
                self._lines.go(self._lines.row - 1)
            elif token["escape"] in ("7", "8"):
                self._obey("s" if token["escape"] == "7" else "u", "")

    def _obey_character(self, character: str) -> None:
        """Carry out a control character; all but these are removed."""
        lines = self._lines
        if character == "\n":
            lines.go(lines.row + 1)
        elif character == "\r":
            lines.at_start = bool(lines.rows[lines.row])
        elif character == "\b":
            lines.back(1)

    def _obey(self, final: str, parameters: str) -> None:
        """Carry out a control sequence; all but these are removed."""
        lines = self._lines
        count = int(parameters) if parameters.isdecimal() and len(parameters) < 5 else 1
        match final:
            case "H" | "f":
                lines.place(parameters)
            case "A" | "F":
                lines.go(lines.row - max(1, count))
            case "B" | "E":
                lines.go(min(lines.row + max(1, count), len(lines.rows)))
            case "D":
                lines.back(max(1, count))
            case "G" if count <= 1:
                lines.at_start = bool(lines.rows[lines.row])
            case "K" | "J":
                lines.erase(final, parameters)
            case "s":
                lines.saved = lines.row, lines.at_start
            case "u":
                row, at_start = lines.saved
                lines.row = min(row, len(lines.rows) - 1)
                lines.at_start = at_start
            case "h" if parameters in _OWN_SCREEN and self._main is None:
                self._main, self._lines = lines, _Lines()
            case "l" if parameters in _OWN_SCREEN and self._main is not None:
                self._lines, self._main = self._main, None


def shown_text(text: str) -> str:
    r"""Return what a terminal would show of a text in the end. A text without anything to be carried out stays as it is.

    >>> shown_text("\x1b[32mdone\x1b[0m 10 %\rdone 100 %\n")
    'done 100 %\n'
    """
    if _IS_DRAWN.search(text) is None:
        return text
    shown = TerminalText().read_all(text)
    return f"{shown}\n" if shown and text.endswith("\n") else shown
