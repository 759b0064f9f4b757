"""Commands within walls: from the request to end them until nothing of them runs, what walls cost, and what a thousand commands leave.

The walls are those that this machine has by default; the lines name them.

"Nothing" is what the process table says: no process carries the mark that the commands were given. The floor is the limit that was
promised, so a ratio above 1 breaks the promise; it is that of the slowest round. Between the stop and the look lies the
search itself, which reads the whole of /proc.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import trio

from benchmarks.report import Result
from benchmarks.samples import median
from benchmarks.workplace import Workplace
from pegasus.sandbox import (
    NO_SANDBOX,
    BackgroundCommands,
    CommandLimits,
    DialError,
    Sandbox,
    landlock,
    probe_sandbox,
    run_process,
)
from pegasus.settings import SandboxSettings

MARK = "PEGASUS_BENCH_HANDS"
LIMITS = CommandLimits()
COOPERATIVE = "echo up; sleep 600"
HOSTILE = "trap '' TERM HUP; (setsid sh -c \"trap '' TERM HUP; sleep 600; sleep 600\" &); echo up; while :; do sleep 600; done"
COOPERATIVE_LIMIT = 0.3
HOSTILE_LIMIT = LIMITS.grace + 0.5
WALLS_LIMIT = 0.03
GROWTH_LIMIT = 2 << 20  # bytes of memory that a thousand commands may leave, e.g. in the allocator's arenas


def measure(place: Workplace) -> Iterator[Result]:
    rounds = place.rounds(50, 5)
    found = _sandbox(place)
    for sandbox in (found, NO_SANDBOX) if found.kind != "none" else (NO_SANDBOX,):
        for name, command, limit in (
            ("cooperative", COOPERATIVE, COOPERATIVE_LIMIT),
            ("hostile", HOSTILE, HOSTILE_LIMIT),
        ):
            seconds = trio.run(_stops, _folder(sandbox, place), command, rounds, sandbox)
            worst = max(seconds)
            detail = {"rounds": rounds, "worst_ms": worst * 1e3}
            title = f"end of a {name} command ({sandbox.kind}): median, ratio of the worst"
            yield Result(title, median(seconds) * 1e3, limit * 1e3, "limit", "ms", worst / limit, 1.0, None, detail)
    for sandbox in _walls(found):
        yield _cost(place, sandbox)
    yield from _leftovers(place, found)


def _sandbox(place: Workplace) -> Sandbox:
    """The walls of this machine, around a home of the bench."""
    home = place.folder / "walled"
    (home / "workspace").mkdir(parents=True, exist_ok=True)
    return probe_sandbox(SandboxSettings(), home, home / "workspace")


def _folder(sandbox: Sandbox, place: Workplace) -> Path:
    """Where commands work: the workspace, if there are walls around it."""
    return Path(sandbox.folders.workspace or place.folder)


def _walls(found: Sandbox) -> list[Sandbox]:
    """Each kind of walls that this machine could have, the usual one first."""
    version = landlock.version() if os.uname().machine in landlock.MACHINES else 0
    walls = [found] if found.bubblewrap else []
    if version:
        walls.append(attrs.evolve(found, bubblewrap=(), landlock=version))
    if found.bubblewrap:

        async def dial(host: str, port: int) -> trio.abc.Stream:
            raise DialError("nothing is connected to")

        walls.append(attrs.evolve(found, network="all", dial=dial))
    return walls


def _cost(place: Workplace, sandbox: Sandbox) -> Result:
    """How much longer a command takes within walls, in turns with one without."""
    rounds = place.rounds(100, 10)
    plain, walled = trio.run(_in_turns, _folder(sandbox, place), sandbox, rounds)
    more = median([w - p for w, p in zip(walled, plain, strict=True)])
    detail = {"plain_ms": median(plain) * 1e3, "walled_ms": median(walled) * 1e3, "worst_ms": max(walled) * 1e3}
    network = " with a proxy" if sandbox.network == "all" else ""
    title = f"what walls add to a command ({sandbox.kind}{network})"
    return Result(title, more * 1e3, WALLS_LIMIT * 1e3, "limit", "ms", more / WALLS_LIMIT, 1.0, None, detail)


async def _in_turns(folder: Path, sandbox: Sandbox, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of a trivial command without and with walls, round by round."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 5):
        for found, walls in zip(times, (NO_SANDBOX, sandbox), strict=True):
            begun = time.perf_counter()
            await run_process("true", cwd=folder, env={"PATH": os.environ["PATH"]}, sandbox=walls)
            if number >= 5:  # the first ones warm the caches
                found.append(time.perf_counter() - begun)
    return times


def _leftovers(place: Workplace, sandbox: Sandbox) -> Iterator[Result]:
    count = place.rounds(1000, 50)
    descriptors, zombies, memory, each = trio.run(_many, _folder(sandbox, place), count, sandbox)
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


async def _stops(folder: Path, command: str, rounds: int, sandbox: Sandbox) -> list[float]:
    """Seconds from the stop of a background command until no process of it is left, round by round."""
    found = []
    for number in range(rounds):
        mark = f"{os.getpid()}-{number}"
        async with trio.open_nursery() as nursery:
            commands = BackgroundCommands(nursery)
            env = {"PATH": os.environ["PATH"], MARK: mark}
            running = await commands.start(command, folder, env, LIMITS, sandbox=sandbox)
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


async def _many(folder: Path, count: int, sandbox: Sandbox) -> tuple[int, int, int, float]:
    """Run commands one after another. Returns the descriptors, zombies and bytes that there are more, and seconds for each."""

    async def run() -> None:
        await run_process("echo hello", cwd=folder, env={"PATH": os.environ["PATH"]}, sandbox=sandbox)

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
