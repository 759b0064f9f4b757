"""Which replies of one address one connection has been given, so that each comes once, in order, without gaps. Pure.

Replies reach a connection on two ways: pushed as they are made, and read from the journal (what was not acknowledged, at
hello, and whatever a gap shows to be missing). The race between the two is settled here: while the journal is read, pushes
are kept aside; they follow when it has been read, and what was seen already is skipped by its seq. Gaps that remain after
reading are replies somebody acknowledged, which nobody owes to this client any more.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from pegasus.messages import OutboundMessage

KEPT_ASIDE = 100
"""Pushes kept while the journal is read. More are dropped here and read from the journal afterwards."""


class Verdict(Enum):
    """What to do with a reply that was pushed."""

    SEND = 1
    SKIP = 2
    FETCH = 3
    """Kept aside; read the journal, then call `aside` until it gives None."""


class Cursor:
    """The place of one connection in the replies of one address. sent: the last seq it was given."""

    __slots__ = ("_again", "_aside", "_held", "fetching", "sent")

    def __init__(self, sent: int, *, fetching: bool = False) -> None:
        self.sent = sent
        self.fetching = fetching
        self._again = False
        self._aside: deque[OutboundMessage] = deque()
        self._held: list[str] = []

    def offer(self, message: OutboundMessage) -> Verdict:
        """Decide about a pushed reply. SEND counts it as sent."""
        if message.seq <= self.sent:
            return Verdict.SKIP
        if message.seq == self.sent + 1 and not self.fetching:
            self.sent = message.seq
            return Verdict.SEND
        if len(self._aside) >= KEPT_ASIDE:
            self._aside.popleft()
            self._again = True
        self._aside.append(message)
        return Verdict.FETCH if self._begin_to_read() else Verdict.SKIP

    def take(self, message: OutboundMessage) -> bool:
        """Whether a reply read from the journal is to be sent; if so it counts as sent."""
        if message.seq <= self.sent:
            return False
        self.sent = message.seq
        return True

    def skip_to(self, seq: int) -> None:
        """Nothing up to `seq` is owed any more."""
        self.sent = max(self.sent, seq)

    def aside(self, last: int) -> OutboundMessage | None:
        """The next kept push that is to be sent, after the journal was read when `last` was the last seq assigned.

        None when there is no more, or when one lies between that was neither read nor pushed: then read again.
        """
        while self._aside:
            message = self._aside[0]
            if message.seq - 1 > max(self.sent, last):
                self._again = True
                return None
            self._aside.popleft()
            if self.take(message):
                return message
        return None

    def missed(self) -> bool:
        """Something may have been missed; whether to read the journal (False: it is being read, and will be once more)."""
        self._again = self.fetching
        return self._begin_to_read()

    def must_read_again(self) -> bool:
        """Whether what was read is not all; asking forgets it."""
        again, self._again = self._again, False
        return again

    def settle(self, last: int) -> list[str]:
        """The journal was read when `last` was the last seq assigned: nothing up to it is missing. Gives what was held."""
        self.fetching = False
        self.sent = max(self.sent, last)
        held, self._held = self._held, []
        return held

    def leave_to_others(self) -> list[str]:
        """Somebody else is given the replies of this address for now; whatever was kept aside is in the journal."""
        self.fetching = self._again = False
        self._aside.clear()
        held, self._held = self._held, []
        return held

    def after(self, frame: str, last: int) -> tuple[str | None, bool]:
        """A frame that must not overtake the replies up to `last`: (frame to send now or None, whether to read the journal)."""
        if self.sent >= last and not self._held:
            return frame, False
        self._held.append(frame)
        return None, self._begin_to_read()

    def holds(self) -> bool:
        """Whether a frame waits for replies, so that a later one must wait behind it."""
        return bool(self._held)

    def _begin_to_read(self) -> bool:
        was, self.fetching = self.fetching, True
        return not was
