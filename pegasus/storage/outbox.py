"""The outbox: replies that nobody has acknowledged, the numbering of every address, and keys to recognise.

State of `outbox/outbox.jsonl`, whose records are

    {"type":"reply","key":"…","at":ms,"message":{…}}
    {"type":"ack","channel":{"type","channelId"},"seq":13,"at":ms}    everything up to it
    {"type":"address","channel":{…},"seq":13,"acked":12}              after a rewrite: the numbering of an address
    {"type":"keys","channels":[{…}, …],"replies":[[key, seq, place in channels], …]}       acknowledged, without text

Replies to an address are numbered by `seq`, 1, 2, 3 …, without a gap and for ever: a client recognises by it what it
has missed. So a number must not be given twice, not even after a crash, and is given only together with the record
that says so.

A key is recognised as long as its reply is not acknowledged, and for a while after that, so that a session that is
taken up again after a crash posts nothing twice.

A text is held in memory until the reply has reached its adapter, usually for a moment. Several thousand replies may wait
for a client that is not connected for a month; of them only the place in the file is kept.

An acknowledged reply is worth only its key. A rewrite therefore keeps the text of unacknowledged replies, and
of the others key and number, packed into few lines with each channel once.

**Giving up.** A reply that nobody has acknowledged for 30 days will hardly be fetched any more. Before a rewrite such replies
are reported to the Main Agent, as one item for each address, and then count as acknowledged. The report is durable first:
after a crash in between it is made again, and its id makes it the same item.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain, islice, takewhile
from typing import ClassVar, Final

import attrs

from pegasus.formatting import truncate
from pegasus.messages import INTERNAL_ID_PREFIX, Address, ChannelInfo, InboundMessage, Json, OutboundMessage
from pegasus.storage.messages import Post, PostResult, Unroutable
from pegasus.storage.record_log import RecordLog, Rewrite, Staged, count_field, in_pieces
from pegasus.storage.volume import Span
from pegasus.wire import encode_line, require_number, to_wire

REMEMBERED_KEYS = 10_000
"""Keys of acknowledged replies that are recognised. Those of unacknowledged ones always are. A session that is
taken up again posts a few replies at most, so this is far more than needed."""
GIVEN_UP_DAYS = 30
"""Days after which a reply that nobody has acknowledged is given up."""
GIVEN_UP_AFTER_MS = GIVEN_UP_DAYS * 24 * 3600 * 1000
"""The same in milliseconds."""
GONE = Span(0, 0)
"""The place of a reply whose text is not in the file any more."""
UNDELIVERED_REPLY: Final = "reply_undelivered"
"""The `type` in the metadata of an item that reports an undelivered reply."""
EXCERPT: Final = 80
"""Characters of the undelivered text that the report quotes, by which the agent recognises the reply."""


# ------------------------------------------------------------------ records, as far as they are needed at a start


@attrs.frozen(eq=False, repr=False)
class ReplyHead:
    """The parts of a reply that are kept in memory; the text is read back later.

    Example: of `{"type": "reply", "key": "main/12/call_1", "at": ms, "message": {...}}` it is the part "message".
    """

    text: str
    """The text, read for its size alone and not kept."""
    channel: ChannelInfo
    """The channel that it goes to."""
    seq: int = count_field()
    """Its number on that address."""


@attrs.frozen(eq=False, repr=False)
class ReplyRecord:
    """A reply that was posted.

    Example: `{"type": "reply", "key": "main/12/call_1", "at": ms, "message": {...}}`, written by `post`.
    """

    key: str
    """The idempotency key of the post."""
    message: ReplyHead
    """The reply."""
    at: int = count_field()
    """Wall clock when it was posted, ms since the epoch."""


@attrs.frozen(eq=False, repr=False)
class AckRecord:
    """The client has everything up to a seq.

    Example: `{"type": "ack", "channel": {...}, "seq": 13}`. It is a note: a crash may lose it, and the client gets replies twice.
    """

    channel: ChannelInfo
    """Conversation of the client; only its address counts."""
    seq: int = count_field()
    """Highest seq that the client has."""


@attrs.frozen(eq=False, repr=False)
class NumberingRecord:
    """The last seq of an address, and the last one that was acknowledged.

    Example: `{"type": "address", "channel": {...}, "seq": 13, "acked": 12}`, written by a rewrite, so that no seq is given twice.
    """

    channel: ChannelInfo
    """Channel of the latest reply to the address."""
    seq: int = count_field()
    """Last seq that was given."""
    acked: int = count_field()
    """Last seq that was acknowledged."""


@attrs.frozen(eq=False, repr=False)
class KeysRecord:
    """Keys of acknowledged replies, each with its seq and the index of its channel.

    Example: `KeysRecord((channel,), (("main/12/call_1", 13, 0),))`. A `Post` with that key gets seq 13 again, and nothing is sent.
    """

    channels: tuple[ChannelInfo, ...]
    """Channels that the entries refer to by index."""
    replies: tuple[tuple[str, int, int], ...]
    """Entries (key, seq, index of the channel)."""


@attrs.define(eq=False, repr=False)
class OutboxEntry:
    """A reply that was posted.

    Example: `log.find("main/12/call_1").seq` is the number that the reply of this key was given.
    """

    key: str
    """Idempotency key of its post."""
    channel: ChannelInfo
    """Channel that it goes to."""
    seq: int
    """Number of the reply on its address, from 1."""
    at: int
    """Wall clock when it was posted, ms."""
    span: Span
    """Its place in the file; `GONE` if only key and seq are known any more."""
    message: OutboundMessage | None = None
    """None if it is to be read back from `span`."""


@attrs.define(eq=False, repr=False)
class AddressSequence:
    """The replies to one address.

    Example: with `last=13` and `acked=11`, replies 12 and 13 are in `unacknowledged`, and the next reply gets 14.
    """

    channel: ChannelInfo
    """The channel of the latest reply."""
    last: int = 0
    """The last seq that was given."""
    acked: int = 0
    """The last seq that was acknowledged."""
    unacknowledged: list[OutboxEntry] = attrs.field(factory=list)
    """In the order of seq. A list, since an empty deque takes ten times as much memory, and most addresses have none."""


class OutboxLog(RecordLog[OutboxEntry]):
    """The outbox as of its file, with its notes, and what is staged.

    >>> log = OutboxLog()
    >>> log.post(Post("call_1", "Hi", "main", channel), channel, at=1_772_029_800_000).seq
    1
    >>> log.written(offset)                     # after log.unwritten() has reached the disk
    >>> log.acknowledge(channel.address, 1)
    """

    path: ClassVar = "outbox/outbox.jsonl"

    def __init__(self, remembered: int = REMEMBERED_KEYS) -> None:
        super().__init__(
            {
                "reply": (ReplyRecord, self._replay_reply),
                "ack": (AckRecord, self._replay_ack),
                "address": (NumberingRecord, self._replay_numbering),
                "keys": (KeysRecord, self._replay_keys),
            }
        )
        self._remembered = remembered
        """Acknowledged keys that are recognised."""
        self.sequences: dict[Address, AddressSequence] = {}
        """Numbering by address. It is never dropped, as numbers must not be given twice."""
        self.keys: dict[str, OutboxEntry] = {}
        """All replies that are recognised, by key."""
        self._acked_keys: deque[OutboxEntry] = deque()
        """Acknowledged replies whose keys are recognised, oldest first."""
        self._unacknowledged_bytes = 0
        """Bytes of the records of all unacknowledged replies. A client that never acknowledges anything may leave 100,000 of them."""

    # ------------------------------------------------------------------ posting

    def post(self, post: Post, channel: ChannelInfo | Unroutable, at: int) -> PostResult:
        """Stage a reply to `channel`, or return the one that its key was given before. at: wall clock, ms.

        An Unroutable is the answer, unless the key is known: its reply may go to an address that could not be resolved any more.

        Raises TypeError or ValueError if it cannot be written as JSON. Then nothing has changed.
        """
        # The session posts again what it had decided before a crash. The first reply stands, with its number.
        known = self.find(post.key)
        if known is not None:
            return OutboundMessage(post.text, known.channel, known.seq, post.metadata, files=post.files, key=post.key)
        if isinstance(channel, Unroutable):
            return channel
        address = channel.address
        staged = (reply for reply, _ in reversed(self.staged.values()) if reply.channel.address == address)
        latest = next(staged, None)
        seq = (latest.seq if latest else self.last_seq(address)) + 1
        message = OutboundMessage(post.text, channel, seq, post.metadata, files=post.files)
        line = encode_line({"type": "reply", "key": post.key, "at": at, "message": to_wire(message)})
        message = OutboundMessage(post.text, channel, seq, post.metadata, files=post.files, key=post.key)
        self.staged[post.key] = Staged(OutboxEntry(post.key, channel, seq, at, Span(0, len(line)), message), line)
        return message

    def acknowledge(self, address: Address, seq: int, at: int = 0) -> int:
        """Note that the client has everything up to and including seq; return how many replies that are. at: wall clock, ms.

        What was not given yet is ignored.

        A client may outlive the data of its daemon, and then claims numbers that do not exist yet. If that were taken for true, the
        replies that get these numbers later would never be sent. If a crash loses the note, the client is sent replies again.
        """
        numbering = self.sequences.get(address)
        if numbering is None or not numbering.acked < seq <= numbering.last:
            return 0
        number = seq - numbering.acked
        self._advance(numbering, seq)
        note: dict[str, Json] = {"type": "ack", "channel": to_wire(address), "seq": seq}
        self.notes[address] = encode_line({**note, "at": at} if at else note)
        return number

    # ------------------------------------------------------------------ asking

    def find(self, key: str) -> OutboxEntry | None:
        """Return the reply of an idempotency key."""
        staged = self.staged.get(key)
        return self.keys.get(key) if staged is None else staged.value

    def last_seq(self, address: Address) -> int:
        """Return the last seq that was written for the address, 0 if none. Staged replies do not count."""
        numbering = self.sequences.get(address)
        return 0 if numbering is None else numbering.last

    def unacknowledged(self, type: str, channel_id: str | None, limit: int) -> list[OutboxEntry]:
        """Return replies that nobody has acknowledged, to an address or (channel_id None) to a type.

        They are in the order of seq for each address, and at most `limit`.
        """
        if channel_id is None:
            addresses = [address for address in self.sequences if address.type == type]
        else:  # each client that connects asks this, so it must not look through all addresses
            addresses = [Address(type, channel_id)]
        waiting = (self.sequences[address].unacknowledged for address in addresses if address in self.sequences)
        return list(islice(chain.from_iterable(waiting), limit))

    def acknowledged_above(self, address: Address, seq: int) -> list[OutboxEntry]:
        """Return the acknowledged replies to an address above seq whose texts are still in the file, in the order of seq."""
        found = (
            reply
            for reply in self._acked_keys
            if reply.seq > seq and reply.span != GONE and reply.channel.address == address
        )
        return sorted(found, key=lambda reply: reply.seq)

    def open_replies(self, address: Address | None, limit: int) -> list[OutboxEntry]:
        """Return replies that nobody has acknowledged, to an address or (None) to all, at most `limit`."""
        found = self.sequences.values() if address is None else filter(None, [self.sequences.get(address)])
        return list(islice(chain.from_iterable(numbering.unacknowledged for numbering in found), limit))

    def unacknowledged_channels(self, type: str) -> tuple[str, ...]:
        """Return the channelIds of a type that have replies which nobody has acknowledged."""
        waiting = (address for address, numbering in self.sequences.items() if numbering.unacknowledged)
        return tuple(address.channel_id for address in waiting if address.type == type)

    def given_up(self, now: int) -> list[list[OutboxEntry]]:
        """Return the replies of each address that nobody has acknowledged for too long. now: wall clock, ms."""
        found = (
            list(takewhile(lambda reply: now - reply.at > GIVEN_UP_AFTER_MS, numbering.unacknowledged))
            for numbering in self.sequences.values()
        )
        return [replies for replies in found if replies]

    # ------------------------------------------------------------------ loading

    def _replay_reply(self, record: ReplyRecord, span: Span) -> None:
        """Take over a reply. Raises ValueError if its seq was given before."""
        key, channel, seq = record.key, record.message.channel, record.message.seq
        if key in self.keys:
            return
        numbering = self.sequences.get(channel.address)
        if numbering is not None and numbering.unacknowledged and seq <= numbering.unacknowledged[-1].seq:
            raise ValueError(f"seq {seq} is out of order")
        self._add(OutboxEntry(key, channel, seq, record.at, span))

    def _replay_ack(self, record: AckRecord, _: Span) -> None:
        numbering = self._numbering(record.channel)
        numbering.last = max(numbering.last, record.seq)  # it was given, even if the line of its reply is damaged
        self._advance(numbering, record.seq)

    def _replay_numbering(self, record: NumberingRecord, _: Span) -> None:
        numbering = self._numbering(record.channel)
        numbering.last = max(numbering.last, record.seq)
        numbering.acked = max(numbering.acked, record.acked)

    def _replay_keys(self, record: KeysRecord, _: Span) -> None:
        """Take over keys of acknowledged replies. Nothing is applied if one of the entries is wrong."""
        replies = [(key, record.channels[place], require_number(seq)) for key, seq, place in record.replies]
        for key, channel, seq in replies:
            if key not in self.keys:
                reply = self.keys[key] = OutboxEntry(key, channel, seq, 0, GONE)
                self._retire(reply)

    # ------------------------------------------------------------------ parts of a log

    @property
    def live_bytes(self) -> int:
        """About how many bytes the file would have after a rewrite."""
        return self._unacknowledged_bytes + 40 * len(self._acked_keys) + 80 * len(self.sequences)

    def rewritten(self, rewrite: Rewrite[OutboxEntry], size: int) -> None:
        """Note that the file was replaced; the texts of acknowledged replies are gone with the old one."""
        super().rewritten(rewrite, size)
        for reply in self._acked_keys:
            reply.span = GONE

    def _add_written(self, values: list[OutboxEntry]) -> None:
        for reply in values:
            self._add(reply)

    def _kept(self) -> list[OutboxEntry]:
        unacknowledged = (numbering.unacknowledged for numbering in self.sequences.values())
        return sorted(chain.from_iterable(unacknowledged), key=lambda reply: reply.span)

    def _summary(self) -> list[bytes]:
        numberings = (numbering_line(address, each.last, each.acked) for address, each in self.sequences.items())
        keys = ((reply.key, reply.seq, reply.channel) for reply in self._acked_keys)
        return [*numberings, *map(keys_line, in_pieces(keys))]

    # ------------------------------------------------------------------ inside

    def _numbering(self, channel: ChannelInfo) -> AddressSequence:
        """Return the numbering of the address, a new one if there is none."""
        return self.sequences.setdefault(channel.address, AddressSequence(channel))

    def _add(self, reply: OutboxEntry) -> None:
        """Add a reply that is in the file. Replies in a row that go to the same channel share one object for it."""
        numbering = self._numbering(reply.channel)
        if numbering.channel == reply.channel:
            reply.channel = numbering.channel
        numbering.channel = reply.channel
        numbering.last = max(numbering.last, reply.seq)
        self.keys[reply.key] = reply
        if reply.seq <= numbering.acked:
            self._retire(reply)
        else:
            numbering.unacknowledged.append(reply)
            self._unacknowledged_bytes += reply.span.length

    def _advance(self, numbering: AddressSequence, seq: int) -> None:
        """Retire everything up to seq."""
        numbering.acked = max(numbering.acked, seq)
        retired = list(takewhile(lambda reply: reply.seq <= seq, numbering.unacknowledged))
        del numbering.unacknowledged[: len(retired)]
        for reply in retired:
            self._unacknowledged_bytes -= reply.span.length
            self._retire(reply)

    def _retire(self, reply: OutboxEntry) -> None:
        """Remember only the key of a reply that is acknowledged, and forget the oldest of such keys."""
        reply.message = None
        self._acked_keys.append(reply)
        if len(self._acked_keys) > self._remembered:
            del self.keys[self._acked_keys.popleft().key]


def undelivered_item(reply: OutboundMessage, reason: str) -> InboundMessage:
    """Return an item that reports to the Main Agent that nobody will ever get this reply. reason: one line for the model."""
    address = reply.channel.address
    names = "".join(f" [file {file.name}]" for file in reply.files)
    text = f"{reason}\nIt began: {truncate(reply.text + names, EXCERPT)}"
    metadata: dict[str, Json] = {"type": UNDELIVERED_REPLY, "seq": reply.seq}
    return InboundMessage(text, reply.channel, f"{INTERNAL_ID_PREFIX}reply/{address}/{reply.seq}", metadata)


def given_up_item(newest: OutboundMessage, count: int) -> InboundMessage:
    """Return an item that reports that `count` replies to one address, of which this is the newest, are given up."""
    these = "It" if count == 1 else f"This and {count - 1} before it"
    reason = f"Nobody has fetched it for {GIVEN_UP_DAYS} days. {these} will not be kept any longer."
    return undelivered_item(newest, reason)


# ------------------------------------------------------------------ records


def numbering_line(address: Address, last: int, acked: int) -> bytes:
    """Return what a rewrite keeps of an address."""
    return encode_line({"type": "address", "channel": to_wire(address), "seq": last, "acked": acked})


def keys_line(replies: Iterable[tuple[str, int, ChannelInfo]]) -> bytes:
    """Return what a rewrite keeps of acknowledged replies, each with key, seq and channel. Each channel is written once."""
    places: dict[ChannelInfo, int] = {}
    entries: list[Json] = [[key, seq, places.setdefault(channel, len(places))] for key, seq, channel in replies]
    return encode_line({"type": "keys", "channels": [to_wire(channel) for channel in places], "replies": entries})
