"""Appending to several files, all or nothing, and knowing of each file what was appended since its last sync.

On an error each file is cut back to its size before. If it was a sync that failed, it is not repeated: the kernel may
have dropped what it was to write, and call the next sync a success. Then everything since the last sync that
succeeded is written anew. Where even this fails, the file takes no append until it has succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from pegasus.storage.files import Files
from pegasus.storage.redo import CARRIED_BYTES, Tail, with_redo

Appends: TypeAlias = Sequence[tuple[str, bytes]]

AT_ONCE = 250
"""Files that are written to before they are synced side by side; fewer than a disk keeps open."""
KNOWN_FILES = 256
"""Files whose end is remembered; one that was forgotten is synced with its next durable append."""


class Write(NamedTuple):
    """What to append, in this order, and what is to be on disk then.

    sync: each file but those in `unsynced` is synced before the next one is touched. carried: this one is not, if the last
    part, one line of a JSON object, can carry what it would lose. settle: files that were carried before are synced
    before the last part is written. together: of these nobody minds which is on disk before which, so those that stand next
    to each other are synced side by side, which on most disks takes hardly longer than one.
    """

    parts: Appends
    sync: bool
    unsynced: Collection[str] = ()
    carried: str = ""
    settle: bool = False
    together: Collection[str] = ()


class Appended(NamedTuple):
    """Where each part begins in its file, and by how many bytes the last one has grown."""

    offsets: list[int]
    redo: int = 0


class Appender:
    """ready: called before a file is written to. at: the file that is being worked on; after an OSError, its reason."""

    def __init__(self, files: Files, ready: Callable[[str], None]) -> None:
        self.at = ""
        self._files = files
        self._ready = ready
        self._tails: dict[str, Tail] = {}
        self._to_mend: dict[str, tuple[int, bytes]] = {}

    # ------------------------------------------------------------------ appending

    def append(self, write: Write) -> Appended:
        """Append all of it or, on OSError, nothing."""
        attempt = _Attempt(self, self._files, write)
        try:
            attempt.run()
        except OSError:
            at = self.at
            for path, size in reversed(attempt.begun):
                self._cut_back(path, size, lost=path in attempt.lost)
            self.at = at
            raise
        self._remember(attempt.tails)
        return Appended(attempt.offsets, attempt.redo)

    def prepare(self, path: str) -> int:
        """Make the file ready to be appended to, mended if need be; gives its size."""
        self.at = path
        if path in self._to_mend:
            self._mend(path)
        self._ready(path)
        return self._files.prepare(path)

    def tail(self, path: str, size: int) -> Tail:
        """The end of a file that has this size now; nothing is certain if that is not what we left."""
        known = self._tails.get(path)
        return known if known is not None and known.end == size else Tail(size, certain=False)

    def in_debt(self) -> list[str]:
        """Files of which the outbox holds what they have not synced."""
        return [path for path, tail in self._tails.items() if tail.carried]

    def _remember(self, tails: dict[str, Tail]) -> None:
        self._tails.update(tails)
        if len(self._tails) > KNOWN_FILES:
            for path in [path for path, tail in self._tails.items() if not tail.carried and path not in tails]:
                del self._tails[path]

    # ------------------------------------------------------------------ mending

    def _cut_back(self, path: str, size: int, *, lost: bool) -> None:
        self._to_mend[path] = self._since_sync(path, size) if lost else (size, b"")
        with suppress(OSError):
            self._files.forget(path)
            self._mend(path)

    def _since_sync(self, path: str, size: int) -> tuple[int, bytes]:
        tail = self.tail(path, size)
        return tail.offset, tail.data

    def _mend(self, path: str) -> None:
        size, data = self._to_mend[path]
        self._files.prepare(path)
        self._files.truncate(path, size)
        if data:
            self._files.write(path, data)
        try:
            self._files.sync(path)
        except OSError:
            self._to_mend[path] = (size, data) if data else self._since_sync(path, size)
            self._files.forget(path)
            raise
        del self._to_mend[path]
        self._tails[path] = Tail(size + len(data))

    def mend(self, path: str) -> None:
        """Bring the file into order, if a refused write has left it in disorder."""
        self.at = path
        if path in self._to_mend:
            self._mend(path)

    def settle(self, path: str, tail: Tail) -> None:
        """Sync a file whose tail this is; if that fails, the tail is written anew the next time."""
        self.at = path
        try:
            self._files.prepare(path)
            self._files.sync(path)
        except OSError:
            self._to_mend[path] = (tail.offset, tail.data)
            self._files.forget(path)
            raise
        self._tails[path] = Tail(tail.end)

    def restore(self, path: str, size: int, data: bytes) -> None:
        """Cut the file to `size` and append `data`, durably."""
        self.at = path
        self._to_mend[path] = (size, data)
        self._mend(path)

    def as_promised(self, path: str, content: bytes) -> bytes:
        """What a file with this content ought to hold: without what was refused, with what a failed sync has lost."""
        if path not in self._to_mend:
            return content
        size, data = self._to_mend[path]
        return content[:size] + data

    def forget(self, path: str) -> None:
        """The file is another one now."""
        self._tails.pop(path, None)
        self._to_mend.pop(path, None)


class _Attempt:
    """One try. begun: files and their sizes before. lost: those whose sync has failed. tails: as they will be."""

    def __init__(self, appender: Appender, files: Files, write: Write) -> None:
        self.begun: list[tuple[str, int]] = []
        self.offsets: list[int] = []
        self.lost: Collection[str] = ()
        self.tails: dict[str, Tail] = {}
        self.redo = 0
        self._appender = appender
        self._files = files
        self._write = write
        self._carries = b""
        self._waiting: dict[str, int] = {}

    def run(self) -> None:
        parts = self._write.parts
        for path, data in parts[:-1]:
            self._append(path, data)
        if self._write.settle:
            for path in self._appender.in_debt():
                self._settle(path)
        for path, data in parts[-1:]:
            line = with_redo(data, self._carries) if self._carries else data
            self.redo = len(line) - len(data)
            self._append(path, line)
        self._sync_waiting()

    def _append(self, path: str, data: bytes) -> None:
        appender, write = self._appender, self._write
        if path not in write.together:
            self._sync_waiting()
        size = appender.prepare(path)
        self.begun.append((path, size))
        self.offsets.append(size)
        self._files.write(path, data)
        tail = (self.tails.get(path) or appender.tail(path, size)).plus(data)
        if path == write.carried and (redo := tail.redo(path)):
            self._carries = redo
            self.tails[path] = tail._replace(carried=len(tail.data))
        elif (write.sync and path not in write.unsynced) or len(tail.data) > CARRIED_BYTES:
            self.tails[path] = tail
            self._waiting[path] = size + len(data)
            if path not in write.together or len(self._waiting) == AT_ONCE:
                self._sync_waiting()
        else:
            self.tails[path] = tail

    def _settle(self, path: str) -> None:
        size = self._appender.prepare(path)
        tail = self.tails.get(path) or self._appender.tail(path, size)
        if tail.carried:  # it was not synced a moment ago, and nobody has changed it
            self.begun.append((path, size))
            self._waiting[path] = size
            self._sync_waiting()

    def _sync_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        errors = self._files.sync_all(tuple(waiting))
        if errors:
            self.lost = errors.keys()
            self._appender.at, error = next(iter(errors.items()))
            raise error
        for path, size in waiting.items():
            self.tails[path] = Tail(size)
