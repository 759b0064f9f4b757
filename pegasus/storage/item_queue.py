"""The queue: items that are not done, which of them is next, and the queries that wait for one.

**Order of a lane.** Due first is what was handed out already: its taker has crashed, or takes several items at a time.
After those come the items of owners, then those of others, so that nobody can keep an owner from an answer, however much they
send. While both wait, every OWNERS_IN_A_ROW + 1st item is one of the others, so that a busy owner keeps nobody out either.

Within a side comes the item with the lowest *turn*, which is `n + priority × AGEING`:

* among items of the same priority the oldest comes first;
* an item that is one priority more urgent goes ahead of up to AGEING older ones;
* no item waits for ever, since at most `priority × AGEING` younger ones can pass it, however many come.

The rule needs no clock. In other lanes than "main" the priority does not count. A lane holds 2,000 items at most, so looking
through all of them is quick enough to find the one that is due.

**Handing out.** Nothing is handed out that is not on disk. There is one taker for each lane, or for each lane of an address. A second
query comes from a new incarnation of that actor, whose predecessor has crashed. It takes the place of the old query, which fails, so
that no item is given to an actor that is gone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Set
from itertools import chain, count
from typing import Final, TypeAlias

import attrs

from pegasus.messages import Address, InboundMessage
from pegasus.storage.inbox_messages import Item, ItemDone, LaneDone, NextChat, NextItem, NextItemOfAddress, TakeItem
from pegasus.storage.messages import StorageError
from pegasus.storage.volume import Span

OWNERS_IN_A_ROW: Final = 4
"""Items of owners that are handed out one after the other while others wait."""
AGEING: Final = 100
"""Number of older items that one goes ahead of for each step of priority."""
MAIN: Final = "main"
"""The lane whose items the Main Agent thinks about, and the only one in which priorities count."""

UNWRITTEN: Final = Span(0, 0)
"""Place of a record that is not written yet."""

ItemQuery: TypeAlias = NextItem | NextChat | NextItemOfAddress | TakeItem | ItemDone | LaneDone

_ORDER = (TakeItem, NextItem, NextChat, NextItemOfAddress, ItemDone, LaneDone)
"""Order in which queries are answered. `TakeItem` comes before `NextItem`, so that an item which is asked for by its number is
not handed to somebody else first. `NextItemOfAddress` comes after both, because it only shows items that nobody has taken."""


@attrs.define(eq=False, repr=False)
class QueuedItem:
    """An accepted message that is not done.

    Example: `QueuedItem(12, "main", 3, Address("web", "c1"), digest, span)`, made by the inbox for an accepted message.
    """

    n: int
    """Number of the item, from 1."""
    lane: str
    """Queue that it waits in: "main" or "control"."""
    priority: int
    """0 (most urgent) to 9."""
    address: Address
    """Conversation that it comes from."""
    digest: int
    """Stands for the sender's id."""
    span: Span = UNWRITTEN
    """Place of its record."""
    message: InboundMessage | None = None
    """None if it is to be read back from `span`."""
    attempts: int = 0
    """The number of times that it was handed out by this process."""
    handed_out: float = math.inf
    """Place among the items that were handed out, in the order in which they first were."""
    is_owners: bool = False
    """True for the item of an owner."""
    sender: str = ""
    """The sender, as `InboundMessage.account` names them."""
    discards: tuple[int, ...] = ()
    """Numbers of items that it takes the place of (`Discard`)."""
    is_apart: bool = False
    """True if it belongs to a conversation in which guests are heard."""
    hears: str = ""
    """Account that `Directory.guest_of` returns for its address when it is written."""
    at: int = 0
    """Wall clock when it was accepted, ms; 0 if a file from before does not say."""
    is_internal: bool = False
    """True for a report of the agent itself."""

    @property
    def has_own_session(self) -> bool:
        """Return whether its conversation is one of its own also where all others share one."""
        return self.is_apart or self.address.is_separate

    @property
    def turn(self) -> int:
        """Number that orders the items of one side: the lowest is next."""
        return self.n + self.priority * AGEING if self.lane == MAIN else self.n

    @property
    def order(self) -> tuple[float, bool, int]:
        """Sort key of the order of the lane: what was handed out, then owners, then others."""
        return self.handed_out, not self.is_owners, self.turn


class ItemQueue:
    """The items that are not done, by lane and address. The inbox adds and removes them.

    >>> queue = ItemQueue()
    >>> queue.add(QueuedItem(1, "main", 0, Address("web", "c1"), digest, span))
    >>> queue.hand_out(queue.due("main"))
    >>> queue.remove(1)
    """

    def __init__(self) -> None:
        self.sizes: Counter[tuple[str, bool]] = Counter()
        """Number of items by lane and by whether they are an owner's."""
        self._lanes: dict[str, dict[int, QueuedItem]] = {}
        """The items of each lane by number, oldest first."""
        self._by_address: dict[tuple[str, Address], dict[int, QueuedItem]] = {}
        """The same items by lane and address, oldest first."""
        self._hand_outs = count()
        """Numbers for `QueuedItem.handed_out`."""
        self._owners_in_a_row: Counter[str] = Counter()
        """Items of owners that were handed out since the last one of others, by lane. A restart begins anew."""

    def __iter__(self) -> Iterator[QueuedItem]:
        """Iterate over the items of all lanes."""
        return chain.from_iterable(items.values() for items in self._lanes.values())

    def add(self, item: QueuedItem) -> None:
        """Add an item, behind those of its lane."""
        self._lanes.setdefault(item.lane, {})[item.n] = item
        self._by_address.setdefault((item.lane, item.address), {})[item.n] = item
        self.sizes[item.lane, item.is_owners] += 1

    def remove(self, n: int) -> QueuedItem | None:
        """Remove the item with this number and return it; None if there was none."""
        for items in self._lanes.values():
            if (item := items.pop(n, None)) is not None:
                self.sizes[item.lane, item.is_owners] -= 1
                of_address = self._by_address[item.lane, item.address]
                del of_address[n]
                if not of_address:
                    del self._by_address[item.lane, item.address]
                return item
        return None

    # ------------------------------------------------------------------ asking

    def of(self, lane: str, address: Address | None = None) -> Collection[QueuedItem]:
        """Return the items of a lane; of this address only, None = of all."""
        if address is None:
            return self._lanes.get(lane, {}).values()
        return self._by_address.get((lane, address), {}).values()

    def count_waiting(
        self,
        address: Address | None = None,
        lane: str | None = None,
        priority: int | None = None,
        apart: bool | None = None,
    ) -> int:
        """Return the number of items that are not done.

        address, lane: only those of this one; None = of all. priority: only those that are as urgent as that, or more; None = all.
        apart: only those of conversations with a session of their own, or only others; None = both.
        """
        lanes = [self.of(name, address) for name in (self._lanes if lane is None else [lane])]
        if priority is None and apart is None:
            return sum(map(len, lanes))
        return sum(
            (priority is None or item.priority <= priority) and apart in (None, item.has_own_session)
            for items in lanes
            for item in items
        )

    def due(self, lane: str, address: Address | None = None, apart: bool | None = None) -> QueuedItem | None:
        """Return the item that is to be handed out now, by the order of the lane.

        address: only those of this one; None = of any. apart: as in `count_waiting`.
        """
        items = [item for item in self.of(lane, address) if apart in (None, item.has_own_session)]
        first = min(items, key=lambda item: item.order, default=None)
        if first is None or first.handed_out < math.inf or self._owners_in_a_row[lane] < OWNERS_IN_A_ROW:
            return first
        others = (item for item in items if not item.is_owners)
        return min(others, key=lambda item: item.turn, default=first)

    def due_chat(self, lane: str, except_for: Set[Address], apart: bool | None = None) -> Address | None:
        """Return the address of the item that would be handed out first if these addresses had none. apart: as in `count_waiting`."""
        items = [
            item for item in self.of(lane) if item.address not in except_for and apart in (None, item.has_own_session)
        ]
        first = min(items, key=lambda item: item.order, default=None)
        return None if first is None else first.address

    def newer(self, address: Address, after: int, apart: bool | None = None) -> QueuedItem | None:
        """Return the oldest item of lane "main" that waits, comes from this address and has a number above `after`.

        apart: only one of a conversation in which guests are heard, or only another; None = both.
        """
        items = (item for item in self.of(MAIN, address) if apart in (None, item.is_apart))
        return next((item for item in items if item.n > after and item.handed_out == math.inf), None)

    def discardable(
        self, address: Address, before: int, priority: int, senders: Collection[str] | None, *, apart: bool
    ) -> list[int]:
        """Return the numbers of the items that a `Discard` drops. senders: only those of these; None = of all."""
        return [
            item.n
            for item in self.of(MAIN, address)
            if item.n < before and item.handed_out == math.inf and item.priority <= priority and item.is_apart is apart
            if senders is None or (item.sender in senders and not item.is_owners)
        ]

    def item(self, n: int) -> QueuedItem | None:
        """Return the item of lane "main" with this number, if it is not done."""
        return self._lanes.get(MAIN, {}).get(n)

    def is_waiting(self, n: int) -> bool:
        """Return whether the item with this number, of any lane, is not done."""
        return self.find(n) is not None

    def find(self, n: int) -> QueuedItem | None:
        """Return the item of any lane with this number, if it is not done."""
        return next((lane[n] for lane in self._lanes.values() if n in lane), None)

    def hand_out(self, item: QueuedItem) -> None:
        """Note that the item has a taker. Until it is done it is due before all that wait."""
        item.attempts += 1
        if item.handed_out == math.inf:
            self._owners_in_a_row[item.lane] = self._owners_in_a_row[item.lane] + 1 if item.is_owners else 0
        item.handed_out = min(item.handed_out, next(self._hand_outs))

    def take_back(self, n: int) -> None:
        """Note that the last taker of an item was stopped, which counts as no attempt. The item stays due before all that wait."""
        if (item := self.item(n)) is not None and item.attempts:
            item.attempts -= 1


class ItemQueries:
    """Queries for items that were not answered yet.

    Handing out is not durable. An item counts as handed out until it is done; a taker that crashes gets it again. An
    asker that has left (its task was cancelled) is skipped, and nothing counts as handed out to it.

    >>> queries.ask(NextItem(reply))
    >>> await queries.answer()
    """

    def __init__(self, queue: ItemQueue, read: Callable[[QueuedItem], Awaitable[InboundMessage | None]]) -> None:
        self._queue = queue
        """The items; only who has taken an item is changed."""
        self._read = read
        """Reads a message back that is not held in memory. None: it is not in its file any more, and the item is done."""
        self._open: list[ItemQuery] = []
        """Queries in the order in which they came."""
        self._new: list[ItemQuery] = []
        """Queries that have come since the last `answer`."""
        self._changed: set[Address | None] = set()
        """Addresses whose items have changed, or that somebody has asked about, since the last `answer`; None: about any."""

    @property
    def has_changed(self) -> bool:
        """Return whether `answer` may find something."""
        return bool(self._changed)

    @property
    def waiting(self) -> list[ItemQuery]:
        """Return the queries that somebody waits for."""
        return [query for query in (*self._open, *self._new) if not query.reply.abandoned]

    def ask(self, query: ItemQuery) -> None:
        """Take a query for the next `answer`."""
        self._new = [other for other in self._new if not other.reply.abandoned]
        self._new.append(query)
        self._changed.add(getattr(query, "address", None))

    def note_change(self, item: QueuedItem) -> None:
        """Note that an item is in the queue, or is done."""
        self._changed.add(item.address)

    async def answer(self) -> None:
        """Answer the queries that can be answered now, and keep the others. An earlier query that is replaced fails.

        To be called after each batch, if something has changed. With an agent for each chat there are many queries, each about the
        items of its chat; only those are looked at whose items have changed.
        """
        new, self._new = self._new, []
        for query in new:
            self._keep(query)
        changed, self._changed = {None, *self._changed}, set()
        due = [query for query in self._open if getattr(query, "address", None) in changed or query.reply.abandoned]
        for query in sorted(due, key=lambda query: _ORDER.index(type(query))):
            try:
                is_open = not query.reply.abandoned and not await self._answer(query)
            except StorageError as error:
                query.reply.fail(error)
                is_open = False
            if not is_open:
                self._open.remove(query)

    def _keep(self, query: ItemQuery) -> None:
        """Add a query to the open ones. An earlier one that it replaces fails."""
        for other in self._open:
            if _is_replaced(other, query):
                self._open.remove(other)
                other.reply.fail(StorageError(f"another {type(other).__name__} has taken the place of this one"))
                break
        self._open.append(query)

    async def _answer(self, query: ItemQuery) -> bool:
        """Answer with the item that is asked for. Return False if there is none, and the asker waits for one."""
        if isinstance(query, ItemDone | LaneDone):
            is_open = self._queue.is_waiting(query.n) if isinstance(query, ItemDone) else self._queue.of(query.lane)
            if not is_open:
                query.reply.send(None)
            return not is_open
        if isinstance(query, NextChat):
            chats = (self._queue.due_chat(lane, query.except_for, query.apart) for lane in query.lanes)
            if (address := next(filter(None, chats), None)) is not None:
                query.reply.send(address)
            return address is not None
        while (item := self._find(query)) is not None:
            message = item.message or await self._read(item)
            if message is not None:
                if not isinstance(query, NextItemOfAddress) and not query.reply.abandoned:
                    self._queue.hand_out(item)
                query.reply.send(Item(item.n, message, item.attempts, item.priority))
                return True
        if isinstance(query, NextItem) or (isinstance(query, NextItemOfAddress) and query.wait):
            return False
        query.reply.send(None)
        return True

    def _find(self, query: NextItem | NextItemOfAddress | TakeItem) -> QueuedItem | None:
        match query:
            case NextItem():
                return self._queue.due(query.lane, query.address, query.apart)
            case TakeItem():
                item = self._queue.item(query.n)
                return item if item is None or query.apart in (None, item.has_own_session) else None
            case NextItemOfAddress():
                return self._queue.newer(query.address, query.after, query.apart)


def _is_replaced(query: ItemQuery, by: ItemQuery) -> bool:
    """Return whether a later query of the same kind takes the place of this one."""
    match query, by:
        case NextItem(), NextItem():
            return (query.lane, query.address, query.apart) == (by.lane, by.address, by.apart)
        case NextChat(), NextChat():
            return True
    return False
