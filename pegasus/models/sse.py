"""Server-sent events, without I/O: bytes in, (event, data) out (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

Event = tuple[bytes, bytes]
"""The event's name (b"" if it has none) and its data, lines joined by newlines."""


class EventDecoder:
    """Feed it the body as it comes, cut anywhere. An event that was not ended by an empty line is not given."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._last = b""

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are complete now, in order. Comments, ids and retry times are left out."""
        seam = self._last + chunk
        self._pieces.append(chunk)
        self._last = seam[-1:]
        if b"\n\n" not in seam and b"\r" not in seam:
            return []  # the middle of an event: looking at all of it again would cost the square of its length
        data = self.rest
        if b"\r" in data:
            data = self._unify(data)
        *blocks, rest = data.split(b"\n\n")
        self._pieces, self._last = [rest], rest[-1:]
        return [event for block in blocks if (event := _event(block)) is not None]

    @property
    def rest(self) -> bytes:
        """What came after the last complete event."""
        return b"".join(self._pieces)

    def _unify(self, data: bytes) -> bytes:
        """All line ends as one newline. A CR at the very end waits: the LF of a CRLF may follow."""
        held = b"\r" if data.endswith(b"\r") else b""
        body = data[: len(data) - len(held)]
        return body.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held


def _event(block: bytes) -> Event | None:
    name = b""
    data: list[bytes] = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
    return (name, b"\n".join(data)) if data else None
