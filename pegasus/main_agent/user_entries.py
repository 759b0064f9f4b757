"""How a queue item stands in the session: metadata line first, then clean text (seed 000 "Input Sanitization")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pegasus.conversation import Entry, Kept, user_content
from pegasus.main_agent.notices import content_of, is_notice, metadata_of
from pegasus.messages import Json
from pegasus.storage import Item

if TYPE_CHECKING:
    from pegasus.main_agent.skill_invocation import SkillInvocation

NOTHING_KEPT: Final = Kept()


def user_entry(item: Item, now: int, called: SkillInvocation | None = None, kept: Kept = NOTHING_KEPT) -> Entry:
    """The user entry of an item. now: wall clock, ms. called: the skill that the message calls. kept: what was attached to it."""
    message = item.message
    if is_notice(item):
        return Entry(now, "user", content_of(message), metadata={"item": item.n, **metadata_of(message)})
    metadata: dict[str, Json] = {"item": item.n, "messageId": message.id}
    if message.channel.user_id is not None:
        metadata["userId"] = message.channel.user_id
    if kept.refs:
        metadata["media"] = list(kept.refs)
    text = message.text if called is None else called.text
    more = {} if called is None else called.metadata
    return Entry(now, "user", user_content(text, message.channel, kept.labels), metadata={**metadata, **more})
