"""User entries: how a queue item stands in the session.

Three kinds of items come in one queue. A person's message is its metadata line and its text. A notification of a task, and the report
that a reply reached nobody, are notices: nobody on a channel has written them. They carry the metadata line of the channel that the
work was asked for on, or that the reply was for, and a heading that people cannot imitate (see `conversation.sanitize`):

    [channel: slack | id: #general | thread: 1712.0042]
    [Task 1d3af0ebec7cb0d8 completed]
    {"taskId":"1d3af0ebec7cb0d8","input":"…","response":"…","iterations":3}

The text of a task is cleaned like that of a person, because a task reads pages and files of strangers.

The entry's metadata holds the number of the item. That is what marks it as the beginning of the work on the item when a restart reads
the session (see `progress`). Everything here is pure: attachments have been stored and skills resolved before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pegasus.conversation import Entry, KeptMedia, escape_imitations, metadata_line, sanitize_for_prompt, user_content
from pegasus.intake import UNDELIVERED_REPLY, is_internal
from pegasus.messages import InboundMessage, Json
from pegasus.storage import Item

if TYPE_CHECKING:
    from pegasus.main_agent.skill_invocation import SkillInvocation

TASK_NOTIFY: Final = "task_notify"
"""`metadata.type` of a task's notification, in the queue and in the session."""
NO_MEDIA: Final = KeptMedia()
"""Outcome for a message without attachments."""

# By kind of notification, the word in its heading. `compaction.transcript` reads these words.
_HEADINGS: Final = {"completed": "completed", "failed": "failed", "needs_info": "needs information"}


def user_entry(
    item: Item,
    now: int,
    *,
    invocation: SkillInvocation | None = None,
    media: KeptMedia = NO_MEDIA,
    name_user: bool = False,
) -> Entry:
    """Return the user entry of an item.

    now: wall clock, ms. invocation: the skill that the message calls. media: what was attached to it. name_user: name the writer in
    the metadata line, since several people share the channel.
    """
    message = item.message
    if is_internal(message):
        return Entry(now, "user", _notice_content(message), metadata={"item": item.n, **_notice_metadata(message)})
    metadata: dict[str, Json] = {"item": item.n, "messageId": message.id}
    if message.channel.user_id is not None:
        metadata["userId"] = message.channel.user_id
    if media.refs:
        metadata["media"] = list(media.refs)
    text = message.text
    if invocation is not None:
        text = invocation.text
        metadata.update(invocation.metadata)
    content = user_content(text, message.channel, media.labels, name_user=name_user)
    return Entry(now, "user", content, metadata=metadata)


def _notice_content(message: InboundMessage) -> str:
    """Return metadata line, heading and text of a notice. An unknown kind of notification becomes an "update"."""
    metadata = message.metadata
    if metadata.get("type") == UNDELIVERED_REPLY:
        heading = f"[Reply {metadata.get('seq')} could not be delivered]"
    else:
        heading = f"[Task {metadata.get('taskId')} {_HEADINGS.get(str(metadata.get('notification')), 'update')}]"
    text = escape_imitations(sanitize_for_prompt(message.text).strip())
    return f"{metadata_line(message.channel)}\n{heading}\n{text}"


def _notice_metadata(message: InboundMessage) -> dict[str, Json]:
    """Return the metadata by which later readers of the session recognise a notice and its task."""
    if message.metadata.get("type") == UNDELIVERED_REPLY:
        return {"type": UNDELIVERED_REPLY, "seq": message.metadata.get("seq")}
    return {"type": TASK_NOTIFY, "taskId": message.metadata.get("taskId")}
