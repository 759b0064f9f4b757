"""The inbox: accepted messages that are not done, ids to recognise duplicates by, and known addresses.

State of `inbox/inbox.jsonl`, whose records are

    {"type":"message","n":7,"at":ms,"lane":"control","rank":1,"message":{…}}   accepted; "rank" is the priority
    {"type":"done","n":7}
    {"type":"address","channel":{"type","channelId"}}                 seen without a message
    {"type":"compacted","lastN":7}                                    the first line after a rewrite, and before the first reply
    {"type":"ids","packed":"…"}                                       after a rewrite; base64 of pairs (digest of an id, n) of 8 bytes
    {"type":"addresses","known":[["web","c1"], …]}                    the newest last; behind the messages that are kept

"lane" is absent if it is "main", "rank" if it is 0. "owner" is true for an item of an owner with another rank than 0.

A sender that did not get its answer sends the message again. So ids are remembered long after their messages are done,
by address and id. A digest of 8 bytes stands for an id: it keeps 50,000 of them in about a megabyte, and among so many
a new id is taken for an old one once in 10^14 times.

**Order of a lane.** Due first is what was handed out already: its taker has crashed, or takes several items at a time.
After those come the items of owners, then those of others, so that nobody can keep an owner from an answer, however much they
send. While both wait, every OWNERS_IN_A_ROW + 1st item is one of the others, so that a busy owner keeps nobody out either.
Each side has room of its own for `max_waiting` items: nobody else can fill an owner's.

Within a side comes the item with the lowest *turn*, which is `n + priority × AGEING`:

* among items of the same priority the oldest comes first;
* an item that is one priority more urgent goes ahead of up to AGEING older ones;
* no item waits for ever, since at most `priority × AGEING` younger ones can pass it, however many come.

The rule needs no clock. In other lanes than "main" the priority does not count. A lane holds 2,000 items at most, so looking
through all of them is quick enough to find the one that is due.
"""

from __future__ import annotations

import base64
import math
import struct
from collections import Counter
from collections.abc import Collection, Iterator, Sequence, Set
from hashlib import blake2b
from itertools import chain, count, islice
from typing import ClassVar, Final

import attrs

from pegasus.messages import Address, ChannelInfo, InboundMessage, Json
from pegasus.storage.directory import Directory
from pegasus.storage.messages import MAX_PRIORITY, Accepted, Overloaded
from pegasus.storage.record_log import RecordLog, Staged, count_field, in_pieces
from pegasus.storage.volume import Span
from pegasus.wire import decode_object, encode_line, from_wire, to_wire

MAX_WAITING = 1_000
"""Items of owners that may wait in a lane, and as many of others, so that a flood of others leaves owners all their room.
More would only mean answers that come too late, and the sender can be told at once instead."""
REMEMBERED_IDS = 50_000
"""Ids that are recognised when they come again; older ones are forgotten."""
KEPT_LINE = 16 << 10
"""Bytes of the largest record whose message is held in memory; a larger one is read back from the file when it is due. A
full lane takes 17 MiB at most."""
OWNERS_IN_A_ROW: Final = 4
"""Items of owners that are handed out one after the other while others wait."""
AGEING: Final = 100
"""Number of older items that one goes ahead of for each step of priority."""
MAIN: Final = "main"
"""The lane whose items the Main Agent thinks about, and the only one in which priorities count."""


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
    owner: bool = False
    """The item is an owner's, whatever its priority is."""


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


@attrs.define(eq=False, repr=False)
class QueuedItem:
    """An accepted message that is not done."""

    n: int
    lane: str
    priority: int
    address: Address
    digest: int
    """Stands for the sender's id."""
    span: Span
    """Place of its record."""
    message: InboundMessage | None = None
    """None if it is to be read back from `span`."""
    attempts: int = 0
    """The number of times that it was handed out by this process."""
    handed_out: float = math.inf
    """Place among the items that were handed out, in the order in which they first were."""
    is_owners: bool = False
    """It is an owner's."""
    sender: str = ""
    """The sender, as `ChannelInfo.sender` names them."""

    @property
    def turn(self) -> tuple[float, int]:
        """Sort key of the order of the lane."""
        return self.handed_out, self.n + self.priority * AGEING if self.lane == MAIN else self.n


class InboxLog(RecordLog[QueuedItem]):
    """The inbox as of its file, with its notes, and what is staged.

    >>> log = InboxLog(Directory())
    >>> log.accept(message, "main", at=1_772_029_800_000)
    Accepted(n=1, duplicate=False)
    >>> log.written(offset)                     # after log.unwritten() has reached the disk
    >>> log.hand_out(log.due("main"))
    >>> log.done(1)
    """

    path: ClassVar = "inbox/inbox.jsonl"

    def __init__(self, directory: Directory, max_waiting: int = MAX_WAITING, remembered: int = REMEMBERED_IDS) -> None:
        super().__init__(
            {
                "message": (MessageRecord, self._replay_message),
                "done": (DoneRecord, self._replay_done),
                "address": (AddressRecord, lambda record, _: directory.saw(record.channel)),
                "compacted": (CompactedRecord, lambda record, _: self.begin_above(record.last_n)),
                "ids": (IdsRecord, lambda record, _: self._ids.update(_unpack(record.packed))),
                "addresses": (AddressesRecord, self._replay_addresses),
            }
        )
        self._directory = directory
        """Addresses of senders, shared with the outbox."""
        self._max_waiting = max_waiting
        """Items that may wait in a lane."""
        self._remembered = remembered
        """Ids that are recognised."""
        self._last_n = 0
        """The last number that was given."""
        self._ids: dict[int, int] = {}
        """Number of the item by the digest of its id, oldest first."""
        self._lanes: dict[str, dict[int, QueuedItem]] = {}
        """The items of each lane by number, oldest first."""
        self._by_address: dict[tuple[str, Address], dict[int, QueuedItem]] = {}
        """The same items by lane and address, oldest first."""
        self._sizes: Counter[tuple[str, bool]] = Counter()
        """Number of items by lane and by whether they are an owner's."""
        self._hand_outs = count()
        """Numbers for `QueuedItem.handed_out`."""
        self._owners_in_a_row: Counter[str] = Counter()
        """Items of owners that were handed out since the last one of others, by lane. A restart begins anew."""

    # ------------------------------------------------------------------ accepting

    def accept(
        self,
        message: InboundMessage,
        lane: str,
        at: int,
        priority: int = 0,
        owner: bool = False,
        sender: str = "",
        most: int = 0,
    ) -> Accepted | Overloaded:
        """Stage a message. at: wall clock, ms. owner, sender, most: as in `Accept`.

        A duplicate is recognised before the limit is looked at: its sender only wants to know that it was accepted.

        Raises ValueError for a priority that does not exist, and ValueError or TypeError for a message that cannot be
        written as JSON. Then nothing has changed.
        """
        if not 0 <= priority <= MAX_PRIORITY:
            raise ValueError(f"priority {priority!r} is not between 0 and {MAX_PRIORITY}")
        digest = _digest(message.channel, message.id)
        if digest in self._ids:
            return Accepted(self._ids[digest], duplicate=True)
        if digest in self.staged:
            return Accepted(self.staged[digest].value.n, duplicate=True)
        is_owners, sender = owner or not priority, sender or message.channel.sender
        staged = [
            each.value for each in self.staged.values() if (each.value.lane, each.value.is_owners) == (lane, is_owners)
        ]
        if (waiting := self._sizes[lane, is_owners] + len(staged)) >= self._max_waiting:
            return Overloaded(waiting)
        if most:
            items = chain(self._lanes.get(lane, {}).values(), staged)
            if (waiting := sum(item.sender == sender and item.is_owners == is_owners for item in items)) >= most:
                return Overloaded(waiting, of_sender=True)
        n = self._last_n + len(self.staged) + 1
        line = _message_line(n, at, lane, priority, message, owner=owner and priority > 0)
        kept = message if len(line) <= KEPT_LINE else None
        item = QueuedItem(
            n,
            lane,
            priority,
            message.channel.address,
            digest,
            Span(0, len(line)),
            kept,
            is_owners=is_owners,
            sender=sender,
        )
        self.staged[digest] = Staged(item, line)
        return Accepted(n, duplicate=False)

    def begin(self) -> None:
        """Note the last number that was given, so that the file is not empty.

        It is written before the first reply: replies without an inbox show at a start that the inbox was lost.
        """
        self.notes["begin"] = self._begin_line()

    def done(self, n: int) -> None:
        """Remove an item that needs no more work. A number that does not wait is ignored.

        If a crash loses the note, the item is handed out again, and the Main Agent recognises by its session what it has
        done.
        """
        if self._remove(n):
            self.notes["done", n] = encode_line({"type": "done", "n": n})

    def connected(self, type: str, channel_id: str | None) -> None:
        """Note a client of an address, which is known from then on, or (channel_id None) a bridge for the type."""
        self._directory.connected(type, channel_id)
        if channel_id is not None and self._directory.saw(address := Address(type, channel_id)):
            self.notes[address] = encode_line({"type": "address", "channel": to_wire(address)})

    # ------------------------------------------------------------------ handing out

    def count_waiting(
        self, address: Address | None = None, lane: str | None = None, priority: int | None = None
    ) -> int:
        """Return the number of items that are not done.

        address, lane: only those of this one; None = of all. priority: only those that are as urgent as that, or more; None = all.
        """
        lanes = [self._of(name, address) for name in (self._lanes if lane is None else [lane])]
        if priority is None:
            return sum(map(len, lanes))
        return sum(item.priority <= priority for items in lanes for item in items)

    def due(self, lane: str, address: Address | None = None) -> QueuedItem | None:
        """Return the item that is to be handed out now, by the order of the lane; of this address only, None = of any."""
        items = self._of(lane, address)
        first = min(items, key=lambda item: (item.handed_out, not item.is_owners, item.turn), default=None)
        if first is None or first.handed_out < math.inf or self._owners_in_a_row[lane] < OWNERS_IN_A_ROW:
            return first
        others = (item for item in items if not item.is_owners)
        return min(others, key=lambda item: item.turn, default=first)

    def due_chat(self, lane: str, except_for: Set[Address]) -> Address | None:
        """Return the address of the item that would be handed out first if these addresses had none."""
        items = [item for item in self._of(lane) if item.address not in except_for]
        first = min(items, key=lambda item: (item.handed_out, not item.is_owners, item.turn), default=None)
        return None if first is None else first.address

    def newer(self, address: Address, after: int) -> QueuedItem | None:
        """Return the oldest item of lane "main" that waits, comes from this address and has a number above `after`."""
        items = self._of(MAIN, address)
        return next((item for item in items if item.n > after and item.handed_out == math.inf), None)

    def item(self, n: int) -> QueuedItem | None:
        """Return the item of lane "main" with this number, if it is not done."""
        return self._lanes.get(MAIN, {}).get(n)

    def is_waiting(self, n: int) -> bool:
        """Return whether the item with this number, of any lane, is not done."""
        return any(n in lane for lane in self._lanes.values())

    def hand_out(self, item: QueuedItem) -> None:
        """Note that the item has a taker. Until it is done it is due before all that wait."""
        item.attempts += 1
        if item.handed_out == math.inf:
            self._owners_in_a_row[item.lane] = self._owners_in_a_row[item.lane] + 1 if item.is_owners else 0
        item.handed_out = min(item.handed_out, next(self._hand_outs))

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
        n, channel = record.n, record.message.channel
        digest = _digest(channel, record.message.id)
        self._ids[digest] = n
        self.begin_above(n)
        self._directory.saw(channel.address)
        if not any(n in items for items in self._lanes.values()):
            priority = int(min(max(0, record.rank), MAX_PRIORITY))
            is_owners, sender = record.owner or not priority, channel.sender
            item = QueuedItem(
                n, record.lane, priority, channel.address, digest, span, is_owners=is_owners, sender=sender
            )
            self._add(item)

    def _replay_done(self, record: DoneRecord, _: Span) -> None:
        """Remove an item. One without its message is no error: the message may have been in a line that was damaged."""
        self.begin_above(record.n)  # the number was given, even if the line of its message is damaged
        self._remove(record.n)

    def _replay_addresses(self, record: AddressesRecord, _: Span) -> None:
        """Take over the addresses of a rewrite, in their order."""
        for type, channel_id in record.known:
            self._directory.saw(Address(type, channel_id))

    # ------------------------------------------------------------------ parts of a log

    @property
    def live_bytes(self) -> int:
        """About how many bytes the file would have after a rewrite."""
        addresses = sum(len(address.type) + len(address.channel_id) + 8 for address in self._directory)
        items = sum(item.span.length for lane in self._lanes.values() for item in lane.values())
        return items + 22 * len(self._ids) + addresses

    def _add_written(self, values: list[QueuedItem]) -> None:
        for item in values:
            self._last_n = item.n
            self._ids[item.digest] = item.n
            self._add(item)
            self._directory.saw(item.address)
        self._forget_old_ids()

    def _kept(self) -> list[QueuedItem]:
        return sorted(chain.from_iterable(map(dict.values, self._lanes.values())), key=lambda item: item.span)

    def _summary(self) -> list[bytes]:
        ids = (encode_line({"type": "ids", "packed": _pack(piece)}) for piece in in_pieces(self._ids.items()))
        return [self._begin_line(), *ids]

    def _begin_line(self) -> bytes:
        return encode_line({"type": "compacted", "lastN": self._last_n})

    def _closing_lines(self) -> list[bytes]:
        """Return the addresses. They are behind the messages so that a replay ends with their true order."""
        return [
            encode_line({"type": "addresses", "known": [[address.type, address.channel_id] for address in piece]})
            for piece in in_pieces(self._directory)
        ]

    # ------------------------------------------------------------------ inside

    def _of(self, lane: str, address: Address | None = None) -> Collection[QueuedItem]:
        """Return the items of a lane; of this address only, None = of all."""
        if address is None:
            return self._lanes.get(lane, {}).values()
        return self._by_address.get((lane, address), {}).values()

    def _add(self, item: QueuedItem) -> None:
        self._lanes.setdefault(item.lane, {})[item.n] = item
        self._by_address.setdefault((item.lane, item.address), {})[item.n] = item
        self._sizes[item.lane, item.is_owners] += 1

    def _remove(self, n: int) -> bool:
        """Remove an item everywhere but from the ids, which are remembered for longer. Return whether there was one."""
        for items in self._lanes.values():
            if (item := items.pop(n, None)) is not None:
                self._sizes[item.lane, item.is_owners] -= 1
                of_address = self._by_address[item.lane, item.address]
                del of_address[n]
                if not of_address:
                    del self._by_address[item.lane, item.address]
                return True
        return False

    def _forget_old_ids(self) -> None:
        """Forget ids in batches: a dict is slow to find its first key once many before it are gone."""
        surplus = len(self._ids) - self._remembered
        if surplus > self._remembered // 50:
            for digest in list(islice(self._ids, surplus)):
                del self._ids[digest]


# ------------------------------------------------------------------ records


def message_in(line: bytes) -> InboundMessage:
    """Return the message of a record that was read back. Raises ValueError or KeyError if there is none."""
    return from_wire(decode_object(line)["message"], InboundMessage)


def _digest(channel: ChannelInfo, id: str) -> int:
    """Return a number that stands for the id on this address."""
    type, channel_id = channel.type, channel.channel_id
    key = f"{len(type)},{len(channel_id)},{type}{channel_id}{id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")


def _message_line(n: int, at: int, lane: str, priority: int, message: InboundMessage, *, owner: bool = False) -> bytes:
    """Return the record of an accepted message. Default values are left out, as most messages have them."""
    record: dict[str, Json] = {"type": "message", "n": n, "at": at}
    if lane != MAIN:
        record["lane"] = lane
    if priority:
        record["rank"] = priority
    if owner:
        record["owner"] = True
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
