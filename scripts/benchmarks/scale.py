"""Outgrowing one machine: where one process ends, what PostgreSQL costs, and what several nodes do.

With --long a thousand faults are made instead, on three nodes with a checker of what was promised, which takes most of an hour.
"""

from __future__ import annotations

from collections.abc import Iterator

import trio

from benchmarks.report import Result
from benchmarks.scale_chats import measure_chats
from benchmarks.scale_nodes import measure_nodes
from benchmarks.scale_steps import measure_steps
from benchmarks.workplace import Workplace
from tests.faults.__main__ import run_rounds
from tests.postgres_server import is_installed

FAULTS = 1000
"""Faults of a long run."""


def measure(place: Workplace) -> Iterator[Result]:
    if place.is_long:
        yield _measure_faults(place)
        return
    yield from measure_chats(place)
    if is_installed():
        yield from measure_steps(place)
        yield from measure_nodes(place)


def _measure_faults(place: Workplace) -> Result:
    """Make faults on three nodes, their ways to the database and the database; count what was promised and did not hold."""
    faults = place.rounds(FAULTS, 50)
    reports = trio.run(run_rounds, place.folder, faults, 1)
    found = sum(len(report.anomalies) for report in reports)
    detail = {
        "faults": {name: sum(report.faults[name] for report in reports) for name in reports[0].faults},
        "messages": sum(report.messages for report in reports),
        "replies": sum(report.replies for report in reports),
        "anomalies": [anomaly for report in reports for anomaly in report.anomalies],
    }
    return Result(f"anomalies after {faults:,} faults", found, 1.0, "", "", found, 0.0, detail=detail)
