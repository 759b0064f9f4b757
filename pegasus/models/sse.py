"""Server-sent events, without I/O: bytes in, (event, data) out (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

Event = tuple[bytes, bytes]
"""The event's name (b"" if it has none) and its data, lines joined by newlines."""


class EventDecoder:
    """Feed it the body as it comes, cut anywhere. An event that was not ended by an empty line is not given."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are complete now, in order. Comments, ids and retry times are left out."""
        data = self._rest + chunk
        if b"\r" in data:
            data = self._unify(data)
        *blocks, self._rest = data.split(b"\n\n")
        return [event for block in blocks if (event := _event(block)) is not None]

    @property
    def rest(self) -> bytes:
        """What came after the last complete event."""
        return self._rest

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
