"""How a queue item stands in the session: metadata line first, then clean text (seed 000 "Input Sanitization")."""

from __future__ import annotations

from pegasus.conversation.entry import Entry
from pegasus.conversation.sanitize import user_content
from pegasus.main_agent.notices import content_of, is_notice, metadata_of
from pegasus.messages import Media
from pegasus.storage.messages import Item


def user_entry(item: Item, now: int) -> Entry:
    """The user entry of an item. now: wall clock, ms."""
    message = item.message
    if is_notice(item):
        return Entry(now, "user", content_of(message), metadata={"item": item.n, **metadata_of(message)})
    content = user_content(message.text, message.channel, tuple(map(_attachment, message.media)))
    return Entry(now, "user", content, metadata={"item": item.n, "messageId": message.id})


def _attachment(media: Media) -> str:
    return f"(attached: {media.name}, {media.mime}, {len(media.data) * 3 // 4:,} bytes; this version cannot open it)"
