"""Queue items: the kinds of them, how each stands in the session, how waiting ones are dropped, and those for tasks' notifications.

Several kinds of items come in one queue. A person's message is its metadata line and its text. A notification of a task, the report
that a reply reached nobody, a scheduled job that is due and a heartbeat are internal: nobody on a channel has written them. They
carry the metadata line of the channel that the work was asked for on, or that the reply was for, and a heading that people cannot
imitate (see `conversation.entry`):

    [channel: slack | id: #general | thread: 1712.0042]
    [Task 1d3af0ebec7cb0d8 completed]
    {"taskId":"1d3af0ebec7cb0d8","input":"…","response":"…","iterations":3}

The text of a task is cleaned like that of a person, because a task reads pages and files of strangers. If it has read some, its text
has their labels and stands between fences.

The entry has the number of the item. That is what marks it as the beginning of the work on the item when a restart reads
the session (see `session`).

A notification becomes an item that is as durable as a message. The task system sends it to the actor `forward_notifications`
(`Notify`) and waits for the answer, which is sent when the item is accepted, that is, on disk. If anything crashes before that, the
task system sends it again. The item's id is made of the task and the number of the notification, so the inbox recognises it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from actors import Answer, Inbox, Ref
from pegasus.access import ROLE, Principal, Role
from pegasus.conversation import (
    Entry,
    KeptMedia,
    clean_text,
    metadata_line,
    user_content,
)
from pegasus.formatting import plural, truncate
from pegasus.identity import SILENCE
from pegasus.intake import Priority
from pegasus.messages import (
    A2A_CLIENT,
    ACCOUNT,
    APART,
    FOLDER,
    INSTRUCTIONS,
    INTERNAL_ID_PREFIX,
    InboundMessage,
    Json,
)
from pegasus.observe import get_logger
from pegasus.outside import FENCE, FENCED_FROM, OUTSIDE, Untrusted, fenced_metadata, parse_outside
from pegasus.quotes import QUOTES, parse_quotes
from pegasus.retry import Pauses
from pegasus.schedule import HEARTBEAT, PLACED, QUIET_FAILURE, SCHEDULED
from pegasus.storage import (
    UNDELIVERED_REPLY,
    Accept,
    Accepted,
    Discard,
    Item,
    JournalMessage,
    Lease,
    Overloaded,
    StorageError,
)
from pegasus.tasks import DEFAULT_CHANNEL, Notify
from pegasus.wire import encode_json

if TYPE_CHECKING:
    from pegasus.tasks import Notification

TASK_NOTIFICATION: Final = "task_notify"
"""`metadata.type` of a task's notification, in the queue and in the session."""
OWN_TURN: Final = "ownTurn"
"""Key of a message's metadata: True if a program waits for the answer to exactly this message, so that it is joined with no other."""

DISCARDED: Final = "discarded"
"""`metadata.type` of the report that messages were discarded, in the queue and in the session."""
DISCARD_REPORT: Final = "They waited when /stop all came. Nobody has read them, and they get no answer."
"""Text of that report, for the model."""

_HEADINGS: Final = {
    "completed": "completed",
    "failed": "failed",
    "stopped": "stopped",
    "needs_info": "needs information",
}
"""By kind of notification, the word in its heading. `compaction.transcript` reads these words."""


def cause_of(message: InboundMessage) -> str:
    """Return the cause of work that comes of an item: a kind and a name, as "message telegram:42 17", "job a1b2", "hook ci".

    A job's run and a task's notification name the job and the task. "heartbeat" has no name.
    """
    metadata, account = message.metadata, message.account
    if message.is_internal:
        named = next(
            (f"{kind} {metadata[key]}" for kind, key in (("job", "jobId"), ("task", "taskId")) if key in metadata), ""
        )
        return named or str(metadata.get("type", ""))
    return account if account.startswith("hook ") else f"message {message.channel.address} {truncate(message.id, 100)}"


def user_entry(
    item: Item,
    now: int,
    text: str,
    media: KeptMedia,
    fence: str,
    *,
    skill: str = "",
    name_user: bool = False,
    is_guest: bool = False,
) -> Entry:
    """Return the user entry of a person's message. The text of a guest is fenced, and of an owner what it quotes and what is attached.

    now: wall clock, ms. text: the message, or what a skill that it calls says. media: what was attached to it. skill: name of the
    skill that is in force from here on, "" for none. name_user: name the writer in the metadata line, since several people share
    the channel. fence: id of the session's fences. is_guest: the writer is no owner.
    """
    message = item.message
    metadata: dict[str, Json] = {"messageId": message.id}
    if message.channel.user_id is not None:
        metadata["userId"] = message.channel.user_id
    if FOLDER in message.metadata:
        metadata[FOLDER] = message.metadata[FOLDER]
    if INSTRUCTIONS in message.metadata:
        metadata[INSTRUCTIONS] = clean_text(str(message.metadata[INSTRUCTIONS]))
    if media.refs:
        metadata["media"] = list(media.refs)
    if media.files:
        metadata["files"] = list(media.files)
    text = "\n".join((text, *media.spoken)) if text else "\n".join(media.spoken)
    if skill:
        metadata["skill"] = skill
    quotes = parse_quotes(message.metadata) if QUOTES in message.metadata else ()
    others = (*(quote.label for quote in quotes), *media.labels)
    content = user_content(text, message.channel, others, name_user=name_user)
    # What is fenced begins behind the metadata line for a guest, and behind the own words for an owner.
    if is_guest or others:
        labels = ((Untrusted.GUEST,) if is_guest else ()) + ((Untrusted.FILE,) if media.labels else ())
        # Words of the agent itself may hold what somebody else has said, so they are fenced, but are no source of their own.
        labels += () if all(quote.is_own for quote in quotes) else (Untrusted.OTHER,)
        own = metadata_line(message.channel, name_user=name_user)  # stands before the fence, as an owner's own words do
        if not is_guest:
            own = user_content(text, message.channel, name_user=name_user)
        metadata |= fenced_metadata(labels, fence, len(own) + 1) or {FENCE: fence, FENCED_FROM: len(own) + 1}
    return Entry(now, "user", content, metadata=metadata, item=item.n)


def internal_entries(item: Item, now: int, fence: str) -> tuple[Entry, ...]:
    """Return the entries of an internal item: the user entry with metadata line, heading and text, and the end if it needs no thought.

    now: wall clock, ms. fence: id of the session's fences.

    An unknown kind of notification becomes an "update". The entry's metadata lets later readers recognise the kind of item, and its
    task.
    """
    message, facts = item.message, item.message.metadata
    ends: tuple[Entry, ...] = ()
    if facts.get("type") == UNDELIVERED_REPLY:
        heading = f"[Reply {facts.get('seq')} could not be delivered]"
        metadata: dict[str, Json] = {"type": UNDELIVERED_REPLY, "seq": facts.get("seq")}
    elif facts.get("type") == SCHEDULED:
        heading = f"[Scheduled job {facts.get('jobId')} is due]"
        metadata = {"type": SCHEDULED, "jobId": facts.get("jobId")}
    elif facts.get("type") == DISCARDED:
        heading = f"[Messages discarded: {facts.get('discarded')}]"
        metadata = {"type": DISCARDED}
        end = Entry(now, "system", "(Nothing is to be done about them.)", metadata={"type": DISCARDED, "ends": True})
        ends = (end,)
    elif facts.get("type") == HEARTBEAT:
        heading = f"[Scheduled heartbeat: if there is nothing to tell anybody, say nothing; in text, answer {SILENCE}]"
        metadata = {"type": HEARTBEAT}
    else:
        heading = f"[Task {facts.get('taskId')} {_HEADINGS.get(str(facts.get('notification')), 'update')}]"
        metadata = {"type": TASK_NOTIFICATION, "taskId": facts.get("taskId")}
    text = clean_text(message.text)
    own = f"{metadata_line(message.channel)}\n{heading}\n"
    labels = parse_outside(facts) if metadata["type"] in (SCHEDULED, TASK_NOTIFICATION) else ()
    if metadata["type"] == SCHEDULED and facts.get(ROLE) != Role.OWNER:
        labels = (Untrusted.GUEST, *labels)
    elif metadata["type"] == TASK_NOTIFICATION and OUTSIDE not in facts:  # an item of a version without labels
        labels = (Untrusted.TASK,)
    metadata |= fenced_metadata(labels, fence, len(own))
    return (Entry(now, "user", own + text, metadata=metadata, item=item.n), *ends)


# ------------------------------------------------------------------ items that are discarded


async def discard_waiting(journal: Ref[JournalMessage], item: Item, person: Principal, lease: Lease | None) -> str:
    """Drop the messages that wait in the conversation of a `/stop all`, and return the sentence about it for the answer.

    An owner drops those of everybody there, a guest their own. Messages that have come after the command stay. A report takes their
    place in the queue, in the same durable step, so that the conversation shows what became of them. Its id is made of the
    command's number: when the command is carried out again after a crash, nothing more is dropped. Raises LeaseLost.
    """
    metadata: dict[str, Json] = {"type": DISCARDED, OUTSIDE: [], **person.recorded}
    id = f"{INTERNAL_ID_PREFIX}discard/{item.n}"
    report = InboundMessage(DISCARD_REPORT, item.message.channel, id, metadata=metadata)
    try:
        count = await journal.ask(
            partial(
                Discard,
                report=report,
                before=item.n,
                priority=Priority.PERSON,
                report_priority=Priority.TASK,
                owner=person.is_owner,
                lease=lease,
            )
        )
    except StorageError as error:
        return f"The messages that wait are not discarded: {error}."
    if count is None:
        return "The messages that waited are discarded."
    if not count:
        return "No message was waiting." if person.is_owner else "No message of yours was waiting."
    return f"Discarded: {plural(count, 'message')} that waited."


# ------------------------------------------------------------------ notifications of tasks


_log = get_logger("main_agent")


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
    """Return whether nobody here is to hear of it.

    A scheduled job whose run before had failed, too, has failed again; or another agent has begun the task, and follows it itself.
    """
    metadata = notification.metadata
    return A2A_CLIENT in metadata or (notification.type == "failed" and metadata.get(QUIET_FAILURE) is True)


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
    if FOLDER in notification.metadata:  # what the agent begins because of it is done there, too
        metadata[FOLDER] = notification.metadata[FOLDER]
    if notification.metadata.get(PLACED) is True:
        metadata[PLACED] = True
    text = notification.text if notification.result is None else encode_json(notification.result)
    item_id = f"{INTERNAL_ID_PREFIX}task/{notification.task_id}/{notification.n}"
    return InboundMessage(text, notification.channel or DEFAULT_CHANNEL, item_id, metadata=metadata)
