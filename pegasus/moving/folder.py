"""The data of an agent as a folder of files: read as the contents of a database, and written from them.

Every file below data/ moves byte for byte, but for three kinds. Inbox and outbox become items and replies, and come back as a rewrite
would have left them. A file of rows becomes its rows, and comes back in the form in which their owner writes it. Lines that are
no text, such as the torn end that a crash leaves, go into `<file>.bad-<n>`, as the owner of the file would have put them.

Left out is what is made again (the index of memory, and what was copied of it), and what belongs to the machine: what `/undo` takes
back in its workspace.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

import attrs

from pegasus.guarded_open import open_regular
from pegasus.host import FORMAT
from pegasus.json_lines import BadLine
from pegasus.messages import Json
from pegasus.storage import ROW_FILES, collection_of, row_key, rows_path
from pegasus.storage.database import (
    Content,
    FileContents,
    InboxItem,
    KnownAddress,
    Numbers,
    PostedReply,
    ReplyNumbers,
    RowsContents,
    inbox_contents,
    inbox_file,
    outbox_contents,
    outbox_file,
)
from pegasus.wire import encode_json

INBOX: Final = "inbox/inbox.jsonl"
OUTBOX: Final = "outbox/outbox.jsonl"
VERSION: Final = "VERSION"
"""The number of the form of all files."""
_LEFT_OUT: Final = re.compile(r"(.*/)?memory/\.(index\.sqlite|copy\.json).*|undo(/.*)?|.*\.tmp")
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDERS: Final = {
    "main": "lines of conversations",
    "sessions": "lines of conversations",
    "tasks": "lines of tasks",
    "memory": "files of memory",
    "media": "files of messages",
    "transcripts": "transcripts",
    "usage": "lines of usage",
    "channels": "lines of deliveries",
}
"""Kinds that a person is told, by the first folder of a path; else "other files"."""


class FolderError(Exception):
    """A folder that cannot be read or written as data. The text names it and says what to do."""


@attrs.frozen
class DataFolder:
    """Files of a journal that does not run: `DataFolder(home.data, settings.agent.scope)`."""

    path: Path
    scope: str
    """Setting `agent.scope`: whether all chats share a session."""

    def contents(self, report: Callable[[str], object] = lambda problem: None) -> Iterator[Content]:
        """Yield all contents, in the order of `Content`. report: is told what was damaged. Raises FolderError, OSError. Blocks."""
        names = sorted(self._names())
        present = set(names)
        aside: list[FileContents] = []
        for path in (INBOX, OUTBOX):
            log, written = (self._read(path), self._written(path)) if path in present else (b"", 0)
            found, bad = inbox_contents(log, self.scope) if path == INBOX else outbox_contents(log, written)
            yield from found
            if bad:
                aside.append(self._aside(path, _raw(bad), present))
                report(f"{path}: {len(bad)} damaged lines are in {aside[-1].path} now")
        rows: list[RowsContents] = []
        for name in names:
            if name in (INBOX, OUTBOX):
                continue
            path = name
            if name.endswith(".next"):  # a change of the file was interrupted, see `volume`
                path = name.removesuffix(".next")
                if path in present:
                    continue
            file = FileContents(path, self._read(name), self._written(name))
            collection = collection_of(path)
            if collection is not None and collection[0] in ROW_FILES:
                found_rows, problems = _rows_of(*collection, file.content)
                rows += found_rows
                if problems:
                    aside.append(self._aside(path, file.content, present))
                    report(f"{path}: {problems[0]}; the file is {aside[-1].path} now")
                continue
            if path.endswith(".jsonl") and (damaged := _damage(file.content)):
                good, bad_lines = damaged
                aside.append(self._aside(path, bad_lines, present))
                report(f"{path}: its damaged lines are in {aside[-1].path} now")
                file = attrs.evolve(file, content=good)
            yield file
        yield from aside
        yield from sorted(rows, key=lambda each: (each.collection, each.owner))

    def _names(self) -> Iterator[str]:
        for folder, _, files in os.walk(self.path):
            for name in files:
                place = Path(folder, name)
                path = place.relative_to(self.path).as_posix()
                if _LEFT_OUT.fullmatch(path):
                    continue
                try:
                    path.encode()
                except UnicodeEncodeError:
                    raise FolderError(f"{str(place)!a}: its name is no UTF-8; move it away") from None
                if not stat.S_ISREG(place.lstat().st_mode):
                    raise FolderError(f"{place}: is no file; move it away")
                yield path

    def _read(self, path: str) -> bytes:
        with open_regular(self.path / path) as stream:
            return stream.read()

    def _written(self, path: str) -> int:
        return (self.path / path).stat().st_mtime_ns // 1_000_000

    def _aside(self, path: str, content: bytes, present: set[str]) -> FileContents:
        """Return a file for a damaged part, under a name that none has."""
        n = 1
        while (name := f"{path}.bad-{n}") in present:
            n += 1
        present.add(name)
        return FileContents(name, content, self._written(path))


def _raw(bad: Collection[BadLine]) -> bytes:
    return b"".join(line.raw.rstrip(b"\n") + b"\n" for line in bad)


def _damage(content: bytes) -> tuple[bytes, bytes] | None:
    """Return the lines of a file that are text, and those that are not; None if all are."""
    if (not content or content.endswith(b"\n")) and _is_text(content):
        return None
    *lines, torn = content.split(b"\n")
    good = [line + b"\n" for line in lines if _is_text(line)]
    bad = [line + b"\n" for line in [*lines, torn] if line and not (_is_text(line) and line is not torn)]
    return b"".join(good), b"".join(bad)


def _is_text(content: bytes) -> bool:
    """Return whether a database can hold it as text."""
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def _rows_of(collection: str, owner: str, content: bytes) -> tuple[list[RowsContents], list[str]]:
    """Return the rows of a file, and what is wrong with it. Of two with one key the later counts."""
    form = ROW_FILES[collection][1]
    try:
        entries, problems = form.decode(content)
    except ValueError as error:
        return [], [str(error)]
    rows: dict[str, str] = {}
    for number, (name, value) in enumerate(entries, start=1):
        try:
            key = row_key(collection, name, value)
        except ValueError as error:
            problems.append(f"entry {number}: {error}")
        else:
            if key in rows:
                problems.append(f"entry {number}: in place of one with the same key")
            rows[key] = form.text(value)
    return [RowsContents(collection, owner, rows)], problems


# ------------------------------------------------------------------ writing


class FolderWriter:
    """A folder of data that is being written, from contents in any order. Blocks; raises OSError, and FolderError for bad paths.

    Example::

        writer = FolderWriter(folder)
        for content in contents:
            writer.add(content)
        writer.finish()
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        """Folder, which is there and empty."""
        self._logs: list[Content] = []
        """Contents of inbox and outbox, which are written at the end."""
        self._version = f"{FORMAT}\n".encode()

    def add(self, content: Content) -> None:
        """Write a part, or keep it until the end."""
        match content:
            case FileContents(path=path) if path == VERSION:
                self._version = content.content
            case FileContents():
                self._write(content.path, content.content, content.at)
            case RowsContents(collection) if collection not in ROW_FILES:
                raise FolderError(f'found "{collection}", which only a newer program knows; use that one')
            case RowsContents():
                rows = ROW_FILES[content.collection][1].content(content.rows.items())
                self._write(rows_path(content.collection, content.owner), rows)
            case _:
                self._logs.append(content)

    def finish(self) -> None:
        """Write inbox and outbox, and the number of the form of all this; on return everything is on the disk."""
        if any(content != Numbers(0) for content in self._logs):
            self._write(INBOX, inbox_file(self._logs))
        if replies := outbox_file(self._logs):
            self._write(OUTBOX, replies)
        self._write(VERSION, self._version)
        for folder, _, files in os.walk(self._path):
            for name in (*files, "."):
                descriptor = os.open(Path(folder, name), os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def _write(self, path: str, content: bytes, at: int | None = None) -> None:
        parts = path.split("/")
        if not all(parts) or {".", ".."} & set(parts) or "\0" in path:
            raise FolderError(f"found the path {path!a}; allowed: paths below the folder")
        place = self._path / path
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(place, _NEW, 0o600), "wb") as stream:
            stream.write(content)
        if at is not None:
            os.utime(place, ns=(at * 1_000_000, at * 1_000_000))


# ------------------------------------------------------------------ comparing


class Tally:
    """Numbers of contents by kind, and a digest of all of them whatever their order."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """Numbers by kind, in the words of people."""
        self._sum = 0

    def add(self, content: Content) -> None:
        """Count a part. The number of the form of data is not counted: each program writes its own."""
        if isinstance(content, FileContents) and content.path == VERSION:
            return
        kind, number = "", 1
        said: Json
        match content:
            case Numbers():
                said = content.last_n
            case KnownAddress():
                kind, said = "addresses", [*attrs.astuple(content.address), content.heard]
            case InboxItem():
                item = content.item
                kind, said = (
                    ("messages" if item.message else "ids of messages"),
                    [content.n, item.dedupe, content.done_at],
                )
                said = [*said, item.message, item.lane, item.priority, item.at, item.is_owners]
            case ReplyNumbers():
                said = [*attrs.astuple(content.address), content.last, content.acked]
            case PostedReply():
                kind, said = "replies", [content.key, content.seq, content.message, content.at]
            case FileContents():
                kind = _FOLDERS.get(content.path.partition("/")[0], "other files")
                number = content.content.count(b"\n") if kind.startswith("lines") else 1
                said = [content.path, content.at, sha256(content.content).hexdigest()]
            case RowsContents():
                kind, number = content.collection.replace("-", " "), len(content.rows)
                said = [content.collection, content.owner, *(list[Json](row) for row in content.rows.items())]
        if kind:
            self.counts[kind] = self.counts.get(kind, 0) + number
        text = encode_json([type(content).__name__, said])
        self._sum = (self._sum + int.from_bytes(sha256(text.encode()).digest(), "big")) % (1 << 256)

    @property
    def digest(self) -> str:
        """64 hex digits that are the same for the same contents."""
        return f"{self._sum:064x}"
