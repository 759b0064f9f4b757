"""The effects on files that storage is made of, and how the operating system does them.

All of these block, so they are called on the disk's own thread only (see `disk`). A file that somebody renamed,
deleted or replaced under us is noticed before each append: what is appended is always in the file of that name.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

SIDE_BY_SIDE = 16
"""Files that are synced at the same time, each by a thread of its own."""
OPEN_FILES = 256
"""Descriptors kept open at most; a turn touches three files, a recovery many logs."""

_sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class Files(Protocol):
    """What a disk can do to paths below its root; each may raise OSError, and then may have done a part."""

    def prepare(self, path: str) -> int:
        """Make the file ready for `write`: it exists, durably. Gives its size."""

    def begin(self, path: str) -> None:
        """Make the file ready for `write`, and empty. That it exists, and is empty, is not durable."""

    def write(self, path: str, data: bytes) -> None:
        """Append to a prepared file, in the operating system's memory only."""

    def sync(self, path: str) -> None:
        """What was written to the file is on the disk."""

    def sync_all(self, paths: Sequence[str]) -> Mapping[str, OSError]:
        """The same for several files side by side; gives those that failed, and why. Raises nothing."""

    def truncate(self, path: str, size: int) -> None:
        """Cut the file off; not durable before `sync`."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """A part of the file, shorter where it ends. Raises FileNotFoundError."""

    def exists(self, path: str) -> bool:
        """Whether there is something of that name."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of what had it; not durable before `sync_folder`."""

    def remove(self, path: str) -> None:
        """Delete the file; not durable before `sync_folder`."""

    def sync_folder(self, path: str) -> None:
        """The names in the folder that holds `path` are on the disk."""

    def forget(self, path: str) -> None:
        """Trust nothing that is known about the file; the next call opens it again."""

    def close(self) -> None:
        """Give all descriptors back; they are opened again when needed."""


class _Open(NamedTuple):
    fd: int
    identity: tuple[int, int]


class OsFiles:
    """Files below `root`, readable by their owner only (0600, folders 0700)."""

    def __init__(self, root: str | Path, open_files: int = OPEN_FILES) -> None:
        self.root = os.fspath(root)
        self._limit = open_files
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def prepare(self, path: str) -> int:
        known = self._open.get(path)
        if known is not None:
            with suppress(FileNotFoundError):
                now = os.stat(self._full(path))
                if (now.st_dev, now.st_ino) == known.identity:
                    self._open.move_to_end(path)
                    return now.st_size
            self.forget(path)
        return self._open_file(path)

    def begin(self, path: str) -> None:
        self.forget(path)
        fd, status = self._opened(self._full(path), os.O_CREAT | os.O_TRUNC)
        self._keep(path, fd, status)

    def write(self, path: str, data: bytes) -> None:
        fd = self._open[path].fd
        written = os.write(fd, data)
        while written < len(data):  # a short write: the next one says why
            written += os.write(fd, memoryview(data)[written:])

    def sync(self, path: str) -> None:
        if path not in self._open:
            self.prepare(path)
        _sync(self._open[path].fd)

    def sync_all(self, paths: Sequence[str]) -> Mapping[str, OSError]:
        errors: dict[str, OSError] = {}
        if len(paths) == 1:
            self._sync_some(paths, errors)
            return errors
        opened = [path for path in paths if path in self._open]
        shares = [opened[n::SIDE_BY_SIDE] for n in range(min(SIDE_BY_SIDE, len(opened)))]
        others = [threading.Thread(target=self._sync_some, args=(share, errors)) for share in shares[1:]]
        for thread in others:
            thread.start()
        self._sync_some(shares[0] if shares else (), errors)
        for thread in others:
            thread.join()
        self._sync_some([path for path in paths if path not in opened], errors)
        return errors

    def _sync_some(self, paths: Sequence[str], errors: dict[str, OSError]) -> None:
        for path in paths:
            try:
                self.sync(path)
            except OSError as error:
                errors[path] = error

    def truncate(self, path: str, size: int) -> None:
        os.truncate(self._full(path), size)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        fd = os.open(self._full(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            if offset:
                os.lseek(fd, offset, os.SEEK_SET)
            return _read_exactly(fd, os.fstat(fd).st_size - offset if length is None else length)
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

    def _open_file(self, path: str) -> int:
        full = self._full(path)
        fd, status = self._opened(full)
        if status.st_size == 0:  # new, or made by a process that died before it could sync the folder
            try:
                _sync_folder(os.path.dirname(full))
            except OSError:
                os.close(fd)
                raise
        self._keep(path, fd, status)
        return status.st_size

    def _opened(self, full: str, more: int = 0) -> tuple[int, os.stat_result]:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | more
        try:
            fd = os.open(full, flags, 0o600)
        except FileNotFoundError:
            _make_folders(os.path.dirname(full))
            fd = os.open(full, flags | os.O_CREAT, 0o600)
        try:
            return fd, os.fstat(fd)
        except OSError:
            os.close(fd)
            raise

    def _keep(self, path: str, fd: int, status: os.stat_result) -> None:
        self._open[path] = _Open(fd, (status.st_dev, status.st_ino))
        if len(self._open) > self._limit:
            self.forget(next(iter(self._open)))


def _read_exactly(fd: int, length: int) -> bytes:
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
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
