"""Reports to the agent about replies that can never be delivered, as queue items that the agent makes for itself.

A service may refuse a reply for good: the chat was deleted, the number does not exist. Trying again would block the replies
behind it, and dropping it silently would leave the agent believing that somebody has read it. So the adapter reports it: the
agent gets a queue item about it, once, and then the reply is acknowledged. The order matters. After a crash between the two
steps the report is made again, and the item's id makes it the same item.
"""

from __future__ import annotations

from typing import Final

import trio

from actors import Ref
from pegasus.formatting import truncate
from pegasus.intake.access import Priority
from pegasus.messages import InboundMessage, OutboundMessage
from pegasus.storage import Accept, Acknowledge, JournalMessage, Overloaded

INTERNAL_ID_PREFIX: Final = "\x1f"
"""First character of the id of a queue item that the agent has made itself. No id from outside has control characters."""
UNDELIVERED_REPLY: Final = "reply_undelivered"
"""The `type` in the metadata of such a report."""
EXCERPT: Final = 80
"""Characters of the undelivered text that the report quotes, by which the agent recognises the reply."""
RETRY_DELAY: Final = 5.0
"""Seconds until a report for which the inbox has no room is offered again."""


async def report_undelivered(journal: Ref[JournalMessage], reply: OutboundMessage, reason: str) -> None:
    """Report to the agent that nobody will ever get this reply; for an adapter whose service refuses it for good.

    The reply is then acknowledged, so that it is not tried again. reason: one line for the model. While the inbox is full the
    report waits, because a reply that is neither delivered nor reported would be lost.
    Raises StorageError, ActorError. Then, and when cancelled, the report may be repeated: its id is the same.
    """
    while isinstance(await journal.ask(Accept, _report(reply, reason), "main", Priority.TASK), Overloaded):  # noqa: ASYNC110 the journal announces no room
        await trio.sleep(RETRY_DELAY)
    await journal.tell(Acknowledge(reply.channel.address, reply.seq))


def _report(reply: OutboundMessage, reason: str) -> InboundMessage:
    channel = reply.channel
    item_id = f"{INTERNAL_ID_PREFIX}reply/{channel.address}/{reply.seq}"
    text = f"{reason}\nIt began: {truncate(reply.text, EXCERPT)}"
    return InboundMessage(text, channel, item_id, metadata={"type": UNDELIVERED_REPLY, "seq": reply.seq})
