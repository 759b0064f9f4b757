"""Start to ready, against B. With a key configured too: an SDK must not be imported before ready."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

from benchmarks.floors import bare
from benchmarks.processes import Ran
from benchmarks.report import Result, compared
from benchmarks.samples import median, ratios
from benchmarks.workplace import Workplace

NOBODY = "http://127.0.0.1:9"
LIMIT = 2.2


def measure(place: Workplace) -> Iterator[Result]:
    kinds = {"stand-in": "", "openai key": "openai", "anthropic key": "anthropic"}
    homes = {kind: place.home(provider=provider, base_url=NOBODY) for kind, provider in kinds.items()}
    for home in homes.values():  # the first start makes files and compiles
        _start(place, home)
    bare()
    floor: list[Ran] = []
    starts: dict[str, list[Ran]] = {kind: [] for kind in kinds}
    for _ in range(place.rounds(21, 5)):
        floor.append(bare())
        for kind, home in homes.items():
            starts[kind].append(_start(place, home))
    for kind, ran in starts.items():
        yield _result(f"start to ready, {kind}", ran, floor)


def _start(place: Workplace, home: Path) -> Ran:
    """Killed as soon as it is ready, so that what it does afterwards disturbs nobody."""
    with place.daemon(home, end=signal.SIGKILL) as daemon:
        return Ran(daemon.process.seconds, daemon.process.cpu())


def _result(name: str, ran: list[Ran], floor: list[Ran]) -> Result:
    cpu, floor_cpu = [run.cpu for run in ran], [run.cpu for run in floor]
    detail = {
        "cpu_ms": median(cpu) * 1e3,
        "floor_cpu_ms": median(floor_cpu) * 1e3,
        "cpu_ratio": median(ratios(cpu, floor_cpu)),
    }
    return compared(name, [run.wall for run in ran], [run.wall for run in floor], "B", LIMIT, detail=detail)
