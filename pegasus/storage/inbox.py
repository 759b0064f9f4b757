"""The inbox: accepted messages that are not done, ids to recognise duplicates by, and known addresses.

State of `inbox/inbox.jsonl`, whose records are

    {"type":"message","n":7,"at":ms,"lane":"control","rank":1,"message":{…}}   accepted; "rank" is the priority
    {"type":"done","n":7}
    {"type":"address","channel":{"type","channelId"}}                 seen without a message
    {"type":"compacted","lastN":7}                                    the first line after a rewrite, then
    {"type":"ids","packed":"…"}                                       base64 of pairs (digest of an id, n), 8 bytes each
    {"type":"addresses","known":[["web","c1"], …]}                    the newest last; behind the messages that are kept

"lane" is absent if it is "main", "rank" if it is 0.

A sender that did not get its answer sends the message again. So ids are remembered long after their messages are done,
by address and id. A digest of 8 bytes stands for an id: it keeps 50,000 of them in about a megabyte, and among so many
a new id is taken for an old one once in 10^14 times.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import chain, islice
from typing import ClassVar

import attrs

from pegasus.messages import Address, ChannelInfo, InboundMessage, Json
from pegasus.storage.directory import Directory
from pegasus.storage.lanes import MAIN, Lane, QueuedItem
from pegasus.storage.log_file import RecordLog, count_field, in_pieces, replay_as, replay_located
from pegasus.storage.messages import MAX_PRIORITY, Accepted, Overloaded
from pegasus.storage.volume import Span
from pegasus.wire import decode_object, encode_line, from_wire, to_wire

MAX_WAITING = 1_000
"""Items that may wait in a lane; a tenth more for those of priority 0, so that a flood of others leaves them room.
More would only mean answers that come too late, and the sender can be told at once instead."""
REMEMBERED_IDS = 50_000
"""Ids that are recognised when they come again; older ones are forgotten."""
KEPT_BYTES = 8 << 20
"""Bytes of waiting messages that are held in memory; further ones are read back from the file when they are due."""


# ------------------------------------------------------------------ records, as far as they are needed at a start


@attrs.frozen
class MessageHead:
    """The parts of an accepted message that are kept in memory; the text is read back later."""

    text: str
    """The text, read for its size alone and not kept."""
    id: str
    """The sender's id, by which duplicates are recognised."""
    channel: ChannelInfo


@attrs.frozen
class MessageRecord:
    """An accepted message."""

    message: MessageHead
    n: int = count_field()
    """The number of the item, from 1."""
    lane: str = MAIN
    """The lane that the item waits in."""
    rank: float = 0
    """The priority. Another version may have written any number."""


@attrs.frozen
class DoneRecord:
    """An item needs no more work."""

    n: int = count_field()


@attrs.frozen
class AddressRecord:
    """A client of the address was connected."""

    channel: Address


@attrs.frozen
class CompactedRecord:
    """The last number that was given."""

    last_n: int = count_field()


@attrs.frozen
class IdsRecord:
    """Ids of messages that are not in the file any more."""

    packed: str
    """Base64 of pairs of a digest and a number, 8 bytes each, big-endian."""


@attrs.frozen
class AddressesRecord:
    """Addresses that were seen, as pairs of type and channel id."""

    known: tuple[tuple[str, str], ...]


class InboxLog(RecordLog[QueuedItem]):
    """The inbox as of its file, plus what is staged and buffered.

    >>> log = InboxLog(Directory())
    >>> log.accept(message, "main", at=1_772_029_800_000)
    Accepted(n=1, duplicate=False)
    >>> log.written(offset)                     # after log.unwritten() has reached the disk
    >>> log.hand_out(log.due("main"))
    >>> log.done(1)
    """

    path: ClassVar = "inbox/inbox.jsonl"

    def __init__(
        self,
        directory: Directory,
        max_waiting: int = MAX_WAITING,
        remembered: int = REMEMBERED_IDS,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        super().__init__(
            {
                "message": replay_located(MessageRecord, self._replay_message),
                "done": replay_as(DoneRecord, self._replay_done),
                "address": replay_as(AddressRecord, lambda record: self._see(record.channel)),
                "compacted": replay_as(CompactedRecord, lambda record: self.begin_above(record.last_n)),
                "ids": replay_as(IdsRecord, lambda record: self._ids.update(_unpack(record.packed))),
                "addresses": replay_as(AddressesRecord, self._replay_addresses),
            }
        )
        self._directory = directory
        """Addresses of senders, shared with the outbox."""
        self._max_waiting = max_waiting
        """Items that may wait in a lane."""
        self._remembered = remembered
        """Ids that are recognised."""
        self._kept_bytes = kept_bytes
        """Bytes of messages that are held in memory."""
        self._last_n = 0
        """The last number that was given."""
        self._ids: dict[int, int] = {}
        """Number of the item by the digest of its id, oldest first."""
        self._lanes: dict[str, Lane] = {}
        """Order of the waiting items, by lane."""
        self._items: dict[int, QueuedItem] = {}
        """The items of all lanes by number."""
        self._item_bytes = 0
        """Bytes of their lines."""
        self._bytes_in_memory = 0
        """The part of these whose messages are held in memory."""
        self._buffer: list[bytes] = []
        """Lines that are not written yet: items that are done, addresses that were seen. Losing them in a crash is
        harmless: the items are handed out again, and the Main Agent recognises what it has done by its session."""

    # ------------------------------------------------------------------ accepting

    def accept(self, message: InboundMessage, lane: str, at: int, priority: int = 0) -> Accepted | Overloaded:
        """Stage a message. at: wall clock, ms.

        A duplicate is recognised before the limit is looked at: its sender only wants to know that it was accepted.

        Raises ValueError for a priority that does not exist, and ValueError or TypeError for a message that cannot be
        written as JSON. Then nothing has changed.
        """
        if not 0 <= priority <= MAX_PRIORITY:
            raise ValueError(f"priority {priority!r} is not between 0 and {MAX_PRIORITY}")
        digest = _digest(message.channel, message.id)
        known = self._ids.get(digest)
        if known is not None:
            return Accepted(known, duplicate=True)
        waiting = len(self._lanes.get(lane, ()))
        if waiting >= self._max_waiting + (0 if priority else self._max_waiting // 10):
            return Overloaded(waiting)
        n = self._last_n + 1
        line = _message_line(n, at, lane, priority, message)
        item = QueuedItem(n, lane, priority, message.channel.address, digest, message, Span(0, len(line)))
        self._last_n = n
        self._ids[digest] = n
        self._add(item)
        self._stage(item, line)
        return Accepted(n, duplicate=False)

    def done(self, n: int) -> None:
        """Remove an item that needs no more work. A number that does not wait is ignored."""
        item = self._items.get(n)
        if item is not None:
            self._remove(item)
            self._buffer.append(encode_line({"type": "done", "n": n}))

    def connected(self, type: str, channel_id: str | None) -> None:
        """Note a client of an address, which is known from then on, or (channel_id None) a bridge for the type."""
        self._directory.connected(type, channel_id)
        if channel_id is not None and self._directory.saw(address := Address(type, channel_id)):
            self._buffer.append(encode_line({"type": "address", "channel": to_wire(address)}))

    # ------------------------------------------------------------------ handing out

    @property
    def waiting(self) -> int:
        """Number of items that are not done, in all lanes."""
        return len(self._items)

    def due(self, lane: str, prefer: int | None = None) -> QueuedItem | None:
        """Return the item of the lane that is to be handed out; see `lanes`."""
        known = self._lanes.get(lane)
        return None if known is None else known.due(prefer)

    def newer(self, address: Address, after: int) -> QueuedItem | None:
        """Return the oldest item of lane "main" that waits, comes from this address and has a number above `after`."""
        known = self._lanes.get(MAIN)
        return None if known is None else known.oldest_of(address, after)

    def item(self, n: int) -> QueuedItem | None:
        """Return the item of lane "main" with this number, if it is not done."""
        known = self._lanes.get(MAIN)
        return None if known is None else known.get(n)

    def hand_out(self, item: QueuedItem) -> None:
        """Note that the item has a taker. Until it is done it is due before all others."""
        self._lanes[item.lane].hand_out(item)

    # ------------------------------------------------------------------ loading

    def begin_above(self, n: int) -> None:
        """Give no number up to n. Used when the inbox is lost, since other packages know items by their numbers."""
        self._last_n = max(self._last_n, n)

    def loaded(self, size: int) -> None:
        """Note that all records are applied."""
        super().loaded(size)
        self._forget_old_ids()

    def _replay_message(self, record: MessageRecord, span: Span) -> None:
        """Take over an accepted message. A number that comes twice (a file put together by hand) counts once."""
        n, message = record.n, record.message
        digest = _digest(message.channel, message.id)
        self._ids[digest] = n
        self.begin_above(n)
        self._see(message.channel.address)
        if n not in self._items:
            priority = int(min(max(0, record.rank), MAX_PRIORITY))
            self._add(QueuedItem(n, record.lane, priority, message.channel.address, digest, None, span))

    def _replay_done(self, record: DoneRecord) -> None:
        """A "done" without its message is no error: the message may have been in a line that was damaged."""
        self.begin_above(record.n)  # the number was given, even if the line of its message is damaged
        item = self._items.get(record.n)
        if item is not None:
            self._remove(item)

    def _replay_addresses(self, record: AddressesRecord) -> None:
        """Take over the addresses of a rewrite, in their order."""
        for type, channel_id in record.known:
            self._see(Address(type, channel_id))

    def _see(self, address: Address) -> None:
        """Note the address of a sender."""
        self._directory.saw(address)

    # ------------------------------------------------------------------ parts of a log

    @property
    def has_buffered(self) -> bool:
        """True if items are done or addresses were seen that the file does not show yet."""
        return bool(self._buffer)

    @property
    def live_bytes(self) -> int:
        """About how many bytes the file would have after a rewrite."""
        return self._item_bytes + 22 * len(self._ids) + self._directory.bytes

    def written(self, offset: int) -> list[QueuedItem]:
        """Note that everything unwritten is on disk from `offset` on."""
        items = super().written(offset)
        self._forget_old_ids()
        return items

    def _buffered_lines(self) -> Sequence[bytes]:
        return self._buffer

    def _clear_buffer(self) -> None:
        self._buffer.clear()

    def _confirm(self, value: QueuedItem) -> None:
        self._see(value.address)

    def _retract(self, value: QueuedItem) -> None:
        self._remove(value)
        del self._ids[value.digest]
        self._last_n = value.n - 1

    def _kept_and_dropped(self, now: int) -> tuple[list[QueuedItem], list[QueuedItem]]:
        return list(self._items.values()), []

    def _summary(self, dropped: Sequence[QueuedItem]) -> list[bytes]:
        ids = (encode_line({"type": "ids", "packed": _pack(piece)}) for piece in in_pieces(self._ids.items()))
        return [encode_line({"type": "compacted", "lastN": self._last_n}), *ids]

    def _closing_lines(self) -> list[bytes]:
        """Return the addresses. They are behind the messages so that a replay ends with their true order."""
        return [
            encode_line({"type": "addresses", "known": [[address.type, address.channel_id] for address in piece]})
            for piece in in_pieces(self._directory)
        ]

    def _after_rewrite(self, dropped: Sequence[QueuedItem]) -> list[str]:
        return []

    # ------------------------------------------------------------------ inside

    def _add(self, item: QueuedItem) -> None:
        """Put an item into its lane. Keep its message in memory if there is room for it."""
        size = item.span.length
        self._items[item.n] = item
        self._lanes.setdefault(item.lane, Lane()).add(item)
        self._item_bytes += size
        if item.message is None:
            return
        if self._bytes_in_memory + size > self._kept_bytes:
            item.message = None
        else:
            self._bytes_in_memory += size

    def _remove(self, item: QueuedItem) -> None:
        """Remove an item everywhere but from the ids, which are remembered for longer."""
        del self._items[item.n]
        self._lanes[item.lane].remove(item)
        self._item_bytes -= item.span.length
        if item.message is not None:
            self._bytes_in_memory -= item.span.length

    def _forget_old_ids(self) -> None:
        """Forget ids in batches: a dict is slow to find its first key once many before it are gone."""
        surplus = len(self._ids) - self._remembered
        if surplus > self._remembered // 50:
            for digest in list(islice(self._ids, surplus)):
                del self._ids[digest]


def message_in(line: bytes) -> InboundMessage:
    """Return the message of a record that was read back. Raises ValueError or KeyError if there is none."""
    return from_wire(decode_object(line)["message"], InboundMessage)


def _digest(channel: ChannelInfo, id: str) -> int:
    """Return a number that stands for the id on this address."""
    type, channel_id = channel.type, channel.channel_id
    key = f"{len(type)},{len(channel_id)},{type}{channel_id}{id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")


def _message_line(n: int, at: int, lane: str, priority: int, message: InboundMessage) -> bytes:
    """Return the record of an accepted message. Default values are left out, as most messages have them."""
    record: dict[str, Json] = {"type": "message", "n": n, "at": at}
    if lane != MAIN:
        record["lane"] = lane
    if priority:
        record["rank"] = priority
    record["message"] = to_wire(message)
    return encode_line(record)


def _pack(ids: Sequence[tuple[int, int]]) -> str:
    """Return the ids as base64; a hex or decimal form would double the file."""
    return base64.b64encode(struct.pack(f">{2 * len(ids)}Q", *chain.from_iterable(ids))).decode()


def _unpack(packed: str) -> Iterator[tuple[int, int]]:
    """Yield pairs of a digest and a number. Raises ValueError if the text is not what `_pack` makes."""
    data = base64.b64decode(packed, validate=True)
    if len(data) % 16:
        raise ValueError("not 16 bytes for each id")
    return struct.iter_unpack(">QQ", data)
