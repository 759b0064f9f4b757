"""A small JSON file below data/ whose content one object of the daemon holds in memory: people who were let in, tokens of clients.

The file is read once and written as a whole at each change, and only through the journal, so it is never half written. Three rules
keep what is in it:

* **A file that cannot be read is not written**, since what is in memory then lacks what is in the file. It is read again before the
  next change, which fails with the error of the disk if that fails, too. The same holds after a change whose outcome is not known.
* **A damaged file is set aside** as `<file>.bad-<ms>`, and what could be understood is written in its place. The copy is on disk
  before the file is replaced, so a crash in between loses nothing and only repeats this. What was understood counts before that, but
  nothing is changed until the file is set aside.
* **Changes follow one another**: an older state never replaces a newer one on disk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from actors import ActorError, Ref
from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.storage.messages import JournalMessage, ReadFile, ReplaceFile, StorageError
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
        self._copy: tuple[str, bytes] | None = None
        """Name and content of the copy of a damaged file. Kept until the file is replaced, so that attempts share one copy."""

    @property
    def is_read(self) -> bool:
        """True if what is in memory is what could be understood of the file."""
        return self._is_read

    def use(self, journal: Ref[JournalMessage], clock: Callable[[], int]) -> None:
        """Read and write through this journal from now on. The file counts as not read. clock: wall clock, ms."""
        self._journal, self._clock, self._is_read = journal, clock, False

    async def ensure_read(self) -> None:
        """Read the file if that has not succeeded yet. Raises StorageError and ActorError.

        A damaged file is set aside if the disk lets it be; if not, the next change tries that again.
        """
        async with self._lock:
            await self._read()
            try:
                await self._set_aside()
            except (StorageError, ActorError) as error:
                _log.error("a damaged file cannot be set aside, and is not changed", file=self._path, error=str(error))

    @asynccontextmanager
    async def change(self) -> AsyncIterator[None]:
        """Hold the lock for a change of memory and file, after the file was read, and set aside if it was damaged.

        Raises StorageError and ActorError if that fails; then the block is not entered. Cancelled while it waits for the lock or the
        file, nothing has changed.
        """
        async with self._lock:
            # Under the lock: what is read before a change must not replace what that change has made.
            await self._read()
            await self._set_aside()
            yield

    async def _read(self) -> None:
        """Read the file if what is in memory may differ from it. Raises StorageError and ActorError."""
        if self._journal is None or self._is_read:
            return
        content = await self._journal.ask(ReadFile, self._path)
        problems = self._take_over(content)
        self._is_read = True
        if not problems:
            self._copy = None
        elif self._copy is None or self._copy[1] != content:
            self._copy = f"{self._path}.bad-{self._clock()}", content
            _log.warning("a damaged file is set aside", file=self._copy[0], problems="; ".join(problems))

    async def _set_aside(self) -> None:
        """Copy a damaged file, and replace it by what was understood. Raises StorageError and ActorError."""
        if self._journal is None or self._copy is None:
            return
        name, content = self._copy
        await self._journal.ask(ReplaceFile, name, content)
        await self.write(self._content())
        self._copy = None

    async def write(self, content: Mapping[str, Json]) -> None:
        """Replace the file; on return it is on disk. To be called within `change`. Before `use` nothing is written.

        Raises StorageError and ActorError. After a StorageError the file is as it was. After an ActorError, and when cancelled, it may
        have been replaced, so it is read again before the next change.
        """
        if self._journal is None:
            return
        try:
            await self._journal.ask(ReplaceFile, self._path, f"{encode_json(content, indent=2)}\n".encode())
        except (ActorError, trio.Cancelled):
            self._is_read = False
            raise
