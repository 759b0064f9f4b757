"""stdin and stdout as pipes: read and written in threads, with no lock that an abandoned thread could keep at exit."""

from __future__ import annotations

import os
from collections import deque

import trio

_CHUNK = 65536


class Lines:
    """The lines of a file descriptor, as text without their ends; bytes that are no UTF-8 become U+FFFD.

    longest: bytes kept of a line, and one more, so that who checks the size sees that it is too much; the rest is read
    and thrown away. Cancelled while waiting, the thread stays in its read until there is something.
    """

    def __init__(self, fd: int, *, longest: int) -> None:
        self._fd = fd
        self._longest = longest
        self._ready: deque[bytes] = deque()
        self._begun = b""
        self._ended = False

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> str:
        while not self._ready and not self._ended:
            self._take(await trio.to_thread.run_sync(os.read, self._fd, _CHUNK, abandon_on_cancel=True))
        if not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft().removesuffix(b"\r").decode("utf-8", "replace")

    def _take(self, chunk: bytes) -> None:
        self._ended = not chunk
        *whole, begun = chunk.split(b"\n")
        for line in whole:
            self._ready.append(self._grown(line))
            self._begun = b""
        self._begun = self._grown(begun)
        if self._ended and self._begun:
            self._ready.append(self._begun)

    def _grown(self, more: bytes) -> bytes:
        return (self._begun + more)[: self._longest + 1]


async def write_all(fd: int, text: str) -> None:
    """Write the text as UTF-8; waits while the reader is slow. Raises BrokenPipeError when there is none any more."""
    await trio.to_thread.run_sync(_write_all, fd, text.encode("utf-8", "replace"), abandon_on_cancel=True)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
