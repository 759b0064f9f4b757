"""`pegasus sessions …`: the session and what was put aside of it, from the files, whether or not a daemon runs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, BinaryIO

from pegasus.cli.rows import fitted
from pegasus.formatting import format_time, plural
from pegasus.host import Home
from pegasus.main_agent import CURRENT, LONGEST, archive_names, is_archive, line_text, open_archive


def run_list(home: Home, *, as_json: bool) -> int:
    """A line for each: when it began and ended, how long it is, how it began."""
    folder = os.fspath(home.data / "main")
    try:
        found = [_look(folder, name) for name in (*archive_names(folder), CURRENT) if _is_there(folder, name)]
    except OSError as error:
        return _complain(f"{folder}: {error.strerror or error}")
    if as_json:
        print(json.dumps({"sessions": found}, ensure_ascii=False))
    else:
        print("\n".join(fitted(_row(one)) for one in found) or "No sessions.")
    return 0


def run_show(home: Home, *, name: str, as_json: bool) -> int:
    """All of one session, readable or as it is stored."""
    if name != CURRENT and not is_archive(name):
        return _complain(f"{name!r} is no session; pegasus sessions list shows their names")
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_archive(os.fspath(home.data / "main"), name))
        except FileNotFoundError:
            return _complain(f"there is no session {name!r}; pegasus sessions list shows their names")
        except OSError as error:
            return _complain(f"{name} cannot be read: {error.strerror or error}")
        for number, raw in _lines(file):
            print(raw.decode(errors="replace").removesuffix("\n") if as_json else line_text(number, raw))
    return 0


def _is_there(folder: str, name: str) -> bool:
    return os.path.isfile(os.path.join(folder, name))


def _look(folder: str, name: str) -> dict[str, Any]:
    """What is known of a session at a glance: bad lines count as lines, and tell nothing."""
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
    number = 0
    while raw := file.readline(LONGEST + 2):
        number += 1
        rest = raw
        while not rest.endswith(b"\n") and (rest := file.readline(LONGEST)):
            pass  # too long to be one of ours
        yield number, raw


def _object(raw: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        value = json.loads(raw)
        if isinstance(value, dict):
            return value
    return {}


def _time(raw: bytes) -> int | None:
    ts = _object(raw).get("ts")
    return ts if isinstance(ts, int) else None


def _row(session: dict[str, Any]) -> str:
    span = " – ".join("?" if ts is None else format_time(ts) for ts in (session["began"], session["ended"]))
    before = f"; goes on from {session['previousSession']}" if session["previousSession"] else ""
    how = f"; begins with a summary{before}" if session["summary"] else before
    return f"{session['file']:<27} {span}  {plural(session['lines'], 'line')}, {session['bytes']:,} bytes{how}"


def _complain(message: str) -> int:
    print(f"pegasus: {message}", file=sys.stderr)
    return 1
