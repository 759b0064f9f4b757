"""The command line of `./scripts/judges`, and the table that it prints."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import attrs
from benchmarks.workplace import Workplace

from judging import (
    a2a,
    acp,
    autobahn,
    bridge,
    generated_client,
    mcp_conformance,
    mcp_inspector,
    openai_client,
    openapi,
    responses,
    services,
    skills,
)
from judging.verdict import FAILURE_LINES, Judge, NotHereError, Verdict

JUDGES: Final[tuple[Judge, ...]] = (
    mcp_conformance.JUDGE,
    mcp_inspector.JUDGE,
    responses.JUDGE,
    openai_client.JUDGE,
    openapi.JUDGE,
    generated_client.JUDGE,
    a2a.JUDGE,
    skills.JUDGE,
    autobahn.JUDGE,
    acp.JUDGE,
    bridge.JUDGE,
    services.JUDGE,
)
"""All judges, in the order of the table."""
AT_ONCE: Final = 2
"""Judges that run side by side: most of their time is spent installing and waiting."""
ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "README.md"
BEGIN: Final = "<!-- table: ./scripts/judges --write -->\n"
END: Final = "<!-- end of the table -->\n"
HEAD: Final = "| what | judged by | passed | failed | skipped |\n|---|---|---|---|---|\n"


@attrs.frozen
class Outcome:
    """What a judge said. missing: why it cannot be had, or ""; error: how it failed itself, or ""."""

    judge: Judge
    verdicts: Sequence[Verdict] = ()
    missing: str = ""
    error: str = ""

    @property
    def is_good(self) -> bool:
        return not self.error and not any(verdict.failed for verdict in self.verdicts)

    def rows(self) -> list[str]:
        what, program = self.judge.protocol, self.judge.program
        rows = [
            f"| {what}: {each.about} | {program} | {each.passed} | {each.failed} | {each.skipped} |"
            for each in self.verdicts
        ]
        if self.missing:
            rows.append(f"| {what}: not to be had: {self.missing} | {program} | | | |")
        if self.error:
            rows.append(f"| {what}: did not come to an end | {program} | | | |")
        return rows


def main() -> int:
    """Run the judges that were named, or all. Returns 0 if none found anything, else 1."""
    chosen = _arguments()
    if chosen.write:
        replace_table(PAGE.read_text("utf-8"), "")  # a page without a place for it says so before the run, not after
    judges = [judge for judge in JUDGES if not chosen.names or judge.name in chosen.names]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(_ask, judges))
    for outcome in outcomes:
        _print_details(outcome)
    table = format_table(outcomes)
    print(table, end="")
    if chosen.write:
        PAGE.write_text(replace_table(PAGE.read_text("utf-8"), table), "utf-8")
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


def format_table(outcomes: Sequence[Outcome]) -> str:
    """Return the table as Markdown."""
    return HEAD + "".join(f"{row}\n" for outcome in outcomes for row in outcome.rows())


def replace_table(page: str, table: str) -> str:
    """Return a page with this table in place of the one that is there. Raises ValueError if it has no place for one."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./scripts/judges",
        description="Lets official test suites and clients judge Pegasus. Exit code 1 if one found anything.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="judges:\n" + "\n".join(f"  {each.name:<12} {each.protocol}: {each.program}" for each in JUDGES),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="judges to run (default: all)")
    parser.add_argument("--write", action="store_true", help="write the table into README.md; only with all judges")
    chosen = parser.parse_args()
    if unknown := sorted(set(chosen.names) - {judge.name for judge in JUDGES}):
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(judge.name for judge in JUDGES)}")
    if chosen.write and chosen.names:
        parser.error("--write is for a run of all judges")
    return chosen


def _ask(judge: Judge) -> Outcome:
    print(f"{judge.name}: {judge.program} …", file=sys.stderr, flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pegasus-judges-") as folder:
        outcome = _outcome_of(judge, Workplace(Path(folder)))
    print(f"{judge.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return outcome


def _outcome_of(judge: Judge, place: Workplace) -> Outcome:
    verdicts: list[Verdict] = []
    try:
        verdicts.extend(judge.run(place))
    except NotHereError as error:
        return Outcome(judge, verdicts, missing=str(error))
    except Exception:
        return Outcome(judge, verdicts, error=traceback.format_exc())
    return Outcome(judge, verdicts)


def _print_details(outcome: Outcome) -> None:
    for verdict in outcome.verdicts:
        if verdict.details:
            lines = verdict.details.splitlines()
            kept = lines[:FAILURE_LINES]
            if len(lines) > len(kept):
                kept.append(f"and {len(lines) - len(kept)} more lines")
            print(f"{outcome.judge.name}, {verdict.about}:", *kept, sep="\n  ", file=sys.stderr)
    if outcome.error:
        print(f"{outcome.judge.name} failed itself:\n{outcome.error}", file=sys.stderr)
