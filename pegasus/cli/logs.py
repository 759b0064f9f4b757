"""`pegasus logs`: the end of the daemon's log, and what comes after it.

The files are read, and no daemon is asked: the log is wanted most when none runs, or when one hangs. The daemon renames a full file
(`observe.sinks`) and begins another; the one that is being read is read to its end then, and the next one from its beginning, so that
no line is missed and none is shown twice.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import click

from pegasus.cli.commands import Options, WholeNumber, pegasus, program_name
from pegasus.cli.control import print_text, report_failure

_MOST: Final = 100_000
"""Lines that can be asked for: about as many as one full file has."""
_BLOCK: Final = 65_536
"""Bytes that are read at a time, from the end of a file towards its beginning."""
_PAUSE: Final = 0.25
"""Seconds between two looks at a file that is followed."""
_LONGEST: Final = 4 * 1024 * 1024
"""Bytes of a line without an end at which the piece that is there is shown."""


@pegasus.declare(
    "logs",
    click.Option(["-f", "--follow"], is_flag=True, help="Go on with what comes, until Ctrl-C."),
    click.Option(["-n", "--lines"], default=50, show_default=True, type=WholeNumber(0, _MOST), help="How many."),
    options_only=True,
)
def run_logs(options: Options, *, follow: bool, lines: int) -> int:
    """Show the end of the log, also of an agent that has ended."""
    path = options.home().log
    file = _open(path)
    if file is None and not follow:
        return report_failure(f"there is no log yet ({path}); {program_name()} run writes it")
    try:
        _print(_last_lines(path, file, lines))
        if follow:
            _follow(path, file)
    finally:
        if file is not None:
            file.close()
    return 0


def _open(path: Path) -> BinaryIO | None:
    """Return the open file, None where there is none. Raises OSError for another reason."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _last_lines(path: Path, file: BinaryIO | None, count: int) -> list[bytes]:
    """Return the last lines of the log, also from older files. The open one is read on behind its last whole line."""
    lines = _tail(file, count) if file is not None else []
    number = 1
    while len(lines) < count:
        with suppress(FileNotFoundError), path.with_name(f"{path.name}.{number}").open("rb") as older:
            lines = _tail(older, count - len(lines)) + lines
            number += 1
            continue
        break
    return lines


def _tail(file: BinaryIO, count: int) -> list[bytes]:
    """Return the last whole lines of a file, and leave its position behind them."""
    end = position = file.seek(0, os.SEEK_END)
    data = b""
    while position and data.count(b"\n") <= count:
        size = min(_BLOCK, position)
        position -= size
        file.seek(position)
        data = file.read(size) + data
    whole = data.rpartition(b"\n")
    file.seek(end - len(whole[2]))
    lines = whole[0].split(b"\n") if whole[1] else []
    return lines[-count:] if count else []


def _follow(path: Path, file: BinaryIO | None) -> None:
    """Print what is added to the log, until Ctrl-C. The file is closed at the end."""
    pending = b""
    try:
        while True:
            current = _open(path)
            if file is None:
                file = current
            elif current is not None and not _is_rest_of(file, current):
                # Whatever the daemon wrote before it renamed the file is there now: it writes to one at a time.
                _print([line for line in (pending + file.read()).split(b"\n") if line])
                file.close()
                file, pending = current, b""
            elif current is not None:
                current.close()
            if file is not None:
                *lines, pending = (pending + file.read()).split(b"\n")
                if len(pending) > _LONGEST:
                    lines, pending = [*lines, pending], b""
                _print(lines)
            time.sleep(_PAUSE)
    finally:
        if file is not None:
            file.close()


def _is_rest_of(file: BinaryIO, current: BinaryIO) -> bool:
    """Return whether the file of the log's name is the one that is read, and was not cut."""
    state, known = os.fstat(current.fileno()), os.fstat(file.fileno())
    return (state.st_dev, state.st_ino) == (known.st_dev, known.st_ino) and state.st_size >= file.tell()


def _print(lines: list[bytes]) -> None:
    """Print lines of the log: as they are for a program, without control characters on a terminal."""
    if lines:
        print_text("\n".join(line.decode("utf-8", "replace") for line in lines), always=False)
