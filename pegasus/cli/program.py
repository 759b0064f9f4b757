"""The outermost frame of a command: every error leaves as one clear line on stderr and an exit code.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | the command's own failure |
| 2 | wrong usage |
| 75, 78 | the home is in use; the settings or the home are wrong |
| 130 | Ctrl-C |

An error that nobody expected is a defect. Its traceback goes to the daemon's log, or to stderr where there is no log.

Errors are turned into text here and nowhere else, so that a command simply raises: SettingsError and HomeError have messages
that stand alone, and click's usage errors get the hint to the help. The exit codes 75 (EX_TEMPFAIL) and 78 (EX_CONFIG) are those
of sysexits.h. A service manager can tell by them whether a restart may help; docs/user/operations.md has a unit that does.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

import click

from pegasus.cli.commands import pegasus
from pegasus.cli.options import Options
from pegasus.host import HomeError, fill_standard_streams, print_error, silence_stream
from pegasus.observe import get_logger, stop_logging
from pegasus.settings import SettingsError


def main(args: Sequence[str]) -> int:
    """Run the command and return the exit code. Nothing is raised but KeyboardInterrupt before a command could start.

    args: the command line without the program's name.

    Example::

        sys.exit(main(["status", "--profile", "work"]))
    """
    fill_standard_streams()
    options = Options()
    try:
        code = pegasus.main(list(args), prog_name="pegasus", standalone_mode=False, obj=options)
    except (Exception, KeyboardInterrupt) as error:
        return report(error, debug=options.log_level == "debug")
    return _flushed(code if isinstance(code, int) else 0)


def report(error: BaseException, *, debug: bool = False) -> int:
    """Print on stderr what went wrong, and return the exit code. debug: with the traceback of an error nobody expected.

    The order of the cases matters: click's usage errors are ClickExceptions, too, and BrokenPipeError is an OSError. A broken
    pipe is the normal end of `pegasus tasks list | head -1` and prints nothing.
    """
    match error:
        case click.exceptions.NoArgsIsHelpError():
            print_error(error.format_message())
            return 2
        case click.UsageError():
            command = error.ctx.command_path if error.ctx else "pegasus"
            print_error(f"pegasus: {error.format_message().rstrip('.')} (see {command} --help)")
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
            return 1
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
    """Flush stdout; return the code, or that of the error.

    A full disk or a closed pipe would otherwise show up only when Python exits, as an "Exception ignored" message.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        return report(error)
    return code
