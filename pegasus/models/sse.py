r"""Server-sent events without I/O: bytes in, events out (https://html.spec.whatwg.org/multipage/server-sent-events.html).

    decoder = EventDecoder()
    for chunk in (b"event: delta\ndata: {", b"}\n\n"):
        for name, data in decoder.feed(chunk):
            …  # (b"delta", b"{}")

Only what model providers use is implemented: events with name and data. Ids, retry times and comments are skipped; some servers send
comments (": keep-alive") while the model thinks. Names and data are bytes: the JSON parser decodes the data, and invalid UTF-8 is
then an error of that event.
"""

from __future__ import annotations

from typing import TypeAlias

Event: TypeAlias = tuple[bytes, bytes]
"""Name of an event (b"" if it has none) and its data, with lines joined by newlines."""


class EventDecoder:
    """Decoder of an event stream that arrives in chunks, which may be cut anywhere.

    An event ends with an empty line. An event that the stream does not complete is never returned; see `rest`.
    """

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        """Chunks of the incomplete event. They are joined only when its end has come: joining at every chunk would take quadratic
        time for an event of many megabytes."""
        self._last_byte = b""
        """End of the chunk before: the empty line may be cut in two."""

    def feed(self, chunk: bytes) -> list[Event]:
        """Take a chunk; return the events that are complete now, in order. Comments, ids and retry times are ignored."""
        recent = self._last_byte + chunk
        self._chunks.append(chunk)
        self._last_byte = recent[-1:]
        if b"\n\n" not in recent and b"\r" not in recent:
            return []
        data = self.rest
        if b"\r" in data:
            data = _normalise_line_ends(data)
        *blocks, rest = data.split(b"\n\n")
        self._chunks, self._last_byte = [rest], rest[-1:]
        return [event for block in blocks if (event := _parse_event(block)) is not None]

    @property
    def rest(self) -> bytes:
        """Bytes after the last complete event."""
        return b"".join(self._chunks)


def _normalise_line_ends(data: bytes) -> bytes:
    """Replace CRLF and CR by newlines, except for a CR at the very end: the LF of a CRLF may follow."""
    held = b"\r" if data.endswith(b"\r") else b""
    body = data[: len(data) - len(held)]
    return body.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held


def _parse_event(block: bytes) -> Event | None:
    """Return the event in a block of lines, None if it has no data."""
    name = b""
    data: list[bytes] = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
    return (name, b"\n".join(data)) if data else None
