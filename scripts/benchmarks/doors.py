"""How people reach the agent, and what that costs. Each part is a file of its own, `doors_…`."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import doors_http, doors_page, doors_services
from benchmarks.report import Result
from benchmarks.workplace import Workplace


def measure(place: Workplace) -> Iterator[Result]:
    yield from doors_http.measure(place)
    yield from doors_services.measure(place)
    yield from doors_page.measure(place)
