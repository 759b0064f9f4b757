"""Search: brings the index up to date, as far as there is time, and asks it.

The folders are scanned at most once a second, since a scan costs more than a search. What is new is indexed before the
answer: memory files, which are few, then archives, newest first, each from where the last search stopped. A search that
runs out of time answers from what is indexed, and says how many files are missing.

Whatever is wrong with the index (another program's file, damage, a lock that is not released), a new one is made: in its
place, or in memory if the place itself is the trouble (a full or read-only disk).

All of it happens in a worker thread, one search at a time.

Searching and indexing are one operation for the sake of correctness: what was written a moment ago is found,
and there is no second thread that could fall behind or fail unnoticed. The price is that the first search of a
large home takes up to `BUDGET`, and the following ones continue where it stopped.

A crash at any point leaves a database that is valid or recognised as damaged; in both cases nothing is lost but
time.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from pegasus.memory.folder import LARGEST, FolderReader, Stamp
from pegasus.memory.pages import FOLDER
from pegasus.memory.search.index import PLACES, Found, Index, IndexedFile
from pegasus.memory.search.passages import archives_in, lines_of_session, passages_of_page
from pegasus.observe import get_logger

SCAN_EVERY: Final = 1.0
"""Seconds between two scans of the folders."""
BUDGET: Final = 5.0
"""Seconds that one search may spend on bringing the index up to date."""
TIDYING: Final = 0.02
"""Seconds that a search may spend on merging the parts of the index."""
BATCH: Final = 500
"""Passages that are indexed between two looks at the clock."""
_DISK_ERRORS: Final = {
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
    *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM),
}
"""Errors that a new file in the same place would meet as well. Then the index is in memory until the next start."""

_log = get_logger("memory")


class Searcher:
    """The index of one home, and the thread that works on it.

    >>> found = await Searcher.of(home.data).search("tea", where="facts")
    """

    def __init__(self, memory: Path, sessions: Path, index: Path, budget: float = BUDGET) -> None:
        self._memory = FolderReader(memory)
        """The folder of facts and episodes."""
        self._sessions = sessions
        """The folder of archived sessions."""
        self._path = index
        """The file of the index."""
        self._budget = budget
        """Seconds for bringing the index up to date; tests set less."""
        self._index: Index | None = None
        """The open database; None before the first search and after an error."""
        self._behind = 0
        """Number of files that were not indexed completely by the last scan."""
        self._scan_at = -math.inf
        """Time of Trio's clock from which on a search scans the folders."""
        self._is_place_usable = True
        """False after an error that a new file in the same place would meet as well."""
        self._lock = trio.Lock()
        """Held during a search, since the index is used from one thread at a time."""

    @classmethod
    def of(cls, data: Path) -> Searcher:
        """Return the searcher of a home. data: its data folder."""
        folder = data / FOLDER
        return cls(folder, data / "main", folder / ".index.sqlite")

    async def search(self, query: str, limit: int = 8, where: str = "") -> Found:
        """Return passages with these words, best first; see `Index.find`.

        Raises OSError if the folders cannot be read, and ValueError for an unknown `where`. Cancelled: what was indexed so
        far is kept.
        """
        if where not in ("", *PLACES):
            raise ValueError(f"in: found {where!r}, allowed: {', '.join(PLACES)}")
        async with self._lock:
            scan = trio.current_time() >= self._scan_at or self._behind > 0
            found = await trio.to_thread.run_sync(self._search, query, limit, where, scan)
            if scan:
                self._scan_at = trio.current_time() + SCAN_EVERY
            return found

    def changed(self) -> None:
        """Scan the folders at the next search, since something was written."""
        self._scan_at = -math.inf

    def close(self) -> None:
        """Close the index; the next search opens it again. Not to be called during a search."""
        if self._index is not None:
            self._index.close()
            self._index = None

    # ------------------------------------------------------------------ in a thread

    def _search(self, query: str, limit: int, where: str, scan: bool) -> Found:
        """Search in a thread, with the index as it is, then with a new one, then with one in memory.

        Each step is tried only if the one before failed. If all fail, the result has no hits and the reason in
        `problem`: a broken search must not end the task that asked.
        """
        problem = ""
        for attempt in (self._open, self._open_new, self._open_in_memory):
            if attempt == self._open_new and problem and not self._is_place_usable:
                continue  # a new file would have the same trouble
            try:
                index = self._index = self._index or attempt()
                if scan:
                    self._behind = self._refresh(index)
                return Found(index.find(query, limit, where), self._behind)
            except sqlite3.Error as error:
                problem = f"{type(error).__name__}: {error}"
                self._is_place_usable = (
                    getattr(error, "sqlite_errorcode", sqlite3.SQLITE_NOTADB) & 0xFF not in _DISK_ERRORS
                )
                _log.warning("the index of memory is rebuilt", problem=problem)
                with suppress(sqlite3.Error):
                    self.close()
                scan = True
        return Found((), 0, problem)

    def _open(self) -> Index:
        """Open the index in its place. The file is created first, readable by its owner only; links are not followed."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        except OSError as error:
            trouble = sqlite3.OperationalError(str(error))
            trouble.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise trouble from error
        return Index(str(self._path))

    @staticmethod
    def _open_in_memory() -> Index:
        """Open an index that ends with the process."""
        return Index(":memory:")

    def _open_new(self) -> Index:
        """Delete the index and begin a new one in its place."""
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                os.unlink(f"{self._path}{suffix}")
        return self._open()

    # ------------------------------------------------------------------ indexing

    def _refresh(self, index: Index) -> int:
        """Index what is new. Return the number of files for which there was no time."""
        until = time.monotonic() + self._budget
        known = index.files()
        try:
            index.begin()
            self._refresh_pages(index, known)
            index.commit()
            behind = self._refresh_sessions(index, known, until)
            index.tidy(until if not known else min(until, time.monotonic() + TIDYING), whole=not known)
            return behind
        except BaseException:
            with suppress(sqlite3.Error):
                index.rollback()
            raise

    def _refresh_pages(self, index: Index, known: dict[str, IndexedFile]) -> None:
        """Index memory files that have changed, and remove those that are gone or have become too large."""
        seen = {path: _stamp(indexed.stamp) for path, indexed in known.items() if "/" in path or path.endswith(".md")}
        files = self._memory.scan_now(seen, LARGEST)
        for file in files:
            if file.content is not None:
                place = "episodes" if file.path.startswith("episodes/") else "facts"
                id = index.mark(file.path, _text(file.stamp))
                index.replace(id, place, passages_of_page(file.content.decode("utf-8-sig", "replace")))
        for path in seen.keys() - {file.path for file in files if file.size <= LARGEST}:
            index.remove(path)

    def _refresh_sessions(self, index: Index, known: dict[str, IndexedFile], until: float) -> int:
        """Index archives until the time is up. Return how many are not indexed completely.

        An archive does not change once it is written, except that it may be deleted. Its state in the index is marked as
        unfinished (`?`) until its end is reached, so that a search that is interrupted is continued by the next.
        """
        there = dict(archives_in(self._sessions))
        for path in [path for path in known if path.endswith(".jsonl") and path not in there]:
            index.begin()
            index.remove(path)
            index.commit()
        behind = 0
        for name, stamp in there.items():
            indexed = known.get(name)
            if indexed is not None and indexed.stamp == _text(stamp):
                continue
            if time.monotonic() >= until or not self._add_session(index, name, stamp, indexed, until):
                behind += 1
        return behind

    def _add_session(self, index: Index, name: str, stamp: Stamp, indexed: IndexedFile | None, until: float) -> bool:
        """Index an archive from where the last search stopped. Return whether its end was reached.

        Every `BATCH` lines are a transaction, in which the offset is stored as well. So a cancel or a crash
        loses at most one batch, and no line is indexed twice.
        """
        unfinished = f"? {_text(stamp)}"
        index.begin()
        if indexed is not None and indexed.stamp != unfinished:
            index.remove(name)
            indexed = None
        offset, line = (indexed.offset, indexed.line) if indexed is not None else (0, 0)
        file = index.mark(name, unfinished, offset, line)
        try:
            with open(self._sessions / name, "rb") as stream:
                for count, found in enumerate(lines_of_session(stream, offset, line), 1):
                    if found.passage is not None:
                        index.add(file, "sessions", (found.passage,))
                    if count % BATCH == 0:
                        index.mark(name, unfinished, found.end, found.number)
                        index.commit()
                        trio.from_thread.check_cancelled()
                        if time.monotonic() >= until:
                            return False
                        index.begin()
        except FileNotFoundError:  # deleted meanwhile: the next look removes it
            pass
        index.mark(name, _text(stamp))
        index.commit()
        return True


def _text(stamp: Stamp) -> str:
    """Return a stamp as the index stores it."""
    return " ".join(map(str, stamp))


def _stamp(text: str) -> Stamp:
    """Return the stamp that `_text` has made a text of; marks of an unfinished file are skipped."""
    return tuple(int(part) for part in text.split() if part.isdigit())
