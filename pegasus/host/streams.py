"""Standard streams that may be closed, full or unread: writing to them must never end the process or hide an error.

Python flushes stdout and stderr once more at exit. Text that could not be written the first time then fails again, as an
"Exception ignored" message and exit code 120. So after a failure the stream's descriptor is redirected to nothing.

A daemon may outlive the reader of its stdout, such as a script that waited for the ready line only. Its later output is
then dropped without an error; what matters is in the log file too.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import TextIO


def fill_standard_streams() -> None:
    """Open closed standard streams on /dev/null, before a socket or the log file gets their number.

    stdin and stdout replace characters that their encoding lacks, instead of raising.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def print_line(line: str) -> None:
    """Write a line to stdout at once. No effect where stdout is closed or nobody reads it."""
    _write(sys.stdout, line)


def print_error(line: str) -> None:
    """Write a line to stderr at once. No effect where stderr is closed or nobody reads it."""
    _write(sys.stderr, line)


def silence_stream(stream: TextIO | None) -> None:
    """Redirect the stream to nothing, so that text in its buffer does not fail again at exit."""
    if stream is None:
        return
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _write(stream: TextIO | None, line: str) -> None:
    """Write a line and flush; after a failure the stream is silenced."""
    if stream is None:
        return
    try:
        stream.write(line + "\n")
        stream.flush()
    except (OSError, ValueError):
        silence_stream(stream)
