"""Notes: items that are done and replies that were acknowledged, written many at a time.

Nobody waits for a note, and a crash may lose the last of them (see `messages`). So those of all chats of this node go into one
transaction, FLUSH_AFTER seconds after the first of them. Whoever needs them to be written (a query about the same, the end of a lease)
waits for `flush`.
"""

from __future__ import annotations

from functools import partial

import trio

from pegasus.messages import Address
from pegasus.storage.database.calls import DatabaseCalls
from pegasus.storage.database.tables import Database
from pegasus.storage.journal import FLUSH_AFTER
from pegasus.storage.leases import Lease


class Notes:
    """The notes that are not written yet."""

    def __init__(self, database: Database, calls: DatabaseCalls) -> None:
        self._database = database
        self._calls = calls
        self._done: dict[int, tuple[Lease | None, int]] = {}
        """Items that are done: the lease that they were worked on under, and when, ms since the epoch."""
        self._acknowledged: dict[Address, int] = {}
        self._writing: dict[int, tuple[Lease | None, int]] = {}
        """Items whose end is being written."""
        self._sign = trio.Event()
        self._lock = trio.Lock()

    def is_done(self, n: int) -> bool:
        """Return whether the end of this item is noted and perhaps not written yet."""
        return n in self._done or n in self._writing

    def complete(self, n: int, lease: Lease | None, at: int) -> None:
        """Note that an item is done, at this time. A lease that is not the newest when it is written makes that without effect."""
        self._done[n] = lease, at
        self._sign.set()

    def acknowledge(self, address: Address, seq: int) -> None:
        """Note that a client has the replies up to this seq."""
        self._acknowledged[address] = max(seq, self._acknowledged.get(address, 0))
        self._sign.set()

    async def flush(self) -> None:
        """Write what was noted by now. Waits while the database is down; raises DatabaseDown at the end of the process only."""
        async with self._lock:
            if not (self._done or self._acknowledged):
                return
            self._writing, self._done = self._done, {}
            acknowledged, self._acknowledged = self._acknowledged, {}
            is_written = False
            try:
                done = tuple((n, *end) for n, end in self._writing.items())
                await self._calls.until_done(partial(self._database.note, done, acknowledged))
                is_written = True
            finally:
                if not is_written:
                    self._done = {**self._writing, **self._done}
                    for address, seq in acknowledged.items():
                        self.acknowledge(address, seq)
                self._writing = {}

    async def run(self) -> None:
        """Write the notes, for ever."""
        while True:
            await self._sign.wait()
            self._sign = trio.Event()
            await trio.sleep(FLUSH_AFTER)
            await self.flush()
