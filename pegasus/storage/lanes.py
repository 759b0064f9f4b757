"""The queue of one lane: accepted messages that are not done, and the order in which they are handed out.

Due first is what was handed out already: its taker has crashed, or takes several items at a time. After those comes
the item with the lowest *turn*, which is `n + priority × AGEING`:

* among items of the same priority the oldest comes first;
* an item that is one priority more urgent goes ahead of up to AGEING older ones;
* no item waits for ever, since at most `priority × AGEING` younger ones can pass it, however many come.

The rule needs no clock, and a restart changes nothing about it. In other lanes than "main" the priority does not count.

Storage needs three questions answered in constant or logarithmic time, for thousands of waiting items: which item is
due, which is the oldest of an address, and whether an item with some number waits. Hence the four containers of `Lane`.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from pegasus.messages import Address, InboundMessage
from pegasus.storage.volume import Span

AGEING: Final = 100
"""Number of older items that one goes ahead of for each step of priority."""
MAIN: Final = "main"
"""The lane whose items the Main Agent thinks about, and the only one in which priorities count."""


class QueuedItem:
    """An accepted message that is not done."""

    __slots__ = ("address", "attempts", "digest", "lane", "message", "n", "priority", "span", "turn")

    def __init__(
        self,
        n: int,
        lane: str,
        priority: int,
        address: Address,
        digest: int,
        message: InboundMessage | None,
        span: Span,
    ) -> None:
        self.n = n
        self.lane = lane
        self.priority = priority
        self.address = address
        self.digest = digest
        """Stands for the sender's id; see `inbox`."""
        self.message = message
        """None if it is to be read back from `span` of the inbox's file."""
        self.span = span
        self.turn = n + priority * AGEING if lane == MAIN else n
        self.attempts = 0
        """The number of times that it was handed out by this process."""


class Lane:
    """The items of one lane.

    >>> lane = Lane()
    >>> lane.add(item)
    >>> lane.hand_out(lane.due())
    >>> lane.remove(item)
    """

    __slots__ = ("_by_turn", "_handed_out", "_items", "_waiting")

    def __init__(self) -> None:
        self._items: dict[int, QueuedItem] = {}
        """All items by number."""
        self._handed_out: dict[int, QueuedItem] = {}
        """The items that were handed out, in the order in which they were."""
        self._waiting: dict[Address, dict[int, QueuedItem]] = {}
        """The other items by address, oldest first."""
        self._by_turn: list[tuple[int, int]] = []
        """A heap of (turn, number). Entries of items that are gone are dropped when they reach the top."""

    def __len__(self) -> int:
        return len(self._items)

    def get(self, n: int) -> QueuedItem | None:
        """Return the item with this number, if it is not done."""
        return self._items.get(n)

    def add(self, item: QueuedItem) -> None:
        """Add an item that waits."""
        self._items[item.n] = item
        self._waiting.setdefault(item.address, {})[item.n] = item
        heappush(self._by_turn, (item.turn, item.n))

    def remove(self, item: QueuedItem) -> None:
        """Remove an item that is done, or that could not be written."""
        del self._items[item.n]
        if self._handed_out.pop(item.n, None) is None:
            self._remove_waiting(item)

    def hand_out(self, item: QueuedItem) -> None:
        """Note that the item has a taker. Until it is removed it is due before all that wait."""
        item.attempts += 1
        if item.n not in self._handed_out:
            self._handed_out[item.n] = item
            self._remove_waiting(item)

    def due(self, prefer: int | None = None) -> QueuedItem | None:
        """Return the item that is to be handed out now: `prefer`, if that is not done, or by the order above."""
        if prefer is not None and (preferred := self._items.get(prefer)) is not None:
            return preferred
        for item in self._handed_out.values():
            return item
        while self._by_turn:
            turn, n = self._by_turn[0]
            found = self._items.get(n)
            if found is not None and found.turn == turn:  # a number may be used again after a write that was refused
                return found
            heappop(self._by_turn)
        return None

    def oldest_of(self, address: Address, after: int) -> QueuedItem | None:
        """Return the oldest item of the address that was not handed out and has a number above `after`."""
        waiting = self._waiting.get(address, {})
        return next((item for n, item in waiting.items() if n > after), None)

    def _remove_waiting(self, item: QueuedItem) -> None:
        """Remove an item from those that wait; addresses without any are forgotten."""
        waiting = self._waiting[item.address]
        del waiting[item.n]
        if not waiting:
            del self._waiting[item.address]
