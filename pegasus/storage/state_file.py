"""A small JSON file below data/ whose content one object of the daemon holds in memory: people who were let in, tokens of clients.

The file is read once and written as a whole at each change, and only through the journal, so it is never half written. Three rules
keep what is in it:

* **A file that cannot be read is not written**, since what is in memory then lacks what is in the file. It is read again before the
  next change, which fails with the error of the disk if that fails, too.
* **A damaged file is set aside** as `<file>.bad-<ms>`, and what could be understood is written in its place. The copy is on disk
  before the file is replaced, so a crash in between loses nothing and only repeats this.
* **Changes follow one another**: an older state never replaces a newer one on disk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from actors import Ref
from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.storage.messages import JournalMessage, ReadFile, ReplaceFile
from pegasus.wire import encode_json

_log = get_logger("storage")


class StateFile:
    """A JSON file, and the lock under which its content changes.

    Example::

        class Notes:
            def __init__(self, journal, clock):
                self._notes = []
                self._file = StateFile("notes.json", self._take_over, lambda: {"notes": self._notes})
                self._file.use(journal, clock)

            def _take_over(self, content):
                self._notes, problems = parse_notes(content)
                return problems

            async def add(self, note):
                async with self._file.change():
                    await self._file.write({"notes": [*self._notes, note]})
                    self._notes.append(note)
    """

    def __init__(
        self, path: str, take_over: Callable[[bytes], Sequence[str]], content: Callable[[], Mapping[str, Json]]
    ) -> None:
        """Name the file, which is read after `use`. path: below data/.

        take_over: puts what the file holds (b"" if there is none) into memory, and returns what could not be understood.
        content: returns what is in memory as it stands in the file.
        """
        self._path = path
        self._take_over = take_over
        self._content = content
        self._journal: Ref[JournalMessage] | None = None
        """Reads and writes the file; None before `use`."""
        self._clock: Callable[[], int] = lambda: 0
        self._lock = trio.Lock()
        self._is_read = False

    @property
    def is_read(self) -> bool:
        """True if the file was read, and set aside if it was damaged."""
        return self._is_read

    def use(self, journal: Ref[JournalMessage], clock: Callable[[], int]) -> None:
        """Read and write through this journal from now on. The file counts as not read. clock: wall clock, ms."""
        self._journal, self._clock, self._is_read = journal, clock, False

    async def ensure_read(self) -> None:
        """Read the file if that has not succeeded yet. Raises StorageError and ActorError."""
        async with self.change():
            pass

    @asynccontextmanager
    async def change(self) -> AsyncIterator[None]:
        """Hold the lock for a change of memory and file, after the file was read.

        Raises StorageError and ActorError if it cannot be read; then the block is not entered. Cancelled while it waits for the
        lock or the file, nothing has changed.
        """
        async with self._lock:
            # Under the lock: what is read before a change must not replace what that change has made.
            await self._read()
            yield

    async def _read(self) -> None:
        """Read the file if that has not succeeded yet, and set it aside if it is damaged. Raises StorageError and ActorError."""
        if self._journal is None or self._is_read:
            return
        content = await self._journal.ask(ReadFile, self._path)
        problems = self._take_over(content)
        if problems:
            aside = f"{self._path}.bad-{self._clock()}"
            _log.warning("set a damaged file aside", file=aside, problems="; ".join(problems))
            await self._journal.ask(ReplaceFile, aside, content)
            await self.write(self._content())
        self._is_read = True

    async def write(self, content: Mapping[str, Json]) -> None:
        """Replace the file; on return it is on disk. To be called within `change`. Before `use` nothing is written.

        Raises StorageError and ActorError. After a StorageError the file is as it was. After an ActorError, and when cancelled, it may
        have been replaced.
        """
        if self._journal is not None:
            await self._journal.ask(ReplaceFile, self._path, f"{encode_json(content, indent=2)}\n".encode())
