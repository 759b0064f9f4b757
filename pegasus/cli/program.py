"""The program: `pegasus run`, `pegasus` alone, and the errors that leave as an exit code.

Errors are raised, and turned into one line on stderr and an exit code by `main` and nowhere else: SettingsError and HomeError
have messages that stand alone, and click's usage errors get the hint to the help.

| exit code | meaning |
|---|---|
| 0 | success; also when the reader of stdout has gone |
| 1 | the command's own failure |
| 2 | wrong usage |
| 75, 78 | the home is in use; the settings or the home are wrong |
| 130 | Ctrl-C |

75 (EX_TEMPFAIL) and 78 (EX_CONFIG) are those of sysexits.h. A service manager can tell by them whether a restart may help;
docs/user/operations.md has a unit that does. An error that nobody expected is a defect. Its traceback goes to the daemon's log, or
to stderr where there is no log.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

import click

from pegasus.cli.commands import COMPLETE_VARIABLE, Options, pegasus, program_name
from pegasus.collector import imports_uncollected
from pegasus.formatting import first_cause
from pegasus.host import (
    Home,
    HomeError,
    fill_standard_streams,
    is_asked_to_start_again,
    print_error,
    read_daemon,
    silence_stream,
)
from pegasus.observe import get_logger, stop_logging
from pegasus.settings import Settings, SettingsError, located


@pegasus.declare(
    "run",
    click.Option(["--no-cli"], is_flag=True, help="No chat, also if this is a terminal."),
    click.Option(["--trial-of"], hidden=True),  # an update tries this version; the value is the name of its backup
    options_only=True,
)
def run_agent(options: Options, *, no_cli: bool = False, trial_of: str | None = None, joins: bool = False) -> int:
    """Run the agent until it is stopped; with a chat, on a terminal."""
    # joins: an agent that runs already is chatted with, on a terminal; `run` must start one, and fails.
    # The settings are checked in this process first: a mistake is reported on the terminal, not in the log of a child.
    # An agent that runs is joined with mistakes, too, since it does not use them.
    has_terminal = not no_cli and os.isatty(0)
    is_joining = joins and has_terminal and read_daemon(options.home()) is not None
    home, settings = options.load_as_client() if is_joining else options.load()
    # For commands that the stand-in shows; it knows nothing of command lines.
    os.environ["PEGASUS_COMMAND"] = program_name()
    if not is_joining:
        check_settings_in_use(home, settings)
    if has_terminal and settings.channels["cli"].enabled:
        from pegasus.cli.chat import run_with_chat

        if not joins and (daemon := read_daemon(home)) is not None:
            already = f"an agent runs here already (process {daemon.pid})"
            raise HomeError(
                f"{home}: {already}; `{program_name()}` joins it, --home or --profile names another", exit_code=75
            )
        return run_with_chat(home, settings, options.arguments())
    # No terminal, or the chat is off: this process becomes the daemon. With a chat it is a child, and this one the chat.
    home.prepare()
    if trial_of is None and home.versions.is_dir():
        from pegasus.update import prepare_start  # an installation that was never updated imports none of it

        prepare_start(home)
    with imports_uncollected():
        from pegasus.sandbox import SandboxProbe

        # It waits for bubblewrap, 15 ms of 280, while the other processor imports the rest.
        probe = SandboxProbe(settings, home.path, home.workspace)
        from pegasus.app import run_daemon
    code = run_daemon(home, settings, probe, trial_of=trial_of)
    if code == 0 and is_asked_to_start_again(home):
        home.restart.unlink()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
    return code


@click.pass_context
def _run_without_command(ctx: click.Context) -> int | None:
    """Run the agent for `pegasus` alone; click calls this before every command, too."""
    return run_agent(ctx.ensure_object(Options), joins=True) if ctx.invoked_subcommand is None else None


pegasus.callback = _run_without_command


def check_settings_in_use(home: Home, settings: Settings) -> None:
    """Check what only other packages can judge: models and their providers, the persona. Raises SettingsError.

    `pegasus.settings` knows the form of a key and not its meaning: it must not import the packages that use it. A line about a
    key begins with the key's path; the file, variable or option that has set it is put in front, as in its other messages.
    """
    with imports_uncollected():
        from pegasus.identity import PersonaError, persona_of_settings
        from pegasus.models import problems

    # All mistakes are collected, so that a person can correct them in one go.
    lines = problems(settings.models, settings.providers)
    try:
        persona_of_settings(settings.agent.persona, home.resolve)
    except PersonaError as error:
        lines += [f"agent.persona: {line}" for line in str(error).splitlines()]
    if lines:
        raise SettingsError(located(settings, lines))


# ------------------------------------------------------------------ errors and exit codes


def main(args: Sequence[str]) -> int:
    """Run the command and return the exit code. Nothing is raised but KeyboardInterrupt before a command could start.

    args: the command line without the program's name.
    """
    fill_standard_streams()
    options = Options()
    try:
        name = program_name()
        code = pegasus.main(
            list(args), prog_name=name, complete_var=COMPLETE_VARIABLE, standalone_mode=False, obj=options
        )
    except (Exception, KeyboardInterrupt) as error:
        return report(error, debug=options.log_level == "debug")
    except SystemExit as error:
        # click's answer to a shell that asks for completion, and else to a BrokenPipeError only, without its standalone mode.
        if COMPLETE_VARIABLE in os.environ:
            return _flushed(error.code if isinstance(error.code, int) else 1)
        return report(BrokenPipeError())
    return _flushed(code if isinstance(code, int) else 0)


def report(error: BaseException, *, debug: bool = False) -> int:
    """Print on stderr what went wrong, and return the exit code. debug: with the traceback of an error nobody expected.

    The order of the cases matters: click's usage errors are ClickExceptions, too, and BrokenPipeError is an OSError. A broken
    pipe is the normal end of `pegasus tasks list | head -1`: nothing is printed and the exit code is 0, whether the reader has gone
    before the last line or after it. Nurseries wrap errors in groups; the error in them counts.
    """
    match error := first_cause(error):
        case click.exceptions.NoArgsIsHelpError():
            print_error(error.format_message())
            return 2
        case click.UsageError():
            path = error.ctx.command_path if error.ctx else ""
            names = path.removeprefix(str(error.ctx.find_root().info_name) if error.ctx else "").split()
            command = " ".join((program_name(), *names, "--help"))
            print_error(f"pegasus: {error.format_message().rstrip('.')} (see {command})")
            return 2
        case click.ClickException():
            print_error(f"pegasus: {error.format_message()}")
            return error.exit_code
        case SettingsError():
            print_error(str(error))
            return error.exit_code
        case HomeError():
            print_error(f"pegasus: {error}")
            return error.exit_code
        case KeyboardInterrupt() | click.Abort():
            if not isinstance(error.__cause__, KeyboardInterrupt):  # else click ended the line already
                print_error("")
            return 130
        case BrokenPipeError():
            silence_stream(sys.stdout)
            return 0
        case OSError():
            silence_stream(sys.stdout)
            reason = error.strerror or str(error)
            print_error(f"pegasus: {error.filename}: {reason}" if error.filename else f"pegasus: {reason}")
            return 1
    return _report_defect(error, debug=debug)


def _report_defect(error: BaseException, *, debug: bool) -> int:
    """Log the traceback, print one line on stderr, and return exit code 1.

    Without a log, or with --log-level debug, the traceback is printed on stderr as well.
    """
    get_logger("pegasus").exception("internal error", error=error)
    logged = stop_logging()
    if debug or not logged:
        with suppress(OSError, ValueError):
            traceback.print_exception(error)
    print_error(
        f"pegasus: internal error: {type(error).__name__}: {error}{'; the log has the details' if logged else ''}"
    )
    return 1


def _flushed(code: int) -> int:
    """Flush stdout; return the code, or that of the error. A reader that has gone does not turn a failure into a success.

    A full disk or a closed pipe would otherwise show up only when Python exits, as an "Exception ignored" message.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        return report(error) or code
    return code
