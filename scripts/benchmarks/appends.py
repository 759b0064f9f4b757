"""100 appends that wait together, through the journal actor in this process, beside a single one.

The first of them goes to the disk alone and the others together behind it, so two trips are the least. Their number is in the
details, as is the bare append: a single append through the journal is that, a thread's turn, and the actor's work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import attrs
import trio

from actors import Child, Mailbox, Ref, open_supervisor
from benchmarks.floors import Appender, appender
from benchmarks.report import Result, compared
from benchmarks.samples import median
from benchmarks.workplace import Workplace
from pegasus.storage import Commit, Disk, FileDisk, JournalMessage, run_journal
from pegasus.storage.volume import Volume

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

WAITING = 100
LIMIT = 6.0
"""Of the time of one append: what a hundred share is the disk, and what each adds is a few microseconds of the actor."""
PAUSE = 0.02  # seconds, so that nobody has warmer caches than another
LINE = b'{"ts":1767225600000,"role":"user","content":"' + b"x" * 120 + b'"}\n'


@attrs.define
class Samples:
    """Seconds, one entry per round; trips: how often the disk was asked in a round."""

    together: list[float] = attrs.field(factory=list)
    single: list[float] = attrs.field(factory=list)
    floor: list[float] = attrs.field(factory=list)
    trips: list[int] = attrs.field(factory=list)


def measure(place: Workplace) -> Iterator[Result]:
    samples = trio.run(_sample, place.folder, place.rounds(101, 11))
    detail = {"trips_to_disk": median(samples.trips), "bare_append_ms": median(samples.floor) * 1e3}
    yield compared(f"{WAITING} waiting appends", samples.together, samples.single, "one", LIMIT, detail=detail)


async def _sample(folder: Path, rounds: int) -> Samples:
    samples = Samples()
    disk = _Counted(FileDisk(folder / "journal"))
    with appender(folder) as floor:
        async with open_supervisor() as root:
            ref = await root.start_child(
                Child("journal", partial(run_journal, clock=_now), disk, mailbox=Mailbox(2 * WAITING))
            )
            for _ in range(rounds):
                await _round(ref, floor, disk, samples)
            await root.stop()
    return samples


class _Counted:
    """A disk that counts how often it is asked."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.trips = 0

    async def run(self, work: Callable[[Volume, *Ts], T], *args: *Ts) -> T:
        self.trips += 1
        return await self._disk.run(work, *args)


def _now() -> int:
    return time.time_ns() // 1_000_000


async def _round(ref: Ref[JournalMessage], floor: Appender, disk: _Counted, samples: Samples) -> None:
    await trio.sleep(PAUSE)
    samples.single.append(await _commit(ref, 1))
    await trio.sleep(PAUSE)
    before = disk.trips
    samples.together.append(await _commit(ref, WAITING))
    samples.trips.append(disk.trips - before)
    await trio.sleep(PAUSE)
    samples.floor.append(floor.append(LINE))


async def _commit(ref: Ref[JournalMessage], count: int) -> float:
    """Seconds from when all of them wait until the last is answered."""
    answers = [await ref.request(Commit, (("bench.jsonl", LINE),)) for _ in range(count)]
    began = time.perf_counter()
    await answers[-1].get()
    seconds = time.perf_counter() - began
    for answer in answers:  # each is checked; they were there before the last
        await answer.get()
    return seconds
