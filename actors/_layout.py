"""The tree as lines of text: columns that line up, notes that fold, names that are cut, all by the width of a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias
from unicodedata import category, east_asian_width

import attrs

from actors._tree import ActorInfo

Span: TypeAlias = tuple[str, str]
"""Some text and its style, in rich's words."""
Line: TypeAlias = tuple[Span, ...]

LATE = 1.0
"""Seconds after which it is worth telling where an actor waits that has a message in hand."""
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


def tree_lines(root: ActorInfo, width: float) -> Iterator[Line]:
    """A title, and for each actor a line with its numbers; what else there is to say stands behind or below them."""
    rows = tuple(_walk(root, "", ""))
    columns = [column for column in _COLUMNS if any(column.of(row.info)[0] for row in rows)]
    sizes = [max(cells(column.title), *(cells(column.of(row.info)[0]) for row in rows)) for column in columns]
    name = max(cells("ACTOR"), *(cells(row.guide + row.name) for row in rows))
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
    """guide: what stands before the name. below: what stands before a further line about the same actor."""

    guide: str
    below: str
    info: ActorInfo

    @property
    def name(self) -> str:
        return printable(self.info.name)

    def head(self, size: int) -> Line:
        name = fit(self.name, max(1, size - cells(self.guide)))
        return (self.guide, DIM), (name, "bold" if self.info.children else "")


def _walk(info: ActorInfo, guide: str, rest: str) -> Iterator[_Row]:
    yield _Row(guide, rest + ("│  " if info.children else "   "), info)
    for child in info.children:
        last = child is info.children[-1]
        yield from _walk(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


# ------------------------------------------------------------ numbers


@attrs.frozen(eq=False)
class _Column:
    """of: what it shows of an actor. rank: the column of the highest is the first to go when there is no room."""

    title: str
    rank: int
    of: Callable[[ActorInfo], Span]
    left: bool = False

    def pad(self, text: str, size: int) -> str:
        space = " " * (size - cells(text))
        return GAP + (text + space if self.left else space + text)


def _mailbox(info: ActorInfo) -> Span:
    if not info.capacity:
        return "", ""
    full = info.depth / info.capacity
    return f"{info.depth}/{info.capacity}", "red" if full >= 1 else "yellow" if full >= 0.75 else ""


def _count(field: str, style: str = "", *, zero: bool = False) -> Callable[[ActorInfo], Span]:
    """A count; if `zero`, also one of 0, but not of a supervisor, which has no mailbox."""

    def of(info: ActorInfo) -> Span:
        value: int = getattr(info, field)
        return (f"{value:,}" if value or (zero and info.capacity) else "", style)

    return of


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
    info = row.info
    if not row.guide and info.shutdown_budget is not None and info.state != "down":
        yield f"stops within {seconds(info.shutdown_budget)}", DIM
    if info.message is not None:
        yield f"{printable(info.message)} for {seconds(info.message_age or 0)}", "cyan"
    if info.deadline is not None:
        yield f"answer due in {seconds(info.deadline)}", "yellow" if info.deadline < LATE else ""
    if info.due is not None:
        yield f"{'back' if info.state == 'waiting' else 'cancelled'} in {seconds(info.due)}", "yellow"
    if info.waiting_at is not None and (info.state != "up" or (info.message_age or 0) >= LATE):
        yield f"at {printable(info.waiting_at)}", "bold red" if info.state == "stuck" else ""


def _fold(numbers: Line, below: str, notes: Iterator[Span], width: float) -> Iterator[Line]:
    """Append the notes; one for which there is no room begins a line of its own, and is cut if even that is too short."""
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
    """Not longer than that, and without spaces at the end."""
    spans: list[Span] = []
    for text, style in line:
        spans.append((fit(text, width - _size(tuple(spans))), style))
        if spans[-1][0] != text:
            break
    while spans and not spans[-1][0].strip():
        spans.pop()
    if spans:
        spans[-1] = spans[-1][0].rstrip(), spans[-1][1]
    return tuple(spans)


def _fit_place(text: str, size: float) -> str:
    """As `fit`, but of a path its first folders are left out."""
    folders = re.split(r"[\\/]", text)
    for n in range(1, len(folders)):
        if cells(text) <= size:
            break
        text = "at …/" + "/".join(folders[n:])
    return fit(text, size)


# ------------------------------------------------------------ words and widths


def seconds(amount: float) -> str:
    """A duration: "0.2 s", "42 s", "1.5 min", "2.0 h", "11.6 d"."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if amount >= length:
            return f"{amount / length:.1f} {unit}"
    return f"{amount:.1f} s" if amount < 10 else f"{amount:.0f} s"


def printable(text: str) -> str:
    """In one line, and without what a terminal would obey."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], _BREAKS.sub(" ", text))


def cells(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def _cell(character: str) -> int:
    if category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def fit(text: str, size: float) -> str:
    """The text, or as much of it as fits into so many columns."""
    if cells(text) <= size:
        return text
    kept = ""
    for character in text:
        if cells(kept + character) > size - 1:
            break
        kept += character
    return kept + "…" * (size >= 1)
