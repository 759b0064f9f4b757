"""`pegasus import`: memory, sessions and jobs from the home of another agent.

The other home is only read. `plan_import` finds out what would be done without changing anything; `carry_out_import`
does the same, step by step, through a journal, while the home is held. So `--dry-run` works while a daemon runs, and the
import itself does not. An import that was cut short can be run again: what is there already is recognised and left.

Texts of another agent count as text from outside. What it has remembered may have been written by strangers, and is
treated with the same caution. With `--as-mine` the person vouches for it, except for results of tools.

A job that is imported but paused has the reason in its line of the report, as has everything that was left out.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import attrs
import click

from pegasus.cli.commands import JSON, OneOf, pegasus
from pegasus.cli.control import change_files, json_line, print_text, report_failure
from pegasus.host import Home, wall_clock
from pegasus.importing import (
    HOMES,
    ImportLine,
    ImportTarget,
    UnknownLayout,
    carry_out_import,
    plan_import,
    read_foreign_home,
)
from pegasus.settings import Settings
from pegasus.storage import StorageError

_WORDS: Final = {
    "imported": ("imported", "would import"),
    "paused": ("imported, paused", "would import, paused"),
    "there": ("imported before", "imported before"),
    "left out": ("not imported", "would not import"),
}


@pegasus.declare(
    "import",
    click.Argument(["folder"], type=click.Path(path_type=Path)),
    click.Option(["--from", "source"], type=OneOf(list(HOMES)), required=True, help="Kind of the other home."),
    click.Option(["--dry-run"], is_flag=True, help="Say what would be done, and change nothing."),
    click.Option(["--as-mine"], is_flag=True, help="You have read it all: it counts as your own words."),
    JSON,
)
def run_import(
    home: Home,
    settings: Settings,
    *,
    folder: Path,
    source: str,
    dry_run: bool = False,
    as_mine: bool = False,
    as_json: bool = False,
) -> int:
    """Import memory, sessions and jobs of another agent from FOLDER."""
    if settings.storage.url:
        return report_failure("with storage.url nothing can be imported; import into a home with files, and move that")
    # Settings are needed for the scope only: it decides whether a session belongs to a chat or to all channels.
    target = ImportTarget(home.data, settings.agent.scope, wall_clock, is_mine=as_mine)
    try:
        # Read as a whole before the first change, so that a home which cannot be read changes nothing.
        found = read_foreign_home(folder.expanduser(), source)
        lines = plan_import(found, target) if dry_run else change_files(home, partial(carry_out_import, found, target))
    except (UnknownLayout, StorageError) as error:
        # A refusal concerns the import as a whole. What a single page or job lacks is a line of the report, and exit code 0.
        return report_failure(str(error))
    if as_json:
        print(json_line({"dryRun": dry_run, "lines": [attrs.asdict(line) for line in lines]}))
    else:
        print_text(report(lines, dry_run=dry_run))
    return 0


def report(lines: list[ImportLine], *, dry_run: bool) -> str:
    """Return a line for each thing, and the sums.

    The sums come last: a long report scrolls, and its end is what stays on the screen.
    """
    texts = []
    for line in lines:
        # Each outcome has two wordings: for what was done, and for what would be.
        words = _WORDS[line.outcome][dry_run]
        # A line reads: outcome, kind, origin, what it has become, and why.
        target = f" -> {line.target}" if line.target else ""
        texts.append(f"{words}: {line.kind} {line.origin}{target}{f' ({line.reason})' if line.reason else ''}")
    counts = {name: sum(line.outcome == name for line in lines) for name in _WORDS}
    verb = "would be imported" if dry_run else "imported"
    # Paused jobs are imported, too; the sum names them apart, since somebody has to look at them.
    total = counts["imported"] + counts["paused"]
    sums = (
        f"{total} {verb} ({counts['paused']} paused), {counts['there']} imported before, {counts['left out']} left out."
    )
    return "\n".join([*texts, sums])
