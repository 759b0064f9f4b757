"""A memory folder on a disk in memory, so that memory works in virtual time, without threads."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from pegasus.memory import FOLDER, HEAD, FileState, Stamp
from pegasus.testing.memory_disk import MemoryDisk


class DiskMemoryFolder:
    """A `pegasus.memory.MemoryFolder` with the files that the journal wrote to `disk`."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self._prefix = f"{FOLDER}/"

    async def scan(self, seen: Mapping[str, Stamp] | None = None, limit: int = 0) -> tuple[FileState, ...]:
        """See `pegasus.memory.MemoryFolder`."""
        await trio.lowlevel.checkpoint()
        states = (self._state(path, seen, limit) for path in self._disk.paths() if self._is_page(path))
        return tuple(state for state in states if state.size)

    async def read(self, path: str, limit: int) -> bytes:
        """See `pegasus.memory.MemoryFolder`."""
        await trio.lowlevel.checkpoint()
        return self._disk.content(self._prefix + path)[:limit]

    async def check(self, path: str) -> None:
        """Accept every path: there are no links here."""
        await trio.lowlevel.checkpoint()

    def _is_page(self, path: str) -> bool:
        return path.startswith(self._prefix) and path.endswith(".md")

    def _state(self, path: str, seen: Mapping[str, Stamp] | None, limit: int) -> FileState:
        content, path = self._disk.content(path), path.removeprefix(self._prefix)
        stamp = (hash(content), len(content))
        is_wanted = seen is not None and seen.get(path) != stamp and len(content) <= limit
        return FileState(path, len(content), content[:HEAD], stamp, content if is_wanted else None)
