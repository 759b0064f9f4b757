"""Files of JSON lines: writing a line, and reading files that a crash may have damaged.

A line is a record only together with its newline. Bytes after the last newline were being written when the process or
the machine died. They are called *torn*: nobody was promised that they are safe, so cutting them off breaks no
promise. The same holds for a damaged line at the very end of the file, since a file system may write the last block of
an append without the blocks before it.

A damaged line anywhere else is reported and skipped; the lines around it stay readable. File systems fill blocks that
were allocated but not written with NUL bytes, and the next record may follow them without a newline in between.
Therefore NUL bytes at the beginning of a line are reported as damage of their own, and the record behind them is read.

Numbers of lines and offsets of bytes are those of the file, so that a report names the place that an editor shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pegasus.messages import Json
from pegasus.wire.text import encode_json


class Line(NamedTuple):
    """A good line of a file."""

    number: int
    """Number of the line, from 1."""
    offset: int
    """Place of its first byte in the file."""
    length: int
    """Number of its bytes, including the newline."""
    value: dict[str, Any]
    """The JSON object that it holds."""


class BadLine(NamedTuple):
    """Bytes of a file that are not a record."""

    number: int
    """Number of the line, from 1."""
    offset: int
    """Place of the first byte in the file."""
    raw: bytes
    """The bytes themselves."""
    problem: str
    """The reason why they are not a record, for people."""
    torn: bool = False
    """The bytes end the file, so that cutting them off loses nothing that was promised."""

    def __str__(self) -> str:
        return f"line {self.number}: {self.problem}"


class ReadLines(NamedTuple):
    """Content of a file of JSON lines."""

    good: tuple[tuple[int, dict[str, Any]], ...]
    """Number and JSON object of each good line."""
    bad: tuple[BadLine, ...]
    """Everything else, including a torn end."""


def encode_line(record: Mapping[str, Json]) -> bytes:
    """Return a JSON object as one line of UTF-8, with its newline. Raises as `encode_json` does."""
    return encode_json(record).encode() + b"\n"


def read_lines(data: bytes) -> ReadLines:
    """Return all good and bad lines of a file's content. Empty lines are neither."""
    good: list[tuple[int, dict[str, Any]]] = []
    bad: list[BadLine] = []
    for line in scan_lines(data):
        if isinstance(line, Line):
            good.append((line.number, line.value))
        else:
            bad.append(line)
    return ReadLines(tuple(good), tuple(bad))


def scan_lines(data: bytes) -> Iterator[Line | BadLine]:
    """Yield the good and bad lines of a file's content, in order. Empty lines are skipped."""
    offset, number = 0, 0
    while offset < len(data):
        number += 1
        end = data.find(b"\n", offset) + 1
        if not end:
            yield BadLine(number, offset, data[offset:], "the last line has no end: it was being written", torn=True)
            return
        raw = data[offset:end]
        value, problem = _parse(raw)
        if value is not None:
            yield Line(number, offset, len(raw), value)
        else:
            yield from _scan_damaged(raw, number, offset, problem, is_last=end == len(data))
        offset = end


def _scan_damaged(raw: bytes, number: int, offset: int, problem: str, *, is_last: bool) -> Iterator[Line | BadLine]:
    """Yield the parts of a line that is no record as it stands: NUL bytes, and perhaps a record behind them."""
    record = raw.lstrip(b"\0")
    nulls = len(raw) - len(record)
    if not record.strip():
        if nulls:
            yield BadLine(number, offset, raw, f"{nulls} NUL bytes", is_last)
        return
    value: dict[str, Any] | None = None
    if nulls:
        value, problem = _parse(record)
    if value is None:
        yield BadLine(number, offset, raw, problem, is_last)
        return
    yield BadLine(number, offset, raw[:nulls], f"{nulls} NUL bytes before the record")
    yield Line(number, offset + nulls, len(record), value)


def _parse(raw: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the object of a line, or None and the reason why it has none.

    NaN is accepted, unlike in `decode_json`: versions of the past may have written it, and a number that is no number
    is no reason to lose the rest of the record.
    """
    try:
        value = json.loads(raw.decode())
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 ({error.reason} at byte {error.start})"
    except RecursionError:
        return None, "nested too deep"
    except ValueError as error:
        return None, f"not JSON ({error})"
    return (value, "") if isinstance(value, dict) else (None, "not a JSON object")


def text_of(value: object) -> str:
    """Return the value, which must be a string. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def number_of(value: object) -> int:
    """Return the value, which must be a whole number from 0 to 2^63 - 1, as all counts are. Raises TypeError."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise TypeError("not a whole number")
    return value
