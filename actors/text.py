"""Trees as text for people: `print(TreeView(supervisor.tree()))`.

A TreeView is plain text by `str`, and in colour wherever the rich library shows it; `render` picks what suits a file. The
text is the same with rich and without. rich is optional, and imported only where colours are shown.

The layout of a tree adapts to the width: numbers line up in columns, columns that are 0 everywhere are left out, those of
lower rank go first when there is no room, notes fold into lines of their own, and names and paths are cut at last.

**One layout for both outputs.** A line is a tuple of spans, each a text with its style. Plain text joins the texts; rich is
given the same spans. So what is tested as plain text is also what is shown in colour, and widths are computed only here.

**Nothing that an actor does can break the terminal.** Names, paths and texts of errors come from the program. Line breaks
in them become spaces, control characters are escaped, and widths are counted in columns, since some characters take two.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO, TypeAlias
from unicodedata import category, east_asian_width

import attrs

from actors._supervisor import ActorInfo

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

__all__ = ["TreeView", "render"]


Span: TypeAlias = tuple[str, str]
"""A piece of text and its style, in the words of rich."""
Line: TypeAlias = tuple[Span, ...]
"""Spans that stand side by side."""

LATE = 1.0
"""Seconds with a message in hand after which the place where the actor waits is shown."""
GAP = "  "
LEAST_NAME = 16
"""Columns that a name keeps, if it needs them; numbers are left out before."""
DIM = "bright_black"

_STATES = {
    "starting": "cyan",
    "up": "green",
    "stopping": "yellow",
    "stuck": "bold red",
    "waiting": "yellow",
    "down": DIM,
}
_BREAKS = re.compile(r"[\t-\r\x1c-\x1f\x85\u2028\u2029]+")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@attrs.frozen(eq=False)
class TreeView:
    """A tree with a line for each actor: state, mailbox, counts, and the message in hand.

    ::

        print(TreeView(supervisor.tree()))

    The place where an actor waits is shown when it does not come back from there: when it is to stop, or has had its
    message for a second.
    """

    root: ActorInfo
    """State of the whole tree, as `Supervisor.tree` returns it."""
    width: float = 80
    """Columns for the plain text; math.inf for exactly one line for each actor."""

    def __str__(self) -> str:
        return "\n".join(map(_plain, tree_lines(self.root, self.width)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        for line in tree_lines(self.root, options.max_width):
            yield Text.assemble(*line, no_wrap=True, overflow="ignore")


def render(view: TreeView, file: TextIO | None = None) -> str:
    """Return the text that suits this file (default: stdout), without a newline at its end.

    In a terminal it has colours, if rich is installed and NO_COLOR is not set, and keeps to the width. Elsewhere it is
    plain, and as wide as it needs ($COLUMNS, if set). Characters that the file's encoding lacks are written in ASCII.
    """
    # The present stdout and not that of the import: test runners and `contextlib.redirect_stdout` replace it.
    file = sys.stdout if file is None else file
    encoding = file.encoding or "utf-8"
    columns = _columns(file)
    if file.isatty() and encoding.lower().replace("-", "") == "utf8":
        coloured = _coloured(view, file, columns)
        if coloured is not None:
            return coloured
    return _encodable(str(attrs.evolve(view, width=columns or math.inf)), encoding)


# ------------------------------------------------------------ with and without colours


def _plain(line: Line) -> str:
    return "".join(text for text, _ in line)


def _coloured(view: TreeView, file: TextIO, columns: int | None) -> str | None:
    """Return the text with rich's escape sequences; None if rich is not installed."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(file=file, width=columns)
    with console.capture() as capture:
        console.print(view)
    return capture.get().removesuffix("\n")


def _columns(file: TextIO) -> int | None:
    """Return the width to keep to: $COLUMNS, else that of the terminal; None for a file that has none."""
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    try:
        return os.get_terminal_size(file.fileno()).columns or None
    except OSError:  # not a terminal
        return None


def _encodable(text: str, encoding: str) -> str:
    """Return the text with ASCII in the place of what the encoding lacks, so that printing it never fails."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate({ord("├"): "|", ord("└"): "`", ord("│"): "|", ord("─"): "-", ord("…"): "~"})
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text


# ------------------------------------------------------------ layout of a tree


def tree_lines(root: ActorInfo, width: float) -> Iterator[Line]:
    """Return a title, and for each actor a line with its numbers, followed by notes behind or below them."""
    rows = tuple(_walk(root, "", ""))
    # A column without any text is left out, such as DROPPED in a tree that has lost nothing.
    columns = [column for column in _COLUMNS if any(column.of(row.info)[0] for row in rows)]
    sizes = [max(cells(column.title), *(cells(column.of(row.info)[0]) for row in rows)) for column in columns]
    name = max(cells("ACTOR"), *(cells(row.guide + row.name) for row in rows))
    # Columns go until the longest name has LEAST_NAME, or what it needs if that is less; a longer one is then cut.
    while len(columns) > 1 and width < min(name, LEAST_NAME) + _together(sizes):
        least = max(range(len(columns)), key=lambda n: columns[n].rank)
        del columns[least], sizes[least]
    name = int(min(name, max(1, width - _together(sizes))))
    yield _trim(_line((("ACTOR", DIM),), name, columns, sizes, [(column.title, DIM) for column in columns]), width)
    for row in rows:
        numbers = _line(row.head(name), name, columns, sizes, [column.of(row.info) for column in columns])
        for line in _fold(numbers, row.below, _notes(row), width):
            yield _trim(line, width)


def _together(sizes: list[int]) -> int:
    return sum(sizes) + len(GAP) * len(sizes)


# ------------------------------------------------------------ rows


@attrs.frozen(eq=False)
class _Row:
    """A line of the tree before it is laid out."""

    guide: str
    """Lines that lead to the name."""
    below: str
    """Lines that stand before a further line about the same actor."""
    info: ActorInfo
    """State of the actor."""

    @property
    def name(self) -> str:
        """Return guide and name, as they stand in the first column."""
        return printable(self.info.name)

    def head(self, size: int) -> Line:
        """Return the first column, filled up to `size` terminal columns, and the state behind it."""
        name = fit(self.name, max(1, size - cells(self.guide)))
        return (self.guide, DIM), (name, "bold" if self.info.children else "")


def _walk(info: ActorInfo, guide: str, rest: str) -> Iterator[_Row]:
    """Yield the row of an actor and those of everything below it.

    guide: lines before the actor's own name. rest: lines before whatever stands below it.
    """
    yield _Row(guide, rest + ("│  " if info.children else "   "), info)
    for child in info.children:
        last = child is info.children[-1]
        yield from _walk(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


# ------------------------------------------------------------ numbers


@attrs.frozen(eq=False)
class _Column:
    """A column of numbers."""

    title: str
    """Heading above the numbers."""
    rank: int
    """The column of the highest rank is left out first when there is no room."""
    of: Callable[[ActorInfo], Span]
    """Text and style for an actor."""
    left: bool = False
    """True if the text is aligned to the left."""

    def pad(self, text: str, size: int) -> str:
        """Return the text filled up to `size` terminal columns, on the left or on the right."""
        space = " " * (size - cells(text))
        return GAP + (text + space if self.left else space + text)


def _mailbox(info: ActorInfo) -> Span:
    """Return fill and capacity, yellow from three quarters on; "" for a supervisor, which has no mailbox."""
    if not info.capacity:
        return "", ""
    full = info.depth / info.capacity
    return f"{info.depth}/{info.capacity}", "red" if full >= 1 else "yellow" if full >= 0.75 else ""


def _count(field: str, style: str = "", *, zero: bool = False) -> Callable[[ActorInfo], Span]:
    """Return the column function for a count. zero: also show 0, but not for a supervisor, which has no mailbox."""

    def of(info: ActorInfo) -> Span:
        """Return the count as text; "" for 0, unless zero is to be shown."""
        value: int = getattr(info, field)
        return (f"{value:,}" if value or (zero and info.capacity) else "", style)

    return of


# The state is never left out. Then those stay longest that show a problem: a full mailbox, restarts, lost messages.
_COLUMNS = (
    _Column("STATE", 0, lambda info: (printable(info.state), _STATES.get(info.state, "")), left=True),
    _Column("MAILBOX", 1, _mailbox),
    _Column("MOST", 5, _count("high_water", zero=True)),
    _Column("HANDLED", 6, _count("handled", zero=True)),
    _Column("DROPPED", 3, _count("dropped", "red")),
    _Column("DEAD", 4, _count("dead", "magenta")),
    _Column("RESTARTS", 2, _count("restarts", "yellow")),
)


def _line(head: Line, name: int, columns: list[_Column], sizes: list[int], shown: list[Span]) -> Line:
    space = " " * (name - sum(cells(text) for text, _ in head))
    numbers = [
        (column.pad(text, size), style) for column, size, (text, style) in zip(columns, sizes, shown, strict=True)
    ]
    return *head, (space, ""), *numbers


# ------------------------------------------------------------ notes


def _notes(row: _Row) -> Iterator[Span]:
    """Yield what is to be said about an actor beside its numbers, the most constant first."""
    info = row.info
    # The root alone says how long a stop takes: for everything below it is a part of that time.
    if not row.guide and info.shutdown_budget is not None and info.state != "down":
        yield f"stops within {seconds(info.shutdown_budget)}", DIM
    if info.reason is not None:
        yield printable(info.reason), "bold red"
    if info.message is not None:
        yield f"{printable(info.message)} for {seconds(info.message_age or 0)}", "cyan"
    if info.deadline is not None:
        yield f"answer due in {seconds(info.deadline)}", "yellow" if info.deadline < LATE else ""
    if info.due is not None:
        yield f"{'back' if info.state == 'waiting' else 'cancelled'} in {seconds(info.due)}", "yellow"
    # An actor that works is at another place a moment later. Only one that does not come back is worth a line.
    if info.waiting_at is not None and (info.state != "up" or (info.message_age or 0) >= LATE):
        yield f"at {printable(info.waiting_at)}", "bold red" if info.state == "stuck" else ""


def _fold(numbers: Line, below: str, notes: Iterator[Span], width: float) -> Iterator[Line]:
    """Append the notes. One for which there is no room begins a line of its own, and is cut if that is too short, too."""
    line, begun = (*numbers, (GAP, "")), False
    for text, style in notes:
        if cells(text) + len(", ") * begun > width - _size(line):
            yield line
            line, begun = ((below, DIM),), False
        if begun:
            line += ((", ", DIM),)
        line += ((_fit_place(text, width - _size(line)), style),)
        begun = True
    yield line


def _size(line: Line) -> int:
    return sum(cells(text) for text, _ in line)


def _trim(line: Line, width: float) -> Line:
    """Return the line, cut to the width and without spaces at the end."""
    spans: list[Span] = []
    for text, style in line:
        spans.append((fit(text, width - _size(tuple(spans))), style))
        # This span was cut, so whatever follows it has no room either.
        if spans[-1][0] != text:
            break
    while spans and not spans[-1][0].strip():
        spans.pop()
    if spans:
        spans[-1] = spans[-1][0].rstrip(), spans[-1][1]
    return tuple(spans)


def _fit_place(text: str, size: float) -> str:
    """Cut a text as `fit` does, but leave out the first folders of a path before that."""
    folders = re.split(r"[\\/]", text)
    for n in range(1, len(folders)):
        if cells(text) <= size:
            break
        # The end of a path names the file, line and function, which say more than the folders before them.
        text = "at …/" + "/".join(folders[n:])
    return fit(text, size)


# ------------------------------------------------------------ words and widths


def seconds(amount: float) -> str:
    """Return a duration as text: "0.2 s", "42 s", "1.5 min", "2.0 h", "11.6 d"."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if amount >= length:
            return f"{amount / length:.1f} {unit}"
    return f"{amount:.1f} s" if amount < 10 else f"{amount:.0f} s"


def printable(text: str) -> str:
    """Return the text in one line, with control characters escaped that a terminal would obey."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], _BREAKS.sub(" ", text))


def cells(text: str) -> int:
    """Return the number of terminal columns that the text takes."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def _cell(character: str) -> int:
    if category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def fit(text: str, size: float) -> str:
    """Return the text, cut to so many columns and marked with "…" if it is longer."""
    if cells(text) <= size:
        return text
    kept = ""
    for character in text:
        if cells(kept + character) > size - 1:
            break
        kept += character
    return kept + "…" * (size >= 1)
