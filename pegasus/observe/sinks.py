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

import os
import select
from contextlib import suppress
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 10_000_000
"""Bytes of a full log file: about 100,000 lines, and still quick to open in an editor."""
KEEP: Final = 5
"""Log files in all, so that the log of a home takes 50 MB at most."""
_PIPE_CHUNK: Final = 4096
"""PIPE_BUF: what a pipe that polls as writable takes without waiting (pipe(7))."""


class Sink:
    """Place for lines. A subclass has `_put`; this class counts what was lost and ends lines that were torn.

    The first line that gets through after losses is preceded by one that says how many were lost.

    Example: `Stream(2).write(b"a line" + newline)`; if the place takes nothing, the line counts as lost and nobody waits.
    """

    lost: int
    """Lines that were not written since the last one that was."""

    def __init__(self, descriptor: int = -1) -> None:
        self.lost = 0
        self._descriptor = descriptor
        """-1 while the place is not open."""
        self._torn = False
        """The last line was written in part, and has no end yet."""

    def write(self, line: bytes) -> None:
        """Write one line, newline included."""
        loss = f"({self.lost} log lines are missing here: they could not be written)\n".encode() if self.lost else b""
        data = (b"\n" if self._torn else b"") + loss + line
        written = self._put(data)
        self.lost = 0 if written == len(data) else self.lost + 1
        if written:
            self._torn = written < len(data)

    def close(self) -> None:
        """Forget the place. Whoever has opened it closes it."""
        self._descriptor = -1

    def _put(self, data: bytes) -> int:
        """Write as much as the place takes at once; return how many bytes that was."""
        raise NotImplementedError


class RotatingFile(Sink):
    """File that is renamed to `NAME.1` when it is full.

    max_bytes: size of a full file. keep: number of files in all, the oldest is dropped. A file that cannot be written
    (full disk, no permission, removed folder) is tried again with every line.

    Example::

        file = RotatingFile(home.log)
        file.write(b"a line" + newline)
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, keep: int = KEEP) -> None:
        super().__init__()
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._size = 0
        """Bytes in the file as far as this process knows; another one may append to it, too."""

    def close(self) -> None:
        """Close the file. The next line opens it anew, so a file that somebody has moved away is made again."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.close(self._descriptor)
        super().close()

    def _put(self, data: bytes) -> int:
        written = 0
        with suppress(OSError):
            if self._descriptor < 0:
                self._open()
            if self._size and self._size + len(data) > self._max_bytes:
                self._rotate()
            written = os.write(self._descriptor, data)
            self._size += written
        return written

    def _open(self) -> None:
        """Open the file for appending. O_NONBLOCK: a FIFO in its place must not be waited for."""
        self._remove_surplus()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._descriptor = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        """Rename the files. Where that fails, the present one grows until the next attempt."""
        self._size = 0
        with suppress(OSError):
            for n in range(self._keep - 1, 0, -1):
                with suppress(FileNotFoundError):
                    self._aside(n - 1).replace(self._aside(n))
            self.close()
            self._open()

    def _remove_surplus(self) -> None:
        """Remove older files than `keep` allows: those of a time when more were kept."""
        for path in self._path.parent.glob(f"{self._path.name}.*"):
            number = path.name.rpartition(".")[2]
            if number.isdecimal() and int(number) >= self._keep:
                with suppress(OSError):
                    path.unlink()

    def _aside(self, n: int) -> Path:
        """Return the path of the n-th newest file; 0 is the one that is written."""
        return self._path.with_name(f"{self._path.name}.{n}") if n else self._path


class Stream(Sink):
    """Open descriptor, as stderr. A pipe that nobody reads loses lines; a closed one is not tried again."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def _put(self, data: bytes) -> int:
        """Write as much as the reader takes at once, in pieces that do not block where poll(2) finds room.

        A closed stream takes everything: lines that nobody can ever read are not counted as lost.
        """
        at = 0
        try:
            while self._descriptor >= 0 and at < len(data) and self._poll.poll(0):
                at += os.write(self._descriptor, data[at : at + _PIPE_CHUNK])
        except BlockingIOError:
            pass
        except OSError:
            self._descriptor = -1
        return at if self._descriptor >= 0 else len(data)
