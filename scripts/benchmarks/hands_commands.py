"""Commands within walls: what walls cost, and what a thousand commands leave. The lines name the walls."""

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
from pegasus.identity import WorkspaceFiles
from pegasus.sandbox import (
    NO_SANDBOX,
    DialError,
    Sandbox,
    probe_sandbox,
    run_process,
)
from pegasus.sandbox.probe import find_landlock
from pegasus.settings import Settings

WALLS_LIMIT = 0.03
GROWTH_LIMIT = 2 << 20  # bytes of memory that a thousand commands may leave, e.g. in the allocator's arenas


def measure(place: Workplace, found: Sandbox) -> Iterator[Result]:
    """found: the walls of this machine."""
    for sandbox in _walls(found, place):
        yield _cost(place, sandbox)
    yield from _leftovers(place, found)


def find_walls(place: Workplace) -> Sandbox:
    """The walls of this machine, around a home of the bench, as the daemon has them."""
    home = place.folder / "walled"
    (home / "workspace").mkdir(parents=True, exist_ok=True)
    found = probe_sandbox(Settings(), home, home / "workspace")
    return attrs.evolve(found, witness=WorkspaceFiles(home / "workspace", home / "owner-texts.json"))


def _folder(sandbox: Sandbox, place: Workplace) -> Path:
    """Where commands work: the workspace, if there are walls around it."""
    return Path(sandbox.folders.workspace or place.folder)


def _walls(found: Sandbox, place: Workplace) -> list[Sandbox]:
    """Each kind of walls that this machine could have, the usual one first."""
    landlocked = find_landlock(attrs.evolve(found, bubblewrap=()), place.folder / "walled")
    walls = [found] if found.bubblewrap else []
    if landlocked.landlock:
        walls.append(landlocked)
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
