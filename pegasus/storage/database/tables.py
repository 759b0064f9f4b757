"""The interface of a database, as the engine needs it: one method for each transaction.

Every method is one transaction, and may be called again after an unknown outcome: the same call once more changes nothing more and
has the same answer. So a connection that breaks in the middle is no case of its own for the engine, which repeats the call.

Each fails with `DatabaseDown` while the database cannot do it. Cancelled: the transaction has happened or not.

**Owner keys.** What is written belongs to an *owner key*, such as "chat/web%3Ac1", "main", "task/t-1" or "schedule". A key has at most
one living owner, a node, and a fencing token that grows with each taking. Whoever writes under a lease whose token is not the newest
gets LeaseLost, and nothing has happened. A transaction locks the row of its owner key first, so that those of one key follow one
another, and numbers of one key appear in their order.

**Time.** A node is alive until the end of its lease, by the clock of the database. No clock of a node counts.

**Notices** only shorten waits. Each may be lost, and whoever waits for one looks for itself from time to time.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

import attrs

from pegasus.messages import Address, ChannelInfo, OutboundMessage
from pegasus.storage.inbox import digest_of
from pegasus.storage.inbox_messages import Overloaded
from pegasus.storage.leases import Lease
from pegasus.storage.messages import StorageError, UnacknowledgedReply


class DatabaseDown(StorageError):
    """The database did not answer, or refused for a reason that may pass. The outcome of a change is unknown; it may be repeated.

    Example: `except DatabaseDown as error: report(str(error))`. The text is for an operator, and holds no password.
    """


class NameTaken(Exception):
    """A living node has this name. Example: two machines were started with the same `node.name`."""


# ------------------------------------------------------------------ nodes


@attrs.frozen
class NodeFacts:
    """Facts that a node says of itself: `NodeFacts("a", "http://10.0.0.1:7718", "0.9.0", "5f1c…")`."""

    name: str
    """Name that no other living node has."""
    address: str = ""
    """Base URL at which other nodes reach it; "" = nowhere."""
    version: str = ""
    """Version of the program."""
    settings: str = ""
    """Digest of its settings, by which a difference between nodes is noticed."""
    instance: str = ""
    """Random text that no other process has. It tells a repeated registration from one of another process of this name."""


@attrs.frozen
class NodeState:
    """A node as others see it."""

    id: int
    """Number that no other registration has."""
    facts: NodeFacts
    """Facts that it says of itself."""
    lease_left: float
    """Seconds until its lease ends, by the clock of the database; negative if it has ended."""
    is_draining: bool
    """True if it gives everything back and takes nothing."""
    keys: tuple[str, ...] = ()
    """Owner keys that it holds."""

    @property
    def is_alive(self) -> bool:
        """Return whether its lease goes on."""
        return self.lease_left > 0


@attrs.frozen
class Renewal:
    """The lease of a node goes on: `Renewal(is_draining=False, living=2)`."""

    is_draining: bool
    """True if it is to give everything back."""
    living: int
    """Nodes whose lease has not ended, this one among them."""


# ------------------------------------------------------------------ inbox and outbox


def dedupe_of(channel: ChannelInfo | Address, id: str) -> str:
    """Return what stands for a sender's id on an address, 16 hex digits: the digest that files know.

    Files forget the ids of what is done before they forget their digests, so a database must recognise by digests as well.
    """
    return f"{digest_of(channel, id):016x}"


@attrs.frozen
class NewItem:
    """A message to be accepted."""

    key: str
    """Owner key of the conversation."""
    address: Address
    """Conversation that it comes from."""
    dedupe: str
    """The sender's id at this address, as `dedupe_of` writes it. No two items have the same, whatever their keys."""
    message: str
    """The message, as JSON."""
    lane: str
    """"main" or "control"."""
    priority: int
    """0 to 9."""
    at: int
    """Wall clock of the node that accepts it, ms since the epoch."""
    is_owners: bool = False
    """True for an item of an owner."""
    sender: str = ""
    """Account that is limited."""
    max_of_sender: int = 0
    """Items of this sender that may wait in the lane; 0 = any number."""
    is_apart: bool = False
    """True if guests are heard in its conversation."""
    is_internal: bool = False
    """True for a report of the agent itself."""
    heard: str = ""
    """Accounts that were heard at the address, as the node believes (`KnownAddress.heard`). `is_apart` was decided by that."""
    hears: str = ""
    """The same after this item."""


@attrs.frozen
class AcceptedItem:
    """Answer to an item that is accepted, now or before: `AcceptedItem(12, duplicate=False, previous=9)`."""

    n: int
    """Number of the item."""
    duplicate: bool = False
    """True if the id was known, so that nothing was added."""
    previous: int = 0
    """Number of the newest item that the owner key had before. Whoever knows that one misses none."""


@attrs.frozen
class Heard:
    """Answer to an item that was decided by a wrong belief about who was heard at its address. Nothing has happened."""

    heard: str
    """Accounts that were heard there (`KnownAddress.heard`)."""


@attrs.frozen
class StoredItem:
    """An item that is not done."""

    n: int
    """Its number. Numbers of one owner key grow in the order of commits, and none is given twice."""
    item: NewItem
    """Message, as it was accepted."""
    discarded: int = 0
    """Of a report: the number of items that it took the place of."""


@attrs.frozen
class NewReply:
    """A reply to be posted: the same key is the same reply, however often it is posted."""

    key: str
    """Idempotency key."""
    message: OutboundMessage
    """The reply, whose `seq` does not count."""
    at: int
    """Wall clock, ms since the epoch."""


@attrs.frozen
class StoredReply:
    """A reply with its number."""

    message: OutboundMessage
    """The reply with `seq` and `key`."""
    is_acknowledged: bool = False
    """True if it arrived."""
    is_new: bool = False
    """True if the call that returns it has posted it."""


@attrs.frozen
class DurableStep:
    """One durable step: lines, replies and whole files, all of it or nothing."""

    id: str
    """Name of the request. Once it was done it is answered as done, which may be forgotten after a day."""
    node: int
    """Node that asks. A reply is announced if another node may have a client for it."""
    leases: tuple[Lease, ...] = ()
    """Proofs. LeaseLost if one of them is not the newest of its key."""
    lines: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Pairs of a path and the lines that are appended to it, without their newlines. A path may come twice."""
    after: int | None = None
    """Number of lines that the first path has before this. It has more, and they are these: it was done before, and is answered as
    done. Anything else: Changed."""
    posts: tuple[NewReply, ...] = ()
    """Replies. Each gets the next seq of its address, unless its key is known."""


@attrs.frozen
class Numbering:
    """Numbers of the replies to an address: `Numbering(last=13, acknowledged=12)`."""

    last: int = 0
    """Last seq that was given."""
    acknowledged: int = 0
    """Last seq that somebody has acknowledged."""


@attrs.frozen
class KnownAddress:
    """An address that was seen, or that a client is connected for."""

    address: Address
    """The address."""
    heard: str = ""
    """Account of the one guest who was heard there, "*" for several, "" for none."""


@attrs.frozen
class Rows:
    """The rows of a collection: `Rows(7, {"j-1": '{"id":"j-1"}'})`."""

    version: int
    """Grows with each change; 0 = never written."""
    rows: Mapping[str, str]
    """Texts by key, in the order in which they were first put."""


@attrs.frozen
class Notice:
    """Something has happened: `Notice("reply", "web:c1")`."""

    kind: str
    """"due" (an owner key has a new item), "reply" (an address has a new reply), "rows" (a collection has changed), "say" (drafts)."""
    payload: str
    """Owner key; address as `str` makes it; collection, or `<collection>/<owner>`; of "say" a JSON text below 7,900 bytes."""


# ------------------------------------------------------------------ contents
#
# What `Database.fill` takes and `Database.contents` gives, in this order: Numbers; KnownAddress, the one that was seen longest ago
# first; InboxItem by number; ReplyNumbers of an address, and behind each its PostedReply by seq; FileContents by path; RowsContents by
# collection and owner. Nodes, leases, connections and reservations are not among them: they belong to processes that run.


@attrs.frozen
class Numbers:
    """The last number that an item was given: `Numbers(41)`. The next one is above it."""

    last_n: int
    """Last number; 0 = none."""


@attrs.frozen
class InboxItem:
    """An item, done or not. Of one that was done long ago only number and `dedupe` are known; its key and message are "" then."""

    n: int
    """Its number."""
    item: NewItem
    """Message, as it was accepted. `max_of_sender` does not count."""
    done_at: int | None = None
    """Wall clock when it was done, ms; 0 = not known, None = it is not done."""


@attrs.frozen
class ReplyNumbers:
    """The numbers of replies to an address: `ReplyNumbers(Address("web", "c1"), 13, 12)`."""

    address: Address
    """Conversation that they go to."""
    last: int
    """Last seq that was given."""
    acked: int
    """Last seq that was acknowledged."""


@attrs.frozen
class PostedReply:
    """A reply, acknowledged or not, as `PostedReply("web/c1/call_1", channel, 13, "{…}", at)`."""

    key: str
    """Idempotency key."""
    channel: ChannelInfo
    """Channel that it goes to."""
    seq: int
    """Its number on the address."""
    message: str
    """The reply as JSON; of one that was acknowledged long ago its text may be gone, and this is ""."""
    at: int
    """Wall clock when it was posted, ms; 0: not known."""


@attrs.frozen(repr=False)
class FileContents:
    """A file. A path that ends in ".jsonl" holds whole lines of UTF-8 without NUL, and is kept as lines."""

    path: str
    """Name below data/."""
    content: bytes
    """All that it holds."""
    at: int
    """Wall clock of its last change, ms."""


@attrs.frozen(repr=False)
class RowsContents:
    """The rows of a collection."""

    collection: str
    """Name of the collection."""
    owner: str
    """Owner, where there are several of this name."""
    rows: Mapping[str, str]
    """Texts by key, in their order."""


Content: TypeAlias = Numbers | KnownAddress | InboxItem | ReplyNumbers | PostedReply | FileContents | RowsContents
"""A part of what a database holds."""


class Database(Protocol):
    """A database that nodes share. See the top of the module for what holds for each method."""

    # -------------------------------------------------------------- nodes and ownership

    async def register(self, facts: NodeFacts, lease: float) -> int:
        """Begin a node whose lease ends in so many seconds; return its id. Raises NameTaken if another instance of the name lives."""
        ...

    async def renew(self, node: int, lease: float, settings: str = "") -> Renewal | None:
        """Let the lease of a node end in so many seconds from now. None if it has ended already: the node must register anew.

        settings: digest of the settings that are in force by now; "" = as it is known.
        """
        ...

    async def leave(self, node: int) -> None:
        """End a node; its keys have no owner any more, and its connections are gone."""
        ...

    async def drain(self, name: str) -> bool:
        """Ask the living node of this name to give everything back. False if there is none."""
        ...

    async def nodes(self) -> tuple[NodeState, ...]:
        """Return the nodes that have not left, with their keys, by name. Those whose lease ended a day ago are not among them."""
        ...

    async def take(
        self, node: int, kinds: Collection[str], limit: int, *, control_only: bool = False
    ) -> tuple[Lease, ...]:
        """Take at most so many due keys without a living owner, those first that have waited for longest; return their new leases.

        The same call once more takes others: keys that a call without an answer has taken are seen in `newest_items`, and given back.
        Kinds: beginnings of keys up to "/", such as "chat" and "main". A key is due while an item of it is not done, or its task is
        not at its end. control_only: only keys with an item of lane "control". A node whose lease has ended gets nothing.
        """
        ...

    async def claim(self, node: int, key: str) -> Lease | None:
        """Take this key, due or not, with a new token, also if the node owns it already.

        None if another living node owns it, or the lease of the node has ended.
        """
        ...

    async def give_back(self, node: int, leases: Collection[Lease]) -> None:
        """Let keys of this node have no owner, unless they were taken anew since. Those that are due are announced."""
        ...

    # -------------------------------------------------------------- inbox

    async def accept(self, node: int, item: NewItem, max_waiting: int) -> AcceptedItem | Overloaded | Heard:
        """Accept a message; a known id is recognised before all else. The address counts as seen now.

        node: the one that asks; the key is announced unless it owns it. max_waiting: items that may wait in a lane, over all nodes, of
        owners and of others each.
        """
        ...

    async def discard(
        self,
        node: int,
        report: NewItem,
        before: int,
        priority: int,
        senders: Collection[str] | None,
        spared: Collection[int],
        lease: Lease | None,
    ) -> int | Heard | None:
        """Drop items of lane "main" that wait for the address of the report, and accept the report instead; see `Discard`.

        They are as much apart as the report is, and have a number below `before` and this priority or a more urgent one. senders: only
        those of these, and none of an owner; None = of all. spared: items that were handed out. Raises LeaseLost.
        The same call once more is answered with None.
        """
        ...

    async def items(self, seen: Mapping[str, int]) -> tuple[StoredItem, ...]:
        """Return the items of these owner keys that are not done and have a number above the one that is given, by number."""
        ...

    async def newest_items(self, node: int) -> Mapping[Lease, int]:
        """Return the newest lease of each key of this node, and the number of its newest item; 0 if all of its items are done."""
        ...

    async def note(self, done: Sequence[tuple[int, Lease | None, int]], acknowledged: Mapping[Address, int]) -> None:
        """Let items be done, each at its time (ms since the epoch, by the clock of the node), and replies up to a seq be acknowledged.

        An item with a stale lease stays as it is, and a seq that was not given yet is ignored. A key without items is due no more.
        """
        ...

    async def open_items(self, numbers: Collection[int]) -> frozenset[int]:
        """Return those of these items that are not done."""
        ...

    async def waiting(
        self, address: Address | None, lane: str | None, priority: int | None, is_apart: bool | None
    ) -> int:
        """Return the number of items that are not done, over all nodes; see `Waiting`.

        is_apart: False = of key "main", True = of others.
        """
        ...

    # -------------------------------------------------------------- durable steps

    async def commit(self, step: DurableStep) -> tuple[StoredReply, ...]:
        """Do a durable step; return its replies in the order of `posts`. Raises LeaseLost and Changed."""
        ...

    async def posted(self, keys: Sequence[str]) -> tuple[StoredReply | None, ...]:
        """Return the replies with these keys."""
        ...

    async def replies(self, after: Mapping[Address, int], limit: int) -> tuple[StoredReply, ...]:
        """Return the replies of each of these addresses above a seq, acknowledged or not, by address and seq."""
        ...

    async def unacknowledged(self, type: str, channel_id: str | None, limit: int) -> tuple[StoredReply, ...]:
        """Return replies that nobody has acknowledged, by address and seq. channel_id: None = of all addresses of the type."""
        ...

    async def open_replies(self, address: Address | None, limit: int) -> tuple[UnacknowledgedReply, ...]:
        """Return replies that nobody has acknowledged, without their texts."""
        ...

    async def unfetched(self, before: int, limit: int) -> tuple[StoredReply, ...]:
        """Return, for each address, the newest reply that nobody has acknowledged and that was posted before a time (ms)."""
        ...

    async def open_channels(self, type: str) -> tuple[str, ...]:
        """Return the channelIds of a type that have replies which nobody has acknowledged."""
        ...

    async def numberings(self, addresses: Collection[Address]) -> Mapping[Address, Numbering]:
        """Return the numbers of these addresses; those without a reply are left out."""
        ...

    async def owed(self, node: int) -> Mapping[Address, Numbering]:
        """Return the addresses with replies that nobody has acknowledged, among those that clients of this node are connected for."""
        ...

    # -------------------------------------------------------------- addresses

    async def connect(
        self, node: int, number: int, places: Collection[tuple[str, str | None]], *, is_connected: bool
    ) -> None:
        """Note that a node has clients of these addresses, or none any more; see `Connected`. The addresses are known from then on.

        number: grows with each call of a node. The end of a connection that is done late ends none of a later call.
        places: pairs of a type and a channelId; None: bridges of the type.
        """
        ...

    async def addresses(self, channel_id: str | None, limit: int) -> tuple[KnownAddress, ...]:
        """Return known addresses, those that were seen last first. channel_id: only those with this id, as it is or escaped."""
        ...

    async def served_types(self) -> frozenset[str]:
        """Return the types that a bridge or an adapter of a living node serves."""
        ...

    # -------------------------------------------------------------- files

    async def read(self, path: str) -> bytes:
        """Return a file: lines with their newlines, or the content as it was written; b"" if there is none."""
        ...

    async def read_lines(self, after: Mapping[str, int]) -> Mapping[str, Sequence[str]]:
        """Return the lines of files behind so many. A file that has none there is left out."""
        ...

    async def replace(self, path: str, content: bytes, at: int, lease: Lease | None) -> None:
        """Let a file hold exactly this. A path that ends in .jsonl is kept as lines. at: wall clock, ms. Raises LeaseLost."""
        ...

    async def archive(self, id: str, path: str, name: str, content: bytes, at: int, lease: Lease | None) -> bool:
        """Rename a file and begin it anew with this content. False if a file of the new name exists.

        name: file name beside the path. id: as in `DurableStep`. Raises LeaseLost.
        """
        ...

    async def names(self, folder: str, beginning: str = "") -> tuple[tuple[str, int, int], ...]:
        """Return name, size in bytes and time of the last change (ms) of each file directly below a folder, by name.

        beginning: only names that begin so.
        """
        ...

    async def remove(self, paths: Collection[str]) -> None:
        """Remove files."""
        ...

    # -------------------------------------------------------------- rows and budgets

    async def read_rows(self, collection: str, owner: str) -> Rows:
        """Return the rows of a collection."""
        ...

    async def put_rows(
        self, id: str, collection: str, owner: str, put: Mapping[str, str], delete: Collection[str], version: int
    ) -> int:
        """Put and delete rows of a collection that has this version; return the new one. Raises Changed.

        A row that is put keeps its place, unless its key is among `delete` too: then it is the last. id: as in `DurableStep`.
        """
        ...

    async def versions(self, collections: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        """Return the versions of collections of rows, each a pair of name and owner; those that were never written are left out."""
        ...

    async def lengths(self, paths: Collection[str]) -> Mapping[str, int]:
        """Return the numbers of lines of files; those that do not exist are left out."""
        ...

    async def reserve(self, node: int, budget: str, id: str, amount: float, limit: float) -> float | None:
        """Reserve a part of a budget under an id, and return None; if spent and reserved were above the limit then, what is spent.

        The same id is reserved once.
        """
        ...

    async def settle(self, budget: str, id: str, spent: float) -> None:
        """End a reservation with what was spent. The same id is settled once; what a dead node has reserved ends with its lease."""
        ...

    # -------------------------------------------------------------- moving

    async def fill(self, mark: str, contents: Callable[[], AsyncIterable[Content]]) -> bool:
        """Put all of these contents into an empty database, in one transaction. True: they are in it.

        True as well, and nothing is done, if the fill that made this database what it is had the same mark. False, and nothing is
        done, if anything else is in it, or a node lives. contents: returns them from their beginning each time.
        """
        ...

    def contents(self, paths: Collection[str] = ()) -> AbstractAsyncContextManager[AsyncIterator[Content]]:
        """Return all contents as they are at one moment, in the order of `Content`. Nothing is locked.

        paths: only the files below data/ that have or begin with one of these names, "inbox/" and "outbox/" among them; () = all.
        """
        ...

    # -------------------------------------------------------------- notices

    async def notify(self, notice: Notice) -> None:
        """Tell the other nodes."""
        ...

    async def next_notices(self) -> tuple[Notice, ...]:
        """Return what was told since the last call; wait for it. Raises DatabaseDown; some may be lost then.

        (): from here on it is heard what is told. What was told while no connection listened is lost.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections. Transactions that run are cancelled."""
        ...
