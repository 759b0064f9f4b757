"""Messages of the journal actor: the only interface of storage.

The journal is the one writer of everything below `<home>/data`. It remembers accepted messages (the *inbox*), replies
that were not acknowledged yet (the *outbox*) and the addresses that exist, and it appends to and replaces files for
other packages. These messages do not say that inbox and outbox are files. A second engine, a database server that
several machines share, can implement the same messages.

Three kinds of messages:

* **Requests** (`Accept`, `Discard`, `Commit`, `ReplaceFile`, `Archive`, `PutRows`): the answer comes when their effect is on disk,
  and means that it survives a crash. StorageError means that nothing of it has happened; the request may be made again.
* **Notes** (`CompleteItem`, `ReturnItem`, `GiveBack`, `Acknowledge`, `Connected`, `Disconnected`): they have no answer. They are in
  effect at once, and written with the next write or after 50 ms. A crash may lose the last of them; each is of a kind that does no
  harm then.
* **Queries** (`NextItem`, `Posted`, `ReadFile` …): they change nothing on disk. Some wait until there is an answer.

A caller that leaves while it waits (a cancelled task) leaves its request in effect if the journal has begun with it.

Two things keep a writer that is not the only one from doing harm. A message with an effect can carry a *lease* (see `leases`): a
request whose lease was taken by somebody else fails with LeaseLost, and such a note has no effect. And a request that was decided by
what is stored names the state that it was decided by (`Commit.after`, `PutRows.version`): if that has changed, it fails with Changed.

    accepted = await journal.ask(Accept, message)
    item = await journal.ask(NextItem)
    [reply] = await journal.ask(Commit, (("main/current.jsonl", lines),), (post,))
    await journal.tell(Done(item.n))

The messages about the inbox are in `inbox_messages`, all others here. Messages that carry a `Reply` are compared by identity and
have no repr: a repr would put people's texts into logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import attrs

from actors import Reply
from pegasus.messages import Address, ChannelInfo, Metadata, OutboundMessage, StoredFile
from pegasus.storage.inbox_messages import (
    Accept,
    CompleteItem,
    Discard,
    ItemDone,
    LaneDone,
    LostChats,
    NextChat,
    NextItem,
    NextItemOfAddress,
    ReturnItem,
    TakeItem,
    Waiting,
)
from pegasus.storage.leases import GiveBack, Lease, LostLease, TakeLease

LONGEST_TOLD: Final = 7_800
"""Bytes of a text that nodes tell each other, in UTF-8: a notice of PostgreSQL has fewer than 8,000."""


class StorageError(Exception):
    """The disk refused (full, read-only, gone). Nothing of the request was kept, and it may be made again.

    Example: `except StorageError as error: log.warning("session not stored, retrying", error=str(error))`. The text names
    the file, the reason and advice for the operator.
    """


class Changed(Exception):
    """Somebody else has written since the asker has read. Nothing of the request has happened: read again, then decide again.

    The file engine has one writer, so there it shows that the asker does not know what it has written itself: a change whose asker
    was cancelled may have happened.

    Example: `except Changed: await self._read()`, and the decision is made with what was read.
    """


# ------------------------------------------------------------------ addresses


@attrs.frozen
class Connected:
    """Note: a client of this address is connected now. The address is known from then on, over restarts too.

    Example: `await journal.tell(Connected("web", "c1"))` when a client has said hello.
    """

    type: str
    """Type of channel, such as "web"."""
    channel_id: str | None
    """None for a bridge or an adapter that serves all addresses of the type. That is not remembered."""


@attrs.frozen
class Disconnected:
    """Note: the counterpart of `Connected`. Each `Connected` needs exactly one.

    Example: `await journal.tell(Disconnected("web", "c1"))` in a `finally`, within a shield, when the client has gone.
    """

    type: str
    """As in the `Connected` that it ends."""
    channel_id: str | None
    """As in the `Connected` that it ends."""


@attrs.frozen(eq=False, repr=False)
class KnownAddresses:
    """Query: the addresses that were seen last, newest first, at most 20.

    Example: `await journal.ask(KnownAddresses)` is `(Address("web", "c1"), Address("telegram", "42"))`.
    """

    reply: Reply[tuple[Address, ...]]
    """Handle for the addresses."""


@attrs.frozen
class Unroutable:
    """Result of a `Post` that fits no address; see `directory` for the rules.

    Example: the answer of `Commit` is `(Unroutable("there is no channel 'x'", known),)`, which the tool `reply` shows the model.
    """

    reason: str
    """Reason, for the model."""
    known: tuple[Address, ...]
    """Addresses that exist, or those that are ambiguous: newest first, at most 20."""


# ------------------------------------------------------------------ outbox


@attrs.frozen
class Post:
    """A reply to be put in the outbox, as part of a `Commit`.

    Example: `Post("main/12/call_1", "CompleteItem.", "c1", item.message.channel)` answers item 12 on the channel with the id "c1".
    """

    key: str
    """Idempotency key (queue item and tool call id). The same key gets the same reply, however often it is posted."""
    text: str
    """Text of the reply."""
    channel_id: str
    """The channel as the model has given it."""
    source: ChannelInfo
    """The channel of the message that is being answered."""
    channel_type: str | None = None
    """The type of channel as the model has given it, if it has."""
    reply_to: str | None = None
    """The thread as the model has given it, if it has."""
    metadata: Metadata = attrs.field(factory=dict)
    """Free-form data for the client, passed on unchanged."""
    files: tuple[StoredFile, ...] = ()
    """Files that go with it. Their content is on disk already."""
    to: ChannelInfo | None = None
    """The channel that it goes to, as `Route` has given it. None: the journal finds it."""


PostResult: TypeAlias = OutboundMessage | Unroutable
"""The reply with its `seq`, or the reason why there is none."""


@attrs.frozen(eq=False, repr=False)
class Commit:
    """Request: append to files and post replies, as one durable step. The answer has one result for each post.

    On StorageError, LeaseLost and Changed nothing was kept, neither appends nor posts. ValueError: a path that is not below data/ or
    belongs to the journal, or a text that cannot be written as JSON. An `Unroutable` post does not fail the others.

    >>> await journal.ask(Commit, (("main/current.jsonl", encode_line({"role": "user", "content": "Hi"})),))
    ()
    """

    reply: Reply[tuple[PostResult, ...]]
    """Handle for the results, in the order of `posts`: an OutboundMessage or an Unroutable for each."""
    appends: tuple[tuple[str, bytes], ...] = ()
    """Pairs of a path below data/ and bytes that end in a newline. Each is on disk before the next one is begun."""
    posts: tuple[Post, ...] = ()
    """Replies. They reach the disk after all appends, so a reply that exists was decided in a session that shows it."""
    lease: Lease | None = None
    """Proof that the session is the asker's, where it has taken a lease. An answer to a command carries it too, though it appends
    nothing."""
    together: tuple[tuple[str, bytes], ...] = ()
    """Appends to other files, whose order does not matter. They follow `appends`, and are synced at the same time."""
    after: int | None = None
    """Number of lines that the first file has, as far as the asker knows; None: the lines do not depend on it.

    The same commit again, with the same `after`, appends nothing and has the same answer: so it may be repeated when its outcome is
    not known. If the file has other lines than these behind so many, the request fails with Changed.
    """
    leases: tuple[Lease, ...] = ()
    """Proofs for other owners, where the lines of several are written at once, such as the logs of tasks."""
    soon: bool = False
    """The asker does not wait: it may be written a moment later, with others. Whoever reads its files meanwhile sees it."""


@attrs.frozen(eq=False, repr=False)
class Route:
    """Query: the channel that each of these posts goes to, or the reason why there is none. Nothing is posted.

    Example: `[channel] = await journal.ask(Route, (post,))`, then `attrs.evolve(post, to=channel)`.
    """

    reply: Reply[tuple[ChannelInfo | Unroutable, ...]]
    """Handle for them."""
    posts: tuple[Post, ...]
    """Posts as the model wants them."""


@attrs.frozen(eq=False, repr=False)
class Posted:
    """Query: the replies that were posted with these keys, None for a key that is not known.

    The text of a reply that was acknowledged long ago may be gone; it is "" then.

    Example: `[reply] = await journal.ask(Posted, ("main/12/call_1",))`; None if the crash came before the post.
    """

    reply: Reply[tuple[OutboundMessage | None, ...]]
    """Handle for the replies, in the order of `keys`."""
    keys: tuple[str, ...]
    """Keys as they were given in `Post.key`."""


@attrs.frozen
class DueReply:
    """A reply on its way to an adapter.

    Example: `DueReply(7, message)`; the next `NextReplies(7)` confirms it.
    """

    position: int
    """Place in the queue of this process, growing by 1 for every reply."""
    message: OutboundMessage
    """The reply, with its channel and seq."""


@attrs.frozen(eq=False, repr=False)
class NextReplies:
    """Query: replies to be given to the adapters, oldest first, at most 100. It is answered when there are some.

    Replies from before the start of this process, and those that were acknowledged meanwhile, are not among them; see
    `Unacknowledged`. There is one asker: a second query fails the first with StorageError.

    Example::

        position = 0
        while True:
            for queued in await journal.ask(NextReplies, position):
                await deliver(queued.message)
                position = queued.position
    """

    reply: Reply[tuple[DueReply, ...]]
    """Handle for the replies; there is at least one."""
    handed: int = 0
    """The highest position of the answer before, which is confirmed by this. What is not confirmed is given again."""


@attrs.frozen(eq=False, repr=False)
class Unacknowledged:
    """Query: replies that nobody has acknowledged, in the order of `seq` for each address.

    Example: `await journal.ask(Unacknowledged, "web", "c1", (("c1", 12),))` when a client says that it has everything to seq 12.
    """

    reply: Reply[tuple[OutboundMessage, ...]]
    """Handle for the replies, at most `limit`. More come after an acknowledgement of these."""
    type: str
    """Type of channel."""
    channel_id: str | None
    """None for all addresses of the type."""
    after: tuple[tuple[str, int], ...] = ()
    """Pairs of a channel_id and the seq up to which the client has everything, which counts as acknowledged.

    A seq beyond the last one that was assigned cannot be true and is ignored.
    """
    limit: int = 200
    """Replies in the answer at most."""
    with_acknowledged: bool = False
    """Of one address: also the replies above `after` that somebody has acknowledged, as far as their texts are kept."""


@attrs.frozen
class UnacknowledgedReply:
    """A reply that nobody has acknowledged: `UnacknowledgedReply(Address("web", "c1"), 3, "main/12/call_1")`.

    Example: `{reply.key for reply in await journal.ask(OpenReplies, address)}`.
    """

    address: Address
    """Conversation that it goes to."""
    seq: int
    """Number of the reply within that conversation, from 1."""
    key: str
    """Key of its post, which names the item that it came of."""


@attrs.frozen(eq=False, repr=False)
class OpenReplies:
    """Query: the replies that nobody has acknowledged, without their texts, in the order of `seq` for each address.

    Example: `await journal.ask(OpenReplies, Address("http", "c1"), 50)` gives the 50 oldest ones of a conversation.
    """

    reply: Reply[tuple[UnacknowledgedReply, ...]]
    """Handle for the replies."""
    address: Address | None = None
    """Only those to this address; None = to all."""
    limit: int = 1000
    """Replies in the answer at most."""


@attrs.frozen(eq=False, repr=False)
class UnacknowledgedChannels:
    """Query: the channelIds of a type that have replies which nobody has acknowledged.

    Example: `await journal.ask(UnacknowledgedChannels, "telegram")` at the start of an adapter: chats that it still owes replies.
    """

    reply: Reply[tuple[str, ...]]
    """Handle for the ids."""
    type: str
    """Type of channel."""


@attrs.frozen
class Acknowledge:
    """Note: the client has every reply up to and including `seq`. A seq that was not assigned yet is ignored.

    If a crash loses the note, the replies are sent again, and the client recognises them by their seq.
    """

    address: Address
    """Conversation of the client."""
    seq: int
    """Highest seq that it has."""


@attrs.frozen(eq=False, repr=False)
class LastSeq:
    """Query: the last seq that was assigned to an address, 0 if none."""

    reply: Reply[int]
    """Handle for the seq."""
    address: Address
    """Conversation that is asked about."""


# ------------------------------------------------------------------ budgets


@attrs.frozen(eq=False, repr=False)
class ReserveBudget:
    """Request: reserve a part of a budget that several machines share, so that all of them together stay below its limit.

    The answer is None when it is reserved. Otherwise it is what was spent by all: if this leaves room for the amount, others have
    reserved the rest, and it may fit later. What a machine has reserved that is lost ends with its lease.

    The file engine reserves everything: there is one process, which counts for itself.

    Example: `await journal.ask(ReserveBudget, "daily_cost/2026-11-22", "5e1b-7", 0.04, 5.0)`.
    """

    reply: Reply[float | None]
    """Handle for the answer."""
    budget: str
    """Name of the budget, with what it is for."""
    id: str
    """Name of the reservation, which no other has. The same one again is reserved once."""
    amount: float
    """Most that will be spent."""
    limit: float
    """Most that may be spent and reserved by all."""


@attrs.frozen
class SettleBudget:
    """Note: a reservation is over. A crash may lose it: then nothing was spent."""

    budget: str
    """As in the `ReserveBudget` that it ends."""
    id: str
    """Likewise."""
    spent: float
    """Amount that was spent in the end."""


# ------------------------------------------------------------------ other nodes


@attrs.frozen
class TellNodes:
    """Note: tell the other nodes something that may be lost, such as a draft. The file engine has no other node, and does nothing."""

    text: str
    """Line of at most LONGEST_TOLD bytes; a longer one is told to nobody."""
    address: Address | None = None
    """Conversation whose clients it is for: it is not told to others if one of them is connected here. None: it is told anyway."""


@attrs.frozen(eq=False, repr=False)
class NextTold:
    """Query: what other nodes have told this one, oldest first. It is answered when there is something.

    The file engine keeps it for ever. There is one asker.
    """

    reply: Reply[tuple[str, ...]]
    """Handle for the texts; there is at least one."""


# ------------------------------------------------------------------ whole files


@attrs.frozen(eq=False, repr=False)
class ReadFile:
    """Query: the content of `path` (below data/), with every earlier request in it; b"" if there is no such file."""

    reply: Reply[bytes]
    """Handle for the content. StorageError: the file cannot be read."""
    path: str
    """File below data/."""


@attrs.frozen(eq=False, repr=False)
class ReadFiles:
    """Query: the contents of several files, or the error for one that cannot be read.

    ValueError: one of the paths is not below data/.

    Example::

        for found in await journal.ask(ReadFiles, ("tasks/a.jsonl", "tasks/b.jsonl")):
            if isinstance(found, StorageError):
                log.warning("task log unreadable", error=str(found))
    """

    reply: Reply[tuple[bytes | StorageError, ...]]
    """Handle for the contents, in the order of `paths`."""
    paths: tuple[str, ...]
    """Files below data/."""


@attrs.frozen(eq=False, repr=False)
class ReplaceFile:
    """Request: make `path` (below data/) hold exactly `content`. Whatever happens, it holds that or what it held."""

    reply: Reply[None]
    """Handle for the end of the write."""
    path: str
    """File below data/, created if it is missing."""
    content: bytes
    """All that the file holds afterwards."""
    lease: Lease | None = None
    """Proof that the file is the asker's to write, where it has taken a lease."""


@attrs.frozen(eq=False, repr=False)
class SetAside:
    """Request: keep a damaged part of `path` (below data/) as `<path>.bad-<n>`; the file itself stays. The same content has one copy.

    Example: `copy = await journal.ask(SetAside, "tokens.json", damaged)` before the file is replaced by what was understood of it.
    """

    reply: Reply[str]
    """Handle for the path of the copy, which is on disk. StorageError: there is none."""
    path: str
    """File below data/."""
    content: bytes
    """Bytes to be kept."""


@attrs.frozen(eq=False, repr=False)
class RemoveOldFiles:
    """Request: delete at most `limit` files of these folders, written from `since` until `before` (ms). Answer: their paths.

    A folder that is empty then is deleted as well.
    """

    reply: Reply[tuple[str, ...]]
    """Handle for the paths of the deleted files."""
    paths: tuple[str, ...]
    """Folders below data/, in this order. Their subfolders are left alone."""
    since: int
    """Time from which on files count, ms since the epoch."""
    before: int
    """Time before which files count, ms since the epoch."""
    limit: int
    """Bound on the work of one message, so that other messages need not wait long for it."""
    names: str = ".*"
    """Expression of the names that count. Of files with the same text in its group "of" the newest one stays, however old it is."""
    spared: frozenset[str] = frozenset()
    """Paths below data/ that stay."""


@attrs.frozen(eq=False, repr=False)
class Archive:
    """Request: rename `path` to `<prefix>YYYY-MM-DD-HHMMSS.jsonl` beside it, and create it anew with `content`.

    If that name is taken, -2, -3 … is added. The answer is the archive's name without the prefix, "" if there was no file. After a
    crash there is either the old state or the new one, once the file is read (`ReadFile`).

    Earlier notes (`CompleteItem`) are made durable first: a session that was archived cannot show any more what is done.
    """

    reply: Reply[str]
    """Handle for the name."""
    path: str
    """File below data/."""
    content: bytes
    """Beginning of the new file: whole lines, or b""."""
    at: int
    """Wall clock, ms since the epoch. The name shows it in UTC."""
    name: str | None = None
    """The name that `ArchiveName` has given, for a content that contains it. Another name would be a StorageError."""
    prefix: str = ""
    """Beginning of the archive's file name, which tells the archives of several files in one folder apart."""
    lease: Lease | None = None
    """Proof that the file is the asker's to write, where it has taken a lease."""


@attrs.frozen(eq=False, repr=False)
class ArchiveName:
    """Query: the answer that an `Archive` of `path` would get at this time (ms since the epoch).

    Example::

        name = await journal.ask(ArchiveName, path, now)
        await journal.ask(Archive, path, first_line(name), now, name)
    """

    reply: Reply[str]
    """Handle for the name, without the prefix."""
    path: str
    """File below data/ that is to be archived."""
    at: int
    """Wall clock, ms since the epoch, as the `Archive` will give it."""
    prefix: str = ""
    """As in `Archive`."""


# ------------------------------------------------------------------ collections


@attrs.frozen(eq=False, repr=False)
class StoredRows:
    """The rows of a collection as they are stored: the answer to `ReadRows`."""

    content: bytes
    """File of the rows, in the form that `row_files` gives the collection; b"" if there is none."""
    version: int
    """Grows with each change of the collection."""


@attrs.frozen(eq=False, repr=False)
class ReadRows:
    """Query: the rows of a collection, with every earlier request in them.

    Example: `stored = await journal.ask(ReadRows, "tokens")`.
    """

    reply: Reply[StoredRows]
    """Handle for the rows. StorageError: they cannot be read."""
    collection: str
    """Name of the collection, a key of `ROW_FILES`."""
    owner: str = ""
    """The one whose collection it is, where there are several of its name."""


@attrs.frozen(eq=False, repr=False)
class PutRows:
    """Request: put and delete rows of a collection, all of it or nothing. The answer is the new version.

    A row that is put keeps its place, unless its key is among `delete` too: then it is the last.

    The file engine writes `content()`, and so needs the whole collection; an engine with rows writes those that have changed. Without
    rows to put or delete, the collection is the same, and a file is written anew that was damaged.

    On Changed nothing has happened: somebody else has changed the collection since `version`.
    """

    reply: Reply[int]
    """Handle for the new version."""
    collection: str
    """As in `ReadRows`."""
    owner: str
    """As in `ReadRows`."""
    put: Mapping[str, str]
    """Text of each row, in the form of the collection, by its key."""
    delete: frozenset[str]
    """Keys whose rows go. Those that do not exist are no error."""
    content: Callable[[], bytes]
    """Returns the whole file as it is afterwards. It blocks nobody, and changes nothing."""
    version: int
    """Version that the asker has read or made last."""


@attrs.frozen(eq=False, repr=False)
class NextChange:
    """Query: answered when somebody else has changed a collection of rows or lines, with its new version.

    The file engine keeps it for ever, since nobody else writes. Any number of these queries may wait.

    Example: `version = await journal.ask(NextChange, "approvals", "", version)`, and then read again.
    """

    reply: Reply[int]
    """Handle for the version: of rows that of `ReadRows`, of lines their number."""
    collection: str
    """Name of the collection, a key of `ROW_FILES` or `LINE_FILES`."""
    owner: str
    """As in `ReadRows`."""
    version: int
    """Version that the asker knows; 0 if it knows none."""


WholeFile: TypeAlias = ReadFile | ReadFiles | ReplaceFile | SetAside | RemoveOldFiles | Archive | ArchiveName
WholeCollection: TypeAlias = ReadRows | PutRows
JournalMessage: TypeAlias = (
    Accept
    | Discard
    | NextItem
    | NextChat
    | LostChats
    | LostLease
    | TakeLease
    | GiveBack
    | ReserveBudget
    | SettleBudget
    | TellNodes
    | NextTold
    | NextItemOfAddress
    | TakeItem
    | ItemDone
    | LaneDone
    | CompleteItem
    | ReturnItem
    | Waiting
    | Connected
    | Disconnected
    | KnownAddresses
    | Route
    | Commit
    | Posted
    | NextReplies
    | Unacknowledged
    | UnacknowledgedChannels
    | OpenReplies
    | Acknowledge
    | LastSeq
    | NextChange
    | WholeFile
    | WholeCollection
)
