"""The common part of inbox and outbox: state in memory that equals the content of a file of records.

A `RecordLog` is pure. Values go in, bytes to be appended come out, and the journal does the writing. So the rules can
be tested without a disk, and the state after any crash is what `replay` makes of the file.

Changes reach the file in one of two ways:

* **Staged** changes are promises (a message is accepted, a reply has a number). The journal stages them, writes
  `unwritten()`, and calls `written` when the bytes are on disk, or `drop_staged` when the disk has refused. Dropping
  undoes them to the last detail, numbers included.
* **Buffered** changes are notes that may be lost (done, acknowledged, an address was seen). They are in effect at once.
  Their bytes go in front of the next staged ones, or are written after 50 ms; a refusal keeps them in the buffer.

Records are lines of JSON with a `type`. A record that does not fit its class in `wire` is not applied at all, not even
in part. Large values (texts) are not kept in memory but by their place in the file, a `Span`.

A log whose file is mostly dead is rewritten from a summary of the past and the lines that still count. Lines are
copied as bytes, without parsing them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import attrs

from pegasus.storage.volume import Span
from pegasus.wire import Line, from_wire

SMALL = 1 << 20
"""Bytes below which a log is not rewritten, and by which it must have grown since it was last considered."""
PIECE = 1_000
"""Entries that one line of a summary holds at most."""
END_OF_COUNTS = 1 << 63
"""Numbers and times in records are below this."""


class Located(Protocol):
    """A value whose text is in the log's file."""

    span: Span
    """Place of the record."""


V = TypeVar("V", bound=Located)
T = TypeVar("T")

Replay = Callable[[Mapping[str, Any], Span], None]
"""Applies a record, given as a JSON object and its place in the file. Raises ValueError, TypeError or LookupError."""


class Staged(NamedTuple, Generic[V]):
    """A change that is in memory and must be written."""

    value: V
    """State that the change has led to."""
    line: bytes
    """Record that describes it."""


class Rewrite(NamedTuple, Generic[V]):
    """New content of a file."""

    parts: list[bytes | Span]
    """New lines, and spans of the old file."""
    moved: list[tuple[V, Span]]
    """Values whose lines are kept, with their places in the new file."""
    dropped: list[V]
    """Values whose lines are not kept although they were alive."""


class RecordLog(ABC, Generic[V]):
    """A log as of its file, plus what is staged and buffered. V is the kind of value whose text is in the file.

    The journal goes through these calls for each batch:

    >>> log.accept(message, "main", at)          # or log.post(…): stage
    >>> offset = append(log.path, log.unwritten())
    >>> log.written(offset)                      # or, if the disk refuses: log.drop_staged()

    and through these at a start:

    >>> for line in scan_lines(content):
    ...     problem = log.replay(line)
    >>> log.loaded(len(content))
    """

    path: ClassVar[str]
    """The file, below data/."""

    def __init__(self, replays: Mapping[str, Replay]) -> None:
        self.size = 0
        """Bytes of the file."""
        self._replays = replays
        """How to apply a record, by its type."""
        self._staged: list[Staged[V]] = []
        self._considered_size = 0
        """Size of the file when rewriting it was last considered."""

    # ------------------------------------------------------------------ writing

    @property
    @abstractmethod
    def has_buffered(self) -> bool:
        """True if there is something to be written with the next write."""

    @property
    def staged(self) -> int:
        """Number of staged changes, which must be written now."""
        return len(self._staged)

    def unwritten(self) -> bytes:
        """Return the bytes to be appended to the file: buffered lines, then staged ones."""
        return b"".join([*self._buffered_lines(), *(line for _, line in self._staged)])

    def written(self, offset: int) -> list[V]:
        """Note that everything unwritten is on disk from `offset` on. Return the values that were staged."""
        offset += sum(map(len, self._buffered_lines()))
        values = []
        for value, line in self._staged:
            value.span = Span(offset, len(line))
            offset += len(line)
            self._confirm(value)
            values.append(value)
        self.size = offset
        self._staged.clear()
        self._clear_buffer()
        return values

    def drop_staged(self, keep: int = 0) -> None:
        """Undo the staged changes behind the first `keep`, since they could not be written. The buffer stays."""
        for value, _ in reversed(self._staged[keep:]):
            self._retract(value)
        del self._staged[keep:]

    # ------------------------------------------------------------------ loading

    def replay(self, line: Line) -> str | None:
        """Apply a record of the file. Return the problem if it is not one of this log's. To be done before all else."""
        kind = line.value.get("type")
        replay = self._replays.get(kind) if isinstance(kind, str) else None
        if replay is None:
            return "unknown type of record"
        try:
            replay(line.value, Span(line.offset, line.length))
        except (ValueError, TypeError, LookupError) as error:
            return f"not a record of its type ({error})"
        return None

    def loaded(self, size: int) -> None:
        """Note that all records are applied and the file has this many bytes."""
        self.size = size
        self._clear_buffer()

    # ------------------------------------------------------------------ rewriting

    @property
    @abstractmethod
    def live_bytes(self) -> int:
        """About how many bytes the file would have after a rewrite."""

    def should_rewrite(self) -> bool:
        """Return whether more than half of the file is dead and it has grown enough since the last time."""
        return self.size - self._considered_size > SMALL and self.size > 2 * self.live_bytes

    def considered(self) -> None:
        """Note that a rewrite was done or has failed, so that it is not tried again at once."""
        self._considered_size = self.size

    def plan_rewrite(self, now: int) -> Rewrite[V]:
        """Return what the file is to hold instead. now: wall clock, ms. Only while nothing is staged."""
        kept, dropped = self._kept_and_dropped(now)
        head = self._summary(dropped)
        offset = sum(map(len, head))
        moved: list[tuple[V, Span]] = []
        for value in kept:
            moved.append((value, Span(offset, value.span.length)))
            offset += value.span.length
        parts: list[bytes | Span] = [*head, *merge_spans(value.span for value in kept), *self._closing_lines()]
        return Rewrite(parts, moved, dropped)

    def rewritten(self, rewrite: Rewrite[V], size: int) -> list[str]:
        """Note that the file was replaced and has this many bytes. Return messages for the operator."""
        messages = self._after_rewrite(rewrite.dropped)
        for value, span in rewrite.moved:
            value.span = span
        self._clear_buffer()
        self.size = size
        return messages

    # ------------------------------------------------------------------ parts that differ

    def _stage(self, value: V, line: bytes) -> None:
        """Add a change that must be written. The value is in memory already."""
        self._staged.append(Staged(value, line))

    @abstractmethod
    def _buffered_lines(self) -> Sequence[bytes]:
        """Return the lines that may be written later."""

    @abstractmethod
    def _clear_buffer(self) -> None:
        """Forget the buffered lines, which are in the file now."""

    @abstractmethod
    def _confirm(self, value: V) -> None:
        """Make a staged value true: it is on disk."""

    @abstractmethod
    def _retract(self, value: V) -> None:
        """Undo the staging of a value. The latest one is retracted first."""

    @abstractmethod
    def _kept_and_dropped(self, now: int) -> tuple[list[V], list[V]]:
        """Return the values whose lines a rewrite keeps, in the order of the file, and those that it gives up."""

    @abstractmethod
    def _summary(self, dropped: Sequence[V]) -> list[bytes]:
        """Return the lines that stand for everything that is not kept."""

    @abstractmethod
    def _closing_lines(self) -> list[bytes]:
        """Return the lines behind those that are kept."""

    @abstractmethod
    def _after_rewrite(self, dropped: Sequence[V]) -> list[str]:
        """Forget what the new file does not hold. Return messages for the operator."""


def replay_as(cls: type[T], apply: Callable[[T], None]) -> Replay:
    """Return a `Replay` for records whose place in the file does not matter."""
    return lambda record, _: apply(from_wire(record, cls))


def replay_located(cls: type[T], apply: Callable[[T, Span], None]) -> Replay:
    """Return a `Replay` for records that are read back from their place in the file later."""
    return lambda record, span: apply(from_wire(record, cls), span)


def count_field() -> Any:
    """Return an attrs field for a number that counts something: whole, not negative, below 2^63."""
    return attrs.field(validator=[attrs.validators.ge(0), attrs.validators.lt(END_OF_COUNTS)])


def in_pieces(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield the items in lists of at most `PIECE`, so that no line gets very long."""
    rest = iter(items)
    while piece := list(islice(rest, PIECE)):
        yield piece


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return the same bytes in fewer spans: neighbours are joined."""
    result: list[Span] = []
    for span in spans:
        if result and result[-1].offset + result[-1].length == span.offset:
            result[-1] = Span(result[-1].offset, result[-1].length + span.length)
        else:
            result.append(span)
    return result
