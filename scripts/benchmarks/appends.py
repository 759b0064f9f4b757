"""100 appends that wait together, through the journal actor in this process, beside one bare append."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import attrs
import trio

from actors import Child, Ref, open_supervisor
from benchmarks.floors import Appender, appender
from benchmarks.report import Result
from benchmarks.samples import median, ratios, spread
from benchmarks.workplace import Workplace
from pegasus.storage import Disk, FileDisk, journal
from pegasus.storage.messages import Commit, JournalMessage
from pegasus.storage.volume import Volume

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

WAITING = 100
LIMIT = 3.0
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
    by_round = ratios(samples.together, samples.floor)
    yield Result(
        f"{WAITING} waiting appends",
        median(samples.together) * 1e3,
        median(samples.floor) * 1e3,
        "F",
        "ms",
        median(by_round),
        LIMIT,
        spread(by_round),
        {"trips_to_disk": median(samples.trips), "one_append_ms": median(samples.single) * 1e3},
    )


async def _sample(folder: Path, rounds: int) -> Samples:
    samples = Samples()
    disk = _Counted(FileDisk(folder / "journal"))
    with appender(folder) as floor:
        async with open_supervisor() as root:
            ref = await root.start_child(Child("journal", partial(journal, clock=_now), disk))
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

    def close(self) -> None:
        self._disk.close()


def _now() -> int:
    return time.time_ns() // 1_000_000


async def _round(ref: Ref[JournalMessage], floor: Appender, disk: _Counted, samples: Samples) -> None:
    samples.single.append(await _commit(ref, 1))
    before = disk.trips
    samples.together.append(await _commit(ref, WAITING))
    samples.trips.append(disk.trips - before)
    samples.floor.append(median([floor.append(LINE) for _ in range(5)]))


async def _commit(ref: Ref[JournalMessage], count: int) -> float:
    """Seconds from the first request until the last answer."""
    began = time.perf_counter()
    answers = [await ref.request(Commit, (("bench.jsonl", LINE),)) for _ in range(count)]
    for answer in answers:
        await answer.get()
    return time.perf_counter() - began
