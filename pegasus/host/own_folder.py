"""Folders of a person's own that tasks may be given to work in (`pegasus chat --folder`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_SYSTEM: Final = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr"),
    *("/Applications", "/Library", "/System", "/private/etc"),
)
"""Folders that belong to the system with all that is in them."""
_SHARED: Final = ("/", "/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/Users", "/var", "/var/tmp")  # noqa: S108
"""Folders that hold other people's folders, or those of programs: what is in them may be named, they may not."""


def folder_problem(folder: str, home: Path, workspace: Path) -> str:
    """Return why tasks must not work in a folder, "" if they may. home: of the agent.

    Nobody means the folders that are refused here: a command in `/` or in a home directory reaches keys and the settings of all
    programs, and whoever writes into the agent's own home changes the agent. Blocks briefly.
    """
    if not folder.isprintable() or not os.path.isabs(folder) or folder != os.path.realpath(folder):
        return f"{folder!r} is not the real path of a folder"
    if not os.path.isdir(folder):
        return f"{folder} is no folder" if os.path.lexists(folder) else f"there is no folder {folder}"
    own, desk = os.path.realpath(home), os.path.realpath(workspace)
    if _holds(folder, own) or (_holds(own, folder) and not _holds(desk, folder)):
        return f"{folder} holds the agent itself (its keys, settings and memory), or is a part of it"
    person = _home_of(folder)
    if folder in _SHARED or _holds(folder, person):
        return f"{folder} holds whole homes and the settings of all programs; name a folder in it"
    if any(_holds(system, folder) for system in map(os.path.realpath, _SYSTEM)):
        return f"{folder} belongs to the system"
    if _holds(person, folder) and os.path.relpath(folder, person).startswith("."):
        return f"{folder} is in a hidden folder of a home directory, where programs keep keys and settings"
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return f"{folder} cannot be written to"
    return ""


def _home_of(folder: str) -> str:
    """Return the home directory that a folder is in, that of this user if it is in none."""
    _, upper, name, *_ = *folder.split("/"), "", ""
    if f"/{upper}" in ("/home", "/Users") and name:
        return f"/{upper}/{name}"
    return os.path.realpath(os.path.expanduser("~"))


def _holds(upper: str, path: str) -> bool:
    """Return whether a path is a folder or lies below it."""
    return path == upper or path.startswith(os.path.join(upper, ""))
