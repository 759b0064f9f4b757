"""Rendering of log entries: one line for people, or one JSON object; secrets are masked in both.

Text in an entry may come from strangers. In a line for people nothing may begin a new line or move a terminal's cursor,
so that a message cannot forge an entry; JSON escapes such characters by itself.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

import attrs

MASK: Final = "***"
"""Text that stands in the place of a secret."""

_SHORTEST_SECRET: Final = 4
"""Characters of the shortest secret that is masked: shorter ones would take ordinary words apart."""
_RESERVED: Final = frozenset({"ts", "level", "logger", "event", "exception"})
"""Keys of a JSON entry that a field of the caller must not replace."""


@attrs.frozen
class LogEntry:
    """One event of the log.

    Example::

        format_line(LogEntry("info", "gateway", "client connected", {"peer": "127.0.0.1"}, at=1772029800.0))
    """

    level: str
    """"debug", "info", "warning" or "error"."""
    logger: str
    """Package or actor, as "gateway"."""
    event: str
    """A few words, the same for each entry of its kind, so that they can be searched for; values belong in the fields."""
    fields: Mapping[str, object]
    """Texts, numbers, booleans or None by name."""
    at: float
    """Seconds since the epoch."""
    exception: str = ""
    """Formatted traceback, or ""."""

    @property
    def time_text(self) -> str:
        """The time in UTC: `2026-02-25T14:30:00.123Z`."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.at))
        return f"{seconds}.{int(self.at * 1000) % 1000:03d}Z"

    @property
    def own_fields(self) -> dict[str, object]:
        """The fields; one with a reserved name gets an underscore behind it."""
        return {f"{key}_" if key in _RESERVED else key: value for key, value in self.fields.items()}


def format_line(entry: LogEntry) -> str:
    """Return `2026-02-25T14:30:00.000Z info    gateway: client connected n=3 name="a b"`, a traceback below, indented."""
    fields = "".join(f" {key}={_format_value(value)}" for key, value in entry.own_fields.items())
    line = f"{entry.time_text} {entry.level:<7} {entry.logger}: {_escape(entry.event)}{fields}"
    return line + "".join(f"\n  | {_escape(part)}" for part in entry.exception.splitlines())


def format_json(entry: LogEntry) -> str:
    """Return one JSON object in one line, with the keys ts, level, logger, event, the fields, and exception if there is one."""
    head = {"ts": entry.time_text, "level": entry.level, "logger": entry.logger, "event": entry.event}
    tail = {"exception": entry.exception} if entry.exception else {}
    return json.dumps({**head, **entry.own_fields, **tail}, ensure_ascii=False, separators=(",", ":"))


class SecretMask:
    """Replacement of secrets by `***`, in each form in which they appear in logs.

    Example::

        SecretMask(["sk-12345"]).apply("key=sk-12345")  # "key=***"
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= _SHORTEST_SECRET for form in _forms(secret)}
        # The longest first: a secret that contains another one must not be left with its remainder readable.
        self._forms = sorted(forms, key=len, reverse=True)

    def apply(self, line: str) -> str:
        """Return the line without secrets."""
        for form in self._forms:
            if form in line:
                line = line.replace(form, MASK)
        return line


def _forms(secret: str) -> set[str]:
    """Return a secret as it is, and escaped by JSON, by repr, in an address and in base64 (HTTP's Basic)."""
    escaped = json.dumps(secret, ensure_ascii=False)[1:-1]
    encoded = secret.encode("utf-8", "surrogateescape")
    return {
        secret,
        escaped,
        json.dumps(escaped, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        quote(encoded, safe=""),
        base64.b64encode(encoded).decode().rstrip("="),
    }


def _escape(text: str) -> str:
    """Return the text without anything that moves a terminal's cursor or begins a new line."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _format_value(value: object) -> str:
    """Return a field's value: bare where it is one word, else as a JSON string, so that a line can be split at blanks."""
    text = value if isinstance(value, str) else repr(value)
    if text and text.isprintable() and not any(c in ' "=' for c in text):
        return text
    return _escape(json.dumps(text, ensure_ascii=False)) if isinstance(value, str) or not text else _escape(text)
