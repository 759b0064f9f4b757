"""The interface of a database, as the engine needs it: one method for each transaction.

Every method is one transaction, and may be called again after an unknown outcome: the same call once more changes nothing more and
has the same answer. So a connection that breaks in the middle is no case of its own for the engine, which repeats the call.

Each fails with `DatabaseDown` while the database cannot do it. Cancelled: the transaction has happened or not.

**Owner keys.** What is written belongs to an *owner key*, such as "chat/web:c1", "main", "task/t-1" or "schedule". A key has at most
one living owner, a node, and a fencing token that grows with each taking. Whoever writes under a lease whose token is not the newest
gets LeaseLost, and nothing has happened. A transaction locks the row of its owner key first, so that those of one key follow one
another, and numbers of one key appear in their order.

**Time.** A node is alive until the end of its lease, by the clock of the database. No clock of a node counts.

**Notices** only shorten waits. Each may be lost, and whoever waits for one looks for itself from time to time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import attrs

from pegasus.messages import Address, OutboundMessage
from pegasus.storage.inbox_messages import Accepted, Overloaded
from pegasus.storage.messages import Lease, StorageError, UnacknowledgedReply


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


@attrs.frozen
class Renewal:
    """The lease of a node goes on: `Renewal(is_draining=False, living=2)`."""

    is_draining: bool
    """True if it is to give everything back."""
    living: int
    """Nodes whose lease has not ended, this one among them."""


# ------------------------------------------------------------------ inbox and outbox


@attrs.frozen
class NewItem:
    """A message to be accepted."""

    key: str
    """Owner key of the conversation."""
    address: Address
    """Conversation that it comes from."""
    dedupe: str
    """Id of the sender, which is recognised at its address."""
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


@attrs.frozen
class StoredItem:
    """An item that is not done."""

    n: int
    """Its number. Numbers of one owner key grow in the order of commits, and none is given twice."""
    item: NewItem
    """Message, as it was accepted."""


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


@attrs.frozen
class DurableStep:
    """One durable step: lines, replies and whole files, all of it or nothing."""

    key: str
    """Owner key whose row is locked; "" if nothing is appended that has an owner."""
    lease: Lease | None = None
    """Proof that the key is the asker's."""
    lines: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Pairs of a path and the lines that are appended to it, without their newlines."""
    after: int | None = None
    """Number of lines that the first path has before this. It has more, and they are these: it was done before, and is answered as
    done. Anything else: Changed."""
    posts: tuple[NewReply, ...] = ()
    """Replies. Each gets the next seq of its address."""


@attrs.frozen
class KnownAddress:
    """An address that was seen, or that a client is connected for."""

    address: Address
    """The address."""
    heard: str = ""
    """Account of the one guest who was heard there, "*" for several, "" for none."""
    is_connected: bool = False
    """True if a client of a living node is connected for it."""


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
    """"due" (an owner key has work), "reply" (an address has a new reply), "done" (an item), "rows" (a collection), "say" (drafts)."""
    payload: str
    """Name of what it happened to; of "say" a JSON text below 8,000 bytes."""


class Database(Protocol):
    """A database that nodes share. See the top of the module for what holds for each method."""

    # -------------------------------------------------------------- nodes and ownership

    async def register(self, facts: NodeFacts, lease: float) -> int:
        """Begin a node whose lease ends in so many seconds; return its id. Raises NameTaken."""
        ...

    async def renew(self, node: int, lease: float) -> Renewal | None:
        """Let the lease of a node end in so many seconds from now. None if it has ended already: the node must register anew."""
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

    async def take(self, node: int, kinds: Collection[str], limit: int) -> tuple[Lease, ...]:
        """Take at most so many due keys without a living owner, those first that have waited for longest; return their new leases.

        Kinds: beginnings of keys up to "/". A key is due while an item of it is not done, or its task is not at its end. A node
        whose lease has ended gets nothing.
        """
        ...

    async def claim(self, node: int, key: str) -> Lease | None:
        """Take this key, due or not, with a new token. None if another living node owns it, or the lease of the node has ended."""
        ...

    async def give_back(self, node: int, keys: Collection[str]) -> None:
        """Let keys of this node have no owner. Those that are due are announced."""
        ...

    async def owners(self, keys: Collection[str]) -> Mapping[str, int]:
        """Return the living owner of each of these keys that has one."""
        ...

    # -------------------------------------------------------------- inbox

    async def accept(self, items: Sequence[NewItem], max_waiting: int) -> tuple[Accepted | Overloaded, ...]:
        """Accept messages; one answer for each. max_waiting: items that may wait in a lane, over all nodes."""
        ...

    async def discard(
        self,
        report: NewItem,
        before: int,
        priority: int,
        senders: Collection[str] | None,
        spared: Collection[int],
        lease: Lease | None,
    ) -> int | None:
        """Drop items of lane "main" that wait for the address of the report, and accept the report instead; see `Discard`.

        senders: only those of these, and none of an owner; None = of all. spared: items that were handed out. Raises LeaseLost.
        """
        ...

    async def items(self, seen: Mapping[str, int]) -> tuple[StoredItem, ...]:
        """Return the items of these owner keys that are not done and have a number above the one that is given, by number."""
        ...

    async def complete(self, done: Sequence[tuple[int, Lease | None]]) -> None:
        """Let items be done. One with a stale lease stays as it is. A key without items is due no more."""
        ...

    async def open_items(self, numbers: Collection[int]) -> frozenset[int]:
        """Return those of these items that are not done."""
        ...

    async def waiting(self, address: Address | None, lane: str | None, priority: int | None, apart: bool | None) -> int:
        """Return the number of items that are not done, over all nodes; see `Waiting`."""
        ...

    # -------------------------------------------------------------- durable steps

    async def commit(self, step: DurableStep) -> tuple[OutboundMessage, ...]:
        """Do a durable step; return its replies with their seq. Raises LeaseLost and Changed."""
        ...

    async def acknowledge(self, acknowledged: Mapping[Address, int]) -> None:
        """Let the replies of these addresses up to a seq be acknowledged. One that was not given yet is ignored."""
        ...

    async def posted(self, keys: Sequence[str]) -> tuple[StoredReply | None, ...]:
        """Return the replies with these keys."""
        ...

    async def replies(self, address: Address, after: int, limit: int) -> tuple[StoredReply, ...]:
        """Return the replies of an address above a seq, acknowledged or not, by seq."""
        ...

    async def unacknowledged(self, type: str, channel_id: str | None, limit: int) -> tuple[StoredReply, ...]:
        """Return replies that nobody has acknowledged, by address and seq. channel_id: None = of all addresses of the type."""
        ...

    async def open_replies(self, address: Address | None, limit: int) -> tuple[UnacknowledgedReply, ...]:
        """Return replies that nobody has acknowledged, without their texts."""
        ...

    async def last_seqs(self, addresses: Collection[Address], types: Collection[str]) -> Mapping[Address, int]:
        """Return the last seq of these addresses, and of those of these types that have replies which nobody has acknowledged."""
        ...

    # -------------------------------------------------------------- addresses

    async def connect(self, node: int, type: str, channel_id: str | None, change: int) -> None:
        """Note that a client has come (1) or gone (-1); see `Connected`."""
        ...

    async def addresses(self, channel_id: str | None, limit: int) -> tuple[KnownAddress, ...]:
        """Return known addresses, those that were seen last first. channel_id: only those with this id, as it is or escaped."""
        ...

    async def served_types(self) -> frozenset[str]:
        """Return the types that a bridge or an adapter of a living node serves."""
        ...

    async def note_heard(self, address: Address, heard: str) -> None:
        """Note who was heard at an address."""
        ...

    # -------------------------------------------------------------- files

    async def read(self, path: str) -> bytes:
        """Return a file: lines with their newlines, or the content as it was written; b"" if there is none."""
        ...

    async def read_lines(self, path: str, after: int) -> tuple[str, ...]:
        """Return the lines of a file behind so many."""
        ...

    async def replace(self, path: str, key: str, content: bytes, at: int, lease: Lease | None) -> None:
        """Let a file hold exactly this. A path that ends in .jsonl is kept as lines. at: wall clock, ms. Raises LeaseLost."""
        ...

    async def archive(self, path: str, key: str, name: str, content: bytes, at: int, lease: Lease | None) -> bool:
        """Rename a file and begin it anew with this content. False if a file of the new name exists. Raises LeaseLost."""
        ...

    async def names(self, folder: str) -> tuple[tuple[str, int, int], ...]:
        """Return name, size in bytes and time of the last change (ms) of each file directly below a folder, by name."""
        ...

    async def remove(self, paths: Collection[str]) -> None:
        """Remove files."""
        ...

    # -------------------------------------------------------------- rows and budgets

    async def read_rows(self, collection: str, owner: str) -> Rows:
        """Return the rows of a collection."""
        ...

    async def put_rows(
        self, collection: str, owner: str, put: Mapping[str, str], delete: Collection[str], version: int
    ) -> int:
        """Put and delete rows of a collection that has this version; return the new one. Raises Changed."""
        ...

    async def versions(self, collections: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        """Return the versions of collections, each a pair of name and owner."""
        ...

    async def reserve(self, budget: str, id: str, amount: float, limit: float) -> bool:
        """Reserve a part of a budget under an id, unless spent and reserved are above the limit then. The same id is reserved once."""
        ...

    async def settle(self, budget: str, id: str, spent: float) -> None:
        """End a reservation with what was spent. The same id is settled once; what a dead node has reserved ends with its lease."""
        ...

    # -------------------------------------------------------------- notices

    async def notify(self, notice: Notice) -> None:
        """Tell the other nodes."""
        ...

    async def next_notices(self) -> tuple[Notice, ...]:
        """Return what was told since the last call, at least one; wait for it. Raises DatabaseDown; some may be lost then."""
        ...

    async def clock(self) -> int:
        """Return the wall clock of the database, ms since the epoch."""
        ...

    async def aclose(self) -> None:
        """Close the connections. Transactions that run are cancelled."""
        ...
