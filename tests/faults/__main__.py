"""`python -m tests.faults`: three nodes over PostgreSQL, and as many faults as are wanted."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import attrs
import trio

from tests.faults.house import House, open_house
from tests.faults.injecting import FAULTS
from tests.faults.planted import PLANTED, plant
from tests.faults.server import open_server
from tests.faults.trial import Report, run_trial

ROUND = 50
"""Faults after which conversations are checked and new ones begin, so that none becomes long."""
PLANTED_ROUND = 5
"""The same where a fault of the engine is looked for, which ends with the first one that shows it."""
AHEAD = 15
"""Seconds that one clock is ahead and another one behind: they are half a minute apart."""


async def run_rounds(
    folder: Path, faults: int, seed: int, nodes: int = 3, only: str = "", keep: Path | None = None, planted: str = ""
) -> list[Report]:
    """Make faults of all kinds on so many nodes. only: those whose name has this in it. Prints a line for each round.

    keep: where everything about a round with anomalies is written. planted: the fault of `PLANTED` that the database has, which is
    looked for with the faults that provoke it.
    """
    choices, reports = random.Random(seed), list[Report]()
    provoking = PLANTED[planted].provoked_by if planted else tuple(FAULTS)
    chosen = {name: FAULTS[name] for name in provoking if only in name}
    async with open_server() as server, open_house(folder, choices, server, nodes, AHEAD) as house:
        if planted:
            await plant(server, planted)
        while (left := faults - sum(sum(report.faults.values()) for report in reports)) > 0:
            report = await run_trial(house, chosen, min(left, PLANTED_ROUND if planted else ROUND), choices)
            reports.append(attrs.evolve(report, conversations=[], stored=None))
            if report.anomalies and keep is not None:
                await trio.to_thread.run_sync(_keep, keep / planted / f"{len(reports)}", report, house)
            made = sum(sum(each.faults.values()) for each in reports)
            print(
                f"{made} faults, {report.messages} messages, {report.replies} replies, {report.seconds:.0f} s, "
                f"{len(report.exits)} exits, {len(report.anomalies)} anomalies",
                *report.anomalies,
                *report.exits,
                sep="\n  ",
                flush=True,
            )
            if planted and report.anomalies:
                break
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
            text += map(str, stored.tasks.get(seen.address, {}).items())
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
            made = sum(sum(report.faults.values()) for report in reports)
            print(f"{'found ' if is_broken else 'MISSED'} {planted}, after {made} faults", flush=True)
        else:
            print(sum((report.faults for report in reports), Counter()))
        missed += [planted] if is_broken != bool(planted) else []
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
