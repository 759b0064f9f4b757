"""`pegasus update`: another version of the program, tried on a copy of the home."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import click
import trio

from pegasus.cli.commands import JSON, Number, Options, pegasus
from pegasus.cli.control import print_text
from pegasus.host import Home, HomeError, print_error
from pegasus.settings import SettingsSource
from pegasus.update import CheckReport, UpdateError, check_update, prepare, report_json, report_text
from pegasus.wire import encode_json

EXIT_DIFFERENT = 1
"""Something came out differently."""
EXIT_NOT_COMPARED = 2
"""The comparison could not be made."""


@pegasus.declare(
    "update",
    click.Argument(["what"], required=False, default="", metavar="[VERSION|PATH]"),
    click.Option(
        ["--check"], is_flag=True, help="Change nothing: replay the last days with it, and show what differs."
    ),
    click.Option(["--days"], default=7.0, show_default=True, type=Number(), help="Days that --check replays."),
    JSON,
    options_only=True,
)
def run_update(options: Options, *, what: str = "", check: bool = False, days: float = 7.0, as_json: bool) -> int:
    """Show what another version would do differently."""
    if not check:
        raise click.UsageError("only --check is there yet")
    home = options.home()
    try:
        report = trio.run(partial(_check, home, options.source(home), what, days))
    except (UpdateError, HomeError) as error:
        print_error(f"pegasus: nothing was compared: {error}")
        return EXIT_NOT_COMPARED
    if as_json:
        print_text(encode_json(report_json(report)))
    else:
        for line in report_text(report):
            print_text(line)
    return EXIT_DIFFERENT if report.different else 0


async def _check(home: Home, source: SettingsSource, what: str, days: float) -> CheckReport:
    """Install the version in an environment for the time of the check, and have it replay a copy of the home."""
    with tempfile.TemporaryDirectory(prefix="pegasus-candidate-", ignore_cleanup_errors=True) as folder:
        candidate = await prepare(what, Path(folder) / "version")
        return await check_update(home, source, [str(candidate.interpreter), "-P"], days=days)
