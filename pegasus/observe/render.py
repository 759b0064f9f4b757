"""How a log entry looks, as structlog processors: one line for people, or one JSON object; secrets masked in both."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

MASK: Final = "***"
_SHORTEST_SECRET: Final = 4
_OWN: Final = frozenset({"ts", "level", "logger", "event", "exception"})


class Entry:
    """One thing that happened. at: seconds since the epoch. exception: a formatted traceback, or ""."""

    __slots__ = ("at", "event", "exception", "fields", "level", "logger")

    def __init__(
        self, level: str, logger: str, event: str, fields: Mapping[str, object], at: float, exception: str
    ) -> None:
        self.level = level
        self.logger = logger
        self.event = event
        self.fields = fields
        self.at = at
        self.exception = exception


EventDict: TypeAlias = MutableMapping[str, Any]


def unfold(_logger: object, _method: str, event_dict: EventDict) -> EventDict:
    """From `entry=Entry(…)` to structlog's usual dict; a field with a name of ours gets an underscore behind it."""
    entry: Entry = event_dict["entry"]
    ts = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(entry.at)) + f".{int(entry.at * 1000) % 1000:03d}Z"
    fields = {f"{key}_" if key in _OWN else key: value for key, value in entry.fields.items()}
    unfolded = {"ts": ts, "level": entry.level, "logger": entry.logger, "event": entry.event, **fields}
    return {**unfolded, "exception": entry.exception} if entry.exception else unfolded


def as_line(_logger: object, _method: str, entry: EventDict) -> str:
    """`2026-02-25T14:30:00.000Z info    gateway: client connected n=3 name="a b"`, a traceback below, indented."""
    ts, level, logger, event = (str(entry.pop(key)) for key in ("ts", "level", "logger", "event"))
    exception = entry.pop("exception", None)
    fields = "".join(f" {key}={_value(value)}" for key, value in entry.items())
    line = f"{ts} {level:<7} {logger}: {_plain(event)}{fields}"
    if exception:
        line += "".join(f"\n  | {_plain(part)}" for part in str(exception).splitlines())
    return line


def as_json(_logger: object, _method: str, entry: EventDict) -> str:
    """One JSON object; what JSON has no form for is shown as Python's repr."""
    return json.dumps(dict(entry), ensure_ascii=False, default=repr, separators=(",", ":"))


def masking(secrets: Iterable[str]) -> Callable[[object, str, Any], str]:
    """A last processor that puts *** where a secret stands, as it is or escaped by JSON or repr.

    Secrets shorter than four characters are left alone: they would take ordinary words apart.
    """
    forms = {form for secret in secrets if len(secret) >= _SHORTEST_SECRET for form in _forms(secret)}
    ordered = sorted(forms, key=len, reverse=True)

    def mask(_logger: object, _method: str, line: Any) -> str:
        masked = str(line)
        for form in ordered:
            if form in masked:
                masked = masked.replace(form, MASK)
        return masked

    return mask


def _forms(secret: str) -> set[str]:
    escaped = json.dumps(secret, ensure_ascii=False)[1:-1]
    return {secret, escaped, json.dumps(escaped, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}


def _plain(text: str) -> str:
    """Without anything that moves a terminal's cursor or begins a new line."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _value(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    if text and text.isprintable() and not any(c in ' "=' for c in text):
        return text
    return _plain(json.dumps(text, ensure_ascii=False)) if isinstance(value, str) or not text else _plain(text)
