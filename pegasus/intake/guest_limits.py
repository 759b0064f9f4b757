"""Actor that counts what guests send, and refuses what is too much (`run_guest_limits`). The counts are its own."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from actors import ActorError, Inbox, Reply
from pegasus.intake.guest_disk import GuestDisk, QuotaReached
from pegasus.intake.limits import GuestLimits, SenderRates, TooManyMessages
from pegasus.messages import InboundMessage
from pegasus.settings import LiveValue
from pegasus.storage import StorageError


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
