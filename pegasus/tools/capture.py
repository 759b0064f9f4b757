"""What is kept of an output of any length: its head and its tail."""

from __future__ import annotations

from typing import Final

KEPT: Final = 64 * 1024
"""Bytes of one stream, unless the caller says otherwise: about 16,000 tokens, more than a model wants of one command."""


class Capture:
    """Takes bytes, keeps the first and the last `limit // 2` of them; memory does not grow beyond that."""

    def __init__(self, limit: int = KEPT) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """The next bytes of the stream."""
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
        """What is kept; bytes that are no UTF-8 are replaced, and a line in the middle says what is missing."""
        tail = bytes(self._tail[-self._half :]) if self._half else b""
        if not self.truncated:
            return bytes(self._head + tail).decode("utf-8", "replace")
        head = _whole_characters(bytes(self._head)).decode("utf-8", "replace")
        while tail and tail[0] & 0xC0 == 0x80:  # the end of a character whose beginning is gone
            tail = tail[1:]
        return f"{head}\n… {self.dropped:,} bytes left out …\n{tail.decode('utf-8', 'replace')}"


def _whole_characters(data: bytes) -> bytes:
    """Without a character at the end that is cut in two."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if byte >> 5 == 0b110 else 3 if byte >> 4 == 0b1110 else 4 if byte >> 3 == 0b11110 else 1
        return data[:-back] if length > back else data
    return data
