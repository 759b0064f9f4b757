"""The two lists beside the logs: index.jsonl, where each task's log lies, and pending.json, which tasks are unfinished.

Pure: bytes to values and back. Nothing raises, whatever the bytes are; what cannot be read is reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from pegasus.tasks.log import FOLDER, is_date, is_task_id
from pegasus.tasks.storage_messages import Pending
from pegasus.wire import Line, encode_line, scan_lines

INDEX: Final = f"{FOLDER}/index.jsonl"
PENDING: Final = f"{FOLDER}/pending.json"
"""Below data/."""

_NEWEST: Final = 64 << 10
_AS_WRITTEN = re.compile(rb'(?m)^\{"taskId":"([A-Za-z0-9_-]{1,64})","date":"(\d{4}-\d\d-\d\d)"\}\n')
_ID_IN_RUINS = re.compile(rb'"taskId"\s*:\s*"([A-Za-z0-9_-]{1,64})"')


class Indexed(NamedTuple):
    """A task and the UTC date of its creation, YYYY-MM-DD."""

    task_id: str
    date: str


class PendingFile(NamedTuple):
    """What was in pending.json. problem: "" if it was whole; else what is missing must be looked for in the logs."""

    entries: tuple[Pending, ...]
    problem: str


def index_line(task_id: str, date: str) -> bytes:
    """The line of a task."""
    return encode_line({"taskId": task_id, "date": date})


def read_index(data: bytes) -> tuple[list[Indexed], list[str]]:
    """Every good line, oldest first, and what is wrong with the others."""
    written = _AS_WRITTEN.findall(data)
    if len(written) == data.count(b"\n") and data.endswith(b"\n"):  # nothing else is in it, and it need not be parsed
        return [Indexed(task_id.decode(), date.decode()) for task_id, date in written], []
    entries: list[Indexed] = []
    problems: list[str] = []
    for line in scan_lines(data):
        if not isinstance(line, Line):
            problems.append(str(line))
            continue
        task_id, date = line.value.get("taskId"), line.value.get("date")
        if isinstance(task_id, str) and isinstance(date, str) and is_task_id(task_id) and is_date(date):
            entries.append(Indexed(task_id, date))
        else:
            problems.append(f"line {line.number}: no task id and date")
    return entries, problems


def newest_in(data: bytes) -> list[Indexed]:
    """The good ones among the last lines, oldest first: as many as 64 KiB hold."""
    begin = data.find(b"\n", len(data) - _NEWEST) + 1 if len(data) > _NEWEST else 0
    return read_index(data[begin:])[0]


def date_in(data: bytes, task_id: str) -> str | None:
    """The date of one task, without reading all the others. The last line of several counts."""
    needle = f'"taskId":{json.dumps(task_id)}'.encode()
    at = data.rfind(needle)
    if at < 0:
        return None
    begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
    entries, _ = read_index(data[begin : len(data) if end < 0 else end + 1])
    return next((entry.date for entry in entries if entry.task_id == task_id), None)


def pending_content(entries: Iterable[Pending]) -> bytes:
    """The whole of pending.json."""
    return json.dumps([{"taskId": entry.task_id, "ts": entry.ts} for entry in entries]).encode() + b"\n"


def read_pending(data: bytes) -> PendingFile:
    """The pending tasks; of a file that is damaged or of a newer kind, the ids that can be made out. b"": there is no file."""
    if not data:
        return PendingFile((), "it is missing")
    try:
        found = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        return PendingFile(_ruins(data), f"it is no JSON ({error})")
    if not isinstance(found, list):
        return PendingFile(_ruins(data), "it is no list")
    entries: dict[str, Pending] = {}
    for item in found:
        task_id, ts = (item.get("taskId"), item.get("ts", 0)) if isinstance(item, dict) else (None, 0)
        if isinstance(task_id, str) and is_task_id(task_id) and isinstance(ts, int | float) and ts - ts == 0:
            entries[task_id] = Pending(task_id, int(ts))
    problem = "" if len(entries) == len(found) else f"{len(found) - len(entries)} entries are unreadable or there twice"
    return PendingFile(tuple(entries.values()), problem)


def _ruins(data: bytes) -> tuple[Pending, ...]:
    ids = dict.fromkeys(found.decode() for found in _ID_IN_RUINS.findall(data))
    return tuple(Pending(task_id, 0) for task_id in ids)
