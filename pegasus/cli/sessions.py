"""`pegasus sessions …`: from the files, whether or not a daemon runs.

Files may be large and may have bad lines: they are read line by line, a line that is longer than any the agent
writes is skipped, and a line that cannot be parsed is counted and shown as it is. No daemon is asked, because a session is a
file that only grows: what was read is true, though the last turn may be missing. These commands are the ones to look at a home
that was copied from another machine, or whose daemon does not start any more. Times are in UTC, as they stand in the names of
archives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, BinaryIO

import click

from pegasus.cli.commands import JSON, WholeNumber, pegasus, program_name
from pegasus.cli.control import Answer, answering_command, fit_terminal, print_text, report_failure, stored_data
from pegasus.formatting import format_time, plural, quote
from pegasus.host import Home
from pegasus.json_lines import LONGEST_LINE
from pegasus.main_agent import (
    CURRENT,
    MOST_ROWS,
    PAGE_ROWS,
    find_session,
    line_text,
    list_sessions,
    open_archive,
    session_json,
)
from pegasus.settings import Settings
from pegasus.storage import FolderFiles

SESSIONS = pegasus.subgroup("sessions", "List and show conversations, also archived ones.")

# ------------------------------------------------------------------ sessions


def sessions_text(answer: Answer) -> str:
    """Return a line for each session: file, first and last time, size, the session before it, and the chat that it belongs to.

    The newest stand last, as in a log, so that they are above the prompt. A hint about older ones comes first.
    """
    lines = [fit_terminal(_session_row(session)) for session in answer["sessions"]] or ["No sessions."]
    if answer["next"] is not None:
        lines.insert(0, f"… {plural(answer['total'], 'session')}; --offset {answer['next']} shows those before these")
    return "\n".join(lines)


@answering_command(
    SESSIONS,
    "list",
    click.Option(["--chat"], default="", metavar="TEXT", help="Only chats whose name (TYPE:ID) contains TEXT."),
    click.Option(["--limit"], default=PAGE_ROWS, type=WholeNumber(1, MOST_ROWS), metavar="N", help="Sessions at most."),
    click.Option(["--offset"], default=0, type=WholeNumber(0), metavar="N", help="Newer sessions that are left out."),
    JSON,
    method=None,
    text=sessions_text,
)
def run_list(home: Home, settings: Settings, *, chat: str, limit: int, offset: int) -> Answer:
    """List sessions and their archives, the newest ones, oldest first."""
    with stored_data(home, settings, "main/", "sessions/"):
        page = list_sessions(FolderFiles(home.data), chat, offset, limit)
    # A page counts from the newest on, so that --offset 0 always shows what a person looks for.
    rows = [session_json(row) for row in reversed(page.rows)]
    return {"sessions": rows, "total": page.total, "next": page.next}


@SESSIONS.declare(
    "show",
    click.Argument(["name"], default=CURRENT, metavar="[FILE|CHAT]"),
    click.Option(["--json", "as_json"], is_flag=True, help="The lines as they are stored."),
    is_client=True,
)
def run_show(home: Home, settings: Settings, *, name: str, as_json: bool) -> int:
    """Show all of a session, an archive, or a chat (TYPE:ID)."""
    # Only names that a session can have are opened: FILE is no path, so that "../" leads nowhere.
    place = find_session(name)
    if place is None:
        return report_failure(f"{quote(name)} is no session; {program_name()} sessions list shows their names")
    # The stack keeps the errors of opening apart from those of the loop: the file is open when its lines are printed.
    with ExitStack() as stack:
        stack.enter_context(stored_data(home, settings, f"{place.files.folder}/"))
        try:
            file = stack.enter_context(open_archive(FolderFiles(home.data), place.name, place.files))
        except FileNotFoundError:
            return report_failure(
                f"there is no session {quote(name)}; {program_name()} sessions list shows their names"
            )
        except OSError as error:
            return report_failure(f"{name} cannot be read: {error.strerror or error}")
        for number, raw in _lines(file):
            # A session may have been damaged by hand. A bad byte must not end the output in the middle.
            line = raw.decode(errors="replace").removesuffix("\n") if as_json else line_text(number, raw)
            print_text(line, always=not as_json)
    return 0


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers, from 1 on; of one that is too long only the beginning.

    Memory stays bounded by LONGEST_LINE even for a file without a single line break.
    """
    number = 0
    while raw := file.readline(LONGEST_LINE + 2):
        number += 1
        rest = raw
        while not rest.endswith(b"\n") and (rest := file.readline(LONGEST_LINE)):
            pass  # too long to be one of ours
        yield number, raw


def _session_row(session: dict[str, Any]) -> str:
    """Return one session in one line.

    Times come from the lines of the file and may be missing, in a session that was copied or damaged.
    """
    began, ended = ("?" if ts is None else format_time(ts) for ts in (session["began"], session["ended"]))
    span = (
        f"{began} – {ended}" if session["ended"] is not None else f"since {began}" if began != "?" else "no time known"
    )
    # A session that was compacted begins with a summary of the one before, which is named.
    before = f"; goes on from {session['previousSession']}" if session["previousSession"] else ""
    how = f"; begins with a summary{before}" if session["summary"] else before
    lines = "" if session["lines"] is None else f"{plural(session['lines'], 'line')}, "
    chat = f"; chat {session['chat']}" if session["chat"] else ""
    return f"{session['file']:<27} {span}  {lines}{session['bytes']:,} bytes{how}{chat}"
