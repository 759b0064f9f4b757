"""`./scripts/simulate`: many lives of several nodes over one database, or each planted fault until a life finds it."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from functools import partial

import pytest

from actors.testing import SimulationFailed
from tests.simulation.nodes.planted import PLANTED
from tests.simulation.test_nodes import FEWER_STEPS, run

AT_ONCE = 50
"""Seeds of one piece of work."""


def simulate_seeds(first: int) -> str:
    """Return what was found in the lives of some seeds, "" for nothing."""
    try:
        run(range(first, first + AT_ONCE), keep_going=True)
    except SimulationFailed as failure:
        return str(failure)
    return ""


def find(seeds: int, first: int, name: str) -> tuple[str, str]:
    """Plant a fault; return its name and how it was found, "" if no life of so many has found it."""
    plant = next(plant for plant in PLANTED if plant.__name__ == name)
    with pytest.MonkeyPatch.context() as monkeypatch:
        plant(monkeypatch)
        try:
            run(range(first, first + seeds), shrink=0, max_steps=FEWER_STEPS)
        except SimulationFailed as failure:
            words = str(failure.__cause__).splitlines() or [repr(failure.__cause__)]
            return name, f"seed {failure.seed}: {words[0]:.120}"
    return name, ""


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=10_000, help="number of lives; with --planted at most, for each fault"
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--planted", action="store_true", help="plant each fault, and say which is not found")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    failed = 0
    with multiprocessing.Pool(given.processes) as pool:
        if given.planted:
            names = [plant.__name__ for plant in PLANTED]
            for name, found in pool.imap(partial(find, given.seeds, given.first), names):
                print(f"{'found ' if found else 'MISSED'} {name.replace('_', ' ')} {found}", flush=True)
                failed += not found
            print(f"{len(names) - failed} of {len(names)} planted faults were found")
            return min(failed, 1)
        firsts = range(given.first, given.first + given.seeds, AT_ONCE)
        for number, found in enumerate(pool.imap_unordered(simulate_seeds, firsts), 1):
            if found:
                failed += 1
                print(found, flush=True)
            elif number % 20 == 0:
                print(f"{number * AT_ONCE} lives", flush=True)
    print("nothing is wrong" if not failed else f"{failed} pieces of {AT_ONCE} lives have failures")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
