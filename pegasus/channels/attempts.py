"""Attempts: calls that would show a message a second time if they were repeated.

No service recognises a repeated call. So each attempt is on disk before it is made, and what happens next depends on what is known:

    the call was answered                  the piece is recorded as taken, or as refused
    it never got there                     the attempt is taken back, as if it had not been made
    it was answered with a failure (503)   the attempt does not count, but before the next one the service is asked for the message
    no answer, or the process has died     the attempt counts, and before the next one the service is asked for the message

| the service says | then |
|---|---|
| it has the message | it is recorded as taken |
| it has not | another attempt, however many there were: nothing is lost |
| nothing that helps | a second attempt, but never a third: the piece is recorded as `UNCONFIRMED`, and the agent is told |

A service that is out of reach is asked until it answers, so an outage uses up no attempt.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, TypeAlias

from pegasus.channels.adapter import ReplyRefused
from pegasus.channels.delivery_log import UNCONFIRMED, DeliveryLog
from pegasus.channels.service_contract import CredentialsRefused, RateLimited, ServiceDown
from pegasus.messages import OutboundMessage
from pegasus.observe import get_logger

MOST_ATTEMPTS: Final = 2
"""Calls for one piece of which nobody knows what has become."""

LookUp: TypeAlias = Callable[[], Awaitable[str | None]]
"""Asks the service for a message that it may have taken: its id, "" if the service has not got it, None if that cannot be known.

It must make at least one call, so that a service that is out of reach raises ServiceDown.
"""

_log = get_logger("channels")


class SendAttempts:
    """Sends pieces of replies so that none is shown twice that the service can be asked for, and none is shown three times."""

    def __init__(self, log: DeliveryLog) -> None:
        self._log = log

    async def find(self, reply: OutboundMessage, number: int, look_up: LookUp, *, drafts: int = 0) -> str:
        """Return the id of a piece that was sent by an attempt before, "" if it is to be sent now.

        drafts: messages that may show this piece already, as drafts. UNCONFIRMED: it is not sent again, though nobody knows whether it
        is there. Raises what `look_up` raises.
        """
        known = self._log.attempts(reply, number)
        before = known.count + drafts
        if not before and not known.mark:
            return ""
        found = await look_up()
        if not found:
            # The second look finds what the service had not listed yet. It also changes the turn where every other call fails, as with
            # one broken server of two, so that sending does not fail each time that looking works.
            with suppress(ServiceDown, RateLimited):
                found = await look_up()
        if found:
            _log.info("a message whose answer was lost is there", to=str(reply.channel.address), seq=reply.seq)
            return found
        if found == "":
            await self._log.set_attempts(reply, number, 0)
        elif before >= MOST_ATTEMPTS:
            _log.warning("a message is not sent again: nobody knows what became of it", seq=reply.seq, part=number)
            return UNCONFIRMED
        return ""

    async def make(
        self, reply: OutboundMessage, number: int, send: Callable[[], Awaitable[str]], mark: str = ""
    ) -> str:
        """Send a piece and return its id. mark: by which the service can be asked for it; see `Attempts.mark`.

        Cancelled, the attempt counts. Raises what `send` raises.
        """
        before = self._log.attempts(reply, number).count
        await self._log.set_attempts(reply, number, before + 1, mark)
        async with undone_unless_sent(partial(self._log.set_attempts, reply, number, before), mark):
            return await send()


@asynccontextmanager
async def undone_unless_sent(undo: Callable[[str], Awaitable[None]], mark: str = "") -> AsyncIterator[None]:
    """Call `undo` if the block fails in a way that shows that the service has sent nothing.

    undo: it is given the mark if the service should be asked for the message nevertheless, else "".
    """
    try:
        yield
    except ServiceDown as error:
        if not error.may_have_acted:
            await undo(mark if error.says_failed else "")
        raise
    except (ReplyRefused, RateLimited, CredentialsRefused):
        await undo("")
        raise
