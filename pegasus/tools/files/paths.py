"""Access to files by path, restricted to the allowed folders.

The rule is about *real* paths. Whatever a path contains (`..`, `~`, symbolic links anywhere in it,
also in the part that exists when the rest does not), the place that it finally means must be an
allowed folder or lie below one.

Checking a path and then using it leaves a moment in which another process can put a link in its
place. Therefore the check (`locate`) returns a real path, which contains no link, and the way to it
is walked again at the moment of use: from the allowed folder down, one descriptor after the other,
each opened with O_NOFOLLOW. The last operation (open, rename, unlink) is relative to the last
descriptor. A link that is found on this way was put there after the check, and is refused.

Pegasus's own home is closed, whatever is allowed (`ToolContext.closed_paths`), but for the workspace in it. That is
checked twice, too: by path, and by what a folder or file *is* (device and inode) when it is opened. So
neither a hard link nor another spelling leads there.

Guaranteed: whatever is opened, made, renamed or deleted was, when its folder was opened, in a
folder below an allowed one. Not covered: other hard links and mounts that lead elsewhere, and a folder
that is moved out of the allowed one during the walk. Somebody who can do that can reach the files
directly.

Paths are compared as they are spelled on the disk. Where a file system ignores case, another
spelling of an allowed folder is refused, never the reverse. Every function here blocks for a short
time, so all of them are called in threads.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from pegasus.autorun_files import is_autorun_file
from pegasus.guarded_open import open_folder, open_regular
from pegasus.identity import NOTES_FILE, OWNER_FILES
from pegasus.memory import NOTES_FOLDER
from pegasus.sandbox import is_within
from pegasus.tools.base import ToolContext, ToolError

NEVER_ALLOWED: Final = ("/proc", "/sys", "/dev")
"""Folders that no setting can allow. They hold interfaces of the kernel and of processes, such as
the daemon's own memory."""

_OPEN_STEP: Final = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to pass through a folder. O_PATH (Linux) needs no right to list it."""
_PROMPT_FILES: Final = frozenset(name.casefold() for name in (*OWNER_FILES, NOTES_FILE))
"""Paths of files in the workspace that are part of prompts, as file systems without capital letters know them."""
_MOST_MOVED: Final = 10_000
"""Names within a folder that are looked at when it is moved. A larger one may hold anything."""
_OTHER_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)
"""Kinds of entries that are no regular files, with their names."""


class LocatedPath(NamedTuple):
    """A checked path: an allowed folder and the way from there. `locate` makes it; all access to files takes it.

    For example:

        located = locate(context, "notes/today.md")
        with refusing(located.shown), folder_of(located) as folder:
            os.unlink(located.name, dir_fd=folder)
    """

    root: str
    """The allowed folder, a real path."""
    steps: tuple[str, ...]
    """The names from there down. None of them was a link when the path was checked. () means the
    allowed folder itself."""
    shown: str
    """The path as the model wrote it, for messages."""
    closed: frozenset[tuple[int, int]] = frozenset()
    """Device and inode of what must not be opened on the way, or at its end."""

    @property
    def real(self) -> str:
        """The absolute real path."""
        return os.path.join(self.root, *self.steps)

    @property
    def name(self) -> str:
        """The last name; "" for the allowed folder itself."""
        return self.steps[-1] if self.steps else ""


def real_folders(folders: Sequence[str], workspace: Path) -> tuple[Path, ...]:
    """Return the folders of a setting as real paths. `~` is the user's directory; relative ones start at the workspace."""
    return tuple(Path(os.path.realpath(os.path.join(workspace, os.path.expanduser(folder)))) for folder in folders)


def locate(context: ToolContext, path: str, *, follow: bool = True) -> LocatedPath:
    """Check a path against the allowed folders and return where it leads.

    follow: if False and the last name is a symbolic link, the link itself is meant and not its
    target. Raises ToolError, which names the allowed folders, for a path outside of them or one
    that cannot be used at all.
    """
    try:
        real = _resolve(os.path.join(context.workspace, _expand_home(path)), follow=follow)
        os.fsencode(real)
    except (ValueError, OSError) as error:  # a NUL, half a character pair, a loop of links
        raise ToolError(f"{path!r} cannot be used as a path: {_explain(error)}") from None
    for folder in map(str, context.allowed_paths):
        if is_within(real, folder):
            _refuse_system_folders(real, path)
            # A folder of an owner's own opens nothing that is closed: settings may lie in it.
            in_workspace = any(is_within(real, str(place)) for place in (context.places[-1], *context.open_paths))
            if not in_workspace and any(is_within(real, str(closed)) for closed in context.closed_paths):
                raise _closed_error(path)
            steps = tuple(os.path.relpath(real, folder).split(os.sep)) if real != folder else ()
            return LocatedPath(folder, steps, path, closed_identities(context, folders=not in_workspace))
    raise ToolError(f"{path} is outside of what tools may touch. {_format_allowed(context)}")


def closed_identities(context: ToolContext, *, folders: bool = True) -> frozenset[tuple[int, int]]:
    """Return device and inode of what is closed and exists. folders: of folders, too; the way to the workspace leads through one."""
    found = set()
    for path in context.closed_paths:
        with suppress(OSError):
            status = os.stat(path)
            if folders or not stat.S_ISDIR(status.st_mode):
                found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def _closed_error(path: str) -> ToolError:
    return ToolError(f"{path} belongs to the agent itself (its keys, settings and memory), which tools never touch")


def real_path(context: ToolContext, path: str) -> str:
    """Return where a path leads, allowed or not; the path itself if it cannot be used, which `locate` refuses."""
    try:
        return _resolve(os.path.join(context.workspace, _expand_home(path)), follow=True)
    except (ValueError, OSError):
        return path


def is_prompt_file(context: ToolContext, path: str) -> bool:
    """Return whether a path leads to a file of the workspace that is part of every prompt, such as AGENTS.md."""
    return any(name.casefold() in _PROMPT_FILES for name in _inner_names(context, path, context.places[-1:]))


def runs_by_itself(context: ToolContext, path: str, moved: str = "") -> bool:
    """Return whether programs run or obey by themselves what a path of the workspace leads to. Blocks briefly.

    It goes by names (`pegasus.autorun_files`). moved: what is moved there, which may be a folder with such files in it, or one that
    has them under its new name.
    """
    names = _inner_names(context, path, context.places)
    if any(map(is_autorun_file, names)):
        return True
    entries = 0
    source = real_path(context, moved) if moved else ""
    for folder, folders, files in os.walk(source) if source else ():
        inner = os.path.relpath(folder, source)
        entries += len(folders) + len(files)
        found = (os.path.normpath(os.path.join(name, inner, each)) for name in names for each in (*folders, *files))
        if entries > _MOST_MOVED or any(map(is_autorun_file, found)):
            return True
    return False


def _inner_names(context: ToolContext, path: str, places: Sequence[Path]) -> set[str]:
    """Return what a path means in these folders, relative to each: where it leads, and the link itself, which a move replaces."""
    names = set[str]()
    for follow in (True, False) if path else ():  # "" leads nowhere, and `locate` refuses it
        with suppress(ValueError, OSError):
            real = _resolve(os.path.join(context.workspace, _expand_home(path)), follow=follow)
            names.update(os.path.relpath(real, place) for place in places)
    return names


def notes_of_owners(context: ToolContext) -> tuple[Path, ...]:
    """Return the folder with the notes of owners' conversations and what is in it: closed to work for guests. Blocks briefly."""
    folder = context.places[-1] / NOTES_FOLDER
    try:
        return (folder, *sorted(folder.iterdir()))
    except OSError:
        return (folder,)


def _format_allowed(context: ToolContext) -> str:
    """Return a sentence that names the allowed folders."""
    folders = ", ".join(map(str, context.allowed_paths)) or "nothing"
    return f"Allowed: {folders} (relative paths start at {context.workspace})."


def real_folder(context: ToolContext, path: str) -> str:
    """Return the real path of an existing allowed folder, for use as a working directory. Raises ToolError."""
    located = locate(context, path)
    with refusing(path), folder_of(LocatedPath(located.root, (*located.steps, "."), path, located.closed)):
        return located.real


def _expand_home(path: str) -> str:
    """Return the path with `~` at its beginning replaced. `~user` is an ordinary name: other homes are not looked up."""
    if not path:
        raise ValueError("it is empty; the workspace itself is .")
    return os.path.expanduser(path) if path == "~" or path.startswith("~/") else path


def _resolve(path: str, *, follow: bool) -> str:
    """Return the real path. Without `follow` only the folder part is resolved, so that a link stays a link."""
    above, name = os.path.split(path)
    if follow or name in ("", ".", ".."):
        return os.path.realpath(path)
    return os.path.join(os.path.realpath(above), name)


def _refuse_system_folders(real: str, path: str) -> None:
    """Raise ToolError for a path in a folder that holds no files but interfaces of the kernel."""
    if any(is_within(real, folder) for folder in NEVER_ALLOWED):
        raise ToolError(
            f"{path} is a part of the operating system and not a file ({', '.join(NEVER_ALLOWED)}), which tools never touch"
        )


# ------------------------------------------------------------------ opening


@contextmanager
def folder_of(located: LocatedPath, *, make: bool = False) -> Iterator[int]:
    """Open the folder that holds the path, without following any link, and yield its descriptor for use as `dir_fd`.

    make: missing folders on the way are made. The descriptor is closed at the end of the block.
    Raises OSError.
    """
    fd = os.open(located.root, _OPEN_STEP)
    try:
        for step in located.steps[:-1]:
            below = _open_step(fd, step, make=make)
            os.close(fd)
            fd = below
            _refuse_closed(os.fstat(fd), located)
        if located.closed and located.steps:
            with suppress(FileNotFoundError):
                _refuse_closed(os.stat(located.name, dir_fd=fd, follow_symlinks=False), located)
        yield fd
    finally:
        os.close(fd)


def _refuse_closed(status: os.stat_result, located: LocatedPath) -> None:
    """Raise ToolError if this is what the path must not lead to."""
    if (status.st_dev, status.st_ino) in located.closed:
        raise _closed_error(located.shown)


def _open_step(fd: int, step: str, *, make: bool) -> int:
    """Open one folder on the way. Another process may make it at the same time as we do, which is not an error."""
    try:
        return os.open(step, _OPEN_STEP, dir_fd=fd)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):
            os.mkdir(step, dir_fd=fd)
        return os.open(step, _OPEN_STEP, dir_fd=fd)


@contextmanager
def located_folder(located: LocatedPath) -> Iterator[int]:
    """Open the folder that a path leads to, for listing it, and yield its descriptor. Raises OSError."""
    with folder_of(located) as above, open_folder(located.name or ".", above) as folder:
        yield folder


def open_file(folder: int, name: str, shown: str) -> tuple[BinaryIO, os.stat_result]:
    """Open a regular file of an open folder for reading. Raises ToolError for anything else, and OSError."""
    # Looked at before, since opening a device may do something. It may have been exchanged since.
    require_file(os.stat(name, dir_fd=folder, follow_symlinks=False), shown)
    file = open_regular(name, folder)
    return file, os.fstat(file.fileno())


def require_file(status: os.stat_result, shown: str) -> None:
    """Raise ToolError, which names the kind, unless this is a regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{shown} is {kind_of(status)}, not a regular file")


def kind_of(status: os.stat_result) -> str:
    """Return the kind in words: a file, a folder, a named pipe and so on."""
    return next((words for test, words in _OTHER_KINDS if test(status.st_mode)), "a file")


# ------------------------------------------------------------------ errors

_REASONS: Final = {
    errno.ENOENT: "there is no such file or folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "the operating system does not permit it",
    errno.ENOSPC: "the disk is full; nothing was changed",
    errno.EDQUOT: "the disk quota is used up; nothing was changed",
    errno.EROFS: "the file system is read-only",
    errno.ENOTDIR: "a part of the path is a file and not a folder, or was changed into a link during the call",
    errno.EISDIR: "it is a folder",
    errno.ELOOP: "a symbolic link on the way leads in a circle, or was put there during the call",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EMFILE: "too many files are open; try again in a moment",
}
"""Errors of the operating system in words for the model."""


def _explain(error: Exception) -> str:
    """Return the reason of an error in words for the model, instead of the name of an errno."""
    if isinstance(error, UnicodeError):
        return "it holds characters that are not text"
    if isinstance(error, OSError):
        return _REASONS.get(error.errno or 0) or error.strerror or str(error)
    return str(error)


@contextmanager
def refusing(shown: str) -> Iterator[None]:
    """Turn an OSError in the block into a ToolError that names the path and the reason."""
    try:
        yield
    except OSError as error:
        raise ToolError(f"{shown}: {_explain(error)}") from error
