"""Queue items that the agent itself makes: the report that a reply cannot be delivered."""

from __future__ import annotations

from typing import Final

from pegasus.formatting import truncate
from pegasus.messages import InboundMessage, OutboundMessage

INTERNAL_ID_PREFIX: Final = "\x1f"
"""What the id of a queue item begins with that no channel has sent; ids from outside have no control characters."""
UNDELIVERED_REPLY: Final = "reply_undelivered"
EXCERPT: Final = 80
"""Characters of a reply that reached nobody, by which the agent knows it again."""


def undelivered(reply: OutboundMessage, why: str) -> InboundMessage:
    """The queue item about a reply that its channel refuses for good. why: one line for the model."""
    channel = reply.channel
    item_id = f"{INTERNAL_ID_PREFIX}reply/{channel.address}/{reply.seq}"
    text = f"{why}\nIt began: {truncate(reply.text, EXCERPT)}"
    return InboundMessage(text, channel, item_id, metadata={"type": UNDELIVERED_REPLY, "seq": reply.seq})
