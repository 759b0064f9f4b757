"""Reading what is stored beside the journal: archives of hundreds of megabytes, lists of folders, files while no daemon runs.

Who reads so sees what was written by then, and need not see what is being written. Reading blocks and has no effect; a daemon does
it in a thread, and may leave that when it is cancelled. Paths are those of the journal's messages. An engine that has no files puts
them together of its rows.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

import attrs
import trio

from actors import Ref
from pegasus.storage.messages import JournalMessage, ReadFiles

T = TypeVar("T")


@attrs.frozen
class ScannedFile:
    """A file in a folder: `ScannedFile("web%3Ac1.jsonl", 2048, 1_772_029_800_000_000_000)`."""

    name: str
    """Name in its folder."""
    size: int
    """Bytes that it has."""
    changed: int
    """Wall clock of the last change, ns."""
    identity: int = 0
    """Number that tells it from another file which takes its place, where there is such a number."""


class StoredFiles(Protocol):
    """The files below data/, for reading."""

    def open(self, path: str) -> BinaryIO:
        """Open a file at its beginning, to be closed by the caller. Raises OSError; FileNotFoundError for anything but a file."""

    def scan(self, folder: str, is_wanted: Callable[[str], bool]) -> Iterator[ScannedFile]:
        """Yield the files of a folder whose names are wanted, in any order; none if there is no such folder. Raises OSError."""


class FolderFiles:
    """The files below a folder: `FolderFiles(home.data)`. Links are not followed, since a person may have put one there."""

    def __init__(self, data: str | Path) -> None:
        self._data = os.fspath(data)

    def open(self, path: str) -> BinaryIO:
        """Open a regular file."""
        fd = os.open(os.path.join(self._data, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise FileNotFoundError(path)
        return os.fdopen(fd, "rb")

    def scan(self, folder: str, is_wanted: Callable[[str], bool]) -> Iterator[ScannedFile]:
        """Yield regular files; one that is gone meanwhile is left out."""
        try:
            entries = os.scandir(os.path.join(self._data, folder))
        except FileNotFoundError:
            return
        with entries:
            for entry in entries:
                if is_wanted(entry.name) and entry.is_file(follow_symlinks=False):
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    yield ScannedFile(entry.name, status.st_size, status.st_mtime_ns, status.st_ino)


async def read_beside(journal: Ref[JournalMessage], read: Callable[..., T], *args: object) -> T:
    """Return `read(*args)`, made in a thread once all is written that the journal was told before (`Commit.soon`).

    On cancel the thread is left alone: reading has no effect, and a slow disk must not hold the caller.
    """
    await journal.ask(ReadFiles, ())
    return await trio.to_thread.run_sync(partial(read, *args), abandon_on_cancel=True)


def read_stored(files: StoredFiles, path: str) -> bytes:
    """Return a whole file, b"" if there is none. Blocks. Raises OSError."""
    try:
        with files.open(path) as file:
            return file.read()
    except FileNotFoundError:
        return b""


def size_of(file: BinaryIO) -> int:
    """Return the size of an open file, which is at its beginning afterwards."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size
