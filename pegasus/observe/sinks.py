"""Places that log lines go to. A sink never raises and never waits: lines that it cannot write are counted instead.

The event loop writes the log itself, so that a reader of stderr who is stuck, or a disk that is full, must not hold it up.
logging.handlers does not promise that: its handlers block, and print a traceback for each line that fails.

A file on a local disk takes a line without waiting, so that `RotatingFile` writes directly. A pipe does not: `Stream` asks
the kernel with poll(2) before each piece. O_NONBLOCK would be simpler, but it belongs to the open file and not to the
descriptor, so that it would also change stderr for the terminal and for every process that shares it.

Lines are lost rather than kept for later: what is kept would have to be bounded anyway, and would be written out of order.
The next line that gets through says how many are missing.
"""

from __future__ import annotations

import errno
import os
import select
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

MAX_BYTES: Final = 10_000_000
"""Bytes of a full log file: about 100,000 lines, and still quick to open in an editor."""
KEEP: Final = 5
"""Log files in all, so that the log of a home takes 50 MB at most."""
_PIPE_CHUNK: Final = 4096
"""PIPE_BUF: what a pipe that polls as writable takes without waiting (pipe(7))."""


class Sink(Protocol):
    """Place for lines."""

    lost: int
    """Lines that were not written since the last one that was."""

    def write(self, line: bytes) -> None:
        """Write one line, newline included."""

    def close(self) -> None:
        """Close the place."""


class RotatingFile:
    """File that is renamed to `NAME.1` when it is full.

    max_bytes: size of a full file. keep: number of files in all, the oldest is dropped. A file that cannot be written
    (full disk, no permission, removed folder) is tried again with every line; the first line that gets through is preceded
    by one that says how many were lost.

    Example::

        file = RotatingFile(home.log)
        file.write(b"a line" + newline)
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, keep: int = KEEP) -> None:
        self.lost = 0
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._descriptor = -1
        """-1 while the file is not open."""
        self._size = 0
        """Bytes in the file as far as this process knows; another one may append to it, too."""
        self._torn = False
        """The last line was written in part, and has no end yet."""

    def write(self, line: bytes) -> None:
        try:
            if self._descriptor < 0:
                self._open()
            if self._size and self._size + len(line) > self._max_bytes:
                self._rotate()
            self._append(self._preface() + line)
        except OSError:
            self.lost += 1

    def close(self) -> None:
        if self._descriptor >= 0:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        """Open the file for appending. O_NONBLOCK: a FIFO in its place must not be waited for."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._descriptor = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def _preface(self) -> bytes:
        """Return what stands before the next line: an end for a torn line, a count of lost ones."""
        newline = b"\n" if self._torn else b""
        return newline + (_loss(self.lost) if self.lost else b"")

    def _append(self, data: bytes) -> None:
        """Write a line; a full disk may take a part of it, which is then ended before the next one."""
        written = os.write(self._descriptor, data)
        self._size += written
        self._torn = written < len(data)
        if self._torn:
            raise OSError(errno.ENOSPC, "only a part was written")
        self.lost = 0

    def _rotate(self) -> None:
        """Rename the files. Where that fails, the present one grows until the next attempt."""
        self._size = 0
        with suppress(OSError):
            for n in range(self._keep - 1, 0, -1):
                with suppress(FileNotFoundError):
                    self._aside(n - 1).replace(self._aside(n))
            self.close()
            self._open()

    def _aside(self, n: int) -> Path:
        """Return the path of the n-th newest file; 0 is the one that is written."""
        return self._path.with_name(f"{self._path.name}.{n}") if n else self._path


class Stream:
    """Open descriptor, as stderr. A pipe that nobody reads loses lines; a closed one is not tried again."""

    def __init__(self, descriptor: int) -> None:
        self.lost = 0
        self._descriptor = descriptor
        self._torn = False
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def write(self, line: bytes) -> None:
        if self._descriptor < 0:
            return
        preface = (b"\n" if self._torn else b"") + (_loss(self.lost) if self.lost else b"")
        try:
            complete = self._put(preface + line)
            self.lost = 0 if complete else self.lost + 1
        except BlockingIOError:
            self.lost += 1
        except OSError:
            self._descriptor = -1

    def close(self) -> None:
        self._descriptor = -1

    def _put(self, data: bytes) -> bool:
        """Write as much as the reader takes at once; return False if that was not everything.

        A line that was begun is torn, and so is one that was torn before and of which nothing more got through.
        """
        at = 0
        while at < len(data) and self._writable():
            at += os.write(self._descriptor, data[at : at + _PIPE_CHUNK])
        self._torn = 0 < at < len(data) or (self._torn and at == 0)
        return at == len(data)

    def _writable(self) -> bool:
        """Return True if a write of a small piece will not block."""
        return bool(self._poll.poll(0))


def _loss(lost: int) -> bytes:
    """Return the line that says how many are missing."""
    return f"({lost} log lines are missing here: they could not be written)\n".encode()
