"""An immutable sequence that grows without being copied.

The context of a task is a value: each event makes a new one, and the old one stays what it was. Its conversation and its completed
steps only ever grow at the end. As tuples they would be copied at every event, which makes the work of a task, and of
the replay of its log, quadratic in its length.

All versions of an `AppendOnly` share one list, and each sees the beginning of it up to its own length. Appending to the newest version
extends that list. Appending to an older one, whose place in the list is taken, copies the part that it sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class AppendOnly(Sequence[T], Generic[T]):
    """A sequence of which `plus` gives a longer version. Equal to any sequence with the same items.

    >>> short = AppendOnly((1, 2))
    >>> long = short.plus(3)
    >>> tuple(short), tuple(long)
    ((1, 2), (1, 2, 3))
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        """Storage, shared with longer and shorter versions."""
        self._length = len(self._items)
        """Items of it that belong to this version."""

    def plus(self, *items: T) -> AppendOnly[T]:
        """Return a version with these items behind the others. Copies nothing, unless this version is an old one."""
        if not items:
            return self
        is_newest = len(self._items) == self._length
        longer: AppendOnly[T] = AppendOnly()
        longer._items = self._items if is_newest else self._items[: self._length]
        longer._items.extend(items)
        longer._length = len(longer._items)
        return longer

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self._items[position] for position in range(*index.indices(self._length)))
        if not -self._length <= index < self._length:
            raise IndexError(f"index {index} of {self._length} items")
        return self._items[index if index >= 0 else self._length + index]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence)
            and len(self) == len(other)
            and all(a == b for a, b in zip(self, other, strict=True))
        )

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"AppendOnly({tuple(self)!r})"
