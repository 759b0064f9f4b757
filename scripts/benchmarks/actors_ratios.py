"""Ratios of two programs that do the same: short rounds of both in alternation, in one process."""

from __future__ import annotations

import time
from collections.abc import Sequence

import attrs

from benchmarks.actors_programs import Clock, Program
from benchmarks.report import Result, compared


@attrs.frozen
class Pair:
    """One line of the table. times: how often in a round. limit: of the ratio; None: for information."""

    name: str
    ours: Program
    floor: Program
    floor_name: str
    times: int
    limit: float | None = None


def compare(pairs: Sequence[Pair], rounds: int, clock: Clock = time.process_time) -> list[Result]:
    """All pairs in each round, so that each sees the same moments; which of the two is first alternates.

    clock: CPU time, as long as all of it is this process's own work: what others do on the machine is not in it.
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
