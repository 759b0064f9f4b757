"""Replies that their readers have taken, until the journal can be told.

The journal is told "everything up to this number", while the readers of one conversation may be at different replies of it: each
waits for those to a message of its own, and the key of a reply says of which message it came (`item_of_key`). So a number is
acknowledged when everything before it was taken, too. What was taken behind a reply that nobody has taken is remembered here, and
given out again after a restart of the process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import trio

from pegasus.messages import Address, OutboundMessage
from pegasus.storage import OpenReply


class TakenReplies:
    """Numbers of replies by conversation. Pure.

    >>> taken = TakenReplies()
    >>> taken.add([reply])
    >>> taken.last_in_a_row(address, open_replies)     # of `OpenReplies`, at most `count(address) + 1`
    3
    >>> taken.forget(address, 3)                       # once the journal was told
    """

    def __init__(self) -> None:
        self._numbers: defaultdict[Address, set[int]] = defaultdict(set)
        """Those that are not acknowledged, since one before them was not taken."""
        self.lock = trio.Lock()
        """Held by whoever acknowledges: numbers must not be forgotten while another counts them."""

    def add(self, replies: Iterable[OutboundMessage | OpenReply]) -> None:
        """Note that these were taken."""
        for reply in replies:
            address = reply.address if isinstance(reply, OpenReply) else reply.channel.address
            self._numbers[address].add(reply.seq)

    def has(self, address: Address, seq: int) -> bool:
        """Return whether a reply was taken and is not acknowledged yet."""
        return seq in self._numbers.get(address, ())

    def count(self, address: Address) -> int:
        """Return the number of replies of a conversation that wait to be acknowledged."""
        return len(self._numbers.get(address, ()))

    def last_in_a_row(self, address: Address, open_replies: Sequence[OpenReply]) -> int:
        """Return the number up to which everything was taken; 0 if the oldest open reply was not."""
        last = 0
        for found in open_replies:
            if not self.has(address, found.seq):
                break
            last = found.seq
        return last

    def forget(self, address: Address, last: int) -> None:
        """Forget the numbers up to the last that is acknowledged."""
        left = {seq for seq in self._numbers.pop(address, ()) if seq > last}
        if left:
            self._numbers[address] = left
