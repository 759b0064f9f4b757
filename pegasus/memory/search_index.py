"""The index of search: words of passages in SQLite's FTS5, ranked by bm25, and words of any language.

The index is derived from the files, so it is thrown away whenever something is wrong with it. FTS5 is used because it is
part of SQLite, needs no process of its own, and ranks ten thousand passages in milliseconds. The text of a passage is
kept beside its words in `passages`, since a hit must show a snippet and the file may have changed.

SQLite's tokenizer finds words between spaces, folds case and accents, and stems English. Chinese, Japanese, Thai and
others have no spaces, so runs of their characters are given to it as pairs of neighbours, one pair beginning with each
character:

    北京天气  →  北京 京天 天气 气

A run in a query is a phrase of its pairs, so it finds exactly the texts that contain it. A single character finds every
pair that begins with it.

**Places.** Every passage is of a place: facts, episodes, or the archives of one conversation. A chat must neither find passages
of other chats nor lose one among the best to them. So each place has a range of the numbers of passages, and a search asks for
ranges, outside of which FTS5 looks at nothing. Places as words of the passages would do the same, but bm25 would count all passages
of a place at each search.

Which words a text has is decided by the rules in this file, Unicode tables and SQLite's tokenizer. The database names the
version of these rules, and a database of another version is refused and made anew.

Used from one thread at a time.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from pegasus.memory.function_words import is_telling, without_function_words
from pegasus.memory.pages import PLACES, Hit, Meaning
from pegasus.memory.vectors import TABLES as VECTOR_TABLES
from pegasus.memory.vectors import PassageVectors

VERSION: Final = f"5 {unicodedata.unidata_version} {sqlite3.sqlite_version}"
"""Versions of everything that decides which words a text has."""
MOST: Final = 30
"""Passages that one search returns at most; more do not fit usefully into a tool result."""
LONGEST_QUERY: Final = 1_000
"""Characters of a query that are used."""
SNIPPET: Final = 240
"""Characters of a passage that are shown."""
RANK_SHIFT: Final = 5
"""Of reciprocal rank fusion: a passage counts 1 / (5 + its rank) in each list, so that the first places weigh most."""
MEANING_WEIGHT: Final = 0.7
"""Of the list by meaning. With both numbers the best passage that has none of the words is the fourth.

On long conversations, with a model of word vectors that alone finds far less than words do, 66.4 % of questions have a right turn
among ten; with words alone 65.9 %, and with the usual numbers, 60 and 1.0, 62.8 %."""

_TABLES: Final = """
CREATE TABLE about (version TEXT);
CREATE TABLE files (id INTEGER PRIMARY KEY, path TEXT UNIQUE, stamp TEXT, offset INT, line INT);
CREATE TABLE conversations (place INTEGER PRIMARY KEY, prefix TEXT UNIQUE);
INSERT INTO conversations VALUES (2, '');
CREATE TABLE passages (id INTEGER PRIMARY KEY, file INT, line INT, title TEXT, text TEXT);
CREATE INDEX by_file ON passages (file);
CREATE VIRTUAL TABLE words USING fts5 (
    title, body, content = '', tokenize = "porter unicode61 remove_diacritics 2 categories 'L* M* N* Co'"
);
INSERT INTO words (words, rank) VALUES ('rank', 'bm25(3.0, 1.0)');
"""
"""`about` has one row. `files` says how far each file is indexed. `passages` has the texts, `words` the index over
them. `conversations` has the places of archives, by the beginning of their names."""
_FACTS, _EPISODES = 0, 1
"""Places of memory files; those of archives follow."""
_PER_PLACE: Final = 1 << 40
"""Numbers that the passages of each place may have."""


class Passage(NamedTuple):
    """A text that can be found."""

    line: int
    """Line of the file at which it begins, from 1."""
    title: str
    """Heading of the entry; in a session the role of the speaker."""
    text: str
    """The words, at most `LONGEST` characters of a page."""


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


_Row: TypeAlias = tuple[int, float, str, int, str, str]
"""A passage that matches: number, rank (the lowest is the best), path, line, title and text."""
BUSY_TIMEOUT: Final = 1000
"""Milliseconds to wait for another program that has locked the file."""


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
        """The connection. Transactions are begun and ended by the methods, not by the library."""
        self.vectors = PassageVectors(self._db)
        """Vectors of the passages; none without a model that makes them."""
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
            db.executescript(f"BEGIN; {_TABLES} {VECTOR_TABLES} COMMIT;")
            db.execute("INSERT INTO about VALUES (?)", (VERSION,))
        elif "about" not in tables or db.execute("SELECT version FROM about").fetchone() != (VERSION,):
            raise sqlite3.DatabaseError("the index was made by other rules")

    # ------------------------------------------------------------------ filling

    def files(self) -> dict[str, IndexedFile]:
        """Return the indexed files by path, or by name for sessions."""
        rows = self._db.execute("SELECT path, id, stamp, offset, line FROM files")
        return {path: IndexedFile(*rest) for path, *rest in rows}

    def begin(self) -> None:
        """Begin a transaction that writes. Raises sqlite3.OperationalError if another process does so for BUSY_TIMEOUT."""
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

    def add(self, file: int, place: str, passages: Iterable[Passage], prefix: str = "") -> None:
        """Add passages of a file. place: one of PLACES. prefix: beginning of the names of the conversation's archives."""
        db = self._db
        if place == "sessions":
            db.execute("INSERT OR IGNORE INTO conversations (prefix) VALUES (?)", (prefix,))
        [numbers] = self._numbers(place, prefix)
        span = (numbers.start, numbers.stop)
        [last] = db.execute("SELECT max(id) FROM passages WHERE id >= ? AND id < ?", span).fetchone()
        for row, (line, title, text) in enumerate(passages, numbers.start if last is None else last + 1):
            db.execute(
                "INSERT INTO passages (id, file, line, title, text) VALUES (?, ?, ?, ?, ?)",
                (row, file, line, title, text),
            )
            db.execute("INSERT INTO words (rowid, title, body) VALUES (?, ?, ?)", (row, indexed(title), indexed(text)))

    def _numbers(self, where: str, prefix: str) -> list[range]:
        """Return the numbers of the passages of these places. Ranges that follow each other are one, which is asked once."""
        places = [place for place in (_FACTS, _EPISODES) if where in ("", PLACES[place])]
        if where in ("", "sessions"):
            found = self._db.execute("SELECT place FROM conversations WHERE prefix = ?", (prefix,))
            places += [place for (place,) in found]
        numbers: list[range] = []
        for place in places:
            first = place * _PER_PLACE
            if numbers and numbers[-1].stop == first:
                first = numbers.pop().start
            numbers.append(range(first, (place + 1) * _PER_PLACE))
        return numbers

    def clear(self, file: int) -> None:
        """Remove all passages of a file. FTS5 is told the words that were inserted, since it keeps no texts itself."""
        rows = self._db.execute("SELECT id, title, text FROM passages WHERE file = ?", (file,)).fetchall()
        words = [(row, indexed(title), indexed(text)) for row, title, text in rows]
        self._db.executemany("INSERT INTO words (words, rowid, title, body) VALUES ('delete', ?, ?, ?)", words)
        self.vectors.forget(file)
        self._db.execute("DELETE FROM passages WHERE file = ?", (file,))

    def remove(self, path: str) -> None:
        """Remove a file that does not exist any more."""
        file = self._db.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
        if file is not None:
            self.clear(*file)
            self._db.execute("DELETE FROM files WHERE id = ?", file)

    def merge(self) -> None:
        """Merge the parts of a new index into one, since a search looks into each of them. Later parts merge by themselves."""
        self._db.execute("INSERT INTO words (words) VALUES ('optimize')")

    # ------------------------------------------------------------------ finding

    def find(
        self, query: str, limit: int, where: str = "", prefix: str = "", meaning: Meaning | None = None
    ) -> tuple[Hit, ...]:
        """Return passages with all of the words, then those with some, then those with pairs. () if the query has no word.

        where: one of PLACES, "" for all. prefix: beginning of the names of the archives that are searched; all others are left out.
        meaning: of the query; those that are near to it are mixed in, by the ranks of both lists.
        """
        query, limit = query[:LONGEST_QUERY].replace("\0", " "), max(1, min(limit, MOST))  # FTS5 would end a term there
        numbers = self._numbers(where, prefix)
        rows = self._with_words(query, limit if meaning is None else MOST, numbers)
        if meaning is not None:
            near = self.vectors.nearest(meaning, numbers, MOST)
            rows = self._fused([row[0] for row in rows], near)[:limit]
        needles = needles_of(query)
        return tuple(
            Hit(
                place := PLACES[min(row // _PER_PLACE, len(PLACES) - 1)],
                path.removeprefix(prefix) if place == "sessions" else path,
                line,
                title,
                snippet(text, needles),
                text,
            )
            for row, _, path, line, title, text in rows
        )

    def _fused(self, words: Sequence[int], near: Sequence[int]) -> list[_Row]:
        """Return the passages of both lists, best first, by the sum of their reciprocal ranks."""
        scores: dict[int, float] = {}
        for weight, passages in ((1.0, words), (MEANING_WEIGHT, near)):
            for rank, passage in enumerate(passages, 1):
                scores[passage] = scores.get(passage, 0.0) + weight / (RANK_SHIFT + rank)
        best = sorted(scores, key=lambda passage: -scores[passage])
        return [row for passage in best for row in self._row(passage, -scores[passage])]

    def _row(self, passage: int, rank: float) -> list[_Row]:
        """Return a passage with this rank."""
        return self._db.execute(
            "SELECT p.id, ?, f.path, p.line, p.title, p.text FROM passages p JOIN files f ON f.id = p.file WHERE p.id = ?",
            (rank, passage),
        ).fetchall()

    def _with_words(self, query: str, limit: int, numbers: Sequence[range]) -> list[_Row]:
        """Return the passages with these numbers by the words of a query, best first."""
        rows: list[_Row] = []
        for expression in expressions_of(query):
            if len(rows) < limit:
                known = {row for row, *_ in rows}
                more = self._matching(expression, limit, numbers)
                rows += [row for row in more if row[0] not in known][: limit - len(rows)]
        return rows

    def _matching(self, terms: str, limit: int, numbers: Iterable[range]) -> list[_Row]:
        """Return the passages with these numbers that match, best first. Equal ranks: later ones first, which are newer."""
        rows: list[_Row] = []
        for span in numbers:
            rows += self._db.execute(
                "SELECT p.id, best.rank, f.path, p.line, p.title, p.text FROM (SELECT rowid AS id, rank FROM words"
                " WHERE words MATCH ? AND rowid >= ? AND rowid < ? ORDER BY rank, rowid DESC LIMIT ?) AS best"
                " JOIN passages p ON p.id = best.id JOIN files f ON f.id = p.file",
                (terms, span.start, span.stop, limit),
            )
        return sorted(rows, key=lambda row: (row[1], -row[0]))[:limit]


# ------------------------------------------------------------------ words

MOST_TERMS: Final = 24
"""Terms of a query that are used; further ones are ignored."""

_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts that are indexed as pairs: Thai, Lao, Burmese, Khmer, kana, Han, and Hangul, whose particles cling to
the words."""
_QUOTED: Final = re.compile(r'"([^"]*)"|“([^”]*)”|「([^」]*)」')
"""Words in quotes, which must follow each other."""
_PIECE: Final = re.compile(r"[^\s'’,;!?¿¡«»„…()\[\]{}\"，。、；！？（）「」『』【】]+")
"""Characters between blanks and punctuation, in a query."""


@cache
def _run_of_unspaced() -> re.Pattern[str]:
    """Return the expression for a run of characters without spaces between words, which takes milliseconds to compile."""
    return re.compile(f"[{_UNSPACED}]+")


def folded(text: str) -> str:
    """Return the text NFKC-normalised and case-folded.

    The tokenizer folds case itself; this does what it does not, such as full-width letters.
    """
    return text if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def indexed(text: str) -> str:
    """Return the text as it is given to the tokenizer."""
    return text if text.isascii() else _run_of_unspaced().sub(lambda run: f" {_pairs(run[0])} ", folded(text))


def _pairs(run: str) -> str:
    """Return the pairs of a run for the index, with its last character as a pair of its own."""
    return " ".join([*(run[n : n + 2] for n in range(len(run) - 1)), run[-1]])


def expressions_of(query: str) -> Iterator[str]:
    """Yield the queries of FTS5 for a query, the strictest first: all of its words, some, and pairs of its runs without spaces.

    Function words are left out. The pairs are for whole questions in Chinese and others, which as one run are found nowhere.
    Everything is quoted, so that no operator of FTS5 in the text has an effect or causes a syntax error. For example:

        list(expressions_of('tea "green cup"')) == ['"green cup" "tea"', '"green cup" OR "tea"']
    """
    phrases, words = _terms_of(query)
    telling = without_function_words([word.strip('"').lower() for word in words])
    words = [word for word in words if word.strip('"').lower() in telling]
    terms = [*phrases, *words][:MOST_TERMS]
    if terms:
        yield " ".join(terms)
    if len(terms) > 1:
        yield " OR ".join(terms)
    runs = [word.strip('"').split() for word in words]
    pairs = [pair for run in runs if len(run) > 1 for pair in run if is_telling(pair)]
    if pairs:
        yield " OR ".join(f'"{pair}"' for pair in dict.fromkeys(pairs[:MOST_TERMS]))


def _terms_of(query: str) -> tuple[list[str], list[str]]:
    """Return the terms of what stands in quotes, and those of the other words, each once."""
    phrases = [next(filter(None, found), "") for found in _QUOTED.findall(query)]
    pieces = _PIECE.findall(_QUOTED.sub(" ", query))
    words = [term for piece in pieces for term in _terms_of_piece(folded(piece))]
    return list(dict.fromkeys(filter(None, map(_term, map(folded, phrases))))), list(dict.fromkeys(words))


def _terms_of_piece(piece: str) -> list[str]:
    """Return the terms of a piece without spaces. `GPU显存` is two terms."""
    parts, done = [], 0
    for run in _run_of_unspaced().finditer(piece):
        parts += [piece[done : run.start()], run[0]]
        done = run.end()
    return [term for part in (*parts, piece[done:]) if (term := _term(part))]


def _term(phrase: str) -> str:
    """Return a phrase in the syntax of FTS5, "" if there is no word in it.

    Punctuation alone is no word: FTS5 would refuse the empty phrase.
    """
    if not any(map(str.isalnum, phrase)):
        return ""
    if len(phrase) == 1 and _run_of_unspaced().fullmatch(phrase):
        # A prefix search finds all pairs that begin with the character.
        return f'"{phrase}"*'
    text = _run_of_unspaced().sub(lambda run: f" {_pairs_alone(run[0])} ", phrase).replace('"', " ").strip()
    return f'"{text}"'


def _pairs_alone(run: str) -> str:
    """Return the pairs of a run for a query, or the run itself if it has one character."""
    return " ".join(run[n : n + 2] for n in range(len(run) - 1)) or run


def needles_of(query: str) -> tuple[str, ...]:
    """Return pieces of the query as they may occur in a text that was found, longest first. They choose the snippet."""
    found: dict[str, None] = {}
    for piece in _PIECE.findall(query.replace('"', " ")):
        for part in (piece, *_run_of_unspaced().findall(piece)):
            low = part.lower()
            found[low] = None
            if len(low) > 5 and low.isascii():
                found[low[: max(4, len(low) - 3)]] = None  # other endings
            if _run_of_unspaced().fullmatch(part):
                found.update(dict.fromkeys(low[n : n + 2] for n in range(len(low) - 1)))
    return tuple(sorted(found, key=len, reverse=True))


def snippet(text: str, needles: tuple[str, ...]) -> str:
    """Return the part of the text with the most needles, on one line.

    needles: from `needles_of`. The window of SNIPPET characters with the most needles is chosen among those that
    begin at one; numbers of needles and places are bounded, since texts have thousands of characters and
    queries hundreds.
    """
    low = text.lower()
    if len(low) != len(text):
        low = text  # a letter whose small form is longer
    places = sorted(at for needle in needles[:40] for at in _first_places(low, needle))
    best, largest = 0, 0
    for n, at in enumerate(places):
        count = bisect_left(places, at + SNIPPET, n, min(n + 60, len(places))) - n
        if count > largest:
            best, largest = at, count
    start = max(0, min(best - SNIPPET // 6, len(text) - SNIPPET))
    if start:
        start = _word_start(text, start)
    shown = " ".join(text[start : start + SNIPPET].split())
    return f"{'…' if start else ''}{shown}{'…' if start + SNIPPET < len(text) else ''}"


def _first_places(text: str, needle: str) -> list[int]:
    """Return the first positions of a needle, at most 8, without overlaps."""
    places: list[int] = []
    at = text.find(needle)
    while at >= 0 and len(places) < 8:
        places.append(at)
        at = text.find(needle, at + len(needle))
    return places


def _word_start(text: str, start: int) -> int:
    """Return the start of the next word, if there is one near."""
    space = text.find(" ", start, start + 20)
    return space + 1 if space >= 0 else start
