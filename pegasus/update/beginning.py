"""The home as it was when the replayed days began, made of the home as it is now.

Logs are cut: what is older stays. A conversation is the archive that was being written then, without the lines that came later. Memory
follows from its log, which has the text of each file before a change. Jobs are taken back to the run that was due next. What has no
history (people who were let in, traits of models, settings, skills) is as it is now.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pegasus.storage import LINE_FILES, ROW_FILES, rows_path
from pegasus.update.record import (
    Line,
    Record,
    calls_of,
    facts_of,
    last_time,
    parse_lines,
    time_of,
)

NOTES: Final = "workspace/memory/MEMORY.md"
"""Notes of the workspace, as the log of memory names them."""
_NEVER: Final = 1 << 62
"""Time that does not come."""
ENDS: Final = ("TASK_COMPLETED", "TASK_FAILED")
"""Events that end a task."""
_DROPPED: Final = (
    "inbox/",
    "outbox/",
    "main/",
    "sessions/",
    "tasks/",
    "memory/",
    "cron/",
    "usage/",
    LINE_FILES["approvals"],
    "media/",
)
"""Beginnings of the paths below data/ that are made anew."""


def choose_beginning(record: Record, days: float) -> int:
    """Return the time from which on to replay, ms: at most so many days back, when nothing was being worked on.

    0: from the first message on.
    """
    wanted = max(int(last_time(record) - days * 86_400_000), _first_whole(record))
    if all(time_of(line, "at") >= wanted for line in record.messages) and record.first == 1:
        return 0
    busy = [*_items(record), *_runs(record)]
    for line in record.messages:
        at = time_of(line, "at")
        if at >= wanted and not any(begin < at <= end for begin, end in busy):
            return at
    return wanted


def count_left_out(record: Record, days: float, since: int) -> int:
    """Return the messages of the last days that came before the beginning of the replay, since something was being worked on."""
    wanted = last_time(record) - days * 86_400_000
    return sum(wanted <= time_of(line, "at") < since for line in record.messages)


def is_busy(record: Record) -> bool:
    """Return whether something was being worked on when the record ends."""
    is_waiting = any(line["n"] not in record.done for line in record.messages)
    return is_waiting or any(end == _NEVER for _, end in _runs(record))


def _first_whole(record: Record) -> int:
    """Return the time from which on the inbox has all items; those before were left out when it was written anew."""
    if record.first == 1:
        return 0
    return next((time_of(line, "at") for line in record.messages if line["n"] >= record.first), last_time(record) + 1)


def _items(record: Record) -> Iterable[tuple[int, int]]:
    for line in record.messages:
        yield time_of(line, "at"), record.done.get(line["n"], _NEVER)


def _runs(record: Record) -> Iterable[tuple[int, int]]:
    """Return the times between which tasks were at work. One that waits for somebody is not."""
    for events in record.tasks.values():
        begin = None
        for event in events:
            if event["event"] in (*ENDS, "TASK_SUSPENDED"):
                if begin is not None:
                    yield begin, time_of(event)
                begin = None
            elif event["event"] in ("TASK_CREATED", "TASK_RESUMED"):
                begin = time_of(event)
        if begin is not None:
            yield begin, _NEVER


def data_before(record: Record, data: Mapping[str, bytes], since: int) -> dict[str, bytes]:
    """Return the files below data/ as they were at a time. record: what is there now."""
    found = {path: content for path, content in data.items() if not path.startswith(_DROPPED) and path != "VERSION"}
    found["inbox/inbox.jsonl"] = _lines(_inbox_before(record, data, since))
    outbox = parse_lines(data.get("outbox/outbox.jsonl", b""))
    found["outbox/outbox.jsonl"] = _lines(line for line in outbox if time_of(line, "at") < since and "at" in line)
    _sessions_before(record, found, since)
    _tasks_before(record, found, since)
    for path, text in memory_before(record, since).items():
        found[f"memory/{path}"] = text.encode("utf-8", "surrogateescape")
    found["memory/.log/changes.jsonl"] = _lines(line for line in record.changes if time_of(line) < since)
    if jobs := jobs_before(record, since):
        found[ROW_FILES["jobs"][0]] = ("[" + ",\n ".join(map(_encoded, jobs)) + "]\n").encode()
    found[LINE_FILES["approvals"]] = _lines(_approvals_before(record, since))
    return {path: content for path, content in found.items() if content}


def _inbox_before(record: Record, data: Mapping[str, bytes], since: int) -> Iterable[Line]:
    """Yield the lines of the inbox: items that were not done are among them, so that they are gone on with."""
    yield from (line for line in record.addresses if line.get("type") == "address")
    for line in parse_lines(data.get("inbox/inbox.jsonl", b"")):
        kind = line.get("type")
        if kind == "compacted":
            before = [item["n"] for item in record.messages if time_of(item, "at") < since]
            yield {**line, "lastN": max(record.first - 1, *before) if since else 0}
        elif kind in ("ids", "addresses", "heard") or (kind in ("message", "done") and time_of(line, "at") < since):
            yield line


def _sessions_before(record: Record, found: dict[str, bytes], since: int) -> None:
    for current, parts in record.sessions.items():
        begun = 0
        for part in parts:
            ended = _archived_at(part.path) if part is not parts[-1] or part.path != current else _NEVER
            if begun >= since and begun:
                break
            lines = [line for line in part.lines if time_of(line) < since]
            if ended < since:
                found[part.path] = _lines(part.lines)
            elif lines:
                found[current] = _lines(lines)
            if ended >= since:
                break
            begun = ended


def _archived_at(path: str) -> int:
    """Return the time at which an archive was made, to the second; the end of it, ms."""
    name = path.rpartition("/")[2].removesuffix(".jsonl").rpartition(".")[2]
    try:
        moment = datetime.strptime(name[:17], "%Y-%m-%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return _NEVER
    return int(moment.timestamp() * 1000)


def _tasks_before(record: Record, found: dict[str, bytes], since: int) -> None:
    index, pending = [], []
    for task_id, events in record.tasks.items():
        before = [event for event in events if time_of(event) < since]
        if not before:
            continue
        path = record.task_paths[task_id]
        found[path] = _lines(before)
        index.append({"taskId": task_id, "date": path.split("/")[1]})
        if not any(event["event"] in ENDS for event in before):
            pending.append({"taskId": task_id, "ts": time_of(before[0])})
    if index:
        found["tasks/index.jsonl"] = _lines(index)
        found[rows_path("pending-tasks", "")] = (_encoded(pending) + "\n").encode()


def memory_before(record: Record, since: int) -> dict[str, str]:
    """Return the files of memory at a time, by path: those of now without the changes since."""
    found, bases = dict(record.memory), dict[str, str]()
    void = {line["void"] for line in record.changes if "void" in line}
    touched = {line.get("path") for line in record.changes if time_of(line) >= since and line.get("n") not in void}
    for line in record.changes:
        path, text = line.get("path", line.get("base")), line.get("text")
        if isinstance(path, str) and (time_of(line) < since or "base" in line) and line.get("n") not in void:
            bases[path] = text if isinstance(text, str) else found.get(path, "")
    for path in touched:
        if isinstance(path, str):
            found.pop(path, None)
            if bases.get(path):
                found[path] = bases[path]
    return {path: text for path, text in found.items() if path.endswith(".md") and path != NOTES}


def notes_before(record: Record, since: int) -> dict[str, str]:
    """Return the notes in the workspace at a time, by name: without what consolidations have written since."""
    written = set()
    for entry in record.entries:
        notes = facts_of(entry).get("consolidation")
        if time_of(entry) >= since and isinstance(notes, dict):
            written.add(f"<!-- {notes.get('id')} -->")
    found = {}
    for name, text in record.notes.items():
        head, *entries = re.split(r"(?m)^(?=## )", text)
        found[name] = head + "".join(entry for entry in entries if not any(id in entry for id in written))
    texts = [line for line in record.changes if line.get("path") == NOTES and "n" in line]
    if any(time_of(line) >= since for line in texts):
        before = [line.get("text") for line in texts if time_of(line) < since]
        found["MEMORY.md"] = str(before[-1]) if before and before[-1] is not None else ""
    return {name: text for name, text in found.items() if text.strip()}


def _approvals_before(record: Record, since: int) -> Iterable[Line]:
    """Yield the lines up to the first of the replayed time. A line without a time belongs to the ones around it."""
    for line in record.approvals:
        if max(time_of(line, "created"), time_of(line, "at")) >= since:
            return
        yield line


# ------------------------------------------------------------------ jobs


def jobs_before(record: Record, since: int) -> list[Line]:
    """Return the jobs at a time: those of now, without those made since, before the runs since."""
    made, runs = jobs_made(record, since), _runs_of_jobs(record, since)
    before = []
    for job in record.jobs:
        job_id = str(job.get("id"))
        if job_id in made:
            continue
        since_then = runs.get(job_id, [])
        if _added_at(job, since_then) > since:
            continue
        if since_then:
            job = {**job, "next": min(since_then), "runs": max(0, int(job.get("runs", 0)) - len(since_then))}
            job.pop("last", None)
            job.pop("enabled", None)
            job = {key: value for key, value in job.items() if value or key != "runs"}
        before.append(job)
    return before


def _added_at(job: Line, runs: list[int]) -> int:
    """Return the time at which a job with an interval was made, if it was made shortly before its first run; 0 for all others."""
    every = (job.get("schedule") or {}).get("every")
    first = min(runs, default=job.get("next") or 0)
    return int(first - every * 1000) if isinstance(every, int | float) and first and every else 0


def added_jobs(record: Record, since: int) -> list[tuple[int, Line]]:
    """Return the jobs that were made since a time, but not by the agent, with the time of it."""
    made, runs = jobs_made(record, since), _runs_of_jobs(record, since)
    found = [
        (_added_at(job, runs.get(str(job.get("id")), [])), job) for job in record.jobs if job.get("id") not in made
    ]
    return [(at, job) for at, job in found if at > since]


def _runs_of_jobs(record: Record, since: int) -> dict[str, list[int]]:
    """Return the due times of the runs of each job, by its id."""
    runs: dict[str, list[int]] = {}
    for job_id, due in job_runs(record, since):
        runs.setdefault(job_id, []).append(due)
    return runs


def job_runs(record: Record, since: int) -> Iterable[tuple[str, int]]:
    """Yield job and due time of each run."""
    keys = [str(line["message"].get("id", "")) for line in record.messages if time_of(line, "at") >= since]
    for events in record.tasks.values():
        facts = events[0].get("data", {}).get("inputMetadata") or {}
        if time_of(events[0]) >= since and facts.get("jobId") and isinstance(facts.get("due"), int):
            yield str(facts["jobId"]), facts["due"]
    for key in keys:
        kind, _, rest = key.lstrip("\x1f").partition("/")
        job_id, _, due = rest.partition("/")
        if kind == "schedule" and due.isdigit():
            yield job_id, int(due)


def jobs_made(record: Record, since: int) -> dict[str, int]:
    """Return the jobs that the agent has made since a time: when, by their ids."""
    made: dict[str, int] = {}
    for call, result in _calls_with_results(record, since):
        arguments = call.get("arguments") or {}
        if call.get("name") == "cron" and arguments.get("action") == "add":
            try:
                made[str(json.loads(str(result.get("content")))["id"])] = time_of(result)
            except (ValueError, KeyError, TypeError):
                continue
    return made


def made_in_order(record: Record, since: int) -> list[str]:
    """Return the ids of jobs, approvals and grants that were made since a time, oldest first."""
    made = [(at, id) for id, at in jobs_made(record, since).items()]
    made += [(at, str(job.get("id"))) for at, job in added_jobs(record, since)]
    asked = [(max(time_of(line, "created"), time_of(line, "at")), line) for line in record.approvals]
    made += [(at, str(line.get("id"))) for at, line in asked if at >= since and ("tool" in line or "hash" in line)]
    return [id for _, id in sorted(made, key=lambda item: item[0])]


def _calls_with_results(record: Record, since: int) -> Iterable[tuple[Line, Line]]:
    for parts in record.sessions.values():
        calls: dict[str, Line] = {}
        for part in parts:
            for entry in part.lines:
                calls |= {str(call.get("id")): call for call in calls_of(entry)}
                if entry["role"] == "tool" and time_of(entry) >= since and entry.get("toolCallId") in calls:
                    yield calls[entry["toolCallId"]], entry


def _lines(lines: Iterable[Line]) -> bytes:
    return b"".join(_encoded(line).encode() + b"\n" for line in lines)


def _encoded(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text
