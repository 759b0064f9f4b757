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

    __slots__ = ("_aside", "_dropped", "_held", "fetching", "sent")

    def __init__(self, sent: int, *, fetching: bool = False) -> None:
        self.sent = sent
        self.fetching = fetching
        self._dropped = False
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
            self._dropped = True
        self._aside.append(message)
        return Verdict.FETCH if self.read() else Verdict.SKIP

    def read(self) -> bool:
        """Keep pushes aside from now on; whether the caller has to read the journal (False: it is being read)."""
        was, self.fetching = self.fetching, True
        return not was

    def take(self, message: OutboundMessage) -> bool:
        """Whether a reply read from the journal is to be sent; if so it counts as sent."""
        if message.seq <= self.sent:
            return False
        self.sent = message.seq
        return True

    def aside(self) -> OutboundMessage | None:
        """The next kept push that is to be sent, after the journal was read; None when there is no more."""
        while self._aside:
            message = self._aside.popleft()
            if self.take(message):
                return message
        return None

    def must_fetch_again(self) -> bool:
        """Whether pushes were dropped while the journal was read; asking forgets it."""
        dropped, self._dropped = self._dropped, False
        return dropped

    def settle(self, last: int) -> list[str]:
        """The journal was read when `last` was the last seq assigned: nothing up to it is missing. Gives what was held."""
        self.fetching = False
        self.sent = max(self.sent, last)
        held, self._held = self._held, []
        return held

    def after(self, frame: str, last: int) -> tuple[str | None, bool]:
        """A frame that must not overtake the replies up to `last`: (frame to send now or None, whether to read the journal)."""
        if self.sent >= last and not self._held:
            return frame, False
        self._held.append(frame)
        return None, self.read()

    def holds(self) -> bool:
        """Whether a frame waits for replies, so that a later one must wait behind it."""
        return bool(self._held)
