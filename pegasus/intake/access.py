"""Senders: who may talk to the agent, and whose messages go first.

Both questions are answered from the settings alone, by comparing names. An entry of `channels.<type>.allow_from` is a userId
or a channelId of that type. Who is an owner is decided by `pegasus.policy`. Names are compared as they are: lower and upper case
differ, and there are no patterns. What a sender says about itself is believed here; a client has shown the gateway's token before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum

import attrs

from pegasus.messages import ChannelInfo
from pegasus.policy import is_owner


class Priority(IntEnum):
    """Urgency of a queue item; a smaller number is taken first.

    A person who waits for an answer goes before work that comes back by itself, because what people write may change what
    is to be done with that work. The number is stored with the item and survives restarts. `pegasus.storage` orders its
    queue by it, and lets items age so that none waits for ever.
    """

    OWNER = 0
    """A message of somebody named in `agent.owners`."""
    PERSON = 1
    """A message of anybody else."""
    TASK = 2
    """A report of a background task, or of a reply that could not be delivered."""
    SCHEDULE = 3
    """Work that a clock has started."""


class Denied(Exception):
    """The sender is not in `allow_from` of its channel type. str() is one line for the sender."""


@attrs.frozen
class Access:
    """The rules about who may talk to the agent.

    Example::

        access = Access({"sms": ["+8613800138000"]})
        access.check(ChannelInfo("sms", "+8613800138000"))  # passes
        access.check(ChannelInfo("sms", "+1"))              # raises Denied
    """

    allow_from: Mapping[str, Collection[str]] = attrs.field(factory=dict)
    """The userIds and channelIds that may write, by channel type. A type that is absent or empty is open to everybody."""

    def check(self, channel: ChannelInfo) -> None:
        """Raise Denied unless the user or the space of this channel may write."""
        allowed = self.allow_from.get(channel.type)
        if allowed and channel.user_id not in allowed and channel.channel_id not in allowed:
            raise Denied(f"channels.{channel.type}.allow_from of the settings names neither this user nor this channel")


def priority_of(channel: ChannelInfo, owners: Iterable[str]) -> Priority:
    """Return the priority of what a person writes on this channel."""
    return Priority.OWNER if is_owner(channel, owners) else Priority.PERSON
