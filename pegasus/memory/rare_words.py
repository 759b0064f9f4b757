"""Searches whose words are all rare, which the event loop can do itself.

Measured by `./scripts/bench main_agent`, as parts of the time that reading all 10,000 episodes takes: 0.06 in a thread, 0.035 in the
event loop; the limit is 0.05. Looking up two rare words takes 0.08 ms. The way into a thread and back takes as long again, and half of
that is lost once more because the other processor's caches know nothing of the index.

Words that are everywhere take 10 ms in the same index, and more in a larger one, so they must not be looked up in the event loop.
Which words are rare is found out by counting passages with any of them, up to a bound. Only plain words are counted. A phrase, or a
character that stands for all pairs that it begins, makes FTS5 read the passages of common words before it finds the first one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

RARE: Final = 64
"""Passages with any of the words, from which on they are not rare. Ranking one takes 3 µs."""


def are_rare(db: sqlite3.Connection, terms: Sequence[str], numbers: Iterable[range]) -> bool:
    """Return whether few passages with these numbers have one of the terms. False if a term is not one plain word.

    terms: as FTS5 takes them, in quotes; at least one. It reads no more than `RARE` entries of the index for each range.
    """
    if not all(term[1:-1].isalnum() for term in terms):
        return False
    count = 0
    for span in numbers:
        [found] = db.execute(
            "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? AND rowid >= ? AND rowid < ? LIMIT ?)",
            (" OR ".join(terms), span.start, span.stop, RARE),
        ).fetchone()
        count += found
    return count < RARE
