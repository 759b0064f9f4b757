"""Operations on files that storage is built from, and how the operating system does them.

Everything above this module (`atomic`, `volume`) is written against the protocol `Files`, so that tests can put a disk
in its place that fails, fills up or loses power at any operation (`pegasus.testing.memory_disk`). `OsFiles` does the
operations on a real file system.

All of them block, so they are called in the disk's thread only; see `pegasus.storage.volume.FileDisk`.

The protocol is small so that its semantics can be stated and simulated completely. It separates what POSIX
separates: writing (visible to readers), syncing data (durable content) and syncing the folder (durable name).
Code above must call all three in the right order, and the simulated disk punishes every omission.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

OPEN_FILES = 256
"""Descriptors that are kept open at most. A turn of the Main Agent touches three files, a recovery many task logs."""

_sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
"""Makes content and size durable. `fdatasync` leaves out times, which saves a write of the inode."""


class Files(Protocol):
    """Operations on the files below one root. Each may raise OSError, and may have done a part of its work then.

    Paths are relative, with `/` between folders. Data is durable only when `sync` has returned for it, and a name only
    when `sync_folder` has returned for its folder.
    """

    def prepare(self, path: str) -> int:
        """Make the file ready for `write`, and return its size. Afterwards the file exists, durably."""

    def begin(self, path: str) -> None:
        """Make the file ready for `write`, and empty. Neither its name nor its emptiness is durable yet."""

    def write(self, path: str, data: bytes) -> None:
        """Append to a prepared file, in the operating system's memory only."""

    def sync(self, path: str) -> None:
        """Make durable what was written to the file."""

    def truncate(self, path: str, size: int) -> None:
        """Cut the file off. Durable with the next `sync`."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a part of the file, less where it ends earlier. Raises FileNotFoundError."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file, or anything else, of that name."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, replacing the file that has it. Durable with the next `sync_folder`."""

    def remove(self, path: str) -> None:
        """Delete a file. Durable with the next `sync_folder`."""

    def sync_folder(self, path: str) -> None:
        """Make durable the names in the folder that holds `path`."""

    def forget(self, path: str) -> None:
        """Drop the descriptor of a file, so that the next operation opens it again."""

    def close(self) -> None:
        """Drop all descriptors."""


class _OpenFile(NamedTuple):
    fd: int
    """Descriptor, opened for appending."""
    identity: tuple[int, int]
    """Device and inode, by which a replaced file is recognised."""


class OsFiles:
    """`Files` of the operating system, readable by their owner only (files 0600, folders 0700).

    Descriptors stay open between appends, since opening costs more than appending. Before each append the name is
    looked up again: a file that somebody has renamed, deleted or replaced meanwhile is noticed, and the append goes to
    the file that has the name now.

    Only regular files are opened. A FIFO in the place of a file would block the thread for ever, and with it every
    request after this one.

        files = OsFiles(home.data)
        files.prepare("main/current.jsonl")
        files.write("main/current.jsonl", line)
        files.sync("main/current.jsonl")
    """

    def __init__(self, root: str | Path, open_files: int = OPEN_FILES) -> None:
        self.root = str(root)
        """Folder that all paths are relative to."""
        self._limit = open_files
        """Descriptors that are kept open."""
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        """Open files by path, the least recently used one first."""

    def prepare(self, path: str) -> int:
        known = self._open.get(path)
        if known is not None:
            with suppress(FileNotFoundError):
                # One `stat` instead of an open: cheap enough for each append, and it gives the size as well.
                now = os.stat(self._full(path))
                if (now.st_dev, now.st_ino) == known.identity:
                    self._open.move_to_end(path)
                    return now.st_size
            self.forget(path)
        return self._open_for_appending(path)

    def begin(self, path: str) -> None:
        self.forget(path)
        fd, status = self._create(self._full(path), os.O_TRUNC)
        self._keep(path, fd, status)

    def write(self, path: str, data: bytes) -> None:
        fd = self._open[path].fd
        written = os.write(fd, data)
        while written < len(data):  # a short write; the next one raises the reason
            written += os.write(fd, memoryview(data)[written:])

    def sync(self, path: str) -> None:
        """See `Files`. `fdatasync` writes data and size; times of the file may be lost, and nobody looks at them."""
        if path not in self._open:
            self.prepare(path)
        _sync(self._open[path].fd)

    def truncate(self, path: str, size: int) -> None:
        os.truncate(self._full(path), size)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        fd = os.open(self._full(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            size = _regular(fd).st_size
            if offset:
                os.lseek(fd, offset, os.SEEK_SET)
            return _read_exactly(fd, size - offset if length is None else length)
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._full(path))

    def rename(self, old: str, new: str) -> None:
        os.replace(self._full(old), self._full(new))
        self.forget(old)
        self.forget(new)

    def remove(self, path: str) -> None:
        self.forget(path)
        os.unlink(self._full(path))

    def sync_folder(self, path: str) -> None:
        _sync_folder(os.path.dirname(self._full(path)))

    def forget(self, path: str) -> None:
        known = self._open.pop(path, None)
        if known is not None:
            os.close(known.fd)

    def close(self) -> None:
        for path in list(self._open):
            self.forget(path)

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _open_for_appending(self, path: str) -> int:
        """Open the file, make its name durable if that is in doubt, and return its size."""
        full = self._full(path)
        fd, status = self._create(full)
        if status.st_size == 0:  # new, or made by a process that died before it could sync the folder
            try:
                _sync_folder(os.path.dirname(full))
            except OSError:
                os.close(fd)
                raise
        self._keep(path, fd, status)
        return status.st_size

    def _create(self, full: str, more: int = 0) -> tuple[int, os.stat_result]:
        """Open a file for appending. Create it, and the folders above it, where they are missing."""
        # O_NONBLOCK keeps the open of a FIFO from waiting for a reader; it has no effect on regular files.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | more
        try:
            fd = os.open(full, flags, 0o600)
        except FileNotFoundError:
            _make_folders(os.path.dirname(full))
            fd = os.open(full, flags | os.O_CREAT, 0o600)
        try:
            return fd, _regular(fd)
        except OSError:
            os.close(fd)
            raise

    def _keep(self, path: str, fd: int, status: os.stat_result) -> None:
        """Keep the descriptor open.

        If there are too many, the one that was not used for the longest time is closed.
        """
        self._open[path] = _OpenFile(fd, (status.st_dev, status.st_ino))
        if len(self._open) > self._limit:
            self.forget(next(iter(self._open)))


def _regular(fd: int) -> os.stat_result:
    """Return the status of an open file. Raises OSError if it is a folder, a FIFO or a device."""
    status = os.fstat(fd)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return status


def _read_exactly(fd: int, length: int) -> bytes:
    """Return up to `length` bytes from the current position, fewer at the end of the file."""
    parts: list[bytes] = []
    while length > 0 and (part := os.read(fd, length)):
        parts.append(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _make_folders(folder: str) -> None:
    """Create the folder and those above it that are missing, each one's name durable before the next."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    _make_folders(above)
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    _sync_folder(above)


def _sync_folder(folder: str) -> None:
    """Make the names in a folder durable. Raises OSError if the folder is gone."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
