"""A session as a talk: who said what where, what was handed on and what came of it. Read from the entries alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from pegasus.conversation import Entry
from pegasus.intake import UNDELIVERED_REPLY
from pegasus.main_agent.notices import TYPE
from pegasus.messages import Address, Metadata
from pegasus.models import ToolCall
from pegasus.storage import escape_field

_LINE: Final = re.compile(r"\[channel: (.*?) \| id: (.*?)(?: \| thread: .*)?\]")
_HEADING: Final = re.compile(r"\[Task \S+ (completed|failed|needs information|update)\]")
DELEGATING: Final = frozenset({"spawn_subagent", "spawn_task", "resume_task", "use_skill"})


@attrs.frozen
class Heard:
    """Somebody's message. item: its number in the inbox; user: who wrote it, where that is known."""

    ts: int
    address: Address
    text: str
    item: int | None
    user: str = ""


@attrs.frozen
class Said:
    """A reply that was posted. item: the queue item it was made for."""

    ts: int
    address: Address
    text: str
    item: int | None


@attrs.frozen
class Handed:
    """Work that was given to a task, or given back to one."""

    ts: int
    address: Address | None
    task_id: str
    description: str
    item: int | None


@attrs.frozen
class Returned:
    """What a task had to say. kind: "completed", "failed", "needs information" or "update"."""

    ts: int
    address: Address | None
    task_id: str
    kind: str
    text: str


@attrs.frozen
class Noted:
    """Anything else: a thought, a tool's result, a note of the program."""

    ts: int
    what: str
    text: str


Event = Heard | Said | Handed | Returned | Noted


def events(entries: Iterable[Entry]) -> Iterator[tuple[Entry, Event]]:
    """What happened, in order, each with the entry that tells it. entries must be repaired."""
    address: Address | None = None
    item: int | None = None
    calls: dict[str, ToolCall] = {}
    for entry in entries:
        match entry.role:
            case "user" if entry.item is not None:
                item, address = entry.item, address_of(entry)
                yield entry, _came_in(entry, address)
            case "assistant":
                calls = {call.id: call for call in entry.calls}
                if entry.content.strip():
                    yield entry, _written(entry, address, item)
            case "tool":
                yield entry, _result(entry, calls.get(entry.call_id or ""), address, item)
            case _:
                yield entry, Noted(entry.ts, "note", entry.content)


def address_of(entry: Entry) -> Address | None:
    """Where a user entry came from, by its first line; None where there is none, as of a message that could not be taken up."""
    found = _LINE.fullmatch(entry.content.partition("\n")[0])
    return Address(*found.groups()) if found else None


def _came_in(entry: Entry, address: Address | None) -> Event:
    body = entry.content.partition("\n")[2]
    if address is None or entry.metadata.get("type") == UNDELIVERED_REPLY:
        return Noted(entry.ts, "note", body or entry.content)
    if entry.metadata.get("type") == TYPE:
        heading, _, text = body.partition("\n")
        found = _HEADING.fullmatch(heading)
        task = entry.metadata.get("taskId")
        return Returned(entry.ts, address, str(task or ""), found[1] if found else "update", text)
    user = entry.metadata.get("userId")
    return Heard(entry.ts, address, body, entry.item, user if isinstance(user, str) else "")


def _written(entry: Entry, address: Address | None, item: int | None) -> Event:
    if entry.metadata.get("spoken") is True and address is not None:  # direct speech
        return Said(entry.ts, address, entry.content, item)
    return Noted(entry.ts, "thought", entry.content)


def _result(entry: Entry, call: ToolCall | None, address: Address | None, item: int | None) -> Event:
    name = call.name if call is not None else "tool"
    arguments: Metadata = call.arguments if call is not None else {}
    if not entry.failed and name == "reply":
        return Said(entry.ts, _replied_to(entry, arguments, address), str(arguments.get("text", "")), item)
    if not entry.failed and name in DELEGATING and (task := _task_in(entry.content)):
        what = arguments.get("description") or arguments.get("input") or arguments.get("skill") or ""
        return Handed(entry.ts, address, task, str(what), item)
    return Noted(entry.ts, f"{name} failed" if entry.failed else name, entry.content)


def _replied_to(entry: Entry, arguments: Metadata, address: Address | None) -> Address:
    """As the journal has resolved it, else as the model gave it; escaped as in the metadata lines, so that both are one address."""
    known = _object(entry.content)
    kind = known.get("channelType") or arguments.get("channelType") or (address.type if address else "")
    channel_id = known.get("channelId") or arguments.get("channelId") or ""
    return Address(escape_field(str(kind)), escape_field(str(channel_id)))


def _task_in(content: str) -> str:
    task = _object(content).get("taskId")
    return task if isinstance(task, str) else ""


def _object(content: str) -> Mapping[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
