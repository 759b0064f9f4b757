"""What happened in a tree, as lines of text that are the same in each run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest

import trio

from actors._events import Event
from actors._supervisor import Supervisor
from actors.testing._listener import Listener, listen
from actors.testing._words import normal, say


class Trace:
    """Lines of text: events of trees, and notes. Addresses are left out, so that two runs can be compared.

    Equal to a Trace, or to any list or tuple of strings, with the same lines.
    """

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self.lines = list(lines)
        self._listeners: list[Listener] = []

    def watch(self, supervisor: Supervisor) -> None:
        """From now on, write down what happens in the whole tree that this supervisor belongs to.

        The first starts of its children have happened already when a supervisor is open; to see them, open it without
        children and use start_child.
        """
        self._listeners.append(listen(supervisor._loop.system, self._hear))

    def note(self, text: str) -> None:
        """Add a line, with the time if there is one."""
        at = f"t={trio.current_time():.3f} " if trio.lowlevel.in_trio_run() else ""
        self.lines.append(normal(at + text))

    def _hear(self, event: Event) -> None:
        self.note(say(event))

    def difference(self, other: Trace | Iterable[str]) -> str:
        """The first line that differs, with the line before it; "" if none does."""
        return first_difference(self.lines, other)

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace | list | tuple) and self.lines == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return f"Trace({self.lines!r})"


def first_difference(one: Iterable[str], other: Iterable[str]) -> str:
    """The first line that differs, with the line before it; "" if none does."""
    before = ""
    for number, (mine, yours) in enumerate(zip_longest(one, other, fillvalue="(the end)"), 1):
        if mine != yours:
            return f"{before}  line {number}, once:  {mine}\n  line {number}, again: {yours}"
        before = f"  line {number}, both:  {mine}\n"
    return ""
