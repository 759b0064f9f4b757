"""The small durable state of the daemon: people who were let in, tokens, jobs, approvals, what a service has taken.

There are two kinds of collections. `KeyedStore` holds *rows* in memory, each under a key, and changes single ones. `LineStore` is for
state that is the result of all *lines* that were ever appended, which its owner makes. An owner names a collection and, where there
is one for each of several owners, whose it is (`owner`); it knows no file. `row_files` says where a collection is, and in which form.
Everything goes through the messages of the journal, which is the only writer of data/. That is the seam for a second engine: rows
of a database have the same collection, owner and key.

They are no `RecordLog`: that is a part of the journal, staged in its batches, and keeps large texts by their place in the file. The
rows here are small, and belong to other actors.

Rules of both:

* **A collection that cannot be read is not written**, since what is in memory then lacks what is on disk. It is read again before the
  next change, which fails with the error of the disk if that fails, too. The same holds after a change whose outcome is not known.
* **Damage is set aside** as `<file>.bad-<n>`: the whole file of rows, since a person may have edited it, and of a file of lines the
  bad ones. The copy is on disk before the file is replaced by what was understood. So a crash in between loses nothing and only
  repeats this; the same damage has one copy. What was understood counts before that, but nothing is changed until then.
* **Changes follow one another**: an older state never replaces a newer one on disk. Where another machine writes the same
  collection, a change that was decided by an older state than the stored one fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import attrs
import trio

from actors import ActorError, Ref
from pegasus.json_lines import BadLine, scan_lines
from pegasus.messages import Json, Metadata
from pegasus.observe import get_logger
from pegasus.retry import retry
from pegasus.storage.leases import Lease
from pegasus.storage.messages import (
    Changed,
    Commit,
    JournalMessage,
    NextChange,
    PutRows,
    ReadFile,
    ReadRows,
    ReplaceFile,
    SetAside,
    StorageError,
)
from pegasus.storage.record_log import name_some
from pegasus.storage.row_files import LINE_FILES, ROW_FILES, RowForm
from pegasus.wire import encode_line, to_wire

T = TypeVar("T")
ReadRow: TypeAlias = Callable[[str, Json], tuple[str, T]]
"""Returns key and value of an entry: of its key in the file, or the name of its list, and of its JSON. Raises ValueError, and then
the entry does not count."""

SLICE: Final = 100
"""Lines that are applied without a checkpoint, about a millisecond's work."""

_log = get_logger("storage")


class KeyedStore(Generic[T]):
    """The rows of a collection, in memory and on disk.

    Example::

        notes = KeyedStore("notes", lambda key, value: (key, from_wire(value, Note)))
        await notes.open(journal)
        async with notes.change():
            if len(notes.rows) < MOST_NOTES:
                await notes.save({"milk": Note("buy milk")})
    """

    def __init__(
        self,
        collection: str,
        read: ReadRow[T],
        *,
        owner: str = "",
        after_read: Callable[[], object] = lambda: None,
    ) -> None:
        """Name the collection, which is read after `use`.

        A row is JSON itself, or is written by `to_wire`. owner: whose collection it is, where there are several of its name.
        after_read: called when `rows` were read, each time.
        """
        path, self._form = ROW_FILES[collection]
        self._path = path.format(owner=owner)
        self._collection = collection, owner
        self._version = 0
        """Version of the collection that `rows` are."""
        self._read_row = read
        self._after_read = after_read
        self.rows: dict[str, T] = {}
        """The rows by key, in the order of the file. Only for reading."""
        self.is_read = False
        """True if `rows` are what could be understood of the file."""
        self._texts: dict[str, tuple[T, str]] = {}
        """Rows with their text, which is made once for each."""
        self._damaged = b""
        """Content of a damaged file that is not set aside yet."""
        self._journal: Ref[JournalMessage] | None = None
        """None before `use`: the rows are in memory only."""
        self.is_shared = False
        """True if other nodes may change the rows, which are read before each change then. `follow` sets it."""
        self._lock = trio.Lock()

    def use(self, journal: Ref[JournalMessage]) -> None:
        """Read and write through this journal from now on. The rows count as not read."""
        self._journal, self.is_read = journal, False

    async def open(self, journal: Ref[JournalMessage]) -> None:
        """Use this journal, and read the rows. If they cannot be read that is logged, and tried again when they are needed."""
        self.use(journal)
        try:
            await self.ensure_read()
        except (StorageError, ActorError) as error:
            _log.error("a file cannot be read; what depends on it has to wait", file=self._path, error=str(error))

    async def ensure_read(self) -> None:
        """Read the rows if that has not succeeded yet. Raises StorageError and ActorError.

        A damaged file is set aside if the disk lets it be; if not, the next change tries that again.
        """
        async with self._lock:
            await self._read()
            try:
                await self._set_aside()
            except (StorageError, ActorError) as error:
                _log.error("a damaged file cannot be set aside, and is not changed", file=self._path, error=str(error))

    async def follow(self) -> None:
        """Read the rows again whenever another node has changed them, until cancelled. Raises ActorError.

        Where the state is in files, nobody else changes them, and there is no need to follow.
        """
        self.is_shared = True
        while self._journal is not None:
            ask = partial(self._journal.ask, NextChange, *self._collection, self._version)
            if await retry(ask, StorageError) != self._version:  # after a failover it may be an older one
                await retry(self.read_again, StorageError)

    async def read_again(self) -> None:
        """Read the rows if other nodes may have changed them. Raises StorageError and ActorError."""
        async with self._lock:
            self.is_read = self.is_read and not self.is_shared
            await self._read()

    @asynccontextmanager
    async def change(self) -> AsyncIterator[None]:
        """Hold the lock for a change, after the rows were read, and their file was set aside if it was damaged.

        Where other nodes may have changed them they are read in any case, so that the change is decided by what is stored.

        Raises StorageError and ActorError if that fails; then the block is not entered. Cancelled while it waits, nothing has changed.
        """
        async with self._lock:
            # Under the lock: what is read before a change must not replace what that change has made.
            self.is_read = self.is_read and not self.is_shared
            await self._read()
            await self._set_aside()
            yield

    async def save(self, put: Mapping[str, T] | None = None, delete: Iterable[str] = ()) -> None:
        """Put and delete rows, all of it or nothing; on return they are on disk and in `rows`. To be called within `change`.

        A row whose key exists keeps its place, unless the key is among `delete` as well; then it is the last. Keys that do not exist
        are no error. Raises StorageError, after which nothing has changed; also if somebody else has changed the collection, and it
        is read again before the next change. So it is after an ActorError, and when cancelled, since the rows may be on disk then.
        """
        rows, put, deleted = dict(self.rows), put or {}, frozenset(delete)
        for key in deleted:
            rows.pop(key, None)
        rows.update(put)
        await self._write(rows, put, deleted)
        self.rows = rows
        for key in deleted - rows.keys():
            self._texts.pop(key, None)

    async def _read(self) -> None:
        """Read the file if `rows` may differ from it. Raises StorageError and ActorError."""
        if self._journal is None or self.is_read:
            return
        stored = await self._journal.ask(ReadRows, *self._collection)
        self.rows, problems = _parse(self._form, stored.content, self._read_row)
        self._version, self._texts = stored.version, {}
        self.is_read, self._damaged = True, stored.content if problems else b""
        if problems:
            _log.warning("a file is damaged", file=self._path, problems=name_some(problems))
        self._after_read()

    async def _set_aside(self) -> None:
        """Copy a damaged file, and replace it by what was understood. Raises StorageError and ActorError."""
        if self._journal is None or not self._damaged:
            return
        copy = await self._journal.ask(SetAside, self._path, self._damaged)
        await self._write(self.rows, {}, frozenset())
        self._damaged = b""
        _log.warning("a damaged file was set aside", file=copy)

    async def _write(self, rows: Mapping[str, T], put: Mapping[str, T], delete: frozenset[str]) -> None:
        """Store what was put and deleted, by which the collection has become `rows`. Raises StorageError and ActorError."""
        if self._journal is None:
            return

        def content() -> bytes:
            return self._form.content((key, self._text(key, row)) for key, row in rows.items())

        texts = {key: self._text(key, row) for key, row in put.items()}
        try:
            self._version = await self._journal.ask(PutRows, *self._collection, texts, delete, content, self._version)
        except Changed:
            self.is_read = False
            raise StorageError(f"{self._path}: somebody else has changed it; try again") from None
        except (ActorError, trio.Cancelled):
            self.is_read = False
            raise

    def _text(self, key: str, row: T) -> str:
        """Return a row as it is stored."""
        known = self._texts.get(key)
        if known is None or known[0] is not row:
            known = self._texts[key] = row, self._form.text(_json_of(row))
        return known[1]


class LineStore:
    """The lines of a collection, each a JSON object. Their owner keeps what follows from them.

    Example::

        steps = LineStore("approvals", journal)
        await steps.read(apply)
        await steps.append({"id": "a-7f3k", "state": "allowed"})
    """

    def __init__(self, collection: str, journal: Ref[JournalMessage], owner: str = "") -> None:
        """Name the collection, which is in this journal. owner: whose it is, where there are several of its name."""
        self._path = LINE_FILES[collection].format(owner=owner)
        self.journal = journal
        """Reads and writes the lines."""
        self.lease: Lease | None = None
        """Lease that changes carry, where one node at a time may make them."""
        self._bad = b""
        """Lines that are no records, which are not set aside yet."""
        self._good = b""
        """The other lines, while there are such."""
        self.lines = 0
        """Number of records since they were read or rewritten."""
        self.length = 0
        """Lines that the collection has as far as this store knows, for `append`."""
        self._lock = trio.Lock()
        """Held during each call: what a repair writes must not replace what was appended meanwhile."""

    async def read(self, apply: Callable[[Metadata], object]) -> None:
        """Apply all lines, in order. A damaged one hides nothing of the others. Raises StorageError and ActorError.

        apply: raises ValueError, TypeError, LookupError or AttributeError for a line that does not fit, and changes nothing then.
        Damage is set aside, if the disk lets it be, or else by the next change: nothing may be appended behind a torn line.
        """
        async with self._lock:
            await self._read(apply)

    async def _read(self, apply: Callable[[Metadata], object]) -> None:
        """Do what `read` does, under the lock."""
        content = await self.journal.ask(ReadFile, self._path)
        bad, self.lines = list[BadLine](), 0
        for line in _apply_lines(content, apply):
            if line is not None:
                bad.append(line)
                continue
            self.lines += 1
            if self.lines % SLICE == 0:
                await trio.lowlevel.checkpoint()
        self._bad = b"".join(line.raw.rstrip(b"\n") + b"\n" for line in bad)
        self._good = _without(content, bad) if bad else b""
        self.length = (self._good if bad else content).count(b"\n")
        if not bad:
            return
        _log.warning("a file has damaged lines", file=self._path, problems=name_some(bad))
        try:
            await self._set_aside()
        except (StorageError, ActorError) as error:
            _log.error("damaged lines cannot be set aside yet", file=self._path, error=str(error))

    async def append(self, *records: Mapping[str, Json], after: int | None = None, soon: bool = False) -> None:
        """Append lines in one step; on return they are on disk. Raises StorageError, after which none is, LeaseLost and ActorError.

        after: the `length` by which these lines were decided; None: they do not depend on others. Changed means that there are other
        lines by now: read them, and decide again. soon: they wait a moment for others to be written with (`Commit.soon`).
        """
        async with self._lock:
            await self._set_aside()
            lines = b"".join(map(encode_line, records))
            await self.journal.ask(Commit, ((self._path, lines),), (), self.lease, (), after, (), soon)
            self.lines += len(records)
            self.length += len(records)

    async def rewrite(self, records: Collection[Mapping[str, Json]]) -> None:
        """Replace all lines by these, which mean the same. Raises StorageError, after which the old ones are there, and ActorError.

        `lines` is the new number even then, so that an owner who rewrites when there are too many does not try it with each append.
        """
        async with self._lock:
            self.lines = len(records)
            await self._set_aside()
            await self.journal.ask(ReplaceFile, self._path, b"".join(map(encode_line, records)), self.lease)
            self.length = len(records)

    async def _set_aside(self) -> None:
        """Copy damaged lines, and replace the file by the others. Raises StorageError and ActorError."""
        if not self._bad:
            return
        copy = await self.journal.ask(SetAside, self._path, self._bad)
        await self.journal.ask(ReplaceFile, self._path, self._good, self.lease)
        self._bad = self._good = b""
        _log.warning("damaged lines were set aside", file=copy)


# ------------------------------------------------------------------ without a journal


def stored_rows(data: Path, collection: str, read: ReadRow[T]) -> tuple[dict[str, T], list[str]]:
    """Return the rows of a home, and what is wrong with its file, for a process that is not the daemon. Blocks; raises OSError.

    It needs no lock, since a file is replaced as a whole. data: folder of the journal.
    """
    path, form = ROW_FILES[collection]
    return _parse(form, _content(data / path), read)


def stored_lines(data: Path, collection: str, apply: Callable[[Metadata], object]) -> list[str]:
    """Apply the lines of a home as `LineStore.read` does, and return what is wrong. Blocks; raises OSError."""
    content = _content(data / LINE_FILES[collection])
    return [str(line) for line in _apply_lines(content, apply) if line is not None]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _parse(form: RowForm, content: bytes, read: ReadRow[T]) -> tuple[dict[str, T], list[str]]:
    """Return the rows in the content of a file, and what is wrong with others.

    Of two rows with one key the later counts, in the place of the first: somebody has copied an entry and changed it.
    """
    rows: dict[str, T] = {}
    if not content:
        return rows, []
    try:
        entries, problems = form.decode(content)
    except ValueError as error:
        return rows, [str(error)]
    for number, (name, value) in enumerate(entries, start=1):
        try:
            key, row = read(name, value)
        except ValueError as error:
            problems.append(f"entry {number}: {error}")
        else:
            if key in rows:
                problems.append(f"entry {number}: in place of one with the same key")
            rows[key] = row
    return rows, problems


def _apply_lines(content: bytes, apply: Callable[[Metadata], object]) -> Iterable[BadLine | None]:
    """Apply the lines of a file one after the other. Yield None for each that was applied, and those that were not."""
    for line in scan_lines(content):
        if isinstance(line, BadLine):
            yield line
            continue
        try:
            apply(line.value)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raw = content[line.offset : line.offset + line.length]
            yield BadLine(line.number, line.offset, raw, f"not a record ({error})")
        else:
            yield None


def _without(content: bytes, bad: Iterable[BadLine]) -> bytes:
    """Return the content of a file without these lines."""
    parts, begin = list[bytes](), 0
    for line in bad:
        parts.append(content[begin : line.offset])
        begin = line.offset + len(line.raw)
    return b"".join([*parts, content[begin:]])


def _json_of(row: Any) -> Json:
    return to_wire(row) if attrs.has(type(row)) else row
