"""`Cursor`: the place of one connection in the replies of one address.

A client must get each reply of its address once, in order, and without gaps. Replies reach its connection in two
ways. They are *pushed* by the switchboard as they are made, and they are *read* from the journal: at the hello everything
that nobody has acknowledged, and later whatever a gap in the numbers shows to be missing (the switchboard drops replies for an
adapter whose mailbox is full, and after a crash it pushes some twice). The two ways race with each other. One cursor for each
address settles the race by numbers alone:

* `sent` is the last number that was queued for this client. A push with a smaller number is dropped, the next number is
  queued at once, and a larger number means that something is missing: the push is *kept*, and the journal is to be read.
* While the journal is being read, pushes are kept and drafts are dropped. Afterwards the pushes are queued behind what was
  read; what was read already is dropped by its number.
* Before each reading the last assigned number is asked for. What is not found up to that number was acknowledged by somebody,
  so it is not owed any more, and the gap is closed. A kept push beyond that number may have a real gap before it, so the journal
  is read once more.

For example, 3 was sent and a push of 6 comes. It is kept. The journal says that 6 is the last number, and the reading finds only
4 and 6. So somebody has acknowledged 5. 4 and 6 are queued, and the kept push of 6 is dropped by its number. A push of 8 that came
during this reading stays kept, because 7 may be missing: the journal is read again.

A frame that must not overtake replies (the end of a turn) is *held* until they are queued.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

MAX_KEPT = 100
"""Pushes that are kept while the journal is read. Older ones are dropped beyond that, and read from the journal afterwards."""


class PushDecision(Enum):
    """The answer of a cursor: what the caller does with a pushed frame."""

    SEND = 1
    """Queue it now; the cursor counts a reply as sent."""
    SKIP = 2
    """Nothing: it was sent already, or it is kept and the journal is being read."""
    READ = 3
    """It is kept. Read the journal, then queue what `next_kept` returns, then call `finish_reading`."""


class Cursor:
    """The place of one connection in the replies of one address. Pure: numbers and frames in, decisions out.

    Example::

        cursor = Cursor(sent=3)
        cursor.offer(4, frame_4)  # SEND
        cursor.offer(6, frame_6)  # READ: 5 is missing, 6 is kept
        cursor.take(5)            # True: read from the journal, to be queued
        cursor.next_kept(last=6)  # frame_6
        cursor.finish_reading(6)  # []: no frames were held
    """

    __slots__ = ("_held", "_kept", "_read_again", "is_reading", "sent")

    def __init__(self, sent: int, *, is_reading: bool = False) -> None:
        self.sent = sent
        """The number of the last reply that was queued for this client, or is not owed to it."""
        self.is_reading = is_reading
        """The journal is being read for this address, so pushes are kept. It is set when a reading is asked for."""
        self._read_again = False
        """Something happened during a reading that this reading may not have seen."""
        self._kept: deque[tuple[int, str]] = deque()
        """Pushes (number and frame) that wait for the end of a reading, in the order in which they came."""
        self._held: list[str] = []
        """Frames that wait behind replies, in order."""

    @property
    def is_holding(self) -> bool:
        """A frame waits behind replies."""
        return bool(self._held)

    def offer(self, seq: int, frame: str) -> PushDecision:
        """Decide about a pushed reply. SEND counts it as sent."""
        if seq <= self.sent:
            return PushDecision.SKIP
        if seq == self.sent + 1 and not self.is_reading:
            self.sent = seq
            return PushDecision.SEND
        if len(self._kept) >= MAX_KEPT:
            self._kept.popleft()
            self._read_again = True
        self._kept.append((seq, frame))
        return self._start_reading()

    def hold(self, seq: float, frame: str) -> PushDecision:
        """Decide about a frame that must not overtake the replies up to `seq`, nor a frame that waits already."""
        if self.sent >= seq and not self._held:
            return PushDecision.SEND
        self._held.append(frame)
        return self._start_reading()

    def take(self, seq: int) -> bool:
        """Return whether a reply read from the journal is to be queued; if so, count it as sent."""
        is_new = seq > self.sent
        self.skip_to(seq)
        return is_new

    def skip_to(self, seq: int) -> None:
        """Count everything up to `seq` as sent, because it is not owed."""
        self.sent = max(self.sent, seq)

    def next_kept(self, last: int) -> str | None:
        """Return the next kept push to be queued, after the journal was read when `last` was the last assigned number.

        None when there is no more, or when a reply before it was neither read nor pushed: then the journal is to be read again.
        """
        while self._kept:
            seq, frame = self._kept[0]
            if seq - 1 > max(self.sent, last):
                self._read_again = True
                return None
            self._kept.popleft()
            if self.take(seq):
                return frame
        return None

    def note_gap(self) -> bool:
        """Note that replies may have been missed. Return whether to start reading the journal.

        False means that it is being read already, and will be read once more.
        """
        self._read_again = self.is_reading
        return self._start_reading() is PushDecision.READ

    def must_read_again(self) -> bool:
        """Return whether the last reading was not enough, and forget it."""
        again, self._read_again = self._read_again, False
        return again

    def finish_reading(self, last: int) -> list[str]:
        """Let pushes through again: the journal was read when `last` was the last assigned number.

        Return the held frames, which the caller queues behind the replies.
        """
        self.is_reading = False
        self.skip_to(last)
        held, self._held = self._held, []
        return held

    def stop_reading(self) -> list[str]:
        """End a reading because the address has clients of its own, which get its replies instead of this bridge.

        Kept pushes are dropped, since the journal has them. `sent` stays where it is: if those clients leave, the next push to this
        bridge has a larger number than `sent` + 1, and what is missing is read. Return the held frames.
        """
        self._read_again = False
        self._kept.clear()
        return self.finish_reading(self.sent)

    def _start_reading(self) -> PushDecision:
        """Note that the journal is being read. SKIP if it was so already: one reading at a time is enough."""
        was_reading, self.is_reading = self.is_reading, True
        return PushDecision.SKIP if was_reading else PushDecision.READ
