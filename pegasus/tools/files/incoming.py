"""A file that comes in piece by piece, such as a download: it appears under its name when it is complete, or not at all.

The pieces go into a hidden temporary file in the same folder, which is synced and then gets its name. A file of that name that is
there already stays, unless the caller wants it replaced. Free space is looked at before and while writing, so that a stranger's
file cannot fill the disk that the agent's own data is on.

All functions block, so they are called in threads. As everywhere in this package, the folder is a descriptor: a link that somebody
puts in the way during a long download changes nothing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from contextlib import AbstractContextManager, ExitStack, suppress
from secrets import token_hex
from types import TracebackType
from typing import Final, Self

from trio.from_thread import check_cancelled

from pegasus.guarded_open import open_folder
from pegasus.tools.base import ToolContext, ToolError
from pegasus.tools.files.keeping import identity_of, kept, missing_above
from pegasus.tools.files.paths import folder_of, is_prompt_file, locate, refusing, runs_by_itself

RESERVE: Final = 200 << 20
"""Bytes of the disk that are left free."""
_PIECE: Final = 1 << 20
"""Bytes that are written between two looks for a cancel."""
_LOOK_EVERY: Final = 16 << 20
"""Bytes after which the free space is looked at again."""
_REMAINS: Final = re.compile(r"\.[0-9a-f]{16}\.download")
"""Name of a temporary file."""
_OLD: Final = 86_400.0
"""Seconds after which a temporary file is taken for the remains of a process that was killed. No download takes that long."""
_MOST_NAMES: Final = 1000
"""Numbers that are tried for a file whose name is taken."""


class IncomingFile:
    """A file that is being written. Leaving the block without `finish` leaves nothing of it.

    Example::

        with IncomingFile(context, "downloads/", "report.pdf", expected=1000) as file:
            file.write(data)
            path = file.finish()   # "downloads/report.pdf", or "downloads/report-2.pdf" if that was taken
    """

    def __init__(self, context: ToolContext, path: str, name: str, *, expected: int = 0, replace: bool = False) -> None:
        """Resolve the target path; the `async with` block creates the file.

        Raises ToolError for a path that may not be written, or that exists and is not to be replaced.

        A file that is part of every prompt, or that programs run by themselves, is never written: what comes in is a stranger's.

        path: as the model gave it; a folder if it ends in / or is one. name: of the file in a folder; it is made different if it is
        taken. expected: bytes, as far as the sender tells; 0 = unknown. replace: an existing file is replaced.
        """
        self.size = 0
        """Bytes written so far."""
        self._context = context
        self._made = 0
        """Folders above it that are made for it."""
        located = locate(context, path)
        is_folder = path.endswith("/") or not located.steps or os.path.isdir(located.real)
        self._may_rename = is_folder
        self._path = os.path.join(path, name) if is_folder else path
        self._located = locate(context, self._path)
        # Checked here and not by the callers, so that no way in can forget it.
        if is_prompt_file(context, self._path):
            raise ToolError(f"{self._path} is part of every prompt, so nothing is saved there; choose another name")
        if runs_by_itself(context, self._path):
            raise ToolError(
                f"other programs run {self._path} by themselves, so nothing is saved there; choose another name"
            )
        self._replace = replace
        self._expected = expected
        self._digest = hashlib.sha256()
        self._looked_at = 0
        self._stack = ExitStack()
        if not replace and not is_folder and os.path.lexists(located.real):
            raise _exists(path)

    def __enter__(self) -> Self:
        """Make the temporary file; missing folders are made. Raises ToolError."""
        with ExitStack() as stack:
            stack.enter_context(refusing(self._path))
            self._made = missing_above(self._located)
            self._folder = stack.enter_context(folder_of(self._located, make=True))
            _remove_old_remains(self._folder)
            self._require_space(self._expected)
            self._temporary = f".{token_hex(8)}.download"
            # O_EXCL with a random name: nobody can have put a file or a link there before.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self._temporary, flags, 0o666, dir_fd=self._folder)
            # From here on leaving the block removes it. What fails above has made nothing but folders.
            stack.callback(self._remove)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the temporary file, if it is still there."""
        self._stack.close()

    def _remove(self) -> None:
        """Close and remove the temporary file."""
        os.close(self._fd)
        with suppress(OSError):
            os.unlink(self._temporary, dir_fd=self._folder)

    def write(self, data: bytes) -> None:
        """Append bytes. Raises ToolError, also if the disk gets full.

        After an error the file is of no use: it lacks these bytes, and only the block that removes it follows.
        """
        with refusing(self._path):
            if self.size - self._looked_at >= _LOOK_EVERY:
                self._require_space(len(data))
                self._looked_at = self.size
            rest = memoryview(data)
            # One call may write a part only, when the disk is nearly full or a signal comes.
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        self._digest.update(data)
        self.size += len(data)

    def finish(self) -> str:
        """Give the file its name, and return the path of it in the form that the model gave. Raises ToolError if the name is taken."""
        with refusing(self._path):
            # Before it gets its name: after a crash there is a complete file of that name, or none.
            os.fsync(self._fd)
            if self._replace:
                with self._kept(self._located.name):
                    os.rename(self._temporary, self._located.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
                return self._path
            for number in range(1, _MOST_NAMES if self._may_rename else 2):
                name = _numbered(self._located.name, number)
                with suppress(FileExistsError), self._kept(name):
                    self._claim(name)
                    return os.path.join(os.path.dirname(self._path), name)
        raise _exists(self._path)

    def _kept(self, name: str) -> AbstractContextManager[None]:
        """Keep what is at a name before the file gets it, so that a person can take it back."""
        located = self._located._replace(steps=(*self._located.steps[:-1], name))
        after = identity_of(self._folder, self._temporary) if self._context.changes is not None else ""
        return kept(self._context, "write", located, self._folder, made=self._made, after=after)

    @property
    def sha256(self) -> str:
        """The digest of what was written, in hexadecimal."""
        return self._digest.hexdigest()

    def _claim(self, name: str) -> None:
        """Give the temporary file a name that nobody has. Raises FileExistsError if it is taken."""
        try:
            # A link fails where the name exists. A rename would replace a file that somebody has made meanwhile.
            os.link(self._temporary, name, src_dir_fd=self._folder, dst_dir_fd=self._folder, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EINVAL):
                raise
            # A file system without hard links: an empty file holds the name until the real one replaces it.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(name, flags, 0o666, dir_fd=self._folder))
            os.rename(self._temporary, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def _require_space(self, wanted: int) -> None:
        """Raise ToolError unless the disk has room for this many bytes, and some more."""
        disk = os.fstatvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if free < wanted + RESERVE:
            raise ToolError(
                f"the disk has {free:,} bytes left, too few for {self._path} and the {RESERVE:,} that stay free"
            )


def save_incoming(context: ToolContext, path: str, name: str, content: bytes, *, replace: bool = False) -> str:
    """Save a whole file, and return its path; see `IncomingFile`. Cancelled, or failed: nothing of it is left."""
    with IncomingFile(context, path, name, expected=len(content), replace=replace) as file:
        for start in range(0, len(content), _PIECE):
            check_cancelled()
            file.write(content[start : start + _PIECE])
        return file.finish()


def _remove_old_remains(folder: int) -> None:
    """Remove temporary files that a killed process has left in the folder. One that may not be listed keeps them."""
    try:
        with open_folder(".", folder) as listed:
            names = os.listdir(listed)
    except OSError:
        return
    for name in names:
        if _REMAINS.fullmatch(name):
            with suppress(OSError):
                if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < time.time() - _OLD:
                    os.unlink(name, dir_fd=folder)


def _exists(path: str) -> ToolError:
    """Return the error for a file that is there already."""
    return ToolError(f"{path} exists already; choose another path, or with download set overwrite")


def _numbered(name: str, number: int) -> str:
    """Return the name with a number in front of its ending; the first one has none."""
    stem, dot, ending = name.rpartition(".")
    if number == 1:
        return name
    return f"{stem}-{number}.{ending}" if dot and stem and len(ending) <= 10 else f"{name}-{number}"
