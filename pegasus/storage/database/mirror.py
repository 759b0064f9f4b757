"""A mirror of conversations: sessions that are in a database, as files in the home of a node that people read with any tool.

An actor looks every PERIOD seconds at sizes and times, and writes what has changed since. Nothing reads the mirror, so a file that is
a moment behind does no harm, and one that a crash has left half written is written anew: its size or its time is not that of the
database then. Nothing is written where nothing has changed.

A session grows mostly. Then its new lines are appended, if the line before them is the last one that was written here; in all other
cases, as after an archive has taken its place, the file is written anew.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from heapq import nlargest
from pathlib import Path
from typing import Final

import attrs
import trio

from actors import Inbox
from pegasus.observe import get_logger
from pegasus.storage.database.tables import Database
from pegasus.storage.messages import StorageError

PERIOD: Final = 5.0
"""Seconds between two looks."""
MOST: Final = 1_000
"""Files of a folder that are mirrored, those that were written last; others go from the mirror."""
READ_AT_ONCE: Final = 100
"""Sessions that are read with one statement."""
SMALL: Final = 65_536
"""Bytes of a session that is read with others from its beginning."""
FOLDERS: Final = ("main", "sessions")
"""Folders of sessions and their archives."""

_log = get_logger("mirror")


@attrs.frozen
class _Mirrored:
    """State of a file as it was mirrored."""

    size: int
    at: int
    """Wall clock of its last change, ms."""
    lines: int = 0
    """Its lines; 0 = not known."""
    last: str = ""
    """The last of them."""


async def mirror_sessions(inbox: Inbox[object], database: Database, folder: Path) -> None:
    """Run the actor. A database that does not answer, and a disk that refuses, are met again at the next look."""
    inbox.started()
    mirror, problem = SessionMirror(database, folder), ""
    while True:
        try:
            await mirror.look()
            problem = ""
        except (StorageError, OSError) as error:
            if not problem:
                _log.warning("the mirror of sessions is behind", error=str(error))
            problem = str(error)
        await trio.sleep(PERIOD)


class SessionMirror:
    """The mirror below a folder. Both methods may raise StorageError and OSError; the next look goes on from there."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder
        self._known: dict[str, _Mirrored] = {}
        """By path. What a process before this one has written is known by its size and time."""

    async def look(self) -> None:
        """Write what has changed."""
        for folder in FOLDERS:
            names = nlargest(MOST, await self._database.names(folder), key=lambda found: found[2])
            wanted = {f"{folder}/{name}": (size, at) for name, size, at in names if name.endswith(".jsonl")}
            changed = [path for path, state in wanted.items() if not await self._is_known(path, *state)]
            for start in range(0, len(changed), READ_AT_ONCE):
                paths = changed[start : start + READ_AT_ONCE]
                after = {path: self._read_after(path, wanted[path][0]) for path in paths}
                new = await self._database.read_lines({path: n for path, n in after.items() if n is not None})
                for path in paths:
                    self._known[path] = await self._write(path, wanted[path][1], after[path], new.get(path, ()))
            for path in [path for path in self._known if path.startswith(f"{folder}/") and path not in wanted]:
                del self._known[path]
            await trio.to_thread.run_sync(self._remove_others, folder, frozenset(wanted))

    async def _is_known(self, path: str, size: int, at: int) -> bool:
        """Return whether the mirror has this state of a file."""
        known = self._known.get(path) or await trio.to_thread.run_sync(self._found, path)
        if known is not None:
            self._known[path] = known
        return known is not None and (known.size, known.at) == (size, at)

    def _read_after(self, path: str, size: int) -> int | None:
        """Return behind how many lines a file is read with others; None: it is read alone, since it is large."""
        known = self._known.get(path)
        if known is not None and known.lines and known.size < size:
            return known.lines - 1
        return 0 if size <= SMALL else None

    async def _write(self, path: str, at: int, after: int | None, new: Sequence[str]) -> _Mirrored:
        """Append what is new in a file, or write it anew. new: its lines behind so many, as far as `after` is not None."""
        known = self._known.get(path)
        if known is not None and after == known.lines - 1 and len(new) > 1 and new[0] == known.last:
            content = "".join(f"{line}\n" for line in new[1:]).encode()
            await trio.to_thread.run_sync(self._put, path, content, at, "ab")
            return _Mirrored(known.size + len(content), at, known.lines + len(new) - 1, new[-1])
        lines = new if after == 0 else (await self._database.read_lines({path: 0})).get(path, ())
        content = "".join(f"{line}\n" for line in lines).encode()
        await trio.to_thread.run_sync(self._put, path, content, at, "wb")
        return _Mirrored(len(content), at, len(lines), lines[-1] if lines else "")

    def _found(self, path: str) -> _Mirrored | None:
        """Return the state of a file that a process before this one has written."""
        with suppress(OSError):
            status = (self._folder / path).lstat()
            return _Mirrored(status.st_size, status.st_mtime_ns // 1_000_000)
        return None

    def _put(self, path: str, content: bytes, at: int, mode: str) -> None:
        place = self._folder / path
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_APPEND if mode == "ab" else os.O_TRUNC)
        with os.fdopen(os.open(place, flags, 0o600), mode) as stream:
            stream.write(content)
        os.utime(place, ns=(at * 1_000_000, at * 1_000_000))

    def _remove_others(self, folder: str, wanted: frozenset[str]) -> None:
        with suppress(FileNotFoundError), os.scandir(self._folder / folder) as entries:
            for entry in entries:
                if entry.name.endswith(".jsonl") and f"{folder}/{entry.name}" not in wanted:
                    os.unlink(entry.path)
