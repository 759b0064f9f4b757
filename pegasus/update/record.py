"""Everything that a home has recorded, read with JSON alone.

No other part of the product is asked how to read it: what the version under test misreads must not be missing on both sides of the
comparison. The forms are those of docs/storage.md; lines that are no JSON are left out, as they are at a start.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from pegasus.storage import LINE_FILES, ROW_FILES

Line = dict[str, Any]
"""A line of a log."""
_ARCHIVE: Final = re.compile(r"(?P<session>.*?)(?P<time>\d{4}-\d{2}-\d{2}-\d{6})(?:-(?P<n>\d{1,9}))?\.jsonl")


@attrs.frozen(eq=False)
class SessionPart:
    """A file of a conversation: an archive, or the one that goes on."""

    path: str
    """Below data/."""
    lines: list[Line]
    """Its entries."""


@attrs.define(eq=False)
class Record:
    """Everything that a home has recorded.

    Example: `read_record({"inbox/inbox.jsonl": b"…"}).messages`.
    """

    messages: list[Line] = attrs.field(factory=list)
    """Accepted items, by their numbers: `{"n","at","lane"?,"rank"?,"owner"?,"message"}`."""
    done: dict[int, int] = attrs.field(factory=dict)
    """Time at which each item was done, by its number."""
    first: int = 1
    """Number of the oldest item whose successors are all there."""
    addresses: list[Line] = attrs.field(factory=list)
    """Lines of the inbox that name addresses."""
    replies: list[Line] = attrs.field(factory=list)
    """Lines of the outbox of type "reply"."""
    has_all_replies: bool = True
    """False if some that have arrived are not in the outbox any more."""
    sessions: dict[str, list[SessionPart]] = attrs.field(factory=dict)
    """The files of each conversation, oldest first, by the path of the one that goes on."""
    tasks: dict[str, list[Line]] = attrs.field(factory=dict)
    """Events of each task, by its id, in the order in which the tasks were created."""
    task_paths: dict[str, str] = attrs.field(factory=dict)
    """Path of each log, by the id of the task."""
    changes: list[Line] = attrs.field(factory=list)
    """Lines of the log of memory."""
    memory: dict[str, str] = attrs.field(factory=dict)
    """Texts of memory, by path below its folder."""
    notes: dict[str, str] = attrs.field(factory=dict)
    """Texts of the notes in the workspace, by their names."""
    jobs: list[Line] = attrs.field(factory=list)
    """Scheduled jobs."""
    approvals: list[Line] = attrs.field(factory=list)
    """Lines about approvals."""

    @property
    def entries(self) -> Iterator[Line]:
        """Return the entries of all conversations, one conversation after the other."""
        for parts in self.sessions.values():
            for part in parts:
                yield from part.lines


def read_record(data: Mapping[str, bytes], workspace: Mapping[str, bytes]) -> Record:
    """Return what the files of a home say. data: contents by path below data/. workspace: likewise, of the notes at least."""
    record = Record()
    _read_inbox(record, data.get("inbox/inbox.jsonl", b""))
    _read_outbox(record, parse_lines(data.get("outbox/outbox.jsonl", b"")))
    _read_sessions(record, data)
    for path in sorted(data):
        if path.startswith("tasks/") and path.count("/") == 2 and path.endswith(".jsonl"):
            if events := [line for line in parse_lines(data[path]) if "event" in line]:
                task_id = path.rpartition("/")[2].removesuffix(".jsonl")
                record.tasks[task_id], record.task_paths[task_id] = events, path
        elif path.startswith("memory/") and path.endswith(".md"):
            record.memory[path.removeprefix("memory/")] = _text(data[path])
    record.tasks = dict(sorted(record.tasks.items(), key=lambda item: time_of(item[1][0])))
    record.changes = parse_lines(data.get("memory/.log/changes.jsonl", b""))
    record.notes = {
        path.removeprefix("memory/"): _text(content)
        for path, content in workspace.items()
        if path.startswith("memory/") and path.endswith(".md")
    }
    record.jobs = _rows(data.get(ROW_FILES["jobs"][0], b""))
    record.approvals = parse_lines(data.get(LINE_FILES["approvals"], b""))
    return record


def _read_inbox(record: Record, content: bytes) -> None:
    """Read the inbox. A file that was made of a database begins with the last number, too, but has what is done behind it."""
    last, gone = 0, set[int]()
    for line in parse_lines(content):
        match line.get("type"):
            case "message" if isinstance(line.get("message"), dict) and isinstance(line.get("n"), int):
                record.messages.append(line)
            case "done" if isinstance(line.get("n"), int):
                record.done[line["n"]] = time_of(line, "at")
            case "compacted" if isinstance(line.get("lastN"), int):
                last = line["lastN"]
            case "ids":
                gone |= _numbers(line.get("packed"))
            case "address" | "addresses" | "heard":
                record.addresses.append(line)
    record.messages.sort(key=lambda line: line["n"])
    present = [line["n"] for line in record.messages]
    gone -= set(present)
    record.first = max(gone) + 1 if gone else min([last + 1, *present])


def _numbers(packed: object) -> set[int]:
    """Return the numbers of the items whose ids are remembered: pairs of a digest and a number of 8 bytes each, in base64."""
    try:
        data = base64.b64decode(packed, validate=True) if isinstance(packed, str) else b""
        return {n for _, n in struct.iter_unpack(">QQ", data)}
    except (ValueError, struct.error):
        return set()


def _read_outbox(record: Record, lines: list[Line]) -> None:
    """Read the outbox. One that was made of a database says the last number of each address, too, but has what has arrived."""
    record.replies = [line for line in lines if line.get("type") == "reply" and isinstance(line.get("message"), dict)]
    given = sum(line["seq"] for line in lines if line.get("type") == "address" and isinstance(line.get("seq"), int))
    record.has_all_replies = given <= len(record.replies) and not any(line.get("type") == "keys" for line in lines)


def _read_sessions(record: Record, data: Mapping[str, bytes]) -> None:
    """Read the files of all conversations. An archive is named after the time at which the next file began."""
    found: defaultdict[str, list[tuple[tuple[str, int], str]]] = defaultdict(list)
    for path in data:
        if not path.startswith(("main/", "sessions/")) or not path.endswith(".jsonl"):
            continue
        if match := _ARCHIVE.fullmatch(path):
            current = (
                f"{match['session']}current.jsonl" if path.startswith("main/") else f"{match['session'][:-1]}.jsonl"
            )
            found[current].append(((match["time"], int(match["n"] or 1)), path))
        else:
            found[path].append((("~", 0), path))
    for current, paths in sorted(found.items()):
        record.sessions[current] = [
            SessionPart(path, [line for line in parse_lines(data[path]) if isinstance(line.get("role"), str)])
            for _, path in sorted(paths)
        ]


def parse_lines(content: bytes) -> list[Line]:
    """Return the JSON objects of a file of lines; what is none is left out."""
    found = []
    for raw in content.split(b"\n"):
        try:
            value = json.loads(raw.lstrip(b"\0"))
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _rows(content: bytes) -> list[Line]:
    try:
        value = json.loads(content)
    except ValueError:
        return []
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def time_of(line: Line, key: str = "ts") -> int:
    """Return the time of a line, ms; 0 if it has none."""
    value = line.get(key)
    return int(value) if isinstance(value, int | float) and abs(value) < 1 << 53 else 0


def facts_of(entry: Line) -> Line:
    """Return the metadata of an entry."""
    facts = entry.get("metadata")
    return facts if isinstance(facts, dict) else {}


def new_entries(event: Line) -> list[Line]:
    """Return the messages that an event adds to the conversation of its task."""
    data = event.get("data")
    found = data.get("newMessages") if isinstance(data, dict) else None
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def calls_of(entry: Line) -> list[Line]:
    """Return the tool calls of an entry."""
    calls = entry.get("toolCalls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def message_id(line: Line) -> str:
    """Return the id of an accepted item, with its address."""
    message = line["message"]
    channel = message.get("channel") or {}
    return f"{channel.get('type')}:{channel.get('channelId')} {message.get('id')}"


def is_internal(line: Line) -> bool:
    """Return whether nobody on a channel has written an accepted item."""
    return str(line["message"].get("id", "")).startswith("\x1f")


def last_time(record: Record) -> int:
    """Return the time of the newest thing that was recorded, 0 if nothing was."""
    return max(all_times(record), default=0)


def all_times(record: Record) -> Iterable[int]:
    """Return the times of everything that was recorded."""
    yield from (time_of(line, "at") for line in record.messages)
    yield from record.done.values()
    yield from map(time_of, record.entries)
    yield from (time_of(event) for events in record.tasks.values() for event in events)
    yield from map(time_of, record.changes)
    yield from (time_of(line, key) for line in record.approvals for key in ("created", "at"))


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")
