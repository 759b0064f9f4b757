"""Where memory files stand, for reading: the folder itself.

They are read directly, not through the journal: the journal replaces them by renaming, so a reader always finds a whole
file, written by it or by a person with an editor; and a listing of a hundred files keeps no commit waiting. Links,
pipes and whatever else is no regular file are not seen, nor is what has a name that is no UTF-8.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

import trio

HEAD: Final = 4096
"""Bytes at the beginning of a file that are looked at for its summary."""
HEADS: Final = 1000
"""Files whose beginnings are remembered."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


Stamp: TypeAlias = tuple[int, ...]
"""As long as it is the same, the file is (nearly surely) unchanged: what every tool that watches files goes by."""


class Standing(NamedTuple):
    """A file as it stands there. path: `facts/user.md`. size: bytes. head: its first bytes. content: see `look`."""

    path: str
    size: int
    head: bytes
    stamp: Stamp = ()
    content: bytes | None = None


class Shelf(Protocol):
    """The memory files, for reading."""

    async def look(self, seen: Mapping[str, Stamp] | None = None, most: int = 0) -> tuple[Standing, ...]:
        """Every `*.md` at the top and in the folders of it that is not empty, by path. Raises OSError.

        seen: what stamps they had; the content of files with another one comes along, if it has at most `most` bytes.
        """

    async def read(self, path: str, most: int) -> bytes:
        """The first `most` bytes of a file that was listed. Raises OSError."""

    async def check(self, path: str) -> None:
        """Raises OSError unless a file written there would stand in memory's own folders, and replace nothing but a file."""


class FolderShelf:
    """The files below a folder (`<home>/data/memory`), which need not exist yet."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = os.fspath(folder)
        self._heads: dict[str, tuple[Stamp, bytes]] = {}
        """Of files that need not be opened again, as long as they have the same stamp."""

    async def look(self, seen: Mapping[str, Stamp] | None = None, most: int = 0) -> tuple[Standing, ...]:
        """See `Shelf`. Cancelled: the thread ends by itself."""
        return await trio.to_thread.run_sync(self.look_now, seen, most, abandon_on_cancel=True)

    async def read(self, path: str, most: int) -> bytes:
        """See `Shelf`. Cancelled: the thread ends by itself."""
        return await trio.to_thread.run_sync(self._read, path, most, abandon_on_cancel=True)

    async def check(self, path: str) -> None:
        """See `Shelf`."""
        await trio.to_thread.run_sync(self._check, path, abandon_on_cancel=True)

    def look_now(self, seen: Mapping[str, Stamp] | None = None, most: int = 0) -> tuple[Standing, ...]:
        """The same, for whoever is in a thread already."""
        with suppress(FileNotFoundError), _opened(self._folder, _FOLDER) as top:
            there = tuple(sorted(self._standing(top, "", seen, most), key=lambda one: one.path))
            self._heads = {one.path: (one.stamp, one.head) for one in there[:HEADS]}
            return there
        return ()

    def _standing(self, folder: int, above: str, seen: Mapping[str, Stamp] | None, most: int) -> Iterator[Standing]:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if _is_text(entry.name)]
        for entry in found:
            with suppress(OSError):  # gone, or not to be read
                if entry.is_file(follow_symlinks=False) and entry.name.endswith(".md"):
                    path, stamp = f"{above}{entry.name}", _stamp(entry.stat(follow_symlinks=False))
                    known = self._heads.get(path)
                    if known is not None and known[0] == stamp and (seen is None or seen.get(path) == stamp):
                        yield Standing(path, stamp[1], known[1], stamp)
                        continue
                    with _opened(entry.name, _FILE, folder) as fd:
                        yield from _file(fd, path, seen, most)
                elif not above and entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    with _opened(entry.name, _FOLDER, folder) as inner:
                        yield from self._standing(inner, f"{entry.name}/", seen, most)

    def _read(self, path: str, most: int) -> bytes:
        above, _, name = path.rpartition("/")
        with (
            _opened(self._folder, _FOLDER) as top,
            _opened(above or ".", _FOLDER, top) as folder,
            _opened(name, _FILE, folder) as fd,
        ):
            return os.read(fd, most) if stat.S_ISREG(os.fstat(fd).st_mode) else b""

    def _check(self, path: str) -> None:
        file = os.path.join(self._folder, path)
        for place in (self._folder, os.path.dirname(file), file):
            if os.path.islink(place):
                raise OSError(f"{place} is a symbolic link, which memory neither follows nor replaces")
        if os.path.lexists(file) and not os.path.isfile(file):
            raise OSError(f"{file} is no regular file, and memory does not replace it")


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8
        return False
    return True


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _file(fd: int, path: str, seen: Mapping[str, Stamp] | None, most: int) -> Iterator[Standing]:
    now = os.fstat(fd)
    if not now.st_size:
        return
    stamp = _stamp(now)
    wanted = seen is not None and seen.get(path) != stamp and now.st_size <= most
    content = os.read(fd, now.st_size) if wanted else None
    yield Standing(path, now.st_size, content[:HEAD] if content is not None else os.read(fd, HEAD), stamp, content)


@contextmanager
def _opened(name: str, flags: int, folder: int | None = None) -> Iterator[int]:
    fd = os.open(name, flags, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)
