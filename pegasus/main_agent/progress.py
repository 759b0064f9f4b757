"""Progress of a queue item, read from the session alone: nothing else has to survive a crash.

Items are worked on one after another, though not always in the order of their numbers. The entries behind an item's user entry
belong to it, up to the user entry of the next item. An item that has a later one behind it is done, or was taken along by that one
(see `think_loop`).

The rules of when another thought is due are here too, so that the think loop, which applies them to results as they come, and a
restart, which reads them from the file, can never disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

import attrs

from pegasus.conversation import Entry
from pegasus.main_agent.messages import EndedWork
from pegasus.messages import Metadata

OUTWARD: Final = frozenset({"reply", "spawn_subagent", "spawn_task", "resume_task"})
"""Tools whose success leads to no further thought: their effect is outside, and there is nothing to read in the result."""
UNFINISHED: Final = "unfinished"
"""`metadata.type` of the note behind an answer that is not whole. It leads to another thought."""
TASK_RESULT: Final = '{"taskId":'
"""Beginning of the result of a skill that became a task. It leads to no further thought, since the task will report."""


class NextStep(Enum):
    """Step that an item needs next."""

    RECORD = "its message is not in the session yet"
    THINK = "a thought"
    NOTHING = "it is done"


@attrs.frozen
class ItemProgress:
    """Progress of the work on an item.

    Example: `ItemProgress(NextStep.THINK, thoughts=2, replies=1)` for an item whose last tool result is not answered yet.
    """

    next: NextStep
    thoughts: int = 0
    """Model calls made about it."""
    replies: int = 0
    """Replies posted for it."""
    end: Entry | None = None
    """Note that ended it, if one did: an apology, a /stop, the limit of thoughts."""


def progress_from(entries: Sequence[Entry], start: int) -> ItemProgress:
    """Return the progress of the item whose user entry is at index `start`. The entries must be repaired."""
    thoughts, replies, is_pending = 0, 0, True
    tool_names: dict[str, str] = {}
    for index in range(start + 1, len(entries)):
        entry = entries[index]
        if entry.item is not None:
            return ItemProgress(NextStep.NOTHING, thoughts, replies)
        if entry.metadata.get("ends") is True:
            return ItemProgress(NextStep.NOTHING, thoughts, replies, entry)
        if entry.role == "assistant":
            thoughts, is_pending = thoughts + 1, False
            replies += entry.metadata.get("spoken") is True
            tool_names = {call.id: call.name for call in entry.calls}
        elif entry.metadata.get("type") == UNFINISHED:
            is_pending = True
        elif entry.role == "tool":
            name = tool_names.get(entry.call_id or "", "")
            replies += name == "reply" and not entry.failed
            is_pending = is_pending or leads_to_thought(name, entry)
    return ItemProgress(NextStep.THINK if is_pending else NextStep.NOTHING, thoughts, replies)


def leads_to_thought(name: str, result: Entry) -> bool:
    """Return whether the result of this tool leads to another thought: information does, and every failure."""
    if result.failed:
        return True
    return name not in OUTWARD and not (name == "use_skill" and result.content.startswith(TASK_RESULT))


def stopped_thoughts(entries: Sequence[Entry]) -> dict[int, EndedWork]:
    """Return the thought that each /stop has ended, by the number of the item that said /stop.

    The notes tell it, so a /stop that a crash has cut off from its answer does not end another thought when it is taken up again.
    """
    ended: dict[int, EndedWork] = {}
    for entry in entries:
        number, seconds = entry.metadata.get("stop"), entry.metadata.get("seconds")
        if type(number) is int:
            duration = float(seconds) if isinstance(seconds, int | float) else 0.0
            ended[number] = EndedWork("thought", str(entry.metadata.get("what")), duration)
    return ended


def belongs_to(metadata: Metadata, message_id: str | None) -> bool:
    """Return whether an entry is about this message, as far as its metadata shows.

    Another message under the same item number means that the inbox was lost and has begun to count from 1 again.
    """
    return message_id is None or metadata.get("messageId", message_id) == message_id


def is_begun_by(entries: Sequence[Entry], item: int, message_id: str | None) -> bool:
    """Return whether the /new in this item began this session: its first entry says so."""
    metadata = entries[0].metadata if entries else {}
    number = metadata.get("closes")
    return type(number) is int and number == item and belongs_to(metadata, message_id)
