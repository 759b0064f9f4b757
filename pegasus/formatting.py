"""Texts for people: amounts, durations, times, long texts, errors, and ids to type.

One wording for each kind of value, so that logs, command line and replies name the same thing alike. The functions are
pure: the present time and random numbers are arguments. What they return is for people; nothing parses it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Container, Mapping
from hashlib import sha256
from random import Random
from typing import Final
from urllib.parse import quote as quote_url

CHARACTERS_PER_TOKEN: Final = 4
"""Characters of English text in one token of a model, on average. Bounds of texts are computed with it."""

MASK: Final = "***"
"""Text that stands for a secret, in logs, results of tools and `pegasus config show`."""

GOES_ON: Final = "on at the next start, but the step under way is not repeated"
"""Words that follow "it goes" in sentences about a task whose daemon ends."""

_TYPED: Final = "23456789abcdefghjkmnpqrstuvwxyz"
"""Characters of ids that people type, without those that look alike."""
_LAST_SECOND: Final = 253_402_300_799
"""The last second of the year 9999; `strftime` is not defined beyond it on all systems."""

_UNITS: Final = (("d", 86400, 360), ("h", 3600, 6), ("min", 60, 1))
"""Units, their seconds, and the seconds that the last digit of the next smaller unit stands for."""


LONGEST_KEY: Final = 200
"""Bytes of a key in a file name. The time of an archive, and the suffixes of files that are being written, need the rest."""
CUT: Final = "~"
"""Stands before the SHA-256 in a key that was cut."""


def file_key(name: str) -> str:
    """Return a name as it stands in file names: every byte but `A-Za-z0-9_-` percent-encoded, so that no two names share a file.

    One beyond LONGEST_KEY is cut, and ends in CUT and the SHA-256 of the whole.

    >>> file_key("web:c/1")
    'web%3Ac%2F1'
    """
    raw = name.encode("utf-8", "surrogatepass")
    key = quote_url(raw, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(key) <= LONGEST_KEY:
        return key
    digest = sha256(raw).hexdigest()
    return f"{key[: LONGEST_KEY - len(digest) - len(CUT)]}{CUT}{digest}"


def plural(n: int, singular: str, plural: str | None = None) -> str:
    """Return a count with its noun. Without `plural`, an s is added.

    >>> plural(1204, "message")
    '1,204 messages'
    """
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def format_duration(seconds: float) -> str:
    """Return a duration in the largest unit that fits: `3.2 s`, `42 s`, `1.5 min`, `2.0 h`, `11.6 d`."""
    # What would be rounded up to a whole larger unit is shown in that one: 59.99 min are 1.0 h.
    for unit, length, step in _UNITS:
        if round(seconds / step) * step >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def format_time(ms: int, form: str = "%Y-%m-%d %H:%M:%S", *, local: bool = False) -> str:
    """Return a time of the wall clock (ms since the epoch) in UTC or, with `local`, in the machine's time zone.

    form: as for `time.strftime`. Times outside of the years 1970 to 9999 are shown as the beginning or end of these.
    """
    seconds = max(0, min(ms // 1000, _LAST_SECOND))
    return time.strftime(form, time.localtime(seconds) if local else time.gmtime(seconds))


def format_day(ms: int) -> str:
    """Return the day of a time (ms since the epoch) in UTC, as 2026-02-25."""
    return format_time(ms, "%Y-%m-%d")


def format_usage(usage: object) -> str:
    """Return the usage in the metadata of a reply as one line; "" if it is none.

    >>> format_usage({"inputTokens": 1204, "outputTokens": 80, "cost": 0.0031})
    '1,204 tokens in, 80 out, $0.0031'
    """
    if not isinstance(usage, Mapping):
        return ""
    tokens = [usage.get("inputTokens"), usage.get("outputTokens")]
    if not all(isinstance(count, int) for count in tokens):
        return ""
    cost = usage.get("cost")
    dollars = f", ${cost:,.4f}" if isinstance(cost, float) and cost > 0 else ""
    return f"{tokens[0]:,} tokens in, {tokens[1]:,} out{dollars}"


def truncate(text: str, limit: int) -> str:
    """Return the text on one line, cut to `limit` characters. The last of them is `…` if something was cut off."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def quote(value: object, limit: int = 60) -> str:
    """Return what was found, as error messages show it: a text on one line between double quotes, anything else as Python writes it.

    limit: characters of it that are shown at most. Those that cannot be printed are escaped.

    >>> quote("loud")
    '"loud"'
    """
    if not isinstance(value, str):
        return truncate(repr(value), limit)
    return f'"{escape_unprintable(truncate(value, limit))}"'


def escape_unprintable(text: str) -> str:
    """Return the text without anything that moves a terminal's cursor or begins a new line."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def cut_text(text: str, limit: int) -> str:
    """Return a text of several lines without blanks around it, cut to `limit` characters; the last is `…` if something was cut off."""
    text = text.strip()
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def code_fence(text: str) -> str:
    """Return a fence for a block of code in Markdown: longer than any in the text, so that nothing in it ends the block."""
    return "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))


def first_cause(error: BaseException) -> BaseException:
    """Return the first exception inside the groups that nurseries wrap around it; the groups themselves say nothing."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe_error(error: BaseException) -> str:
    """Return the kind and message of an unexpected error: `ValueError: no such colour`."""
    cause = first_cause(error)
    return f"{type(cause).__name__}: {cause}"


def typed_id(prefix: str, length: int, random: Random, taken: Container[str]) -> str:
    """Return an id that people can type and that is not taken: `a-7f3k` is `typed_id("a-", 4, random, approvals)`."""
    while (id := prefix + "".join(random.choices(_TYPED, k=length))) in taken:
        pass
    return id
