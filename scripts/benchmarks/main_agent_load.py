"""How long the Main Agent takes to load a long session, against reading it line by line with the json module."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import trio

from actors import Child, Restart, open_supervisor
from benchmarks.history import MESSAGES_PER_EXCHANGE, conversation, session_lines
from benchmarks.report import Result, compared
from benchmarks.workplace import Workplace
from pegasus.main_agent.session import load_session
from pegasus.storage import FileDisk, run_journal

LINES = 100_000
PATH = "main/current.jsonl"
LIMIT = 3.0


def measure(place: Workplace) -> Iterator[Result]:
    """The file is in the operating system's memory in both cases."""
    data = place.folder / "load-bench"
    (data / "main").mkdir(parents=True)
    exchanges = conversation(LINES + MESSAGES_PER_EXCHANGE - 1)
    (data / PATH).write_bytes(b"".join(session_lines(exchanges)))
    lines = len(exchanges) * MESSAGES_PER_EXCHANGE
    loads: list[float] = []
    floors: list[float] = []
    for _ in range(place.rounds(7, 2)):
        floors.append(seconds_of(lambda: read_by_line(data / PATH)))
        loads.append(trio.run(_load, data, lines))
    yield compared(f"load a session of {lines:,} lines", loads, floors, "json, line by line", LIMIT, unit="s")


def seconds_of(work: Callable[[], object]) -> float:
    """Seconds that it takes, with the garbage collected before."""
    gc.collect()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def read_by_line(path: Path) -> None:
    """The floor of loading a session."""
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


async def _load(data: Path, lines: int) -> float:
    """Seconds from the question for the file to a session that can be thought with."""
    async with open_supervisor([Child("journal", _journal, FileDisk(data), restart=Restart.TEMPORARY)]) as root:
        gc.collect()
        began = time.perf_counter()
        session = await load_session(root.ref("journal"), _now)
        seconds = time.perf_counter() - began
    if len(session.entries) != lines or not session.projection.turns:
        raise AssertionError(f"{len(session.entries)} of {lines} lines were loaded")
    return seconds


async def _journal(inbox, disk) -> None:  # type: ignore[no-untyped-def]
    await run_journal(inbox, disk, clock=_now)


def _now() -> int:
    return time.time_ns() // 1_000_000
