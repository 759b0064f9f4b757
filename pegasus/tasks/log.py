"""A task's log: one line for each event that changes it, and the places of the files (interfaces section 5)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pegasus.events import Event, EventType
from pegasus.formatting import format_time
from pegasus.messages import Json
from pegasus.tasks.payloads import KEYS, writable
from pegasus.wire import encode_line

FOLDER: Final = "tasks"
"""Below data/."""
ENDS: Final = frozenset({EventType.TASK_COMPLETED, EventType.TASK_FAILED})
"""After these the task is over."""
NAMES: Final[Mapping[str, EventType]] = MappingProxyType({type.name: type for type in KEYS})
OLD_NAMES: Final = frozenset({"ACT_DONE", "REFLECT_DONE"})
"""Events of earlier versions, which said nothing that other lines do not say."""

_END: Final = 64 << 10
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


class BadTaskLine(ValueError):
    """A line of JSON that is no event of a task, or of a newer kind; says what is wrong."""


def task_line(event: Event) -> bytes:
    """The line for a recorded event (`KEYS`), newline included. What JSON cannot hold is replaced, never refused."""
    data = {key: event.payload[key] for key in KEYS[event.type] if key in event.payload}
    line: dict[str, Json] = {"ts": event.timestamp, "event": event.type.name, "taskId": event.task_id, "data": data}
    try:
        return encode_line(line)
    except (TypeError, ValueError, RecursionError):
        return encode_line({**line, "data": writable(data)})


def event_of(line: Mapping[str, Any], number: int = 0) -> Event:
    """The event of a parsed line. Its id is the line's number, since lines keep no ids. Raises BadTaskLine.

    Unknown keys are ignored, so that newer logs can be read as far as they are understood.
    """
    get = line.get
    name, ts, task_id, data = get("event"), get("ts"), get("taskId"), get("data")
    type = NAMES.get(name) if isinstance(name, str) else None
    if type is None:
        raise BadTaskLine(f"unknown event {name!r}")
    if not isinstance(ts, (int, float)) or ts - ts != 0 or not isinstance(task_id, str):
        raise BadTaskLine("ts must be a number and taskId a string")
    if data is None:
        data = {}
    elif not isinstance(data, dict):
        raise BadTaskLine("data must be an object")
    return Event(f"{number:016x}", type, int(ts), "log", task_id, data)


def begun_at(log: bytes) -> int | None:
    """When the task of a log was created, ms; None if its first line does not say so."""
    first = _event_in(log[: log.find(b"\n") + 1])
    return first.timestamp if first is not None and first.type is EventType.TASK_CREATED else None


def has_ended(log: bytes) -> bool:
    """Whether the task is over, by the last lines: behind its end there are a few at most, of what came too late."""
    for line in reversed(log[-_END:].splitlines()):
        event = _event_in(line)
        if event is not None and event.type in (*ENDS, EventType.TASK_RESUMED):
            return event.type in ENDS
    return False


def _event_in(line: bytes) -> Event | None:
    try:
        value = json.loads(line)
        return event_of(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError, BadTaskLine):
        return None


def is_task_id(text: str) -> bool:
    """Whether it can be the id of a task: letters, digits, "_" and "-", 1 to 64, so that it is safe as a file name."""
    return _ID.fullmatch(text) is not None


def is_date(text: str) -> bool:
    """Whether it is written YYYY-MM-DD."""
    return _DATE.fullmatch(text) is not None


def date_of(ms: int) -> str:
    """The UTC date of a wall-clock time in ms, YYYY-MM-DD."""
    return format_time(ms, "%Y-%m-%d")


def task_path(task_id: str, date: str) -> str:
    """Where the log of a task lies, below data/. date: of its creation, UTC. Raises ValueError for what is no id or date."""
    if not is_task_id(task_id) or not is_date(date):
        raise ValueError(f"no task can have the id {task_id!r} and the date {date!r}")
    return f"{FOLDER}/{date}/{task_id}.jsonl"
