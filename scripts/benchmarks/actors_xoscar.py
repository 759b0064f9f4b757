"""The programs of actors_programs with xoscar: actors of one process, in a pool on asyncio. It restarts processes only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import xoscar

from benchmarks.actors_programs import Clock, timed


class Counter(xoscar.StatelessActor):
    def __init__(self) -> None:
        super().__init__()
        self._total = 0

    async def add(self, amount: int) -> None:
        self._total += amount

    async def total(self) -> int:
        return self._total


def tell(times: int, clock: Clock) -> float:
    return asyncio.run(_run(clock, _tell, times))


def ask(times: int, clock: Clock) -> float:
    return asyncio.run(_run(clock, _ask, times))


def start(times: int, clock: Clock) -> float:
    return asyncio.run(_run(clock, _start, times))


async def _run(clock: Clock, work: Callable[[Any, str, int], Awaitable[None]], times: int) -> float:
    pool = await xoscar.create_actor_pool("127.0.0.1", n_process=0)
    async with pool:
        address = pool.external_address
        ref = await xoscar.create_actor(Counter, address=address, uid="counter")
        await ref.total()
        return await timed(clock, work, ref, address, times)


async def _tell(ref: Any, address: str, times: int) -> None:
    for _ in range(times):
        await ref.add.tell(1)
    assert await ref.total() == times


async def _ask(ref: Any, address: str, times: int) -> None:
    for _ in range(times):
        await ref.total()


async def _start(_: Any, address: str, times: int) -> None:
    for n in range(times):
        await xoscar.create_actor(Counter, address=address, uid=f"child-{n}")
