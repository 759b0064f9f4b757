"""Removal of what is old: files of messages, archives of conversations, logs of tasks.

An actor looks once an hour while the agent runs, and asks the owner of each kind to remove a number of files at most: there is never
much work at a time, and years of files go in some days. What may go is decided by the owner of a kind (`RetentionRule.remove`). The
log says what went.

Age is measured by the wall clock, which may be wrong. A clock that was set back makes files younger, and none is removed. A clock
that was set forward by more than a day makes all of them old at once. So nothing is removed for a week then, in which somebody may
notice. A file from before EARLIEST was written while the clock was wrong, and stays.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs
import trio

from actors import ActorError, Inbox, Ref
from pegasus.observe import get_logger
from pegasus.settings import LiveValue
from pegasus.storage.media_files import MEDIA_FOLDER, TRANSCRIPTS
from pegasus.storage.messages import JournalMessage, RemoveOldFiles, StorageError
from pegasus.storage.outbox import GIVEN_UP_DAYS

PERIOD: Final = 3600.0
"""Seconds between two looks."""
AT_ONCE: Final = 500
"""Files that one look removes of a folder, so that the journal is not held up."""
JUMP: Final = 86_400.0
"""Seconds by which the clock is ahead of the time that has passed, for it to count as set forward. A machine that slept is, too."""
DISTRUST: Final = 7 * 86_400.0
"""Seconds for which nothing is removed then."""
EARLIEST: Final = 1_735_689_600_000
"""2025-01-01, ms since the epoch."""
_DAY_MS: Final = 86_400_000
_NAMED: Final = 20
"""Files that a line of the log names."""

_log = get_logger("retention")


@attrs.frozen(eq=False, repr=False)
class RetentionRule:
    """A kind of files that are removed when they are old.

    Example: `RetentionRule("logs of tasks", days, remove)`, see `remove_old_files`.
    """

    what: str
    """Name of the kind, for the log."""
    days: LiveValue[int]
    """The setting; 0 = nothing is ever removed."""
    remove: Callable[[int, int, int], Awaitable[Sequence[str]]]
    """Removes files that were last written from a time until another (ms), at most so many; returns their paths below data/."""
    least: int = 1
    """Days that a file stays whatever the setting is."""


def media_rule(journal: Ref[JournalMessage], days: LiveValue[int]) -> RetentionRule:
    """Return the rule for files of messages, and what recordings among them say."""

    async def remove(since: int, before: int, limit: int) -> Sequence[str]:
        removed = await journal.ask(RemoveOldFiles, (MEDIA_FOLDER,), since, before, limit)
        return removed + await journal.ask(RemoveOldFiles, (TRANSCRIPTS,), since, before, limit)

    return RetentionRule("files of messages", days, remove, GIVEN_UP_DAYS + 1)


async def remove_old_files(inbox: Inbox[object], clock: Callable[[], int], rules: Sequence[RetentionRule]) -> None:
    """Run the actor. clock: returns the wall clock, ms.

    Cancelled: what was removed by then is gone, the rest comes later.
    """
    inbox.started()
    trusted_from, offset = 0.0, clock() / 1000 - trio.current_time()
    while True:
        await trio.sleep(PERIOD)
        now, time = clock(), trio.current_time()
        if now / 1000 - time - offset > JUMP:
            trusted_from = time + DISTRUST
            _log.warning("the clock was set forward, so nothing old is removed for a week")
        offset = now / 1000 - time
        for rule in rules if time >= trusted_from else ():
            if (days := rule.days.now) > 0:
                await _apply(rule, days, now)


async def _apply(rule: RetentionRule, days: int, now: int) -> None:
    """Remove what is old by a rule, and say so. The disk may refuse: then it is tried at the next look."""
    try:
        removed = await rule.remove(EARLIEST, now - max(days, rule.least) * _DAY_MS, AT_ONCE)
    except (StorageError, ActorError) as error:
        _log.warning("what is old cannot be removed", what=rule.what, error=str(error))
        return
    if removed:
        named = ", ".join(removed[:_NAMED]) + (" …" if len(removed) > _NAMED else "")
        _log.info("removed what is old", what=rule.what, files=len(removed), days=days, names=named)
