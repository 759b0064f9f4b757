"""Ratios of two programs that do the same work.

Short rounds of both alternate in one process, and the result is the median of the ratios of the rounds. Load by other
programs then hits both alike, and a disturbed round does not move the median.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import attrs

from benchmarks.actors_programs import Clock, Program
from benchmarks.report import Result, compared


@attrs.frozen
class Pair:
    """A program of this library and the one that it is compared with: a line of the table."""

    name: str
    ours: Program
    floor: Program
    floor_name: str
    times: int
    """Number of repetitions in one round."""
    limit: float | None = None
    """Largest ratio that is allowed. None: for information only."""


def compare(pairs: Sequence[Pair], rounds: int, clock: Clock = time.process_time) -> list[Result]:
    """Measure all pairs in each round, so that load at some moment hits all of them. Which program is first alternates.

    A round before the first is not counted: in it caches fill. clock: CPU time by default, which leaves out what other
    processes do. Programs with threads of their own need wall time.
    """
    samples: list[tuple[list[float], list[float]]] = [([], []) for _ in pairs]
    for number in range(rounds + 1):
        for pair, both in zip(pairs, samples, strict=True):
            sides = ((pair.ours, both[0]), (pair.floor, both[1]))
            for program, seconds in sides if number % 2 else reversed(sides):
                seconds.append(program(pair.times, clock) / pair.times)
    return [_result(pair, ours[1:], floor[1:]) for pair, (ours, floor) in zip(pairs, samples, strict=True)]


def _result(pair: Pair, ours: list[float], floor: list[float]) -> Result:
    detail = {"times": pair.times, "rounds": len(ours)}
    return compared(pair.name, ours, floor, pair.floor_name, pair.limit, unit="µs", detail=detail)
