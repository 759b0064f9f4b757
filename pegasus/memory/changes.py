"""A change to a memory file as the log keeps it: who, why, when, and what is needed to take it back. Pure functions over values.

A change is a few splices of whole lines, so it is small however long the file is, and it can be taken back although the file
was changed elsewhere since: the places it touched are followed through every later change. Texts are the bytes of the files as
`surrogateescape` decodes them, so that nothing is lost of what is no UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from hashlib import sha256
from typing import Any, Final, NamedTuple

import attrs

from pegasus.memory.page import is_summary
from pegasus.messages import Json
from pegasus.wire import number_of

MOST_LINES: Final = 4_000
"""Lines that are compared one with another; a longer passage counts as changed whole."""


@attrs.frozen
class Author:
    """Who changed something, and what for.

    kind: main-agent, task, reflection (of that task), user (by a command) or hand (an editor, noticed afterwards).
    channel: `<type>:<channelId>` of the message it was done for. source: where the words come from (see `provenance`).
    """

    kind: str = "main-agent"
    task: str = ""
    user: str = ""
    channel: str = ""
    why: str = ""
    source: str = ""


class Splice(NamedTuple):
    """At character `at` of the text before, `old` stood, and `new` stands in its place."""

    at: int
    old: str
    new: str


@attrs.frozen
class Change:
    """One line of the log.

    n: its number, from 1. ts: wall clock, ms. how: write, patch, append, undo or edit. before, after: hashes of the file, "" where it
    was not there or has no bytes. splices: in the order of the text; None where the content was too large to be kept. undoes:
    the change that this one takes back.
    """

    n: int
    ts: int
    path: str
    how: str
    by: Author
    before: str
    after: str
    splices: tuple[Splice, ...] | None = ()
    undoes: int = 0


class NotTakenBack(Exception):
    """The change cannot be taken back; says why."""


def text_of(content: bytes) -> str:
    """The file as text, of which `bytes_of` makes the same bytes again."""
    return content.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """The bytes of such a text."""
    return text.encode("utf-8", "surrogateescape")


def hash_of(content: bytes) -> str:
    """Which content it is, in 16 hex digits; "" for none."""
    return sha256(content).hexdigest()[:16] if content else ""


# ------------------------------------------------------------------ what is different


def difference(old: str, new: str) -> tuple[Splice, ...]:
    """What makes `new` of `old`, line by line."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    head = _alike(before, after)
    tail = _alike(before[head:][::-1], after[head:][::-1])
    gone, come = before[head : len(before) - tail], after[head : len(after) - tail]
    at, splices = sum(map(len, before[:head])), []
    for _, a, b, c, d in _blocks(gone, come):
        splices.append(Splice(at + sum(map(len, gone[:a])), "".join(gone[a:b]), "".join(come[c:d])))
    return tuple(splices)


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _blocks(gone: Sequence[str], come: Sequence[str]) -> Iterable[tuple[str, int, int, int, int]]:
    if not gone and not come:
        return ()
    if not gone or not come or max(len(gone), len(come)) > MOST_LINES:
        return (("replace", 0, len(gone), 0, len(come)),)
    return (found for found in SequenceMatcher(None, gone, come).get_opcodes() if found[0] != "equal")


def applied(text: str, splices: Iterable[Splice]) -> str:
    """The text after these. Raises ValueError if they are not about this text."""
    parts, done = [], 0
    for at, old, new in splices:
        if at < done or text[at : at + len(old)] != old:
            raise ValueError(f"the log and the file do not agree at character {at}")
        parts += [text[done:at], new]
        done = at + len(old)
    return "".join([*parts, text[done:]])


# ------------------------------------------------------------------ taking back


class _Place(NamedTuple):
    """Where something that a change left stands now. touched: by these later changes."""

    start: int
    end: int
    touched: tuple[int, ...] = ()

    def after(self, change: Change) -> _Place:
        """Where it is after one more change, and what that has put into it."""
        start, end, before, inside, touched = self.start, self.end, 0, 0, False
        for at, old, new in change.splices or ():
            behind, longer = at + len(old), len(new) - len(old)
            if behind <= self.start:
                before += longer
            elif at < self.end or at < self.start:
                start, end, touched = min(start, at), max(end, behind), True
                inside += longer
        marks = (*self.touched, change.n) if touched else self.touched
        return _Place(start + before, end + before + inside, marks)


def taken_back(change: Change, later: Sequence[Change], text: str) -> str:
    """The file without this change. later: those to the same file since, in order. Raises NotTakenBack."""
    if change.splices is None:
        raise NotTakenBack(f"change {change.n} was too large to be kept")
    later = _without_detours(change.after, later)
    large = next((one.n for one in later if one.splices is None), None)
    if large is not None:
        raise NotTakenBack(f"change {large}, which came later, was too large to be kept")
    kept = []
    for splice, place in zip(change.splices, _places(change.splices), strict=True):
        for one in later:
            place = place.after(one)
        if text[place.start : place.end] == splice.new:
            kept.append(Splice(place.start, splice.new, splice.old))
        elif not (is_summary(splice.old) and is_summary(splice.new)):  # a summary that was renewed since stays
            names = ", ".join(map(str, place.touched)) or "one that is not in the log"
            raise NotTakenBack(f"a later change stands on it: {names}; take that back first")
    try:
        return applied(text, sorted(kept))
    except ValueError as error:
        raise NotTakenBack(str(error)) from None


def _without_detours(state: str, later: Iterable[Change]) -> list[Change]:
    """The changes that are left if whatever led back to a state of the file (a change and its undo, say) is left out."""
    way: list[Change] = []
    passed = {state: 0}
    for one in later:
        way.append(one)
        if one.after in passed:
            for left in way[passed[one.after] : -1]:
                passed.pop(left.after, None)
            del way[passed[one.after] :]
        else:
            passed[one.after] = len(way)
    return way


def _places(splices: Iterable[Splice]) -> Iterable[_Place]:
    """Where what they left stands in the text after them."""
    moved = 0
    for at, old, new in splices:
        yield _Place(at + moved, at + moved + len(new))
        moved += len(new) - len(old)


# ------------------------------------------------------------------ on disk


def to_json(change: Change) -> dict[str, Json]:
    """A line of the log; what is empty is absent."""
    by = {key: value for key, value in attrs.asdict(change.by).items() if value}
    line: dict[str, Json] = {"n": change.n, "ts": change.ts, "path": change.path, "how": change.how, "by": by}
    if change.undoes:
        line["undoes"] = change.undoes
    line |= {"before": change.before, "after": change.after}
    line["splices"] = None if change.splices is None else [list(splice) for splice in change.splices]
    return line


def from_json(line: Mapping[str, Any]) -> Change:
    """The change in a line. Raises KeyError, TypeError or ValueError for what is none; unknown keys are ignored."""
    known = {field.name for field in attrs.fields(Author)}
    by = Author(**{key: str(value) for key, value in line["by"].items() if key in known})
    found = line["splices"]
    splices = None if found is None else tuple(Splice(number_of(at), str(old), str(new)) for at, old, new in found)
    path, how, before, after = (str(line[key]) for key in ("path", "how", "before", "after"))
    n, ts, undoes = number_of(line["n"]), number_of(line["ts"]), number_of(line.get("undoes", 0))
    return Change(n, ts, path, how, by, before, after, splices, undoes)
