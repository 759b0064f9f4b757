"""Search: brings the index up to date, as far as there is time, and asks it.

The folders are scanned at most once a second, since a scan costs more than a search. What is new is indexed before the
answer: memory files, which are few, then archives, newest first, each from where the last search stopped. A search that
runs out of time answers from what is indexed, and says how many files are missing.

Whatever is wrong with the index (another program's file, damage, a lock that is not released), a new one is made: in its
place, or in memory if the place itself is the trouble (a full or read-only disk).

One search runs at a time, in a worker thread. A search without a scan is not interrupted by a cancel: it takes a fifth of a
millisecond, or some milliseconds for words that are everywhere.

Searching and indexing are one operation for the sake of correctness: what was written a moment ago is found,
and there is no second thread that could fall behind or fail unnoticed. The price is that the first search of a
large home takes up to `BUDGET`, and the following ones continue where it stopped.

A crash at any point leaves a database that is valid or recognised as damaged; in both cases nothing is lost but
time.

**Passages** are the units of search: entries of memory files and messages of archived sessions. A passage has the words
that a person would recognise, without JSON and ids, and its place, so that the reader can read on from there. Long texts
are cut: a tool result is usually a file or a page that can be read again, and its beginning is enough to find it.
Archives may be damaged or very large, so a line that is no JSON, or longer than `LONGEST_LINE`, is skipped without being
read into memory as a whole.
"""

from __future__ import annotations

import math
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, Literal, NamedTuple, TypeVar

import trio

from pegasus.formatting import quote
from pegasus.json_lines import LONGEST_LINE
from pegasus.memory.folder import LARGEST, FolderReader, Stamp
from pegasus.memory.pages import PLACES, Found, Meaning, TextEmbedder
from pegasus.memory.search_index import Index, IndexedFile, Passage
from pegasus.memory.vectors import PassageVectors
from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.storage import StoredFiles, run_in_thread
from pegasus.wire import decode_json, decode_object

SCAN_EVERY: Final = 1.0
"""Seconds between two scans of the folders."""
BUDGET: Final = 5.0
"""Seconds that one search may spend on bringing the index up to date."""
MOST_SCANS: Final = 1_000
"""Conversations whose last scan is remembered."""
BATCH: Final = 500
"""Passages that are indexed between two looks at the clock."""
ARCHIVE: Final = re.compile(r"\d{4}-\d\d-\d\d-\d{6}(?:-\d+)?\.jsonl")
"""Names of archived sessions. The current session is not searched: the agent has it in its context."""
LONGEST: Final = 4_000
"""Characters of a passage of a memory file. A longer entry becomes several passages."""
LONGEST_MESSAGE: Final = 8_000
"""Characters of a message that are indexed."""
LONGEST_RESULT: Final = 2_000
"""Characters of a tool result that are indexed."""

_ENTRY: Final = re.compile(r"^##[ \t]+(.*)$", re.MULTILINE)
"""Heading of an entry. Deeper headings belong to the entry that they stand in."""

_DISK_ERRORS: Final = {
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
    *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM),
}
"""Errors that a new file in the same place would meet as well. Then the index is in memory until the next start."""

_log = get_logger("memory")
T = TypeVar("T")


class Searcher:
    """The index of one home, and the thread that works on it.

    >>> found = await open_searcher(home.data, FolderFiles(home.data)).search("tea", where="facts")
    """

    def __init__(self, memory: Path, stored: StoredFiles, index: Path, budget: float = BUDGET) -> None:
        self._memory = FolderReader(memory)
        """The folder of facts and episodes."""
        self._stored = stored
        """Archives of conversations."""
        self._path = index
        """The file of the index."""
        self._budget = budget
        """Seconds for bringing the index up to date; tests set less."""
        self._index: Index | None = None
        """The open database; None before the first search and after an error."""
        self._scans: dict[str, tuple[float, int]] = {}
        """For each prefix of archives that was searched: the time of Trio's clock from which on a search scans the folders again, and
        the number of files that were not indexed completely by the last scan."""
        self._lock = trio.Lock()
        """Held during a search, since the index is used from one thread at a time."""

    async def search(
        self, query: str, limit: int = 8, where: str = "", prefix: str = "", meaning: Meaning | None = None
    ) -> Found:
        """Return passages with these words, best first; see `Index.find`.

        prefix: beginning of the names of the archives of the chat that asks; "" for those of the conversation of all channels.
        meaning: vector of the query.

        Raises OSError if the folders cannot be read, and ValueError for an unknown `where`. Cancelled: what was indexed so
        far is kept.
        """
        if where not in ("", *PLACES):
            raise ValueError(f"in: found {quote(where)}, allowed: {', '.join(PLACES)}")
        async with self._lock:
            scan_at, behind = self._scans.get(prefix, (-math.inf, 0))
            if self._index is not None and trio.current_time() < scan_at and not behind:
                with suppress(sqlite3.Error):
                    return Found(await run_in_thread(self._index.find, query, limit, where, prefix, meaning))
            found = await trio.to_thread.run_sync(self._search, query, limit, where, prefix, meaning)
            if len(self._scans) > MOST_SCANS:
                self._scans.clear()
            self._scans[prefix] = (trio.current_time() + SCAN_EVERY, found.behind)
            return found

    async def embed_some(self, embedder: TextEmbedder, within: float) -> bool:
        """Make vectors of some passages that have none. Return whether there may be more, False if the embedder does not work.

        Others search meanwhile. Passages are those that a search has indexed. Cancelled: what was not kept is made later.
        """
        if not (model := embedder.name):
            return False
        texts = await self._with_vectors(lambda vectors: vectors.missing(model))
        if not texts:
            return False
        made = await embedder.embed(texts, within)
        if made is None:
            return False
        return await self._with_vectors(lambda vectors: vectors.add(model, texts, made))

    async def _with_vectors(self, work: Callable[[PassageVectors], T]) -> T | Literal[False]:
        """Return what work on the vectors of the open index returns, in a transaction; False if there is no index, or it refuses."""
        async with self._lock:
            index = self._index
            return False if index is None else await trio.to_thread.run_sync(_in_transaction, index, work)

    def changed(self) -> None:
        """Scan the folders at the next search, since something was written."""
        self._scans.clear()

    def close(self) -> None:
        """Close the index; the next search opens it again. Not to be called during a search."""
        if self._index is not None:
            self._index.close()
            self._index = None

    # ------------------------------------------------------------------ in a thread

    def _search(self, query: str, limit: int, where: str, prefix: str, meaning: Meaning | None) -> Found:
        """Scan the folders and search, with the index as it is, then with a new one, then with one in memory.

        Each step is tried only if the one before failed. If all fail, the result has no hits and the reason in
        `problem`: a broken search must not end the task that asked.
        """
        problem, is_place_usable = "", True
        for attempt in (self._open, self._open_new, lambda: Index(":memory:")):
            if attempt == self._open_new and not is_place_usable:
                continue  # a new file would have the same trouble
            try:
                index = self._index = self._index or attempt()
                behind = self._refresh(index, prefix)
                return Found(index.find(query, limit, where, prefix, meaning), behind)
            except sqlite3.Error as error:
                problem = f"{type(error).__name__}: {error}"
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_NOTADB)
                is_place_usable = code & 0xFF not in _DISK_ERRORS
                _log.warning("the index of memory is rebuilt", problem=problem)
                with suppress(sqlite3.Error):
                    self.close()
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

    def _open_new(self) -> Index:
        """Delete the index and begin a new one in its place."""
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                os.unlink(f"{self._path}{suffix}")
        return self._open()

    # ------------------------------------------------------------------ indexing

    def _refresh(self, index: Index, prefix: str) -> int:
        """Index what is new in memory and in the archives of one conversation. Return the number of files there was no time for."""
        until = time.monotonic() + self._budget
        known = index.files()
        try:
            index.begin()
            self._refresh_pages(index, known)
            index.commit()
            behind = self._refresh_sessions(index, known, prefix, until)
            if not known and not behind:
                index.merge()
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
                index.clear(id)
                index.add(id, place, passages_of_page(file.content.decode("utf-8-sig", "replace")))
        for path in seen.keys() - {file.path for file in files if file.size <= LARGEST}:
            index.remove(path)

    def _refresh_sessions(self, index: Index, known: dict[str, IndexedFile], prefix: str, until: float) -> int:
        """Index archives until the time is up. Return how many are not indexed completely.

        An archive does not change once it is written, except that it may be deleted. Its state in the index is marked as
        unfinished (`?`) until its end is reached, so that a search that is interrupted is continued by the next.
        """
        there = dict(_archives_in(self._stored, prefix))
        for path in [path for path in known if _is_archive_of(path, prefix) and path not in there]:
            index.begin()
            index.remove(path)
            index.commit()
        behind = 0
        for name, stamp in there.items():
            indexed = known.get(name)
            if indexed is not None and indexed.stamp == _text(stamp):
                continue
            if time.monotonic() >= until or not self._add_session(index, prefix, name, stamp, indexed, until):
                behind += 1
        return behind

    def _add_session(
        self, index: Index, prefix: str, name: str, stamp: Stamp, indexed: IndexedFile | None, until: float
    ) -> bool:
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
            with self._stored.open(f"{_folder_of(prefix)}/{name}") as stream:
                passages: list[Passage] = []
                for count, found in enumerate(lines_of_session(stream, offset, line), 1):
                    if found.passage is not None:
                        passages.append(found.passage)
                    if count % BATCH == 0:
                        index.add(file, "sessions", passages, prefix)
                        passages = []
                        index.mark(name, unfinished, found.end, found.number)
                        index.commit()
                        trio.from_thread.check_cancelled()
                        if time.monotonic() >= until:
                            return False
                        index.begin()
                index.add(file, "sessions", passages, prefix)
        except FileNotFoundError:  # deleted meanwhile: the next look removes it
            pass
        index.mark(name, _text(stamp))
        index.commit()
        return True


def _in_transaction(index: Index, work: Callable[[PassageVectors], T]) -> T | Literal[False]:
    """Do work on the vectors of an index; return False if the database refuses. The next search sees to that."""
    try:
        index.begin()
        done = work(index.vectors)
        index.commit()
    except sqlite3.Error as error:
        _log.warning("vectors of memory cannot be kept", problem=str(error))
        with suppress(sqlite3.Error):
            index.rollback()
        return False
    return done


def _text(stamp: Stamp) -> str:
    """Return a stamp as the index stores it."""
    return " ".join(map(str, stamp))


def _stamp(text: str) -> Stamp:
    """Return the stamp that `_text` has made a text of; marks of an unfinished file are skipped."""
    return tuple(int(part) for part in text.split() if part.isdigit())


# ------------------------------------------------------------------ passages of memory files


def passages_of_page(text: str) -> Iterator[Passage]:
    """Yield the passages of a memory file: the text before the first `##` entry, then each entry.

    For example, a page with a summary and the entries `## Tea` and `## Cats` has three passages, with the
    titles "", "Tea" and "Cats".
    """
    text = text.replace("\r\n", "\n")
    heads = list(_ENTRY.finditer(text))
    starts = [0, *(head.start() for head in heads), len(text)]
    titles = ["", *(head[1].strip() for head in heads)]
    line = 1
    for title, start, end in zip(titles, starts, starts[1:], strict=False):
        for piece in _pieces(text[start:end]):
            if piece.strip():
                yield Passage(line, title, piece.strip())
            line += piece.count("\n")


def _pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces that are not too long, cut between lines where possible."""
    while len(text) > LONGEST:
        # Not before the middle, so that a text with few line ends does not become many small pieces.
        cut = text.rfind("\n", LONGEST // 2, LONGEST) + 1 or LONGEST
        yield text[:cut]
        text = text[cut:]
    yield text


# ------------------------------------------------------------------ passages of archived sessions


class SessionLine(NamedTuple):
    """A line of an archived session.

    Example: `SessionLine(7, 1200, Passage(7, "user", "I like tea"))` says that indexing goes on at byte 1200.
    """

    number: int
    """Line of the archive, from 1."""
    end: int
    """Offset of the byte behind it."""
    passage: Passage | None
    """None if it holds no words."""


def lines_of_session(file: BinaryIO, offset: int = 0, number: int = 0) -> Iterator[SessionLine]:
    """Yield the lines from `offset` on. number: of the line before. Lines that are no JSON or too long have no passage."""
    file.seek(offset)
    while raw := file.readline(LONGEST_LINE):
        offset += len(raw)
        number += 1
        whole = raw.endswith(b"\n")
        # The rest of a line that is too long is read and dropped piece by piece; `raw` becomes empty, which is
        # no JSON.
        while not whole and (rest := file.readline(LONGEST_LINE)):
            offset += len(rest)
            whole = rest.endswith(b"\n")
            raw = b""
        yield SessionLine(number, offset, _passage(raw, number))


def _passage(raw: bytes, number: int) -> Passage | None:
    """Return the passage of a line, None for a line that is damaged or without words."""
    try:
        entry = decode_object(raw)
    except ValueError:
        return None
    if entry.get("role") not in ("user", "assistant", "tool", "system"):
        return None
    text = words_of(entry).strip()
    return Passage(number, str(entry["role"]), text) if text else None


def words_of(entry: Mapping[str, Json]) -> str:
    """Return the words of an entry of a session, without JSON and ids.

    Of a tool call only the texts among its arguments count, since keys and ids are no words that anybody would
    search for.
    """
    content = entry.get("content")
    content = content if isinstance(content, str) else ""
    if entry.get("role") == "tool":
        return _result_words(content)
    parts = [content[:LONGEST_MESSAGE]]
    calls = entry.get("toolCalls")
    made = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    parts += ["\n".join(_texts(call.get("arguments")))[:LONGEST_MESSAGE] for call in made]
    return "\n".join(filter(None, parts))


def _result_words(content: str) -> str:
    """Return the texts in a tool result, which is usually JSON."""
    try:
        value = decode_json(content) if content[:1] in '{["' else content
    except ValueError:
        value = content
    return "\n".join(_texts(value))[:LONGEST_RESULT]


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    """Yield the strings in a JSON value, down to eight levels."""
    if isinstance(value, str):
        if value.strip():
            yield value
    elif depth < 8:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for item in inner:
            yield from _texts(item, depth + 1)


def _is_archive_of(name: str, prefix: str) -> bool:
    """Return whether a file name is that of an archive whose name begins so."""
    return name.startswith(prefix) and ARCHIVE.fullmatch(name, len(prefix)) is not None


def _archives_in(stored: StoredFiles, prefix: str) -> list[tuple[str, Stamp]]:
    """Return name and stamp of every archived session whose name begins so, newest first."""
    found = stored.scan(_folder_of(prefix), lambda name: _is_archive_of(name, prefix))
    return sorted(((file.name, (file.changed, file.size, file.identity)) for file in found), reverse=True)


def _folder_of(prefix: str) -> str:
    """Return the folder of the archives of a chat, or ("") of those of the one conversation of all channels."""
    return "sessions" if prefix else "main"
