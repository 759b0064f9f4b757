"""The command: ./scripts/bench [NAME …] [--quick] [--long] [--check] [--json FILE] [--dir DIR] [--peers DIR], or --table FILE.

The table of each measure is printed when it is done, since all of them take half an hour. With --check, measures that have
exceeded a limit are made once more at the end, since the machine may have been busy: only a limit that is exceeded again fails the
check.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import attrs

from benchmarks import (
    actors,
    among,
    appends,
    chats,
    crowd,
    doors,
    first_hour,
    hands,
    idle,
    main_agent,
    month,
    scale,
    start,
    tasks,
    trust,
    turn,
)
from benchmarks.report import Result, as_json, as_markdown, table
from benchmarks.workplace import Workplace

Measure = Callable[[Workplace], Iterator[Result]]
MEASURES: Mapping[str, Measure] = {
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
    "month": month.measure,
    "among": among.measure,
    "scale": scale.measure,
    "trust": trust.measure,
}
APART = ("trust",)
"""Measures that are made only where they are named: they install a package first."""


def main() -> int:
    """Measure, print the results, and return the exit code: 1 if a run failed or, with --check, if a limit is exceeded."""
    options = _options()
    if options.table:
        print(as_markdown(options.table.read_text()))
        return 0
    if options.peers:
        sys.path.append(str(options.peers))  # last, so that the libraries we have are ours
    measures = {
        name: MEASURES[name] for name in options.names or MEASURES if name in options.names or name not in APART
    }
    began, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="pegasus-bench-", dir=options.dir) as folder:
        outcome = run(Workplace(Path(folder), options.quick, options.long), measures, check=options.check)
    minutes = (time.monotonic() - began) / 60
    print(f"{minutes:.1f} min; load average {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end", end="")
    print(f", on {os.cpu_count()} cores")
    if options.json:
        results = [*outcome.results, *outcome.repeated]
        options.json.write_text(as_json(results, quick=options.quick, notes=outcome.notes) + "\n")
    return int(bool(outcome.notes) or (options.check and bool(outcome.over)))


@attrs.define
class Outcome:
    """What came of a run. notes: why measures failed. repeated: results of measures that were made again."""

    results: list[Result] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)
    repeated: list[Result] = attrs.field(factory=list)

    @property
    def over(self) -> list[Result]:
        """The results that exceed their limit, without those that were within it when they were measured again."""
        held = {result.name for result in self.repeated if result.verdict != "over"}
        return [result for result in self.results if result.verdict == "over" and result.name not in held]


def run(place: Workplace, measures: Mapping[str, Measure], *, check: bool = False) -> Outcome:
    """Make these measures, and print them. check: make those that exceed a limit once more."""
    outcome = Outcome()
    again: dict[str, Measure] = {}
    for name, measure in measures.items():
        results = _measure(place, name, measure, outcome.notes)
        outcome.results += results
        if any(result.verdict == "over" for result in results):
            again[name] = measure
    for name, measure in again.items() if check else ():
        outcome.repeated += _measure(place, f"{name} again", measure, outcome.notes)
    _print_verdict(outcome)
    return outcome


def _measure(place: Workplace, name: str, measure: Measure, notes: list[str]) -> list[Result]:
    """The results so far if it fails, and then a note. Each measure has a folder of its own, also when it is made again."""
    print(f"measuring {name} …", file=sys.stderr, flush=True)
    results: list[Result] = []
    try:
        folder = place.folder / name.replace(" ", "-")
        folder.mkdir()
        results.extend(measure(Workplace(folder, place.quick, place.is_long)))
    except Exception as error:
        traceback.print_exception(error)
        notes.append(f"{name} failed: {error}")
    if results:
        print(table(results), flush=True)
    return results


def _print_verdict(outcome: Outcome) -> None:
    print(*outcome.notes, sep="\n", end="\n" if outcome.notes else "")
    if outcome.over:
        print("over the limit:")
        print(*(f"  {_verdict(result, outcome.repeated)}" for result in outcome.over), sep="\n")
    elif any(result.limit is not None for result in outcome.results):
        print("all limits are kept")


def _verdict(result: Result, repeated: Iterable[Result]) -> str:
    again = [f"{other.ratio:.2f}" for other in repeated if other.name == result.name]
    ratios = " and ".join([f"{result.ratio:.2f}", *again])
    return f"{result.name}: {ratios}, limit {result.limit:g}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Measures Pegasus, as ratios to floors measured in the same run."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(MEASURES)} (all but trust)"
    )
    parser.add_argument("--quick", action="store_true", help="few rounds: a first look, too few to judge by")
    parser.add_argument("--long", action="store_true", help="with scale: a thousand faults on three nodes, an hour")
    parser.add_argument("--check", action="store_true", help="exit 1 if a limit is exceeded, and exceeded again")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--table", type=Path, metavar="FILE", help="measure nothing: print such results as Markdown")
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
