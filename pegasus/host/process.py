"""The process: its limit of file descriptors, its protection, its clock, its standard streams.

**File descriptors.** Every connection, file and subprocess of the daemon needs descriptors, and most systems start a process
with a soft limit of 1,024 (macOS: 256), which a few hundred clients exhaust. The hard limit is much higher, and a process
may raise its soft limit up to it. Very high limits are not taken, because some programs that the daemon starts close every
possible descriptor one by one.

**Protection against other processes of the same user.** The daemon holds secrets in its environment and its memory: API
keys, the gateway's token, the messages of people. By default Linux lets every process of the same user read them through
`/proc/<pid>/environ` and `/proc/<pid>/mem`, and lets it attach a debugger. Commands that the agent runs are such processes,
and a model that was misled by a web page decides what they are. A process that is not "dumpable" (prctl(2), PR_SET_DUMPABLE)
is closed to them: its files in `/proc` belong to root, ptrace(2) is refused, and a crash leaves no core file with secrets in
it. Processes with the capability CAP_SYS_PTRACE, root's among them, may still look.

The attribute is reset by execve(2), so that programs which the daemon starts are not affected.

**Standard streams.** They may be closed, full or unread: writing to them must never end the process or hide an error. Python
flushes stdout and stderr once more at exit. Text that could not be written the first time then fails again, as an "Exception
ignored" message and exit code 120. So after a failure the stream's descriptor is redirected to nothing. A daemon may outlive the
reader of its stdout, such as a script that waited for the ready line only. Its later output is then dropped without an error;
what matters is in the log file too.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import time
from contextlib import suppress
from io import TextIOWrapper
from typing import Final, TextIO

WANTED_DESCRIPTORS: Final = 8192
"""The soft limit that is asked for: the gateway's connections, and many times what everything else needs."""

_PR_SET_DUMPABLE: Final = 4
"""Number of the option in <linux/prctl.h>; Python has no name for it."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit to WANTED_DESCRIPTORS, or as far as the system allows. Return the limit that is in force.

    Never lowers it, and never fails: where it cannot be raised, the present limit is returned. An unlimited one is returned
    as WANTED_DESCRIPTORS, so that the gateway can derive from it how many connections it takes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(WANTED_DESCRIPTORS, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return WANTED_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS allows less than its hard limit says
        return soft
    return wanted


def forbid_inspection() -> bool:
    """Make this process non-dumpable; call it before secrets are read. Return False where the system cannot do that.

    Never raises: on other systems than Linux nothing happens, since a daemon without this protection is better than none.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def command_name() -> str:
    """Return the command that starts Pegasus with this home, for hints of the daemon; `pegasus run` passes it in the environment."""
    return os.environ.get("PEGASUS_COMMAND") or "pegasus"


def wall_clock() -> int:
    """Return the wall clock, in ms since the epoch: the `clock` that the parts of the product are given."""
    return time.time_ns() // 1_000_000


# ------------------------------------------------------------------ standard streams


def fill_standard_streams() -> None:
    """Open closed standard streams on /dev/null, before a socket or the log file gets their number.

    stdin and stdout replace characters that their encoding lacks, instead of raising.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    if sys.stdin is None:  # whoever reads it finds its end; what is written to no stream is nothing to Python
        sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115  open as long as the process
    for stream in (sys.stdin, sys.stdout):
        # In the locale C they are of ASCII, and let bytes pass that are no text; characters beyond it would still raise.
        is_strict = isinstance(stream, TextIOWrapper) and (stream.errors == "strict" or stream.encoding == "ascii")
        if isinstance(stream, TextIOWrapper) and is_strict:
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
