"""100 appends that wait together, through the journal actor in this process, beside a single one.

The first of them goes to the disk alone and the others together behind it, so two trips are the least. Their number is in the
details, as is the bare append: a single append through the journal is that, a thread's turn, and the actor's work.

Then 100 chats that commit a line of their session and a reply, again and again, where each sync takes 2 ms longer. Nothing orders the
sessions of different chats, so they share their syncs; only the outbox comes behind them.
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
from pegasus.messages import ChannelInfo
from pegasus.storage import Commit, Disk, FileDisk, JournalMessage, Post, run_journal
from pegasus.storage.files import OsFiles
from pegasus.storage.volume import Volume

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

WAITING = 100
LIMIT = 6.0
"""Of the time of one append: what a hundred share is the disk, and what each adds is a few microseconds of the actor."""
CHATS = 100
SLOWER = 0.002  # seconds that each sync of the second measure takes longer
CHATS_LIMIT = 12.0
"""Of the time of one chat's step: eight syncs at a time are 13 for the sessions and one for the outbox, where one chat needs two."""
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
    chats, one = trio.run(_sample_chats, place.folder, place.rounds(30, 10))
    detail = {"steps_per_s": CHATS / median(chats)}
    yield compared(f"a step of {CHATS} chats, slow syncs", chats, one, "one chat", CHATS_LIMIT, detail=detail)


class _SlowFiles(OsFiles):
    """Files of a disk whose syncs take longer."""

    def sync(self, path: str) -> None:
        time.sleep(SLOWER)
        super().sync(path)


async def _sample_chats(folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of rounds in which each chat makes a step, and of those in which one does."""
    disk = FileDisk(folder / "chats", _SlowFiles(folder / "chats"))
    samples: tuple[list[float], list[float]] = [], []
    async with open_supervisor() as root:
        journal = await root.start_child(
            Child("journal", partial(run_journal, clock=_now), disk, mailbox=Mailbox(2 * CHATS))
        )
        for number in range(rounds + 1):  # the files are made in the first round, which does not count
            for chats, seconds in zip((CHATS, 1), samples, strict=True):
                began = time.perf_counter()
                async with trio.open_nursery() as nursery:
                    for chat in range(chats):
                        nursery.start_soon(_step, journal, chat, number * 2 + (chats == 1))
                if number:
                    seconds.append(time.perf_counter() - began)
        await root.stop()
    return samples


async def _step(journal: Ref[JournalMessage], chat: int, number: int) -> None:
    channel = ChannelInfo("cli", f"chat{chat}")
    post = Post(f"{chat}/{number}", "Hello!", channel.channel_id, channel)
    await journal.ask(Commit, ((f"sessions/cli%3Achat{chat}.jsonl", LINE),), (post,))


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
