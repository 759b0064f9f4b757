"""Removal of old files in data/media and data/transcripts, once an hour while the agent runs.

A file is old when nobody has kept it for `media.keep_days`: keeping the same content again makes it new. A reply that nobody fetches
is given up after GIVEN_UP_DAYS, so a file stays longer than that in any case, and no reply in the outbox misses one. An item that is
being worked on has kept its files a moment ago. A session goes on naming a file that was removed; in place of a picture it then
shows a line that says so.

The clock decides about age, and clocks are wrong at times. Set back, it makes files younger, and none is removed. Set forward by more
than a day, it makes all of them old at once, so nothing is removed for a week, in which somebody may notice. A file from before
EARLIEST was written while the clock was wrong, and stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from actors import ActorError, Inbox, Ref
from pegasus.observe import get_logger
from pegasus.settings import InForce
from pegasus.storage.media_files import MEDIA_FOLDER
from pegasus.storage.messages import JournalMessage, RemoveOldFiles, StorageError
from pegasus.storage.outbox import GIVEN_UP_DAYS

_log = get_logger("media")

TRANSCRIPTS: Final = "transcripts"
"""Folder below data/ of what recordings say."""
PERIOD: Final = 3600.0
"""Seconds between two sweeps."""
AT_ONCE: Final = 500
"""Files that one sweep removes from a folder, so that the journal is not held up."""
JUMP: Final = 86_400.0
"""Seconds by which the clock is ahead of the time that has passed, for it to count as set forward. A machine that slept is, too."""
DISTRUST: Final = 7 * 86_400.0
"""Seconds for which nothing is removed then."""
EARLIEST: Final = 1_735_689_600_000
"""2025-01-01, ms since the epoch."""
_DAY_MS: Final = 86_400_000


async def sweep_media(
    inbox: Inbox[object], journal: Ref[JournalMessage], clock: Callable[[], int], keep_days: InForce[int]
) -> None:
    """Run the actor. clock: returns the wall clock, ms. keep_days: the setting; 0 = nothing is ever removed.

    Cancelled: what was removed by then is gone, the rest comes later.
    """
    inbox.started()
    trusted_from, offset = 0.0, clock() / 1000 - trio.current_time()
    while True:
        await trio.sleep(PERIOD)
        now, time = clock(), trio.current_time()
        if now / 1000 - time - offset > JUMP:
            trusted_from = time + DISTRUST
            _log.warning("the clock was set forward, so no file in data/media is removed for a week")
        offset = now / 1000 - time
        if (days := keep_days.now) <= 0 or time < trusted_from:
            continue
        before = now - max(days, GIVEN_UP_DAYS + 1) * _DAY_MS
        for folder in (MEDIA_FOLDER, TRANSCRIPTS):
            try:
                removed = await journal.ask(RemoveOldFiles, folder, EARLIEST, before, AT_ONCE)
            except (StorageError, ActorError) as error:
                _log.warning("old files cannot be removed", folder=folder, error=str(error))
                continue
            if removed:
                _log.info("removed old files", folder=folder, files=removed, days=days)
