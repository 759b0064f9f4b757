"""A batch: the appends of many requests as few steps, without changing an order that counts.

A *step* is appends to different files that are synced together. It is durable before the next step is begun (`Volume.append_steps`).
The appends of a request that must be in order are in different steps. Where the order does not matter, as with the logs of different
tasks, they are in one: a disk syncs many files at once in about the time of one.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs


@attrs.define(eq=False, repr=False)
class Batch:
    """Appends of many requests, in as few pieces as their order allows: usually one for each file.

    The order is kept within a file and within a request. A request that comes back to a file that one of its earlier
    appends has passed gets a new piece for it.

    >>> batch = Batch()
    >>> batch.add([("x", b"1"), ("y", b"2")])
    >>> batch.add([("x", b"3")], together=[("v", b"4"), ("w", b"5")])
    >>> batch.steps()
    [[('x', b'13')], [('y', b'2')], [('v', b'4'), ('w', b'5')]]
    """

    _steps: list[dict[str, list[bytes]]] = attrs.field(factory=list, init=False)
    """For each step, the parts of the bytes of each of its files."""
    _latest: dict[str, int] = attrs.field(factory=dict, init=False)
    """Index of the last step with a piece of each file."""
    _open: int = attrs.field(default=-1, init=False)
    """Index of the last step that takes more files, -1 if there is none."""

    def add(self, appends: Iterable[tuple[str, bytes]], together: Iterable[tuple[str, bytes]] = ()) -> None:
        """Add the appends of one request: those in order, and behind them those whose order does not matter."""
        reached, before = -1, ""
        for path, data in appends:
            index = self._latest.get(path, -1)
            if index < reached or (index == reached and path != before):
                index = self._begin(path)
            self._steps[index][path].append(data)
            reached, before = index, path
        for path, data in together:
            if self._latest.get(path, -1) <= reached:
                self._join(path, reached)
            self._steps[self._latest[path]][path].append(data)

    def _begin(self, path: str) -> int:
        """Begin a step with a file, and return its index."""
        self._latest[path] = len(self._steps)
        self._steps.append({path: []})
        return self._latest[path]

    def _join(self, path: str, reached: int) -> None:
        """Give a file a piece in a step behind the one that was reached, which other files may join."""
        if self._open <= reached:
            self._open = self._begin(path)
        else:
            self._latest[path] = self._open
            self._steps[self._open][path] = []

    def steps(self) -> list[list[tuple[str, bytes]]]:
        """Return the appends to be made, step by step."""
        return [[(path, b"".join(data)) for path, data in step.items()] for step in self._steps]
