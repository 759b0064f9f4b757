"""The log of memory: the content of each file that follows from it, and how it is kept from growing for ever.

    {"base":"facts/user.md","hash":…,"text":"…"}   the file before the first change that follows (text null: too large)
    {"n":7,"ts":…,"path":…,"how":…,…}              a change, written before the file is (see `changes`)
    {"void":7,"ts":…}                              change 7 was written but not made: process or disk stopped in between

So the log is a second copy of memory, and a file that differs from it was changed by hand.

A log that has grown by `GROWTH` is shortened to its latest changes. In front of them stand "base" lines, so that the
content of every file still follows from the log. Pure functions; `logged_files` does the writing.

The log is read once when the process starts, and after an error. From then on `History` follows each line that
is written, so that a change costs an append and no reading. Because it knows the content of each file, a splice
can be computed without having read the file before, and an edit by hand becomes visible as a difference.

A line that is damaged (a torn write, an edit by hand) makes the text of its file unknown, as later splices have
nothing to be applied to. The hash of the file is still known from the next line on, so changes are still
noticed; only their text can be neither shown nor undone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pegasus.memory.changes import Change, applied, bytes_of, from_json, hash_of, to_json
from pegasus.wire import BadLine, encode_line, number_of, scan_lines

LOG: Final = ".log/changes.jsonl"
"""The log's path in the memory folder."""
KEPT_FILE: Final = 65_536
"""Bytes of a file up to which the log holds its content. Of a larger file it has only the hash."""
KEPT_CHANGES: Final = 2 << 20
"""Bytes of changes that stay when the log is shortened. The last change of each file stays however old it is."""
GROWTH: Final = 4 << 20
"""Bytes by which the log grows before it is shortened."""


class KnownContent(NamedTuple):
    """The content of a file as it follows from the log."""

    hash: str
    """See `changes.hash_of`; "" for a file that does not exist."""
    text: str | None
    """None if it was too large to be kept, or a line of the log is missing."""


ABSENT: Final = KnownContent("", "")
"""Content of a file that does not exist."""


def known_content(content: bytes, text: str) -> KnownContent:
    """Return the entry of the log's state for a file with this content."""
    return KnownContent(hash_of(content), text if len(content) <= KEPT_FILE else None)


class History:
    """State that follows from the lines of the log.

    For example:

        history = read_history(data)
        history.of("facts/user.md").text   # the content that the file must have
    """

    def __init__(self) -> None:
        self.files: dict[str, KnownContent] = {}
        """The files that exist, by path."""
        self.count = 0
        """Number of the last change, void ones included."""
        self.last: Change | None = None
        """The last change, unless it is void."""
        self.size = 0
        """Bytes of the log."""
        self.shortened_size = 0
        """Bytes of the log when it was shortened."""
        self.damaged: list[bytes] = []
        """Lines that are no records."""
        self._before = ABSENT
        """Content of the last change's file before it."""

    def of(self, path: str) -> KnownContent:
        """Return the content of a file."""
        return self.files.get(path, ABSENT)

    def add(self, change: Change) -> None:
        """Apply one more change."""
        before = self.of(change.path)
        self._put(change.path, _after(before, change))
        self.count, self.last, self._before = change.n, change, before

    def retract_last(self) -> None:
        """Take back the last change, which was not made."""
        if self.last is not None:
            self._put(self.last.path, self._before)
            self.last = None

    def set_base(self, path: str, known: KnownContent) -> None:
        """Set the content of a file from before the changes that follow."""
        self._put(path, known)

    def _put(self, path: str, known: KnownContent) -> None:
        if known.hash:
            self.files[path] = known
        else:
            self.files.pop(path, None)


def _after(before: KnownContent, change: Change) -> KnownContent:
    """Return the content of a file after a change, without the text if that does not follow from the log.

    Splices that do not fit mean that a line is missing before them. Then the hash is all that is known.
    """
    if not change.after:
        return ABSENT
    if before.text is None or change.splices is None:
        return KnownContent(change.after, None)
    try:
        text = applied(before.text, change.splices)
    except ValueError:  # a line before this one is missing
        return KnownContent(change.after, None)
    return KnownContent(change.after, text if len(text) <= KEPT_FILE else None)


# ------------------------------------------------------------------ reading


class _Void(NamedTuple):
    """A change that was not made."""

    n: int
    """Number of that change."""


class _Base(NamedTuple):
    """The content of a file before the changes that follow."""

    path: str
    known: KnownContent


def _records(data: bytes, damaged: list[bytes]) -> Iterable[Change | _Base | _Void]:
    """Yield the records of a log. Lines that are none are added to `damaged`.

    A record of the right shape may still be wrong; `read_history` compares the hashes at the end.
    """
    for line in scan_lines(data):
        if isinstance(line, BadLine):
            damaged.append(line.raw)
            continue
        value = line.value
        try:
            if "void" in value:
                yield _Void(number_of(value["void"]))
            elif "base" in value:
                text = value["text"]
                yield _Base(str(value["base"]), KnownContent(str(value["hash"]), None if text is None else str(text)))
            else:
                yield from_json(value)
        except (KeyError, TypeError, ValueError, AttributeError):
            damaged.append(data[line.offset : line.offset + line.length])


def read_history(data: bytes) -> History:
    """Return the state after all lines of a log. Lines that are no records are left out; see `History.damaged`."""
    history = History()
    history.size = len(data)
    for record in _records(data, history.damaged):
        match record:
            case Change():
                history.add(record)
            case _Base(path, known):
                history.set_base(path, known)
            case _Void(n):
                if history.last is not None and history.last.n == n:
                    history.retract_last()
    for path, known in history.files.items():
        if known.text is not None and hash_of(bytes_of(known.text)) != known.hash:  # a line in front of it is missing
            history.files[path] = KnownContent(known.hash, None)
    return history


def changes_in(data: bytes) -> list[Change]:
    """Return every change that was made, in order."""
    made: dict[int, Change] = {}
    for record in _records(data, []):
        if isinstance(record, Change):
            made[record.n] = record
        elif isinstance(record, _Void):
            made.pop(record.n, None)
    return list(made.values())


# ------------------------------------------------------------------ writing


def change_line(change: Change) -> bytes:
    """Return the line that is appended to the log for a change."""
    return encode_line(to_json(change))


def void_line(n: int, ts: int) -> bytes:
    """Return the line that is appended to the log for a change that was not made."""
    return encode_line({"void": n, "ts": ts})


def shortened(data: bytes, kept: int = KEPT_CHANGES) -> bytes:
    """Return a log with the same content of every file, and of the changes the last `kept` bytes and each file's last.

    It is written as one replaced file, so a crash leaves either log. Undone or old changes cannot be undone any
    more.
    """
    made = {change.n: change for change in changes_in(data)}
    last_of = {change.path: change.n for change in made.values()}
    stay = set(last_of.values())
    for n, change in reversed(made.items()):
        kept -= len(change_line(change))
        if kept < 0:
            break
        stay.add(n)
    history, bases = History(), dict[str, KnownContent]()
    for record in _records(data, []):
        if isinstance(record, _Base):
            history.set_base(record.path, record.known)
        elif isinstance(record, Change) and record.n in made:
            if record.n in stay:
                bases.setdefault(record.path, history.of(record.path))
            history.add(record)
    for path, known in history.files.items():
        bases.setdefault(path, known)
    lines = [encode_line({"base": path, **known._asdict()}) for path, known in bases.items() if known.hash]
    return b"".join([*lines, *(change_line(made[n]) for n in sorted(stay))])
