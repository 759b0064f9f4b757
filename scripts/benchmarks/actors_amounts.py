"""Amounts that have a limit of their own: memory of an idle actor, many actors, memory after many messages and restarts."""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio
import trio.testing

from actors import Child, Ref, open_supervisor
from benchmarks.actors_programs import NEVER, ONE, Add, Total, counter, crash_often, idle, up_and_down
from benchmarks.report import Result
from benchmarks.samples import median
from benchmarks.workplace import Workplace

ACTORS = 10_000
IDLE_LIMIT = 8.0
"""kB (1,000 bytes) of the process for an idle actor, its task and its mailbox."""
SECONDS_LIMIT = 3.0
"""Seconds of CPU for starting so many actors one after the other, and stopping them one after the other."""
FLAT = 1.0
"""Per cent by which the memory of the process may grow."""
MESSAGES, RESTARTS = 1_000_000, 10_000


def measure(place: Workplace) -> Iterator[Result]:
    resident, traced = trio.run(_idle_bytes, ACTORS, False), trio.run(_idle_bytes, ACTORS, True)
    yield _amount("memory of an idle actor", resident / 1000, IDLE_LIMIT, "kB", {"traced_bytes": traced})
    seconds = [up_and_down(ACTORS, time.process_time) for _ in range(place.rounds(3, 1))]
    yield _amount(f"{ACTORS:,} actors up and down", median(seconds), SECONDS_LIMIT, "s")
    fewer = 1 if not place.quick else 10
    for name, work, times in (("messages", _messages, MESSAGES // fewer), ("restarts", _restarts, RESTARTS // fewer)):
        growth = trio.run(work, times)
        yield _amount(f"growth of memory over {times:,} {name}", growth, FLAT, "%")


def _amount(name: str, measured: float, limit: float, unit: str, detail: dict[str, Any] | None = None) -> Result:
    return Result(name, measured, limit, "limit", unit, measured, limit, detail=detail or {})


async def _idle_bytes(count: int, traced: bool) -> float:
    """Return the bytes by which memory grows with each idle actor.

    traced: of what Python allocates; otherwise of the process's resident memory.
    """
    async with open_supervisor() as supervisor:
        await supervisor.start_child(Child("first", idle))
        gc.collect()
        if traced:
            tracemalloc.start(1)
        before = tracemalloc.get_traced_memory()[0] if traced else _resident()
        for n in range(count):
            await supervisor.start_child(Child(f"child-{n}", idle))
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        after = tracemalloc.get_traced_memory()[0] if traced else _resident()
        tracemalloc.stop()
    return (after - before) / count


async def _messages(times: int) -> float:
    """Send messages, one of four as an ask. Return the growth of resident memory after the first tenth, in per cent."""
    async with open_supervisor([Child("counter", counter)]) as supervisor:
        ref: Ref[Add | Total] = supervisor.ref("counter")
        before = 0
        for n in range(times // 4):
            if n == times // 40:
                before = _resident()
            for _ in range(3):
                await ref.tell(ONE)
            await ref.ask(Total, "now")
        return (_resident() / before - 1) * 100


async def _restarts(times: int) -> float:
    """Crash and restart an actor. Return the growth of resident memory after the first tenth, in per cent."""
    async with open_supervisor([Child("counter", counter)], intensity=NEVER) as supervisor:
        await crash_often(supervisor.ref("counter"), times // 10)
        before = _resident()
        await crash_often(supervisor.ref("counter"), times - times // 10)
        return (_resident() / before - 1) * 100


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
