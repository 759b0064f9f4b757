"""Opening files and folders that others can write: no link is followed, and no pipe is waited for.

A path can mean another file a moment after it was looked at. So a folder is opened, what is in it is opened relative to its
descriptor, and what is checked is what is open.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@contextmanager
def open_folder(path: str | os.PathLike[str], folder: int | None = None) -> Iterator[int]:
    """Open a folder, yield its descriptor, and close it at the end of the block. A link is refused. Raises OSError.

    folder: descriptor of the folder that `path` is relative to.
    """
    descriptor = os.open(path, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_regular(path: str | os.PathLike[str], folder: int | None = None, *, follows: bool = False) -> BinaryIO:
    """Open a regular file for reading. Raises OSError, also for everything else that has a name: a folder, a pipe, a device.

    folder: as above. follows: a link at the end of the path is followed, otherwise refused.
    """
    descriptor = os.open(path, _FILE if follows else _FILE | os.O_NOFOLLOW, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return open(descriptor, "rb")
