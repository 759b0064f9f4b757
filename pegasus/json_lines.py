r"""Files of JSON lines, which a crash may have damaged: `scan_lines` yields what is whole, and what is not.

A line is a record only together with its newline. Bytes after the last newline were being written when the process or the machine
died. They are called *torn*: nobody was promised that they are safe, so cutting them off breaks no promise. The same holds for a
damaged line at the very end of the file, since a file system may write the last block of an append without the blocks before it.

A damaged line anywhere else is reported and skipped; the lines around it stay readable. File systems fill blocks that
were allocated but not written with NUL bytes, and the next record may follow them without a newline in between.
Therefore NUL bytes at the beginning of a line are reported as damage of their own, and the record behind them is read.
Numbers of lines and offsets of bytes are those of the file, so that a report names the place that an editor shows.

Lines are written by `encode_line` of `pegasus.wire`.

>>> list(scan_lines(b'{"n":1}\n{"n"'))
[Line(number=1, offset=0, length=8, value={'n': 1}), BadLine(number=2, …, torn=True)]
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

LONGEST_LINE: Final = 16 << 20
"""Bytes of a line that is decoded. The program writes no longer ones, and decoding one would need a multiple of that in memory."""


class Line(NamedTuple):
    """A good line of a file.

    Example: `Line(1, 0, 12, {"n": 1})` for the first line of a file.
    """

    number: int
    """Number of the line, from 1."""
    offset: int
    """Place of its first byte in the file."""
    length: int
    """Number of its bytes, including the newline."""
    value: dict[str, Any]
    """The JSON object that it holds."""


class BadLine(NamedTuple):
    """Bytes of a file that are not a record.

    Example::

        for line in scan_lines(content):
            if isinstance(line, BadLine):
                report(f"{path}, {line}")  # "line 7: not JSON (…)"
    """

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
        try:
            value = _parse_record(raw)
        except ValueError as error:
            yield from _scan_damaged(raw, number, offset, str(error), is_last=end == len(data))
        else:
            yield Line(number, offset, end - offset, value)
        offset = end


def _scan_damaged(raw: bytes, number: int, offset: int, problem: str, *, is_last: bool) -> Iterator[Line | BadLine]:
    """Yield the parts of a line that is no record as it stands: NUL bytes, and perhaps a record behind them."""
    record = raw.lstrip(b"\0")
    nulls = len(raw) - len(record)
    if not record.strip():
        if nulls:
            yield BadLine(number, offset, raw, f"{nulls} NUL bytes", is_last)
        return
    try:
        line = Line(number, offset + nulls, len(record), _parse_record(record))
    except ValueError as error:
        yield BadLine(number, offset, raw, str(error) if nulls else problem, is_last)
    else:
        yield BadLine(number, offset, raw[:nulls], f"{nulls} NUL bytes before the record")
        yield line


_decode_start = json.JSONDecoder().raw_decode
"""Decodes the beginning of a text. `json.loads` would do the same after looking for options and spaces at each of 100,000 lines."""


def _parse_record(raw: bytes) -> dict[str, Any]:
    """Return the object of a line. Raises ValueError with the reason why it has none.

    NaN is accepted, unlike in `decode_json`: versions of the past may have written it, and a number that is no number
    is no reason to lose the rest of the record.
    """
    try:
        text = raw.decode().strip(" \t\r\n")
        value, end = _decode_start(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 ({error.reason} at byte {error.start})") from None
    except RecursionError:
        raise ValueError("nested too deep") from None
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from None
    if end != len(text):
        raise ValueError(f"not JSON (more text behind it, at character {end})")
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value
