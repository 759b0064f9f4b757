"""The index: words of passages in SQLite's FTS5, ranked by bm25.

It is derived from the files, so it is thrown away whenever something is wrong with it.

The table `words` is contentless: it holds no text of its own, which halves the file. To delete a row, FTS5 must be given
the same words that were inserted. They are computed again from the passage, by rules (`words.py`, Unicode tables,
SQLite's tokenizer) that must be those of the insertion. So the database names the version of the rules, and a database of
another version is refused and made anew.

Used from one thread at a time.

FTS5 is used because it is part of SQLite, needs no process of its own, and ranks ten thousand passages in
milliseconds. The text of a passage is kept beside it in `passages`, since a hit must show a snippet and the
file may have changed.
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
"""Versions of everything that decides which words a text has."""
PLACES: Final = ("facts", "episodes", "sessions")
"""Values of `place`, which a search can be limited to."""
MOST: Final = 30
"""Passages that one search returns at most; more do not fit usefully into a tool result."""
LONGEST_QUERY: Final = 1_000
"""Characters of a query that are used."""

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
"""`about` has one row. `files` says how far each file is indexed. `passages` has the texts, `words` the index over
them."""


class Hit(NamedTuple):
    """A passage that was found."""

    place: str
    """facts, episodes or sessions."""
    path: str
    """Path of the memory file, or name of the archive."""
    line: int
    """Line at which the passage begins."""
    title: str
    """Heading of the entry, or the speaker's role."""
    snippet: str
    """About 240 characters around the words that were asked for, on one line."""
    text: str
    """The whole passage."""


class Found(NamedTuple):
    """Result of a search."""

    hits: tuple[Hit, ...]
    """Best first."""
    behind: int = 0
    """Number of files that the index does not hold yet."""
    problem: str = ""
    """The reason why there is no index, "" if there is one."""


class IndexedFile(NamedTuple):
    """A file in the index."""

    id: int
    """Row in the table `files`."""
    stamp: str
    """Stamp of the state that was indexed."""
    offset: int
    """Byte up to which it was indexed."""
    line: int
    """Line up to which it was indexed."""


BUSY_TIMEOUT: Final = 1000
"""Milliseconds to wait for another program that has locked the file."""
MERGE: Final = 200
"""About how many pages one step of merging writes."""


class Index:
    """An open database. Every method may raise sqlite3.Error; then the database is to be closed and made anew.

    For example:

        index = Index(":memory:")
        index.begin()
        index.add(index.mark("facts/user.md", stamp), "facts", passages_of_page(text))
        index.commit()
        hits = index.find("tea", 5)
    """

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, timeout=BUSY_TIMEOUT / 1000, isolation_level=None, check_same_thread=False)
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def _prepare(self) -> None:
        """Create the tables of an empty database, and refuse one that other rules have made.

        WAL and NORMAL mean that a power failure may lose the last transactions. The files are there to index them again.
        """
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

    # ------------------------------------------------------------------ filling

    def files(self) -> dict[str, IndexedFile]:
        """Return the indexed files by path, or by name for sessions."""
        rows = self._db.execute("SELECT path, id, stamp, offset, line FROM files")
        return {path: IndexedFile(*rest) for path, *rest in rows}

    def begin(self) -> None:
        """Begin a transaction."""
        self._db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """End the transaction and keep it."""
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        """End the transaction, if there is one, and forget it."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def mark(self, path: str, stamp: str, offset: int = 0, line: int = 0) -> int:
        """Record how far a file is indexed, and return its id."""
        [file] = self._db.execute(
            "INSERT INTO files (path, stamp, offset, line) VALUES (?, ?, ?, ?) ON CONFLICT (path) DO UPDATE"
            " SET stamp = excluded.stamp, offset = excluded.offset, line = excluded.line RETURNING id",
            (path, stamp, offset, line),
        ).fetchone()
        return int(file)

    def add(self, file: int, place: str, passages: Iterable[Passage]) -> None:
        """Add passages of a file."""
        db = self._db
        for line, title, text in passages:
            row = db.execute(
                "INSERT INTO passages (file, line, place, title, text) VALUES (?, ?, ?, ?, ?)",
                (file, line, place, title, text),
            ).lastrowid
            words = (row, place, indexed(title), indexed(text))
            db.execute("INSERT INTO words (rowid, place, title, body) VALUES (?, ?, ?, ?)", words)

    def replace(self, file: int, place: str, passages: Iterable[Passage]) -> None:
        """Make the index hold exactly these passages of a file. Passages that it holds already are not written again.

        An entry that is appended to a file then costs one insertion, and words of the others are not deleted
        and added again.
        """
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
        """Remove a file that does not exist any more."""
        file = self._db.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
        if file is None:
            return
        rows = self._db.execute("SELECT id, place, title, text FROM passages WHERE file = ?", file).fetchall()
        for row, place, title, text in rows:
            self._delete(row, place, title, text)
        self._db.execute("DELETE FROM files WHERE id = ?", file)

    def _delete(self, row: int, place: str, title: str, text: str) -> None:
        """Delete a passage. FTS5 is given the words that were inserted, since it does not have them."""
        words = (row, place, indexed(title), indexed(text))
        self._db.execute("INSERT INTO words (words, rowid, place, title, body) VALUES ('delete', ?, ?, ?, ?)", words)
        self._db.execute("DELETE FROM passages WHERE id = ?", (row,))

    def tidy(self, until: float, *, whole: bool) -> None:
        """Merge the parts of the index, since a search looks into each of them. Stop when there is no gain, or at `until`.

        until: a value of time.monotonic(). whole: merge into a single part, which takes time in proportion to the index.
        """
        pages = -MERGE if whole else MERGE  # https://sqlite.org/fts5.html#the_merge_command
        while time.monotonic() < until:
            before = self._db.total_changes
            self._db.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
            if self._db.total_changes - before < 2:
                return
            pages = MERGE

    # ------------------------------------------------------------------ finding

    def find(self, query: str, limit: int, where: str = "") -> tuple[Hit, ...]:
        """Return passages with all of the words, then those with some. () if the query has no word."""
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
        """Return the rows that match these terms, best first. Equal ranks: later passages first, which are newer."""
        terms = f"{{title body}} : ({terms})"
        match = f"place : {where} AND {terms}" if where in PLACES else terms
        return self._db.execute(
            "SELECT p.id, p.place, f.path, p.line, p.title, p.text FROM"
            " (SELECT rowid AS id, rank FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?) AS best"
            " JOIN passages p ON p.id = best.id JOIN files f ON f.id = p.file ORDER BY best.rank, p.id DESC",
            (match, limit),
        ).fetchall()
