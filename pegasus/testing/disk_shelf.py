"""A memory's shelf over a disk in memory, so that memory works in virtual time, without threads."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from pegasus.memory import FOLDER, HEAD, Stamp, Standing
from pegasus.testing.memory_disk import MemoryDisk


class DiskShelf:
    """Reads what the journal wrote to `disk` in memory's folder."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self._prefix = f"{FOLDER}/"

    async def look(self, seen: Mapping[str, Stamp] | None = None, most: int = 0) -> tuple[Standing, ...]:
        """See `pegasus.memory.Shelf`."""
        await trio.lowlevel.checkpoint()
        found = (self._standing(path, seen, most) for path in self._disk.paths() if self._is_page(path))
        return tuple(one for one in found if one.size)

    async def read(self, path: str, most: int) -> bytes:
        """See `pegasus.memory.Shelf`."""
        await trio.lowlevel.checkpoint()
        return self._disk.content(self._prefix + path)[:most]

    async def check(self, path: str) -> None:
        """Every place is memory's own here."""
        await trio.lowlevel.checkpoint()

    def _is_page(self, path: str) -> bool:
        return path.startswith(self._prefix) and path.endswith(".md")

    def _standing(self, path: str, seen: Mapping[str, Stamp] | None, most: int) -> Standing:
        content, path = self._disk.content(path), path.removeprefix(self._prefix)
        stamp = (hash(content), len(content))
        wanted = seen is not None and seen.get(path) != stamp and len(content) <= most
        return Standing(path, len(content), content[:HEAD], stamp, content if wanted else None)
