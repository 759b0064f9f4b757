"""When a log is worth rewriting, and the pieces it is rewritten from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol, TypeVar

from pegasus.storage.volume import Span

T = TypeVar("T")


class Plan(Protocol):
    """What a file is to hold instead."""

    @property
    def parts(self) -> list[bytes | Span]: ...


P = TypeVar("P", bound=Plan)


class Log(Protocol[P]):
    """A log that can be rewritten; see `InboxLog` and `OutboxLog`."""

    size: int

    @property
    def live(self) -> int: ...
    def compaction(self, now: int) -> P: ...
    def compacted(self, plan: P, size: int) -> list[str]: ...


SMALL = 1 << 20
"""A log below this many bytes is left alone, and so is one that has not grown by as much since it was last looked at."""
_PIECE = 1_000


def worth_it(size: int, live: int, looked_at: int) -> bool:
    """Whether more than half of a log is dead. looked_at: its size after the last attempt, 0 if there was none."""
    return size - looked_at > SMALL and size > 2 * live


def pieces(items: Iterable[T]) -> Iterator[list[T]]:
    """The items in lists of at most a thousand, so that no line gets very long."""
    rest = iter(items)
    while piece := list(islice(rest, _PIECE)):
        yield piece


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same bytes in fewer spans: neighbours become one."""
    result: list[Span] = []
    for span in spans:
        if result and result[-1].offset + result[-1].length == span.offset:
            result[-1] = Span(result[-1].offset, result[-1].length + span.length)
        else:
            result.append(span)
    return result
