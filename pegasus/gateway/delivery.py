"""The decisions of delivery, without I/O: to whom a reply goes (`Routes`), and when (`Cursor`).

**Cursor.** A client must get each reply of its address once, in order, and without gaps. Replies reach its connection in two
ways. They are *pushed* by the switchboard as they are made, and they are *read* from the journal: at the hello everything
that nobody has acknowledged, and later whatever a gap in the numbers shows to be missing (the switchboard drops replies for an
adapter whose mailbox is full, and after a crash it pushes some twice). The two ways race with each other. One cursor for each
address settles the race by numbers alone:

* `sent` is the last number that was queued for this client. A push with a smaller number is dropped, the next number is
  queued at once, and a larger number means that something is missing: the push is *kept*, and the journal is to be read.
* While the journal is being read, pushes are kept. Afterwards they are queued behind what was read; what was read already is
  dropped by its number.
* Before each reading the last assigned number is asked for. What is not found up to that number was acknowledged by somebody,
  so it is not owed any more, and the gap is closed. A kept push beyond that number may have a real gap before it, so the journal
  is read once more.

A frame that must not overtake replies (the end of a turn) is *held* until they are queued.

**Routes.** A reply goes to all clients that greeted with its exact address. If there are none it goes to the bridges of its
channel type. Dictionaries make this cost the same with one client and with thousands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from enum import Enum
from typing import Generic, TypeVar

from pegasus.messages import Address, OutboundMessage
from pegasus.protocol import ClientChannel

MAX_KEPT = 100
"""Pushes that are kept while the journal is read. Older ones are dropped beyond that, and read from the journal afterwards."""

C = TypeVar("C")
K = TypeVar("K")


class PushDecision(Enum):
    """The answer of `Cursor.offer`: what the caller does with a pushed reply."""

    SEND = 1
    """Queue it now; the cursor counts it as sent."""
    SKIP = 2
    """Nothing: it was sent already, or it is kept and the journal is being read."""
    READ = 3
    """It is kept. Read the journal, then queue what `next_kept` returns, then call `finish_reading`."""


class Cursor:
    """The place of one connection in the replies of one address.

    Example::

        cursor = Cursor(sent=3)
        cursor.offer(reply_4)     # SEND
        cursor.offer(reply_6)     # READ: 5 is missing, 6 is kept
        cursor.take(reply_5)      # True: read from the journal, to be queued
        cursor.next_kept(last=6)  # reply_6
        cursor.finish_reading(6)  # []: no frames were held
    """

    __slots__ = ("_held", "_kept", "_read_again", "is_reading", "sent")

    def __init__(self, sent: int, *, is_reading: bool = False) -> None:
        self.sent = sent
        """The number of the last reply that was queued for this client, or is not owed to it."""
        self.is_reading = is_reading
        """The journal is being read for this address, so pushes are kept. It is set when a reading is asked for."""
        self._read_again = False
        """Something happened during a reading that this reading may not have seen."""
        self._kept: deque[OutboundMessage] = deque()
        """Pushes that wait for the end of a reading, in the order in which they came."""
        self._held: list[str] = []
        """Frames that wait for replies, in order."""

    @property
    def is_holding(self) -> bool:
        """A frame waits for replies, so that a later frame must wait behind it."""
        return bool(self._held)

    def offer(self, reply: OutboundMessage) -> PushDecision:
        """Decide about a pushed reply. SEND counts it as sent."""
        if reply.seq <= self.sent:
            return PushDecision.SKIP
        if reply.seq == self.sent + 1 and not self.is_reading:
            self.sent = reply.seq
            return PushDecision.SEND
        if len(self._kept) >= MAX_KEPT:
            self._kept.popleft()
            self._read_again = True
        self._kept.append(reply)
        return PushDecision.READ if self._start_reading() else PushDecision.SKIP

    def take(self, reply: OutboundMessage) -> bool:
        """Return whether a reply read from the journal is to be queued; if so, count it as sent."""
        if reply.seq <= self.sent:
            return False
        self.sent = reply.seq
        return True

    def skip_to(self, seq: int) -> None:
        """Count everything up to `seq` as sent, because it is not owed."""
        self.sent = max(self.sent, seq)

    def next_kept(self, last: int) -> OutboundMessage | None:
        """Return the next kept push to be queued, after the journal was read when `last` was the last assigned number.

        None when there is no more, or when a reply before it was neither read nor pushed: then the journal is to be read again.
        """
        while self._kept:
            reply = self._kept[0]
            if reply.seq - 1 > max(self.sent, last):
                self._read_again = True
                return None
            self._kept.popleft()
            if self.take(reply):
                return reply
        return None

    def note_gap(self) -> bool:
        """Note that replies may have been missed. Return whether to start reading the journal.

        False means that it is being read already, and will be read once more.
        """
        self._read_again = self.is_reading
        return self._start_reading()

    def must_read_again(self) -> bool:
        """Return whether the last reading was not enough, and forget it."""
        again, self._read_again = self._read_again, False
        return again

    def finish_reading(self, last: int) -> list[str]:
        """Let pushes through again: the journal was read when `last` was the last assigned number. Return the held frames."""
        self.is_reading = False
        self.sent = max(self.sent, last)
        return self._release_held()

    def stop_reading(self) -> list[str]:
        """Leave this address to its own clients for now; kept pushes are dropped, for they are in the journal.

        `sent` stays where it is, so that the gap shows when the address falls to this bridge. Return the held frames.
        """
        self.is_reading = self._read_again = False
        self._kept.clear()
        return self._release_held()

    def hold(self, frame: str) -> None:
        """Take a frame that must wait until the present reading is finished."""
        self._held.append(frame)

    def hold_until(self, frame: str, seq: int) -> tuple[str | None, bool]:
        """Take a frame that must not overtake the replies up to `seq`.

        Return the frame if it may be queued now, else None, and whether to start reading the journal.
        """
        if self.sent >= seq and not self._held:
            return frame, False
        self._held.append(frame)
        return None, self._start_reading()

    def _release_held(self) -> list[str]:
        """Return the held frames and hold none any more. The caller queues them behind the replies."""
        held, self._held = self._held, []
        return held

    def _start_reading(self) -> bool:
        """Note that the journal is being read. Return False if it was so already: one reading at a time is enough."""
        was_reading, self.is_reading = self.is_reading, True
        return not was_reading


class Routes(Generic[C]):
    """Clients by exact address, and bridges by channel type.

    Example::

        routes = Routes()
        routes.add(ClientChannel("web"), bridge)
        routes.add(ClientChannel("web", "c1"), client)
        routes.recipients(Address("web", "c1"))  # (client,)
        routes.recipients(Address("web", "c2"))  # (bridge,)
    """

    def __init__(self) -> None:
        self._clients: dict[Address, dict[C, None]] = {}
        """Never an empty inner table: a present address has a client."""
        self._bridges: dict[str, dict[C, None]] = {}
        """Likewise, by channel type."""

    def add(self, channel: ClientChannel, client: C) -> None:
        """Send replies for the address, or the type, of this channel to the client from now on."""
        if channel.info is None:
            self._bridges.setdefault(channel.type, {})[client] = None
        else:
            self._clients.setdefault(channel.info.address, {})[client] = None

    def remove(self, channel: ClientChannel, client: C) -> Collection[C]:
        """Forget the client. Return the bridges that its address falls to, if it was the last client there."""
        if channel.info is None:
            _discard(self._bridges, channel.type, client)
            return ()
        address = channel.info.address
        _discard(self._clients, address, client)
        return () if address in self._clients else tuple(self._bridges.get(address.type, ()))

    def recipients(self, address: Address) -> Collection[C]:
        """Return the clients of this address, or if it has none, the bridges of its type."""
        return tuple(self._clients.get(address) or self._bridges.get(address.type) or ())

    def all(self) -> Collection[C]:
        """Return all clients and bridges."""
        tables = (*self._clients.values(), *self._bridges.values())
        return [client for clients in tables for client in clients]

    def has_own_client(self, address: Address) -> bool:
        """Return whether a client of exactly this address is connected, so that bridges leave it alone."""
        return address in self._clients


def _discard(table: dict[K, dict[C, None]], key: K, client: C) -> None:
    """Remove a client from a table of tables. An inner table that becomes empty is removed, so that none pile up."""
    clients = table.get(key, {})
    clients.pop(client, None)
    if not clients:
        table.pop(key, None)
