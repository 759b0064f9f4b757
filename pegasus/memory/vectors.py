"""Vectors of passages, in the index of search: which passages are near to a query in meaning.

They are made by a model's server (`TextEmbedder`) and kept in the index's file, so they are thrown away with it, and no backup has
them. A vector belongs to the hash of its text: an entry that stays while its file changes is not sent again. Vectors of another
model, or of another length under the same name, are of no use beside each other, and all are made anew. There are MOST_VECTORS at
most; passages beyond are found by their words.

Nothing but Python is used, so what is compared is made small. Each number is kept as a byte, in parts of the largest one of its
vector, which changes the cosine in the third place. And the signs of all numbers are kept as bits: the passages whose signs differ in
the fewest places from those of the query are found with one operation for each (10,000 in some milliseconds), and only COMPARED of
them are compared by their bytes.

Used from one thread at a time, like the index.
"""

from __future__ import annotations

import hashlib
import sqlite3
from array import array
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from math import sqrt
from operator import itemgetter, mul
from typing import Final

from pegasus.memory.pages import Meaning

MOST_VECTORS: Final = 20_000
"""Vectors that are kept: about 17 MB of a usual model."""
COMPARED: Final = 300
"""Passages whose vectors are compared with that of a query."""
BATCH: Final = 32
"""Texts that are sent at once."""
LONGEST_TEXT: Final = 2_000
"""Characters of a text that are sent; small models read about 500 tokens."""
_LOOKED_AT: Final = 500
"""Passages that are looked at in one step."""

TABLES: Final = """
CREATE TABLE embedder (model TEXT, size INT);
CREATE TABLE vectors (hash BLOB PRIMARY KEY, signs BLOB, numbers BLOB) WITHOUT ROWID;
CREATE TABLE embedded (passage INTEGER PRIMARY KEY, hash BLOB);
CREATE INDEX by_hash ON embedded (hash);
"""
"""`embedder` has one row: the model that all vectors are of, and their length. `embedded` has the passages whose text has a vector,
which is empty if the server does not take the text."""


class PassageVectors:
    """The vectors of an index. Every method may raise sqlite3.Error."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def forget(self, file: int) -> None:
        """Forget that the passages of a file have vectors, before they are removed: their numbers are given again."""
        self._db.execute("DELETE FROM embedded WHERE passage IN (SELECT id FROM passages WHERE file = ?)", (file,))

    def missing(self, model: str) -> list[str]:
        """Return texts of passages that have no vector of this model, at most BATCH; [] if there are none, or enough vectors."""
        db = self._db
        self._use(model)
        texts: dict[bytes, str] = {}
        [count] = db.execute("SELECT count(*) FROM embedded").fetchone()
        while len(texts) < (most := min(BATCH, MOST_VECTORS - count)):
            rows = db.execute(
                "SELECT p.id, p.title, p.text FROM passages p LEFT JOIN embedded e ON e.passage = p.id"
                " WHERE e.passage IS NULL ORDER BY p.id LIMIT ?",
                (_LOOKED_AT,),
            ).fetchall()
            hashes = {row: _hash(_text(title, body)) for row, title, body in rows}
            known = {found for found in hashes.values() if self._is_known(found)}
            links = [(row, hash) for row, hash in hashes.items() if hash in known]
            db.executemany("INSERT INTO embedded VALUES (?, ?)", links)
            count += len(links)
            for row, title, body in rows:
                if hashes[row] not in known and len(texts) < most:
                    texts[hashes[row]] = _text(title, body)
            if not links:
                break
        return list(texts.values())

    def add(self, model: str, texts: Iterable[str], vectors: Iterable[Sequence[float]]) -> bool:
        """Keep vectors, () for a text that is not taken. Return False if all others are gone, since their length was another."""
        self._use(model)
        is_anew = False
        [count] = self._db.execute("SELECT count(*) FROM vectors").fetchone()
        if count > MOST_VECTORS - BATCH:  # those of texts that are gone
            self._db.execute("DELETE FROM vectors WHERE hash NOT IN (SELECT hash FROM embedded)")
        for text, vector in zip(texts, vectors, strict=True):
            numbers = _as_bytes(vector)
            if numbers and not self._fits(len(numbers)):
                self._begin_anew(model, len(numbers))
                is_anew = True
            row = (_hash(text), _signs(numbers), numbers.tobytes())
            self._db.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", row)
        return not is_anew

    def nearest(self, meaning: Meaning, numbers: Iterable[range], limit: int) -> list[int]:
        """Return the passages that are nearest to a query, best first. numbers: those of the places that are searched."""
        db, wanted = self._db, _as_bytes(meaning.vector)
        known = db.execute("SELECT model, size FROM embedder").fetchone()
        if known != (meaning.model, len(wanted)):
            if known is not None and known[1]:
                self._begin_anew(meaning.model, 0)
            return []
        bits, near = int.from_bytes(_signs(wanted), "big"), list[tuple[int, int]]()
        for span in numbers:
            rows = db.execute(
                "SELECT e.passage, v.signs FROM embedded e JOIN vectors v ON v.hash = e.hash"
                " WHERE e.passage >= ? AND e.passage < ? AND length(v.signs)",
                (span.start, span.stop),
            )
            near += ((row, (int.from_bytes(signs, "big") ^ bits).bit_count()) for row, signs in rows)
        found: list[tuple[float, int]] = []
        for row, _ in nsmallest(COMPARED, near, key=itemgetter(1)):
            [raw] = db.execute(
                "SELECT v.numbers FROM embedded e JOIN vectors v ON v.hash = e.hash WHERE e.passage = ?", (row,)
            ).fetchone()
            found.append((-_cosine(wanted, array("b", raw)), row))
        return [row for _, row in sorted(found)[:limit]]

    def _use(self, model: str) -> None:
        """Forget the vectors of another model."""
        found = self._db.execute("SELECT model FROM embedder").fetchone()
        if found != (model,):
            self._begin_anew(model, 0)

    def _begin_anew(self, model: str, size: int) -> None:
        for table in ("embedder", "vectors", "embedded"):
            self._db.execute(f"DELETE FROM {table}")  # noqa: S608 names of ours
        self._db.execute("INSERT INTO embedder VALUES (?, ?)", (model, size))

    def _fits(self, size: int) -> bool:
        """Return whether vectors of this length are those that there are. The first one decides."""
        [known] = self._db.execute("SELECT size FROM embedder").fetchone()
        if not known:
            self._db.execute("UPDATE embedder SET size = ?", (size,))
        return known in (0, size)

    def _is_known(self, hash: bytes) -> bool:
        return self._db.execute("SELECT 1 FROM vectors WHERE hash = ?", (hash,)).fetchone() is not None


def _text(title: str, body: str) -> str:
    """Return a passage as it is sent. A page's passage begins with its heading, a message has its speaker."""
    return (body if title in body else f"{title}: {body}")[:LONGEST_TEXT]


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _as_bytes(vector: Sequence[float]) -> array[int]:
    """Return a vector in parts of its largest number, -127 to 127."""
    largest = max(map(abs, vector), default=0.0)
    return array("b", (round(number * 127 / largest) for number in vector) if largest else ())


def _signs(numbers: array[int]) -> bytes:
    """Return a bit for each number, set for one above 0."""
    bits = "".join("1" if number > 0 else "0" for number in numbers)
    return int(bits, 2).to_bytes((len(bits) + 7) // 8, "big") if bits else b""


def _cosine(one: array[int], other: array[int]) -> float:
    """Return how near two vectors of one length are, -1 to 1."""
    product: int = sum(map(mul, one, other))
    return product / sqrt(sum(map(mul, one, one)) * sum(map(mul, other, other)))
