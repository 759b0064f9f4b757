"""Messages of the journal actor: the only interface of storage.

The journal is the one writer of everything below `<home>/data`. It remembers accepted messages (the *inbox*), replies
that were not acknowledged yet (the *outbox*) and the addresses that exist, and it appends to and replaces files for
other packages. These messages do not say that inbox and outbox are files. A second engine, a database server that
several machines share, can implement the same messages.

Three kinds of messages:

* **Requests** (`Accept`, `Discard`, `Commit`, `ReplaceFile`, `Archive`): the answer comes when their effect is on disk, and means
  that it survives a crash. StorageError means that nothing of it has happened; the request may be made again.
* **Notes** (`Done`, `Acknowledge`, `Connected`, `Disconnected`): they have no answer. They are in effect at once, and
  written with the next write or after 50 ms. A crash may lose the last of them; each is of a kind that does no harm then.
* **Queries** (`NextItem`, `Posted`, `ReadFile` …): they change nothing on disk. Some wait until there is an answer.

A caller that leaves while it waits (a cancelled task) leaves its request in effect if the journal has begun with it.

    accepted = await journal.ask(Accept, message)
    item = await journal.ask(NextItem)
    [reply] = await journal.ask(Commit, (("main/current.jsonl", lines),), (post,))
    await journal.tell(Done(item.n))

The messages about the inbox are in `inbox_messages`, all others here.

Messages that carry a `Reply` are compared by identity and have no repr: a repr would put people's texts into logs.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from actors import Reply
from pegasus.messages import Address, ChannelInfo, Metadata, OutboundMessage, StoredFile
from pegasus.storage.inbox_messages import Accept, Discard, Done, ItemDone, Newer, NextChat, NextItem, Take, Waiting


class StorageError(Exception):
    """The disk refused (full, read-only, gone). Nothing of the request was kept, and it may be made again."""


# ------------------------------------------------------------------ addresses


@attrs.frozen
class Connected:
    """Note: a client of this address is connected now. The address is known from then on, over restarts too."""

    type: str
    channel_id: str | None
    """None for a bridge or an adapter that serves all addresses of the type. That is not remembered."""


@attrs.frozen
class Disconnected:
    """Note: the counterpart of `Connected`. Each `Connected` needs exactly one."""

    type: str
    channel_id: str | None


@attrs.frozen(eq=False, repr=False)
class KnownAddresses:
    """Query: the addresses that were seen last, newest first, at most 20."""

    reply: Reply[tuple[Address, ...]]


@attrs.frozen
class Unroutable:
    """Result of a `Post` that fits no address; see `directory` for the rules."""

    reason: str
    """Reason, for the model."""
    known: tuple[Address, ...]
    """Addresses that exist, or those that are ambiguous: newest first, at most 20."""


# ------------------------------------------------------------------ outbox


@attrs.frozen
class Post:
    """A reply to be put in the outbox, as part of a `Commit`."""

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


PostResult: TypeAlias = OutboundMessage | Unroutable
"""The reply with its `seq`, or the reason why there is none."""


@attrs.frozen(eq=False, repr=False)
class Commit:
    """Request: append to files and post replies, as one durable step. The answer has one result for each post.

    On StorageError nothing was kept, neither appends nor posts. ValueError: a path that is not below data/ or belongs
    to the journal, or a text that cannot be written as JSON. An `Unroutable` post does not fail the others.

    >>> await journal.ask(Commit, (("main/current.jsonl", encode_line({"role": "user", "content": "Hi"})),))
    ()
    """

    reply: Reply[tuple[PostResult, ...]]
    appends: tuple[tuple[str, bytes], ...] = ()
    """Pairs of a path below data/ and bytes that end in a newline. Each is on disk before the next one is begun."""
    posts: tuple[Post, ...] = ()
    """Replies. They reach the disk after all appends, so a reply that exists was decided in a session that shows it."""
    lease: Lease | None = None
    """Proof that the session to append to is the asker's, where it has taken a lease for it."""
    together: tuple[tuple[str, bytes], ...] = ()
    """Appends to other files, whose order does not matter. They follow `appends`, and are synced at the same time."""


@attrs.frozen(eq=False, repr=False)
class Posted:
    """Query: the replies that were posted with these keys, None for a key that is not known.

    The text of a reply that was acknowledged long ago may be gone; it is "" then.
    """

    reply: Reply[tuple[OutboundMessage | None, ...]]
    keys: tuple[str, ...]


@attrs.frozen(eq=False, repr=False)
class QueuedReply:
    """A reply on its way to an adapter."""

    position: int
    """Place in the queue of this process, growing by 1 for every reply."""
    message: OutboundMessage


@attrs.frozen(eq=False, repr=False)
class NextReplies:
    """Query: replies to be given to the adapters, oldest first, at most 100. It is answered when there are some.

    Replies from before the start of this process, and those that were acknowledged meanwhile, are not among them; see
    `Unacknowledged`. There is one asker: a second query fails the first with StorageError.
    """

    reply: Reply[tuple[QueuedReply, ...]]
    handed: int = 0
    """The highest position of the answer before, which is confirmed by this. What is not confirmed is given again."""


@attrs.frozen(eq=False, repr=False)
class Unacknowledged:
    """Query: replies that nobody has acknowledged, in the order of `seq` for each address."""

    reply: Reply[tuple[OutboundMessage, ...]]
    type: str
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


@attrs.frozen(eq=False, repr=False)
class OpenReply:
    """A reply that nobody has acknowledged: `OpenReply(Address("web", "c1"), 3, "main/12/call_1")`."""

    address: Address
    seq: int
    key: str
    """Key of its post, which names the item that it came of."""


@attrs.frozen(eq=False, repr=False)
class OpenReplies:
    """Query: the replies that nobody has acknowledged, without their texts, in the order of `seq` for each address."""

    reply: Reply[tuple[OpenReply, ...]]
    address: Address | None = None
    """Only those to this address; None = to all."""
    limit: int = 1000


@attrs.frozen(eq=False, repr=False)
class UnacknowledgedChannels:
    """Query: the channelIds of a type that have replies which nobody has acknowledged."""

    reply: Reply[tuple[str, ...]]
    type: str


@attrs.frozen
class Acknowledge:
    """Note: the client has every reply up to and including `seq`. A seq that was not assigned yet is ignored.

    If a crash loses the note, the replies are sent again, and the client recognises them by their seq.
    """

    address: Address
    seq: int


@attrs.frozen(eq=False, repr=False)
class LastSeq:
    """Query: the last seq that was assigned to an address, 0 if none."""

    reply: Reply[int]
    address: Address


# ------------------------------------------------------------------ leases


@attrs.frozen
class Lease:
    """The right to change a file, until somebody else takes it: `Lease("sessions/web%3Ac1.jsonl", 7)`."""

    path: str
    token: int
    """Fencing token: it grows with each lease of the file, and a change with an older one is refused."""


class LeaseLost(Exception):
    """Somebody else has taken the lease since. Nothing of the request has happened, and it must not be made again."""


@attrs.frozen(eq=False, repr=False)
class TakeLease:
    """Query: take the lease of a file, whoever had it. Whoever had it gets LeaseLost for the next change.

    So a file has one owner at a time, also while an owner that is given up still works. Leases are kept in memory: a restart of the
    journal restarts everybody who holds one.
    """

    reply: Reply[Lease]
    path: str


# ------------------------------------------------------------------ whole files


@attrs.frozen(eq=False, repr=False)
class ReadFile:
    """Query: the content of `path` (below data/), with every earlier request in it; b"" if there is no such file."""

    reply: Reply[bytes]
    path: str


@attrs.frozen(eq=False, repr=False)
class ReadFiles:
    """Query: the contents of several files, or the error for one that cannot be read.

    ValueError: one of the paths is not below data/.
    """

    reply: Reply[tuple[bytes | StorageError, ...]]
    paths: tuple[str, ...]


@attrs.frozen(eq=False, repr=False)
class ReplaceFile:
    """Request: make `path` (below data/) hold exactly `content`. Whatever happens, it holds that or what it held."""

    reply: Reply[None]
    path: str
    content: bytes
    """All that the file holds afterwards."""
    lease: Lease | None = None
    """Proof that the file is the asker's, where it has taken a lease for it."""


@attrs.frozen(eq=False, repr=False)
class RemoveOldFiles:
    """Request: delete at most `most` files of the folder `path`, written from `since` until `before` (ms). Answer: how many."""

    reply: Reply[int]
    path: str
    since: int
    before: int
    most: int


@attrs.frozen(eq=False, repr=False)
class Archive:
    """Request: rename `path` to `<prefix>YYYY-MM-DD-HHMMSS.jsonl` beside it, and create it anew with `content`.

    If that name is taken, -2, -3 … is added. The answer is the archive's name without the prefix, "" if there was no file. After a
    crash there is either the old state or the new one, once the file is read (`ReadFile`).

    Earlier notes (`Done`) are made durable first: a session that was archived cannot show any more what is done.
    """

    reply: Reply[str]
    path: str
    content: bytes
    at: int
    """Wall clock, ms since the epoch. The name shows it in UTC."""
    name: str | None = None
    """The name that `ArchiveName` has given, for a content that contains it. Another name would be a StorageError."""
    prefix: str = ""
    """Beginning of the archive's file name, which tells the archives of several files in one folder apart."""
    lease: Lease | None = None
    """Proof that the file is the asker's, where it has taken a lease for it."""


@attrs.frozen(eq=False, repr=False)
class ArchiveName:
    """Query: the answer that an `Archive` of `path` would get at this time (ms since the epoch)."""

    reply: Reply[str]
    path: str
    at: int
    prefix: str = ""
    """As in `Archive`."""


WholeFile: TypeAlias = ReadFile | ReadFiles | ReplaceFile | RemoveOldFiles | Archive | ArchiveName
JournalMessage: TypeAlias = (
    Accept
    | Discard
    | NextItem
    | NextChat
    | TakeLease
    | Newer
    | Take
    | ItemDone
    | Done
    | Waiting
    | Connected
    | Disconnected
    | KnownAddresses
    | Commit
    | Posted
    | NextReplies
    | Unacknowledged
    | UnacknowledgedChannels
    | OpenReplies
    | Acknowledge
    | LastSeq
    | WholeFile
)
