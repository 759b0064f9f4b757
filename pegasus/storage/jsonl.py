"""Reading lines of JSON that a crash may have damaged: what is good, what is not, and where.

A line is a record only with its newline: whatever stands after the last newline was being written when the process
or the machine died, nobody was told that it is safe, and it is torn. A bad line anywhere else hides nothing around it.
Disks fill what they did not get to write with NUL bytes; a record that follows such a run is still good.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from pegasus.messages import Address, Json

Record = Mapping[str, Json]
L = TypeVar("L")


class Line(NamedTuple):
    """A good line. number: from 1. offset, length: its bytes in the file, newline included."""

    number: int
    offset: int
    length: int
    value: dict[str, Any]


class BadLine(NamedTuple):
    """Bytes that are no record. torn: they end the file, so that cutting them off loses nothing that was promised."""

    number: int
    offset: int
    raw: bytes
    problem: str
    torn: bool = False

    def __str__(self) -> str:
        return f"line {self.number}: {self.problem}"


class ReadLines(NamedTuple):
    """What was in a file. good: (line number, value). bad: everything else, a torn last line included."""

    good: tuple[tuple[int, dict[str, Any]], ...]
    bad: tuple[BadLine, ...]


def encode_line(value: Record) -> bytes:
    """One line of JSON, UTF-8, newline included.

    Raises TypeError, ValueError or RecursionError for what is no JSON (NaN, bytes, endless nesting).
    """
    text = _ENCODER.encode(value) + "\n"
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can carry
        return (_ASCII.encode(value) + "\n").encode()


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, allow_nan=False)
_ASCII = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False)


def text_of(value: object) -> str:
    """The value, which must be a string; else TypeError."""
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def number_of(value: object) -> int:
    """The value, which must be a whole number from 0 to 2^63 - 1, as all that count are; else TypeError."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise TypeError("not a whole number")
    return value


def address_in(channel: Mapping[str, object]) -> Address:
    """The address of a channel in a record. Raises KeyError or TypeError."""
    return Address(text_of(channel["type"]), text_of(channel["channelId"]))


def replay(line: Line, kinds: Mapping[str, Callable[[L, Line], None]], log: L) -> str | None:
    """Have the log take over a record by the function of its type; what is wrong with it, if it is none of those."""
    try:
        known = kinds[line.value["type"]]
    except (KeyError, TypeError):
        return "unknown type of record"
    try:
        known(log, line)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return f"not a record of its type ({type(error).__name__}: {error})"
    return None


def read_lines(data: bytes) -> ReadLines:
    """Every good line of `data` and every bad one; empty lines are neither.

    Where all lines of a piece are as `encode_line` makes them, it is parsed as one text, which takes hardly longer than the parser.
    """
    good: list[tuple[int, dict[str, Any]]] = []
    bad: list[BadLine] = []
    start, number = 0, 0
    while start < len(data):
        end = data.find(b"\n", start + _PIECE) + 1 or len(data)
        values = whole_lines(data[start:end])
        if values is not None:
            good += zip(range(number + 1, number + 1 + len(values)), values, strict=True)
            number += len(values)
        else:
            for line in scan(data, start, end, number):
                if isinstance(line, Line):
                    good.append((line.number, line.value))
                else:
                    bad.append(line)
            number += data.count(b"\n", start, end)
        start = end
    return ReadLines(tuple(good), tuple(bad))


_PIECE = 1 << 20


def whole_lines(raw: bytes) -> list[dict[str, Any]] | None:
    """The values of lines that end with a newline each, None if one of them wants a closer look."""
    values: list[dict[str, Any]] = []
    try:
        text = raw.decode()
        place, size = 0, len(text)
        while place < size:
            value, place = _scan_once(text, place)
            if text[place] != "\n" or type(value) is not dict:
                return None
            values.append(value)
            place += 1
    except (ValueError, RecursionError, StopIteration, IndexError):
        return None
    return values


_scan_once = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def scan(data: bytes, offset: int = 0, stop: int | None = None, number: int = 0) -> Iterator[Line | BadLine]:
    """The lines of `data` in order, good and bad; from the beginning of a line to the end of one. number: lines before it."""
    size = len(data)
    while offset < (size if stop is None else stop):
        number += 1
        end = data.find(b"\n", offset) + 1
        if not end:
            yield BadLine(number, offset, data[offset:], "the last line has no end: it was being written", torn=True)
            return
        raw = data[offset:end]
        value = _quickly(raw)
        if value is not None:
            yield Line(number, offset, end - offset, value)
        else:
            yield from _read(raw, number, offset, last=end == size)
        offset = end


def _quickly(raw: bytes) -> dict[str, Any] | None:
    """The value of a line as `encode_line` makes it, which nearly all are; None for one that wants a closer look."""
    try:
        text = raw.decode()
        value, end = _raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return value if end == len(text) - 1 and type(value) is dict else None


_raw_decode = json.JSONDecoder().raw_decode


def _read(raw: bytes, number: int, offset: int, *, last: bool) -> Iterator[Line | BadLine]:
    record = raw.lstrip(b"\0")
    nulls = len(raw) - len(record)
    if not record.strip():
        if nulls:
            yield BadLine(number, offset, raw, f"{nulls} NUL bytes", last)
        return
    value, problem = _parse(record)
    if value is None:
        yield BadLine(number, offset, raw, problem, last)
        return
    if nulls:
        yield BadLine(number, offset, raw[:nulls], f"{nulls} NUL bytes before the record")
    yield Line(number, offset + nulls, len(record), value)


def _parse(raw: bytes) -> tuple[dict[str, Any] | None, str]:
    try:
        value = json.loads(raw.decode())
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 ({error.reason} at byte {error.start})"
    except RecursionError:
        return None, "nested too deep"
    except ValueError as error:
        return None, f"not JSON ({error})"
    return (value, "") if isinstance(value, dict) else (None, "not a JSON object")
