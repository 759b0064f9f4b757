"""Queries for items of the inbox that were not answered yet.

Nothing is handed out that is not on disk. There is one taker for each lane, or for each lane of an address: a second
query comes from a new incarnation of that actor, whose predecessor has crashed; it takes over, and the old query fails
instead of swallowing an item.
"""

from __future__ import annotations

from typing import TypeAlias

from pegasus.messages import InboundMessage
from pegasus.storage.inbox import InboxLog, QueuedItem, message_in
from pegasus.storage.messages import Item, ItemDone, Newer, NextChat, NextItem, StorageError, Take
from pegasus.storage.record_log import Report
from pegasus.storage.volume import Disk, Volume

ItemQuery: TypeAlias = NextItem | NextChat | Newer | Take | ItemDone

_ORDER = (Take, NextItem, NextChat, Newer, ItemDone)
"""Order in which queries are answered. `Take` comes before `NextItem`, so that an item which is asked for by its number is
not handed to somebody else first. `Newer` comes after both, because it only shows items that nobody has taken."""


class ItemQueries:
    """Queries for items that were not answered yet.

    Handing out is not durable. An item counts as handed out until it is done; a taker that crashes gets it again. An
    asker that has left (its task was cancelled) is skipped, and nothing counts as handed out to it.

    >>> queries.keep(NextItem(reply))
    >>> await queries.answer()
    """

    def __init__(self, disk: Disk, log: InboxLog, report: Report) -> None:
        self._disk = disk
        """Reads messages back that are not held in memory."""
        self._log = log
        """The items; only who has taken an item is changed."""
        self._report = report
        """Logs a line that is not in its file any more."""
        self.open: list[ItemQuery] = []
        """Queries in the order in which they came."""
        self.is_due = False
        """A query has come, or the items have changed, since the last `answer`: it may find something."""

    def keep(self, query: ItemQuery) -> None:
        """Keep a query until the next `answer`. An earlier one that it replaces fails."""
        for other in self.open:
            if _is_replaced(other, query):
                self.open.remove(other)
                other.reply.fail(StorageError(f"another {type(other).__name__} has taken the place of this one"))
                break
        self.open.append(query)
        self.is_due = True

    async def answer(self) -> None:
        """Answer the queries that can be answered now, to be called after each batch while `is_due`."""
        queries, self.open, self.is_due = self.open, [], False
        for query in sorted(queries, key=lambda query: _ORDER.index(type(query))):
            try:
                if not query.reply.abandoned and not await self._answer(query):
                    self.open.append(query)
            except StorageError as error:
                query.reply.fail(error)

    async def _answer(self, query: ItemQuery) -> bool:
        """Answer with the item that is asked for. Return False if there is none, and the asker waits for one."""
        if isinstance(query, ItemDone):
            if self._log.is_waiting(query.n):
                return False
            query.reply.send(None)
            return True
        if isinstance(query, NextChat):
            chats = (self._log.due_chat(lane, query.except_for) for lane in query.lanes)
            if (address := next(filter(None, chats), None)) is not None:
                query.reply.send(address)
            return address is not None
        while (item := self._find(query)) is not None:
            message = item.message or await self._read(item)
            if message is not None:
                if not isinstance(query, Newer) and not query.reply.abandoned:
                    self._log.hand_out(item)
                query.reply.send(Item(item.n, message, item.attempts, item.priority))
                return True
        if isinstance(query, NextItem) or (isinstance(query, Newer) and query.wait):
            return False
        query.reply.send(None)
        return True

    def _find(self, query: NextItem | Newer | Take) -> QueuedItem | None:
        match query:
            case NextItem():
                return self._log.due(query.lane, query.address)
            case Take():
                return self._log.item(query.n)
            case Newer():
                return self._log.newer(query.address, query.after)

    async def _read(self, item: QueuedItem) -> InboundMessage | None:
        """Read the message of an item back, None if it is not in the file any more: somebody has edited that.

        Then it is reported and the item is done, so that it does not stop what comes after it.
        """
        [line] = await self._disk.run(Volume.read_spans, self._log.path, (item.span,))
        try:
            return message_in(line)
        except (ValueError, KeyError, TypeError) as error:
            self._report(f"{self._log.path}: item {item.n} was accepted but is not in the file any more ({error})")
            self._log.done(item.n)
            return None


def _is_replaced(query: ItemQuery, by: ItemQuery) -> bool:
    """Return whether a later query of the same kind takes the place of this one."""
    match query, by:
        case NextItem(_, lane, address), NextItem(_, by_lane, by_address):
            return (lane, address) == (by_lane, by_address)
        case NextChat(), NextChat():
            return True
    return False
