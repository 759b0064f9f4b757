"""Limits of what one guest may send, so that nobody can keep the others waiting.

A guest may send some messages a minute and may have some waiting. A message beyond that is refused with a reason that says when to
try again; it is not kept. Owners have no such limits, and the inbox has room of its own for them.

The messages of a minute are counted by a bucket that fills evenly: somebody who was silent may send as many at once as a minute
allows. The counts are kept in memory and begin anew at a start. What waits is counted by the inbox.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import attrs
import trio

from pegasus.messages import ChannelInfo
from pegasus.settings import InForce

MOST_SENDERS: Final = 10_000
"""Senders that are counted. The one that has been silent for the longest time is forgotten first."""


class TooManyMessages(Exception):
    """A sender has sent too many messages. str() is one line that says when to go on."""


@attrs.frozen(eq=False, repr=False)
class GuestLimits:
    """Limits for each guest; 0 = no limit."""

    per_minute: int = 0
    """Messages a minute."""
    waiting: int = 0
    """Messages that may wait."""


@attrs.define(eq=False, repr=False)
class _Bucket:
    """Messages that a sender may send at once."""

    left: float
    at: float
    """Time on Trio's clock for which `left` was true."""


class SenderRates:
    """Counts the messages of guests.

    Example::

        rates = SenderRates(InForce(GuestLimits(per_minute=30)))
        rates.count("slack:U1")     # raises TooManyMessages for the 31st message within a minute
    """

    def __init__(self, limits: InForce[GuestLimits]) -> None:
        self.limits = limits
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        """By sender; the one that wrote last is the last one."""

    def count(self, sender: str) -> None:
        """Count a message of this sender. Raises TooManyMessages, and then it is not counted."""
        most, now = self.limits.now.per_minute, trio.current_time()
        if not most:
            return
        bucket = self._buckets.setdefault(sender, _Bucket(most, now))
        self._buckets.move_to_end(sender)
        if len(self._buckets) > MOST_SENDERS:
            self._buckets.popitem(last=False)
        bucket.left = min(most, bucket.left + (now - bucket.at) * most / 60)
        bucket.at = now
        if bucket.left < 1:
            seconds = max(1, round((1 - bucket.left) * 60 / most))
            raise TooManyMessages(
                f"found more than {most} messages a minute from you, allowed: {most}; try again in {seconds} s"
            )
        bucket.left -= 1


def sender_key(channel: ChannelInfo, *, is_bridge: bool) -> str:
    """Return the name by which a sender is counted.

    Behind a bridge these are the users. A client that has a conversation to itself is counted as this conversation, whatever users it
    names, since it could name another one for each message.
    """
    person = channel.user_id if is_bridge and channel.user_id else channel.channel_id
    return f"{channel.type}:{person}"
