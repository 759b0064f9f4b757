"""Replies and what became of them: the state of `outbox/outbox.jsonl`, and its records.

Pure, and staged like `inbox`. Of a reply that nobody acknowledged, only its place in the file is held for long; the
newest replies are in memory too, since most are handed out and acknowledged at once.

    {"type":"reply","key":"…","at":ms,"message":{…}}                  and perhaps "redo", see there
    {"type":"settled"}                                                nothing before it need be redone
    {"type":"ack","channel":{"type","channelId"},"seq":13}            everything up to it
    {"type":"address","channel":{…},"seq":13,"acked":12}              after a compaction: the numbering of an address
    {"type":"keys","channels":[{…}, …],"replies":[[key, seq, place in channels], …]}       acknowledged ones, without text
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from itertools import chain, islice

from pegasus.messages import Address, ChannelInfo, OutboundMessage
from pegasus.storage.compaction import merged, pieces
from pegasus.storage.jsonl import replay
from pegasus.storage.messages import Post
from pegasus.storage.redo import SETTLED, Debt, Run, run_in, together
from pegasus.storage.replies import (
    GONE,
    Compaction,
    Numbering,
    Stored,
    ack_line,
    address_line,
    channel_in,
    keys_in,
    keys_line,
    reply_line,
)
from pegasus.storage.volume import Span
from pegasus.wire import Line, number_of, text_of

PATH = "outbox/outbox.jsonl"
REMEMBERED_KEYS = 10_000
"""Idempotency keys of acknowledged replies that are recognised; those of unacknowledged ones always are."""
KEPT_BYTES = 4 << 20
"""Bytes of replies held in memory; older ones are read back from the file when somebody wants them."""
GIVEN_UP_AFTER = 30 * 24 * 3600 * 1000
"""ms after which a reply that nobody acknowledged is dropped by a compaction."""


class OutboxLog:
    """The outbox as of its file, plus what is staged."""

    def __init__(self, remembered: int = REMEMBERED_KEYS, kept_bytes: int = KEPT_BYTES) -> None:
        self._remembered = remembered
        self._kept_bytes = kept_bytes
        self._addresses: dict[Address, Numbering] = {}
        self._types: dict[str, dict[Address, None]] = {}
        self._keys: dict[str, Stored] = {}
        self._acked_keys: deque[Stored] = deque()
        self._in_memory: OrderedDict[str, Stored] = OrderedDict()
        self._memory_bytes = 0
        self._unacked_bytes = 0
        self._owed: dict[Address, int] = {}
        self._staged: list[tuple[Stored, bytes]] = []
        self._runs: dict[str, Run] = {}
        self._debt = Debt.NONE
        self._carried: set[str] = set()
        self.size = 0

    # ------------------------------------------------------------------ posting

    def post(self, post: Post, channel: ChannelInfo, at: int) -> OutboundMessage:
        """Stage a reply to `channel`, or find what its key was given before. at: wall clock, ms.

        Raises TypeError, ValueError or RecursionError if it cannot be written.
        """
        known = self._keys.get(post.key)
        if known is not None:
            return OutboundMessage(post.text, known.channel, known.seq, post.metadata)
        address = channel.address
        numbering = self._addresses.get(address)
        seq = numbering.last + 1 if numbering else 1
        message = OutboundMessage(post.text, channel, seq, post.metadata)
        line = reply_line(post.key, at, message)
        numbering = numbering or self._number(channel)
        numbering.last = seq
        stored = Stored(post.key, numbering.share(channel), seq, at, Span(0, len(line)))
        stored.message = message
        self._keys[post.key] = stored
        self._staged.append((stored, line))
        return message

    def acknowledge(self, address: Address, seq: int) -> None:
        """The client has everything up to and including seq; what was not assigned yet is ignored."""
        numbering = self._addresses.get(address)
        if numbering is not None and numbering.acked < seq and seq <= self.last_seq(address):
            self._settle(numbering, seq)
            self._owed[address] = seq

    # ------------------------------------------------------------------ writing

    @property
    def owes(self) -> bool:
        """Something waits to be written along, or files to be settled."""
        return bool(self._owed) or self._debt is Debt.OWED

    @property
    def debt(self) -> Debt:
        """Whether some lines carry what files may not have synced yet."""
        return self._debt

    def carries(self, path: str) -> bool:
        """Whether this is one of those files."""
        return path in self._carried

    @property
    def staged(self) -> int:
        """How many replies must be written now."""
        return len(self._staged)

    def unwritten(self, *, settled: bool = False) -> bytes:
        """What is to be appended to the file: what is owed, then what is staged. settled: all files will be synced then."""
        return b"".join(chain(self._owed_lines(settled), (line for _, line in self._staged)))

    def written(
        self, offset: int, *, settled: bool = False, carried: str = "", redo: int = 0, synced: bool = True
    ) -> list[Stored]:
        """All that was unwritten is in the file from `offset` on; gives the replies that are new.

        redo: bytes by which the last line has grown, if it carries what the file `carried` may not have synced.
        """
        offset += sum(map(len, self._owed_lines(settled)))
        new = []
        for n, (stored, line) in enumerate(self._staged, 1):
            length = len(line) + (redo if n == len(self._staged) else 0)
            stored.span = Span(offset, length)
            offset += length
            self._unacked_bytes += length
            self._addresses[stored.channel.address].unacknowledged.append(stored)
            self._keep(stored)
            new.append(stored)
        self.size = offset
        self._owed.clear()
        self._staged.clear()
        self._debt = self._debt.after(carried=redo > 0, settled=settled, synced=synced)
        if redo:
            self._carried.add(carried)
        elif self._debt is Debt.NONE:
            self._carried.clear()
        return new

    def dropped(self, keep: int = 0) -> None:
        """What was staged (after the first `keep`) was never written and never was; what is owed is still owed."""
        for stored, _ in reversed(self._staged[keep:]):
            del self._keys[stored.key]
            address = stored.channel.address
            numbering = self._addresses[address]
            numbering.last -= 1
            if not numbering.last:
                del self._addresses[address], self._types[address.type][address]
        del self._staged[keep:]

    # ------------------------------------------------------------------ asking

    def find(self, key: str) -> Stored | None:
        """The reply of an idempotency key."""
        return self._keys.get(key)

    def last_seq(self, address: Address) -> int:
        """The last seq that was written for the address, 0 if none."""
        numbering = self._addresses.get(address)
        if numbering is None:
            return 0
        return numbering.last - sum(stored.channel.address == address for stored, _ in self._staged)

    def unacknowledged(self, type: str, channel_id: str | None, limit: int) -> list[Stored]:
        """Replies that nobody acknowledged, to an address or (channel_id None) a type: in seq order per address."""
        addresses = self._types.get(type, {}) if channel_id is None else [Address(type, channel_id)]
        found: list[Stored] = []
        for address in addresses:
            numbering = self._addresses.get(address)
            if numbering is not None and numbering.unacknowledged:
                found += islice(numbering.unacknowledged, limit - len(found))
            if len(found) >= limit:
                break
        return found

    # ------------------------------------------------------------------ loading

    def replay(self, line: Line) -> str | None:
        """Take over a record of the file; what is wrong with it, if it is none of ours. Done before anything else."""
        return replay(line, _REPLAY, self)

    def loaded(self, size: int) -> None:
        """All records were replayed; the file has this many bytes."""
        self.size = size
        self._debt = Debt.OWED if self._runs else Debt.NONE
        self._carried = set(self._runs)

    def take_runs(self) -> list[Run]:
        """What files must hold by all that was replayed."""
        runs, self._runs = list(self._runs.values()), {}
        return runs

    def _replay_reply(self, line: Line) -> None:
        record, span = line.value, Span(line.offset, line.length)
        key, at, message = text_of(record["key"]), number_of(record["at"]), record["message"]
        channel, seq = channel_in(message["channel"]), number_of(message["seq"])
        text_of(message["text"])
        run = run_in(record["redo"]) if "redo" in record else None
        if key in self._keys:
            return
        numbering = self._addresses.get(channel.address) or self._number(channel)
        if numbering.unacknowledged and seq <= numbering.unacknowledged[-1].seq:
            raise ValueError(f"seq {seq} is out of order")
        if run is not None:
            self._runs[run.path] = together(self._runs.get(run.path), run)
        numbering.last = max(numbering.last, seq)
        stored = Stored(key, numbering.share(channel), seq, at, span)
        self._keys[key] = stored
        if seq <= numbering.acked:
            self._retire(stored)
        else:
            numbering.unacknowledged.append(stored)
            self._unacked_bytes += span.length

    def _replay_ack(self, line: Line) -> None:
        channel, seq = channel_in(line.value["channel"]), number_of(line.value["seq"])
        numbering = self._addresses.get(channel.address) or self._number(channel)
        numbering.last = max(numbering.last, seq)  # it was assigned, even if its line is damaged
        self._settle(numbering, seq)

    def _replay_address(self, line: Line) -> None:
        record = line.value
        last, acked, channel = number_of(record["seq"]), number_of(record["acked"]), channel_in(record["channel"])
        numbering = self._addresses.get(channel.address) or self._number(channel)
        numbering.last, numbering.acked = max(numbering.last, last), max(numbering.acked, acked)

    def _replay_settled(self, _: Line) -> None:
        self._runs.clear()

    def _replay_keys(self, line: Line) -> None:
        for key, channel, seq in keys_in(line.value):
            if key not in self._keys:
                stored = self._keys[key] = Stored(key, channel, seq, 0, GONE)
                self._retire(stored)

    # ------------------------------------------------------------------ compaction

    @property
    def live(self) -> int:
        """About how many bytes the file would have after a compaction."""
        return self._unacked_bytes + 40 * len(self._acked_keys) + 80 * len(self._addresses)

    def compaction(self, now: int) -> Compaction:
        """What the file is to hold instead; only while nothing is staged or in debt. Call `compacted` once it does. now: ms."""
        kept: list[Stored] = []
        dropped: list[Stored] = []
        for numbering in self._addresses.values():
            for stored in numbering.unacknowledged:
                (dropped if now - stored.at > GIVEN_UP_AFTER else kept).append(stored)
        kept.sort(key=lambda stored: stored.span)
        parts: list[bytes | Span] = [address_line(numbering) for numbering in self._addresses.values()]
        parts += map(keys_line, pieces(chain(self._acked_keys, dropped)))
        offset = sum(map(len, parts))
        moved = []
        for stored in kept:
            moved.append((stored, Span(offset, stored.span.length)))
            offset += stored.span.length
        return Compaction([*parts, *merged(stored.span for stored in kept), SETTLED], moved, dropped)

    def compacted(self, plan: Compaction, size: int) -> list[str]:
        """The file was replaced by the compaction, which has this many bytes. Gives what a person should know."""
        for stored in self._acked_keys:
            stored.span = GONE
        for stored in plan.dropped:
            self._addresses[stored.channel.address].unacknowledged.remove(stored)
            self._unacked_bytes -= stored.span.length
            self._retire(stored)
            stored.span = GONE
        for stored, span in plan.moved:
            stored.span = span
        self._owed.clear()
        self.size = size
        given_up = Counter(str(stored.channel.address) for stored in plan.dropped)
        return [
            f"{count} replies to {address} were dropped: nobody acknowledged them for 30 days"
            for address, count in given_up.items()
        ]

    # ------------------------------------------------------------------ inside

    def _number(self, channel: ChannelInfo) -> Numbering:
        numbering = self._addresses[channel.address] = Numbering(channel)
        self._types.setdefault(channel.type, {})[channel.address] = None
        return numbering

    def _settle(self, numbering: Numbering, seq: int) -> None:
        numbering.acked = max(numbering.acked, seq)
        waiting = numbering.unacknowledged
        while waiting and waiting[0].seq <= seq:
            stored = waiting.popleft()
            self._unacked_bytes -= stored.span.length
            self._retire(stored)

    def _retire(self, stored: Stored) -> None:
        """It is acknowledged: its key is remembered for a while, its text is not needed in memory."""
        stored.acked = True
        if stored.message is not None:
            del self._in_memory[stored.key]
            self._memory_bytes -= stored.span.length
            stored.message = None
        self._acked_keys.append(stored)
        if len(self._acked_keys) > self._remembered:
            del self._keys[self._acked_keys.popleft().key]

    def _keep(self, stored: Stored) -> None:
        self._in_memory[stored.key] = stored
        self._memory_bytes += stored.span.length
        while self._memory_bytes > self._kept_bytes:
            _, oldest = self._in_memory.popitem(last=False)
            self._memory_bytes -= oldest.span.length
            oldest.message = None

    def _owed_lines(self, settled: bool) -> list[bytes]:
        return [SETTLED] * settled + [ack_line(address, seq) for address, seq in self._owed.items()]


_REPLAY = {
    "reply": OutboxLog._replay_reply,
    "ack": OutboxLog._replay_ack,
    "address": OutboxLog._replay_address,
    "keys": OutboxLog._replay_keys,
    "settled": OutboxLog._replay_settled,
}
