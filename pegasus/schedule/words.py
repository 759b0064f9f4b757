"""Times as people say them: "in 10 minutes", "tomorrow at 9", "friday at 18:30", "every 2 hours", "every weekday at 8:30".

Only what has one meaning is understood. Everything else is refused with examples, since a job at a time that was guessed is found out
when it is too late. A point in time is the next one of its kind: "at 9" is tomorrow's once today's has passed.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from pegasus.formatting import quote

EXAMPLES: Final = (
    "in 10 minutes, tomorrow at 9, friday at 18:30, every 2 hours, every weekday at 8:30, 0 9 * * 1-5, 2026-12-01T09:00"
)
"""One example of each form."""
_DAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
"""Names in the order of cron's numbers."""
_GROUPS: Final = {
    "day": "*",
    "weekday": "1-5",
    "workday": "1-5",
    "working day": "1-5",
    "weekend": "0,6",
    **{day: str(number) for number, day in enumerate(_DAYS)},
    **{day[:3]: str(number) for number, day in enumerate(_DAYS)},
}
"""Days of the week for cron, by name."""
_SECONDS_OF: Final = {"s": 1, "m": 60, "h": 3600}
_DAYS_OF: Final = {"d": 1, "w": 7}
"""Units by their first letter."""
_UNIT: Final = r"(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)"
_AMOUNT: Final = re.compile(
    rf"(?:(\d{{1,6}}(?:\.\d{{1,3}})?) ?|(half an? |an? |one |))\b{_UNIT}\b(?: and\b)? ?|(\d{{1,6}}){_UNIT}(?=[\d ]|$) ?"
)
"""Number or article, and unit; or both as one word, as in "1h30m"."""
_TIME: Final = (
    r"(?:(?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>[ap]\.?m\.?)?(?: ?o'?clock)?|(?P<word>noon|midday|midnight))"
)
_DAY: Final = rf"(?:{'|'.join(sorted(_GROUPS, key=len, reverse=True))})"
_POINT: Final = re.compile(
    rf"(?:on )?(?P<day>today|tomorrow|(?:next |this )?{_DAY}|\d{{4}}-\d\d-\d\d)?(?:^| )?(?:at )?{_TIME}"
)
_AGAIN: Final = re.compile(rf"every (?P<days>{_DAY}s?(?:(?: and | or | ){_DAY}s?)*)(?: at)? {_TIME}")
_MONTHLY: Final = re.compile(rf"every month on (?:the )?(?P<number>\d{{1,2}})(?:st|nd|rd|th)?(?: at)? {_TIME}")
_TIME_FIRST: Final = re.compile(rf"at (?P<time>{_TIME}) (?P<rest>\D.*)")
_SHORT: Final = {"hourly": "every hour", "daily": "every day", "weekly": "every week", "monthly": "every month"}
_FIELDS: Final = re.compile(r"[\d*][\d*/,-]*(?: [\d*/,\-a-z#]+){4,5}")
"""Form of a cron expression."""


def read_words(text: str, now: datetime) -> tuple[Literal["cron", "every", "at"], str | float]:
    """Return which kind of schedule a text means, with its value. now: with the zone in which days and hours are meant.

    A point in time is in ISO 8601, with an offset if it depends on none. Raises ValueError, whose text says what is allowed.

    >>> read_words("every weekday at 8:30", datetime.now())
    ('cron', '30 8 * * 1-5')
    """
    words = " ".join(text.lower().replace(",", " ").split())
    words = re.sub(rf"^({_DAY})s(?= )", r"every \1", words)
    for short, long in _SHORT.items():
        words = re.sub(rf"^{short}\b", long, words)
    if found := _TIME_FIRST.fullmatch(words):
        words = f"{found['rest']} at {found['time']}"
    try:
        if words.startswith("in "):
            days, seconds = _amount(words[3:])
            # A day ends at the same time of the clock, also where that is set; an hour has 3,600 seconds.
            moment = (now + timedelta(days=days)).astimezone(UTC) + timedelta(seconds=seconds)
            return "at", moment.astimezone(now.tzinfo).isoformat()
        if found := _AGAIN.fullmatch(words):
            names = re.findall(rf"({_DAY})s?(?: and | or | |$)", found["days"] + " ")
            numbers = ",".join(dict.fromkeys(_GROUPS[name] for name in names))
            return "cron", f"{_clock(found)} * * {'*' if '*' in numbers else numbers}"
        if found := _MONTHLY.fullmatch(words):
            minute_and_hour = _clock(found)
            return "cron", f"{minute_and_hour} {int(found['number'])} * *"
        if words.startswith("every "):
            days, seconds = _amount(words[6:])
            return "every", days * 86_400 + seconds
        if found := _POINT.fullmatch(words):
            return "at", _next(found, now).isoformat()
        if _FIELDS.fullmatch(words):
            return "cron", text.strip()
        return "at", datetime.fromisoformat(text.strip()).isoformat()
    except (ValueError, OverflowError):
        raise ValueError(f"found {quote(text)}, allowed: {EXAMPLES}") from None


def _amount(words: str) -> tuple[float, float]:
    """Return the days and the seconds of an amount of time such as "1 hour and 30 minutes". Raises ValueError."""
    days, seconds, place = 0.0, 0.0, 0
    while place < len(words):
        found = _AMOUNT.match(words, place)
        if found is None:
            raise ValueError(words)
        number, article, unit = found[1] or found[4], found[2] or "", (found[3] or found[5])[0]
        amount = float(number) if number else 0.5 if article.startswith("half") else 1.0
        if unit in _DAYS_OF:
            days += amount * _DAYS_OF[unit]
        else:
            seconds += amount * _SECONDS_OF[unit]
        place = found.end()
    if not days + seconds:
        raise ValueError(words)
    return days, seconds


def _clock(found: re.Match[str]) -> str:
    """Return minute and hour of a match, as cron has them. Raises ValueError."""
    if found["word"]:
        return "0 0" if found["word"] == "midnight" else "0 12"
    hour, minute, half = int(found["hour"]), int(found["minute"] or 0), (found["half"] or "")[:1]
    if half and not 1 <= hour <= 12:
        raise ValueError(hour)
    hour = hour % 12 + 12 * (half == "p") if half else hour
    if hour > 23 or minute > 59:
        raise ValueError(hour)
    return f"{minute} {hour}"


def _next(found: re.Match[str], now: datetime) -> datetime:
    """Return the next such point in time, without a zone. Raises ValueError."""
    minute, hour = map(int, _clock(found).split())
    now = now.replace(tzinfo=None)
    moment, day = now.replace(hour=hour, minute=minute, second=0, microsecond=0), found["day"] or ""
    if day == "":
        return moment if moment > now else moment + timedelta(days=1)
    if day in ("today", "tomorrow"):
        return moment + timedelta(days=day == "tomorrow")
    if day[0].isdigit():
        return datetime.combine(datetime.fromisoformat(day), moment.time())
    is_next, name = day.startswith("next "), day.removeprefix("next ").removeprefix("this ")
    wanted = int(_GROUPS[name])  # "day" and "weekend" are no points in time
    moment += timedelta(days=(wanted - moment.isoweekday()) % 7)
    return moment + timedelta(days=7 * (moment <= now or (is_next and moment.date() == now.date())))
