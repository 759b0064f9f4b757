"""stdin and stdout as pipes: read and written in threads, with no lock that an abandoned thread could keep at exit."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import trio

_CHUNK = 65536


class Lines:
    """The lines of a file descriptor, as text without their ends; bytes that are no UTF-8 become U+FFFD.

    longest: bytes kept of a line; more of it is read and thrown away but for one byte, so that who checks the size sees
    that it is too much. Cancelled while waiting, the thread stays in its read until there is something.
    """

    def __init__(self, fd: int, *, longest: int) -> None:
        self._fd = fd
        self._longest = longest

    async def __aiter__(self) -> AsyncIterator[str]:
        rest = b""
        while chunk := await trio.to_thread.run_sync(os.read, self._fd, _CHUNK, abandon_on_cancel=True):
            *lines, last = chunk.split(b"\n")
            for line in lines:
                yield self._text(rest + line)
                rest = b""
            rest = (rest + last)[: self._longest + 1]
        if rest:
            yield self._text(rest)

    def _text(self, line: bytes) -> str:
        return line[: self._longest + 1].removesuffix(b"\r").decode("utf-8", "replace")


async def write_all(fd: int, text: str) -> None:
    """Write the text as UTF-8; waits while the reader is slow. Raises BrokenPipeError when there is none any more."""
    await trio.to_thread.run_sync(_write_all, fd, text.encode("utf-8", "replace"), abandon_on_cancel=True)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
