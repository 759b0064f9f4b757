"""Readers of a disk in memory: the archives of sessions and the folder of memory.

In the real daemon both read folders of the file system in worker threads, beside the journal, which writes
them. In virtual time there are no threads, so these two read the same names from the `MemoryDisk` that the
journal writes to. They show what a reader of the file system would see, which includes data that is not synced
yet.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from pegasus.main_agent import ArchivePage, is_archive, page_of
from pegasus.memory import FOLDER, HEAD, FileState, Stamp
from pegasus.testing.memory_disk import MemoryDisk


class DiskArchives:
    """Archives of sessions that the journal wrote to `disk` below `prefix`.

    For example:

        archives = DiskArchives(disk)
        page = await archives.read((await archives.names())[-1], offset=0, skip=0, lines=10, most=10_000)
    """

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
        # Splitting the whole content is affordable: archives in tests are small, and they are in memory anyway.
        return page_of(self._disk.content(self._prefix + name).splitlines(keepends=True), offset, skip, lines, most)


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
        """Return the state of a file as a scan of the folder would.

        The stamp of a real file is made of its modification time and inode.
        A disk in memory has neither, so the hash of the content takes that role: two contents with the same
        stamp are the same page.
        """
        content, path = self._disk.content(path), path.removeprefix(self._prefix)
        stamp = (hash(content), len(content))
        is_wanted = seen is not None and seen.get(path) != stamp and len(content) <= limit
        return FileState(path, len(content), content[:HEAD], stamp, content if is_wanted else None)
