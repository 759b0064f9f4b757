"""What the task system costs: each measure is a module of its own."""

from __future__ import annotations

import gc
from collections.abc import Iterator

from benchmarks import tasks_memory, tasks_recovery, tasks_replay, tasks_steps, tasks_together
from benchmarks.report import Result
from benchmarks.workplace import Workplace


def measure(place: Workplace) -> Iterator[Result]:
    """Run all benches of tasks. Modules are left out of collections of garbage, as the daemon does (`imports_uncollected`)."""
    gc.freeze()
    try:
        for part in (tasks_steps, tasks_together, tasks_replay, tasks_recovery, tasks_memory):
            yield from part.measure(place)
    finally:
        gc.unfreeze()
