"""Queue items that nobody on a channel has sent: what tasks say, and replies that reach nobody (interfaces 8.1, trap T19)."""

from __future__ import annotations

from typing import Any, Final

from pegasus.conversation import escape_imitations, metadata_line, sanitize_for_prompt
from pegasus.intake import INTERNAL_ID_PREFIX, UNDELIVERED_REPLY
from pegasus.messages import InboundMessage, Json
from pegasus.storage import Item

TYPE: Final = "task_notify"

_HEADINGS: Final = {"completed": "completed", "failed": "failed", "needs_info": "needs information"}


def is_notice(item: Item) -> bool:
    """Whether the item is nobody's message."""
    return item.message.id.startswith(INTERNAL_ID_PREFIX)


def content_of(message: InboundMessage) -> str:
    """The content of its user entry: metadata line, heading, text."""
    metadata: Any = message.metadata
    if metadata.get("type") == UNDELIVERED_REPLY:
        heading = f"[Reply {metadata.get('seq')} could not be delivered]"
    else:
        heading = f"[Task {metadata.get('taskId')} {_HEADINGS.get(metadata.get('notification'), 'update')}]"
    text = escape_imitations(sanitize_for_prompt(message.text).strip())
    return f"{metadata_line(message.channel)}\n{heading}\n{text}"


def metadata_of(message: InboundMessage) -> dict[str, Json]:
    """The metadata of its user entry."""
    if message.metadata.get("type") == UNDELIVERED_REPLY:
        return {"type": UNDELIVERED_REPLY, "seq": message.metadata.get("seq")}
    return {"type": TYPE, "taskId": message.metadata.get("taskId")}
