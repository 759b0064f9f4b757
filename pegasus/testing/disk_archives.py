"""SessionArchives over a disk in memory, so that they can be read in virtual time, without threads."""

from __future__ import annotations

import trio

from pegasus.main_agent import ArchivePage, is_archive, page_of
from pegasus.testing.memory_disk import MemoryDisk


class DiskArchives:
    """Reads what the journal wrote to `disk` below `prefix`."""

    def __init__(self, disk: MemoryDisk, prefix: str = "main") -> None:
        self._disk = disk
        self._prefix = f"{prefix}/"

    async def names(self) -> tuple[str, ...]:
        """See `pegasus.main_agent.SessionArchives`."""
        await trio.lowlevel.checkpoint()
        below = [path.removeprefix(self._prefix) for path in self._disk.paths() if path.startswith(self._prefix)]
        return tuple(sorted(name for name in below if is_archive(name)))

    async def read(self, name: str, offset: int, skip: int, lines: int, most: int) -> ArchivePage:
        """See `pegasus.main_agent.SessionArchives`."""
        if name not in await self.names():
            raise FileNotFoundError(name)
        return page_of(self._disk.content(self._prefix + name).splitlines(keepends=True), offset, skip, lines, most)
