"""Reading memory files from their folder.

The journal writes them, but they are read directly: it replaces a file by renaming, so that a reader always finds a whole
one, and listing a hundred files keeps no commit waiting. People may edit the files with any program, so nothing is
taken for granted. Links, pipes and everything else that is no regular file are left out, as is a file whose name is not
UTF-8. Folders and files are opened relative to their parent and without following links, so that exchanging a folder for
a link while it is read leads nowhere.

A *stamp* (time of the last change, size, inode) says whether a file has changed. The beginnings of files that have not
changed are remembered, so that listing them again costs no opening.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol, TypeAlias

import trio

from pegasus.guarded_open import open_folder, open_regular

HEAD: Final = 4096
"""Bytes at the beginning of a file that are read for its summary; a quotation further down is none."""
LARGEST: Final = 256 << 10
"""Bytes of a file, written by hand, that are still read and searched. Files that tools write are far smaller, and a
program that puts a database into the folder must not make every look at it slow."""
HEADS: Final = 1000
"""Files whose beginnings are remembered."""

Stamp: TypeAlias = tuple[int, ...]
"""Equal stamps mean that the file is almost certainly unchanged."""


class FileState(NamedTuple):
    r"""A memory file as it is now."""

    path: str
    """Folder and name, as in `facts/user.md`."""
    size: int
    """Bytes."""
    head: bytes
    """The first bytes, at most `HEAD`."""
    stamp: Stamp = ()
    """Identifies the state of the file; see the module."""
    content: bytes | None = None
    """The whole file, if it was asked for; see `MemoryFolder.scan`."""


class MemoryFolder(Protocol):
    """The memory files, for reading.

    `FolderReader` reads a real folder; tests have one in memory.

    Example::

        files = await folder.scan()
        content = await folder.read(files[0].path, LARGEST)
    """

    async def scan(self, seen: Mapping[str, Stamp] | None = None, limit: int = 0) -> tuple[FileState, ...]:
        """Return every `*.md` that is not empty, at the top and in the folders there, by path. Raises OSError.

        seen: the stamps that are known. With it, the contents of files with another stamp are returned too, if they have
        at most `limit` bytes.
        """

    async def read(self, path: str, limit: int) -> bytes:
        """Return the first `limit` bytes of a file that was listed. Raises OSError."""

    async def check(self, path: str) -> None:
        """Raise OSError unless a file written to this path would be in memory's own folders and replace only a file."""


class FolderReader:
    """The files below a folder (`<home>/data/memory`), which need not exist yet.

    >>> files = await FolderReader(home.data / "memory").scan()
    >>> [file.path for file in files]
    ['episodes/2026-02.md', 'facts/user.md']

    Cancelled, the asynchronous methods leave their thread to end by itself; it only reads.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = os.fspath(folder)
        """Path of the folder. It is opened anew at each look, so that it may be replaced meanwhile."""
        self._heads: dict[str, tuple[Stamp, bytes]] = {}
        """Stamps and beginnings of files, by path."""

    async def scan(self, seen: Mapping[str, Stamp] | None = None, limit: int = 0) -> tuple[FileState, ...]:
        """List the files, in a thread; see `MemoryFolder.scan`."""
        return await trio.to_thread.run_sync(self.scan_now, seen, limit, abandon_on_cancel=True)

    async def read(self, path: str, limit: int) -> bytes:
        """Read a file, in a thread; see `MemoryFolder.read`."""
        return await trio.to_thread.run_sync(self._read, path, limit, abandon_on_cancel=True)

    async def check(self, path: str) -> None:
        """Check a path, in a thread; see `MemoryFolder.check`."""
        await trio.to_thread.run_sync(self._check, path, abandon_on_cancel=True)

    def scan_now(self, seen: Mapping[str, Stamp] | None = None, limit: int = 0) -> tuple[FileState, ...]:
        """Do the same as `scan`, for callers in a thread or without an event loop."""
        with suppress(FileNotFoundError), open_folder(self._folder) as top:
            files = tuple(sorted(self._scan_folder(top, "", seen, limit), key=lambda file: file.path))
            self._heads = {file.path: (file.stamp, file.head) for file in files[:HEADS]}
            return files
        return ()

    def _scan_folder(
        self, folder: int, prefix: str, seen: Mapping[str, Stamp] | None, limit: int
    ) -> Iterator[FileState]:
        """Yield the files of an open folder and of the folders in it, which may be one level deep.

        prefix: path of the folder below memory, "" or "facts/". seen, limit: see `MemoryFolder.scan`. An unchanged file is not
        opened: its beginning is known. What cannot be read is left out, since people may have put anything there.
        """
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if _is_unicode(entry.name)]
        for entry in found:
            with suppress(OSError):  # it is gone, or may not be read
                if entry.is_file(follow_symlinks=False) and entry.name.endswith(".md"):
                    path, stamp = f"{prefix}{entry.name}", _stamp(entry.stat(follow_symlinks=False))
                    known = self._heads.get(path)
                    if known is not None and known[0] == stamp and (seen is None or seen.get(path) == stamp):
                        yield FileState(path, stamp[1], known[1], stamp)
                        continue
                    with open_regular(entry.name, folder) as file:
                        yield from _state_of(file, path, seen, limit)
                elif not prefix and entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    with open_folder(entry.name, folder) as inner:
                        yield from self._scan_folder(inner, f"{entry.name}/", seen, limit)

    def _read(self, path: str, limit: int) -> bytes:
        """Open folder by folder, so that none of them can be exchanged for a link in between."""
        parent, _, name = path.rpartition("/")
        with (
            open_folder(self._folder) as top,
            open_folder(parent or ".", top) as folder,
            open_regular(name, folder) as file,
        ):
            return file.read(limit)

    def _check(self, path: str) -> None:
        """Raise OSError if a write to this path would follow a link, or replace something that is no file. Blocks briefly."""
        file = os.path.join(self._folder, path)
        for place in (self._folder, os.path.dirname(file), file):
            if os.path.islink(place):
                raise OSError(f"{place} is a symbolic link, which memory neither follows nor replaces")
        if os.path.lexists(file) and not os.path.isfile(file):
            raise OSError(f"{file} is no regular file, and memory does not replace it")


def _stamp(status: os.stat_result) -> Stamp:
    """Return what identifies the state of a file: time of its last change, size and inode."""
    return status.st_mtime_ns, status.st_size, status.st_ino


def _state_of(file: BinaryIO, path: str, seen: Mapping[str, Stamp] | None, limit: int) -> Iterator[FileState]:
    """Yield the state of an open file, nothing if it is empty."""
    now = os.fstat(file.fileno())
    if not now.st_size:
        return
    stamp = _stamp(now)
    is_wanted = seen is not None and seen.get(path) != stamp and now.st_size <= limit
    content = file.read(now.st_size) if is_wanted else None
    yield FileState(path, now.st_size, content[:HEAD] if content is not None else file.read(HEAD), stamp, content)


def _is_unicode(name: str) -> bool:
    """Return whether a name is UTF-8. Python shows bytes that are not as halves of surrogate pairs."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
