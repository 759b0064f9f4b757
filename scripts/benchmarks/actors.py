"""Benchmarks of `actors`.

Most of them are ratios: a program made of actors, over the same work written by hand in bare Trio (the *floor*). A ratio is
nearly the same on a fast and on a slow machine, so it can have a limit. Amounts (memory, seconds for many actors) and other
libraries of actors follow. docs/performance.md has the limits with the figures measured last.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

from benchmarks import actors_amounts, actors_floors, actors_peers, actors_programs, actors_schedules
from benchmarks.actors_ratios import Pair, compare
from benchmarks.report import Result
from benchmarks.workplace import Workplace

PAIRS = (
    Pair("tell", actors_programs.tell, actors_floors.send, "channel send", 300, 1.6),
    Pair("ask", actors_programs.ask, actors_floors.ask, "channel ask", 200, 1.6),
    Pair("ask with a deadline", actors_programs.ask_with_deadline, actors_floors.ask, "channel ask", 200, 2.0),
    Pair("request, then get", actors_programs.request, actors_floors.ask, "channel ask", 200),
    Pair("channel ask with a deadline", actors_floors.ask_with_deadline, actors_floors.ask, "channel ask", 200),
    Pair("start of a child", actors_programs.start_child, actors_floors.start, "task with a channel", 100, 1.3),
    Pair("start in a pool", actors_programs.start_in_pool, actors_floors.start, "task with a channel", 100, 1.3),
    Pair("start in a tree", actors_programs.start_tree, actors_floors.start, "task with a channel", 100, 1.3),
)


def measure(place: Workplace) -> Iterator[Result]:
    """Run all benchmarks of actors. Objects that exist already are frozen, so collections of garbage skip them."""
    gc.freeze()
    try:
        yield from actors_amounts.measure(place)  # first, so that the memory it takes has not been there already
        yield from actors_schedules.measure(place)
        yield from compare(PAIRS, place.rounds(61, 9))
        yield from actors_peers.measure(place)
    finally:
        gc.unfreeze()
