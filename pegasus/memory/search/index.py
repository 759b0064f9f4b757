"""The index: words of passages in SQLite's FTS5, ranked by bm25. Derived, so it is thrown away whenever it is not as it should be.

Used from one thread at a time. `words` holds no text of its own: what it is told at a deletion is made again from the passage, by
rules that must be those of the insertion; so the file names the version of the rules, and another version begins anew.
"""

from __future__ import annotations

import sqlite3
import time
import unicodedata
from collections.abc import Iterable
from typing import Final, NamedTuple

from pegasus.memory.search.passages import Passage
from pegasus.memory.search.words import indexed, needles_of, snippet, terms_of

VERSION: Final = f"1 {unicodedata.unidata_version} {sqlite3.sqlite_version}"
PLACES: Final = ("facts", "episodes", "sessions")
MOST: Final = 30
"""Passages that one search gives."""
LONGEST_QUERY: Final = 1_000
"""Characters; of more the first are used."""

_TABLES: Final = """
CREATE TABLE about (version TEXT);
CREATE TABLE files (id INTEGER PRIMARY KEY, path TEXT UNIQUE, stamp TEXT, offset INT, line INT);
CREATE TABLE passages (id INTEGER PRIMARY KEY, file INT, line INT, place TEXT, title TEXT, text TEXT);
CREATE INDEX by_file ON passages (file);
CREATE VIRTUAL TABLE words USING fts5 (
    place, title, body, content = '', tokenize = "porter unicode61 remove_diacritics 2 categories 'L* M* N* Co'"
);
INSERT INTO words (words, rank) VALUES ('rank', 'bm25(0.0, 3.0, 1.0)');
"""


class Hit(NamedTuple):
    """A passage that was found. path: of the memory file, or the name of the archive. line: where it begins in it."""

    place: str
    path: str
    line: int
    title: str
    snippet: str
    text: str


class Found(NamedTuple):
    """Best first. behind: files that the index does not hold yet. problem: why it is not up to date, "" if it is."""

    hits: tuple[Hit, ...]
    behind: int = 0
    problem: str = ""


class Marked(NamedTuple):
    """A file in the index. stamp: of the state that it holds; offset, line: how far."""

    id: int
    stamp: str
    offset: int
    line: int


PATIENCE: Final = 1000
"""Milliseconds to wait for another program that has the file."""
STEPS: Final = 200
"""Of SQLite's machine between two looks at the clock: about those that look at ten passages."""
MERGE: Final = 200
"""Pages that one step of tidying writes, about."""


class Index:
    """One open database. Every method may raise sqlite3.Error; then it is to be closed and made anew."""

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, timeout=PATIENCE / 1000, isolation_level=None, check_same_thread=False)
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Give file and memory back."""
        self._db.close()

    def _prepare(self) -> None:
        db = self._db
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA cache_size = -8000")
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            db.executescript(f"BEGIN; {_TABLES} COMMIT;")
            db.execute("INSERT INTO about VALUES (?)", (VERSION,))
        elif "about" not in tables or db.execute("SELECT version FROM about").fetchone() != (VERSION,):
            raise sqlite3.DatabaseError("the index was made by other rules")

    def wait_for_others(self, milliseconds: int = PATIENCE) -> None:
        """How long every other method may wait for another program that has the file; at first, as by default."""
        self._db.execute(f"PRAGMA busy_timeout = {milliseconds}")

    # ------------------------------------------------------------------ filling

    def files(self) -> dict[str, Marked]:
        """What it holds, by path; sessions by their names."""
        rows = self._db.execute("SELECT path, id, stamp, offset, line FROM files")
        return {path: Marked(*rest) for path, *rest in rows}

    def begin(self) -> None:
        """What follows is kept together, at `commit`."""
        self._db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Keep what was put in since `begin`."""
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        """Forget what was put in since `begin`, if anything was begun."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def mark(self, path: str, stamp: str, offset: int = 0, line: int = 0) -> int:
        """Note how far a file is in the index; gives its id."""
        [file] = self._db.execute(
            "INSERT INTO files (path, stamp, offset, line) VALUES (?, ?, ?, ?) ON CONFLICT (path) DO UPDATE"
            " SET stamp = excluded.stamp, offset = excluded.offset, line = excluded.line RETURNING id",
            (path, stamp, offset, line),
        ).fetchone()
        return int(file)

    def add(self, file: int, place: str, passages: Iterable[Passage]) -> None:
        """More passages of a file."""
        db = self._db
        for line, title, text in passages:
            row = db.execute(
                "INSERT INTO passages (file, line, place, title, text) VALUES (?, ?, ?, ?, ?)",
                (file, line, place, title, text),
            ).lastrowid
            words = (row, place, indexed(title), indexed(text))
            db.execute("INSERT INTO words (rowid, place, title, body) VALUES (?, ?, ?, ?)", words)

    def replace(self, file: int, place: str, passages: Iterable[Passage]) -> None:
        """Make the index hold these passages of a file; what it holds already stays."""
        rows = self._db.execute("SELECT id, line, title, text FROM passages WHERE file = ?", (file,)).fetchall()
        there: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for row, line, title, text in rows:
            there.setdefault((title, text), []).append((row, line))
        new = []
        for passage in passages:
            if same := there.get((passage.title, passage.text)):
                row, line = same.pop()
                if line != passage.line:
                    self._db.execute("UPDATE passages SET line = ? WHERE id = ?", (passage.line, row))
            else:
                new.append(passage)
        for (title, text), left in there.items():
            for row, _ in left:
                self._delete(row, place, title, text)
        self.add(file, place, new)

    def remove(self, path: str) -> None:
        """The file is gone."""
        file = self._db.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
        if file is None:
            return
        rows = self._db.execute("SELECT id, place, title, text FROM passages WHERE file = ?", file).fetchall()
        for row, place, title, text in rows:
            self._delete(row, place, title, text)
        self._db.execute("DELETE FROM files WHERE id = ?", file)

    def _delete(self, row: int, place: str, title: str, text: str) -> None:
        words = (row, place, indexed(title), indexed(text))
        self._db.execute("INSERT INTO words (words, rowid, place, title, body) VALUES ('delete', ?, ?, ?, ?)", words)
        self._db.execute("DELETE FROM passages WHERE id = ?", (row,))

    def tidy(self, until: float, *, whole: bool) -> None:
        """Merge the parts that words were put in by, for a search looks into each: until nothing is to be gained, or the time is over.

        until: of time.monotonic(). whole: into a single one, which takes as long as the index is large.
        """
        pages = -MERGE if whole else MERGE  # https://sqlite.org/fts5.html#the_merge_command
        while time.monotonic() < until:
            before = self._db.total_changes
            self._db.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
            if self._db.total_changes - before < 2:
                return
            pages = MERGE

    # ------------------------------------------------------------------ finding

    def find_within(self, seconds: float, query: str, limit: int, where: str = "") -> tuple[Hit, ...]:
        """As `find`; sqlite3.OperationalError if it would take longer."""
        until = time.perf_counter() + seconds
        self._db.set_progress_handler(lambda: time.perf_counter() > until, STEPS)
        try:
            return self.find(query, limit, where)
        finally:
            self._db.set_progress_handler(None, 0)

    def find(self, query: str, limit: int, where: str = "") -> tuple[Hit, ...]:
        """Passages with all of the words, then those with some. () if there is no word in the query."""
        query = query[:LONGEST_QUERY]
        terms, limit = terms_of(query), max(1, min(limit, MOST))
        if not terms:
            return ()
        rows = self._matching(" ".join(terms), limit, where)
        if len(rows) < limit and len(terms) > 1:
            known = {row for row, *_ in rows}
            more = self._matching(" OR ".join(terms), limit, where)
            rows += [row for row in more if row[0] not in known][: limit - len(rows)]
        needles = needles_of(query)
        return tuple(
            Hit(place, path, line, title, snippet(text, needles), text) for _, place, path, line, title, text in rows
        )

    def _matching(self, terms: str, limit: int, where: str) -> list[tuple[int, str, str, int, str, str]]:
        terms = f"{{title body}} : ({terms})"
        match = f"place : {where} AND {terms}" if where in PLACES else terms
        return self._db.execute(
            "SELECT p.id, p.place, f.path, p.line, p.title, p.text FROM"
            " (SELECT rowid AS id, rank FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?) AS best"
            " JOIN passages p ON p.id = best.id JOIN files f ON f.id = p.file ORDER BY best.rank, p.id DESC",
            (match, limit),
        ).fetchall()
