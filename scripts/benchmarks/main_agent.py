"""What a long life costs the Main Agent: each measure is a module of its own."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import (
    main_agent_compaction,
    main_agent_load,
    main_agent_prefix,
    main_agent_search,
    main_agent_tokens,
)
from benchmarks.report import Result
from benchmarks.workplace import Workplace


def measure(place: Workplace) -> Iterator[Result]:
    for part in (main_agent_prefix, main_agent_tokens, main_agent_load, main_agent_search, main_agent_compaction):
        yield from part.measure(place)
