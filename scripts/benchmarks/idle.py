"""A daemon that nobody talks to: memory against B's process kept alive, and CPU over a while."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.floors import bare_idle
from benchmarks.report import Result
from benchmarks.workplace import Workplace

MEMORY_LIMIT = 2.2
CPU_LIMIT = 0.2
"""Per cent of a core."""


def measure(place: Workplace) -> Iterator[Result]:
    watched = 20.0 if not place.quick else 5.0
    home = place.home()
    with place.daemon(home):
        pass  # the first start makes files and compiles
    with bare_idle(place.log) as bare, place.daemon(home) as daemon:
        time.sleep(3.0 if not place.quick else 1.0)  # whatever follows ready is over
        began, cpu = time.perf_counter(), daemon.process.cpu()
        time.sleep(watched)
        share = (daemon.process.cpu() - cpu) / (time.perf_counter() - began) * 100
        ours, floor = daemon.process.memory(), bare.memory()
        daemon.process.check()
    for kind in ("rss", "pss"):
        yield Result(
            f"idle memory, {kind.upper()}",
            ours[kind] / 2**20,
            floor[kind] / 2**20,
            "B",
            "MiB",
            ours[kind] / floor[kind],
            MEMORY_LIMIT if kind == "rss" else None,
            detail={"peak_mib": ours["peak"] / 2**20, "floor_peak_mib": floor["peak"] / 2**20},
        )
    yield Result("idle CPU", share, CPU_LIMIT, "limit", "% of a core", share, CPU_LIMIT, detail={"seconds": watched})
