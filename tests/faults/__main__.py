"""`python -m tests.faults`: three nodes over PostgreSQL, and as many faults as are wanted."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

import attrs
import trio

from tests.faults.house import House, open_house
from tests.faults.injecting import FAULTS
from tests.faults.planted import PLANTED, plant
from tests.faults.server import open_server
from tests.faults.stored import read_tables
from tests.faults.trial import Report, run_trial

ROUND = 25
"""Faults after which conversations are checked and new ones begin, so that none becomes long."""


async def run_rounds(
    folder: Path, faults: int, seed: int, nodes: int = 3, only: str = "", keep: Path | None = None, planted: str = ""
) -> list[Report]:
    """Make faults of all kinds on so many nodes. only: those whose name has this in it. Prints a line for each round.

    keep: where everything about a round with anomalies is written. planted: the fault of `PLANTED` that the database has.
    """
    choices, reports = random.Random(seed), list[Report]()
    chosen = {name: fault for name, fault in FAULTS.items() if only in name}
    async with open_server() as server, open_house(folder, choices, server, nodes) as house:
        read = partial(trio.to_thread.run_sync, read_tables, server.url(user="agent"))
        if planted:
            await plant(server, planted)
        while (left := faults - sum(sum(report.faults.values()) for report in reports)) > 0:
            report = await run_trial(house, chosen, min(left, ROUND), choices, read)
            reports.append(attrs.evolve(report, conversations=[], stored=None))
            if report.anomalies and keep is not None:
                await trio.to_thread.run_sync(_keep, keep / f"{len(reports)}", report, house)
            made = sum(sum(each.faults.values()) for each in reports)
            print(
                f"{made} faults, {report.messages} messages, {report.replies} replies, {report.seconds:.0f} s, "
                f"{len(report.exits)} exits, {len(report.anomalies)} anomalies",
                *report.anomalies,
                *report.exits,
                sep="\n  ",
                flush=True,
            )
    return reports


def _keep(folder: Path, report: Report, house: House) -> None:
    """Write what clients heard and what is stored, of conversations with an anomaly, and the logs of the nodes."""
    folder.mkdir(parents=True)
    (folder / "anomalies").write_text("\n".join(report.anomalies))
    for seen in report.conversations:
        stored = report.stored
        if stored is not None and any(each.startswith(seen.address) for each in report.anomalies):
            parts = (stored.items, stored.replies, stored.lines)
            text = [str(seen), *(str(each) for part in parts for each in part.get(seen.address, ()))]
            (folder / seen.address.partition(":")[2]).write_text("\n".join(text))
    for number, node in enumerate(house.nodes):
        shutil.copytree(node.daemon.home / "logs", folder / f"node-{number}")


def main() -> int:
    """Read the command line, run, and return the exit code: 1 if something that was promised did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--only", default="", metavar="WORDS", help="only faults whose name has these words")
    parser.add_argument("--plant", action="store_true", help="plant faults in the database, one after the other")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where rounds with anomalies are written")
    given = parser.parse_args()
    missed = []
    for planted in PLANTED if given.plant else ("",):
        with tempfile.TemporaryDirectory(prefix="pegasus-faults-") as folder:
            what = (given.faults, given.seed, given.nodes, given.only, given.keep, planted)
            reports = trio.run(run_rounds, Path(folder), *what)
        is_broken = any(report.anomalies for report in reports)
        if planted:
            print(f"{'found ' if is_broken else 'MISSED'} {planted}", flush=True)
        else:
            print(sum((report.faults for report in reports), Counter()))
        missed += [planted] if is_broken != bool(planted) else []
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
