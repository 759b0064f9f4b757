"""What one write of the journal consists of."""

from __future__ import annotations

from collections.abc import Iterable


class Batch:
    """Appends of many requests in as few pieces as their order allows: one for each file, as a rule.

    Within a file and within a request the order is kept. A request that comes back to a file that an earlier
    piece has passed gets a new piece, so nothing reaches the disk before what it was to follow.
    """

    def __init__(self) -> None:
        self._pieces: list[tuple[str, list[bytes]]] = []
        self._newest: dict[str, int] = {}

    def add(self, appends: Iterable[tuple[str, bytes]]) -> None:
        """The appends of one request."""
        reached = 0
        for path, data in appends:
            place = self._newest.get(path, -1)
            if place < reached:
                place = self._newest[path] = len(self._pieces)
                self._pieces.append((path, []))
            self._pieces[place][1].append(data)
            reached = place

    def pieces(self) -> list[tuple[str, bytes]]:
        """What to append, in order."""
        return [(path, data[0] if len(data) == 1 else b"".join(data)) for path, data in self._pieces]
