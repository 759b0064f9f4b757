"""The one way in: every adapter hands what it hears to `submit`, and tells its sender what came of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from actors import Answer, Ref
from pegasus.intake.commands import CONTROL_COMMANDS, command_of
from pegasus.intake.priority import TASKS, rank_of
from pegasus.intake.undelivered import undelivered
from pegasus.messages import ChannelInfo, InboundMessage, OutboundMessage
from pegasus.storage import Accept, Accepted, Acknowledge, JournalMessage, Overloaded

NAME_LENGTH = 256
"""Characters an id, channel type, channelId, userId or replyTo may have."""
NAME_RULE = f"a string of 1 to {NAME_LENGTH} characters without control characters"
JOURNAL_TIMEOUT = 30.0
"""Seconds; a disk that takes longer for one append is as good as gone."""

_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

Access = Mapping[str, Collection[str]]
"""By channel type: the userIds and channelIds that may talk to the agent (`allow_from`). Empty or absent: everybody."""


class InvalidMessage(ValueError):
    """A field of the message is not what interfaces section 4 allows."""


class Denied(Exception):
    """The sender is not in `allow_from` of this channel type."""


def is_name(value: str) -> bool:
    """Whether the value may be an id or a part of a channel: short, not empty, no control characters, real Unicode."""
    return 0 < len(value) <= NAME_LENGTH and _FORBIDDEN.search(value) is None


def lane(text: str) -> str:
    """The queue a text waits in: "control" for the commands that must pass a busy agent, else "main"."""
    return "control" if command_of(text) in CONTROL_COMMANDS else "main"


def permits(access: Access, channel: ChannelInfo) -> bool:
    """Whether `allow_from` of this channel's type names its user or its space, or nobody at all."""
    allowed = access.get(channel.type)
    return not allowed or channel.user_id in allowed or channel.channel_id in allowed


def check(message: InboundMessage) -> None:
    """Raise InvalidMessage if an id or a part of the channel cannot be stored and answered."""
    channel = message.channel
    named = {"id": message.id, "type": channel.type, "channelId": channel.channel_id}
    optional = {"userId": channel.user_id, "replyTo": channel.reply_to}
    for field, value in (named | {k: v for k, v in optional.items() if v is not None}).items():
        if not is_name(value or ""):
            raise InvalidMessage(f"{field}: found {value!r:.80}, allowed: {NAME_RULE}")


async def hand_in(
    journal: Ref[JournalMessage], message: InboundMessage, owners: Collection[str] = ()
) -> Answer[Accepted | Overloaded]:
    """Put the message into the journal's mailbox and return at once; the answer comes when it is on disk.

    For adapters that keep several messages under way, so that they share one fsync. Checks nothing. owners: `agent.owners`.
    """
    return await journal.request(Accept, message, lane(message.text), rank_of(message.channel, owners))


async def report_undelivered(journal: Ref[JournalMessage], message: OutboundMessage, why: str) -> None:
    """Tell the agent that nobody will ever get this reply, for an adapter whose service refuses it for good (trap T19).

    It becomes a queue item, once; the reply is then acknowledged, so that it is not tried again. why: one line for the model.
    Raises StorageError, ActorError: it may be reported again.
    """
    if isinstance(await journal.ask(Accept, undelivered(message, why), "main", TASKS), Accepted):
        await journal.tell(Acknowledge(message.channel.address, message.seq))


async def submit(
    journal: Ref[JournalMessage],
    message: InboundMessage,
    *,
    access: Access | None = None,
    owners: Collection[str] = (),
    timeout: float = JOURNAL_TIMEOUT,
) -> Accepted | Overloaded:
    """Give the agent a message; when this returns Accepted, it is on disk and will be answered, come what may.

    owners: whose messages go first (`agent.owners`). timeout: seconds.
    Raises InvalidMessage, Denied, StorageError (the disk refused), ActorError (no answer in time).
    Cancelled, the message may or may not be accepted: the same id may be submitted again.
    """
    check(message)
    if access is not None and not permits(access, message.channel):
        raise Denied(f"{message.channel.user_id or message.channel.address} may not talk to the agent here")
    return await (await hand_in(journal, message, owners)).get(timeout)
