"""Accepting messages, and finding the channels of replies: what depends on the addresses that are known.

Where files have one directory in memory, nodes share a table. So a reply that goes elsewhere than where its message came from is
resolved by what the database knows. Who was heard at an address decides which conversation a message belongs to. A node remembers
that from the last message and says so with the next one; if another node knows better, the message is placed anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from pegasus.messages import APART, Address, ChannelInfo, InboundMessage
from pegasus.observe import Activity
from pegasus.storage.database.calls import DatabaseCalls
from pegasus.storage.database.items import OwnedItems
from pegasus.storage.database.node import NodeLease
from pegasus.storage.database.notes import Notes
from pegasus.storage.database.tables import Database, Heard, NewItem, dedupe_of
from pegasus.storage.directory import MAX_NAMED, Directory, own_channel, place, resolve
from pegasus.storage.inbox import is_from_owner
from pegasus.storage.inbox_messages import MAX_PRIORITY, Accept, Accepted, Discard, Overloaded
from pegasus.storage.item_queue import MAIN
from pegasus.storage.journal import NOTICE_PRIORITY
from pegasus.storage.messages import Post, Unroutable
from pegasus.storage.outbox import GIVEN_UP_AFTER_MS, GIVEN_UP_DAYS, given_up_item
from pegasus.wire import encode_json, to_wire

T = TypeVar("T")

GIVEN_UP_AT_ONCE: Final = 100
"""Addresses whose old replies are given up at once; others follow at the next time."""
MOST_ALIKE: Final = 100
"""Addresses with one id among which a reply is resolved."""


class SharedInbox:
    """The inbox of all nodes, and the addresses that they know.

    Example: `await inbox.accept(Accept(reply, message))` is `Accepted(12, duplicate=False)`.
    """

    def __init__(
        self,
        database: Database,
        calls: DatabaseCalls,
        node: NodeLease,
        items: OwnedItems,
        notes: Notes,
        clock: Callable[[], int],
        activity: Activity,
        max_waiting: int,
        on_due: Callable[[], object],
        until_connected: Callable[[], Awaitable[None]],
    ) -> None:
        """Make an inbox that knows no address yet. on_due: called when an item was accepted that is not in the queue.

        until_connected: waits until the database knows the connections of which this node was told. The rest is as in
        `run_database_journal`.
        """
        self._database = database
        self._calls = calls
        self._node = node
        self._items = items
        self._notes = notes
        self._clock = clock
        self._activity = activity
        self._max_waiting = max_waiting
        self._on_due = on_due
        self._until_connected = until_connected
        self._directory = Directory()
        """Addresses with who was heard there, as far as this node knows."""

    async def accept(self, request: Accept) -> Accepted | Overloaded:
        """Accept a message. Raises ValueError and TypeError for one that cannot be accepted."""
        if not 0 <= request.priority <= MAX_PRIORITY:
            raise ValueError(f"priority {request.priority!r} is not between 0 and {MAX_PRIORITY}")
        sender = request.sender or request.message.account
        is_owners = is_from_owner(request.priority, marked=request.owner)
        new = partial(self._new_item, request.message, request.lane, request.priority, sender, request.max_of_sender)
        return await self._accept(partial(new, is_owners=is_owners))

    async def give_up(self, now: int) -> list[str]:
        """Report replies that nobody has fetched for too long, one item for each address, then take them for acknowledged.

        Return what was done, for the log. now: wall clock, ms. Several nodes may do it: the report has an id. While the inbox has no
        room, the replies stay.
        """
        done: list[str] = []
        before = now - GIVEN_UP_AFTER_MS
        for stored in await self._calls.until_done(lambda: self._database.unfetched(before, GIVEN_UP_AT_ONCE)):
            newest, address = stored.message, stored.message.channel.address
            numbers = await self._calls.until_done(partial(self._database.numberings, [address]))
            number = newest.seq - numbers[address].acknowledged
            report = given_up_item(newest, number)
            new = partial(self._new_item, report, MAIN, NOTICE_PRIORITY, report.account, is_owners=False)
            if isinstance(await self._accept(new), Accepted):
                self._notes.acknowledge(address, newest.seq)
                days = f"nobody acknowledged them for {GIVEN_UP_DAYS} days"
                done.append(f"{number} replies to {address} were dropped: {days}")
        return done

    async def _accept(self, new: Callable[[], NewItem]) -> Accepted | Overloaded:

        async def accept(item: NewItem) -> Accepted | Overloaded | Heard:
            answer = await self._database.accept(self._node.id, item, self._max_waiting)
            if isinstance(answer, Overloaded | Heard):
                return answer
            if not answer.duplicate:
                self._activity.message_accepted(item.address.type, is_internal=item.is_internal)
                if not self._items.accepted(answer.n, item, answer.previous):
                    self._on_due()
            return Accepted(answer.n, answer.duplicate)

        answer: Accepted | Overloaded = await self._until_placed(new, accept)
        if isinstance(answer, Overloaded):
            self._activity.failed("inbox", "overloaded")
        return answer

    async def discard(self, request: Discard) -> int | None:
        """Drop items and accept a report in their place. Raises LeaseLost."""
        await self._notes.flush()
        senders = None if request.owner else (request.report.account,)

        async def discard(report: NewItem) -> int | Heard | None:
            queue, address = self._items.queue, report.address
            spared = [item.n for item in queue.of(MAIN, address) if item.attempts]
            answer = await self._database.discard(
                self._node.id, report, request.before, request.priority, senders, spared, request.lease
            )
            # None: it was dropped before, perhaps by a call whose answer was lost.
            if not isinstance(answer, Heard) and answer != 0:
                self._items.discarded(
                    queue.discardable(address, request.before, request.priority, senders, apart=report.is_apart)
                )
                self._on_due()
            return answer

        report, priority = request.report, request.report_priority
        is_owners = is_from_owner(priority, marked=request.owner)
        return await self._until_placed(
            partial(self._new_item, report, MAIN, priority, report.account, is_owners=is_owners), discard
        )

    async def _until_placed(self, make: Callable[[], NewItem], call: Callable[[NewItem], Awaitable[T | Heard]]) -> T:
        """Return the answer of a call with an item that was placed by who was really heard at its address."""
        while True:
            item = make()
            answer = await self._calls.until_done(partial(call, item))
            if not isinstance(answer, Heard):
                self._directory.add(item.address)
                self._directory.note_heard(item.address, item.hears)
                return answer
            self._directory.note_heard(item.address, answer.heard)

    def _new_item(
        self, message: InboundMessage, lane: str, priority: int, sender: str, max_of_sender: int = 0, *, is_owners: bool
    ) -> NewItem:
        address = message.channel.address
        heard = self._directory.guest_of(address)
        message, hears = place(message, heard, is_owners=is_owners)
        is_apart = message.metadata.get(APART) is True
        return NewItem(
            self._items.key_of(address, is_apart=is_apart),
            address,
            dedupe_of(address, message.id),
            encode_json(to_wire(message)),
            lane,
            priority,
            self._clock(),
            is_owners,
            sender,
            max_of_sender,
            is_apart,
            message.is_internal,
            heard,
            hears,
        )

    # ------------------------------------------------------------------ addresses

    async def newest(self) -> tuple[Address, ...]:
        """Return the addresses that were seen last."""
        found = await self._calls.until_done(lambda: self._database.addresses(None, MAX_NAMED))
        return tuple(known.address for known in found)

    async def route(self, post: Post) -> ChannelInfo | Unroutable:
        """Return the channel that a reply goes to, or the reason why there is none; see `directory`."""
        own = own_channel(post) if post.to is None and post.channel_id else post.to
        if own is not None:
            return own
        await self._until_connected()
        directory = Directory()
        newest = await self._calls.until_done(lambda: self._database.addresses(None, MAX_NAMED))
        alike = await self._calls.until_done(lambda: self._database.addresses(post.channel_id, MOST_ALIKE))
        for known in (*reversed(alike), *reversed(newest)):
            directory.add(known.address)
        for type in await self._calls.until_done(self._database.served_types):
            directory.connected(type, None)
        return resolve(directory, post)
