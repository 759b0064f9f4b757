r"""Framing of streamed answers: how the bytes of a response become the JSON texts that a wire format understands.

Two framings are in use. Most services send server-sent events (`EventDecoder`); Ollama sends a JSON object in each line
(`LineDecoder`). A wire format names its own in `WireFormat.decoder`. Chunks of a response may be cut anywhere.

    decoder = wire.decoder()
    for chunk in (b"event: delta\ndata: {", b"}\n\n"):
        for data in decoder.feed(chunk):
            …  # b"{}"
"""

from __future__ import annotations

from typing import Protocol


class StreamDecoder(Protocol):
    """Decoder of one response."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; return the texts that are complete now, in order."""

    def end(self) -> list[bytes]:
        """Note the end of the response. Return the last text, if only the mark of its end is missing."""

    @property
    def rest(self) -> bytes:
        """Bytes after the last complete text."""

    def is_framed(self, rest: bytes) -> bool:
        """Return False for bytes that cannot be the beginning of a text in this framing: they are something else altogether."""


class EventDecoder:
    r"""Decoder of server-sent events.

    Only what model providers use is implemented (https://html.spec.whatwg.org/multipage/server-sent-events.html): the data of
    events. Names, ids, retry times and comments are skipped; some servers send comments (": keep-alive") while the model thinks.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        """Bytes of the incomplete event, all line ends as newlines."""
        self._ends_in_return = False
        """True if the chunk before ended in CR: the LF of a CRLF may follow."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; return the data of the events that are complete now, in order. An event ends with an empty line."""
        if not chunk:
            return []
        if self._ends_in_return:
            chunk = chunk.removeprefix(b"\n")
        self._ends_in_return = chunk.endswith(b"\r")
        searched = max(0, len(self._buffer) - 1)  # the empty line may be cut in two
        self._buffer += chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = self._buffer.rfind(b"\n\n", searched)
        if end < 0:
            return []
        blocks = bytes(self._buffer[:end]).split(b"\n\n")
        del self._buffer[: end + 2]
        lines = ([line for line in block.split(b"\n") if line.startswith(b"data:")] for block in blocks)
        return [b"\n".join(line[5:].removeprefix(b" ") for line in data) for data in lines if data]

    def end(self) -> list[bytes]:
        """Return the data of the last event: it may lack its empty line."""
        return self.feed(b"\n\n")

    @property
    def rest(self) -> bytes:
        """Bytes after the last complete event."""
        return bytes(self._buffer)

    def is_framed(self, rest: bytes) -> bool:
        """Return True for the beginning of an event's line."""
        return rest.startswith((b"data:", b"event:", b"id:", b":"))


class LineDecoder:
    """Decoder of JSON objects that stand in a line each (https://github.com/ndjson/ndjson-spec)."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        """Pieces of the incomplete line. They are joined only when it ends, so that a long line is not copied for each chunk."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; return the lines that are complete now, in order, without empty ones."""
        head, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._pieces.append(chunk)
            return []
        lines = b"".join((*self._pieces, head)).split(b"\n")
        self._pieces = [rest]
        return [line for line in lines if line.strip()]

    def end(self) -> list[bytes]:
        """Return the last line, which may lack its newline."""
        return self.feed(b"\n")

    @property
    def rest(self) -> bytes:
        """Bytes after the last complete line."""
        return b"".join(self._pieces)

    def is_framed(self, rest: bytes) -> bool:
        """Return True for the beginning of an object."""
        return rest.lstrip().startswith(b"{")
