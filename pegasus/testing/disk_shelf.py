"""A memory's shelf over a disk in memory, so that memory works in virtual time, without threads."""

from __future__ import annotations

import trio

from pegasus.memory import Standing
from pegasus.memory.shelf import HEAD
from pegasus.testing.memory_disk import MemoryDisk


class DiskShelf:
    """Reads what the journal wrote to `disk` below `prefix`."""

    def __init__(self, disk: MemoryDisk, prefix: str = "memory") -> None:
        self._disk = disk
        self._prefix = f"{prefix}/"

    async def list(self) -> tuple[Standing, ...]:
        """See `pegasus.memory.Shelf`."""
        await trio.lowlevel.checkpoint()
        return tuple(self._standing(path) for path in self._disk.paths() if self._is_page(path))

    async def read(self, path: str, most: int) -> bytes:
        """See `pegasus.memory.Shelf`."""
        await trio.lowlevel.checkpoint()
        return self._disk.content(self._prefix + path)[:most]

    async def check(self, path: str) -> None:
        """Every place is memory's own here."""
        await trio.lowlevel.checkpoint()

    def _is_page(self, path: str) -> bool:
        return path.startswith(self._prefix) and path.endswith(".md")

    def _standing(self, path: str) -> Standing:
        content = self._disk.content(path)
        return Standing(path.removeprefix(self._prefix), len(content), content[:HEAD])
