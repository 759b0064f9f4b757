"""Other libraries of actors, with the same programs in the same process. Those that are not installed are skipped."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from benchmarks import actors_programs
from benchmarks.actors_ratios import Pair, compare
from benchmarks.report import Result
from benchmarks.workplace import Workplace

PEERS = {"pykka": "pykka", "triotp": "triotp", "autogen-core": "autogen", "xoscar": "xoscar"}
"""By the name of the package on PyPI: the end of the name of its module in this folder."""
OURS = {
    "tell": (actors_programs.tell, 100),
    "ask": (actors_programs.ask, 100),
    "start": (actors_programs.start_in_pool, 30),
    "restart": (actors_programs.restart, 30),
}


def measure(place: Workplace) -> Iterator[Result]:
    """Compare in wall time, since some libraries use threads. There are no limits: their guarantees differ."""
    logging.disable()  # some log each message, which would be part of the measurement
    try:
        for name, end in PEERS.items():
            peer = _import(name, end)
            if peer is not None:
                yield from compare(list(_pairs(name, peer)), place.rounds(31, 5), time.perf_counter)
    finally:
        logging.disable(logging.NOTSET)


def _import(name: str, end: str) -> ModuleType | None:
    try:
        return import_module(f"benchmarks.actors_{end}")
    except ImportError as error:
        print(f"{name} is not installed ({error}): skipped", file=sys.stderr, flush=True)
        return None


def _pairs(name: str, peer: ModuleType) -> Iterator[Pair]:
    for what, (ours, times) in OURS.items():
        theirs = getattr(peer, what, None)
        if theirs is not None:
            yield Pair(f"{what}, {name}", theirs, ours, "actors", times)
