"""Items of the chats that this node owns: taken from the database, waiting in the queue, handed out, done.

The queue and the queries for items are those of the file engine (`item_queue`); here they hold the items of the keys that this node
owns, and no others. Which node takes a key is decided by who wants one: due keys are taken only while somebody here waits for a chat
and there is none. So a node whose agents are all at work leaves what is due to others.

What is handed out and what is done is in memory first. That an item is done is written a moment later, with others (`notes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

import attrs
import trio

from actors import Reply
from pegasus.messages import APART, Address, InboundMessage
from pegasus.observe import Activity, MessageDone
from pegasus.storage.database.calls import DatabaseCalls
from pegasus.storage.database.node import NodeLease
from pegasus.storage.database.notes import Notes
from pegasus.storage.database.ownership import OwnedKey, Ownership
from pegasus.storage.database.tables import Database, NewItem, StoredItem
from pegasus.storage.inbox import KEPT_LINE
from pegasus.storage.inbox_messages import CompleteItem, ItemDone, LaneDone, NextChat, NextItem, ReturnItem, TakeItem
from pegasus.storage.item_queue import ItemQueries, ItemQuery, ItemQueue, QueuedItem
from pegasus.storage.leases import Lease, LeaseLost, chat_owner
from pegasus.storage.messages import StorageError
from pegasus.wire import decode_object, from_wire

TAKEN_AT_ONCE: Final = 16
"""Keys that one call takes. One that finds no agent at once is kept from other nodes for GIVE_BACK_AFTER seconds."""
GIVE_BACK_AFTER: Final = 2.0
"""Seconds for which a chat without an agent stays with this node."""
DRAIN_PATIENCE: Final = 20.0
"""Seconds for which an item that is worked on may keep its chat here when everything is given back."""
_MAIN: Final = "main"


class OwnedItems:
    """The items of this node, and the keys that it owns.

    Example: `await items.take_lease("chat/web%3Ac1")` before the agent of that chat writes.
    """

    def __init__(
        self,
        database: Database,
        calls: DatabaseCalls,
        notes: Notes,
        clock: Callable[[], int],
        activity: Activity,
        *,
        on_unknown: Callable[[str], object],
        is_global: bool,
        hands_out: bool,
    ) -> None:
        """Make an empty queue. on_unknown: lets `release_unknown` be called when nobody else works on the key.

        is_global: conversations without a session of their own share one. The rest is as in `run_database_journal`.
        """
        self._database = database
        self._calls = calls
        self._notes = notes
        self._clock = clock
        self._activity = activity
        self._on_unknown = on_unknown
        self._is_global = is_global
        self._hands_out = hands_out
        self.queue = ItemQueue()
        """Items of the keys that this node owns."""
        self.ownership = Ownership(self._drop, activity)
        """The keys that this node owns."""
        self._queries = ItemQueries(self.queue, self._read_back)
        self._sign = trio.Event()
        """Set when a query has come or the items have changed."""
        self._has_agents_of_chats = False
        """Somebody runs agents of chats, and says with `NextChat` when there is room for one more."""
        self._ends: dict[int, list[Reply[None]]] = {}
        """Queries for the end of items, by their numbers."""
        self._lanes: list[LaneDone] = []
        """Queries for the end of all items of a lane."""
        self._draining_since = 0.0
        """Trio's clock when this node was first seen to be asked for everything back; 0 = it was not."""

    def key_of(self, address: Address, *, is_apart: bool) -> str:
        """Return the owner key of a conversation. is_apart: guests are heard in it."""
        return _MAIN if self._is_global and not (is_apart or address.is_separate) else chat_owner(address)

    # ------------------------------------------------------------------ what the engine is asked

    def ask(self, query: ItemQuery) -> bool:
        """Answer a query as soon as that is possible. Return whether a chat may have to be taken for it."""
        match query:
            case ItemDone(reply, n) if self._notes.is_done(n):
                reply.send(None)
            case ItemDone(reply, n):
                self._ends.setdefault(n, []).append(reply)
            case LaneDone():
                self._lanes.append(query)
            case TakeItem(reply) if query.lease is not None and not self.ownership.holds(query.lease):
                reply.fail(LeaseLost(f"somebody else has the lease of {query.lease.owner}"))
            case _:
                self._has_agents_of_chats = self._has_agents_of_chats or isinstance(query, NextChat)
                self._queries.ask(query)
                self._sign.set()
                # An agent that waits for the items of its chat owns that already.
                return isinstance(query, NextChat) or (isinstance(query, NextItem) and query.address is None)
        return False

    def complete(self, note: CompleteItem) -> None:
        """Take an item out of the queue, and note that it is done. One of another node, or under an old lease, stays as it is."""
        item = self.queue.find(note.n)
        if item is None:
            return
        key = self._key_of_item(item)
        # Without a lease of the asker it is that of the node: if another node has taken the chat, the item is that node's.
        lease = note.lease or Lease(key, self.ownership.keys[key].token)
        if not self.ownership.holds(lease):
            return
        now = self._clock()
        self._notes.complete(note.n, lease, now)
        self._remove(item)
        self._activity.message_done(
            MessageDone(n=item.n, address=item.address, began=item.at, ended=now, is_internal=item.is_internal)
        )

    def take_back(self, note: ReturnItem) -> None:
        """Note that the taker of an item was stopped, which is no attempt that has failed."""
        if note.lease is None or self.ownership.holds(note.lease):
            self.queue.take_back(note.n)

    def discarded(self, numbers: Collection[int]) -> None:
        """Take items out of the queue that are done by a report in their place."""
        for n in numbers:
            if (item := self.queue.item(n)) is not None:
                self._remove(item)

    def accepted(self, n: int, item: NewItem, previous: int) -> bool:
        """Add an item that was accepted just now, if this node owns its key and misses none before it. Return False if not."""
        owned = self.ownership.keys.get(item.key)
        if owned is None or owned.newest < previous:
            return False
        self._add(StoredItem(n, item))
        return True

    async def take_lease(self, node: NodeLease, key: str) -> Lease:
        """Take a new lease of a key, and own it. Raises LeaseLost if another node owns it, or this one gives everything back."""
        if not node.is_alive:
            raise LeaseLost(f"this node has no lease at present, and takes none of {key}")
        if node.is_draining and key not in self.ownership.keys:
            raise LeaseLost(f"this node gives everything back, and takes no lease of {key}")
        return await self._claim(node, key)

    async def _claim(self, node: NodeLease, key: str) -> Lease:
        """Take a new lease of a key; see `take_lease`."""
        if (owned := self.ownership.keys.get(key)) is not None:
            # From here on the old lease ends nothing any more. What it has ended is written before a new token makes that void.
            owned.token = 0
        try:
            await self._notes.flush()
            id = node.id
            lease = await self._calls.until_done(lambda: self._database.claim(id, key))
        except StorageError:  # the asker has left; a claim that was done, or is done later, is found by the next look
            self.ownership.lose([key])
            raise
        # After a pause the answer may be read when the registration that it was given to has ended, and another node owns the key.
        if id == node.id:
            if lease is None:
                self.ownership.lose([key])
                raise LeaseLost(f"another node owns {key}")
            if self.ownership.gain(lease):
                await self._load([key])
            if node.is_alive and self.ownership.holds(lease):
                return lease
        raise LeaseLost(f"this node does not own {key} any more")

    async def give_back(self, node: NodeLease, lease: Lease) -> None:
        """Let other nodes have a key whose lease nobody here uses any more."""
        await self._release(node, [lease])

    async def release_unknown(self, node: NodeLease, key: str) -> None:
        """Let other nodes have a key that this node owns in the database, unless it knows of that by now."""
        if key not in self.ownership.keys and node.is_alive:
            with suppress(LeaseLost):
                await self._release(node, [await self._claim(node, key)])

    # ------------------------------------------------------------------ looking

    async def hand_out(self) -> None:
        """Answer queries for items, for ever."""
        while True:
            await self._sign.wait()
            self._sign = trio.Event()
            if self._hands_out:
                await self._queries.answer()

    async def look(self, node: NodeLease) -> None:
        """Take what is due and wanted here, load items that came from other nodes, and give back what nobody here wants."""
        if not node.is_alive:
            return
        id = node.id
        if not node.is_draining:
            self._draining_since = 0.0
            if (wanted := self._wanted_kinds()) and self._hands_out:
                is_for_commands = self._wants_commands_only()
                leases = await self._database.take(id, wanted, TAKEN_AT_ONCE, control_only=is_for_commands)
                if id != node.id:
                    return
                await self._load([lease.owner for lease in leases if self.ownership.gain(lease)])
        owned = await self._database.newest_items(id)
        if id != node.id:
            return
        # A claim whose caller had given up was done late: what is noted under the lease that this node has is without effect.
        self.ownership.lose([lease.owner for lease in owned if self.ownership.is_behind(lease)])
        newest = {lease.owner: n for lease, n in owned.items()}
        for key in sorted(newest.keys() - self.ownership.keys.keys()):
            # The answer to a call that has taken it was lost.
            self._on_unknown(key)
        behind = [
            key for key, n in newest.items() if key in self.ownership.keys and self.ownership.keys[key].newest < n
        ]
        await self._load(behind)
        await self._give_back(node)

    async def look_for_ends(self) -> None:
        """Answer who waits for the end of items that other nodes work on."""
        for n, replies in tuple(self._ends.items()):
            if all(reply.abandoned for reply in replies):
                del self._ends[n]
        elsewhere = [n for n in self._ends if not self.queue.is_waiting(n)]
        if elsewhere:
            is_open = await self._database.open_items(elsewhere)
            for n in elsewhere:
                if n not in is_open:
                    self._announce_end(n)
        self._lanes = [query for query in self._lanes if not query.reply.abandoned]
        for query in tuple(self._lanes):
            await self._notes.flush()
            if not await self._database.waiting(None, query.lane, None, None):
                query.reply.send(None)
                self._lanes.remove(query)

    def _wanted_kinds(self) -> frozenset[str]:
        """Return the kinds of keys whose items somebody here waits for."""
        kinds: set[str] = set()
        for query in self._queries.waiting:
            if isinstance(query, NextChat):
                kinds.add("chat")
            elif isinstance(query, NextItem) and query.address is None:
                kinds |= {"chat", _MAIN} if query.apart is None else {_MAIN}
        # Until somebody says that there is room for agents, everything is taken.
        return frozenset(kinds if self._has_agents_of_chats else kinds | {"chat", _MAIN})

    def _wants_commands_only(self) -> bool:
        """Return whether there is room for the commands of chats, and for nothing else."""
        queries = [query for query in self._queries.waiting if isinstance(query, NextChat)]
        return bool(queries) and all(query.lanes == ("control",) for query in queries)

    async def _load(self, keys: Collection[str]) -> None:
        """Load the items of these keys that are not in memory."""
        seen = {key: self.ownership.keys[key].newest for key in keys if key in self.ownership.keys}
        if seen:
            for stored in await self._calls.until_done(lambda: self._database.items(seen)):
                self._add(stored)

    async def _give_back(self, node: NodeLease) -> None:
        """Give back chats that have no agent; and everything, if that was asked for.

        A node that gives everything back lets items go on for a while that are being worked on.
        """
        now = trio.current_time()
        if node.is_draining:
            self._draining_since = self._draining_since or now
            is_over = now > self._draining_since + DRAIN_PATIENCE
            at_work = {self._key_of_item(item) for item in self.queue if item.attempts} if not is_over else set()
            unwanted = self.ownership.keys.keys() - at_work
        elif self.ownership.running is None:
            return
        else:
            unwanted = {
                key
                for key, owned in self.ownership.keys.items()
                if key.startswith("chat/") and key not in self.ownership.running and now > owned.since + GIVE_BACK_AFTER
            }
        if unwanted:
            await self._release(node, [Lease(key, self.ownership.keys[key].token) for key in sorted(unwanted)])

    async def _release(self, node: NodeLease, leases: Collection[Lease]) -> None:
        """Let other nodes have these keys, once it is written what is done. One that was leased anew meanwhile is wanted again."""
        await self._notes.flush()
        unused = [lease for lease in leases if self.ownership.holds(lease)]
        self.ownership.lose([lease.owner for lease in unused])
        await self._calls.until_done(lambda: self._database.give_back(node.id, unused))

    # ------------------------------------------------------------------ the queue

    def _key_of_item(self, item: QueuedItem) -> str:
        return self.key_of(item.address, is_apart=item.is_apart)

    def _add(self, stored: StoredItem) -> None:
        """Add an item of a key that this node owns to the queue, unless it is there already or done."""
        n, new = stored.n, stored.item
        owned = self.ownership.keys.get(new.key)
        if owned is None or owned.newest >= n:
            return
        owned.newest = n
        owned.items.add(n)
        owned.since = trio.current_time()
        item = QueuedItem(n, new.lane, new.priority, new.address, 0, is_owners=new.is_owners, sender=new.sender)
        item.is_apart, item.at, item.is_internal = new.is_apart, new.at, new.is_internal
        item.message = _message_of(stored) if len(new.message) <= KEPT_LINE else None
        self.queue.add(item)
        self._queries.note_change(item)
        self._activity.message_picked_up(new.address.type, new.at)
        self._sign.set()

    async def _read_back(self, item: QueuedItem) -> InboundMessage | None:
        """Return a message that is too large to be held while it waits; None if it is not there any more."""
        key = self._key_of_item(item)
        for stored in await self._calls.until_done(lambda: self._database.items({key: item.n - 1})):
            if stored.n == item.n:
                return _message_of(stored)
        self._remove(item)
        return None

    def _remove(self, item: QueuedItem) -> None:
        """Take an item that is done out of the queue."""
        self.queue.remove(item.n)
        self._queries.note_change(item)
        if (owned := self.ownership.keys.get(self._key_of_item(item))) is not None:
            owned.items.discard(item.n)
            owned.since = trio.current_time()
        self._announce_end(item.n)
        self._sign.set()

    def _announce_end(self, n: int) -> None:
        for reply in self._ends.pop(n, ()):
            reply.send(None)

    def _drop(self, owned: OwnedKey) -> None:
        """Forget the items of a key that this node owns no more. They are not done."""
        for n in owned.items:
            self.queue.remove(n)


def _message_of(stored: StoredItem) -> InboundMessage:
    """Return the message of an item, as whoever works on it sees it."""
    message = from_wire(decode_object(stored.item.message), InboundMessage)
    if stored.discarded:
        message = attrs.evolve(message, metadata={**message.metadata, "discarded": stored.discarded})
    if stored.item.is_apart and message.metadata.get(APART) is not True:
        message = attrs.evolve(message, metadata={**message.metadata, APART: True})
    return message
