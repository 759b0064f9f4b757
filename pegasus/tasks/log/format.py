"""The format of the files below `data/tasks`: lines of a log, lines of the index, and the list of pending tasks.

Pure: bytes to values and back. Reading never raises because of damaged content; problems are reported in words, since one bad
byte must not hide the tasks around it.

    tasks/index.jsonl              {"taskId": …, "date": …}, a line for each task, appended only
    tasks/pending.json             [{"taskId": …, "ts": …}, …], replaced as a whole; in a database a row for each
    tasks/YYYY-MM-DD/<id>.jsonl    {"ts": …, "event": …, "taskId": …, "data": {…}}, a line for each event

The number of a task, which people use instead of its id, is the number of its line in the index. Lines are only appended, and a
damaged one keeps its place, so a number is never given twice.

Logs are in a folder for each day, so that no folder becomes huge. The date is that of the creation in UTC;
a task that is resumed weeks later is still in the folder of its first day.

A task id becomes part of a path. It is therefore checked wherever a path is made of it (`task_path`), also for ids that come from
files: a damaged index must not lead to a file outside of the folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from io import BytesIO
from itertools import islice
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final

import attrs

from pegasus.events import Event, EventType
from pegasus.json_lines import Line, scan_lines
from pegasus.messages import Json
from pegasus.tasks.core.task_events import EVENT_DATA, Payload, PayloadError, TaskEventData, TaskNotify, ToolCallDone
from pegasus.wire import WireError, camel, decode_json, encode_json, encode_line, from_wire, to_wire, writable_object

FOLDER: Final = "tasks"
"""Folder of the task system below data/."""
INDEX: Final = f"{FOLDER}/index.jsonl"
"""A line for each task: the date in whose folder its log is."""
PENDING: Final = f"{FOLDER}/pending.json"
"""The tasks that are unfinished, or whose end their submitter may not know."""
PENDING_ROWS: Final = "pending-tasks"
"""Name of the collection that has them, as storage knows it."""

# Types by their names in a log. Names and not numbers are written, so that a person can read a log.
_BY_NAME: Final[Mapping[str, EventType]] = MappingProxyType({kind.name: kind for kind in EVENT_DATA})
_NO_CLOCK: Final = 1 << 63
"""Time in ms that no clock shows."""
_TASK_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_INDEXED_DATE: Final = re.compile(rb'"date":"(\d{4}-\d\d-\d\d)"')
# For a pending list that is no JSON any more: a pattern finds ids where a parser gives up.
_ID_IN_DAMAGED_LIST: Final = re.compile(rb'"taskId"\s*:\s*"([A-Za-z0-9_-]{1,64})"')


class BadTaskLine(ValueError):
    """A JSON line that is not an event of a task, or one of a newer version; says what is wrong.

    Example: `parse_task_line({"event": "NO_SUCH"}, 4)` raises it. A replay reports the line and goes on with the next.
    """


# ------------------------------------------------------------------ ids, dates, paths


def is_task_id(text: str) -> bool:
    """Return whether the text can be a task id: 1 to 64 letters, digits, "_" and "-", so that it is safe as a file name."""
    return _TASK_ID.fullmatch(text) is not None


def is_date(text: str) -> bool:
    """Return whether the text is a day of the calendar in the form YYYY-MM-DD."""
    if _DATE.fullmatch(text) is None:
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def task_path(task_id: str, date: str) -> str:
    """Return the path of a task's log below data/. date: UTC date of its creation. Raises ValueError for a bad id or date."""
    if not is_task_id(task_id) or not is_date(date):
        raise ValueError(f"no task can have the id {task_id!r} and the date {date!r}")
    return f"{FOLDER}/{date}/{task_id}.jsonl"


# ------------------------------------------------------------------ lines of a log

_TYPES: Final = {data: kind for kind, data in EVENT_DATA.items()}
"""Type of the event by the class of its data."""
_OF_CALLS: Final = (ToolCallDone, TaskNotify)
"""Data of the events of calls."""
_DEFAULTS: Final[Mapping[type[TaskEventData], Payload]] = {
    data: {
        camel(field.name): field.default.factory() if hasattr(field.default, "factory") else field.default
        for field in attrs.fields(data)
        if field.name != "reason"
    }
    for data in EVENT_DATA.values()
}
"""Every key of a payload with its default, in the order in which they are written. A key without a default is always replaced.

Only the reason of a failure is left out where there is none.
"""


def create_events(
    happened: Sequence[TaskEventData],
    task_id: str,
    source: str,
    at: int,
    *,
    cause: Event | None = None,
    priority: int | None = None,
) -> list[Event]:
    """Return the events of one moment that say this about a task, each with its payload, its line, and the event that caused it.

    at: wall clock, ms. cause: the last event of the task. It is the cause of the first of these, and of those of calls: the thought
    has made the calls, in whatever order they ended. Any other is caused by the one before it.

    A payload has every key of its class, so that a reader of a log sees them all; `to_wire` leaves out those that have their default.
    What a model or a tool has sent may hold what JSON cannot: a line that cannot be written would stop its task for good.
    """
    created: list[Event] = []
    for data in happened:
        kind = _TYPES[type(data)]
        parent = created[-1] if created and not isinstance(data, _OF_CALLS) else cause
        payload = writable_object(_DEFAULTS[type(data)] | to_wire(data))
        line = encode_line({"ts": at, "event": kind.name, "taskId": task_id, "data": payload})
        parent_id = parent.id if parent is not None else None
        created.append(Event(kind, at, source, task_id, payload, priority, parent_id, data, line))
    return created


def create_event(
    data: TaskEventData, task_id: str, source: str, at: int, cause: Event | None = None, priority: int | None = None
) -> Event:
    """Return the event that says this about a task, as `create_events` does.

    Example: `create_event(TaskFailed("stopped by the owner"), "t1", "agent", clock())`.
    """
    [event] = create_events((data,), task_id, source, at, cause=cause, priority=priority)
    return event


def parse_payload(kind: EventType, payload: Mapping[str, Json]) -> TaskEventData:
    """Return the data of a task event. Raises PayloadError: the type changes no task, or a key has a wrong value."""
    data = EVENT_DATA.get(kind)
    if data is None:
        raise PayloadError(f"{kind.name} does not change a task")
    try:
        return from_wire({key: value for key, value in payload.items() if value is not None}, data)
    except WireError as error:
        raise PayloadError(str(error)) from None


def parse_task_line(line: Mapping[str, Any], number: int = 0) -> Event:
    """Return the event of a line. Raises BadTaskLine. Its id is the number of the line, since lines have no ids.

    Unknown keys are ignored, so that logs of newer versions can be read as far as they are understood.
    """
    kind, ts, task_id, payload = _parts_of(line)
    try:
        data = parse_payload(kind, payload)
    except PayloadError as error:
        raise BadTaskLine(f"{kind.name}: {error}") from None
    return Event(kind, ts, "log", task_id, payload, data=data, id=number)


def _parts_of(line: Mapping[str, Any]) -> tuple[EventType, int, str, dict[str, Json]]:
    """Return type, time, task and payload of a line. Raises BadTaskLine."""
    name, ts, task_id, data = line.get("event"), line.get("ts"), line.get("taskId"), line.get("data")
    kind = _BY_NAME.get(name) if isinstance(name, str) else None
    if kind is None:
        raise BadTaskLine(f"unknown event {name!r}")
    if (
        not isinstance(ts, (int, float)) or not abs(ts) < _NO_CLOCK or not isinstance(task_id, str)
    ):  # NaN is not smaller
        raise BadTaskLine("ts must be a time in ms and taskId a string")
    if data is not None and not isinstance(data, dict):
        raise BadTaskLine("data must be an object")
    return kind, int(ts), task_id, data or {}


def parse_events(log: bytes) -> tuple[Event, ...]:
    """Return the events of the good lines of a log, oldest first, for people: their data is not parsed."""
    events: list[Event] = []
    for line in scan_lines(log):
        if isinstance(line, Line):
            with suppress(BadTaskLine):
                kind, ts, task_id, payload = _parts_of(line.value)
                events.append(Event(kind, ts, "log", task_id, payload, id=line.number))
    return tuple(events)


# ------------------------------------------------------------------ index.jsonl


@attrs.frozen
class IndexEntry:
    """A line of the index.

    Example: `IndexEntry("t1", "2026-02-10")`. The number of the line is the number of the task.
    """

    task_id: str
    """Id of the task."""
    date: str
    """UTC date of the task's creation, YYYY-MM-DD."""


def index_line(task_id: str, date: str) -> bytes:
    """Return the line of a task in the index."""
    return encode_line(to_wire(IndexEntry(task_id, date)))


def read_index(data: bytes) -> tuple[list[IndexEntry], list[str]]:
    """Return the good lines of an index, oldest first, and a sentence for each bad one."""
    entries: list[IndexEntry] = []
    problems: list[str] = []
    for line in scan_lines(data):
        if not isinstance(line, Line):
            problems.append(str(line))
            continue
        try:
            entry = from_wire(line.value, IndexEntry)
        except WireError as error:
            problems.append(f"line {line.number}: {error}")
            continue
        if is_task_id(entry.task_id) and is_date(entry.date):
            entries.append(entry)
        else:
            problems.append(f"line {line.number}: no task id and date")
    return entries, problems


def find_date(index: bytes, task_id: str) -> str | None:
    """Return the date of one task, None if the index does not name it. The last line of several counts."""
    found = _find_entry(index, task_id)
    return found[1].date if found is not None else None


def find_entries(index: bytes, task_ids: Iterable[str]) -> dict[str, tuple[int, IndexEntry]]:
    """Return number and entry of those tasks that the index names, in its order. The last line of several counts.

    Only the lines that have the ids are parsed: an index has one line for each task that there ever was.
    """
    entries = [found for task_id in task_ids if (found := _find_entry(index, task_id)) is not None]
    numbered: dict[str, tuple[int, IndexEntry]] = {}
    before, line = 0, 1
    for place, entry in sorted(entries, key=itemgetter(0)):
        line += index.count(b"\n", before, place)
        before, numbered[entry.task_id] = place, (line, entry)
    return numbered


def find_dates(index: bytes) -> list[str]:
    """Return the days on which the tasks of the index were created, the oldest first."""
    found = (day.decode() for day in set(_INDEXED_DATE.findall(index)))
    return sorted(day for day in found if is_date(day))


def find_numbered(index: bytes, number: int) -> str | None:
    """Return the id of the task with this number, None if there is none or its line is damaged."""
    line = next(islice(BytesIO(index), number - 1, number), b"") if number > 0 else b""
    return next((entry.task_id for entry in read_index(line)[0]), None)


def find_latest(index: bytes, count: int) -> dict[str, int]:
    """Return the numbers of the newest `count` tasks by id, oldest first; a damaged line is left out.

    Only the end of the index is parsed, however many tasks there ever were.
    """
    lines = (
        index.rsplit(b"\n", count + 1)[-count - 1 :][:-1] if count > 0 else []
    )  # what follows the last line end is no line
    first = last_number(index) - len(lines) + 1
    read = ((number, read_index(line + b"\n")[0]) for number, line in enumerate(lines, first))
    return {entry.task_id: number for number, entries in read for entry in entries}


def last_number(index: bytes) -> int:
    """Return the number of the last line of an index, 0 if it is empty."""
    return index.count(b"\n")


def _find_entry(index: bytes, task_id: str) -> tuple[int, IndexEntry] | None:
    """Return the offset and the content of the last line that names a task, None if there is none."""
    at = index.rfind(f'"taskId":"{task_id}"'.encode()) if is_task_id(task_id) else -1
    if at < 0:
        return None
    begin, end = index.rfind(b"\n", 0, at) + 1, index.find(b"\n", at)
    entries, _ = read_index(index[begin : len(index) if end < 0 else end + 1])
    return next(((begin, entry) for entry in entries if entry.task_id == task_id), None)


# ------------------------------------------------------------------ pending.json


@attrs.frozen
class PendingTask:
    """A task that is unfinished, or whose end its submitter may not know."""

    task_id: str
    """Id of the task."""
    ts: float = 0
    """Wall clock of when it became pending, ms."""
    owner: str = ""
    """Run of a node that works on it, where there are several nodes; "" with files."""


@attrs.frozen
class PendingList:
    """Content of pending.json.

    Example: `read_pending(b"").problem` is "it is missing".
    """

    entries: tuple[PendingTask, ...]
    """The tasks that could be read."""
    problem: str = ""
    """Damage of the file, "" if it was whole. Tasks that are missing then must be looked for in the logs."""


def pending_content(entries: Iterable[PendingTask]) -> bytes:
    """Return the content of pending.json for these tasks."""
    return f"[{','.join(map(pending_text, entries))}]\n".encode()


def pending_text(entry: PendingTask) -> str:
    """Return a task as it stands in pending.json."""
    return encode_json({"taskId": entry.task_id, "ts": entry.ts, **({"owner": entry.owner} if entry.owner else {})})


def read_pending(data: bytes) -> PendingList:
    """Return the pending tasks. Of a damaged file, or one of a newer version, the ids that are recognisable.

    b"": the file does not exist, which is a problem too unless no task was ever created.
    """
    if not data:
        return PendingList((), "it is missing")
    try:
        found = decode_json(data)
    except ValueError as error:
        return PendingList(_recognisable(data), f"it is no JSON ({error})")
    if not isinstance(found, list):
        return PendingList(_recognisable(data), "it is no list")
    entries: dict[str, PendingTask] = {}
    for item in found:
        try:
            entry = from_wire(item, PendingTask)
        except WireError:
            continue
        if is_task_id(entry.task_id) and abs(entry.ts) < _NO_CLOCK:
            entries[entry.task_id] = attrs.evolve(entry, ts=int(entry.ts))
    unreadable = len(found) - len(entries)
    return PendingList(
        tuple(entries.values()), f"{unreadable} entries are unreadable or there twice" if unreadable else ""
    )


def _recognisable(data: bytes) -> tuple[PendingTask, ...]:
    """Return the tasks whose ids can be found in damaged content, each once, with an unknown time (0)."""
    ids = dict.fromkeys(found.decode() for found in _ID_IN_DAMAGED_LIST.findall(data))
    return tuple(PendingTask(task_id) for task_id in ids)
