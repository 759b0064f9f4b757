"""Memory over many tasks, one after the other, five at a time: what is finished must leave nothing behind.

The first tasks are let pass: until then the agent fills the list of what it remembers, and caches fill.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import trio

from benchmarks.report import Result
from benchmarks.tasks_system import Prompt, TaskSystem, settings, task_system
from benchmarks.workplace import Workplace

TASKS, BEFORE = 2000, 400
AT_ONCE = 5
LIMIT = 5.0
"""Per cent by which the memory of the process may change."""


def measure(place: Workplace) -> Iterator[Result]:
    tasks = place.rounds(TASKS, TASKS // 5)
    data = place.folder / "memory-bench"
    data.mkdir()
    resident, objects = trio.run(_sample, data, tasks)
    change = abs(resident[1] / resident[0] - 1) * 100
    detail = {"mib": [size / 2**20 for size in resident], "objects": objects}
    name = f"memory, change over {tasks:,} finished tasks"
    yield Result(name, change, LIMIT, "limit", "%", change, LIMIT, detail=detail)


async def _sample(data: Path, tasks: int) -> tuple[list[int], list[int]]:
    """Resident bytes of the process, and objects in it: before, after."""
    resident: list[int] = []
    objects: list[int] = []
    async with task_system(data, lambda role: Prompt(1), settings()) as system:
        for count in (BEFORE, tasks):
            async with trio.open_nursery() as nursery:
                for _ in range(AT_ONCE):
                    nursery.start_soon(_one_by_one, system, count // AT_ONCE)
            await system.rest()
            gc.collect()
            objects.append(len(gc.get_objects()))
            resident.append(_resident())
    return resident, objects


async def _one_by_one(system: TaskSystem, count: int) -> None:
    for n in range(count):
        await system.run(f"Take a step, for the {n}th time.")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
