"""What tasks have to say becomes queue items of the Main Agent: as durable as messages, and each only once.

The task system tells it (`Notify`) and is answered when the item is accepted. An item's id is made of the task's and of
the notification's number; it begins with a control character, which no id from outside may have, so nobody can take its place.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from actors import Answer, Inbox, Ref
from pegasus.intake import INTERNAL_ID_PREFIX, Priority
from pegasus.main_agent.notices import TYPE
from pegasus.messages import ChannelInfo, InboundMessage, Json
from pegasus.observe import get_logger
from pegasus.storage import Accept, Accepted, JournalMessage, Overloaded, StorageError
from pegasus.wire import WireError, from_wire

if TYPE_CHECKING:  # it is up before the task system is imported
    from pegasus.tasks import Notification, Notify

_log = get_logger("courier")

NOWHERE: Final = ChannelInfo("cli", "main")
"""Where the outcome of a task goes that nobody on a channel asked for (reference.md, lastChannel's default)."""
NOTIFICATION_BATCH: Final = 64
"""Items that are offered to the inbox at a time."""
RETRY: Final = 5.0
"""Seconds until an item that the inbox has no room for, or the disk refuses, is offered again."""


async def forward_notifications(inbox: Inbox[Notify], journal: Ref[JournalMessage]) -> None:
    """The listener of the task system. Cancelled in between: it is told again, and the inbox knows the id.

    What waits together is offered together, so that it is written together; in between, one may overtake another.
    """
    async for message in inbox:
        messages = [message]
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while len(messages) < NOTIFICATION_BATCH:
                messages.append(inbox.receive_nowait())
        items = [item_of(message.notification) for message in messages]
        answers = [await journal.request(Accept, item, "main", Priority.TASK) for item in items]
        for told, item, answer in zip(messages, items, answers, strict=True):
            while not await _is_accepted(answer):
                await trio.sleep(RETRY)
                answer = await journal.request(Accept, item, "main", Priority.TASK)
            told.reply.send(None)


async def _is_accepted(answer: Answer[Accepted | Overloaded]) -> bool:
    try:
        given = await answer.get()
    except StorageError as error:
        _log.error("a task's word waits for the disk", error=str(error))
        return False
    if isinstance(given, Overloaded):
        _log.warning("a task's word waits for room in the queue", waiting=given.waiting)
    return isinstance(given, Accepted)


def item_of(notification: Notification) -> InboundMessage:
    """The queue item of a notification; it is answered on the channel that the work was asked for on (trap T21)."""
    metadata: dict[str, Json] = {"type": TYPE, "taskId": notification.task_id, "notification": notification.type}
    text = notification.text
    if notification.result is not None:
        text = json.dumps(notification.result, ensure_ascii=False, separators=(",", ":"))
    return InboundMessage(
        text,
        _origin(notification),
        f"{INTERNAL_ID_PREFIX}task/{notification.task_id}/{notification.n}",
        metadata=metadata,
    )


def _origin(notification: Notification) -> ChannelInfo:
    try:
        return from_wire(notification.metadata.get("channel"), ChannelInfo)
    except WireError:
        return NOWHERE
