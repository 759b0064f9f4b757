r"""Differences between two texts as splices of whole lines, and taking a difference back.

    difference("a\nb\n", "a\nc\n")      # (Splice(2, "b\n", "c\n"),)
    applied("a\nb\n", splices)           # "a\nc\n"

A splice says that at this place these lines were replaced by those. A difference can be taken back although the text was changed
elsewhere since: its splices are turned round, and their places are moved by the difference between the text right after it and the
text now. It is not taken back if that difference touches one of the places. The one exception is the summary at the top of a memory
file: nearly every change renews it, so a later summary stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from pegasus.memory.pages import is_summary

MOST_LINES: Final = 4_000
"""Lines of a passage that are compared with each other. A longer one becomes one splice, because `SequenceMatcher`
takes quadratic time in the worst case and the caller holds the memory's lock."""


class Splice(NamedTuple):
    r"""A replacement of whole lines.

    `Splice(10, "tea\n", "coffee\n")` replaces the line "tea" that begins at character 10.

    Example: `applied("tea\n", (Splice(0, "tea\n", "coffee\n"),))` is "coffee\n".
    """

    at: int
    """Character of the text before the change."""
    old: str
    """The lines that went; "" for an insertion."""
    new: str
    """The lines that came; "" for a deletion."""


class CannotUndo(Exception):
    """The change cannot be taken back. The text says why.

    Raised by `undo_change`. `Memory.undo` makes a MemoryRefused of it, which names the change.

    Example: a change of a line that a later change has rewritten raises it.
    """


def difference(old: str, new: str) -> tuple[Splice, ...]:
    """Return the splices that make `new` of `old`, line by line.

    `applied(old, difference(old, new)) == new`. Equal lines at both ends are skipped first, so that a line
    which is added to a long file costs no comparison.
    """
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    head = _common_lines(before, after)
    tail = _common_lines(before[head:][::-1], after[head:][::-1])
    removed, added = before[head : len(before) - tail], after[head : len(after) - tail]
    at, splices = sum(map(len, before[:head])), []
    for _, a, b, c, d in _blocks(removed, added):
        splices.append(Splice(at + sum(map(len, removed[:a])), "".join(removed[a:b]), "".join(added[c:d])))
    return tuple(splices)


def _common_lines(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the number of equal lines at the beginning."""
    count = 0
    for left, right in zip(first, second, strict=False):
        if left != right:
            break
        count += 1
    return count


def _blocks(removed: Sequence[str], added: Sequence[str]) -> Iterable[tuple[str, int, int, int, int]]:
    """Return the parts that differ, as opcodes of `SequenceMatcher`."""
    if not removed and not added:
        return ()
    if not removed or not added or max(len(removed), len(added)) > MOST_LINES:
        return (("replace", 0, len(removed), 0, len(added)),)
    return (found for found in SequenceMatcher(None, removed, added).get_opcodes() if found[0] != "equal")


def applied(text: str, splices: Iterable[Splice]) -> str:
    """Return the text after these splices. Raises ValueError if they do not fit the text."""
    parts, done = [], 0
    for at, old, new in splices:
        if at < done or text[at : at + len(old)] != old:
            raise ValueError(f"the log and the file do not agree at character {at}")
        parts += [text[done:at], new]
        done = at + len(old)
    return "".join([*parts, text[done:]])


# ------------------------------------------------------------------ taking back


def inverse(splices: Iterable[Splice]) -> Iterator[Splice]:
    """Yield the splices that lead back, from the text after these splices to the text before."""
    longer = 0
    for at, old, new in splices:
        yield Splice(at + longer, new, old)
        longer += len(new) - len(old)


def splices_undone(splices: Iterable[Splice], after: str, now: str) -> str | None:
    """Return the text of now without these splices, or None if a later change touches their lines.

    after: the text right after the splices were made.
    """
    since = difference(after, now)
    kept = []
    for at, new, old in inverse(splices):
        end = at + len(new)
        if any(other.at < end and other.at + len(other.old) > at for other in since):
            if not (is_summary(old) and is_summary(new)):
                return None
            continue  # a summary that was renewed since stays
        moved = sum(len(other.new) - len(other.old) for other in since if other.at + len(other.old) <= at)
        kept.append(Splice(at + moved, new, old))
    return applied_or_refused(now, kept)


def applied_or_refused(text: str, splices: Iterable[Splice]) -> str:
    """Return the text after these splices. Raises CannotUndo if they do not fit: the log does not have every change."""
    try:
        return applied(text, splices)
    except ValueError:
        raise CannotUndo("the file was changed later in a way that is not in the log; edit the file instead") from None
