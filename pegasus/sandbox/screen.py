"""The text that a terminal would show: what a program on a terminal writes, with its control sequences carried out.

A program on a terminal moves the cursor, overwrites lines and clears parts of the screen. A model needs the outcome as text:
a progress bar once and not in a hundred states, and the page of a pager as it stands. So the sequences of ECMA-48 and of xterm that
change text are carried out here; colours, titles, modes and everything unknown are skipped.

The lines that have left the screen at the top are kept, up to a bound. `take_new` returns every line that was changed since the last
call: for a shell that is what was typed and printed since, for a program that fills the screen the whole screen.

Input comes from any program, so every number in it is clamped to the size of the screen, and nothing in it costs more than one pass
over the rows.

Three things behave in a way that one may not expect:

* **The last column.** A character in it leaves the cursor behind it (`_x` is the number of columns), and the row goes on in the next
  one when another character comes. So a line of exactly the width of the screen is followed by no empty one, as on real terminals.
  Such a row is marked (`_wrapped`), and both are one line in the text.
* **The alternate screen**, which editors and pagers use, replaces the normal one until the program leaves it. Lines that scroll out of
  it are not kept, and what was new on the normal screen is still new afterwards.
* **Scrolling regions.** Only lines that leave the screen at its very top go to the lines above it.

Not imitated, since programs hardly ever need it for text: insert mode, origin mode, tab stops other than every eighth column, and
answers to questions of the program, such as where the cursor is.

To add a sequence, add its last character to `_ACTIONS`.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from pegasus.sandbox.guarded import TerminalSize

MAX_LINES: Final = 2_000
"""Lines above the screen that are kept until they are taken."""
_MAX_COMBINING: Final = 8
"""Characters of one cell: a letter and its combining marks."""
_TOKEN: Final = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    r"|\x1b\[(?P<parameters>[0-?]{0,256}+)[ -/]{0,16}+(?:(?P<final>[@-~])|(?=[^@-~]))"
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]{0,4096}+(?:\x07|\x1b\\|\x9c|(?=\x1b[^\\]))"  # texts for the terminal, such as titles
    r"|\x1b(?P<charset>[()*+][^\x1b])"
    r"|\x1b(?P<escape>[^\[\]PX^_()*+\x00-\x1f])"
    r"|\x1b[()*+]?(?=[\x00-\x1f])"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f-\x9f])"
)
"""One piece of a terminal's input; a sequence that is broken off ends where the next piece begins.

What fits nothing is the beginning of a sequence whose rest was not read yet. No quantifier backtracks, so a match takes linear time.
"""
_MAX_PARTIAL: Final = 4_096
"""Characters of a sequence that has no end yet; a longer one is dropped."""
_LINES: Final = str.maketrans("jklmnqtuvwx", "┘┐┌└┼─├┤┴┬│")
"""Letters that draw lines in the character set "0"."""


class ScreenText:
    r"""The text on a terminal's screen.

    For example:

        screen = ScreenText(TerminalSize())
        screen.feed(b"loading 10%\rloading 100%\r\n")
        screen.take_new()   # "loading 100%"
    """

    def __init__(self, size: TerminalSize) -> None:
        """Make an empty screen."""
        self._rows = max(size.rows, 1)
        # Two at least: a wide character must fit into a row.
        self._columns = max(size.columns, 2)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = ""
        """Beginning of a sequence whose rest was not fed yet."""
        self._above: deque[tuple[str, bool]] = deque(maxlen=MAX_LINES)
        """Lines that have left the screen and were not taken, each with whether the next one continues it."""
        self._screen: list[list[str]] = [[] for _ in range(self._rows)]
        """Rows of cells; a row is as long as it was written to. The second cell of a wide character is ""."""
        self._wrapped: list[bool] = [False] * self._rows
        """True if a row was continued in the next one because it was full."""
        self._x = self._y = 0
        """The cursor. `_x` may be one beyond the last column."""
        self._top, self._bottom = 0, self._rows - 1
        """First and last of the rows that scroll."""
        self._first_new = 0
        """First row that was changed since the last `take_new`; beyond the last row if none was."""
        self._saved = (0, 0)
        """The cursor that the program has saved."""
        self._normal: tuple[list[list[str]], list[bool], int, int, int] | None = None
        """The normal screen while a program shows the alternate one."""
        self._draws_lines = False
        """Letters stand for lines and corners, see `_LINES`."""

    # ------------------------------------------------------------------ reading

    def take_new(self) -> str:
        """Return the lines that were changed since the last call, without the blanks at their ends and the empty rows below."""
        rows = ["".join(row) for row in self._screen[self._first_new :]]
        lines = [*self._above, *zip(rows, self._wrapped[self._first_new :], strict=True)]
        self._above.clear()
        # Nothing is new any more. Lines that are changed from now on move it up again.
        self._first_new = self._rows
        text = "".join(line if goes_on else f"{line.rstrip()}\n" for line, goes_on in lines)
        return text.rstrip("\n")

    # ------------------------------------------------------------------ writing

    def feed(self, data: bytes) -> None:
        """Carry out what a program has written. Takes time in proportion to the length of the data."""
        # A program may be read in the middle of a character or of a sequence; both halves meet here.
        text = self._partial + self._decoder.decode(data)
        at = 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                if len(text) - at <= _MAX_PARTIAL:
                    break
                at += 1  # a sequence without an end: its beginning is skipped, the rest is shown as text
                continue
            at = token.end()
            if token["text"]:
                self._write(token["text"])
            elif token["final"]:
                self._sequence(token["parameters"], token["final"])
            elif token["control"]:
                self._control(token["control"])
            elif token["escape"]:
                self._escape(token["escape"])
            elif token["charset"]:
                self._draws_lines = token["charset"] == "(0" or (self._draws_lines and token["charset"][0] != "(")
        self._partial = text[at:]

    def _write(self, text: str) -> None:
        """Put characters at the cursor. A full row continues in the next one when the next character comes."""
        if self._draws_lines:
            text = text.translate(_LINES)
        # Most output is ASCII, one cell for each character, so whole runs are put at once.
        if text.isascii():
            at = 0
            while at < len(text):
                self._wrap(1)
                part = text[at : at + self._columns - self._x]
                self._put(list(part))
                at += len(part)
            return
        for character in text:
            if unicodedata.combining(character) or character in "\u200b\u200c\u200d\ufe0e\ufe0f":
                row = self._screen[self._y]
                # They belong to the cell before the cursor and take none. The bound keeps one cell from growing for
                # ever.
                if 0 < self._x <= len(row) and len(row[self._x - 1]) < _MAX_COMBINING:
                    row[self._x - 1] += character
                continue
            cells = [character, ""] if unicodedata.east_asian_width(character) in "WF" else [character]
            self._wrap(len(cells))
            self._put(cells)

    def _wrap(self, width: int) -> None:
        """Go to the next row if this one has no room for a character."""
        if self._x + width > self._columns:
            self._wrapped[self._y] = True
            self._x = 0
            self._line_feed()

    def _put(self, cells: list[str]) -> None:
        """Overwrite cells of the row from the cursor on."""
        row = self._screen[self._y]
        # A cursor that was moved to the right leaves cells that nobody has written.
        if len(row) < self._x:
            row += " " * (self._x - len(row))
        row[self._x : self._x + len(cells)] = cells
        self._x += len(cells)
        self._changed(self._y)

    def _changed(self, row: int) -> None:
        """Note that a row is new. A row that continues the one above is new together with it."""
        while row > 0 and self._wrapped[row - 1]:
            row -= 1
        self._first_new = min(self._first_new, row)

    def _line_feed(self) -> None:
        """Go down by a row. In the last row, everything moves up."""
        # Only the last row of the region scrolls. Below the region the cursor just goes down.
        if self._y == self._bottom:
            self._delete_rows(self._top, 1, keep=self._top == 0 and self._normal is None)
        elif self._y < self._rows - 1:
            self._y += 1

    def _delete_rows(self, at: int, count: int, *, keep: bool = False) -> None:
        """Remove rows; those below, down to the end of what scrolls, move up. keep: they go to the lines above the screen."""
        for _ in range(min(count, self._bottom - at + 1)):
            row, wrapped = self._screen.pop(at), self._wrapped.pop(at)
            self._screen.insert(self._bottom, [])
            self._wrapped.insert(self._bottom, False)
            if not keep:
                self._first_new = min(self._first_new, at)
            # A line that was taken already is not kept again when it leaves the screen. All rows move up, so the first
            # new one does.
            elif self._first_new == 0:
                self._above.append(("".join(row), wrapped))
            else:
                self._first_new -= 1

    def _insert_rows(self, at: int, count: int) -> None:
        """Insert empty rows; those below move down, and those at the end of what scrolls are lost."""
        for _ in range(min(count, self._bottom - at + 1)):
            self._screen.pop(self._bottom)
            self._wrapped.pop(self._bottom)
            self._screen.insert(at, [])
            self._wrapped.insert(at, False)
        self._changed(at)

    # ------------------------------------------------------------------ control characters and sequences

    def _control(self, control: str) -> None:
        """Carry out a control character."""
        match control:
            case "\n" | "\v" | "\f" | "\x84":
                self._wrapped[self._y] = False
                self._line_feed()
            case "\r":
                self._x = 0
            case "\b":
                # A cursor behind the last column first counts as in it.
                self._x = max(min(self._x, self._columns - 1) - 1, 0)
            case "\t":
                self._x = min((self._x // 8 + 1) * 8, self._columns - 1)

    def _escape(self, final: str) -> None:
        """Carry out a sequence of two characters."""
        match final:
            case "7":
                self._saved = (self._x, self._y)
            case "8":
                self._x, self._y = self._saved
            # IND and NEL: down by a row; the second also to its start.
            case "D" | "E":
                self._x = 0 if final == "E" else self._x
                self._line_feed()
            # RI: up by a row. In the first row of the region everything moves down.
            case "M":
                if self._y == self._top:
                    self._insert_rows(self._top, 1)
                else:
                    self._y = max(self._y - 1, 0)
            # RIS: the reset of the terminal. The saved cursor and the lines above the screen stay as they are.
            case "c":
                self._clear(0, self._rows)
                self._x = self._y = self._top = 0
                self._bottom = self._rows - 1

    def _sequence(self, parameters: str, final: str) -> None:
        """Carry out a control sequence (CSI). Those with a private mark other than "?" do not concern text."""
        if parameters[:1] == "?":
            # Three numbers of xterm for the same; they differ in what they save and clear beside.
            if final in "hl" and {"47", "1047", "1049"} & set(parameters[1:].split(";")):
                self._switch_screen(final == "h")
            return
        if parameters[:1] in ("<", "=", ">"):
            return
        # Empty and absurd numbers count as 0, which each action reads as its default.
        numbers = [int(part) if part.isdecimal() and len(part) < 6 else 0 for part in parameters.split(";")[:16]]
        action = _ACTIONS.get(final)
        if action is not None:
            action(self, numbers)

    def _switch_screen(self, to_alternate: bool) -> None:
        """Show the alternate screen, which programs that fill the screen use, or the normal one as it was."""
        if to_alternate and self._normal is None:
            # The first new row is part of what is saved: it belongs to the rows of the normal screen.
            self._normal = (self._screen, self._wrapped, self._x, self._y, self._first_new)
            self._screen, self._wrapped = [[] for _ in range(self._rows)], [False] * self._rows
            self._x = self._y = 0
            self._first_new = self._rows
        elif not to_alternate and self._normal is not None:
            self._screen, self._wrapped, self._x, self._y, self._first_new = self._normal
            self._normal = None
        self._top, self._bottom = 0, self._rows - 1

    def _clear(self, start: int, end: int) -> None:
        """Empty the rows from `start` up to `end`, which is not among them."""
        for row in range(start, end):
            self._screen[row] = []
            self._wrapped[row] = False
        self._changed(min(start, self._rows - 1))

    def _move(self, x: int, y: int) -> None:
        """Move the cursor, within the screen."""
        self._x = max(0, min(x, self._columns - 1))
        self._y = max(0, min(y, self._rows - 1))

    def _go(self, rows: int, *, to_start: bool = False) -> None:
        """Move the cursor down, or up, but not out of the rows that scroll if it is in them."""
        # A cursor outside the region may go to the edge of the screen, one inside stays in the region.
        first = self._top if self._y >= self._top else 0
        last = self._bottom if self._y <= self._bottom else self._rows - 1
        self._move(0 if to_start else self._x, max(first, min(self._y + rows, last)))

    def _erase_display(self, numbers: list[int]) -> None:
        """Erase from the cursor to the end of the screen (0), from its beginning to the cursor (1), or all (2, 3)."""
        mode = numbers[0]
        if mode == 0:
            self._erase_line([0])
            # The row of the cursor is erased from the cursor on, the rows below as a whole.
            self._clear(self._y + 1, self._rows)
        elif mode == 1:
            self._clear(0, self._y)
            self._erase_line([1])
        else:
            self._clear(0, self._rows)

    def _erase_line(self, numbers: list[int]) -> None:
        """Erase from the cursor to the end of the row (0), from its beginning to the cursor (1), or all of it (2)."""
        row = self._screen[self._y]
        if numbers[0] == 0:
            del row[self._x :]
            self._wrapped[self._y] = False
        elif numbers[0] == 1:
            # Only what was written is blanked: a row is never made longer by erasing.
            row[: self._x + 1] = " " * min(self._x + 1, len(row))
        else:
            row.clear()
            self._wrapped[self._y] = False
        self._changed(self._y)

    def _change_cells(self, delete: int, insert: int, erase: int = 0) -> None:
        """Delete, insert or erase cells at the cursor."""
        row = self._screen[self._y]
        if erase:
            row[self._x : self._x + erase] = " " * len(row[self._x : self._x + erase])
        elif self._x < len(row):
            row[self._x : self._x + delete] = " " * min(insert, self._columns)
            # Cells that are pushed beyond the last column are lost, as on a terminal.
            del row[self._columns :]
        self._changed(self._y)

    def _set_margins(self, numbers: list[int]) -> None:
        """Set the rows that scroll. Numbers begin at 1; missing ones mean the whole screen."""
        top = max(numbers[0], 1) - 1
        bottom = (numbers[1] if len(numbers) > 1 and numbers[1] else self._rows) - 1
        # A region of one row, or one upside down, is ignored.
        if top < min(bottom, self._rows - 1):
            self._top, self._bottom = top, min(bottom, self._rows - 1)
            self._x = self._y = 0

    def _scrolls_here(self) -> bool:
        """Return whether the cursor is among the rows that scroll; rows are inserted and deleted only there."""
        return self._top <= self._y <= self._bottom


def _count(numbers: list[int]) -> int:
    """Return the first number of a sequence, for which 0 means 1."""
    return numbers[0] or 1


def _insert_lines(screen: ScreenText, numbers: list[int]) -> None:
    """Insert empty rows at the cursor (IL), which goes to the start of its row."""
    if screen._scrolls_here():
        screen._insert_rows(screen._y, _count(numbers))
        screen._x = 0


def _delete_lines(screen: ScreenText, numbers: list[int]) -> None:
    """Delete rows from the cursor on (DL). The cursor goes to the start of its row."""
    if screen._scrolls_here():
        screen._delete_rows(screen._y, _count(numbers))
        screen._x = 0


def _restore(screen: ScreenText, numbers: list[int]) -> None:
    """Move the cursor back to where it was saved (SCORC)."""
    screen._move(*screen._saved)


def _save(screen: ScreenText, numbers: list[int]) -> None:
    """Save the cursor (SCOSC), in the same place as the escape sequence 7 does."""
    screen._saved = (screen._x, screen._y)


_ACTIONS: Final[Mapping[str, Callable[[ScreenText, list[int]], None]]] = MappingProxyType(
    {
        "@": lambda s, n: s._change_cells(0, _count(n)),
        "A": lambda s, n: s._go(-_count(n)),
        "B": lambda s, n: s._go(_count(n)),
        "e": lambda s, n: s._go(_count(n)),
        "C": lambda s, n: s._move(s._x + _count(n), s._y),
        "a": lambda s, n: s._move(s._x + _count(n), s._y),
        "D": lambda s, n: s._move(min(s._x, s._columns - 1) - _count(n), s._y),
        "E": lambda s, n: s._go(_count(n), to_start=True),
        "F": lambda s, n: s._go(-_count(n), to_start=True),
        "G": lambda s, n: s._move(_count(n) - 1, s._y),
        "`": lambda s, n: s._move(_count(n) - 1, s._y),
        "d": lambda s, n: s._move(s._x, _count(n) - 1),
        "H": lambda s, n: s._move((n[1] or 1) - 1 if len(n) > 1 else 0, _count(n) - 1),
        "f": lambda s, n: s._move((n[1] or 1) - 1 if len(n) > 1 else 0, _count(n) - 1),
        "J": ScreenText._erase_display,
        "K": ScreenText._erase_line,
        "L": _insert_lines,
        "M": _delete_lines,
        "P": lambda s, n: s._change_cells(_count(n), 0),
        "X": lambda s, n: s._change_cells(0, 0, _count(n)),
        "S": lambda s, n: s._delete_rows(s._top, _count(n)),
        "T": lambda s, n: s._insert_rows(s._top, _count(n)),
        "r": ScreenText._set_margins,
        "s": _save,
        "u": _restore,
    }
)
"""Effect of each control sequence, by its last character."""
