"""Who goes first (issue "The inner voice", priorities): the rank that a queue item is accepted with.

A person who waits for an answer goes before work that comes back by itself, since what people say may change what is to be
done with it. How ranks order the queue, and that nobody starves, is in `pegasus.storage.lanes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pegasus.messages import ChannelInfo

OWNER: Final = 0
PEOPLE: Final = 1
TASKS: Final = 2
SCHEDULES: Final = 3


def is_owner(channel: ChannelInfo, owners: Iterable[str]) -> bool:
    """Whether this channel or user is the owner's. owners: "type", "type:channelId" or "type:userId" (`agent.owners`)."""
    for entry in owners:
        kind, _, name = entry.partition(":")
        if kind == channel.type and (not name or name in (channel.channel_id, channel.user_id)):
            return True
    return False


def rank_of(channel: ChannelInfo, owners: Iterable[str]) -> int:
    """The rank of what a person says there."""
    return OWNER if is_owner(channel, owners) else PEOPLE
