"""The folders that a walled-in command sees, planned once from the settings, for both kinds of walls.

The system can be read. The workspace, and the folders that the settings name, can be written. Hidden are the person's home, Pegasus's
own home but for the workspace, and the folders through which programs of the system are reached (`/run`) or leave things for each
other (`/tmp`). A hidden folder may hold what programs need, such as the Python interpreter: such folders can be read all the same.

The deeper entry counts: a workspace in a hidden home can be written, a hidden home in a writable folder stays hidden. A folder that
the owner has opened (`sandbox.writable`, `tools.allowed_paths`) is not hidden, nor is one within it, except Pegasus's own home.

`foreign_sockets` finds what in them leads to other programs. It is asked before each command; all else reads the file system briefly,
once, at the start.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

_SHARED: Final = ("/tmp", "/run", "/var/run")  # noqa: S108  names to hide, nothing is written there
"""Folders of the system that hold sockets, keys and files of running programs."""
_SYSTEM_LINKS: Final = ("/run/current-system", "/run/opengl-driver", "/run/wrappers", "/run/systemd/resolve")
"""Folders below /run that programs and their settings are in, on some systems."""
_TOOLCHAINS: Final = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "JAVA_HOME", "GOROOT", "RUSTUP_HOME")
"""Variables that name folders of programs, which are often in the person's home."""
_INSTALLATION_DEPTH: Final = 4
"""Slashes in the path of a folder that is deep enough in a home to belong to one installation: /home/me/.nvm/versions."""
_ROOTS_HOMES: Final = ("/root", "/home")
"""Homes that root may read, and its commands may not."""
_INTERFACES: Final = ("/proc", "/dev")
"""Folders of the kernel, to which rules of their own apply."""
_SOCKETS: Final = "/proc/net/unix"
_SOCKET_COLUMNS: Final = 7
"""Columns of the list before the path."""
MOST_SOCKETS: Final = 100
"""Sockets that are hidden from a command."""


@attrs.frozen(eq=False, repr=False)
class Folders:
    """The folders of walled-in commands, as real paths of what exists.

    For example:

        folders = plan_folders(home, home / "workspace", allowed_paths=("~/notes",))
        folders.entries()  # [("/home/me", "home"), ("/home/me/.pegasus", "hide"), …]
    """

    workspace: str
    """The folder that commands work in."""
    writable: tuple[str, ...] = ()
    """Folders that may be written, the workspace among them."""
    readable: tuple[str, ...] = ()
    """Folders within hidden ones that may be read."""
    homes: tuple[str, ...] = ()
    """Homes of people, in whose place a command sees an empty folder that it may write to."""
    hidden: tuple[str, ...] = ()
    """Folders and files that it does not see at all."""
    temporary: str = ""
    """The folder in which each command gets one of its own for temporary files."""

    def entries(self) -> list[tuple[str, str]]:
        """Return path and kind ("hide", "home", "read", "write") of each entry, upper ones first; later ones win.

        One that changes nothing, because the entry above it is of the same kind, is left out.
        """
        kinds = dict.fromkeys(self.homes, "home")
        kinds.update((path, "hide") for path in self.hidden)
        kinds.update((path, "read") for path in self.readable if path not in kinds)
        kinds.update((path, "write") for path in self.writable if path not in self.hidden)
        found: list[tuple[str, str]] = []
        for path, kind in sorted(kinds.items(), key=lambda entry: entry[0].split("/")):
            above = next((of for upper, of in reversed(found) if is_within(path, upper)), "read")
            if kind != above and (kind, above) != ("hide", "home"):
                found.append((path, kind))
        return found

    def kind_of(self, path: str) -> str:
        """Return the kind of entry that counts for a real path: "hide", "home", "read" or "write"."""
        return next((kind for upper, kind in reversed(self.entries()) if is_within(path, upper)), "read")

    def ways_to(self, path: str) -> list[str]:
        """Return the folders between what can be written and a hidden path in it, upper ones first.

        Whoever may write could rename them, with the hidden path below, and find it under its new name. So each becomes a mount of
        its own, which cannot be renamed.
        """
        if path not in self.hidden:
            return []
        above = [folder for folder in self.writable if is_within(path, folder) and folder != path]
        top = max(above, key=len, default=path)
        uppers: list[str] = []
        while is_within(path := os.path.dirname(path), top) and path != top:
            uppers.insert(0, path)
        return uppers

    def only(self, folder: str, *, environ: Mapping[str, str] = os.environ) -> Folders:
        """Return the folders for a command that works in this one, a real path, and sees none of the others that can be written.

        Programs in those can be run all the same. Where all is opened (`/`), homes and shared folders are closed again.
        """
        is_all = "/" in self.writable
        homes = [*self.homes, *(path for path in _homes(environ) if is_all and path not in self.hidden)]
        shared = _existing(_SHARED) if is_all else []
        hidden = dict.fromkeys([*self.hidden, *shared, *(path for path in self.writable if path != "/")])
        closed = [*hidden, *homes]
        needed = [path for path in _existing(_program_folders(environ)) if any(is_within(path, of) for of in closed)]
        readable = [path for path in needed if not any(is_within(of, path) for of in closed)]
        return Folders(folder, (folder,), tuple(readable), tuple(homes), tuple(hidden), self.temporary)

    def granted(self) -> tuple[list[str], list[str]]:
        """Return what may be read, and what may be written, for a wall that can only grant, never hide within what is granted."""
        kinds = dict(self.entries())
        closed = [path for path, kind in kinds.items() if kind in ("hide", "home")] + list(_INTERFACES)
        read = around("/", closed)
        write: list[str] = []
        for path, kind in kinds.items():
            if kind in ("read", "write"):
                (write if kind == "write" else read).extend(around(path, closed))
        return read, write


NO_FOLDERS: Final = Folders("")
"""The folders of a sandbox without walls."""


def plan_folders(
    home: Path,
    workspace: Path,
    *,
    allowed_paths: Sequence[str] = (),
    writable: Sequence[str] = (),
    settings_file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Folders:
    """Return the folders for these settings.

    home: Pegasus's own. allowed_paths, writable: as in the settings; relative ones start at the workspace. settings_file: hidden
    as well, since it may hold keys and be somewhere else. Folders that do not exist are left out.
    """
    real_workspace = os.path.realpath(workspace)
    opened = _existing(os.path.join(workspace, os.path.expanduser(path)) for path in (*allowed_paths, *writable))
    own = _existing([str(home), *([str(settings_file)] if settings_file is not None else [])])

    def is_opened(path: str) -> bool:
        """Return whether the owner has opened a folder, so that it is not hidden.

        A home that is the root counts as opened: all would be hidden with it.
        """
        return path == "/" or any(is_within(path, folder) for folder in opened)

    homes = [path for path in _homes(environ) if not is_opened(path) and path not in own]
    shared = [path for path in _existing(_SHARED) if not is_opened(path)]
    closed = [*own, *homes, *shared]
    needed = [path for path in _existing(_program_folders(environ)) if any(is_within(path, of) for of in closed)]
    return Folders(
        real_workspace,
        writable=(real_workspace, *(path for path in opened if not any(is_within(path, of) for of in own))),
        readable=tuple(path for path in needed if not any(is_within(of, path) for of in [*own, *homes])),
        homes=tuple(homes),
        hidden=tuple(dict.fromkeys([*own, *shared])),
        temporary=os.path.join(os.path.realpath(home), "run", "commands"),
    )


def around(root: str, closed: Iterable[str]) -> list[str]:
    """Return files and folders that together are all of `root` but `closed`. Links are left out: they may lead into what is closed.

    >>> around("/", ["/home/me"])  # doctest: +SKIP
    ['/bin', '/etc', '/home/other', '/usr']
    """
    inside = [path for path in closed if is_within(path, root)]
    if root in inside:
        return []
    if not inside:
        return [root]
    found: list[str] = []
    with suppress(OSError), os.scandir(root) as names:
        for entry in names:
            if not entry.is_symlink():
                found += around(entry.path, inside)
    return found


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is the folder itself or lies below it."""
    return path == folder or path.startswith(os.path.join(folder, ""))


def _existing(paths: Iterable[str]) -> list[str]:
    """Return the real paths of those that exist and are absolute, each once."""
    real = [os.path.realpath(path) for path in paths if os.path.isabs(path)]
    return [path for path in dict.fromkeys(real) if os.path.exists(path)]


def _homes(environ: Mapping[str, str]) -> list[str]:
    """Return the homes of people that this user may look into."""
    people = [environ.get("HOME", ""), *(_ROOTS_HOMES if os.geteuid() == 0 else ())]
    with suppress(KeyError):  # the system knows none for this user
        people.append(pwd.getpwuid(os.geteuid()).pw_dir)
    return _existing(people)


def _program_folders(environ: Mapping[str, str]) -> list[str]:
    """Return folders of programs: the interpreter's, this package's, those of PATH and of toolchains."""
    interpreter = [sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.realpath(sys.executable))]
    named = [environ[name] for name in _TOOLCHAINS if environ.get(name)]
    paths = [path for path in environ.get("PATH", "").split(":") if path]
    paths += [os.path.dirname(path) for path in paths if _belongs_to_installation(os.path.realpath(path))]
    return [*interpreter, os.path.dirname(__file__), *paths, *named, *_SYSTEM_LINKS]


def _belongs_to_installation(path: str) -> bool:
    """Return whether the folder above this one of PATH holds the rest of the same programs, and nothing else.

    So it is with `~/.nvm/versions/node/v20/bin` and `~/.pyenv/shims`. It is not with `~/.local/bin` and `~/.cargo/bin`, which have
    neighbours that hold passwords.
    """
    upper, name = os.path.split(path)
    return name == "shims" or (name == "bin" and upper.count("/") >= _INSTALLATION_DEPTH)


def foreign_sockets(folders: Folders) -> list[str]:
    """Return the real paths of sockets that commands would see and have not made. Takes a tenth of a millisecond for a hundred.

    A read-only mount lets everybody connect to a socket in it, and a service that listens there may do something outside for a
    command. The kernel lists all sockets with a path. One that is made while a command runs, or in another network namespace, is not
    in the list.
    """
    elsewhere = [*folders.writable, *folders.homes, *folders.hidden]
    found: set[str] = set()
    with suppress(OSError), open(_SOCKETS, "rb") as file:
        for line in file:
            words = line.rstrip(b"\n").split(None, _SOCKET_COLUMNS)
            path = os.fsdecode(words[_SOCKET_COLUMNS]) if len(words) > _SOCKET_COLUMNS else ""
            if not path.startswith("/") or any(is_within(path, folder) for folder in elsewhere):
                continue
            real = os.path.realpath(path)
            if not any(is_within(real, folder) for folder in elsewhere) and os.path.exists(real):
                found.add(real)
    return sorted(found)[:MOST_SOCKETS]
