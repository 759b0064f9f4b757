"""What was accepted and is not done: the state of `inbox/inbox.jsonl`, and its records.

Pure: values in, bytes to be appended out. Changes are staged; `written` makes them true, `dropped` undoes them to
the last detail. What need not be durable at once (done, sightings of addresses) is true at once, and its bytes
are owed: they stay until some write takes them along.

    {"type":"message","n":7,"at":ms,"lane":"control","rank":1,"message":{…}}   accepted (lane absent if "main", rank if 0)
    {"type":"done","n":7}
    {"type":"address","channel":{"type","channelId"}}                 seen without a message
    {"type":"compacted","lastN":7}                                    the first line after a compaction, then
    {"type":"ids","packed":"…"}                                       digest and n of ids to recognise, base64 of 2 × 8 bytes each
    {"type":"addresses","known":[["web","c1"], …]}                    the newest last
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import chain, islice
from typing import NamedTuple

from pegasus.messages import Address, InboundMessage, Json
from pegasus.storage.addresses import Directory
from pegasus.storage.compaction import merged, pieces
from pegasus.storage.jsonl import address_in, replay
from pegasus.storage.lanes import MAIN, MAX_RANK, Lane, Pending
from pegasus.storage.messages import Accepted, Overloaded
from pegasus.storage.volume import Span
from pegasus.wire import Line, encode_line, from_wire, number_of, text_of, to_wire

PATH = "inbox/inbox.jsonl"
MAX_WAITING = 1_000
"""Items of a lane that may wait; a tenth more for those of rank 0, whom a flood of others must not shut out."""
REMEMBERED_IDS = 50_000
"""Ids that are recognised when they come again; older ones are forgotten."""
KEPT_BYTES = 8 << 20
"""Bytes of waiting messages held in memory; what comes on top is read back from the file when its turn comes."""


class InboxLog:
    """The inbox as of its file, plus what is staged."""

    def __init__(
        self,
        directory: Directory,
        max_waiting: int = MAX_WAITING,
        remembered: int = REMEMBERED_IDS,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self._directory = directory
        self._max_waiting = max_waiting
        self._remembered = remembered
        self._kept_bytes = kept_bytes
        self._last_n = 0
        self._ids: dict[int, int] = {}
        self._lanes: dict[str, Lane] = {}
        self._pending: dict[int, Pending] = {}
        self._pending_bytes = 0
        self._in_memory = 0
        self._owed: list[bytes] = []
        self._staged: list[tuple[Pending, int, bytes]] = []
        self.size = 0

    # ------------------------------------------------------------------ accepting

    def accept(self, message: InboundMessage, lane: str, at: int, rank: int = 0) -> Accepted | Overloaded:
        """Stage a message. at: wall clock, ms. Raises TypeError, ValueError, RecursionError if it cannot be written."""
        if not 0 <= rank <= MAX_RANK:
            raise ValueError(f"rank {rank!r} is not between 0 and {MAX_RANK}")
        digest = _digest(message.channel.type, message.channel.channel_id, message.id)
        known = self._ids.get(digest)
        if known is not None:
            return Accepted(known, duplicate=True)
        waiting = len(self._lanes.get(lane, ()))
        if waiting >= self._max_waiting + (0 if rank else self._max_waiting // 10):
            return Overloaded(waiting)
        n = self._last_n + 1
        line = _message_line(n, at, lane, rank, message)
        pending = Pending(n, lane, rank, message.channel.address, message, Span(0, len(line)))
        self._last_n = n
        self._ids[digest] = n
        self._add(pending)
        self._staged.append((pending, digest, line))
        return Accepted(n, duplicate=False)

    def done(self, n: int) -> None:
        """The item needs no more work; unknown ones are ignored."""
        pending = self._pending.get(n)
        if pending is not None:
            self._remove(pending)
            self._owed.append(b'{"type":"done","n":%d}\n' % n)

    def connected(self, type: str, channel_id: str | None) -> None:
        """Somebody is there: for an address, which is known from now on, or (channel_id None) for the whole type."""
        self._directory.connected(type, channel_id)
        if channel_id is not None and self._directory.saw(address := Address(type, channel_id)):
            self._owed.append(encode_line({"type": "address", "channel": to_wire(address)}))

    # ------------------------------------------------------------------ writing

    @property
    def owes(self) -> bool:
        """Something waits to be written along."""
        return bool(self._owed)

    @property
    def staged(self) -> int:
        """How many messages must be written now."""
        return len(self._staged)

    def unwritten(self) -> bytes:
        """What is to be appended to the file: what is owed, then what is staged."""
        return b"".join(chain(self._owed, (line for _, _, line in self._staged)))

    def written(self, offset: int) -> None:
        """All that was unwritten is in the file from `offset` on."""
        offset += sum(map(len, self._owed))
        for pending, _, line in self._staged:
            pending.span = Span(offset, len(line))
            offset += len(line)
            self._directory.saw(pending.address)
        self.size = offset
        self._owed.clear()
        self._staged.clear()
        self._forget_old_ids()

    def dropped(self) -> None:
        """What was staged could not be written and never was; what is owed is still owed."""
        for pending, digest, _ in reversed(self._staged):
            self._remove(pending)
            del self._ids[digest]
            self._last_n = pending.n - 1
        self._staged.clear()

    # ------------------------------------------------------------------ taking

    @property
    def waiting(self) -> int:
        """Items that are not done, all lanes."""
        return len(self._pending)

    def due(self, lane: str, prefer: int | None = None) -> Pending | None:
        """The item of the lane that is to be worked on, see `lanes`; it may be staged only."""
        known = self._lanes.get(lane)
        return None if known is None else known.due(prefer)

    def newer(self, address: Address, after: int) -> Pending | None:
        """The oldest item of the main lane from this address that was not handed out, above `after`."""
        known = self._lanes.get(MAIN)
        return None if known is None else known.oldest_of(address, after)

    def item(self, n: int) -> Pending | None:
        """The item of the main lane with this number, if it is not done."""
        known = self._lanes.get(MAIN)
        return None if known is None else known.get(n)

    def hand_out(self, pending: Pending) -> None:
        """Somebody has it now; until it is done it is due before all others."""
        self._lanes[pending.lane].hand_out(pending)

    # ------------------------------------------------------------------ loading

    def replay(self, line: Line) -> str | None:
        """Take over a record of the file; what is wrong with it, if it is none of ours. Done before anything else."""
        return replay(line, _REPLAY, self)

    def loaded(self, size: int) -> None:
        """All records were replayed; the file has this many bytes."""
        self.size = size
        self._owed.clear()
        self._forget_old_ids()

    def begin_above(self, n: int) -> None:
        """Give no number up to n: the log was lost, and others know items by their numbers."""
        self._last_n = max(self._last_n, n)

    def _replay_message(self, line: Line) -> None:
        record = line.value
        n, lane, message = number_of(record["n"]), text_of(record.get("lane", MAIN)), record["message"]
        rank = int(min(max(0, record.get("rank", 0)), MAX_RANK))
        address = address_in(message["channel"])
        text_of(message["text"])
        self._ids[_digest(address.type, address.channel_id, text_of(message["id"]))] = n
        self._last_n = max(self._last_n, n)
        self._directory.saw(address)
        if n not in self._pending:
            self._add(Pending(n, lane, rank, address, None, Span(line.offset, line.length)))

    def _replay_done(self, line: Line) -> None:
        n = number_of(line.value["n"])
        self._last_n = max(self._last_n, n)  # it was assigned, even if its line is damaged
        pending = self._pending.get(n)
        if pending is not None:
            self._remove(pending)

    def _replay_address(self, line: Line) -> None:
        self._directory.saw(address_in(line.value["channel"]))

    def _replay_compacted(self, line: Line) -> None:
        self._last_n = max(self._last_n, number_of(line.value["lastN"]))

    def _replay_ids(self, line: Line) -> None:
        self._ids.update(_unpacked(line.value["packed"]))

    def _replay_addresses(self, line: Line) -> None:
        for type, channel_id in line.value["known"]:
            self._directory.saw(Address(text_of(type), text_of(channel_id)))

    # ------------------------------------------------------------------ compaction

    @property
    def live(self) -> int:
        """About how many bytes the file would have after a compaction."""
        return self._pending_bytes + 22 * len(self._ids) + self._directory.bytes

    def compaction(self, now: int) -> Compaction:
        """What the file is to hold instead; only while nothing is staged. Call `compacted` once it does."""
        parts: list[bytes | Span] = [encode_line({"type": "compacted", "lastN": self._last_n})]
        parts += (encode_line({"type": "ids", "packed": _packed(some)}) for some in pieces(self._ids.items()))
        offset = sum(map(len, parts))
        moved: list[tuple[Pending, Span]] = []
        for pending in self._pending.values():
            moved.append((pending, Span(offset, pending.span.length)))
            offset += pending.span.length
        parts += merged(pending.span for pending in self._pending.values())
        parts += (
            encode_line({"type": "addresses", "known": [[address.type, address.channel_id] for address in some]})
            for some in pieces(self._directory)
        )
        return Compaction(parts, moved)

    def compacted(self, plan: Compaction, size: int) -> list[str]:
        """The file was replaced by the compaction, which has this many bytes. Gives what a person should know."""
        for pending, span in plan.moved:
            pending.span = span
        self._owed.clear()
        self.size = size
        return []

    # ------------------------------------------------------------------ inside

    def _add(self, pending: Pending) -> None:
        size = pending.span.length
        self._pending[pending.n] = pending
        self._lanes.setdefault(pending.lane, Lane()).add(pending)
        self._pending_bytes += size
        if pending.message is None:
            return
        if self._in_memory + size > self._kept_bytes:
            pending.message = None
        else:
            self._in_memory += size

    def _remove(self, pending: Pending) -> None:
        del self._pending[pending.n]
        self._lanes[pending.lane].remove(pending)
        self._pending_bytes -= pending.span.length
        if pending.message is not None:
            self._in_memory -= pending.span.length

    def _forget_old_ids(self) -> None:
        """Now and then, not each time: a dict is slow to find its first key once many before it are gone."""
        surplus = len(self._ids) - self._remembered
        if surplus > self._remembered // 50:
            for digest in list(islice(self._ids, surplus)):
                del self._ids[digest]


class Compaction(NamedTuple):
    """New content of a file, and where what is waiting will be in it."""

    parts: list[bytes | Span]
    moved: list[tuple[Pending, Span]]


def message_in(line: bytes) -> InboundMessage:
    """The message in a record that was read back. Raises ValueError if there is none."""
    return from_wire(json.loads(line)["message"], InboundMessage)


_REPLAY = {
    "message": InboxLog._replay_message,
    "done": InboxLog._replay_done,
    "address": InboxLog._replay_address,
    "compacted": InboxLog._replay_compacted,
    "ids": InboxLog._replay_ids,
    "addresses": InboxLog._replay_addresses,
}


def _digest(type: str, channel_id: str, id: str) -> int:
    """8 bytes that stand for an id: of 50,000, a new one is taken for an old one once in 10^14 times."""
    key = f"{len(type)},{len(channel_id)},{type}{channel_id}{id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")


def _message_line(n: int, at: int, lane: str, rank: int, message: InboundMessage) -> bytes:
    record: dict[str, Json] = {"type": "message", "n": n, "at": at}
    if lane != MAIN:
        record["lane"] = lane
    if rank:
        record["rank"] = rank
    record["message"] = to_wire(message)
    return encode_line(record)


def _packed(ids: Sequence[tuple[int, int]]) -> str:
    return base64.b64encode(struct.pack(f">{2 * len(ids)}Q", *chain.from_iterable(ids))).decode()


def _unpacked(packed: str) -> Iterator[tuple[int, int]]:
    data = base64.b64decode(packed, validate=True)
    if len(data) % 16:
        raise ValueError("not 16 bytes for each id")
    return struct.iter_unpack(">QQ", data)
