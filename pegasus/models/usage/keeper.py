"""The actor that reads and writes the files of usage, `data/usage/<YYYY-MM>.jsonl`.

When the first call begins, it reads this month and the last. From then on it writes what has gathered, once a second. The tracker
holds everything that is not written, so that a crash of the actor loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from functools import cache, partial
from typing import Final

import trio

from actors import ActorError, Inbox, Ref
from pegasus.formatting import format_day
from pegasus.models.usage.tracker import UsageRecord, UsageTracker, lines_by_month, parse_record
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, LineStore, StorageError

_log = get_logger("usage")

GATHERING: Final = 1.0
"""Seconds that a record waits for others to be written with it. A crash loses at most the records of this time."""
RETRY: Final = 10.0
"""Seconds until a write that the disk refused is tried again. Meanwhile records gather, up to MOST_UNSAVED."""
BATCH: Final = 500
"""Records of one write, about 150 KB, so that the journal is not occupied for long."""
GRACE: Final = 2.0
"""Seconds for the last write when the keeper is stopped. A disk that hangs must not keep the process from ending."""


async def serve_usage(
    inbox: Inbox[object], tracker: UsageTracker, journal: Ref[JournalMessage], *, is_shared: bool = False
) -> None:
    """Actor that reads and writes the files of a tracker. Messages to it are ignored.

    is_shared: other nodes call models, too, and budgets are those of all.
    When it is stopped, it writes what is left. After a crash its successor continues there: the tracker holds the state.
    """
    tracker.journal = journal if is_shared else None
    inbox.started()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_usage, tracker, journal)
        async for _ in inbox:
            pass
        nursery.cancel_scope.cancel()


async def keep_usage(tracker: UsageTracker, journal: Ref[JournalMessage]) -> None:
    """Read the files when the first call begins, then write for ever. On cancellation, write what is left first."""
    months = cache(partial(LineStore, "usage", journal))
    try:
        if not tracker.loaded.is_set():
            await tracker.wanted.wait()
            this_month = date.fromisoformat(format_day(tracker.clock())).replace(day=1)
            looked_at = (this_month - timedelta(days=1), this_month)
            tracker.load([record for month in looked_at for record in await _read(months(f"{month:%Y-%m}"))])
        while True:
            await tracker.news.wait()
            await trio.sleep(GATHERING)
            if not await _write(tracker, months):
                await trio.sleep(RETRY)
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + GRACE):
            while tracker.unsaved and await _write(tracker, months):
                pass


async def _read(store: LineStore) -> list[UsageRecord]:
    """Return the records of a month. What cannot be read is logged and not counted, so that the agent still works."""
    records: list[UsageRecord] = []
    try:
        await store.read(lambda line: records.append(parse_record(line)))
    except (StorageError, ActorError) as error:
        _log.error("usage cannot be read and does not count", error=str(error))
    return records


async def _write(tracker: UsageTracker, months: Callable[[str], LineStore]) -> bool:
    """Write a batch of records. Return False if the journal refused it. months: returns the store of a month, YYYY-MM.

    When this is cancelled, or fails behind one of two months, records may be on disk all the same. They are written again; their ids
    count once.
    """
    taken = tracker.take_unsaved(BATCH)
    try:
        for month, lines in lines_by_month(taken).items():
            await months(month).append(*lines, soon=True)
    except (StorageError, ActorError) as error:
        tracker.add_unsaved(older=taken)
        _log.error("usage is not written yet", calls=len(taken), error=str(error))
        return False
    except BaseException:  # cancelled
        tracker.add_unsaved(older=taken)
        raise
    return True
