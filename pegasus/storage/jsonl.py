"""Reading the records of the logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pegasus.messages import Address
from pegasus.wire import Line, read_lines, text_of

L = TypeVar("L")


def address_in(channel: Mapping[str, object]) -> Address:
    """Return the address of a channel in a record. Raises KeyError or TypeError."""
    return Address(text_of(channel["type"]), text_of(channel["channelId"]))


def replay(line: Line, kinds: Mapping[str, Callable[[L, Line], None]], log: L) -> str | None:
    """Give a record to the function of its type. Return the problem of a record that is of no known form."""
    try:
        known = kinds[line.value["type"]]
    except (KeyError, TypeError):
        return "unknown type of record"
    try:
        known(log, line)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return f"not a record of its type ({type(error).__name__}: {error})"
    return None


def whole_lines(raw: bytes) -> list[dict[str, Any]] | None:
    """Return the values of lines without damage, or None if there is damage."""
    lines = read_lines(raw)
    return None if lines.bad else [value for _, value in lines.good]
