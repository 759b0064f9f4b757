"""The command: ./scripts/bench [NAME …] [--quick] [--check] [--json FILE] [--dir DIR] [--peers DIR]."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import actors, appends, chats, crowd, doors, first_hour, hands, idle, main_agent, start, tasks, turn
from benchmarks.report import Result, as_json, table
from benchmarks.workplace import Workplace

MEASURES: dict[str, Callable[[Workplace], Iterator[Result]]] = {
    "start": start.measure,
    "idle": idle.measure,
    "turn": turn.measure,
    "crowd": crowd.measure,
    "appends": appends.measure,
    "chats": chats.measure,
    "actors": actors.measure,
    "tasks": tasks.measure,
    "main_agent": main_agent.measure,
    "first_hour": first_hour.measure,
    "hands": hands.measure,
    "doors": doors.measure,
}


def main() -> int:
    """Exit code: 0; 1 if a run failed, or, with --check, if a limit is exceeded."""
    options = _options()
    if options.peers:
        sys.path.append(str(options.peers))  # last, so that the libraries we have are ours
    began = os.getloadavg()[0]
    notes: list[str] = []
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="pegasus-bench-", dir=options.dir) as folder:
        place = Workplace(Path(folder), options.quick)
        for name in options.names or MEASURES:
            print(f"measuring {name} …", file=sys.stderr, flush=True)
            try:
                results += MEASURES[name](place)
            except Exception as error:
                traceback.print_exception(error)
                notes.append(f"{name} failed: {error}")
    if results:
        print(table(results))
    print(f"load average {began:.1f} at the start, {os.getloadavg()[0]:.1f} at the end, on {os.cpu_count()} cores")
    for note in notes:
        print(note)
    if options.json:
        options.json.write_text(as_json(results, quick=options.quick, notes=notes) + "\n")
    over = any(result.verdict == "over" for result in results)
    return int(bool(notes) or (options.check and over))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Measures Pegasus, as ratios to floors measured in the same run."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(MEASURES)} (all)")
    parser.add_argument("--quick", action="store_true", help="few rounds: a first look, too few to judge by")
    parser.add_argument("--check", action="store_true", help="exit 1 if a limit is exceeded")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument(
        "--dir", type=Path, help="a folder on the disk to measure (default: the system's temporary folder)"
    )
    parser.add_argument(
        "--peers", type=Path, metavar="DIR", help="other libraries of actors are imported from there too (pip --target)"
    )
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(MEASURES))
    if unknown:
        parser.error(f"there is no measure {unknown[0]!r}; there are: {', '.join(MEASURES)}")
    return options
