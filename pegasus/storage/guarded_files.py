"""Files below a folder that others may write in too, such as the workspace, where commands run.

Whoever may write there can put a link, a pipe or a folder in the place of a file, or a link in the place of a folder, so that a
write of ours would end somewhere else: in the user's `.ssh`, say. So each folder is opened relative to its parent, and no link is
followed. Only regular files without a second name are read and written, and nothing but such a file is replaced.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from pegasus.storage.files import OsFiles

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to open a folder; a link is refused."""
_FILE: Final = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
"""Flags to open a file; a link is refused, and a pipe does not wait for its other end."""


class GuardedFiles(OsFiles):
    """`Files` of the operating system below a folder that is trusted, with content that is not.

    A link is an OSError (ELOOP or ENOTDIR), and so is everything else that is no regular file.

        disk = FileDisk(home.workspace, GuardedFiles(home.workspace))
        await disk.run(Volume.replace, "memory/MEMORY.md", content)
    """

    def exists(self, path: str) -> bool:
        try:
            self._status(path)
        except FileNotFoundError:
            return False
        return True

    def rename(self, old: str, new: str) -> None:
        with suppress(FileNotFoundError):
            _check(self._status(new))
        with self._folder_of(old) as (source, old_name), self._folder_of(new) as (target, new_name):
            os.replace(old_name, new_name, src_dir_fd=source, dst_dir_fd=target)

    def remove(self, path: str) -> None:
        with self._folder_of(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def sync_folder(self, path: str) -> None:
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

    def _open_regular(self, path: str, flags: int) -> int:
        with self._folder_of(path) as (folder, name):
            fd = os.open(name, flags | _FILE, 0o600, dir_fd=folder)
        try:
            _check(os.fstat(fd))
        except OSError:
            os.close(fd)
            raise
        return fd

    @contextmanager
    def _folder_of(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the folder of a path, step by step; give its descriptor and the last part of the path. Raises OSError."""
        *steps, name = path.split("/")
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for step in steps:
                inner = os.open(step, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder, name
        finally:
            os.close(folder)


def _check(status: os.stat_result) -> None:
    """Raise OSError for what is no regular file, and for one that has a second name: a write would change that file, too."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if status.st_nlink > 1:
        raise OSError(errno.EMLINK, "the file has a second name")
