"""The inbox: accepted messages that are not done, ids to recognise duplicates by, and known addresses.

State of `inbox/inbox.jsonl`, whose records are

    {"type":"message","n":7,"at":ms,"lane":"control","rank":1,"message":{…}}   accepted; "rank" is the priority
    {"type":"done","n":7,"at":ms}
    {"type":"address","channel":{"type","channelId"}}                 seen without a message
    {"type":"compacted","lastN":7}                                    the first line after a rewrite, and before the first reply
    {"type":"ids","packed":"…"}                                       after a rewrite; base64 of pairs (digest of an id, n) of 8 bytes
    {"type":"addresses","known":[["web","c1"], …]}                    the newest last; behind the messages that are kept
    {"type":"heard","guests":[["web","c1","phone"], …]}               after a rewrite: where a guest was heard, or several people ("*")

"lane" is absent if it is "main", "rank" if it is 0. "owner" is true for an owner's item with another rank than 0 (see
`is_from_owner`). A message may have "discards", a list of the numbers of items that need no more work from then on: `/stop all` has
put it in their place.

A sender that did not get its answer sends the message again. So ids are remembered long after their messages are done,
by address and id. A digest of 8 bytes stands for an id: it keeps 50,000 of them in about a megabyte, and among so many
a new id is taken for an old one once in 10^14 times.

Owners and others have room of their own in a lane: nobody else can fill an owner's. Which item is next is decided by the queue
(`item_queue`).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain, islice
from typing import ClassVar

import attrs

from pegasus.messages import (
    ACCOUNT,
    APART,
    INTERNAL_ID_PREFIX,
    Address,
    ChannelInfo,
    InboundMessage,
    Json,
    Metadata,
    account_of,
)
from pegasus.storage.directory import Directory, heard_after, place
from pegasus.storage.disk import Disk
from pegasus.storage.inbox_messages import MAX_PRIORITY, Accepted, Discard, Overloaded
from pegasus.storage.item_queue import MAIN, ItemQueue, QueuedItem
from pegasus.storage.record_log import RecordLog, Report, Staged, count_field, in_pieces
from pegasus.storage.volume import Span, Volume
from pegasus.wire import decode_object, encode_line, from_wire, to_wire

MAX_WAITING = 1_000
"""Items of owners that may wait in a lane, and as many of others, so that a flood of others leaves owners all their room.
More would only mean answers that come too late, and the sender can be told at once instead."""
REMEMBERED_IDS = 50_000
"""Ids that are recognised when they come again; older ones are forgotten."""
LATEST = 1 << 53
"""Time in ms beyond which a line is damaged. Another version may have written any number."""
KEPT_LINE = 16 << 10
"""Bytes of the largest record whose message is held in memory; a larger one is read back from the file when it is due. A
full lane takes 17 MiB at most."""


# ------------------------------------------------------------------ records, as far as they are needed at a start


@attrs.frozen(eq=False, repr=False)
class MessageHead:
    """The parts of an accepted message that are kept in memory; the text is read back later.

    Example: of `{"type": "message", "n": 7, "message": {...}}` it is the part "message", without files.
    """

    text: str
    """The text, read for its size alone and not kept."""
    id: str
    """The sender's id, by which duplicates are recognised."""
    channel: ChannelInfo
    """Channel that it came from. Its address decides the queue of the item and becomes a known address."""
    metadata: Metadata = attrs.field(factory=dict)
    """Read for the account of its sender, and not kept."""


@attrs.frozen(eq=False, repr=False)
class MessageRecord:
    """An accepted message.

    Example: `{"type": "message", "n": 12, "lane": "main", "rank": 3, "message": {...}}`, written by `accept`.
    """

    message: MessageHead
    n: int = count_field()
    """The number of the item, from 1."""
    lane: str = MAIN
    """The lane that the item waits in."""
    rank: float = 0
    """The priority. Another version may have written any number."""
    owner: bool = False
    """The item is marked as an owner's."""
    discards: tuple[int, ...] = ()
    """Items that need no more work from here on."""
    at: float = 0
    """Wall clock when it was accepted, ms."""


@attrs.frozen(eq=False, repr=False)
class DoneRecord:
    """An item needs no more work.

    Example: `{"type": "done", "n": 12}`. It is a note: a crash may lose it, and the item is handed out again.
    """

    n: int = count_field()
    """Number of the item. A number that does not wait has no effect, since a rewrite may have dropped the item."""


@attrs.frozen(eq=False, repr=False)
class AddressRecord:
    """A client of the address was connected.

    Example: `{"type": "address", "channel": {...}}`, written when a client of a new address connects.
    """

    channel: Address
    """Address of the client."""


@attrs.frozen(eq=False, repr=False)
class CompactedRecord:
    """The last number that was given.

    Example: the first record of a rewritten file. Without it, numbers of dropped items would be given again.
    """

    last_n: int = count_field()
    """Highest number that was given before the rewrite."""


@attrs.frozen(eq=False, repr=False)
class IdsRecord:
    """Ids of messages that are not in the file any more.

    Example: after a rewrite one such record stands for up to 1,000 dropped messages, whose ids are still recognised.
    """

    packed: str
    """Base64 of pairs of a digest and a number, 8 bytes each, big-endian."""


@attrs.frozen(eq=False, repr=False)
class AddressesRecord:
    """Addresses that were seen, as pairs of type and channel id.

    Example: `{"type": "addresses", "known": [["web", "c1"], ["telegram", "42"]]}`, written by a rewrite.
    """

    known: tuple[tuple[str, str], ...]
    """Oldest first, so that reading them in order makes the last one the newest."""


@attrs.frozen(eq=False, repr=False)
class HeardRecord:
    """Addresses at which guests were heard.

    Example: `{"type": "heard", "guests": [["telegram", "42", "telegram:42"], ["slack", "C1", "*"]]}`, written by a rewrite.
    """

    guests: tuple[tuple[str, str, str], ...]
    """Type, channelId, and the account of the one guest, or SEVERAL."""


class InboxLog(RecordLog[QueuedItem]):
    """The inbox as of its file, with its notes, and what is staged.

    >>> log = InboxLog(Directory())
    >>> log.accept(message, "main", at=1_772_029_800_000)
    Accepted(n=1, duplicate=False)
    >>> log.written(offset)                     # after log.unwritten() has reached the disk
    >>> log.queue.hand_out(log.queue.due("main"))
    >>> log.done(1)
    """

    path: ClassVar = "inbox/inbox.jsonl"

    def __init__(self, directory: Directory, max_waiting: int = MAX_WAITING, remembered: int = REMEMBERED_IDS) -> None:
        super().__init__(
            {
                "message": (MessageRecord, self._replay_message),
                "done": (DoneRecord, self._replay_done),
                "address": (AddressRecord, lambda record, _: directory.add(record.channel)),
                "compacted": (CompactedRecord, lambda record, _: self.start_numbers_after(record.last_n)),
                "ids": (IdsRecord, lambda record, _: self.ids.update(_unpack(record.packed))),
                "addresses": (AddressesRecord, self._replay_addresses),
                "heard": (HeardRecord, self._replay_heard),
            }
        )
        self._directory = directory
        """Addresses of senders, shared with the outbox."""
        self._max_waiting = max_waiting
        """Items that may wait in a lane."""
        self._remembered = remembered
        """Ids that are recognised."""
        self.last_n = 0
        """The last number that was given."""
        self.ids: dict[int, int] = {}
        """Number of the item by the digest of its id, oldest first."""
        self.queue = ItemQueue()
        """The items that are not done."""

    # ------------------------------------------------------------------ accepting

    def accept(
        self,
        message: InboundMessage,
        lane: str,
        at: int,
        priority: int = 0,
        owner: bool = False,
        sender: str = "",
        max_of_sender: int = 0,
    ) -> Accepted | Overloaded:
        """Stage a message. at: wall clock, ms. owner, sender, max_of_sender: as in `Accept`.

        A duplicate is recognised before the limit is looked at: its sender only wants to know that it was accepted.

        Raises ValueError for a priority that does not exist, and ValueError or TypeError for a message that cannot be
        written as JSON. Then nothing has changed.
        """
        if not 0 <= priority <= MAX_PRIORITY:
            raise ValueError(f"priority {priority!r} is not between 0 and {MAX_PRIORITY}")
        digest = digest_of(message.channel, message.id)
        if digest in self.ids:
            return Accepted(self.ids[digest], duplicate=True)
        if digest in self.staged:
            return Accepted(self.staged[digest].value.n, duplicate=True)
        is_owners = is_from_owner(priority, marked=owner)
        staged = [
            each.value for each in self.staged.values() if (each.value.lane, each.value.is_owners) == (lane, is_owners)
        ]
        if (waiting := self.queue.sizes[lane, is_owners] + len(staged)) >= self._max_waiting:
            return Overloaded(waiting)
        if max_of_sender:
            sender = sender or message.account
            items = chain(self.queue.of(lane), staged)
            if (
                waiting := sum(item.sender == sender and item.is_owners == is_owners for item in items)
            ) >= max_of_sender:
                return Overloaded(waiting, of_sender=True)
        item = QueuedItem(0, lane, priority, message.channel.address, digest, is_owners=is_owners)
        item.sender = sender or message.account
        return Accepted(self._stage(item, message, at), duplicate=False)

    def discard(self, request: Discard, at: int) -> int | None:
        """Stage what `Discard` asks for and return its answer. at: wall clock, ms. The dropped items wait until it is written."""
        report, channel, priority = request.report, request.report.channel, request.report_priority
        digest = digest_of(channel, report.id)
        if digest in self.ids or digest in self.staged:
            return None
        senders = None if request.owner else (report.account,)
        is_owners = is_from_owner(priority, marked=request.owner)
        report, _ = place(report, self._heard_at(channel.address), is_owners=is_owners)
        is_apart = report.metadata.get(APART) is True
        numbers = self.queue.discardable(channel.address, request.before, request.priority, senders, apart=is_apart)
        if not numbers:
            return 0
        message = attrs.evolve(report, metadata={**report.metadata, "discarded": len(numbers)})
        item = QueuedItem(0, MAIN, priority, channel.address, digest, is_owners=is_owners, discards=tuple(numbers))
        item.sender = message.account
        self._stage(item, message, at)
        return len(numbers)

    def _heard_at(self, address: Address) -> str:
        """Return who is heard at an address, as `Directory.guest_of` does, when what is staged is written."""
        staged = (item.hears for item, _ in reversed(self.staged.values()) if item.address == address)
        return next(staged, self._directory.guest_of(address))

    def _stage(self, item: QueuedItem, message: InboundMessage, at: int) -> int:
        """Stage a new item with the next number, and return that. Its message gets the conversation that it belongs to."""
        message, item.hears = place(message, self._heard_at(item.address), is_owners=item.is_owners)
        item.n = self.last_n + len(self.staged) + 1
        item.is_apart = message.metadata.get(APART) is True
        item.at, item.is_internal = at, message.is_internal
        line = message_line(item.n, at, item.lane, item.priority, item.is_owners, to_wire(message), item.discards)
        item.span = Span(0, len(line))
        item.message = message if len(line) <= KEPT_LINE else None
        self.staged[item.digest] = Staged(item, line)
        return item.n

    def begin(self) -> None:
        """Note the last number that was given, so that the file is not empty.

        It is written before the first reply: replies without an inbox show at a start that the inbox was lost.
        """
        self.notes["begin"] = self._begin_line()

    def done(self, n: int, at: int = 0) -> QueuedItem | None:
        """Remove an item that needs no more work and return it. A number that does not wait is ignored. at: wall clock, ms.

        If a crash loses the note, the item is handed out again, and the Main Agent recognises by its session what it has
        done.
        """
        item = self.queue.remove(n)
        if item is not None:
            self.notes["done", n] = done_line(n, at)
        return item

    def connected(self, type: str, channel_id: str | None) -> None:
        """Note a client of an address, which is known from then on, or (channel_id None) a bridge for the type."""
        self._directory.connected(type, channel_id)
        if channel_id is not None and self._directory.add(address := Address(type, channel_id)):
            self.notes[address] = encode_line({"type": "address", "channel": to_wire(address)})

    # ------------------------------------------------------------------ reading back

    async def read_message(self, disk: Disk, report: Report, item: QueuedItem) -> InboundMessage | None:
        """Return the message of an item that is not held in memory, None if it is not in the file any more: somebody has edited that.

        Then it is reported and the item is done, so that it does not stop what comes after it.
        """
        [line] = await disk.run(Volume.read_spans, self.path, (item.span,))
        try:
            message = message_in(line)
            is_said = not item.is_apart or message.metadata.get(APART) is True
            return message if is_said else attrs.evolve(message, metadata={**message.metadata, APART: True})
        except (ValueError, KeyError, TypeError) as error:
            report(f"{self.path}: item {item.n} was accepted but is not in the file any more ({error})")
            self.done(item.n)
            return None

    # ------------------------------------------------------------------ loading

    def start_numbers_after(self, n: int) -> None:
        """Give no number up to n. Used when the inbox is lost, since other packages know items by their numbers."""
        self.last_n = max(self.last_n, n)

    def loaded(self, size: int) -> None:
        """Note that all records are applied."""
        super().loaded(size)
        self._forget_old_ids()

    def _replay_message(self, record: MessageRecord, span: Span) -> None:
        """Take over an accepted message. A number that comes twice (a file put together by hand) counts once."""
        n, channel = record.n, record.message.channel
        digest = digest_of(channel, record.message.id)
        self.ids[digest] = n
        self.start_numbers_after(n)
        self._directory.add(channel.address)
        priority = int(min(max(0, record.rank), MAX_PRIORITY))
        metadata, is_owners = record.message.metadata, is_from_owner(priority, marked=record.owner)
        is_internal, account = record.message.id.startswith(INTERNAL_ID_PREFIX), account_of(channel, metadata)
        is_apart = metadata.get(APART) is True
        if APART not in metadata and ACCOUNT not in metadata:  # of a version without conversations of guests
            is_from_guest = not (is_internal or is_owners or (channel.user_id or "").startswith("hook "))
            heard = self._directory.guest_of(channel.address)
            is_apart = is_from_guest or (bool(heard) and (is_internal or heard != account))
        if not is_internal:
            heard = self._directory.guest_of(channel.address)
            hears = heard_after(heard, account, is_apart=is_apart, is_owners=is_owners)
            self._directory.note_heard(channel.address, hears)
        if not self.queue.is_waiting(n):
            item = QueuedItem(n, record.lane, priority, channel.address, digest, span, is_owners=is_owners)
            item.sender, item.is_apart = account, is_apart
            item.at, item.is_internal = int(min(max(0, record.at), LATEST)), is_internal
            self.queue.add(item)
        for discarded in record.discards:
            self.queue.remove(discarded)

    def _replay_done(self, record: DoneRecord, _: Span) -> None:
        """Remove an item. One without its message is no error: the message may have been in a line that was damaged."""
        self.start_numbers_after(record.n)  # the number was given, even if the line of its message is damaged
        self.queue.remove(record.n)

    def _replay_addresses(self, record: AddressesRecord, _: Span) -> None:
        """Take over the addresses of a rewrite, in their order."""
        for type, channel_id in record.known:
            self._directory.add(Address(type, channel_id))

    def _replay_heard(self, record: HeardRecord, _: Span) -> None:
        """Take over where guests were heard."""
        for type, channel_id, account in record.guests:
            self._directory.note_heard(Address(type, channel_id), account)

    # ------------------------------------------------------------------ parts of a log

    @property
    def live_bytes(self) -> int:
        """About how many bytes the file would have after a rewrite."""
        addresses = sum(len(address.type) + len(address.channel_id) + 8 for address in self._directory)
        items = sum(item.span.length for item in self.queue)
        return items + 22 * len(self.ids) + addresses

    def _add_written(self, values: list[QueuedItem]) -> None:
        for item in values:
            self.last_n = item.n
            self.ids[item.digest] = item.n
        self._forget_old_ids()
        for item in values:
            self._directory.add(item.address)
            self._directory.note_heard(item.address, item.hears)
            self.queue.add(item)
            for discarded in item.discards:
                self.queue.remove(discarded)

    def _kept(self) -> list[QueuedItem]:
        return sorted(self.queue, key=lambda item: item.span)

    def _summary(self) -> list[bytes]:
        return [self._begin_line(), *ids_lines(self.ids.items())]

    def _begin_line(self) -> bytes:
        return encode_line({"type": "compacted", "lastN": self.last_n})

    def _closing_lines(self) -> list[bytes]:
        return directory_lines(self._directory, self._directory.heard.items())

    # ------------------------------------------------------------------ inside

    def _forget_old_ids(self) -> None:
        """Forget ids in batches: a dict is slow to find its first key once many before it are gone."""
        surplus = len(self.ids) - self._remembered
        if surplus > self._remembered // 50:
            for digest in list(islice(self.ids, surplus)):
                del self.ids[digest]


# ------------------------------------------------------------------ records


def message_in(line: bytes) -> InboundMessage:
    """Return the message of a record that was read back. Raises ValueError or KeyError if there is none."""
    return from_wire(decode_object(line)["message"], InboundMessage)


def digest_of(channel: ChannelInfo | Address, id: str) -> int:
    """Return a number that stands for the id on this address."""
    type, channel_id = channel.type, channel.channel_id
    key = f"{len(type)},{len(channel_id)},{type}{channel_id}{id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")


def is_from_owner(priority: int, *, marked: bool) -> bool:
    """Return whether an item is an owner's: it has the priority of what owners write, or is marked as theirs, as a report may be."""
    return marked or not priority


def message_line(
    n: int, at: int, lane: str, priority: int, is_owners: bool, message: Json, discards: Sequence[int] = ()
) -> bytes:
    """Return the record of an accepted message. Default values are left out, as most messages have them."""
    record: dict[str, Json] = {"type": "message", "n": n, "at": at}
    if lane != MAIN:
        record["lane"] = lane
    if priority:
        record["rank"] = priority
    if is_owners and priority:
        record["owner"] = True
    if discards:
        record["discards"] = list(discards)
    return encode_line({**record, "message": message})


def done_line(n: int, at: int) -> bytes:
    """Return the record of an item that is done. at: wall clock, ms; 0 = not known."""
    return encode_line({"type": "done", "n": n, **({"at": at} if at else {})})


def ids_lines(ids: Iterable[tuple[int, int]]) -> list[bytes]:
    """Return the records of ids whose messages are gone: pairs of a digest and a number."""
    return [encode_line({"type": "ids", "packed": _pack(piece)}) for piece in in_pieces(ids)]


def directory_lines(known: Iterable[Address], heard: Iterable[tuple[Address, str]]) -> list[bytes]:
    """Return the records of addresses, and of where guests were heard.

    They stand behind the messages, so that a replay ends with their true order.
    """
    pairs: Iterable[Json] = ([address.type, address.channel_id] for address in known)
    guests: Iterable[Json] = ([where.type, where.channel_id, account] for where, account in heard)
    return [encode_line({"type": "addresses", "known": piece}) for piece in in_pieces(pairs)] + [
        encode_line({"type": "heard", "guests": piece}) for piece in in_pieces(guests)
    ]


def _pack(ids: Sequence[tuple[int, int]]) -> str:
    """Return the ids as base64; a hex or decimal form would double the file."""
    return base64.b64encode(struct.pack(f">{2 * len(ids)}Q", *chain.from_iterable(ids))).decode()


def _unpack(packed: str) -> Iterator[tuple[int, int]]:
    """Yield pairs of a digest and a number. Raises ValueError if the text is not what `_pack` makes."""
    data = base64.b64decode(packed, validate=True)
    if len(data) % 16:
        raise ValueError("not 16 bytes for each id")
    return struct.iter_unpack(">QQ", data)
