"""`pegasus sessions …`: the session and its archives, from the files, whether or not a daemon runs.

Files may be large and may have bad lines: they are read line by line, a line that is longer than any the agent writes is
skipped, and a line that cannot be parsed is counted and shown as it is.

No daemon is asked, because a session is a file that only grows: what was read is true, though the last turn may be missing.
These commands are the ones to look at a home that was copied from another machine, or whose daemon does not start any more.
Times are in UTC, as they stand in the names of archives.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, BinaryIO

import click

from pegasus.cli.control import fit_terminal, print_text, report_failure
from pegasus.cli.options import JSON, CommandGroup, program_name
from pegasus.formatting import format_time, plural
from pegasus.host import Home
from pegasus.main_agent import CURRENT, LONGEST, archive_names, is_archive, line_text, open_archive
from pegasus.settings import Settings

COMMANDS = CommandGroup()
SESSIONS = COMMANDS.subgroup("sessions", "List and show conversations, also archived ones.")


@SESSIONS.declare("list", JSON)
def run_list(home: Home, settings: Settings, *, as_json: bool) -> int:
    """List the current session and its archives, oldest first."""
    folder = os.fspath(home.data / "main")
    try:
        found = [_summarise(folder, name) for name in (*archive_names(folder), CURRENT) if _is_there(folder, name)]
    except OSError as error:
        return report_failure(f"{folder}: {error.strerror or error}")
    if as_json:
        print_text(json.dumps({"sessions": found}, ensure_ascii=False), always=False)
    else:
        print_text("\n".join(fit_terminal(_row(session)) for session in found) or "No sessions.")
    return 0


@SESSIONS.declare(
    "show",
    click.Argument(["name"], default=CURRENT, metavar="[FILE]"),
    click.Option(["--json", "as_json"], is_flag=True, help="The lines as they are stored."),
)
def run_show(home: Home, settings: Settings, *, name: str, as_json: bool) -> int:
    """Show all of one session; the current one without FILE."""
    # Only names that an archive can have are opened: FILE is no path, so that "../" leads nowhere.
    if name != CURRENT and not is_archive(name):
        return report_failure(f"{name!r} is no session; {program_name()} sessions list shows their names")
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_archive(os.fspath(home.data / "main"), name))
        except FileNotFoundError:
            return report_failure(f"there is no session {name!r}; {program_name()} sessions list shows their names")
        except OSError as error:
            return report_failure(f"{name} cannot be read: {error.strerror or error}")
        for number, raw in _lines(file):
            line = raw.decode(errors="replace").removesuffix("\n") if as_json else line_text(number, raw)
            print_text(line, always=not as_json)
    return 0


def _is_there(folder: str, name: str) -> bool:
    """Return True for a session whose file exists."""
    return os.path.isfile(os.path.join(folder, name))


def _summarise(folder: str, name: str) -> dict[str, Any]:
    """Return a summary of a session: file, bytes, lines, times of the first and last line in ms since the epoch.

    "previousSession" names the archive that it continues, "summary" is true where it begins with a summary of that. Lines that
    cannot be read count as lines. Raises OSError.
    """
    first: dict[str, Any] = {}
    began = ended = None
    lines = 0
    with open_archive(folder, name) as file:
        size = os.fstat(file.fileno()).st_size
        for number, raw in _lines(file):
            lines = number
            if number == 1:
                first = _object(raw)
            if began is None:
                began = _time(raw)
            last = raw
        if lines:
            ended = _time(last)
    metadata = first.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    return {
        "file": name,
        "bytes": size,
        "lines": lines,
        "began": began,
        "ended": ended,
        "previousSession": known.get("previousSession"),
        "summary": known.get("type") == "compact",
    }


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers, from 1 on; of one that is too long only the beginning.

    Memory stays bounded by LONGEST even for a file without a single line break.
    """
    number = 0
    while raw := file.readline(LONGEST + 2):
        number += 1
        rest = raw
        while not rest.endswith(b"\n") and (rest := file.readline(LONGEST)):
            pass  # too long to be one of ours
        yield number, raw


def _object(raw: bytes) -> dict[str, Any]:
    """Return a line as a JSON object, {} if it is none. RecursionError: brackets that are nested thousands of times."""
    with suppress(ValueError, RecursionError):
        value = json.loads(raw)
        if isinstance(value, dict):
            return value
    return {}


def _time(raw: bytes) -> int | None:
    """Return the time of a line in ms since the epoch, None if it has none."""
    ts = _object(raw).get("ts")
    return ts if isinstance(ts, int) else None


def _row(session: dict[str, Any]) -> str:
    """Return one session in one line: file, first and last time, lines, bytes, and the session before it."""
    span = " – ".join("?" if ts is None else format_time(ts) for ts in (session["began"], session["ended"]))
    before = f"; goes on from {session['previousSession']}" if session["previousSession"] else ""
    how = f"; begins with a summary{before}" if session["summary"] else before
    return f"{session['file']:<27} {span}  {plural(session['lines'], 'line')}, {session['bytes']:,} bytes{how}"
