"""Times of jobs: cron expressions with a time zone, intervals, and points in time; and when each comes next.

Everything here is a function of its arguments, so a test says what the time is. Times are wall clock, ms since the epoch.

Cron expressions have five fields (minute, hour, day of month, month, day of week; a sixth in front counts seconds) and are read
by cronsim, which behaves as Debian's cron does when clocks are set for daylight saving: a time that does not exist on that day comes
at the end of the gap (02:30 at 03:00), and one that exists twice comes once.
"""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import attrs

from pegasus.formatting import quote

LATEST: Final = 253_370_764_800_000
"""1 January 9999, ms. Calendars of Python end soon after it."""
SHORTEST_INTERVAL: Final = 1.0
"""Seconds between two runs at least, as a cron expression can say too. A shorter interval is taken, and counts as this one."""
LONGEST_INTERVAL: Final = 10 * 366 * 24 * 3600.0
"""Seconds of an interval at most: ten years."""


class ScheduleError(ValueError):
    """A schedule, or another value of a job, is not what is allowed. str() says what was found and what is allowed.

    Raised by `make_schedule`, `draft_job` and the keeper. The tool and the control plane give the text to whoever has asked.

    Example::

        try:
            make_schedule(now, cron="61 * * * *")
        except ScheduleError as error:
            print(error)  # cron: found "61 * * * *": …
    """


@attrs.frozen
class Schedule:
    """Times at which a job runs: exactly one of `cron`, `every` and `at` is set.

    >>> next_run(Schedule(cron="0 9 * * 1-5", tz="Europe/Berlin"), after=0)
    28800000
    """

    cron: str = ""
    """A cron expression, such as "0 9 * * 1-5"."""
    tz: str = ""
    """IANA name of the time zone of `cron`."""
    every: float = 0.0
    """Seconds between two runs."""
    at: str = ""
    """A point in time in ISO 8601, with its offset from UTC."""


def make_schedule(
    now: int, *, cron: str = "", every: float = 0.0, at: str = "", tz: str = "", when: str = ""
) -> Schedule:
    """Return a schedule that a person or a model has asked for.

    now: a schedule that has no run after this time is refused. tz: IANA name, for `cron` and for an `at` without an offset; "" = the
    zone of this machine. when: the schedule in words, in place of the other three. Raises ScheduleError.
    """
    given = Schedule(" ".join(cron.split()), tz.strip(), every, at.strip())
    if when.strip():
        if given.cron or given.every or given.at:
            raise ScheduleError("schedule: when is allowed without cron, every and at")
        given = _schedule_of_words(when, now, given.tz)
        every = given.every
    require_one_kind(given)
    if every:
        if not (math.isfinite(every) and 0 < every <= LONGEST_INTERVAL):
            raise ScheduleError(
                f"every: found {quote(every)}, allowed: seconds above 0, at most {LONGEST_INTERVAL:.0f}"
            )
        return Schedule(every=every)
    zone = given.tz or local_zone()
    if given.at:
        return Schedule(at=_parse_at(given.at, zone, now))
    # A cron job keeps the zone that it was made in, so that it does not move when the machine does.
    schedule = Schedule(cron=given.cron, tz=zone)
    if next_run(schedule, now) is None:
        raise ScheduleError(f"cron: {quote(schedule.cron)} never comes")
    return schedule


def _schedule_of_words(words: str, now: int, tz: str) -> Schedule:
    """Return what a schedule in words means. Raises ScheduleError."""
    from pegasus.schedule.words import read_words

    try:
        kind, value = read_words(words, datetime.fromtimestamp(now / 1000, _zone(tz or local_zone())))
    except ValueError as error:
        raise error if isinstance(error, ScheduleError) else ScheduleError(f"when: {error}") from None
    if isinstance(value, float):
        return Schedule(every=value)
    return Schedule(cron=value, tz=tz) if kind == "cron" else Schedule(at=value, tz=tz)


def require_one_kind(schedule: Schedule) -> None:
    """Raise ScheduleError unless exactly one of `cron`, `every` and `at` is set."""
    if [bool(schedule.cron), bool(schedule.every), bool(schedule.at)].count(True) != 1:
        raise ScheduleError("schedule: exactly one of cron, every and at is needed, or when")


def next_run(schedule: Schedule, after: int) -> int | None:
    """Return the first time of a schedule after `after`; None if there is none.

    An interval is counted from `after`. Raises ScheduleError for a schedule that makes no sense, as an edited file may have.
    """
    if schedule.every:
        return min(after + interval_ms(schedule), LATEST)
    if schedule.at:
        moment = round(_datetime(schedule.at).timestamp() * 1000)
        # A point in time counts once. "After" and not "from" it, so that a run at exactly this moment is not its own next one.
        return moment if moment > after else None
    from cronsim import CronSim, CronSimError

    zone = _zone(schedule.tz)
    try:
        # cronsim begins after the given time, so a run that is due now is not found again.
        found = next(CronSim(schedule.cron, datetime.fromtimestamp(min(after, LATEST) / 1000, zone)))
    except StopIteration:  # cronsim looks fifty years ahead
        return None
    except (CronSimError, ValueError, OverflowError) as error:
        raise ScheduleError(
            f"cron: found {quote(schedule.cron)}: {error}; allowed: minute hour day month weekday"
        ) from None
    return round(found.timestamp() * 1000)


def interval_ms(schedule: Schedule) -> int:
    """Return the time between two runs of an interval, ms. One that somebody has written into the file may be of any length."""
    return round(min(max(SHORTEST_INTERVAL, schedule.every), LONGEST_INTERVAL) * 1000)


def local_zone() -> str:
    """Return the IANA name of this machine's time zone; "UTC" where it has none."""
    from tzlocal import get_localzone_name

    try:
        return get_localzone_name() or "UTC"
    except (LookupError, ValueError, OSError):
        return "UTC"


def schedule_text(schedule: Schedule) -> str:
    """Return a schedule for people, such as "0 9 * * 1-5 (Europe/Berlin)"."""
    if schedule.cron:
        return f"{schedule.cron} ({schedule.tz or 'UTC'})"
    if schedule.every:
        return f"every {interval_ms(schedule) / 1000:g} s"
    with suppress(ScheduleError):  # of a file that somebody has edited
        return f"at {_datetime(schedule.at).isoformat(' ', 'seconds')}"
    return f"at {schedule.at}"


@lru_cache(64)
def _zone(name: str) -> ZoneInfo:
    """Return a time zone. Raises ScheduleError."""
    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError):  # ZoneInfo raises each of them for one kind of bad name
        raise ScheduleError(f"tz: found {quote(name)}, allowed: an IANA name such as Europe/Berlin") from None


def _parse_at(text: str, zone: str, now: int) -> str:
    """Return a point in time in the form in which it is kept. Raises ScheduleError, also for an ended one."""
    moment = _datetime(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=_zone(zone))
        # A time that the clock leaps over becomes the same moment on the other side of the leap.
        # Through UTC and back, since arithmetic within one zone knows no leaps.
        moment = moment.astimezone(UTC).astimezone(_zone(zone))
    time = round(moment.timestamp() * 1000)
    if time <= now:
        raise ScheduleError(f"at: found {quote(text)}, which is not in the future")
    if time >= LATEST:
        raise ScheduleError(f"at: found {quote(text)}, allowed: a time before the year 9999")
    return moment.isoformat()


def _datetime(text: str) -> datetime:
    """Return a text in ISO 8601 as a time, without a zone if it names none. Raises ScheduleError.

    `timestamp` is called for its errors only: a year that the system cannot compute with is refused here, in words, and not
    later.
    """
    try:
        moment = datetime.fromisoformat(text)
        moment.timestamp()
    except (ValueError, OverflowError, OSError):
        raise ScheduleError(f"at: found {quote(text)}, allowed: a time in ISO 8601, as 2026-12-01T09:00") from None
    return moment
