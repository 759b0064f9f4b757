"""Notifications of tasks: the actor that makes queue items of them.

A notification becomes an item that is as durable as a message. The task system sends it to the actor `forward_notifications`
(`Notify`) and waits for the answer, which is sent when the item is accepted, that is, on disk. If anything crashes before that, the
task system sends it again. The item's id is made of the task and the number of the notification, so the inbox recognises it.
How such an item stands in the session is in `queue_items`.
"""

from __future__ import annotations

from typing import Final

import trio

from actors import Answer, Inbox, Ref
from pegasus.access import ROLE, Role
from pegasus.intake import Priority
from pegasus.main_agent.queue_items import TASK_NOTIFICATION
from pegasus.messages import ACCOUNT, APART, INTERNAL_ID_PREFIX, ChannelInfo, InboundMessage, Json
from pegasus.observe import get_logger
from pegasus.outside import OUTSIDE
from pegasus.retry import Pauses
from pegasus.schedule import PLACED, QUIET_FAILURE
from pegasus.storage import Accept, Accepted, JournalMessage, Overloaded, StorageError
from pegasus.tasks import Notification, Notify
from pegasus.wire import encode_json

_log = get_logger("main_agent")

DEFAULT_CHANNEL: Final = ChannelInfo("cli", "main")
"""Channel of a task that nobody on a channel has asked for: the terminal's main one, which is known without a bridge."""


async def forward_notifications(inbox: Inbox[Notify], journal: Ref[JournalMessage]) -> None:
    """Run the actor. Cancelled: notifications that were not answered are sent again, and the inbox recognises them by their ids.

    Notifications that come together are offered together, so that the journal writes them with one fdatasync. If the inbox refuses
    one of them, because it is full or the disk is, that one is offered again after growing pauses. The task system waits for the
    answer and gives up nothing; so a full inbox slows tasks down and loses none of their reports.
    """
    async for message in inbox:
        items = [notification_item(report) for report in message.notifications if not is_quiet(report)]
        # All are offered before any answer is waited for.
        answers = [await journal.request(Accept, item, "main", Priority.TASK, _is_from_owner(item)) for item in items]
        for item, answer in zip(items, answers, strict=True):
            pauses = Pauses()
            while not await _is_accepted(answer):
                await trio.sleep(pauses.next())
                answer = await journal.request(Accept, item, "main", Priority.TASK, _is_from_owner(item))
        message.reply.send(None)


def is_quiet(notification: Notification) -> bool:
    """Return whether nobody is to hear of it: a scheduled job whose run before had failed, too, has failed again."""
    return notification.type == "failed" and notification.metadata.get(QUIET_FAILURE) is True


def _is_from_owner(item: InboundMessage) -> bool:
    """Return whether the work that a notification reports was asked for by an owner."""
    return item.metadata.get(ROLE) == Role.OWNER


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
        "type": TASK_NOTIFICATION,
        "taskId": notification.task_id,
        "notification": notification.type,
        OUTSIDE: [str(label) for label in notification.outside],
        # A task that an event has begun has no role: with a channel somebody on it has asked, else nobody knows who.
        ROLE: notification.metadata.get(ROLE, Role.OWNER if "channel" in notification.metadata else Role.GUEST),
    }
    # In the conversation that the work was asked for in, whoever has written there since.
    is_from_guest = "channel" in notification.metadata and metadata[ROLE] == Role.GUEST
    metadata[APART] = notification.metadata.get(APART, is_from_guest)
    if ACCOUNT in notification.metadata:
        metadata[ACCOUNT] = notification.metadata[ACCOUNT]
    if notification.metadata.get(PLACED) is True:
        metadata[PLACED] = True
    text = notification.text if notification.result is None else encode_json(notification.result)
    item_id = f"{INTERNAL_ID_PREFIX}task/{notification.task_id}/{notification.n}"
    return InboundMessage(text, notification.channel or DEFAULT_CHANNEL, item_id, metadata=metadata)
