"""Changes of memory files as the log keeps them, and how to take one back. Pure functions.

A change is a list of *splices*: at this place these lines were replaced by those. So it is small however long the file
is, and it can be undone although the file was changed elsewhere since. To find where the lines stand now, their place is
moved through every later change: insertions in front of it shift it, and a change that overlaps it extends it. If the
text at the resulting place is still the one that the change has put there, it is replaced by the old one. Otherwise a
later change stands on it, and undoing would silently undo that too, so it is refused with the number of that change.

Changes that cancel each other out (one and its undo, a switch of an editor and back) are left out of the computation: the
log has the hash of the file after each change, and a hash that comes again marks a detour.

Texts are the bytes of the files decoded with `surrogateescape`, so that bytes that are not UTF-8 come back unchanged.

The alternatives were keeping the whole text of every version, which lets the log grow with the size of the
files and can only go back to a state, and unified diffs, whose context lines find their place by guessing. Here
the place is computed: the log has every change, so where a line has moved is known exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from hashlib import sha256
from typing import Any, Final, NamedTuple

import attrs

from pegasus.memory.pages import is_summary
from pegasus.messages import Json
from pegasus.wire import number_of

MOST_LINES: Final = 4_000
"""Lines of a passage that are compared with each other. A longer one becomes one splice, because `SequenceMatcher`
takes quadratic time in the worst case and the caller holds the memory's lock."""


@attrs.frozen
class Author:
    """Origin of a change."""

    kind: str = "main-agent"
    """main-agent, task, reflection (of that task), user (by a command), or hand (an editor, noticed afterwards)."""
    task: str = ""
    """Id of the task that wrote, for kind task and reflection."""
    user: str = ""
    """Id of the person, as the channel names people."""
    channel: str = ""
    """`<type>:<channelId>` of the message that led to it."""
    why: str = ""
    """Reason that the writer has given."""
    source: str = ""
    """Where the words come from; see `provenance`."""


class Splice(NamedTuple):
    r"""A replacement of whole lines.

    `Splice(10, "tea\n", "coffee\n")` replaces the line "tea" that begins at character 10.
    """

    at: int
    """Character of the text before the change."""
    old: str
    """The lines that went; "" for an insertion."""
    new: str
    """The lines that came; "" for a deletion."""


@attrs.frozen
class Change:
    """A change of one file, as a line of the log.

    For example:

        change = Change(7, now, "facts/user.md", "patch", Author("task", task="t-1"), hash_of(a), hash_of(b), difference(…))
    """

    n: int
    """Number of the change, from 1."""
    ts: int
    """Wall clock, ms."""
    path: str
    how: str
    """write, patch, append, undo or edit."""
    by: Author
    """The origin, for people who look at the log."""
    before: str
    """Hash of the file before; "" if it did not exist or was empty."""
    after: str
    """Hash of the file after."""
    splices: tuple[Splice, ...] | None = ()
    """In the order of the text; None if the content was too large to be kept."""
    undoes: int = 0
    """Number of the change that this one takes back, 0 for none."""


class CannotUndo(Exception):
    """The change cannot be taken back. The text says why."""


def text_of(content: bytes) -> str:
    """Return a file as text. `bytes_of` makes the same bytes of it."""
    return content.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """Return the bytes of a text that `text_of` has made."""
    return text.encode("utf-8", "surrogateescape")


def hash_of(content: bytes) -> str:
    """Return a hash that identifies the content, 16 hex digits; "" for an empty one."""
    return sha256(content).hexdigest()[:16] if content else ""


# ------------------------------------------------------------------ differences


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


# ------------------------------------------------------------------ undo


class _Place(NamedTuple):
    """The place of a splice's new lines in the text of now."""

    start: int
    """First character of the place."""
    end: int
    """The character behind the place; equal to `start` if all lines of the splice were deleted."""
    touched: tuple[int, ...] = ()
    """Numbers of later changes that overlap it."""

    def after(self, change: Change) -> _Place:
        """Return the place after one more change."""
        start, end, before, inside, touched = self.start, self.end, 0, 0, False
        for at, old, new in change.splices or ():
            behind, longer = at + len(old), len(new) - len(old)
            # A change in front only moves the place. One that overlaps it, or is inside it, extends it to both.
            # Changes behind it have no influence.
            if behind <= self.start:
                before += longer
            elif at < self.end or at < self.start:
                start, end, touched = min(start, at), max(end, behind), True
                inside += longer
        marks = (*self.touched, change.n) if touched else self.touched
        return _Place(start + before, end + before + inside, marks)


def undo_change(change: Change, later: Sequence[Change], text: str) -> str:
    """Return the file without this change. later: the changes of the file since, in order. Raises CannotUndo.

    All splices of the change must be undoable, otherwise none is undone. The one exception is the summary at
    the top of a file: nearly every change renews it, so a later summary stays instead of refusing the undo.
    """
    if change.splices is None:
        raise CannotUndo(f"change {change.n} was too large to be kept")
    later = _without_detours(change.after, later)
    large = next((other.n for other in later if other.splices is None), None)
    if large is not None:
        raise CannotUndo(f"change {large}, which came later, was too large to be kept")
    kept = []
    for splice, place in zip(change.splices, _places(change.splices), strict=True):
        for other in later:
            place = place.after(other)
        if text[place.start : place.end] == splice.new:
            kept.append(Splice(place.start, splice.new, splice.old))
        elif not (is_summary(splice.old) and is_summary(splice.new)):  # a summary that was renewed since stays
            names = ", ".join(map(str, place.touched)) or "one that is not in the log"
            raise CannotUndo(f"a later change stands on it: {names}; take that back first")
    try:
        return applied(text, sorted(kept))
    except ValueError as error:
        raise CannotUndo(str(error)) from None


def _without_detours(state: str, later: Iterable[Change]) -> list[Change]:
    """Return the changes without those that led back to an earlier state of the file (a change and its undo)."""
    direct: list[Change] = []
    length_at = {state: 0}
    for change in later:
        direct.append(change)
        if change.after in length_at:
            for detour in direct[length_at[change.after] : -1]:
                length_at.pop(detour.after, None)
            # The hash was seen before: everything since then led back to that state, and states on the way
            # cannot be returned to.
            del direct[length_at[change.after] :]
        else:
            length_at[change.after] = len(direct)
    return direct


def _places(splices: Iterable[Splice]) -> Iterable[_Place]:
    """Yield the place of each splice's new lines in the text after all of them."""
    moved = 0
    for at, old, new in splices:
        yield _Place(at + moved, at + moved + len(new))
        moved += len(new) - len(old)


# ------------------------------------------------------------------ on disk


def to_json(change: Change) -> dict[str, Json]:
    """Return the change as a JSON object. Empty values are left out."""
    by = {key: value for key, value in attrs.asdict(change.by).items() if value}
    line: dict[str, Json] = {"n": change.n, "ts": change.ts, "path": change.path, "how": change.how, "by": by}
    if change.undoes:
        line["undoes"] = change.undoes
    line |= {"before": change.before, "after": change.after}
    line["splices"] = None if change.splices is None else [list(splice) for splice in change.splices]
    return line


def from_json(line: Mapping[str, Any]) -> Change:
    """Return the change that a JSON object stands for. Raises KeyError, TypeError or ValueError. Unknown keys are ignored."""
    known = {field.name for field in attrs.fields(Author)}
    by = Author(**{key: str(value) for key, value in line["by"].items() if key in known})
    found = line["splices"]
    splices = None if found is None else tuple(Splice(number_of(at), str(old), str(new)) for at, old, new in found)
    path, how, before, after = (str(line[key]) for key in ("path", "how", "before", "after"))
    n, ts, undoes = number_of(line["n"]), number_of(line["ts"]), number_of(line.get("undoes", 0))
    return Change(n, ts, path, how, by, before, after, splices, undoes)
