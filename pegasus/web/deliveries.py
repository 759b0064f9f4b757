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
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.storage import JournalMessage, StateFile, StorageError
from pegasus.wire import WireError, decode_object, from_wire, to_wire

DELIVERIES_FILE: Final = "web/deliveries.json"
"""File of the deliveries, below data/: `{"deliveries": [{"hook", "digest", "id", "at"}]}`."""
KEPT_SECONDS: Final = 86_400
"""Seconds for which a delivery is remembered."""
MOST_DELIVERIES: Final = 10_000
"""Deliveries that are remembered; a further one ends the oldest. Each costs 150 bytes of a file that is written as a whole."""

_log = get_logger("web")


@attrs.frozen
class StoredDelivery:
    """A delivery as it stands in the file.

    Example: `StoredDelivery("ci", "9f…", "", 1_753_000_000_000)`.
    """

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
    """The deliveries that are remembered. All changes go through the journal, one after the other.

    Example: see the top of this file.
    """

    def __init__(self) -> None:
        self._deliveries: dict[tuple[str, str], HookDelivery] = {}
        """By hook and digest, oldest first."""
        self._file = StateFile(DELIVERIES_FILE, self._take_over, lambda: _content(self._deliveries.values()))
        self._clock: Callable[[], int] = lambda: 0
        self.repeats: Counter[str] = Counter()
        """Repeated deliveries that were not carried out, by hook, since the start."""

    async def load(self, journal: Ref[JournalMessage], clock: Callable[[], int]) -> None:
        """Read the deliveries, and write changes to this journal from now on. clock: wall clock, ms.

        A file that cannot be read is read again before the next change. Never raises.
        """
        self._clock = clock
        self._file.use(journal, clock)
        try:
            await self._file.ensure_read()
        except (StorageError, ActorError) as error:
            _log.error("the file of webhook deliveries cannot be read: webhooks have to wait", error=str(error))

    def _take_over(self, content: bytes) -> list[str]:
        """Put what the file holds into memory, beside what is there and not in the file yet."""
        stored, problems = parse_deliveries(content)
        for each in stored:
            self._deliveries.setdefault((each.hook, each.digest), HookDelivery(each, is_written=True))
        return problems

    async def note(self, hook: str, digest: str, id: str) -> tuple[HookDelivery, bool]:
        """Return the delivery with this content, which is on disk then, and whether it comes for the first time.

        id: hash of the id that it has now; "" without one. Raises StorageError and ActorError; it is to be sent again then.
        """
        if not self._file.is_read:
            await self._file.ensure_read()
        known = self._deliveries.get((hook, digest))
        is_new = known is None or self._is_old(known)
        if known is None or is_new:
            self._forget()
            self._deliveries.pop((hook, digest), None)
            known = HookDelivery(StoredDelivery(hook, digest, id, self._clock()))
            self._deliveries[hook, digest] = known
        if not known.is_written:
            async with self._file.change():
                # Those that came while another write was under way are written together.
                if not known.is_written:
                    written = list(self._deliveries.values())
                    await self._file.write(_content(written))
                    for each in written:
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


def parse_deliveries(content: bytes) -> tuple[list[StoredDelivery], list[str]]:
    """Return the deliveries in the content of the file, and what is wrong with other entries."""
    if not content:
        return [], []
    try:
        entries = decode_object(content).get("deliveries")
        if not isinstance(entries, list):
            raise ValueError("there is no list of deliveries")
    except ValueError as error:
        return [], [str(error)]
    deliveries: list[StoredDelivery] = []
    problems: list[str] = []
    for number, entry in enumerate(entries, start=1):
        try:
            deliveries.append(from_wire(entry, StoredDelivery))
        except WireError as error:
            problems.append(f"entry {number}: {error}")
    return deliveries, problems


def _content(deliveries: Iterable[HookDelivery]) -> dict[str, Json]:
    """Return deliveries as they stand in the file."""
    return {"deliveries": [to_wire(each.stored) for each in deliveries]}
