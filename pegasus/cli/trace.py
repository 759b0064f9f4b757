"""`pegasus trace ID`: the life of one message, put together from the files that it has left.

Each step of a message is on disk before the next one begins, so the files are the log of its life, whether or not a daemon runs:

    data/inbox      accepted, done
    data/main, data/sessions    taken up, thought, calls and their results
    data/usage      the calls of models, those of its tasks too
    data/tasks      what its tasks did, found by their cause
    data/outbox     replies, and when a client had them

Notes (done, acknowledged) are written at most 50 ms after they count. A rewrite of inbox or outbox forgets what nobody needs any more,
so of an old message some steps are missing; sessions keep theirs. Nothing is written here, and a file that is being written is
read up to its last whole line.

A message is named as people meet it: by its id at the client, by its number in the log (`item=12`), by the cause that a task shows
(`telegram:42 17`), by the key of a reply, or by a task. A name that fits several messages is refused with their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
import click

from pegasus.cli.commands import JSON, pegasus
from pegasus.cli.control import Answer, answering_command, stored_data
from pegasus.conversation import BadEntry, Entry, decode
from pegasus.events import Event, EventType
from pegasus.formatting import format_day, format_time, quote, truncate
from pegasus.host import Home, wall_clock
from pegasus.messages import Address, Json
from pegasus.models import format_dollars
from pegasus.settings import Settings
from pegasus.tasks import TaskError, read_events, read_numbers, read_task
from pegasus.wire import decode_json

EXCERPT: Final = 80
"""Characters of a text that one step shows."""
MOST_DAYS: Final = 62
"""Days behind a message in which its tasks and calls are looked for."""
_DAY_MS: Final = 86_400_000


@attrs.define(eq=False, repr=False)
class MessageTrace:
    """Everything that was found of one message."""

    n: int
    """Its number in the inbox."""
    address: str = ""
    """Conversation that it came from, as `<type>:<channelId>`; "" if that is not known any more."""
    id: str = ""
    """The sender's id."""
    text: str = ""
    """Its text."""
    is_done: bool = False
    """True if it needs no more work."""
    steps: list[dict[str, Json]] = attrs.field(factory=list)
    """Steps: `at` (ms), `what`, and what else is known."""

    def add(self, at: object, what: str, **facts: Json) -> None:
        """Add a step. at: wall clock, ms; anything else is a time that is not known. Facts that say nothing are left out."""
        time = int(at) if isinstance(at, int | float) and 0 < at < 1 << 53 else 0
        said = {key: value for key, value in facts.items() if value not in (None, "", []) and value is not False}
        self.steps.append({"at": time, "what": what, **said})

    @property
    def began(self) -> int:
        """The first time that is known, 0 if none is."""
        return min((int(str(step["at"])) for step in self.steps if step["at"]), default=0)


# ------------------------------------------------------------------ the command


def trace_message(data: Path, name: str) -> dict[str, Json]:
    """Return the trace of the message that a person names, as JSON. Blocks. Raises ValueError if there is none, or more than one."""
    found = _find(data, name)
    _add_inbox(data, found)
    _add_sessions(data, found)
    tasks = _add_usage(data, found)
    _add_tasks(data, found, tasks)
    _add_outbox(data, found)
    # A step without a time stands where it was found; only those that have one are in order of time.
    found.steps.sort(key=lambda step: int(str(step["at"])) or 1 << 53)
    return {
        "n": found.n,
        "id": found.id,
        "channel": found.address,
        "text": truncate(found.text, EXCERPT),
        "state": "done" if found.is_done else "waiting",
        "steps": list[Json](found.steps),
    }


def trace_text(answer: Answer) -> str:
    """Return a trace for people: the message, then a line for each step with the seconds since the first."""
    name = f"Message {answer['n']}" + (f" ({answer['id']})" if answer["id"] else "")
    place = f" from {answer['channel']}" if answer["channel"] else ""
    steps = answer["steps"]
    began = next((step["at"] for step in steps if step["at"]), 0)
    lines = [f"{name}{place}, {answer['state']}" + (f": {answer['text']}" if answer["text"] else "")]
    for step in steps:
        time = (
            f"{format_time(step['at'], local=True)} {(step['at'] - began) / 1000:>+10.3f} s"
            if step["at"]
            else f"{'':32}"
        )
        facts = "".join(f"  {_fact(key, value)}" for key, value in step.items() if key not in ("at", "what"))
        lines.append(f"{time}  {step['what']:<12}{facts}".rstrip())
    return "\n".join(lines)


def _fact(key: str, value: Any) -> str:
    """Return one fact of a step for people."""
    match key:
        case "cost":
            return format_dollars(float(value))
        case "seconds":
            return f"{value:g} s"
        case "tokens":
            return f"{value:,} tokens"
        case "calls":
            return f"calls {', '.join(value)}"
        case "task":
            return f"task {value}"
        case "seq":
            return f"#{value}"
        case "failed":
            return "failed" if value is True else f"failed ({value})"
    return str(value)


@answering_command(
    pegasus,
    "trace",
    click.Argument(["id_"], metavar="ID"),
    JSON,
    method=None,
    text=trace_text,
    refusals=(ValueError, OSError, TaskError),
)
def run_trace(home: Home, settings: Settings, *, id_: str) -> Answer:
    """Show the life of one message, step by step.

    ID: the message's id, its number in the log, the cause that a task shows ("telegram:42 17"), or a task's id.
    """
    with stored_data(home, settings, "inbox/", "outbox/", "main/", "sessions/", "tasks/", "usage/"):
        return trace_message(home.data, id_)


# ------------------------------------------------------------------ finding it


def _find(data: Path, name: str) -> MessageTrace:
    """Return the message that is meant. Raises ValueError if there is none, or more than one."""
    name = name.strip()
    if (task := _cause_of_task(data, name)) is not None:
        name = task
    wanted = name.removeprefix("message ")
    address, _, id = wanted.rpartition(" ")
    number = int(wanted.removeprefix("#")) if wanted.removeprefix("#").isdecimal() else 0
    if wanted.startswith("main/"):  # the key of a reply
        part = wanted.split("/")[1]
        number, id = int(part) if part.isdecimal() else 0, ""
    is_number_only = wanted.startswith(("#", "main/"))
    found: dict[int, tuple[str, str]] = {}
    # Sessions are large and are read only for a message that the inbox does not know any more.
    for list_messages in (_messages_of_inbox, _messages_of_sessions):
        for n, of_address, of_id in list_messages(data):
            is_id = of_id == (id if address else wanted) and (address in ("", of_address) or not of_address)
            if n == number or (is_id and not is_number_only):
                found.setdefault(n, (of_address, of_id))
        if found:
            break
    if not found:
        raise ValueError(f"there is no message {quote(name)}, or it is too old to be known")
    if len(found) > 1:
        names = ", ".join(f"#{n} ({place} {known})" for n, (place, known) in list(found.items())[-10:])
        raise ValueError(f"{quote(name)} may be several messages; allowed: one of {names}")
    [(n, (place, known))] = found.items()
    return MessageTrace(n, place, known)


def _cause_of_task(data: Path, name: str) -> str | None:
    """Return the message that a task came of, "<address> <id>"; None if this is no task. Raises ValueError for a task without one."""
    if not name or name.isdecimal() or " " in name or "/" in name:
        return None
    events: tuple[Event, ...] = ()
    with suppress(TaskError, OSError, ValueError):
        found = read_task(data, name)
        events = read_events(data, name) if found is not None and found.task is not None else ()
    if not events:
        return None
    cause = str(events[0].payload.get("cause") or "")
    if not cause.startswith("message "):
        raise ValueError(f"task {quote(name)} came of no message, but of {quote(cause or 'something unknown')}")
    return cause.removeprefix("message ")


def _messages_of_inbox(data: Path) -> Iterator[tuple[int, str, str]]:
    """Yield number, address and id of each message in the inbox."""
    for record in _records(data / "inbox/inbox.jsonl"):
        message = record.get("message")
        if record.get("type") == "message" and isinstance(message, dict) and isinstance(record.get("n"), int):
            yield record["n"], _address_in(message), str(message.get("id", ""))


def _messages_of_sessions(data: Path) -> Iterator[tuple[int, str, str]]:
    """Yield number and id of each message in a session. Its address is not known there."""
    for path in _sessions(data, 0):
        for entry in _entries(path, only=b'"item":'):
            if entry.item is not None:
                yield entry.item, "", str(entry.metadata.get("messageId") or "")


def _address_in(value: dict[str, Any]) -> str:
    """Return the address of a message or record, "" if it has none."""
    channel = value.get("channel")
    if not isinstance(channel, dict):
        return ""
    return str(Address(str(channel.get("type", "")), str(channel.get("channelId", ""))))


# ------------------------------------------------------------------ the files


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file, one a line, without damaged lines; nothing if there is no such file."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            with suppress(ValueError, RecursionError):
                record = decode_json(line)
                if isinstance(record, dict):
                    yield record


def _sessions(data: Path, since: int) -> list[Path]:
    """Return the session files that have changed since a time (ms), the oldest first."""
    found: list[tuple[float, Path]] = []
    for folder in ("main", "sessions"):
        for path in (data / folder).glob("*.jsonl"):
            with suppress(OSError):
                found.append((path.stat().st_mtime, path))
    return [path for changed, path in sorted(found) if changed * 1000 >= since - 1000]


def _entries(path: Path, only: bytes = b"") -> Iterator[Entry]:
    """Yield the entries of a session. only: of lines that contain this, since most need not be parsed."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            if only in line:
                with suppress(ValueError, RecursionError, BadEntry):
                    yield decode(decode_json(line))


def _add_inbox(data: Path, found: MessageTrace) -> None:
    """Add when the message was accepted and when it was done."""
    # A message that only a session remembers was done before the inbox was rewritten.
    found.is_done = True
    for record in _records(data / "inbox/inbox.jsonl"):
        if record.get("n") == found.n and record.get("type") == "message":
            found.is_done = False
            found.text = str(record["message"].get("text", "")) if isinstance(record.get("message"), dict) else ""
            found.add(record.get("at"), "accepted", lane=str(record.get("lane", "")))
        elif record.get("n") == found.n and record.get("type") == "done":
            found.is_done = True
            found.add(record.get("at"), "done")
        elif isinstance(record.get("discards"), list) and found.n in record["discards"]:
            found.is_done = True
            found.add(record.get("at"), "discarded")


def _add_sessions(data: Path, found: MessageTrace) -> None:
    """Add what the sessions say: from the entry of the message up to that of the next."""
    for path in _sessions(data, found.began):
        names: dict[str, str] = {}
        is_its = False
        for entry in _entries(path):
            if entry.item is not None:
                is_its = entry.item == found.n
            if not is_its:
                continue
            names |= {call.id: call.name for call in entry.calls}
            match entry.role:
                case "user" if entry.item is not None:
                    found.text = found.text or entry.content.partition("\n")[2]
                    found.add(entry.ts, "taken up", session=path.name)
                case "assistant":
                    kind = str(entry.metadata.get("type") or "")
                    found.add(entry.ts, kind or "thought", calls=[call.name for call in entry.calls])
                case "tool":
                    found.add(entry.ts, "called", tool=names.get(entry.call_id or "", "?"), failed=entry.failed)
                case "system":
                    found.add(entry.ts, str(entry.metadata.get("type") or "note"))


def _add_usage(data: Path, found: MessageTrace) -> set[str]:
    """Add the calls of models for the message and its tasks. Return the ids of these tasks."""
    tasks: set[str] = set()
    for month in dict.fromkeys(day[:7] for day in _days(found.began)):
        for record in _records(data / f"usage/{month}.jsonl"):
            if record.get("item") != found.n:
                continue
            task, cost = str(record.get("taskId") or ""), record.get("cost")
            tasks |= {task} if task else set()
            tokens = sum(n for key in ("promptTokens", "completionTokens") if isinstance(n := record.get(key), int))
            found.add(
                record.get("ts"),
                "model",
                model=str(record.get("model", "")),
                tokens=tokens,
                cost=cost if isinstance(cost, int | float) else None,
                role=str(record.get("role", "")),
                failed=str(record.get("failed") or ""),
            )
    return tasks


def _add_tasks(data: Path, found: MessageTrace, known: Iterable[str]) -> None:
    """Add what the tasks of the message did."""
    cause = f"message {found.address} {found.id}"
    tasks = set(known)
    # A message begins its tasks at once; those that begin later have used a model for it.
    for day in _days(found.began)[:2]:
        for path in (data / "tasks" / day).glob("*.jsonl"):
            with suppress(OSError), path.open("rb") as file:
                first = file.readline()
                with suppress(ValueError, AttributeError):
                    created: Any = decode_json(first)
                    if found.id and created["data"].get("cause") == cause:
                        tasks.add(path.stem)
    numbers = read_numbers(data, tasks)
    for task in sorted(tasks):
        for event in read_events(data, task):
            tool, took = event.payload.get("toolName"), event.payload.get("durationMs")
            found.add(
                event.timestamp,
                _TASK_STEPS.get(event.type, event.type.name.lower().removeprefix("task_").replace("_", " ")),
                task=numbers.get(task) or task,
                tool=tool if isinstance(tool, str) else None,
                seconds=took / 1000 if isinstance(took, int | float) else None,
                failed=event.type in (EventType.TOOL_CALL_FAILED, EventType.TASK_FAILED),
            )


_TASK_STEPS: Final = {
    EventType.REASON_DONE: "thought",
    EventType.TOOL_CALL_COMPLETED: "called",
    EventType.TOOL_CALL_FAILED: "called",
}
"""Words for events of tasks that have another name in a conversation."""


def _add_outbox(data: Path, found: MessageTrace) -> None:
    """Add the replies to the message, and when their clients had them."""
    waiting: dict[str, list[int]] = {}
    prefix = f"main/{found.n}/"
    for record in _records(data / "outbox/outbox.jsonl"):
        message, address = record.get("message"), _address_in(record)
        match record.get("type"):
            case "reply" if str(record.get("key", "")).startswith(prefix) and isinstance(message, dict):
                place, seq = _address_in(message), message.get("seq")
                found.add(
                    record.get("at"),
                    "replied",
                    channel=place,
                    seq=seq,
                    text=truncate(str(message.get("text", "")), EXCERPT),
                )
                if isinstance(seq, int):
                    waiting.setdefault(place, []).append(seq)
            case "ack" if address in waiting and isinstance(record.get("seq"), int):
                for seq in [each for each in waiting[address] if each <= record["seq"]]:
                    waiting[address].remove(seq)
                    found.add(record.get("at"), "acknowledged", channel=address, seq=seq)
            case "keys":
                _add_keys(record, prefix, found)


def _add_keys(record: dict[str, Any], prefix: str, found: MessageTrace) -> None:
    """Add replies of which a rewrite has kept nothing but that they were acknowledged."""
    with suppress(TypeError, ValueError, LookupError):
        for key, seq, place in record["replies"]:
            if str(key).startswith(prefix):
                found.add(0, "acknowledged", channel=_address_in({"channel": record["channels"][place]}), seq=int(seq))


def _days(since: int) -> list[str]:
    """Return the days (UTC) from a time on, at most MOST_DAYS; () if the time is not known."""
    if not since:
        return []
    last = wall_clock() + _DAY_MS
    return list(dict.fromkeys(format_day(at) for at in range(since, last, _DAY_MS)))[:MOST_DAYS]
