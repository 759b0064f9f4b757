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

**Order of a lane.** Due first is what was handed out already: its taker has crashed, or takes several items at a time.
After those comes the item with the lowest *turn*, which is `n + priority × AGEING`:

* among items of the same priority the oldest comes first;
* an item that is one priority more urgent goes ahead of up to AGEING older ones;
* no item waits for ever, since at most `priority × AGEING` younger ones can pass it, however many come.

The rule needs no clock, and a restart changes nothing about it. In other lanes than "main" the priority does not count.
A lane holds 1,100 items at most, so looking through all of them is quick enough to find the one that is due.

**Handing out** (`ItemQueries`). Nothing is handed out that is not on disk. There is one taker for each lane: a second
query comes from a new incarnation of that actor, whose predecessor has crashed; it takes over, and the old query fails
instead of swallowing an item.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import chain, count, islice
from typing import ClassVar, Final, TypeAlias

import attrs

from pegasus.messages import Address, ChannelInfo, InboundMessage, Json
from pegasus.storage.directory import Directory
from pegasus.storage.messages import (
    MAX_PRIORITY,
    Accepted,
    Item,
    Newer,
    NextItem,
    Overloaded,
    StorageError,
    Take,
)
from pegasus.storage.record_log import RecordLog, Report, Staged, count_field, in_pieces
from pegasus.storage.volume import Disk, Span, Volume
from pegasus.wire import decode_object, encode_line, from_wire, to_wire

MAX_WAITING = 1_000
"""Items that may wait in a lane; a tenth more for those of priority 0, so that a flood of others leaves them room.
More would only mean answers that come too late, and the sender can be told at once instead."""
REMEMBERED_IDS = 50_000
"""Ids that are recognised when they come again; older ones are forgotten."""
KEPT_LINE = 16 << 10
"""Bytes of the largest record whose message is held in memory; a larger one is read back from the file when it is due. A
full lane takes 17 MiB at most."""
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


@attrs.define(eq=False)
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
        self._hand_outs = count()
        """Numbers for `QueuedItem.handed_out`."""

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
        if digest in self._ids:
            return Accepted(self._ids[digest], duplicate=True)
        if digest in self.staged:
            return Accepted(self.staged[digest].value.n, duplicate=True)
        waiting = len(self._lanes.get(lane, ())) + sum(item.lane == lane for item, _ in self.staged.values())
        if waiting >= self._max_waiting + (0 if priority else self._max_waiting // 10):
            return Overloaded(waiting)
        n = self._last_n + len(self.staged) + 1
        line = _message_line(n, at, lane, priority, message)
        kept = message if len(line) <= KEPT_LINE else None
        item = QueuedItem(n, lane, priority, message.channel.address, digest, Span(0, len(line)), kept)
        self.staged[digest] = Staged(item, line)
        return Accepted(n, duplicate=False)

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

    def count_waiting(self, address: Address | None = None, lane: str | None = None) -> int:
        """Return the number of items that are not done. address, lane: only those of this one; None = of all."""
        lanes = self._lanes.values() if lane is None else [self._lanes.get(lane, {})]
        if address is None:
            return sum(map(len, lanes))
        return sum(item.address == address for items in lanes for item in items.values())

    def due(self, lane: str) -> QueuedItem | None:
        """Return the item that is to be handed out now, by the order of the lane."""
        return min(self._lanes.get(lane, {}).values(), key=lambda item: item.turn, default=None)

    def newer(self, address: Address, after: int) -> QueuedItem | None:
        """Return the oldest item of lane "main" that waits, comes from this address and has a number above `after`."""
        items = self._lanes.get(MAIN, {}).values()
        return next((i for i in items if i.n > after and i.address == address and i.handed_out == math.inf), None)

    def item(self, n: int) -> QueuedItem | None:
        """Return the item of lane "main" with this number, if it is not done."""
        return self._lanes.get(MAIN, {}).get(n)

    def hand_out(self, item: QueuedItem) -> None:
        """Note that the item has a taker. Until it is done it is due before all that wait."""
        item.attempts += 1
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
            self._add(QueuedItem(n, record.lane, priority, channel.address, digest, span))

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
        return [encode_line({"type": "compacted", "lastN": self._last_n}), *ids]

    def _closing_lines(self) -> list[bytes]:
        """Return the addresses. They are behind the messages so that a replay ends with their true order."""
        return [
            encode_line({"type": "addresses", "known": [[address.type, address.channel_id] for address in piece]})
            for piece in in_pieces(self._directory)
        ]

    # ------------------------------------------------------------------ inside

    def _add(self, item: QueuedItem) -> None:
        self._lanes.setdefault(item.lane, {})[item.n] = item

    def _remove(self, n: int) -> bool:
        """Remove an item everywhere but from the ids, which are remembered for longer. Return whether there was one."""
        return any(items.pop(n, None) for items in self._lanes.values())

    def _forget_old_ids(self) -> None:
        """Forget ids in batches: a dict is slow to find its first key once many before it are gone."""
        surplus = len(self._ids) - self._remembered
        if surplus > self._remembered // 50:
            for digest in list(islice(self._ids, surplus)):
                del self._ids[digest]


# ------------------------------------------------------------------ queries for items

ItemQuery: TypeAlias = NextItem | Newer | Take

_ORDER = (Take, NextItem, Newer)
"""Order in which queries are answered. `Take` comes before `NextItem`, so that an item which is asked for by its number is
not handed to somebody else first. `Newer` comes after both, because it only shows items that nobody has taken."""


class ItemQueries:
    """Queries for items that were not answered yet.

    Handing out is not durable. An item counts as handed out until it is done; a taker that crashes gets it again. An
    asker that has left (its task was cancelled) is skipped, and nothing counts as handed out to it.

    >>> queries.keep(NextItem(reply))
    >>> await queries.answer()
    """

    def __init__(self, disk: Disk, log: InboxLog, report: Report) -> None:
        self._disk = disk
        """Reads messages back that are not held in memory."""
        self._log = log
        """The items; only who has taken an item is changed."""
        self._report = report
        """Logs a line that is not in its file any more."""
        self.open: list[ItemQuery] = []
        """Queries in the order in which they came."""

    def keep(self, query: ItemQuery) -> None:
        """Keep a query until the next `answer`. An earlier one that it replaces fails."""
        if isinstance(query, NextItem):
            for other in self.open:
                if isinstance(other, NextItem) and other.lane == query.lane:
                    self.open.remove(other)
                    other.reply.fail(StorageError("another NextItem for this lane has taken the place of this one"))
                    break
        self.open.append(query)

    async def answer(self) -> None:
        """Answer the queries that can be answered now, to be called after each batch."""
        queries, self.open = self.open, []
        for query in sorted(queries, key=lambda query: _ORDER.index(type(query))):
            try:
                if not query.reply.abandoned and not await self._answer(query):
                    self.open.append(query)
            except StorageError as error:
                query.reply.fail(error)

    async def _answer(self, query: ItemQuery) -> bool:
        """Answer with the item that is asked for. Return False if there is none, and the asker waits for one."""
        while (item := self._find(query)) is not None:
            message = item.message or await self._read(item)
            if message is not None:
                if not isinstance(query, Newer) and not query.reply.abandoned:
                    self._log.hand_out(item)
                query.reply.send(Item(item.n, message, item.attempts, item.priority))
                return True
        if isinstance(query, NextItem) or (isinstance(query, Newer) and query.wait):
            return False
        query.reply.send(None)
        return True

    def _find(self, query: ItemQuery) -> QueuedItem | None:
        match query:
            case NextItem():
                return self._log.due(query.lane)
            case Take():
                return self._log.item(query.n)
            case Newer():
                return self._log.newer(query.address, query.after)

    async def _read(self, item: QueuedItem) -> InboundMessage | None:
        """Read the message of an item back, None if it is not in the file any more: somebody has edited that.

        Then it is reported and the item is done, so that it does not stop what comes after it.
        """
        [line] = await self._disk.run(Volume.read_spans, self._log.path, (item.span,))
        try:
            return message_in(line)
        except (ValueError, KeyError, TypeError) as error:
            self._report(f"{self._log.path}: item {item.n} was accepted but is not in the file any more ({error})")
            self._log.done(item.n)
            return None


# ------------------------------------------------------------------ records


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
