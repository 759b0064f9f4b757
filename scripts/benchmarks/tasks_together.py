"""Five tasks at once beside one, where each model call takes 200 ms: they must not wait for each other.

As many model calls may run at a time as tasks (models.max_concurrent_calls = 5); with the default of 3 they would wait by design.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import trio

from benchmarks.provider import Provider, provider
from benchmarks.report import Result, compared
from benchmarks.tasks_system import TaskSystem, remote, settings, task_system
from benchmarks.wires import WIRES
from benchmarks.workplace import Workplace

TASKS = 5
LATENCY = 0.2  # seconds
LIMIT = 1.3


def measure(place: Workplace) -> Iterator[Result]:
    with provider(place.log, script="steps", latency=LATENCY) as server:
        one, five = trio.run(_sample, place, server, place.rounds(5, 1))
    yield compared(f"{TASKS} tasks at once, {LATENCY * 1e3:g} ms a call", five, one, "one task", LIMIT, unit="s")


async def _sample(place: Workplace, server: Provider, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds by round: one task, five of them until the last is done."""
    one: list[float] = []
    five: list[float] = []
    models = remote(server, WIRES["openai"])
    data = place.folder / "together"
    data.mkdir()
    async with task_system(data, models.client, settings()) as system:
        await _many(system, TASKS)
        for _ in range(rounds):
            await system.rest()
            one.append(await system.run())
            await system.rest()
            five.append(await _many(system, TASKS))
        await system.rest()
    await models.aclose()
    return one, five


async def _many(system: TaskSystem, count: int) -> float:
    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(system.run)
    return time.perf_counter() - began
