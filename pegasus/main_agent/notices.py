"""Queue items that a task has sent, and nobody on a channel: how they stand in the session (interfaces 8.1)."""

from __future__ import annotations

from typing import Any, Final

from pegasus.conversation import escape_imitations, metadata_line, sanitize_for_prompt
from pegasus.main_agent.messages import OWN_ID
from pegasus.messages import InboundMessage, Json
from pegasus.storage.messages import Item

TYPE: Final = "task_notify"

_HEADINGS: Final = {"completed": "completed", "failed": "failed", "needs_info": "needs information"}


def is_notice(item: Item) -> bool:
    """Whether the item is a task's word, and nobody's message."""
    return item.message.id.startswith(OWN_ID)


def content_of(message: InboundMessage) -> str:
    """The content of its user entry: metadata line, heading, text."""
    metadata: Any = message.metadata
    heading = f"[Task {metadata.get('taskId')} {_HEADINGS.get(metadata.get('notification'), 'update')}]"
    text = escape_imitations(sanitize_for_prompt(message.text).strip())
    return f"{metadata_line(message.channel)}\n{heading}\n{text}"


def metadata_of(message: InboundMessage) -> dict[str, Json]:
    """The metadata of its user entry."""
    return {"type": TYPE, "taskId": message.metadata.get("taskId")}
