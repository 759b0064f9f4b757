"""The outbox: replies that nobody has acknowledged, the numbering of every address, and keys to recognise.

State of `outbox/outbox.jsonl`, whose records are

    {"type":"reply","key":"…","at":ms,"message":{…}}                  of earlier versions perhaps with "redo"
    {"type":"settled"}                                                by earlier versions; see `carried_lines`
    {"type":"ack","channel":{"type","channelId"},"seq":13}            everything up to it
    {"type":"address","channel":{…},"seq":13,"acked":12}              after a rewrite: the numbering of an address
    {"type":"keys","channels":[{…}, …],"replies":[[key, seq, place in channels], …]}       acknowledged, without text

Replies to an address are numbered by `seq`, 1, 2, 3 …, without a gap and for ever: a client recognises by it what it
has missed. So a number must not be given twice, not even after a crash, and is given only together with the record
that says so.

A key is recognised as long as its reply is not acknowledged, and for a while after that, so that a session that is
taken up again after a crash posts nothing twice.

Most replies are handed out and acknowledged within a second, so the newest are held in memory. Of older ones only the
place in the file is kept. Several thousand may wait for a client that is not connected for a month.

An acknowledged reply is worth only its key. A rewrite therefore keeps the text of unacknowledged replies, and
of the others key and number, packed into few lines with each channel once.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import ClassVar

import attrs

from pegasus.messages import Address, ChannelInfo, Json, OutboundMessage
from pegasus.storage.carried_lines import SETTLED, CarriedLines, CarriedRuns
from pegasus.storage.log_file import RecordLog, count_field, in_pieces, replay_as
from pegasus.storage.messages import Post
from pegasus.storage.volume import Span
from pegasus.wire import decode_object, encode_line, from_wire, number_of, to_wire

REMEMBERED_KEYS = 10_000
"""Keys of acknowledged replies that are recognised. Those of unacknowledged ones always are. A session that is
taken up again posts a few replies at most, so this is far more than needed."""
KEPT_BYTES = 4 << 20
"""Bytes of replies that are held in memory; older ones are read back from the file when somebody wants them."""
GIVEN_UP_AFTER = 30 * 24 * 3600 * 1000
"""Milliseconds after which a rewrite drops a reply that nobody has acknowledged."""
GONE = Span(0, 0)
"""The place of a reply whose text is not in the file any more."""


# ------------------------------------------------------------------ records, as far as they are needed at a start


@attrs.frozen
class ReplyHead:
    """The parts of a reply that are kept in memory; the text is read back later."""

    text: str
    channel: ChannelInfo
    """The channel that it goes to."""
    seq: int = count_field()
    """Its number on that address."""


@attrs.frozen
class ReplyRecord:
    """A reply that was posted."""

    key: str
    """The idempotency key of the post."""
    message: ReplyHead
    at: int = count_field()


@attrs.frozen
class CarryingRecord:
    """The additional part of a reply's record in files of earlier versions."""

    redo: CarriedLines


@attrs.frozen
class AckRecord:
    """The client has everything up to a seq."""

    channel: ChannelInfo
    seq: int = count_field()


@attrs.frozen
class NumberingRecord:
    """The last seq of an address, and the last one that was acknowledged."""

    channel: ChannelInfo
    seq: int = count_field()
    acked: int = count_field()


@attrs.frozen
class KeysRecord:
    """Keys of acknowledged replies, each with its seq and the index of its channel."""

    channels: tuple[ChannelInfo, ...]
    """Channels that the entries refer to by index."""
    replies: tuple[tuple[str, int, int], ...]
    """Entries (key, seq, index of the channel)."""


@attrs.frozen
class SettledRecord:
    """See `carried_lines`."""


class StoredReply:
    """A reply that was posted.

    It has slots, as several thousand may be in memory.
    """

    __slots__ = ("acked", "at", "channel", "key", "message", "seq", "span")

    def __init__(self, key: str, channel: ChannelInfo, seq: int, at: int, span: Span) -> None:
        self.key = key
        self.channel = channel
        self.seq = seq
        self.at = at
        """Wall clock when it was posted, ms."""
        self.span = span
        """Its place in the file; `GONE` if only key and seq are known any more."""
        self.message: OutboundMessage | None = None
        """None if it is to be read back from `span`."""
        self.acked = False
        """Whether the client has it."""


class Numbering:
    """The replies to one address."""

    __slots__ = ("acked", "channel", "last", "unacknowledged")

    def __init__(self, channel: ChannelInfo) -> None:
        self.channel = channel
        """The channel of the latest reply."""
        self.last = 0
        """The last seq that was given, staged ones included."""
        self.acked = 0
        """The last seq that was acknowledged."""
        self.unacknowledged: deque[StoredReply] = deque()
        """In the order of seq, without staged ones."""

    def share(self, channel: ChannelInfo) -> ChannelInfo:
        """Return the same channel, as one object for all replies in a row that go to it."""
        if self.channel != channel:
            self.channel = channel
        return self.channel


class OutboxLog(RecordLog[StoredReply]):
    """The outbox as of its file, plus what is staged and buffered.

    >>> log = OutboxLog()
    >>> log.post(Post("call_1", "Hi", "main", channel), channel, at=1_772_029_800_000).seq
    1
    >>> log.written(offset)                     # after log.unwritten() has reached the disk
    >>> log.acknowledge(channel.address, 1)
    """

    path: ClassVar = "outbox/outbox.jsonl"

    def __init__(self, remembered: int = REMEMBERED_KEYS, kept_bytes: int = KEPT_BYTES) -> None:
        super().__init__(
            {
                "reply": self._replay_reply_and_carried,
                "ack": replay_as(AckRecord, self._replay_ack),
                "address": replay_as(NumberingRecord, self._replay_numbering),
                "keys": replay_as(KeysRecord, self._replay_keys),
                "settled": replay_as(SettledRecord, lambda _: self.carried.settle()),
            }
        )
        self._remembered = remembered
        """Acknowledged keys that are recognised."""
        self._kept_bytes = kept_bytes
        """Bytes of unacknowledged replies that are held in memory."""
        self._addresses: dict[Address, Numbering] = {}
        """Numbering by address. It is never dropped, as numbers must not be given twice."""
        self._types: dict[str, dict[Address, None]] = {}
        """The addresses of each type, in the order in which they came."""
        self._keys: dict[str, StoredReply] = {}
        """All replies that are recognised, by key."""
        self._acked_keys: deque[StoredReply] = deque()
        """Acknowledged replies whose keys are recognised, oldest first."""
        self._in_memory: OrderedDict[str, StoredReply] = OrderedDict()
        """Unacknowledged replies whose messages are held in memory, by key, oldest first."""
        self._bytes_in_memory = 0
        """Bytes of the lines of `_in_memory`."""
        self._unacked_bytes = 0
        """Bytes of the lines of unacknowledged replies."""
        self._buffered_acks: dict[Address, int] = {}
        """Acknowledgements that are not written yet: the highest seq by address. Losing them means only that the
        client is sent replies again, which it recognises by their seq."""
        self.carried = CarriedRuns()
        """Lines of other files that replies of earlier versions carry."""

    # ------------------------------------------------------------------ posting

    def post(self, post: Post, channel: ChannelInfo, at: int) -> OutboundMessage:
        """Stage a reply to `channel`, or return the one that its key was given before. at: wall clock, ms.

        Raises TypeError or ValueError if it cannot be written as JSON. Then nothing has changed.
        """
        # The session posts again what it had decided before a crash. The first reply stands, with its number.
        known = self._keys.get(post.key)
        if known is not None:
            return OutboundMessage(post.text, known.channel, known.seq, post.metadata)
        numbering = self._addresses.get(channel.address)
        seq = numbering.last + 1 if numbering else 1
        message = OutboundMessage(post.text, channel, seq, post.metadata)
        line = encode_line({"type": "reply", "key": post.key, "at": at, "message": to_wire(message)})
        numbering = numbering or self._new_numbering(channel)
        numbering.last = seq
        reply = StoredReply(post.key, numbering.share(channel), seq, at, Span(0, len(line)))
        reply.message = message
        self._keys[post.key] = reply
        self._stage(reply, line)
        return message

    def acknowledge(self, address: Address, seq: int) -> None:
        """Note that the client has everything up to and including seq. What was not given yet is ignored.

        A client may outlive the data of its daemon, and then claims numbers that do not exist yet. Believing it would
        swallow the replies that get these numbers later.
        """
        numbering = self._addresses.get(address)
        if numbering is not None and numbering.acked < seq and seq <= self.last_seq(address):
            self._advance(numbering, seq)
            self._buffered_acks[address] = seq

    # ------------------------------------------------------------------ asking

    def find(self, key: str) -> StoredReply | None:
        """Return the reply of an idempotency key."""
        return self._keys.get(key)

    def last_seq(self, address: Address) -> int:
        """Return the last seq that was written for the address, 0 if none. Staged replies do not count."""
        numbering = self._addresses.get(address)
        if numbering is None:
            return 0
        return numbering.last - sum(reply.channel.address == address for reply, _ in self._staged)

    def unacknowledged(self, type: str, channel_id: str | None, limit: int) -> list[StoredReply]:
        """Return replies that nobody has acknowledged, to an address or (channel_id None) to a type.

        They are in the order of seq for each address, and at most `limit`.
        """
        addresses = self._types.get(type, {}) if channel_id is None else [Address(type, channel_id)]
        found: list[StoredReply] = []
        for address in addresses:
            numbering = self._addresses.get(address)
            if numbering is not None and numbering.unacknowledged:
                found += islice(numbering.unacknowledged, limit - len(found))
            if len(found) >= limit:
                break
        return found

    # ------------------------------------------------------------------ loading

    def _replay_reply_and_carried(self, record: Mapping[str, Json], span: Span) -> None:
        """Take over a reply and the lines that it may carry. Both are parsed before either is applied."""
        carried = from_wire(record, CarryingRecord).redo if "redo" in record else None
        if self._replay_reply(from_wire(record, ReplyRecord), span) and carried is not None:
            self.carried.add(carried)

    def _replay_reply(self, record: ReplyRecord, span: Span) -> bool:
        """Take over a reply. Return whether it is new. Raises ValueError if its seq was given before."""
        key, channel, seq = record.key, record.message.channel, record.message.seq
        if key in self._keys:
            return False
        numbering = self._numbering(channel)
        if numbering.unacknowledged and seq <= numbering.unacknowledged[-1].seq:
            raise ValueError(f"seq {seq} is out of order")
        numbering.last = max(numbering.last, seq)
        reply = StoredReply(key, numbering.share(channel), seq, record.at, span)
        self._keys[key] = reply
        if seq <= numbering.acked:
            self._retire(reply)
        else:
            numbering.unacknowledged.append(reply)
            self._unacked_bytes += span.length
        return True

    def _replay_ack(self, record: AckRecord) -> None:
        numbering = self._numbering(record.channel)
        numbering.last = max(numbering.last, record.seq)  # it was given, even if the line of its reply is damaged
        self._advance(numbering, record.seq)

    def _replay_numbering(self, record: NumberingRecord) -> None:
        numbering = self._numbering(record.channel)
        numbering.last = max(numbering.last, record.seq)
        numbering.acked = max(numbering.acked, record.acked)

    def _replay_keys(self, record: KeysRecord) -> None:
        """Take over keys of acknowledged replies. Nothing is applied if one of the entries is wrong."""
        replies = [(key, record.channels[place], number_of(seq)) for key, seq, place in record.replies]
        for key, channel, seq in replies:
            if key not in self._keys:
                reply = self._keys[key] = StoredReply(key, channel, seq, 0, GONE)
                self._retire(reply)

    # ------------------------------------------------------------------ parts of a log

    @property
    def has_buffered(self) -> bool:
        """True if something was acknowledged that the file does not show yet."""
        return bool(self._buffered_acks)

    @property
    def live_bytes(self) -> int:
        """About how many bytes the file would have after a rewrite."""
        return self._unacked_bytes + 40 * len(self._acked_keys) + 80 * len(self._addresses)

    def _buffered_lines(self) -> Sequence[bytes]:
        return [
            encode_line({"type": "ack", "channel": to_wire(address), "seq": seq})
            for address, seq in self._buffered_acks.items()
        ]

    def _clear_buffer(self) -> None:
        self._buffered_acks.clear()

    def _confirm(self, value: StoredReply) -> None:
        self._unacked_bytes += value.span.length
        self._addresses[value.channel.address].unacknowledged.append(value)
        self._keep_in_memory(value)

    def _retract(self, value: StoredReply) -> None:
        """Undo `post`. An address whose only replies were staged is forgotten again."""
        del self._keys[value.key]
        address = value.channel.address
        numbering = self._addresses[address]
        numbering.last -= 1
        if not numbering.last:
            del self._addresses[address], self._types[address.type][address]

    def _kept_and_dropped(self, now: int) -> tuple[list[StoredReply], list[StoredReply]]:
        """Return unacknowledged replies: those to be kept, in the order of the file, and those that are too old."""
        kept: list[StoredReply] = []
        dropped: list[StoredReply] = []
        for numbering in self._addresses.values():
            for reply in numbering.unacknowledged:
                (dropped if now - reply.at > GIVEN_UP_AFTER else kept).append(reply)
        kept.sort(key=lambda reply: reply.span)
        return kept, dropped

    def _summary(self, dropped: Sequence[StoredReply]) -> list[bytes]:
        numberings = map(_numbering_line, self._addresses.values())
        return [*numberings, *map(_keys_line, in_pieces(chain(self._acked_keys, dropped)))]

    def _closing_lines(self) -> list[bytes]:
        return [SETTLED] if self.carried.was_used else []

    def _after_rewrite(self, dropped: Sequence[StoredReply]) -> list[str]:
        for reply in self._acked_keys:
            reply.span = GONE
        for reply in dropped:
            self._addresses[reply.channel.address].unacknowledged.remove(reply)
            self._unacked_bytes -= reply.span.length
            self._retire(reply)
            reply.span = GONE
        counts = Counter(str(reply.channel.address) for reply in dropped)
        return [
            f"{count} replies to {address} were dropped: nobody acknowledged them for 30 days"
            for address, count in counts.items()
        ]

    # ------------------------------------------------------------------ inside

    def _numbering(self, channel: ChannelInfo) -> Numbering:
        """Return the numbering of the address, a new one if there is none."""
        return self._addresses.get(channel.address) or self._new_numbering(channel)

    def _new_numbering(self, channel: ChannelInfo) -> Numbering:
        numbering = self._addresses[channel.address] = Numbering(channel)
        self._types.setdefault(channel.type, {})[channel.address] = None
        return numbering

    def _advance(self, numbering: Numbering, seq: int) -> None:
        """Retire everything up to seq."""
        numbering.acked = max(numbering.acked, seq)
        waiting = numbering.unacknowledged
        while waiting and waiting[0].seq <= seq:
            reply = waiting.popleft()
            self._unacked_bytes -= reply.span.length
            self._retire(reply)

    def _retire(self, reply: StoredReply) -> None:
        """Remember only the key of a reply that is acknowledged, and forget the oldest of such keys."""
        reply.acked = True
        if reply.message is not None:
            del self._in_memory[reply.key]
            self._bytes_in_memory -= reply.span.length
            reply.message = None
        self._acked_keys.append(reply)
        if len(self._acked_keys) > self._remembered:
            del self._keys[self._acked_keys.popleft().key]

    def _keep_in_memory(self, reply: StoredReply) -> None:
        """Hold a reply in memory, and drop the oldest from there once they take more than `KEPT_BYTES`."""
        self._in_memory[reply.key] = reply
        self._bytes_in_memory += reply.span.length
        while self._bytes_in_memory > self._kept_bytes:
            _, oldest = self._in_memory.popitem(last=False)
            self._bytes_in_memory -= oldest.span.length
            oldest.message = None


def reply_in(line: bytes) -> OutboundMessage:
    """Return the reply of a record that was read back. Raises ValueError or KeyError if there is none."""
    return from_wire(decode_object(line)["message"], OutboundMessage)


def _numbering_line(numbering: Numbering) -> bytes:
    address = to_wire(numbering.channel.address)
    return encode_line({"type": "address", "channel": address, "seq": numbering.last, "acked": numbering.acked})


def _keys_line(replies: Iterable[StoredReply]) -> bytes:
    """Return what a rewrite keeps of acknowledged replies. Each channel is written once."""
    places: dict[ChannelInfo, int] = {}
    entries: list[Json] = [[reply.key, reply.seq, places.setdefault(reply.channel, len(places))] for reply in replies]
    return encode_line({"type": "keys", "channels": [to_wire(channel) for channel in places], "replies": entries})
