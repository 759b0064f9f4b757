"""What tasks do in the world: how fast it ends, and what it leaves. Each part is a file of its own, `hands_…`."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import hands_commands, hands_mcp, hands_redaction, hands_stop
from benchmarks.report import Result
from benchmarks.workplace import Workplace


def measure(place: Workplace) -> Iterator[Result]:
    walls = hands_commands.find_walls(place)
    yield from hands_stop.measure(place, walls)
    yield from hands_commands.measure(place, walls)
    yield from hands_redaction.measure(place)
    yield from hands_mcp.measure(place)
