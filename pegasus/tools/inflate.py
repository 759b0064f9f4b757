"""Decompressing a body as it comes, and never more of it than is wanted: a small one may stand for gigabytes."""

from __future__ import annotations

import zlib
from typing import Any, Final

_GZIP_OR_ZLIB: Final = 47  # window bits that let zlib look at the header
_RAW: Final = -15


class Inflater:
    """Takes the bytes of a body. encoding: its Content-Encoding; limit: bytes of the result, at most.

    problem: what stood in the way of decompressing it, or "".
    """

    def __init__(self, encoding: str, limit: int) -> None:
        names = [name for part in encoding.lower().split(",") if (name := part.strip()) not in ("", "identity")]
        self._limit = limit
        self._zipped = names in (["gzip"], ["x-gzip"], ["deflate"])
        self._deflate = names == ["deflate"]
        self._engine: Any = zlib.decompressobj(_GZIP_OR_ZLIB) if self._zipped else None
        self._found = bytearray()
        self._cut = False
        self._given = self._ended = False
        self._first = True
        self._past = False
        self.problem = (
            "" if self._zipped or not names else f"the body is compressed in a way that is not read: {encoding}"
        )

    @property
    def data(self) -> bytes:
        """What there is so far."""
        return bytes(self._found)

    @property
    def full(self) -> bool:
        """True when nothing more is taken."""
        return self._cut or bool(self.problem)

    @property
    def complete(self) -> bool:
        """True if the data are the whole body."""
        return self._ended and not self._cut and not self.problem

    def add(self, data: bytes) -> None:
        """The next bytes."""
        if not self._zipped and not self.problem:
            self._take(data)
            return
        self._given = self._given or bool(data and self._zipped)
        while data and not self.full and not self._past:
            if self._engine.eof:  # gzip files may stand one behind the other
                self._engine = zlib.decompressobj(_GZIP_OR_ZLIB)
                self._first = False
            data = self._inflate(data)

    def end(self) -> None:
        """There are no more."""
        self._ended = True
        if self._given and not self._engine.eof and not self.full and not self._past:
            self.problem = "the compressed body ends too early"

    def _inflate(self, data: bytes) -> bytes:
        room = self._limit - len(self._found) + 1
        try:
            found = self._engine.decompress(data, room)
        except zlib.error as error:
            if self._deflate and not self._found:  # some servers leave out the header that the standard asks for
                self._deflate = False
                self._engine = zlib.decompressobj(_RAW)
                return data
            if self._first:
                self.problem = f"the compressed body is damaged: {error}"
            self._past = True  # what stands behind a whole file and is none is filling
            return b""
        self._take(found)
        rest: bytes = self._engine.unused_data if self._engine.eof else self._engine.unconsumed_tail
        return rest

    def _take(self, data: bytes) -> None:
        room = self._limit - len(self._found)
        self._found += data[:room]
        self._cut = self._cut or len(data) > room
