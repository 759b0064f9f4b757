"""How a queue item stands in the session: metadata line first, then clean text (seed 000 "Input Sanitization")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.conversation.entry import Entry
from pegasus.conversation.sanitize import user_content
from pegasus.main_agent.notices import content_of, is_notice, metadata_of
from pegasus.messages import Json, Media
from pegasus.storage.messages import Item

if TYPE_CHECKING:
    from pegasus.main_agent.skilled import Invocation


def user_entry(item: Item, now: int, called: Invocation | None = None) -> Entry:
    """The user entry of an item. now: wall clock, ms. called: the skill that the message calls."""
    message = item.message
    if is_notice(item):
        return Entry(now, "user", content_of(message), metadata={"item": item.n, **metadata_of(message)})
    attachments = tuple(map(_attachment, message.media))
    metadata: dict[str, Json] = {"item": item.n, "messageId": message.id}
    if called is None:
        return Entry(now, "user", user_content(message.text, message.channel, attachments), metadata=metadata)
    content = user_content(called.text, message.channel, attachments)
    return Entry(now, "user", content, metadata={**metadata, **called.metadata})


def _attachment(media: Media) -> str:
    return f"(attached: {media.name}, {media.mime}, {len(media.data) * 3 // 4:,} bytes; this version cannot open it)"
