"""What the task system costs: each measure is a module of its own."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import tasks_replay
from benchmarks.report import Result
from benchmarks.workplace import Workplace


def measure(place: Workplace) -> Iterator[Result]:
    yield from tasks_replay.measure(place)
