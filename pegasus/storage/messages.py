"""What may be said to the journal actor, the one writer of `<home>/data`.

Everything answered here is on disk (fdatasync) before the answer is sent.
Questions have no ==, which would mean nothing, and no repr, which would put people's words into logs; it also makes them
cheap to import.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from actors import Reply
from pegasus.messages import Address, ChannelInfo, InboundMessage, Metadata, OutboundMessage


class StorageError(Exception):
    """The disk refused (full, read-only, gone). Nothing of the request was kept; it may be tried again."""


class Revoked(Exception):
    """Not raised any more: an item is handed out only when it is on disk. It goes when nobody catches it."""


# ------------------------------------------------------------------ inbox


@attrs.frozen
class Item:
    """One accepted message, as the Main Agent takes it.

    n: its number in the inbox, growing over restarts. attempt: 1 for the first time this process hands it out (0: only shown
    by Newer). rank: as it was accepted with.
    """

    n: int
    message: InboundMessage
    attempt: int = 1
    rank: int = 0


@attrs.frozen
class Accepted:
    """The message is on disk. duplicate: the id was known, nothing was added (it may be done already)."""

    n: int
    duplicate: bool


@attrs.frozen
class Overloaded:
    """Not accepted: `waiting` messages are waiting already."""

    waiting: int


@attrs.frozen(eq=False, repr=False)
class Accept:
    """Take responsibility for a message. lane: "main" by rank, or "control", which passes the queue (/stop …).

    rank: 0 (most urgent) to 9; among equals the oldest comes first. It is kept over restarts. ValueError: another number.
    """

    reply: Reply[Accepted | Overloaded]
    message: InboundMessage
    lane: str = "main"
    rank: int = 0


@attrs.frozen(eq=False, repr=False)
class NextItem:
    """The item of the lane that is due; the answer comes when there is one.

    What was handed out and is not done is due first, in the order it was handed out, with attempt + 1. Then, in lane
    "main", the lowest n + rank × AGEING (see lanes.py), so that whatever waits is passed by so many younger ones at most;
    in other lanes the oldest. prefer: if this item is not done, it and no other.

    Of two that wait for the same lane the first gets a StorageError. What is handed out is on disk.
    """

    reply: Reply[Item]
    lane: str = "main"
    prefer: int | None = None


@attrs.frozen(eq=False, repr=False)
class Newer:
    """Shows the oldest item of lane "main" from this address that waits: n above `after`, not done, not handed out.

    It stays in the queue; Take hands it out. The item is on disk already. None if there is none; with wait=True the
    answer comes when there is one. Any number may wait.
    """

    reply: Reply[Item | None]
    address: Address
    after: int = 0
    wait: bool = False


@attrs.frozen(eq=False, repr=False)
class Take:
    """Hand out this item of lane "main" as well, whatever else is handed out; each wants its Done.

    None: it is done, or there is no such item. One that was handed out before is given again, with attempt + 1.
    """

    reply: Reply[Item | None]
    n: int


@attrs.frozen
class Done:
    """The item needs no more work. Not durable at once: the session tells at a restart what was done."""

    n: int


@attrs.frozen(eq=False, repr=False)
class Waiting:
    """How many accepted items are not done, all lanes."""

    reply: Reply[int]


# ------------------------------------------------------------------ addresses


@attrs.frozen
class Connected:
    """A client for this address, or a bridge or adapter for the whole type (channel_id None), is there.

    Kept in memory only; but an address that was there once is known for ever after.
    """

    type: str
    channel_id: str | None


@attrs.frozen
class Disconnected:
    """The counterpart of Connected; each Connected wants exactly one."""

    type: str
    channel_id: str | None


@attrs.frozen(eq=False, repr=False)
class KnownAddresses:
    """The addresses that were seen last, newest first, at most 20."""

    reply: Reply[tuple[Address, ...]]


@attrs.frozen
class Unroutable:
    """No address fits (interfaces 8.2). known: addresses that would, newest first, at most 20."""

    reason: str
    known: tuple[Address, ...]


# ------------------------------------------------------------------ outbox


@attrs.frozen
class Post:
    """One reply to be delivered. key: idempotency key (session + tool call id): posted once, however often asked.

    channel_id, channel_type, reply_to: as the model gave them; resolved by the rules of interfaces 8.2.
    source: the channel of the message being answered.
    """

    key: str
    text: str
    channel_id: str
    source: ChannelInfo
    channel_type: str | None = None
    reply_to: str | None = None
    metadata: Metadata = attrs.field(factory=dict)


PostResult: TypeAlias = OutboundMessage | Unroutable


@attrs.frozen(eq=False, repr=False)
class Commit:
    """Appends, then posts, as one durable step, in this order: an append is on disk before any post of it is.

    appends: (path below data/, bytes ending in a newline). posts: replies to put in the outbox.
    The answer has one result for each post, and comes when all is on disk. durable, item, together: not looked at any more.
    On StorageError nothing was kept, neither appends nor posts. ValueError: a path or a text that cannot be written.
    """

    reply: Reply[tuple[PostResult, ...]]
    appends: tuple[tuple[str, bytes], ...] = ()
    posts: tuple[Post, ...] = ()
    durable: bool = True
    item: int | None = None
    together: frozenset[str] = frozenset()


@attrs.frozen(eq=False, repr=False)
class Posted:
    """What became of these idempotency keys: the stored reply, or None where nothing is known.

    The text of a reply that was acknowledged long ago may be gone; it is "" then.
    """

    reply: Reply[tuple[OutboundMessage | None, ...]]
    keys: tuple[str, ...]


@attrs.frozen(eq=False, repr=False)
class NextReplies:
    """Replies to be handed to the adapters, oldest first; the answer comes when there are some (at most 100).

    handed: the highest `position` of the answer before, which is thereby confirmed; 0 at first. What was
    not confirmed is given again (to a restarted switchboard). Replies from before the start of this process, and those
    that were acknowledged meanwhile, are not among them: see Unacknowledged.
    """

    reply: Reply[tuple[Outgoing, ...]]
    handed: int = 0


@attrs.frozen
class Outgoing:
    """A reply on its way to an adapter. position grows by 1 for every reply of this process."""

    position: int
    message: OutboundMessage


@attrs.frozen(eq=False, repr=False)
class Unacknowledged:
    """Replies to an address (or, with channel_id None, to a whole type) that nobody acknowledged, above `after`.

    after: seq by channel_id, what the client says it has (`lastSeq`, `lastSeqs`); it counts as acknowledged, unless it
    is beyond the last one assigned, which cannot be true and is ignored.
    The answer is in seq order per address, at most `limit`.
    """

    reply: Reply[tuple[OutboundMessage, ...]]
    type: str
    channel_id: str | None
    after: tuple[tuple[str, int], ...] = ()
    limit: int = 200


@attrs.frozen
class Acknowledge:
    """The client has everything up to and including seq. Not durable at once; beyond the last assigned is ignored."""

    address: Address
    seq: int


@attrs.frozen(eq=False, repr=False)
class LastSeq:
    """The last seq assigned to an address, 0 if none."""

    reply: Reply[int]
    address: Address


# ------------------------------------------------------------------ whole files


@attrs.frozen(eq=False, repr=False)
class ReadFile:
    """The whole of `path` (below data/), with everything said before in it; b"" if there is no such file."""

    reply: Reply[bytes]
    path: str


@attrs.frozen(eq=False, repr=False)
class ReadFiles:
    """Several, as ReadFile reads one: the content of each, or why it cannot be read. ValueError: one is no path below data/."""

    reply: Reply[tuple[bytes | StorageError, ...]]
    paths: tuple[str, ...]


@attrs.frozen(eq=False, repr=False)
class ReplaceFile:
    """Make `path` (below data/) hold exactly `content`, atomically: temporary file, fsync, rename, fsync of the folder."""

    reply: Reply[None]
    path: str
    content: bytes


@attrs.frozen(eq=False, repr=False)
class Archive:
    """Rename `path` to `YYYY-MM-DD-HHMMSS.jsonl` beside it (-2, -3 … if taken), then create it with `content`.

    `at` is the wall-clock time in ms since the epoch, UTC. The answer is the archive's file name. If there was no file, there is
    no archive, and the answer is "". item: not looked at. name: what ArchiveName has said, for a content that names its archive;
    if the archive would be called otherwise by now, that is a StorageError.

    What is done is durable in the inbox first, since a session that was put aside cannot tell it any more. After a crash there
    is either the old state or the new one, once the file is read (ReadFile).
    """

    reply: Reply[str]
    path: str
    content: bytes
    at: int
    item: int | None = None
    name: str | None = None


@attrs.frozen(eq=False, repr=False)
class ArchiveName:
    """The file name that an Archive of `path` would answer at this time (ms since the epoch)."""

    reply: Reply[str]
    path: str
    at: int


JournalMessage: TypeAlias = (
    Accept
    | NextItem
    | Newer
    | Take
    | Done
    | Waiting
    | Connected
    | Disconnected
    | KnownAddresses
    | Commit
    | Posted
    | NextReplies
    | Unacknowledged
    | Acknowledge
    | LastSeq
    | ReadFile
    | ReadFiles
    | ReplaceFile
    | Archive
    | ArchiveName
)
