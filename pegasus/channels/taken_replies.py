"""Replies that their readers have taken, until the journal can be told.

An acknowledgement to the journal covers everything up to a number. But the readers of one conversation take different replies of
it: each waits for the replies to its own message, which the key of a reply names (`item_of_key`). So a number is
acknowledged when everything before it was taken, too. What was taken behind a reply that nobody has taken is remembered here, and
given out again after a restart of the process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import takewhile

import trio

from actors import Ref
from pegasus.messages import Address, OutboundMessage
from pegasus.storage import Acknowledge, JournalMessage, UnacknowledgedReply


class AckTracker:
    """Numbers of taken replies by conversation."""

    def __init__(
        self,
        journal: Ref[JournalMessage],
        open_replies: Callable[[Address, int], Awaitable[Sequence[UnacknowledgedReply]]],
    ) -> None:
        """Begin without a taken reply.

        open_replies: returns the oldest open ones of a conversation, so many at most; see `OpenReplies`.
        """
        self._journal = journal
        self._open_replies = open_replies
        self._numbers: defaultdict[Address, set[int]] = defaultdict(set)
        """Those that are not acknowledged, since one before them was not taken."""
        self._lock = trio.Lock()
        """Held while the journal is told: numbers must not be forgotten while another reader counts them."""

    def add(self, replies: Iterable[OutboundMessage]) -> None:
        """Note that these were taken."""
        for reply in replies:
            self._numbers[reply.channel.address].add(reply.seq)

    def has(self, address: Address, seq: int) -> bool:
        """Return whether a reply was taken and is not acknowledged yet."""
        return seq in self._numbers.get(address, ())

    async def acknowledge(
        self, address: Address, may_pass_over: Callable[[UnacknowledgedReply], Awaitable[bool]] | None = None
    ) -> int:
        """Acknowledge what was taken up to the oldest reply that was not; return the last number, 0 if there is none.

        may_pass_over: returns whether nobody will take a reply that holds back the others, which then counts as taken. None: somebody
        will. Raises what `open_replies` raises, and ActorError; then the next call makes up for it.
        """
        async with self._lock:
            while True:
                found = await self._open_replies(address, len(self._numbers.get(address, ())) + 1)
                row = list(takewhile(lambda each: self.has(address, each.seq), found))
                oldest = found[len(row)] if len(row) < len(found) else None
                if oldest is None or may_pass_over is None or not await may_pass_over(oldest):
                    break
                self._numbers[address].add(oldest.seq)
            last = row[-1].seq if row else 0
            if last:
                await self._acknowledge(address, last)
            return last

    async def acknowledge_up_to(self, address: Address, last: int) -> None:
        """Acknowledge everything up to this number, taken or not. Raises ActorError."""
        async with self._lock:
            await self._acknowledge(address, last)

    async def _acknowledge(self, address: Address, last: int) -> None:
        await self._journal.tell(Acknowledge(address, last))
        left = {seq for seq in self._numbers.pop(address, ()) if seq > last}
        if left:
            self._numbers[address] = left
