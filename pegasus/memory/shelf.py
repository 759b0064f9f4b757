"""Where memory files stand, for reading: the folder itself.

They are read directly, not through the journal: the journal replaces them by renaming, so a reader always finds a whole
file, written by it or by a person with an editor; and a listing of a hundred files keeps no commit waiting. Links,
pipes and whatever else is no regular file are not seen.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import trio

HEAD: Final = 4096
"""Bytes at the beginning of a file that are looked at for its summary."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Standing(NamedTuple):
    """A file as it stands there. path: `facts/user.md`. size: bytes. head: its first bytes."""

    path: str
    size: int
    head: bytes


class Shelf(Protocol):
    """The memory files, for reading."""

    async def list(self) -> tuple[Standing, ...]:
        """Every `*.md` at the top and in the folders of it, by path. Raises OSError."""

    async def read(self, path: str, most: int) -> bytes:
        """The first `most` bytes of a file that was listed. Raises OSError."""

    async def check(self, path: str) -> None:
        """Raises OSError unless a file written there would stand in memory's own folders."""


class FolderShelf:
    """The files below a folder (`<home>/data/memory`), which need not exist yet."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = os.fspath(folder)

    async def list(self) -> tuple[Standing, ...]:
        """See `Shelf`. Cancelled: the thread ends by itself."""
        return await trio.to_thread.run_sync(self._list, abandon_on_cancel=True)

    async def read(self, path: str, most: int) -> bytes:
        """See `Shelf`. Cancelled: the thread ends by itself."""
        return await trio.to_thread.run_sync(self._read, path, most, abandon_on_cancel=True)

    async def check(self, path: str) -> None:
        """See `Shelf`."""
        await trio.to_thread.run_sync(self._check, path, abandon_on_cancel=True)

    def _list(self) -> tuple[Standing, ...]:
        with suppress(FileNotFoundError), _opened(self._folder, _FOLDER) as top:
            return tuple(sorted(_standing(top)))
        return ()

    def _read(self, path: str, most: int) -> bytes:
        above, _, name = path.rpartition("/")
        with (
            _opened(self._folder, _FOLDER) as top,
            _opened(above or ".", _FOLDER, top) as folder,
            _opened(name, _FILE, folder) as fd,
        ):
            return os.read(fd, most) if stat.S_ISREG(os.fstat(fd).st_mode) else b""

    def _check(self, path: str) -> None:
        for folder in (self._folder, os.path.join(self._folder, os.path.dirname(path))):
            if os.path.islink(folder):
                raise OSError(f"{folder} is a symbolic link, through which memory does not write")


def _standing(folder: int, above: str = "") -> Iterator[Standing]:
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        with suppress(OSError):  # gone, or not to be read
            if entry.is_file(follow_symlinks=False) and entry.name.endswith(".md"):
                with _opened(entry.name, _FILE, folder) as fd:
                    yield Standing(f"{above}{entry.name}", os.fstat(fd).st_size, os.read(fd, HEAD))
            elif not above and entry.is_dir(follow_symlinks=False):
                with _opened(entry.name, _FOLDER, folder) as inner:
                    yield from _standing(inner, f"{entry.name}/")


@contextmanager
def _opened(name: str, flags: int, folder: int | None = None) -> Iterator[int]:
    fd = os.open(name, flags, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)
