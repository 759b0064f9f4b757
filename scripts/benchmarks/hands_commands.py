"""Commands: from the request to end them until nothing of them runs, and what a thousand of them leave.

"Nothing" is what the process table says: no process carries the mark that the commands were given. The floor is the limit that was
promised, so a ratio above 1 breaks the promise; it is that of the slowest round. Between the stop and the look lies the
search itself, which reads the whole of /proc.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import trio

from benchmarks.report import Result
from benchmarks.samples import median
from benchmarks.workplace import Workplace
from pegasus.sandbox import BackgroundCommands, CommandLimits, run_process

MARK = "PEGASUS_BENCH_HANDS"
LIMITS = CommandLimits()
COOPERATIVE = "echo up; sleep 600"
HOSTILE = "trap '' TERM HUP; (setsid sh -c \"trap '' TERM HUP; sleep 600; sleep 600\" &); echo up; while :; do sleep 600; done"
COOPERATIVE_LIMIT = 0.3
HOSTILE_LIMIT = LIMITS.grace + 0.5
GROWTH_LIMIT = 2 << 20  # bytes of memory that a thousand commands may leave, e.g. in the allocator's arenas


def measure(place: Workplace) -> Iterator[Result]:
    rounds = place.rounds(50, 5)
    for name, command, limit in (
        ("cooperative", COOPERATIVE, COOPERATIVE_LIMIT),
        ("hostile", HOSTILE, HOSTILE_LIMIT),
    ):
        seconds = trio.run(_stops, place.folder, command, rounds)
        worst = max(seconds)
        detail = {"rounds": rounds, "worst_ms": worst * 1e3}
        title = f"end of a {name} command: median, ratio of the worst"
        yield Result(title, median(seconds) * 1e3, limit * 1e3, "limit", "ms", worst / limit, 1.0, None, detail)
    count = place.rounds(1000, 50)
    descriptors, zombies, memory, each = trio.run(_many, place.folder, count)
    detail = {"seconds_each": each}
    yield Result(f"descriptors that {count} commands leave", descriptors, 1, "one", "", descriptors, 0.0, None, detail)
    yield Result(f"zombies that {count} commands leave", zombies, 1, "one", "", zombies, 0.0, None, detail)
    growth = memory / GROWTH_LIMIT
    yield Result(
        f"memory that {count} commands leave",
        memory / 1024,
        GROWTH_LIMIT / 1024,
        "limit",
        "KiB",
        growth,
        1.0,
        None,
        detail,
    )


async def _stops(folder: Path, command: str, rounds: int) -> list[float]:
    """Seconds from the stop of a background command until no process of it is left, round by round."""
    found = []
    for number in range(rounds):
        mark = f"{os.getpid()}-{number}"
        async with trio.open_nursery() as nursery:
            commands = BackgroundCommands(nursery)
            running = await commands.start(command, folder, {"PATH": os.environ["PATH"], MARK: mark}, LIMITS)
            await running.wait_for_news(10.0)
            begun = time.perf_counter()
            await commands.end_all()
            while _alive(f"{MARK}={mark}".encode()):
                await trio.lowlevel.checkpoint()
            found.append(time.perf_counter() - begun)
    return found


def _alive(mark: bytes) -> bool:
    """Whether a process with this mark in its environment is alive."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                environment = Path(f"/proc/{entry}/environ").read_bytes()
            except OSError:
                continue
            if mark in environment:
                return True
    return False


async def _many(folder: Path, count: int) -> tuple[int, int, int, float]:
    """Run commands one after another. Returns the descriptors, zombies and bytes that there are more, and seconds for each."""

    async def run() -> None:
        await run_process("echo hello", cwd=folder, env={"PATH": os.environ["PATH"]})

    for _ in range(min(count, 50)):  # arenas and threads reach their usual size
        await run()
    before, begun = _state(), time.perf_counter()
    for _ in range(count):
        await run()
    seconds = (time.perf_counter() - begun) / count
    after = _state()
    return after[0] - before[0], after[1] - before[1], max(0, after[2] - before[2]), seconds


def _state() -> tuple[int, int, int]:
    """Open descriptors, children (there are none that run, so all are zombies), resident bytes."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return len(os.listdir("/proc/self/fd")), len(children), pages * os.sysconf("SC_PAGE_SIZE")
