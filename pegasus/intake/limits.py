"""Limits: whose messages go first, and how many each sender may send.

A guest may send some messages a minute and may have some waiting, so that nobody can keep the others waiting. A message
beyond that is refused with a reason that says when to try again; it is not kept. Owners have no such limits, and the inbox has room
of its own for them. The messages of a minute are counted by a bucket that fills evenly: somebody who was silent may send as many at
once as a minute allows. The counts are kept in memory and begin anew at a start; they belong to an actor (`run_guest_limits`). What
waits is counted by the inbox, and what is kept on disk by `guest_disk`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import attrs
import trio

from actors import ActorError, Inbox, Reply
from pegasus.intake.guest_disk import GuestDisk, QuotaReached
from pegasus.messages import InboundMessage
from pegasus.settings import LiveValue
from pegasus.storage import StorageError

MOST_SENDERS: Final = 10_000
"""Senders that are counted. The one that has been silent for the longest time is forgotten first."""


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
    """A report of a background task, or of a reply that could not be delivered, and work that a schedule has started."""


class TooManyMessages(Exception):
    """A sender has sent too many messages. str() is one line that says when to go on.

    Example: the gateway answers it with an error frame of the code `overloaded`. The message was not counted.
    """


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
    """Messages, with fractions; it grows by the messages a minute that are allowed, up to that number."""
    at: float
    """Time on Trio's clock for which `left` was true."""


class SenderRates:
    """Counts the messages of guests."""

    def __init__(self, limits: LiveValue[GuestLimits]) -> None:
        self.limits = limits
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        """By sender; the one that wrote last is the last one."""

    def count(self, sender: str) -> None:
        """Count a message of this sender. Raises TooManyMessages, and then it is not counted."""
        per_minute, now = self.limits.now.per_minute, trio.current_time()
        if not per_minute:
            return
        bucket = self._buckets.setdefault(sender, _Bucket(per_minute, now))
        self._buckets.move_to_end(sender)
        if len(self._buckets) > MOST_SENDERS:
            self._buckets.popitem(last=False)
        bucket.left = min(per_minute, bucket.left + (now - bucket.at) * per_minute / 60)
        bucket.at = now
        if bucket.left < 1:
            seconds = max(1, round((1 - bucket.left) * 60 / per_minute))
            raise TooManyMessages(
                f"found more than {per_minute} messages a minute from you, allowed: {per_minute}; try again in {seconds} s"
            )
        bucket.left -= 1


@attrs.frozen(eq=False, repr=False)
class AdmitGuest:
    """Request: count a guest's message. Fails with TooManyMessages or QuotaReached, and then it is not counted.

    StorageError and ActorError: the count cannot be kept.
    """

    reply: Reply[None]
    message: InboundMessage
    """The message, which is not accepted yet."""
    is_repeated: bool
    """True if it was sent before, without an answer. It does not count again for the messages a minute then."""


async def run_guest_limits(
    inbox: Inbox[AdmitGuest], limits: LiveValue[GuestLimits], make_disk: Callable[[], GuestDisk]
) -> None:
    """Run the actor. A restart begins with no messages in the last minute; bytes are counted on disk.

    The bytes of a guest's folder are counted in a thread, which others do not wait for.
    """
    rates, disk = SenderRates(limits), make_disk()

    async def admit(request: AdmitGuest) -> None:
        try:
            if not request.is_repeated:
                rates.count(request.message.account)
            await disk.admit(request.message)
        except (TooManyMessages, QuotaReached, StorageError, ActorError) as error:
            request.reply.fail(error)
        else:
            request.reply.send(None)

    async with trio.open_nursery() as nursery:
        async for request in inbox:
            nursery.start_soon(admit, request)
