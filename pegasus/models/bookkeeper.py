"""Reads at a start what was used before, and writes what is used: `data/usage/<YYYY-MM>.jsonl`, one line a call.

Not durable at once: a second's records go to the journal together, so that counting costs no turn anything; a power failure
may lose the last of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import trio

from actors import ActorError, Ref
from pegasus.models.books import Books
from pegasus.models.ledger import Record, day_of, read_record
from pegasus.observe import get_logger
from pegasus.storage import Commit, JournalMessage, ReadFile, StorageError

FOLDER: Final = "usage"
GATHERING: Final = 1.0
"""Seconds that records wait for others to be written with."""
RETRY: Final = 10.0
"""Seconds until what the disk refused is tried again."""
BATCH: Final = 500
"""Records of one write."""
AT_ONCE: Final = 64 << 10
"""Bytes that are read without a thread."""
GRACE: Final = 2.0
"""Seconds for the last write when it is stopped."""

_log = get_logger("usage")


async def keep_books(books: Books, journal: Ref[JournalMessage]) -> None:
    """Read when the first call wants to begin (`books.wanted`), then write for ever. Cancelled: hands over what is left."""
    try:
        if not books.loaded.is_set():
            await books.wanted.wait()
            await _load(books, journal)
        while True:
            await books.news.wait()
            await trio.sleep(GATHERING)
            if not await _write(books, journal):
                await trio.sleep(RETRY)
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + GRACE):
            while books.unsaved and await _write(books, journal):
                pass


# ------------------------------------------------------------------ reading


async def _load(books: Books, journal: Ref[JournalMessage]) -> None:
    """This month and the one before. What cannot be read is told and not counted: the agent goes on."""
    content = [await _content(file_of(month), journal) for month in _months(books.clock())]
    if sum(map(len, content)) <= AT_ONCE:
        books.load(_records(content))
    else:
        books.load(await trio.to_thread.run_sync(lambda: list(_records(content))))


async def _content(path: str, journal: Ref[JournalMessage]) -> bytes:
    try:
        return await journal.ask(ReadFile, path)
    except (StorageError, ActorError) as error:
        _log.error("what was used cannot be read, and does not count", file=path, error=str(error))
        return b""


def _records(contents: Iterable[bytes]) -> Iterator[Record]:
    for content in contents:
        bad = 0
        for line in content.splitlines():
            try:
                yield read_record(line)
            except (ValueError, RecursionError):
                bad += 1
        if bad:
            _log.warning("lines about usage that make no sense were left out", lines=bad)


def _months(now: int) -> tuple[str, str]:
    this = day_of(now)[:7]
    first = datetime.strptime(this, "%Y-%m").replace(tzinfo=UTC)
    return (f"{first - timedelta(days=1):%Y-%m}", this)


def file_of(month: str) -> str:
    """Where the calls of a month (YYYY-MM) are, below data/."""
    return f"{FOLDER}/{month}.jsonl"


# ------------------------------------------------------------------ writing


async def _write(books: Books, journal: Ref[JournalMessage]) -> bool:
    """Hand over some; whether the journal took them."""
    taken = books.take_unsaved(BATCH)
    files: defaultdict[str, bytearray] = defaultdict(bytearray)
    for record in taken:
        files[file_of(day_of(record.ts)[:7])] += record.line()
    appends = tuple((path, bytes(lines)) for path, lines in files.items())
    try:
        await journal.ask(Commit, appends, (), False)
    except (StorageError, ActorError) as error:
        books.put_back(taken)
        _log.error("what was used is not written yet", calls=len(taken), error=str(error))
        return False
    except BaseException:  # cancelled in between: perhaps it is written; by its id it counts once
        books.put_back(taken)
        raise
    return True
