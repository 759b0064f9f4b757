"""Task notifications: what tasks report becomes queue items of the Main Agent, as durable as messages, and each only once.

The task system sends the actor here a notification (`Notify`) and waits for the answer, which is sent when the item is accepted, that
is, on disk. If anything crashes before that, the task system sends it again. The item's id is made of the task and the
number of the notification, so the inbox recognises it. The id begins with a control character, which no id from outside may have,
so nobody can take its place.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import trio

from actors import Answer, Inbox, Ref
from pegasus.intake import INTERNAL_ID_PREFIX, Priority
from pegasus.main_agent.user_entries import TASK_NOTIFY
from pegasus.messages import ChannelInfo, InboundMessage, Json
from pegasus.observe import get_logger
from pegasus.storage import Accept, Accepted, JournalMessage, Overloaded, StorageError
from pegasus.tasks import Notification, Notify
from pegasus.wire import WireError, encode_json, from_wire

_log = get_logger("courier")

# The channel must be known without a bridge, and the terminal's main channel always is.
DEFAULT_CHANNEL: Final = ChannelInfo("cli", "main")
"""Channel of a task that nobody on a channel has asked for."""
NOTIFICATION_BATCH: Final = 64
"""Notifications that are offered to the inbox together, so that they are written together."""
RETRY: Final = 5.0
"""Seconds until an item is offered again that the inbox had no room for or that the disk refused. Nobody waits for it at a screen."""


async def forward_notifications(inbox: Inbox[Notify], journal: Ref[JournalMessage]) -> None:
    """Run the actor. Cancelled: notifications that were not answered are sent again, and the inbox recognises them by their ids.

    Notifications that wait together are offered together, so that the journal writes them with one fdatasync. If the inbox refuses one
    of them, because it is full or the disk is, that one is offered again every RETRY seconds, and others may overtake it meanwhile.
    The task system waits for the answer and gives up nothing; so a full inbox slows tasks down and loses none of their reports.
    """
    async for first in inbox:
        batch = [first]
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while len(batch) < NOTIFICATION_BATCH:
                batch.append(inbox.receive_nowait())
        items = [notification_item(notify.notification) for notify in batch]
        answers = [await journal.request(Accept, item, "main", Priority.TASK) for item in items]
        for notify, item, answer in zip(batch, items, answers, strict=True):
            while not await _is_accepted(answer):
                await trio.sleep(RETRY)
                answer = await journal.request(Accept, item, "main", Priority.TASK)
            notify.reply.send(None)


async def _is_accepted(answer: Answer[Accepted | Overloaded]) -> bool:
    """Return whether the inbox holds the item now. A refusal is logged with its reason."""
    try:
        result = await answer.get()
    except StorageError as error:
        _log.error("task notification not stored yet: disk error, retrying", error=str(error))
        return False
    if isinstance(result, Overloaded):
        _log.warning("task notification not stored yet: the queue is full, retrying", waiting=result.waiting)
    return isinstance(result, Accepted)


def notification_item(notification: Notification) -> InboundMessage:
    """Return the queue item of a notification. It is answered on the channel that the work was asked for on."""
    metadata: dict[str, Json] = {
        "type": TASK_NOTIFY,
        "taskId": notification.task_id,
        "notification": notification.type,
    }
    text = notification.text if notification.result is None else encode_json(notification.result)
    item_id = f"{INTERNAL_ID_PREFIX}task/{notification.task_id}/{notification.n}"
    return InboundMessage(text, _origin(notification), item_id, metadata=metadata)


def _origin(notification: Notification) -> ChannelInfo:
    """Return the channel in a task's metadata; DEFAULT_CHANNEL if there is none that can be read."""
    try:
        return from_wire(notification.metadata.get("channel"), ChannelInfo)
    except WireError:
        return DEFAULT_CHANNEL
