"""Where the work on a queue item stands, read from the session alone: nothing else has to survive a crash.

Items are worked on one after another, though not always in the order of their numbers. What stands behind an item's user entry is
its own, up to the next item's; an item with a later one behind it is done, or was taken along by that one (`working`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import attrs

from pegasus.conversation import Entry
from pegasus.main_agent.messages import EndedWork
from pegasus.messages import Metadata

OUTWARD = frozenset({"reply", "spawn_subagent", "spawn_task", "resume_task"})
"""Tools whose success leads to no further thought (seed 000; trap T22)."""
UNFINISHED = "unfinished"
"""Type of the note after an answer that was cut off; the model goes on."""
FORK = '{"taskId":'
"""How the result of a skill begins that has become a task; what it says leads to no further thought."""


class Next(Enum):
    """What an item needs next."""

    RECORD = "its message is not in the session yet"
    THINK = "a thought"
    NOTHING = "it is done"


@attrs.frozen
class Progress:
    """next: what to do; thoughts: how many were made about the item; replies: how often it was answered; end: the note of it."""

    next: Next
    thoughts: int = 0
    replies: int = 0
    end: Entry | None = None


def progress_from(entries: Sequence[Entry], start: int) -> Progress:
    """Where the item stands whose user entry is at `start`. entries must be repaired."""
    thoughts, replies, pending = 0, 0, True
    calls: dict[str, str] = {}
    for entry in entries[start + 1 :]:
        if entry.item is not None:
            return Progress(Next.NOTHING, thoughts, replies)
        if entry.metadata.get("ends") is True:
            return Progress(Next.NOTHING, thoughts, replies, entry)
        if entry.role == "assistant":
            thoughts, pending = thoughts + 1, False
            replies += entry.metadata.get("spoken") is True
            calls = {call.id: call.name for call in entry.calls}
        elif entry.metadata.get("type") == UNFINISHED:
            pending = True
        elif entry.role == "tool":
            name = calls.get(entry.call_id or "", "")
            replies += name == "reply" and not entry.failed
            pending = pending or thinks_again(name, entry)
    return Progress(Next.THINK if pending else Next.NOTHING, thoughts, replies)


def thinks_again(name: str, result: Entry) -> bool:
    """Whether the result of this tool leads to another thought: what informs does, and every failure."""
    return result.failed or not (name in OUTWARD or (name == "use_skill" and result.content.startswith(FORK)))


def thoughts_ended(entries: Sequence[Entry]) -> dict[int, EndedWork]:
    """What each /stop has ended, by its item number. Notes that are malformed tell nothing."""
    found: dict[int, EndedWork] = {}
    for entry in entries:
        stop, seconds = entry.metadata.get("stop"), entry.metadata.get("seconds")
        if isinstance(stop, int) and not isinstance(stop, bool):
            took = float(seconds) if isinstance(seconds, int | float) else 0.0
            found[stop] = EndedWork("thought", str(entry.metadata.get("what")), took)
    return found


def is_of(metadata: Metadata, message_id: str | None) -> bool:
    """Whether this is of the message, as far as it tells; another one under the same number is of an inbox that was lost."""
    return message_id is None or metadata.get("messageId", message_id) == message_id


def is_closed_by(entries: Sequence[Entry], item: int, message_id: str | None) -> bool:
    """Whether the /new in this item began this session: its first line says so."""
    metadata = entries[0].metadata if entries else {}
    closes = metadata.get("closes")
    return type(closes) is int and closes == item and is_of(metadata, message_id)
