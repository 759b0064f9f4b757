"""`pegasus update`: another version of the program, tried on a copy of the home and then on the home, before it takes over."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

import click
import trio

from pegasus import __version__
from pegasus.cli.commands import JSON, Number, Options, pegasus, program_name
from pegasus.cli.control import current_data, is_terminal, print_text, report_failure
from pegasus.cli.program import check_settings_in_use
from pegasus.cli.service import ServiceRefused, restart_service
from pegasus.host import Home, HomeError, print_error
from pegasus.launching import is_clone
from pegasus.settings import SettingsSource
from pegasus.update import (
    MINUTE,
    Candidate,
    CheckReport,
    LastUpdate,
    UpdateError,
    UpdateWays,
    check_candidate,
    check_update,
    free_folder,
    one_update,
    prepare,
    report_json,
    report_text,
    switch,
)
from pegasus.wire import encode_json

EXIT_DIFFERENT = 1
"""Something came out differently."""
EXIT_NOT_COMPARED = 2
"""The comparison could not be made."""
_IN_IMAGE = "PEGASUS_IMAGE"
"""Variable of the container's image."""


@pegasus.declare(
    "update",
    click.Argument(["what"], required=False, default="", metavar="[VERSION|PATH]"),
    click.Option(
        ["--check"], is_flag=True, help="Change nothing: replay the last days with it, and show what differs."
    ),
    click.Option(["--days"], default=7.0, show_default=True, type=Number(), help="Days that are replayed."),
    JSON,
    click.Option(["--yes"], is_flag=True, help="Switch also if something differs, or nothing could be compared."),
    click.Option(
        ["--within"],
        type=Number(),
        default=MINUTE,
        show_default=True,
        metavar="SECONDS",
        help="Time in which it must be ready, and must not end.",
    ),
    options_only=True,
)
def run_update(
    options: Options,
    *,
    what: str = "",
    check: bool = False,
    days: float = 7.0,
    as_json: bool = False,
    yes: bool = False,
    within: float = MINUTE,
) -> int:
    """Let another version take over: a version of the index, a wheel, a folder of source, or the newest.

    It replays the last days on a copy, is tried on the home behind closed doors after a backup, and started. If it is not ready in
    time, or ends, this version is put back by itself.
    """
    if check:
        return _show_check(options, what, days, as_json=as_json)
    if as_json:
        raise click.UsageError("--json goes with --check")
    try:
        _check_installation()
        home, settings = options.load()
        check_settings_in_use(home, settings)
        home.prepare()
        ways = UpdateWays(
            options.lasting_arguments(), partial(_start, options, home), print_text, settings.run.shutdown_grace, within
        )
        with one_update(home):
            last = _update(home, options, what, days, ways, yes=yes)
    except UpdateError as error:
        return report_failure(str(error))
    if isinstance(last, int):
        return last
    print_text(f"The backup from before is {last.backup}")
    if last.problem:
        return report_failure(f"{last.version} was not taken: {last.problem}. {last.before} runs as before")
    print_text(f"Updated from {last.before} to {last.version}.")
    return 0


def _update(home: Home, options: Options, what: str, days: float, ways: UpdateWays, *, yes: bool) -> LastUpdate | int:
    """Install a version, compare, and let it take over; return the exit code if it is not wanted. Raises UpdateError, HomeError."""
    folder = free_folder(home)
    ways.say(f"installing {what or 'the newest version'} …")
    candidate: Candidate = trio.run(prepare, what, folder)
    code = EXIT_NOT_COMPARED
    try:
        if not what and candidate.version == __version__:
            raise UpdateError(f"{__version__} is the newest version of the index; nothing was switched")
        check_candidate(home, candidate)
        code = _compare(home, options, candidate, days)
        if code and (yes or (is_terminal(sys.stdin) and click.confirm(f"Switch to {candidate.version}?"))):
            code = 0
    finally:
        if code:
            shutil.rmtree(folder, ignore_errors=True)
    if code:
        print_error("pegasus: nothing was switched; --yes does it all the same")
        return code
    return switch(home, candidate, ways)


def _compare(home: Home, options: Options, candidate: Candidate, days: float) -> int:
    """Show what a version does differently; return 0 if that is nothing."""
    print_text(f"replaying the last {days:g} days with {candidate.version} …")
    try:
        with current_data(options, home):
            command = [str(candidate.interpreter), "-P"]
            report = trio.run(partial(check_update, home, options.source(home), command, days=days))
    except UpdateError as error:
        print_error(f"pegasus: nothing was compared: {error}")
        return EXIT_NOT_COMPARED
    return _show_report(report)


def _show_report(report: CheckReport, *, as_json: bool = False) -> int:
    """Print a report; return 0 if nothing is different."""
    for line in [encode_json(report_json(report))] if as_json else report_text(report):
        print_text(line)
    return EXIT_DIFFERENT if report.different else 0


def _check_installation() -> None:
    """Raise UpdateError where a program is updated in another way."""
    if os.environ.get(_IN_IMAGE):
        raise UpdateError(
            "this runs in a container, which is replaced and not changed: get the new source or image, then "
            "docker compose up -d --build (the home is on its volume)"
        )
    if is_clone():
        where = Path(__file__).parents[2]
        raise UpdateError(f"this is a clone: git -C {where} pull, then stop the agent and start it again")


def _start(options: Options, home: Home) -> None:
    """Start the agent in the background: the service if there is one. Raises UpdateError."""
    try:
        if restart_service(options):
            return
        with home.log.open("ab") as log:
            subprocess.Popen(
                [sys.executable, "-P", "-m", "pegasus", *options.lasting_arguments(), "run", "--no-cli"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
    except (ServiceRefused, OSError) as error:
        raise UpdateError(f"the agent cannot be started: {error}; {program_name()} run") from None


# ------------------------------------------------------------------ --check alone


def _show_check(options: Options, what: str, days: float, *, as_json: bool) -> int:
    """Show what a version does differently, and change nothing."""
    home, folder = options.home(), Path(tempfile.mkdtemp(prefix="pegasus-candidate-"))
    try:
        with current_data(options, home):
            report = trio.run(partial(_check, home, options.source(home), what, folder / "version", days))
    except (UpdateError, HomeError) as error:
        print_error(f"pegasus: nothing was compared: {error}")
        return EXIT_NOT_COMPARED
    finally:
        shutil.rmtree(folder / "version", ignore_errors=True)
        with suppress(OSError):  # the words of an installer that has failed stay, since the error names them
            folder.rmdir()
    return _show_report(report, as_json=as_json)


async def _check(home: Home, source: SettingsSource, what: str, into: Path, days: float) -> CheckReport:
    """Install the version in an environment for the time of the check, and have it replay a copy of the home."""
    candidate = await prepare(what, into)
    return await check_update(home, source, [str(candidate.interpreter), "-P"], days=days)
