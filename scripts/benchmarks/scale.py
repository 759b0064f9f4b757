"""Outgrowing one machine: where one process ends, what PostgreSQL costs, and what several nodes do.

With --long a thousand faults are made instead, on three nodes with a checker of what was promised, which takes most of an hour.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.report import Result
from benchmarks.scale_chats import measure_chats
from benchmarks.scale_faults import measure_faults
from benchmarks.scale_nodes import measure_nodes
from benchmarks.scale_steps import measure_steps
from benchmarks.workplace import Workplace
from tests.postgres_server import is_installed


def measure(place: Workplace) -> Iterator[Result]:
    if place.is_long:
        yield from measure_faults(place)
        return
    yield from measure_chats(place)
    if is_installed():
        yield from measure_steps(place)
        yield from measure_nodes(place)
