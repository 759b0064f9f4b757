"""The common part of inbox and outbox: state in memory that equals the content of a file of records.

A `RecordLog` is pure, apart from `load`. Values go in, bytes to be appended come out, and the journal does the writing.
So the rules can be tested without a disk, and after any crash the state is exactly the result of `replay(file)`.

Changes reach the file in one of two ways:

* **Staged** changes are promises (a message is accepted, a reply has a number). They are not part of the state yet: the
  journal writes `unwritten()`, and calls `written` when the bytes are on disk, which adds them to the state. If the
  disk refuses, it forgets them (`drop_staged`), and nothing has happened.
* **Notes** may be lost (done, acknowledged, an address was seen). They are in effect at once. Their bytes go in front of
  the next staged ones, or are written after 50 ms; a refusal keeps them.

Records are lines of JSON with a `type`. A record that does not fit its class is not applied at all, not even in part.
Large values (texts) are not kept in memory for long but by their place in the file, a `Span`.

A log whose file is mostly dead is rewritten from a summary of the past and the lines that still count. Lines are
copied as bytes, without parsing them.

**At a start** damage is set aside and reported, and never hides what is whole. A process that was killed may have left
the end of a record, or records that are not on the disk yet. A power failure may have left NUL bytes. An editor, or a
version of the future, may have left anything.

* What is read is made durable first, since the journal answers from it (a duplicate is answered at once).
* A torn end is moved to `<file>.bad-<n>`. If there is no room for the copy it is cut off all the same: nobody was
  promised that it is safe, and the next record must not be joined to it.
* Bad lines elsewhere are copied to `<file>.bad-<n>`, and the log is rewritten without them. If there is no room for
  the copy they stay where they are and are skipped.
* A file that cannot be read at all (permissions, a folder in its place) ends the start with an error that names it.
  To go on without it would be to forget accepted messages and to number replies from 1 again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import attrs

from pegasus.json_lines import BadLine, Line, scan_lines
from pegasus.storage.disk import Disk
from pegasus.storage.messages import StorageError
from pegasus.storage.volume import Span, Volume
from pegasus.wire import from_wire

SMALL = 1 << 20
"""Bytes below which a log is not rewritten, and by which it must have grown since it was last considered."""
PIECE = 1_000
"""Entries that one line of a summary holds at most."""
END_OF_COUNTS = 1 << 63
"""Numbers and times in records are below this."""
MAX_NAMED_LINES = 5
"""Bad lines that a report describes."""

Report: TypeAlias = Callable[[str], object]
"""Logs for the operator what was found and done."""


class Located(Protocol):
    """A value whose text is in the log's file.

    Example: `QueuedItem` and `OutboxEntry` have a span. A rewrite copies those bytes and moves the span.
    """

    span: Span
    """Place of the record. Before it is written, only the length counts."""


V = TypeVar("V", bound=Located)
T = TypeVar("T")

Replays: TypeAlias = Mapping[str, tuple[type[Any], Callable[[Any, Span], object]]]
"""For each type of record its class, and the function that applies it, given its place in the file. The function raises
ValueError, TypeError or LookupError for a record that is none."""


class Staged(NamedTuple, Generic[V]):
    """A change that must be written.

    Example: `self.staged[digest] = Staged(item, line)`; `written` makes the item part of the state.
    """

    value: V
    """Value that becomes part of the state when it is."""
    line: bytes
    """Record that describes it."""


class Rewrite(NamedTuple, Generic[V]):
    """New content of a file.

    Example::

        plan = log.plan_rewrite()
        size = await disk.run(Volume.rewrite, log.path, plan.parts)
        log.rewritten(plan, size)
    """

    parts: list[bytes | Span]
    """New lines, and spans of the old file."""
    moved: list[tuple[V, Span]]
    """Values whose lines are kept, with their places in the new file."""


class RecordLog(ABC, Generic[V]):
    """A log as of its file, with its notes, and what is staged beside it. V is the kind of value whose text is in the file.

    The journal goes through these calls for each batch:

    >>> log.accept(message, "main", at)          # or log.post(…): stage
    >>> offset = append(log.path, log.unwritten())
    >>> log.written(offset)                      # or, if the disk refuses: log.drop_staged()
    """

    path: ClassVar[str]
    """The file, below data/."""

    def __init__(self, replays: Replays) -> None:
        self.size = 0
        """Bytes of the file."""
        self.staged: dict[Hashable, Staged[V]] = {}
        """Changes that must be written now, by what makes a second one the same: digest of the id, key."""
        self.notes: dict[Hashable, bytes] = {}
        """Records that may be written later. One takes the place of another with the same key."""
        self._replays = replays
        """Functions that apply a record, by its type."""
        self.rewrite_above = SMALL
        """Size above which rewriting the file is considered."""

    # ------------------------------------------------------------------ writing

    def unwritten(self) -> bytes:
        """Return the bytes to be appended to the file: notes, then staged lines."""
        return b"".join([*self.notes.values(), *(line for _, line in self.staged.values())])

    def written(self, offset: int) -> list[V]:
        """Note that everything unwritten is on disk from `offset` on. Return the values that were staged."""
        offset += sum(map(len, self.notes.values()))
        values = [value for value, _ in self.staged.values()]
        for value in values:
            value.span = Span(offset, value.span.length)
            offset += value.span.length
        self.size = offset
        self.staged.clear()
        self.notes.clear()
        self._add_written(values)
        return values

    def drop_staged(self, keep: int = 0) -> None:
        """Forget the staged changes behind the first `keep`, since they cannot be written. The notes stay."""
        for key in list(self.staged)[keep:]:
            del self.staged[key]

    @abstractmethod
    def _add_written(self, values: list[V]) -> None:
        """Make values part of the state: they are on disk."""

    # ------------------------------------------------------------------ loading

    async def load(self, disk: Disk, report: Report) -> bool:
        """Read the file; a missing one is an empty one. Return whether it should be rewritten, because of damage.

        Raises StorageError if it cannot be read, or cannot be written where it must be.
        """
        [content] = await disk.run(Volume.read_durable, [self.path])
        bad: list[BadLine] = []
        size = len(content)
        for line in scan_lines(content):
            if isinstance(line, Line):
                if problem := self.replay(line):
                    raw = content[line.offset : line.offset + line.length]
                    bad.append(BadLine(line.number, line.offset, raw, problem))
            elif line.torn:
                size = line.offset
                await _set_tail_aside(disk, self.path, line, report)
            else:
                bad.append(line)
        self.loaded(size)
        return bool(bad) and await _copy_bad_lines(disk, self.path, bad, report)

    def replay(self, line: Line) -> str | None:
        """Apply a record of the file. Return the problem if it is not one of this log's. To be done before all else."""
        kind = line.value.get("type")
        if not isinstance(kind, str) or kind not in self._replays:
            return "unknown type of record"
        record_class, apply = self._replays[kind]
        try:
            apply(from_wire(line.value, record_class), Span(line.offset, line.length))
        except (ValueError, TypeError, LookupError) as error:
            return f"not a record of its type ({error})"
        return None

    def loaded(self, size: int) -> None:
        """Note that all records are applied and the file has this many bytes."""
        self.size = size

    # ------------------------------------------------------------------ rewriting

    @property
    @abstractmethod
    def live_bytes(self) -> int:
        """About how many bytes the file would have after a rewrite."""

    def should_rewrite(self) -> bool:
        """Return whether more than half of the file is dead and it has grown enough since the last time."""
        return self.size > self.rewrite_above and self.size > 2 * self.live_bytes

    def note_rewrite(self) -> None:
        """Note that a rewrite was done or has failed, so that it is not tried again at once."""
        self.rewrite_above = self.size + SMALL

    def plan_rewrite(self) -> Rewrite[V]:
        """Return what the file is to hold instead. Only while nothing is staged."""
        kept = self._kept()
        head = self._summary()
        offset = sum(map(len, head))
        moved: list[tuple[V, Span]] = []
        for value in kept:
            moved.append((value, Span(offset, value.span.length)))
            offset += value.span.length
        return Rewrite([*head, *merge_spans(value.span for value in kept), *self._closing_lines()], moved)

    def rewritten(self, rewrite: Rewrite[V], size: int) -> None:
        """Note that the file was replaced and has this many bytes."""
        for value, span in rewrite.moved:
            value.span = span
        self.notes.clear()
        self.size = size

    @abstractmethod
    def _kept(self) -> list[V]:
        """Return the values whose lines a rewrite keeps, in the order of the file."""

    @abstractmethod
    def _summary(self) -> list[bytes]:
        """Return the lines that stand for everything that is not kept."""

    def _closing_lines(self) -> list[bytes]:
        """Return the lines behind those that are kept."""
        return []


async def _set_tail_aside(disk: Disk, path: str, torn: BadLine, report: Report) -> None:
    """Cut the file off before a torn line, after copying the line. If there is no room for the copy, the report has it."""
    try:
        copy = await disk.run(Volume.set_tail_aside, path, torn.offset, torn.raw)
        report(f"{path}, {torn}; its {len(torn.raw)} bytes were set aside in {copy}")
    except StorageError as error:
        await disk.run(Volume.cut, path, torn.offset)
        report(f"{path}, {torn}; cut off: {torn.raw[:200]!r} (no copy: {error})")


def name_some(problems: Sequence[object]) -> str:
    """Return the first of some bad lines or other problems in words."""
    return "; ".join(map(str, problems[:MAX_NAMED_LINES])) + ("; …" if len(problems) > MAX_NAMED_LINES else "")


async def _copy_bad_lines(disk: Disk, path: str, bad: list[BadLine], report: Report) -> bool:
    """Copy bad lines to a file beside the log. Return whether they may be left out of the log now."""
    lines = name_some(bad)
    try:
        copy = await disk.run(Volume.keep_copy, path, b"".join(line.raw for line in bad))
    except StorageError as error:
        report(f"{path}: {len(bad)} bad lines were skipped and left where they are: {lines} ({error})")
        return False
    report(f"{path}: {len(bad)} bad lines were set aside in {copy}: {lines}")
    return True


# ------------------------------------------------------------------ records


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
