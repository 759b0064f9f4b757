r"""Differences between two texts as blocks of lines, and taking a change back although the text was changed elsewhere since.

    difference(["a\n", "b\n"], ["a\n", "c\n"])         # [Block(1, 2, ["c\n"])]
    without_change("a\nb\n", "a\nc\n", "x\na\nc\n")    # "x\na\nb\n"

A change is taken back block by block: the places of its blocks are moved by what was changed since. It is not taken back if a later
change touches one of the places. The one exception is the summary at the top of a memory file: nearly every change renews it, so
a later summary stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from operator import eq
from typing import Final, NamedTuple

from pegasus.memory.pages import is_summary

MOST_LINES: Final = 4_000
"""Lines of a passage that are compared with each other. A longer one becomes one block, because `SequenceMatcher`
takes quadratic time in the worst case and the caller holds the memory's lock."""


class Block(NamedTuple):
    r"""Lines that take the place of others: `Block(1, 2, ["c\n"])` replaces the second line."""

    start: int
    """Index of the first line that goes."""
    end: int
    """Index of the first line behind them; `start` for an insertion."""
    lines: Sequence[str]
    """The lines that come; none for a deletion."""

    @property
    def growth(self) -> int:
        """Lines that the text has more afterwards."""
        return len(self.lines) - (self.end - self.start)


def split_lines(text: str) -> list[str]:
    """Return the lines of a text with their ends."""
    return text.splitlines(keepends=True)


def difference(old: Sequence[str], new: Sequence[str]) -> list[Block]:
    """Return the blocks that make `new` of `old`, in the order of the text.

    Equal lines at both ends are skipped first, so that a line which is added to a long file costs no comparison.
    """
    head = _count_common(old, new)
    tail = _count_common(old[head:][::-1], new[head:][::-1])
    removed, added = old[head : len(old) - tail], new[head : len(new) - tail]
    if max(len(removed), len(added)) > MOST_LINES:
        return [Block(head, head + len(removed), added)]
    found = SequenceMatcher(None, removed, added).get_opcodes()
    return [Block(head + a, head + b, added[c:d]) for kind, a, b, c, d in found if kind != "equal"]


def _count_common(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the number of equal lines at the beginning."""
    return len(list(takewhile(bool, map(eq, first, second))))


def without_change(before: str, after: str, now: str) -> str | None:
    """Return the text of now without the change from `before` to `after`, or None if its lines were changed since."""
    old, new, lines = split_lines(before), split_lines(after), split_lines(now)
    since = difference(new, lines)
    for start, end, back in reversed(difference(new, old)):  # so that the places of those in front stay
        if any(other.start < end and other.end > start for other in since):
            if not (is_summary("".join(back)) and is_summary("".join(new[start:end]))):
                return None
            continue  # a summary that was renewed since stays
        moved = sum(other.growth for other in since if other.end <= start)
        lines[start + moved : end + moved] = back
    return "".join(lines)
