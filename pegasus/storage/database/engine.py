"""The engine over a database: the actor that takes the messages of the journal where several nodes share their state.

It makes the promises of `journal` with transactions in place of synced files:

* `accepted`, and every other answer to a request, comes after the commit.
* What was asked about one owner key is done in the order in which it was asked, that of different keys side by side (`calls`).
* A request whose outcome is not known is made again, and so is every other one while the database is down. Its asker waits as long as
  it wants to. StorageError means a refusal that repeating does not cure.
* A change carries the lease of its asker. The database refuses one whose token is not the newest, whatever this node believes.
* Notes are in effect at once, and written with others a moment later (`notes`).

Several tasks run beside the loop that takes messages: one renews the lease of the node (`node`), one hands out items, one writes
notes, one hears notices, and three look at the database for what may have been missed (`Lookout`). Each request is a task of its own.

When the lease of the node is lost, everything that it owned is given up at once: whoever runs agents is told (`LostChats`), changes
under its leases fail with LeaseLost, and items wait until they are taken again, here or elsewhere. Then the node registers anew.

When the actor stops, it waits for what is being written, writes the notes, and signs off, so that others take over at once. When it
crashes or is cancelled, it signs off, too; what was being written has happened or not, and nobody was told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final, TypeAlias

import trio

from actors import Inbox
from pegasus.messages import Address, OutboundMessage
from pegasus.observe import Activity, ReplyPosted, get_logger
from pegasus.storage.database.accepting import SharedInbox
from pegasus.storage.database.calls import BEFORE_REPEAT, DatabaseCalls, Lookout, OrderedWork
from pegasus.storage.database.files import DatabaseFiles, lines_in
from pegasus.storage.database.items import OwnedItems
from pegasus.storage.database.node import NodeLease
from pegasus.storage.database.notes import Notes
from pegasus.storage.database.replies import PLACES, FollowedReplies, place_key
from pegasus.storage.database.tables import Database, DatabaseDown, DurableStep, NewReply, NodeFacts
from pegasus.storage.database.telling import ToldTexts
from pegasus.storage.inbox import MAX_WAITING
from pegasus.storage.inbox_messages import (
    Accept,
    CompleteItem,
    Discard,
    ItemDone,
    LaneDone,
    LostChats,
    ReturnItem,
    Waiting,
)
from pegasus.storage.item_queue import ItemQuery
from pegasus.storage.journal import check_paths
from pegasus.storage.leases import GiveBack, Lease, LeaseLost, LostLease, TakeLease, owner_of
from pegasus.storage.messages import (
    Acknowledge,
    Changed,
    Commit,
    Connected,
    Disconnected,
    JournalMessage,
    KnownAddresses,
    NextChange,
    NextReplies,
    NextTold,
    PostResult,
    ReserveBudget,
    Route,
    SettleBudget,
    StorageError,
    TellNodes,
    Unroutable,
    WholeCollection,
    WholeFile,
)
from pegasus.storage.record_log import Report
from pegasus.storage.reply_queries import ReplyQuery

LEASE: Final = 5.0
"""Seconds of a node's lease, unless said otherwise."""
END_PATIENCE: Final = 3.0
"""Seconds that the end of the actor takes at most."""
GIVE_UP_EVERY: Final = 3600.0
"""Seconds between two looks at replies that nobody has fetched for too long."""
MOST_REQUESTS: Final = 10_000
"""Requests that wait for the database at most. It bounds memory while the database is down; more are refused at once."""
FOREIGN_DELAY: Final = 0.1
"""Seconds after which this node wants a key that became due at another node, which is first to take it."""

Request: TypeAlias = (
    Accept
    | Discard
    | Commit
    | TakeLease
    | ReserveBudget
    | Waiting
    | KnownAddresses
    | Route
    | ReplyQuery
    | WholeFile
    | WholeCollection
)
"""Messages that are answered after one or more transactions."""

_log = get_logger("journal")


async def run_database_journal(
    mailbox: Inbox[JournalMessage],
    database: Database,
    *,
    facts: NodeFacts,
    clock: Callable[[], int],
    scope: str = "global",
    lease: float = LEASE,
    max_waiting: int = MAX_WAITING,
    report: Report = _log.warning,
    activity: Activity | None = None,
    hands_out: bool = True,
    unless_unused: str = "",
    settings: Callable[[], str] | None = None,
) -> None:
    """Run the actor. It takes messages once the node is registered, for which it waits while the database is down.

    mailbox: brings the messages of this actor. database: shared by all nodes; it is not closed. facts: what the node says of itself.
    clock: wall clock, ms since the epoch. scope: the setting `agent.scope`. lease: seconds of the node's lease. The others are as in
    `run_journal`. unless_unused: reason not to run over a database that nobody has used before; "" = there is none. settings:
    returns the digest of those in force; None = they stay as in `facts`.

    Raises StorageError with that reason, and if another living node has the name of this one, or the database refuses it for good.

    >>> Child("journal", partial(run_database_journal, facts=facts, clock=now), database, mailbox=Mailbox(1024))
    """
    async with trio.open_nursery() as nursery:
        engine = _Engine(
            mailbox,
            database,
            nursery,
            facts,
            settings or (lambda: facts.settings),
            clock,
            scope,
            lease,
            max_waiting,
            report,
            activity,
            hands_out,
        )
        await engine.run(unless_unused)


class _Engine:
    """State and tasks of the actor."""

    def __init__(
        self,
        mailbox: Inbox[JournalMessage],
        database: Database,
        nursery: trio.Nursery,
        facts: NodeFacts,
        settings: Callable[[], str],
        clock: Callable[[], int],
        scope: str,
        lease: float,
        max_waiting: int,
        report: Report,
        activity: Activity | None,
        hands_out: bool,
    ) -> None:
        self._mailbox = mailbox
        self._database = database
        self._clock = clock
        self._report = report
        self._activity = activity or Activity(clock)
        self._nursery = nursery
        self._work = OrderedWork(nursery)
        self._requests = count(1)
        self._open_requests = 0
        """Requests that are not answered."""
        self._leased: dict[trio.CancelScope, None] = {}
        """Scopes around requests that carry a lease. They end when the lease of the node is lost."""
        calls = self._calls = DatabaseCalls(report, self._activity)
        notes = self._notes = Notes(database, calls)
        self._node = NodeLease(calls, database, facts, settings, lease, self._lose_everything, report, self._activity)
        self._items = OwnedItems(
            database,
            calls,
            notes,
            clock,
            self._activity,
            on_unknown=self._release_unknown,
            is_global=scope != "chat",
            hands_out=hands_out,
        )
        self._files = DatabaseFiles(database, calls, notes, clock, self._new_id)
        self._look_for_items = Lookout(partial(self._items.look, self._node), calls)
        self._look_for_replies = Lookout(self._read_replies, calls)
        self._look_for_others = Lookout(self._look_at_others, calls)
        self._replies = FollowedReplies(database, calls, notes, self._look_for_replies.note)
        self._told = ToldTexts(database, self._node, self._replies.is_followed)
        self._inbox = SharedInbox(
            database,
            calls,
            self._node,
            self._items,
            notes,
            clock,
            self._activity,
            max_waiting,
            self._look_for_items.note,
            partial(self._work.wait_for, PLACES),
        )

        self._activity.gauges |= {
            "pegasus_nodes": lambda: {(): self._node.living or 1},
            "pegasus_node_lease_seconds": lambda: {(): self._node.seconds_left},
            "pegasus_node_keys": lambda: Counter((key.partition("/")[0],) for key in self._items.ownership.keys),
        }

    def _new_id(self) -> str:
        """Return a name for a request that no request of any node has."""
        return f"{self._node.instance}/{next(self._requests)}"

    # ------------------------------------------------------------------ the life of the actor

    async def run(self, unless_unused: str) -> None:
        """Register, work until the actor is to stop, and sign off."""
        await self._node.begin()
        try:
            if unless_unused and not await self._calls.until_done(partial(self._database.addresses, None, 1)):
                raise StorageError(unless_unused)
            for task in (
                partial(self._node.keep, self._begin_anew),
                self._items.hand_out,
                self._notes.run,
                self._give_up,
                self._hear,
                self._look_for_items.run,
                self._look_for_replies.run,
                self._look_for_others.run,
                self._told.run,
            ):
                self._nursery.start_soon(self._until_end, task)
            async for message in self._mailbox:
                self._take(message)
            self._calls.is_ending = True
            with trio.move_on_after(END_PATIENCE, shield=True):
                await self._work.wait_for()
        finally:
            self._calls.is_ending = True
            with trio.move_on_after(END_PATIENCE, shield=True):
                try:
                    await self._notes.flush()
                except DatabaseDown as error:
                    _log.warning("the last notes are not written", error=str(error))
                await self._node.leave()
        self._nursery.cancel_scope.cancel()

    async def _until_end(self, task: Callable[[], Awaitable[object]]) -> None:
        """Do what nobody waits for. At the end of the process a database that is down is no error of it."""
        BEFORE_REPEAT.set(lambda: None)  # a request that has led to it is another one's
        try:
            await task()
        except DatabaseDown:
            if not self._calls.is_ending:
                raise

    def _do(self, key: str, work: Callable[[], Awaitable[object]]) -> None:
        """Start work that nobody waits for, in the order of its key."""
        self._work.start([key], partial(self._until_end, work))

    def _lose_everything(self) -> None:
        """Give up what this node owned. Changes under its leases fail, also those that wait for the database."""
        self._items.ownership.lose(tuple(self._items.ownership.keys))
        for scope in tuple(self._leased):
            scope.cancel()

    def _release_unknown(self, key: str) -> None:
        """Give back a key that this node owns and does not know of. One that is being taken or given back is known in a moment."""
        if not self._work.is_busy(key):
            self._do(key, partial(self._items.release_unknown, self._node, key))

    def _begin_anew(self) -> None:
        """Tell the other nodes of the connections, after this node has registered anew."""
        self._do(PLACES, partial(self._replies.connect_all, self._node))
        self._look_for_items.note()

    # ------------------------------------------------------------------ messages

    def _take(self, message: JournalMessage) -> None:
        """Let a message take effect, or start the work on it. Nothing in here waits."""
        match message:
            case CompleteItem():
                self._items.complete(message)
            case ReturnItem():
                self._items.take_back(message)
            case GiveBack(lease):
                self._do(lease.owner, partial(self._items.give_back, self._node, lease))
            case SettleBudget(budget):
                self._do(f"budget/{budget}", partial(self._settle, message))
            case Acknowledge(address, seq):
                self._replies.acknowledge(address, seq)
            case Connected(type, channel_id):
                if self._replies.connected(type, channel_id):
                    self._do(place_key(type, channel_id), partial(self._replies.follow, self._node, type, channel_id))
            case Disconnected(type, channel_id):
                if self._replies.disconnected(type, channel_id):
                    self._do(place_key(type, channel_id), partial(self._replies.leave, self._node, type, channel_id))
            case LostChats():
                self._items.ownership.watch_chats(message)
            case LostLease():
                self._items.ownership.watch_lease(message)
            case NextChange():
                self._files.watch(message)
                self._look_for_others.note()
            case TellNodes():
                self._told.tell(message)
            case NextTold():
                self._told.ask(message)
            case NextReplies():
                self._replies.handout.ask(message)
                self._replies.handout.hand_out()
            case _ if isinstance(message, ItemQuery):
                if self._items.ask(message):
                    self._look_for_items.note()
                elif isinstance(message, ItemDone | LaneDone):
                    self._look_for_others.note()
            case _:
                self._start(message)

    def _start(self, message: Request) -> None:
        """Start the work on a request in the order of its keys."""
        try:
            keys, work = self._work_of(message)
        except ValueError as error:
            message.reply.fail(error)
            return
        if self._open_requests >= MOST_REQUESTS:
            message.reply.fail(StorageError(f"{MOST_REQUESTS} requests wait for the database already; try again later"))
            return
        self._open_requests += 1
        self._work.start(keys, partial(self._answer, message, work))

    def _work_of(self, message: Request) -> tuple[Iterable[str], Callable[[], Awaitable[object]]]:
        """Return the keys in whose order a request is done, and the work. Raises ValueError for an invalid path."""
        match message:
            case Accept():
                return [f"inbox/{message.message.channel.address}"], partial(self._inbox.accept, message)
            case Discard():
                return [f"inbox/{message.report.channel.address}"], partial(self._inbox.discard, message)
            case Commit():
                paths = [path for path, _ in (*message.appends, *message.together)]
                check_paths(paths)
                keys = [lease.owner for lease in _leases_of(message)] + [owner_of(path) for path in paths]
                return keys, partial(self._commit, message)
            case TakeLease(_, owner):
                return [owner], partial(self._take_lease, message)
            case ReserveBudget(_, budget):
                return [f"budget/{budget}"], partial(self._reserve, message)
            case Waiting():
                return [f"inbox/{message.address}"], partial(self._count_waiting, message)
            case KnownAddresses():
                return [], self._inbox.newest
            case Route():
                return [], partial(self._route, message)
            case _ if isinstance(message, WholeFile | WholeCollection):
                return self._files.keys_of(message), partial(self._files.answer, message)
            case _:
                return self._replies.keys_of(message), partial(self._replies.answer, message)

    async def _answer(self, message: Request, work: Callable[[], Awaitable[Any]]) -> None:
        """Do the work on a request and answer it. One whose asker has left before is not begun with."""
        if message.reply.abandoned:
            self._open_requests -= 1
            return
        leases = _leases_of(message)

        def check() -> None:
            """Raise an error if the request need not be made again."""
            if message.reply.abandoned:
                raise StorageError("the asker has left")
            self._items.ownership.check(leases)

        BEFORE_REPEAT.set(check)
        scope = trio.CancelScope()
        if leases:
            self._leased[scope] = None
        try:
            self._items.ownership.check(leases)
            with scope:
                answer = await work()
            # A process that was paused acts on an answer late: another node may have begun. What was written stands.
            if scope.cancelled_caught or (leases and not self._node.is_alive):
                raise LeaseLost("this node has lost its lease")
        except LeaseLost as error:
            # What this node takes for its own is another's. Of several leases it is not known which.
            if len(leases) == 1 and self._items.ownership.holds(leases[0]):
                self._items.ownership.lose([leases[0].owner])
            message.reply.fail(error)
        except (StorageError, Changed, ValueError, TypeError) as error:
            message.reply.fail(error)
        else:
            message.reply.send(answer)
        finally:
            self._open_requests -= 1
            self._leased.pop(scope, None)

    # ------------------------------------------------------------------ requests

    async def _take_lease(self, request: TakeLease) -> Lease:
        """Take a lease, and give it back if its asker has left: nobody else would, and no other node could take it."""
        lease = await self._items.take_lease(self._node, request.owner)
        if request.reply.abandoned:
            self._take(GiveBack(lease))
        return lease

    async def _commit(self, request: Commit) -> tuple[PostResult, ...]:
        """Do a durable step, and hand its replies on."""
        lines = tuple((path, lines_in(path, data)) for path, data in (*request.appends, *request.together))
        channels = [await self._inbox.route(post) for post in request.posts]
        results: list[PostResult | None] = [None] * len(channels)
        unroutable = [n for n, channel in enumerate(channels) if isinstance(channel, Unroutable)]
        if unroutable:
            # The reply of a known key stands, though it may go to an address that cannot be resolved any more.
            keys = tuple(request.posts[n].key for n in unroutable)
            known = await self._calls.until_done(lambda: self._database.posted(keys))
            for n, stored in zip(unroutable, known, strict=True):
                channel = channels[n]
                results[n] = stored.message if stored is not None else channel  # type: ignore[assignment]
        now = self._clock()
        posts = tuple(
            NewReply(post.key, OutboundMessage(post.text, channel, 0, post.metadata, files=post.files), now)
            for post, channel in zip(request.posts, channels, strict=True)
            if not isinstance(channel, Unroutable)
        )
        step = DurableStep(self._new_id(), self._node.id, _leases_of(request), lines, request.after, posts)
        stored_replies = await self._calls.until_done(lambda: self._database.commit(step)) if lines or posts else ()
        for stored in stored_replies:
            results[results.index(None)] = reply = stored.message
            if stored.is_new:
                address = reply.channel.address
                self._activity.reply_posted(ReplyPosted(key=reply.key, address=address, seq=reply.seq, at=now))
        self._replies.posted([stored.message for stored in stored_replies if stored.is_new])
        return tuple(result for result in results if result is not None)

    async def _route(self, request: Route) -> tuple[object, ...]:
        return tuple([await self._inbox.route(post) for post in request.posts])

    async def _count_waiting(self, query: Waiting) -> int:
        await self._notes.flush()
        count = partial(self._database.waiting, query.address, query.lane, query.priority, query.apart)
        return await self._calls.until_done(count)

    async def _reserve(self, request: ReserveBudget) -> float | None:
        reserve = partial(self._database.reserve, self._node.id, request.budget, request.id)
        return await self._calls.until_done(partial(reserve, request.amount, request.limit))

    async def _settle(self, note: SettleBudget) -> None:
        await self._calls.until_done(lambda: self._database.settle(note.budget, note.id, note.spent))

    # ------------------------------------------------------------------ other nodes

    async def _hear(self) -> None:
        """Hear notices of other nodes, for ever. They only shorten waits: what is missed is seen at the next look."""
        while True:
            for notice in await self._calls.until_done(self._database.next_notices, waits=False, counts=False):
                match notice.kind:
                    case "due":
                        is_own = notice.payload in self._items.ownership.keys
                        self._look_for_items.note(0.0 if is_own else FOREIGN_DELAY)
                    case "reply":
                        if (address := Address.parse(notice.payload)) is not None:
                            self._replies.note(address)
                    case "rows":
                        self._look_for_others.note()
                    case "say":
                        self._told.hear(notice.payload)

    async def _give_up(self) -> None:
        """Give up replies that nobody fetches, now and then."""
        while True:
            for told in await self._inbox.give_up(self._clock()):
                self._report(told)
            await trio.sleep(GIVE_UP_EVERY)

    async def _read_replies(self) -> None:
        if self._node.is_alive:
            await self._replies.look(self._node.id)

    async def _look_at_others(self) -> None:
        """Look at what this node waits for and others do."""
        await self._items.look_for_ends()
        await self._files.look()


def _leases_of(message: Request) -> tuple[Any, ...]:
    """Return the leases that a request carries."""
    lease = getattr(message, "lease", None)
    return (() if lease is None else (lease,)) + getattr(message, "leases", ())


def open_database(url: str) -> Database:
    """Return the database at an address. Nothing is connected yet. Raises StorageError: no address, or the extra is missing.

    The driver is imported here and nowhere else, since it belongs to an extra.
    """
    try:
        from pegasus.storage.database.postgres import Postgres
    except ModuleNotFoundError as error:
        text = f"storage.url needs the extra: pip install 'pegasus-agent[postgres]' (there is no {error.name})"
        raise StorageError(text) from None
    return Postgres(url, random=Random())  # noqa: S311 pauses only
