"""A thousand faults on three nodes, their ways to the database and the database, and what was promised meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import trio

from benchmarks.report import Result
from benchmarks.workplace import Workplace
from tests.faults.__main__ import run_rounds

FAULTS = 1000


def measure_faults(place: Workplace) -> Iterator[Result]:
    faults = place.rounds(FAULTS, 50)
    reports = trio.run(run_rounds, place.folder, faults, 1)
    found = sum(len(report.anomalies) for report in reports)
    detail = {
        "faults": {name: sum(report.faults[name] for report in reports) for name in reports[0].faults},
        "messages": sum(report.messages for report in reports),
        "replies": sum(report.replies for report in reports),
        "anomalies": [anomaly for report in reports for anomaly in report.anomalies],
    }
    yield Result(f"anomalies after {faults:,} faults", found, 1.0, "", "", found, 0.0, detail=detail)
