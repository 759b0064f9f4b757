"""Ids of messages from a service, with the account that has numbered them.

A service numbers messages for each account of the agent: Telegram counts the private messages of every bot from 1. So after a change
of the token another message may have a number that is known already, and would be taken for a message that came before. An id
therefore begins with the account.

Versions before did not name the account. A service may give a message that such a version has accepted once more, and then it must
have the id that it had. So the first account that a home knows is on record, with the time of that, and what was written to this
account before keeps the plain number. What has no time keeps it, too, since the account itself stays the same. Each message has one
id for ever, whenever it comes.

    ids = MessageIds(log, clock)
    await ids.use("123456")          # as soon as the service has said who we are
    ids.of("17", sent=1_772_020_900) # "123456/17"
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from pegasus.channels.delivery_log import ACCOUNT, DeliveryLog


class MessageIds:
    """Makes the ids of one service's messages."""

    def __init__(self, log: DeliveryLog, clock: Callable[[], int]) -> None:
        """clock: wall clock, ms since the epoch."""
        self._log = log
        self._clock = clock
        self._account = ""
        self.known = trio.Event()
        """Set once the account is named; before that no id can be made."""

    async def use(self, account: str) -> None:
        """Name the account that numbers messages from now on. Returns when the first account of the home is on disk."""
        if self._log.fact(ACCOUNT) is None:
            await self._log.set_fact(ACCOUNT, {"first": account, "at": self._clock()})
        self._account = account
        self.known.set()

    def of(self, number: str, sent: float | None = None, account: str = "") -> str:
        """Return the id of a message. number: as the service says.

        sent: when it was written, seconds since the epoch; None: unknown. account: the one that has numbered it, if messages come of
        several; "" = that of `use`.
        """
        account = account or self._account
        match self._log.fact(ACCOUNT):
            case {"first": first, "at": int(at)} if first == account and (sent is None or sent * 1000 <= at):
                return number
        return f"{account}/{number}"
