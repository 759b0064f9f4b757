"""Searching: the index brought up to date in a thread, as far as there is time, and asked.

A look at the folders is taken at most once a second, since it costs more than a search. What is new is put in first: memory
files, which are few, then archives, newest first, each from where the last search left off. Whatever is wrong with the index
(another program's file, damage, a lock that is not let go of) is answered by a new one, in its place or in memory.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from pegasus.memory.names import FOLDER
from pegasus.memory.search.index import PLACES, Found, Index, Marked
from pegasus.memory.search.passages import archives_in, lines_of_session, passages_of_page
from pegasus.memory.shelf import FolderShelf, Stamp
from pegasus.observe import get_logger

LOOK_EVERY: Final = 1.0
"""Seconds for which a look at the folders is good."""
BUDGET: Final = 5.0
"""Seconds that one search may spend on bringing the index up to date."""
TIDYING: Final = 0.02
"""Seconds that a look may spend on merging what earlier ones have put in."""
AT_ONCE: Final = 0.001
"""Seconds that a search may take on the event loop."""
BATCH: Final = 500
"""Passages that are put in between two looks at the clock."""
LARGEST: Final = 256 << 10
"""Bytes of a memory file; a larger one is not searched, as it is not read."""
_OF_THE_DISK: Final = {
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
    *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM),
}
"""Errors that a new file in the same place would meet as well; then the index is made in memory, until the next start."""

_log = get_logger("memory")


class Searcher:
    """memory: the folder of facts and episodes. sessions: the folder of archived ones. index: a file that is made."""

    def __init__(self, memory: Path, sessions: Path, index: Path, budget: float = BUDGET) -> None:
        self._shelf = FolderShelf(memory)
        self._sessions = sessions
        self._path = index
        self._budget = budget
        self._index: Index | None = None
        self._behind = 0
        self._look_at = -1.0
        self._in_place = True
        self._one_search = trio.Lock()

    @classmethod
    def of(cls, data: Path) -> Searcher:
        """That of a home, whose data folder this is."""
        folder = data / FOLDER
        return cls(folder, data / "main", folder / ".index.sqlite")

    async def search(self, query: str, limit: int = 8, where: str = "") -> Found:
        """Passages with these words, best first; see `Index.find`. Raises OSError, ValueError for another `where`.

        Cancelled: what was put into the index so far stays there.
        """
        if where not in ("", *PLACES):
            raise ValueError(f"in: found {where!r}, allowed: {', '.join(PLACES)}")
        async with self._one_search:
            look = trio.current_time() >= self._look_at or self._behind > 0
            found = None if look else self._at_once(query, limit, where)
            if found is None:
                found = await trio.to_thread.run_sync(self._work, query, limit, where, look)
            if look:
                self._look_at = trio.current_time() + LOOK_EVERY
            return found

    def _at_once(self, query: str, limit: int, where: str) -> Found | None:
        """Without the way to a thread and back, which is most of a search: for an index that was looked into a moment ago.

        None if it takes longer than the others may be held up, or if something is wrong with the index: the thread sees to it.
        """
        try:
            return Found(self._index.find_within(AT_ONCE, query, limit, where)) if self._index is not None else None
        except sqlite3.Error:
            return None

    def changed(self) -> None:
        """Take a look at the folders at the next search: something was written a moment ago."""
        self._look_at = -1.0

    def close(self) -> None:
        """Close the index; the next search opens it again. Not while one is under way."""
        if self._index is not None:
            self._index.close()
            self._index = None

    # ------------------------------------------------------------------ in a thread

    def _work(self, query: str, limit: int, where: str, look: bool) -> Found:
        problem = ""
        for attempt in (self._open, self._open_new, self._open_in_memory):
            if attempt == self._open_new and problem and not self._in_place:
                continue  # a new file would have the same trouble
            try:
                index = self._index = self._index or attempt()
                index.wait_for_others()
                if look:
                    self._behind = self._refresh(index)
                hits = index.find(query, limit, where)
                index.wait_for_others(0)  # in `_at_once` nobody may wait
                return Found(hits, self._behind)
            except sqlite3.Error as error:
                problem = f"{type(error).__name__}: {error}"
                self._in_place = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_NOTADB) & 0xFF not in _OF_THE_DISK
                _log.warning("the index of memory is made anew", problem=problem)
                with suppress(sqlite3.Error):
                    self.close()
                look = True
        return Found((), 0, problem)

    def _open(self) -> Index:
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
        return Index(":memory:")

    def _open_new(self) -> Index:
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                os.unlink(f"{self._path}{suffix}")
        return self._open()

    # ------------------------------------------------------------------ bringing it up to date

    def _refresh(self, index: Index) -> int:
        """Put in what is new; gives how many files there was no time for."""
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

    def _refresh_pages(self, index: Index, known: dict[str, Marked]) -> None:
        seen = {path: _stamp(marked.stamp) for path, marked in known.items() if "/" in path or path.endswith(".md")}
        there = self._shelf.look_now(seen, LARGEST)
        for one in there:
            if one.content is not None:
                place = "episodes" if one.path.startswith("episodes/") else "facts"
                file = index.mark(one.path, _text(one.stamp))
                index.replace(file, place, passages_of_page(one.content.decode("utf-8-sig", "replace")))
        for path in seen.keys() - {one.path for one in there if one.size <= LARGEST}:
            index.remove(path)

    def _refresh_sessions(self, index: Index, known: dict[str, Marked], until: float) -> int:
        there = dict(archives_in(self._sessions))
        for path in [path for path in known if path.endswith(".jsonl") and path not in there]:
            index.begin()
            index.remove(path)
            index.commit()
        behind = 0
        for name, stamp in there.items():
            marked = known.get(name)
            if marked is not None and marked.stamp == _text(stamp):
                continue
            if time.monotonic() >= until or not self._add_session(index, name, stamp, marked, until):
                behind += 1
        return behind

    def _add_session(self, index: Index, name: str, stamp: Stamp, marked: Marked | None, until: float) -> bool:
        """Put in one archive, from where it was left off; whether to its end."""
        unfinished = f"? {_text(stamp)}"
        index.begin()
        if marked is not None and marked.stamp != unfinished:
            index.remove(name)
            marked = None
        offset, line = (marked.offset, marked.line) if marked is not None else (0, 0)
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
    return " ".join(map(str, stamp))


def _stamp(text: str) -> Stamp:
    return tuple(int(part) for part in text.split() if part.isdigit())
