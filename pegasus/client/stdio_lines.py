"""Lines on stdin and stdout, for programs that an editor or an assistant starts and talks with.

Both are read and written in threads: they may be pipes, files or a terminal, and a flag for non-blocking use on a file that other
processes hold would surprise them. A read that nobody waits for any more is abandoned; it ends with the process.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Final

import trio

LONGEST_LINE: Final = 32 << 20
"""Bytes of a line; longer ones are refused."""
READ_BYTES: Final = 1 << 16


async def read_lines(file: int) -> AsyncIterator[bytes | None]:
    """Yield lines without their ends, and None for each that is longer than LONGEST_LINE. Empty ones are left out."""
    buffer, is_too_long = bytearray(), False
    while chunk := await trio.to_thread.run_sync(os.read, file, READ_BYTES, abandon_on_cancel=True):
        first, *rest = chunk.split(b"\n")
        buffer += b"" if is_too_long else first
        for part in rest:
            if is_too_long or buffer.strip():
                yield None if is_too_long else bytes(buffer)
            buffer, is_too_long = bytearray(part), False
        if len(buffer) > LONGEST_LINE:
            buffer, is_too_long = bytearray(), True


async def write_line(file: int, line: bytes) -> None:
    """Write a line, with its end. Waits while the reader does not read. Raises OSError if there is none."""
    await trio.to_thread.run_sync(_write_all, file, line, abandon_on_cancel=True)


def _write_all(file: int, line: bytes) -> None:
    view = memoryview(line)
    while view:
        view = view[os.write(file, view) :]
