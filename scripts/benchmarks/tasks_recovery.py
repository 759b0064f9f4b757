"""1,000 tasks that were under way when the process died: how long the next one takes to take them up.

Recovery "fail": until each has failed on disk and its submitter has been told. Recovery "resume": until all are in memory and
the agent is up, the first of them at work. Each has thought twice and taken two steps.
"""

from __future__ import annotations

import gc
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import trio

from benchmarks.floors import Appender, appender
from benchmarks.report import Result, compared
from benchmarks.samples import median
from benchmarks.tasks_replay import log_lines
from benchmarks.tasks_system import PATIENCE, Listener, Prompt, settings, task_system
from benchmarks.workplace import Workplace
from pegasus.formatting import format_day
from pegasus.tasks.log.format import INDEX, PENDING, PendingTask, index_line, pending_content, task_path

TASKS = 1000
LINES = 5
APPENDS = 100
"""Of the floor, half of them before and half after each recovery."""
LIMIT = 2.0
_BEGAN = 1_767_225_600_000
_LINE = b"x" * 200 + b"\n"


def measure(place: Workplace) -> Iterator[Result]:
    template = place.folder / "interrupted"
    _prepare(template)
    for mode in ("fail", "resume"):
        samples: list[float] = []
        floors: list[float] = []
        with appender(place.folder) as floor:
            for _ in range(place.rounds(7, 1) + 1):
                seconds, append = _round(place.folder, template, mode, floor)
                if not samples:
                    gc.freeze()  # as the daemon does when all is imported
                samples.append(seconds)
                floors.append(append * TASKS)
        del samples[0], floors[0]  # the first imports
        detail = {"append_ms": median(floors) / TASKS * 1e3}
        yield compared(f"recovery of {TASKS:,} tasks, {mode}", samples, floors, f"{TASKS:,} F", LIMIT, detail=detail)


def _round(folder: Path, template: Path, mode: str, floor: Appender) -> tuple[float, float]:
    """Seconds of the recovery, and of one append."""
    data = folder / "recovered"
    shutil.copytree(template, data)
    os.sync()  # what the copy has left in memory is nobody's fault
    before = [floor.append(_LINE) for _ in range(APPENDS // 2)]
    seconds = trio.run(_recover, data, mode)
    after = [floor.append(_LINE) for _ in range(APPENDS // 2)]
    shutil.rmtree(data)
    return seconds, mean(before + after)


async def _recover(data: Path, mode: str) -> float:
    listener = Listener()
    chosen = settings(recovery=mode)
    async with task_system(data, lambda role: Prompt(None), chosen, listener) as system:
        if mode != "fail":
            return system.up - system.began
        with trio.fail_after(PATIENCE):
            await listener.until(TASKS)
        return time.perf_counter() - system.began


def _prepare(data: Path) -> None:
    ids = [f"{n:016x}" for n in range(TASKS)]
    date = format_day(_BEGAN)
    for task_id in ids:
        path = data / task_path(task_id, date)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(log_lines(LINES, task_id)))
    (data / INDEX).write_bytes(b"".join(index_line(task_id, date) for task_id in ids))
    (data / PENDING).write_bytes(pending_content([PendingTask(task_id, _BEGAN) for task_id in ids]))
