"""The log of memory as a value: what it says each file holds, and how it is kept from growing for ever.

    {"base":"facts/user.md","hash":…,"text":"…"}   the file before the first change that follows (text null: too large)
    {"n":7,"ts":…,"path":…,"how":…,…}              a change, written before the file is (see `changes`)
    {"void":7,"ts":…}                              change 7 was written, and not made: the process or the disk ended between

So the log is a second copy of memory. What a file holds and the log does not know, somebody has put there by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from pegasus.memory.changes import Change, applied, bytes_of, from_json, hash_of, to_json
from pegasus.wire import encode_line, number_of, read_lines

LOG: Final = ".log/changes.jsonl"
"""Beside the folders of memory."""
KEPT_FILE: Final = 65_536
"""Bytes of a file of which the log keeps a copy; of a larger one it keeps that it was changed."""
KEPT_CHANGES: Final = 2 << 20
"""Bytes of changes that are left when the log is shortened; and the last one of every file, however old."""
GROWTH: Final = 4 << 20
"""Bytes by which the log grows before it is shortened."""


class Known(NamedTuple):
    """What a file holds by the log. text: None where it was too large to be kept."""

    hash: str
    text: str | None


ABSENT: Final = Known("", "")


def known_as(content: bytes, text: str) -> Known:
    """What the log will know of a file with this content."""
    return Known(hash_of(content), text if len(content) <= KEPT_FILE else None)


class History:
    """What the log says. files: those that are not empty. last: the last change, unless it was void. damaged: bad lines."""

    def __init__(self) -> None:
        self.files: dict[str, Known] = {}
        self.count = 0
        self.last: Change | None = None
        self.size = 0
        self.short = 0
        self.damaged: list[bytes] = []
        self._before = ABSENT

    def of(self, path: str) -> Known:
        """What it says this file holds."""
        return self.files.get(path, ABSENT)

    def add(self, change: Change) -> None:
        """One more change."""
        before = self.of(change.path)
        self._put(change.path, _after(before, change))
        self.count, self.last, self._before = change.n, change, before

    def void(self) -> None:
        """The last change was not made."""
        if self.last is not None:
            self._put(self.last.path, self._before)
            self.last = None

    def base(self, path: str, known: Known) -> None:
        """What a file held when the log was shortened."""
        self._put(path, known)

    def _put(self, path: str, known: Known) -> None:
        if known.hash:
            self.files[path] = known
        else:
            self.files.pop(path, None)


def _after(before: Known, change: Change) -> Known:
    if not change.after:
        return ABSENT
    if before.text is None or change.splices is None:
        return Known(change.after, None)
    try:
        text = applied(before.text, change.splices)
    except ValueError:  # a line before this one is missing
        return Known(change.after, None)
    return Known(change.after, text if len(text) <= KEPT_FILE else None)


# ------------------------------------------------------------------ reading


class _Void(NamedTuple):
    n: int


class _Base(NamedTuple):
    path: str
    known: Known


def _records(data: bytes, damaged: list[bytes]) -> Iterable[Change | _Base | _Void]:
    lines = read_lines(data)
    damaged += [line.raw for line in lines.bad]
    for _, value in lines.good:
        try:
            if "void" in value:
                yield _Void(number_of(value["void"]))
            elif "base" in value:
                text = value["text"]
                yield _Base(str(value["base"]), Known(str(value["hash"]), None if text is None else str(text)))
            else:
                yield from_json(value)
        except (KeyError, TypeError, ValueError, AttributeError):
            damaged.append(_as_it_was(value))


def _as_it_was(value: object) -> bytes:
    """The line of something that is no record, be it NaN, which `encode_line` refuses."""
    return f"{json.dumps(value, separators=(',', ':'))}\n".encode()


def read_history(data: bytes) -> History:
    """What this log says; what is no record is left out, and is in `damaged`."""
    history = History()
    history.size = len(data)
    for record in _records(data, history.damaged):
        match record:
            case Change():
                history.add(record)
            case _Base(path, known):
                history.base(path, known)
            case _Void(n):
                if history.last is not None and history.last.n == n:
                    history.void()
    for path, known in history.files.items():
        if known.text is not None and hash_of(bytes_of(known.text)) != known.hash:  # a line before is missing
            history.files[path] = Known(known.hash, None)
    return history


def changes_in(data: bytes) -> list[Change]:
    """Every change that was made, in order."""
    made: dict[int, Change] = {}
    for record in _records(data, []):
        if isinstance(record, Change):
            made[record.n] = record
        elif isinstance(record, _Void):
            made.pop(record.n, None)
    return list(made.values())


# ------------------------------------------------------------------ writing


def change_line(change: Change) -> bytes:
    """As it is appended to the log."""
    return encode_line(to_json(change))


def void_line(n: int, ts: int) -> bytes:
    """As it is appended to the log."""
    return encode_line({"void": n, "ts": ts})


def shortened(data: bytes, kept: int = KEPT_CHANGES) -> bytes:
    """A log that knows the same of every file, its last `kept` bytes of changes, and each file's last change at least."""
    made = {change.n: change for change in changes_in(data)}
    last_of = {change.path: change.n for change in made.values()}
    stay = set(last_of.values())
    for n, change in reversed(made.items()):
        kept -= len(change_line(change))
        if kept < 0:
            break
        stay.add(n)
    history, bases = History(), dict[str, Known]()
    for record in _records(data, []):
        if isinstance(record, _Base):
            history.base(record.path, record.known)
        elif isinstance(record, Change) and record.n in made:
            if record.n in stay:
                bases.setdefault(record.path, history.of(record.path))
            history.add(record)
    for path, known in history.files.items():
        bases.setdefault(path, known)
    lines = [encode_line({"base": path, **known._asdict()}) for path, known in bases.items() if known.hash]
    return b"".join([*lines, *(change_line(made[n]) for n in sorted(stay))])
