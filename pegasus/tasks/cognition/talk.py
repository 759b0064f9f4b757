"""A task's conversation as the turns that a model is shown, kept up to date at the cost of what is new."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

from pegasus.conversation import Entry, Projection, repair
from pegasus.models import Turn

_NOT_DONE: Final = '{"cancelled":true,"reason":"not carried out"}'


def turns_of(entries: Sequence[Entry], now: int) -> tuple[Turn, ...]:
    """All of them, mended where they want it. now: wall clock, ms."""
    whole = repair(entries, lambda made: _NOT_DONE, now).entries
    return tuple(Projection(whole).turns)


class Talk:
    """Remembers the turns of one task, whose entries only become more.

    The same Turn objects come again in every request, so that each is serialised once in its life. Entries of another task, or
    some that want mending (a call without a result, an id that comes again), are done the long way.
    """

    def __init__(self) -> None:
        self._turns = Projection()
        self._taken = 0
        self._last: Entry | None = None
        self._open: deque[str] = deque()
        self._used: set[str] = set()
        self._is_regular = True

    def turns(self, entries: Sequence[Entry], now: int) -> tuple[Turn, ...]:
        """All of `entries`, those of the time before first. now: wall clock, ms."""
        self._is_regular = self._is_regular and self._goes_on(entries)
        if self._is_regular and not self._open:
            return tuple(self._turns.turns)
        return turns_of(entries, now)

    def _goes_on(self, entries: Sequence[Entry]) -> bool:
        """Take up what is new, if all of it is as it ought to be."""
        if self._taken > len(entries) or (self._taken and entries[self._taken - 1] != self._last):
            return False
        for entry in islice(entries, self._taken, None):
            if not self._fits(entry):
                return False
            self._turns.append(entry)
            self._last = entry
        self._taken = len(entries)
        return True

    def _fits(self, entry: Entry) -> bool:
        if entry.role == "tool":
            return bool(self._open) and self._open.popleft() == entry.call_id
        if self._open:
            return False
        for call in entry.calls:
            if not call.id or call.id in self._used:
                return False
            self._used.add(call.id)
            self._open.append(call.id)
        return True
