"""The deliveries of webhooks of the last day: whoever has seen one may send it again, and nothing of it is carried out twice.

A signature of a body says who has written it, and not when. Somebody who reads along, in the log of a proxy for example, could send
the same request again under another delivery id. So the signed content of each delivery is remembered for KEPT_SECONDS, by its hash,
with the id that it came with first.

A delivery is in the file before its work begins, and its work has a key that follows from what is in the file. So a crash between the
two loses nothing and repeats nothing: whatever comes next with this content is given the same key, and inbox and task system know
which keys they have. `HookDelivery.is_done` only saves asking them.

    deliveries = HookDeliveries()
    await deliveries.load(journal, clock)
    delivery, is_new = await deliveries.note("ci", digest, id)       # on disk now
    async with delivery.lock:
        ...                                                          # the work, with delivery.key
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from typing import Final

import attrs
import trio

from actors import Ref
from pegasus.messages import Json
from pegasus.storage import JournalMessage, KeyedStore
from pegasus.wire import from_wire

KEPT_SECONDS: Final = 86_400
"""Seconds for which a delivery is remembered."""
MOST_DELIVERIES: Final = 10_000
"""Deliveries that are remembered; a further one ends the oldest. Each costs 150 bytes of a file that is written as a whole."""


@attrs.frozen
class StoredDelivery:
    """A delivery as it stands in the file."""

    hook: str
    """Name of the hook."""
    digest: str
    """SHA-256 of what was signed, in hexadecimal digits."""
    id: str
    """Hash of the id that the service gave it when it came first; "" without one."""
    at: int
    """Wall clock at that time, ms."""

    @property
    def key(self) -> str:
        """Id of the message or key of the task that it becomes: by its id where it has one, else by its content and time."""
        own = self.id or sha256(f"{self.digest} {self.at}".encode()).hexdigest()[:32]
        return f"hook-{self.hook}-{own}"


@attrs.define(eq=False, repr=False)
class HookDelivery:
    """A delivery in memory. Example: `async with delivery.lock: …` around its work."""

    stored: StoredDelivery
    """The part of it that is in the file."""
    is_written: bool = False
    """True if it is in the file."""
    is_done: bool = False
    """True if its work is on disk, as far as this process knows. False after a restart."""
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    """Held while its work is begun, so that of several at the same time one begins it."""


class HookDeliveries:
    """The deliveries that are remembered. All changes go through the journal, one after the other."""

    def __init__(self) -> None:
        self._deliveries: dict[str, HookDelivery] = {}
        """By `_key`, oldest first."""
        self._store = KeyedStore("hook-deliveries", _read_delivery, after_read=self._take_over)
        self.follow = self._store.follow
        """Reads them again whenever another node has changed them, until cancelled."""
        self._clock: Callable[[], int] = lambda: 0
        self.repeats: Counter[str] = Counter()
        """Repeated deliveries that were not carried out, by hook, since the start."""

    async def load(self, journal: Ref[JournalMessage], clock: Callable[[], int]) -> None:
        """Read the deliveries, and write changes to this journal from now on. clock: wall clock, ms.

        A file that cannot be read is read again before the next change. Never raises.
        """
        self._clock = clock
        await self._store.open(journal)

    def _take_over(self) -> None:
        """Put what the file holds into memory, beside what is there and not in the file yet."""
        for key, each in self._store.rows.items():
            self._deliveries.setdefault(key, HookDelivery(each, is_written=True))

    async def note(self, hook: str, digest: str, id: str) -> tuple[HookDelivery, bool]:
        """Return the delivery with this content, which is on disk then, and whether it comes for the first time.

        id: hash of the id that it has now; "" without one. Raises StorageError and ActorError; it is to be sent again then.
        """
        if not self._store.is_read:
            await self._store.ensure_read()
        known = self._deliveries.get(key := _key(hook, digest))
        is_new = known is None or self._is_old(known)
        if known is None or is_new:
            self._forget()
            self._deliveries.pop(key, None)
            known = HookDelivery(StoredDelivery(hook, digest, id, self._clock()))
            self._deliveries[key] = known
        if not known.is_written:
            async with self._store.change():
                elsewhere = self._store.rows.get(key)
                if elsewhere is not None and abs(self._clock() - elsewhere.at) < KEPT_SECONDS * 1000:
                    # Another node has noted it a moment ago.
                    known.stored, known.is_written, is_new = elsewhere, True, False
                # Those that came while another write was under way are written together.
                if not known.is_written:
                    new = {key: each for key, each in self._deliveries.items() if not each.is_written}
                    over = {*self._store.rows} - self._deliveries.keys()
                    await self._store.save({key: each.stored for key, each in new.items()}, delete=[*over, *new])
                    for each in new.values():
                        each.is_written = True
        return known, is_new

    def _is_old(self, delivery: HookDelivery) -> bool:
        return abs(self._clock() - delivery.stored.at) >= KEPT_SECONDS * 1000

    def _forget(self) -> None:
        """Drop those at the beginning that are too old, and the oldest if they are too many."""
        for key, oldest in list(self._deliveries.items()):
            if not self._is_old(oldest) and len(self._deliveries) < MOST_DELIVERIES:
                return
            del self._deliveries[key]


def _key(hook: str, digest: str) -> str:
    return f"{hook} {digest}"


def _read_delivery(_: str, value: Json) -> tuple[str, StoredDelivery]:
    """Return key and delivery of an entry of the file. Raises WireError."""
    delivery = from_wire(value, StoredDelivery)
    return _key(delivery.hook, delivery.digest), delivery
