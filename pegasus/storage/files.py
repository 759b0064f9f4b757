"""Operations on files that storage is built from, and how the operating system does them.

`volume` is written against the protocol `Files`, so that tests can put a disk in its place that fails, fills up or loses
power at any operation (`pegasus.testing.memory_disk`). `OsFiles` does the operations on a real file system.

All of them block, so they are called in the disk's thread only; see `pegasus.storage.disk.FileDisk`.

The protocol is small so that its semantics can be stated and simulated completely. It separates what POSIX
separates: writing (visible to readers), syncing data (durable content) and syncing the folder (durable name).
Code above must call all three in the right order. With the simulated disk, a test fails at each call that is missing.

`GuardedFiles` does the same below a folder that others may write in too, such as the workspace, where commands run. Whoever may
write there can put a link, a pipe or a folder in the place of a file, or a link in the place of a folder. A write of ours would then
end somewhere else, in the user's `.ssh` for example. So each folder is opened relative to its parent, and no link is followed. Only
regular files without a second name are read and written, and nothing but such a file is replaced.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Protocol

from outcome import Outcome, capture
from trio.lowlevel import start_thread_soon

_sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
"""Makes content and size durable. `fdatasync` leaves out times, which saves a write of the inode."""

_SYNCED_AT_ONCE = 8
"""Files that are synced at the same time."""

_GUARDED_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to open a folder that others may have replaced; a link is refused."""
_GUARDED_FILE: Final = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
"""Flags to open a file likewise; a link is refused, and a pipe does not wait for its other end."""


class Files(Protocol):
    """Operations on the files below one root. Each may raise OSError, and may have done a part of its work then.

    Paths are relative, with `/` between folders. Data is durable only when `sync` has returned for it, and a name only
    when `sync_folder` has returned for its folder.

    Example::

        size = files.prepare("main/current.jsonl")
        files.write("main/current.jsonl", line)
        files.sync("main/current.jsonl")  # durable from here on
        files.close("main/current.jsonl")
    """

    def prepare(self, path: str) -> int:
        """Open the file for `write`, and return its size. Afterwards the file exists, durably."""

    def begin(self, path: str) -> None:
        """Open the file for `write`, and empty. Neither its name nor its emptiness is durable yet."""

    def write(self, path: str, data: bytes) -> None:
        """Append to an open file, in the operating system's memory only."""

    def sync(self, path: str) -> None:
        """Make durable what was written to the open file."""

    def sync_all(self, paths: Sequence[str]) -> None:
        """Do the same for several open files. After an error, each of them may be durable or not."""

    def close(self, path: str) -> None:
        """Close the file, if it is open."""

    def truncate(self, path: str, size: int) -> None:
        """Cut the open file off. Durable with the next `sync`."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a part of the file, less where it ends earlier. Raises FileNotFoundError."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file, or anything else, of that name."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, replacing the file that has it. Durable with the next `sync_folder`."""

    def written(self, folder: str) -> dict[str, int]:
        """Return the names of the files directly in a folder, with the time of the last write in ms since the epoch."""

    def remove_folder(self, folder: str) -> None:
        """Delete a folder that is empty."""

    def remove(self, path: str) -> None:
        """Delete a file. Durable with the next `sync_folder`."""

    def sync_folder(self, path: str) -> None:
        """Make durable the names in the folder that holds `path`."""


class OsFiles:
    """`Files` of the operating system, readable by their owner only (files 0600, folders 0700).

    A file is opened for each change: its name is looked up again each time, so that a file which somebody has renamed,
    deleted or replaced meanwhile is noticed. Writing and syncing happen on one descriptor, since only that is sure to
    report an error of the sync.

    Only regular files are opened, for reading as for writing. A FIFO in the place of a file would block the thread for
    ever, and with it every request after this one.

    Example::

        files = OsFiles(home.data)
        files.prepare("main/current.jsonl")
        files.write("main/current.jsonl", line)
        files.sync("main/current.jsonl")
        files.close("main/current.jsonl")
    """

    def __init__(self, root: str | Path) -> None:
        self.root = str(root)
        """Folder that all paths are relative to."""
        self._open: dict[str, int] = {}
        """Descriptors of open files by path."""

    def prepare(self, path: str) -> int:
        """Open for appending. An empty file may be one whose name no folder has durably yet, so its folder is synced."""
        size = self._create(path)
        if size == 0:  # new, or made by a process that died before it could sync the folder
            self.sync_folder(path)
        return size

    def begin(self, path: str) -> None:
        """Open and empty. The caller writes a new file in this way, under a name that nobody reads."""
        self._create(path, os.O_TRUNC)

    def write(self, path: str, data: bytes) -> None:
        """Append all of it, in several writes if the system takes less at once. An error may leave a part in the file."""
        fd = self._open[path]
        written = os.write(fd, data)
        while written < len(data):  # a short write; the next one raises the reason
            written += os.write(fd, memoryview(data)[written:])

    def sync(self, path: str) -> None:
        """Sync the data of the descriptor that was written through: only that is sure to report an error of the sync."""
        _sync(self._open[path])

    def sync_all(self, paths: Sequence[str]) -> None:
        """Sync in a few threads: what a disk is asked for at the same time it does at the same time.

        The threads are those that Trio keeps for a while, since a new one takes as long to start as a sync. Measured by
        `./scripts/bench tasks`: 1,000 logs take 0.03 s instead of 0.12 s, where a sync takes 0.12 ms.
        """
        if len(paths) == 1:
            self.sync(paths[0])
            return

        def sync_some(some: Sequence[str]) -> None:
            """Sync these files one after the other, and stop at the first error."""
            for path in some:
                self.sync(path)

        first, *others = (paths[n::_SYNCED_AT_ONCE] for n in range(min(len(paths), _SYNCED_AT_ONCE)))
        outcomes: SimpleQueue[Outcome[None]] = SimpleQueue()
        for some in others:
            start_thread_soon(partial(sync_some, some), outcomes.put)
        # All of them have ended before an error is raised: the caller closes the files.
        for outcome in (capture(sync_some, first), *[outcomes.get() for _ in others]):
            outcome.unwrap()

    def close(self, path: str) -> None:
        """Close the descriptor. A file that is not open is left alone, so the caller may close after any error."""
        fd = self._open.pop(path, None)
        if fd is not None:
            os.close(fd)

    def truncate(self, path: str, size: int) -> None:
        """Cut off the rest of a failed append."""
        os.ftruncate(self._open[path], size)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Open the file anew for each read, so that one which was replaced meanwhile is read as it is now."""
        fd, size = self._open_regular(path, os.O_RDONLY)
        try:
            return _read(fd, offset, max(0, size - offset) if length is None else length)
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        """Return whether the name is taken, also by a link that leads nowhere: a new file must not go through it."""
        return os.path.lexists(self._full(path))

    def rename(self, old: str, new: str) -> None:
        """Replace in one step: a reader finds the old file or the new one, and a crash leaves one of them."""
        os.replace(self._full(old), self._full(new))

    def written(self, folder: str) -> dict[str, int]:
        """Look at regular files only. A folder that is missing has none."""
        found: dict[str, int] = {}
        with suppress(FileNotFoundError), os.scandir(self._full(folder)) as names:
            for name in names:
                status = name.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found[name.name] = status.st_mtime_ns // 1_000_000
        return found

    def remove_folder(self, folder: str) -> None:
        """Delete the folder. One that holds something, or is missing, raises OSError."""
        os.rmdir(self._full(folder))

    def remove(self, path: str) -> None:
        """Delete the name. A missing file raises FileNotFoundError."""
        os.unlink(self._full(path))

    def sync_folder(self, path: str) -> None:
        """Sync the folder that holds the file, and not the file."""
        _sync_folder(os.path.dirname(self._full(path)))

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _create(self, path: str, more: int = 0) -> int:
        """Open a file for appending, and return its size. Create it, and the folders above it, where they are missing."""
        self.close(path)
        flags = os.O_WRONLY | os.O_APPEND | more
        try:
            self._open[path], size = self._open_regular(path, flags)
        except FileNotFoundError:
            self._make_folders_of(path)
            self._open[path], size = self._open_regular(path, flags | os.O_CREAT)
        return size

    def _make_folders_of(self, path: str) -> None:
        """Create the folders above a file that are missing."""
        _make_folders(os.path.dirname(self._full(path)))

    def _open_regular(self, path: str, flags: int) -> tuple[int, int]:
        """Return a descriptor of the file, and its size. Raises OSError if it is a folder, a FIFO or a device."""
        # O_NONBLOCK keeps the open of a FIFO from waiting for its other end; it has no effect on regular files.
        fd = os.open(self._full(path), flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode):
            return fd, status.st_size
        os.close(fd)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise OSError(errno.EINVAL, "not a regular file")


def _read(fd: int, offset: int, length: int) -> bytes:
    """Return a part of a file, less where it ends earlier. A large one takes several reads."""
    parts: list[bytes] = []
    while length > 0 and (part := os.pread(fd, length, offset)):
        parts.append(part)
        offset, length = offset + len(part), length - len(part)
    return b"".join(parts)


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


# ------------------------------------------------------------------ files below a folder that others write in


class GuardedFiles(OsFiles):
    """`Files` of the operating system below a folder that is trusted, with content that is not.

    A link is an OSError (ELOOP or ENOTDIR), and so is everything else that is no regular file.

    Example::

        disk = FileDisk(home.workspace, GuardedFiles(home.workspace))
        await disk.run(Volume.replace, "memory/MEMORY.md", content)
    """

    def exists(self, path: str) -> bool:
        """Return whether the name is taken. A folder on the way that is a link raises OSError."""
        try:
            self._status(path)
        except FileNotFoundError:
            return False
        return True

    def rename(self, old: str, new: str) -> None:
        """Rename by the descriptors of both folders, so that no link can be put in their place in between.

        Raises OSError if the name is taken by a link, or by a file that has a second name.
        """
        with suppress(FileNotFoundError):
            _check_regular(self._status(new))
        with self._folder_of(old) as (source, old_name), self._folder_of(new) as (target, new_name):
            os.replace(old_name, new_name, src_dir_fd=source, dst_dir_fd=target)

    def remove(self, path: str) -> None:
        """Delete the name in the folder that was opened. A link is removed itself, and not the file that it leads to."""
        with self._folder_of(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def sync_folder(self, path: str) -> None:
        """Sync the folder by the descriptor that was opened step by step."""
        with self._folder_of(path) as (folder, _):
            os.fsync(folder)

    def _status(self, path: str) -> os.stat_result:
        with self._folder_of(path) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def _make_folders_of(self, path: str) -> None:
        above = ""
        for part in path.split("/")[:-1]:
            above = f"{above}{part}/"
            with self._folder_of(above.removesuffix("/")) as (folder, name), suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder)
                os.fsync(folder)

    def _open_regular(self, path: str, flags: int) -> tuple[int, int]:
        with self._folder_of(path) as (folder, name):
            fd = os.open(name, flags | _GUARDED_FILE, 0o600, dir_fd=folder)
        try:
            status = os.fstat(fd)
            _check_regular(status)
        except OSError:
            os.close(fd)
            raise
        return fd, status.st_size

    @contextmanager
    def _folder_of(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the folder of a path, step by step; give its descriptor and the last part of the path. Raises OSError."""
        *steps, name = path.split("/")
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for step in steps:
                inner = os.open(step, _GUARDED_FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder, name
        finally:
            os.close(folder)


def _check_regular(status: os.stat_result) -> None:
    """Raise OSError for what is no regular file, and for one that has a second name: a write would change that file, too."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if status.st_nlink > 1:
        raise OSError(errno.EMLINK, "the file has a second name")
