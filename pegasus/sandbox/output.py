"""Bounded memory of what a command writes: the beginning and the end of it, or the newest part with its position."""

from __future__ import annotations

import codecs
from typing import Final

DEFAULT_OUTPUT: Final = 64 * 1024
"""Bytes of each stream that are kept: about 16,000 tokens, more than a model can use of one command."""

_CONTINUATION_BYTES: Final = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 that continue a character."""


class HeadAndTail:
    """The beginning and the end of a stream of any length. Memory stays within about three times the limit.

    For example:

        output = HeadAndTail(1000)
        output.add(b"...")
        output.text()
    """

    def __init__(self, limit: int = DEFAULT_OUTPUT) -> None:
        """limit: bytes to keep, half of them from the beginning and half from the end."""
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        """At least the last half; trimmed only when it is four times that, so that adding stays cheap."""
        self.total = 0
        """Bytes of the stream so far."""

    def add(self, data: bytes | bytearray) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._half :] if self._half else b""
        if len(self._tail) > 4 * self._half:
            del self._tail[: -self._half]

    @property
    def dropped(self) -> int:
        """Bytes in the middle that are not kept."""
        return self.total - len(self._head) - min(len(self._tail), self._half)

    @property
    def truncated(self) -> bool:
        """True if something is not kept."""
        return self.dropped > 0

    def text(self) -> str:
        """Return the kept text. Bytes that are not UTF-8 are replaced, and a line in the middle tells how much is missing."""
        tail = bytes(self._tail[-self._half :]) if self._half else b""
        if not self.truncated:
            return bytes(self._head + tail).decode("utf-8", "replace")
        # An incremental decoder keeps back a last character that is cut in two. The tail may begin with the end of one.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(self._head)
        tail = tail.lstrip(_CONTINUATION_BYTES)
        return f"{head}\n… {self.dropped:,} bytes left out …\n{tail.decode('utf-8', 'replace')}"


class OutputRing:
    """The newest part of a stream of any length, by position. Memory stays within about twice the limit.

    For example:

        ring = OutputRing(1000)
        ring.add(b"...")
        data, missing = ring.read(0)   # what is kept from position 0 on, and how many bytes before it are lost
    """

    def __init__(self, limit: int = DEFAULT_OUTPUT) -> None:
        """limit: bytes to keep."""
        self._limit = limit
        self._kept = bytearray()
        """At least the newest bytes up to the limit; trimmed only at twice that, so that adding stays cheap."""
        self.total = 0
        """Bytes of the stream so far, which is the position of the next one."""

    def add(self, data: bytes | bytearray) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        self._kept += data[-self._limit :]
        if len(self._kept) > 2 * self._limit:
            del self._kept[: -self._limit]

    def read(self, position: int, count: int | None = None) -> tuple[bytes, int]:
        """Return up to `count` bytes from a position on, and the number of bytes that are lost between it and the first of them."""
        first = self.total - min(len(self._kept), self._limit)
        start = max(position, first)
        at = len(self._kept) - (self.total - start)
        end = len(self._kept) if count is None else at + count
        return bytes(self._kept[at:end]), start - position
