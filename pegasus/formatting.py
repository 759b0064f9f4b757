"""How amounts, times, long texts and what broke are said to people."""

from __future__ import annotations

import time
from typing import Final

_LAST: Final = 253_402_300_799
"""The last second of the year 9999."""


def plural(n: int, one: str, many: str | None = None) -> str:
    """`1 message`, `1,204 messages`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def format_duration(seconds: float) -> str:
    """A duration: `3.2 s`, `42 s`, `1.5 min`, `2.0 h`, `11.6 d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def format_time(ms: int, form: str = "%Y-%m-%d %H:%M:%S", *, local: bool = False) -> str:
    """A time of the wall clock, UTC. ms: since the epoch; what lies beyond the years 1970 to 9999 becomes their beginning or end.

    local: as the clock on this machine's wall says it.
    """
    seconds = max(0, min(ms // 1000, _LAST))
    return time.strftime(form, time.localtime(seconds) if local else time.gmtime(seconds))


def truncate(text: str, most: int) -> str:
    """The text on one line, or its beginning with a sign that there is more; at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def first_cause(error: BaseException) -> BaseException:
    """The first thing that went wrong, without the groups that nurseries wrap around it: those say nothing."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe_error(error: BaseException) -> str:
    """What broke, of which nobody knows more than its name and its words: `ValueError: no such colour`."""
    first = first_cause(error)
    return f"{type(first).__name__}: {first}"
