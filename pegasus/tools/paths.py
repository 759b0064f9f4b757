"""Which files tools may touch, and how they are reached so that nothing else is touched.

The rule is about *real* paths: whatever a path says (`..`, `~`, symbolic links anywhere in it, also in the part that
exists when the rest does not), what it means must be an allowed folder or lie below one.

Checking a path and then using it leaves a moment in which somebody can put a link in its place. So the check gives a
real path, which holds no link, and the way to it is then walked from the allowed folder down, one descriptor after the
other, each opened with O_NOFOLLOW, and the last step (open, rename, unlink) is done relative to the last descriptor.
A link found on this way was put there meanwhile and is refused. What is guaranteed: what is opened, made, renamed or
deleted was, when its folder was opened, in a folder below an allowed one. What cannot be seen: hard links and mounts that
lead elsewhere, and a folder that is moved out of the allowed one during the walk (who can do that, can do more).

Paths are compared as they are spelled on the disk; where a file system takes `A` for `a`, another spelling of an allowed
folder is refused, never the reverse. Everything here blocks, shortly, so it is called in threads.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from pegasus.tools.base import ToolContext, ToolError

NEVER: Final = ("/proc", "/sys", "/dev")
"""No files but doors into the kernel and into processes (the daemon's own memory and keys among them)."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP: Final = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)


class Place(NamedTuple):
    """Where a path leads. root: the allowed folder, a real path. steps: the names from there, none of them a link.

    shown: the path as the model said it.
    """

    root: str
    steps: tuple[str, ...]
    shown: str

    @property
    def real(self) -> str:
        """The real path, absolute."""
        return os.path.join(self.root, *self.steps)

    @property
    def name(self) -> str:
        """The last name, "" for the allowed folder itself."""
        return self.steps[-1] if self.steps else ""


def real_folders(folders: Sequence[str], workspace: Path) -> tuple[Path, ...]:
    """The folders of a setting as real paths: `~` is the user's directory, relative ones start at the workspace."""
    return tuple(Path(os.path.realpath(os.path.join(workspace, os.path.expanduser(folder)))) for folder in folders)


def locate(context: ToolContext, path: str, *, follow: bool = True) -> Place:
    """Where the path leads. follow=False: if its last name is a symbolic link, the link itself is meant.

    Raises ToolError that names what is allowed.
    """
    try:
        real = _real(os.path.join(context.workspace, _expanded(path)), follow=follow)
        os.fsencode(real)
    except (ValueError, OSError) as error:  # a NUL, half a character pair, a loop of links
        raise ToolError(f"{path!r} is no path that can be used: {_words(error)}") from None
    for folder in map(str, context.allowed_paths):
        inside = os.path.join(folder, "")
        if real == folder or real.startswith(inside):
            _refuse_doors(real, path)
            return Place(folder, tuple(real[len(inside) :].split(os.sep)) if real != folder else (), path)
    raise ToolError(f"{path} is outside of what tools may touch. {allowed(context)}")


def allowed(context: ToolContext) -> str:
    """A sentence that says where tools may go."""
    folders = ", ".join(map(str, context.allowed_paths)) or "nothing"
    return f"Allowed: {folders} (relative paths start at {context.workspace})."


def real_folder(context: ToolContext, path: str) -> str:
    """The real path of a folder that exists and is allowed, as a working directory. Raises ToolError."""
    place = locate(context, path)
    with refusing(place.shown), folder_of(Place(place.root, (*place.steps, "."), place.shown)):
        return place.real


def _expanded(path: str) -> str:
    if not path:
        raise ValueError("it is empty; the workspace itself is .")
    return os.path.expanduser(path) if path == "~" or path.startswith("~/") else path


def _real(path: str, *, follow: bool) -> str:
    above, name = os.path.split(path)
    if follow or name in ("", ".", ".."):
        return os.path.realpath(path)
    return os.path.join(os.path.realpath(above), name)


def _refuse_doors(real: str, path: str) -> None:
    if any(real == door or real.startswith(door + os.sep) for door in NEVER):
        raise ToolError(
            f"{path} is no file but a part of the operating system ({', '.join(NEVER)}), which tools never touch"
        )


# ------------------------------------------------------------------ reaching it


@contextmanager
def folder_of(place: Place, *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder that holds the place, reached without following any link; for use as `dir_fd`.

    make: folders that are missing on the way are made. Raises OSError.
    """
    fd = os.open(place.root, _STEP)
    try:
        for step in place.steps[:-1]:
            below = _open_step(fd, step, make=make)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def _open_step(fd: int, step: str, *, make: bool) -> int:
    try:
        return os.open(step, _STEP, dir_fd=fd)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):
            os.mkdir(step, dir_fd=fd)
        return os.open(step, _STEP, dir_fd=fd)


def open_folder(place: Place) -> int:
    """A descriptor of the folder that the place is, for listing. Raises OSError."""
    if not place.steps:
        return os.open(place.root, _FOLDER)
    with folder_of(place) as above:
        return os.open(place.name, _FOLDER, dir_fd=above)


def open_file(fd: int, name: str, shown: str) -> tuple[int, os.stat_result]:
    """A descriptor to read the regular file `name` in the folder `fd`, and its status. Never waits for a pipe or wakes a device.

    Raises ToolError for what is no regular file, and OSError.
    """
    require_file(os.stat(name, dir_fd=fd, follow_symlinks=False), shown)
    opened = os.open(name, os.O_RDONLY | _FILE, dir_fd=fd)
    try:
        status = os.fstat(opened)
        require_file(status, shown)
    except BaseException:
        os.close(opened)
        raise
    return opened, status


def require_file(status: os.stat_result, shown: str) -> None:
    """Raises ToolError that says what it is, unless it is a regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{shown} is {kind_of(status)}, not a regular file")


def kind_of(status: os.stat_result) -> str:
    """In words: a file, a folder, a named pipe and so on."""
    return next((words for test, words in _KINDS if test(status.st_mode)), "a file")


# ------------------------------------------------------------------ what the operating system says

_ADVICE: Final = {
    errno.ENOENT: "there is no such file or folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "the operating system does not permit it",
    errno.ENOSPC: "the disk is full; nothing was changed",
    errno.EDQUOT: "the disk quota is used up; nothing was changed",
    errno.EROFS: "the file system is read-only",
    errno.ENOTDIR: "a part of the path is a file or was changed into a link meanwhile, not a folder",
    errno.EISDIR: "it is a folder",
    errno.ELOOP: "a symbolic link on the way leads in a circle, or was put there meanwhile",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EMFILE: "too many files are open; try again in a moment",
}


def _words(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "it holds characters that are no text"
    if isinstance(error, OSError):
        return _ADVICE.get(error.errno or 0) or error.strerror or str(error)
    return str(error)


@contextmanager
def refusing(shown: str) -> Iterator[None]:
    """What the operating system refuses becomes a ToolError that names the path."""
    try:
        yield
    except OSError as error:
        raise ToolError(f"{shown}: {_words(error)}") from error
