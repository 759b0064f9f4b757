"""The queue of one lane: what was accepted and is not done, and whose turn it is.

Due is what was handed out already (its taker crashed, or takes several), then the lowest n + rank × AGEING. So within a rank
the oldest comes first; one that is a rank more urgent goes ahead of up to AGEING older ones; and nobody starves, since an item
is passed by at most rank × AGEING younger ones, however many come. It needs no clock, and a restart changes nothing about it.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from pegasus.messages import Address, InboundMessage
from pegasus.storage.volume import Span

MAX_RANK: Final = 9
AGEING: Final = 100
"""How many older items one goes ahead of for each rank that it is more urgent."""
MAIN: Final = "main"
"""The lane whose items the Main Agent thinks about, the only one in which ranks count."""


class Pending:
    """An accepted message that is not done. message: None if it is to be read back from `span`. turn: the lowest is next."""

    __slots__ = ("address", "attempts", "lane", "message", "n", "rank", "span", "turn")

    def __init__(
        self, n: int, lane: str, rank: int, address: Address, message: InboundMessage | None, span: Span
    ) -> None:
        self.n = n
        self.lane = lane
        self.rank = rank
        self.address = address
        self.message = message
        self.span = span
        self.turn = n + rank * AGEING if lane == MAIN else n
        self.attempts = 0


class Lane:
    """Pending items by number, those that were handed out by when, the others by whose turn it is, and by address."""

    __slots__ = ("_by_turn", "_handed", "_items", "_waiting")

    def __init__(self) -> None:
        self._items: dict[int, Pending] = {}
        self._handed: dict[int, Pending] = {}
        self._waiting: dict[Address, dict[int, Pending]] = {}
        self._by_turn: list[tuple[int, int]] = []  # with some that are gone

    def __len__(self) -> int:
        return len(self._items)

    def get(self, n: int) -> Pending | None:
        """The item, if it is not done."""
        return self._items.get(n)

    def add(self, pending: Pending) -> None:
        self._items[pending.n] = pending
        self._waiting.setdefault(pending.address, {})[pending.n] = pending
        heappush(self._by_turn, (pending.turn, pending.n))

    def remove(self, pending: Pending) -> None:
        del self._items[pending.n]
        if self._handed.pop(pending.n, None) is None:
            self._no_more_waiting(pending)

    def hand_out(self, pending: Pending) -> None:
        """Its taker has it, until it is removed."""
        pending.attempts += 1
        if pending.n not in self._handed:
            self._handed[pending.n] = pending
            self._no_more_waiting(pending)

    def due(self, prefer: int | None = None) -> Pending | None:
        """The item that is to be handed out now; `prefer` if it is not done."""
        if prefer is not None and (preferred := self._items.get(prefer)) is not None:
            return preferred
        for pending in self._handed.values():
            return pending
        while self._by_turn:
            turn, n = self._by_turn[0]
            found = self._items.get(n)
            if found is not None and found.turn == turn:
                return found
            heappop(self._by_turn)
        return None

    def oldest_of(self, address: Address, after: int) -> Pending | None:
        """The oldest item of the address that was not handed out, above `after`."""
        waiting = self._waiting.get(address, {})
        return next((pending for n, pending in waiting.items() if n > after), None)

    def _no_more_waiting(self, pending: Pending) -> None:
        waiting = self._waiting[pending.address]
        del waiting[pending.n]
        if not waiting:
            del self._waiting[pending.address]
