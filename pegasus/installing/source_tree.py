"""The content of a source of skills: its skills' files in memory, and what else lies among them.

A folder is a skill if it has a SKILL.md; one below it belongs to it. What is in no skill is not read. Bounds count for the whole
source, before its skills are judged one by one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import attrs

from pegasus.guarded_open import open_folder, open_regular
from pegasus.skills import FILE

MOST_ENTRIES: Final = 20_000
"""Files, folders and links of a source. More are a mistake, such as a home directory."""
MOST_BYTES: Final = 64 << 20
"""Bytes of all skills of a source. They are in memory."""
DEEPEST: Final = 16
"""Levels of folders in a source."""
_JUNK: Final = frozenset({".git", "__MACOSX", ".DS_Store", "__pycache__"})
"""Names that programs leave in folders and archives. They are no part of a skill."""


class SourceError(ValueError):
    """A source that cannot be used. The text says why, for the owner."""


@attrs.frozen
class SourceEntry:
    """A file in a source, or something else that has a name there."""

    kind: str = ""
    """A word for what it is, such as "link"; "" for a file."""
    size: int = 0
    executable: bool = False


@attrs.frozen(eq=False, repr=False)
class SourceTree:
    """The content of a source."""

    entries: Mapping[str, SourceEntry]
    """All of a skill's files and what else lies among them, by path."""
    contents: Mapping[str, bytes]
    """The contents of the files."""
    name: str = ""
    """Name for a skill that lies at the top."""
    revision: str = ""
    """The commit; "" where there is none."""


def skill_folders(paths: Iterable[str]) -> list[str]:
    """Return the folders of skills among these paths, "" for the top. A SKILL.md below another one is a file of it."""
    marked = sorted(
        {folder for path in paths for folder, _, name in [path.rpartition("/")] if name.lower() == FILE.lower()}
    )
    found: list[str] = []
    for folder in marked:  # sorted, so that a folder comes before those below it
        if not any(is_below(folder, upper) for upper in found):
            found.append(folder)
    return found


def is_below(path: str, folder: str) -> bool:
    """Return whether a path lies below a folder of a source."""
    return not folder or path.startswith(f"{folder}/")


def choose_entries(entries: Mapping[str, SourceEntry], subdirectory: str) -> dict[str, SourceEntry]:
    """Return what belongs to skills, by paths below the subdirectory. Raises SourceError for too much of it, and for none."""
    base = f"{subdirectory}/" if subdirectory else ""
    inner = {path[len(base) :]: entry for path, entry in entries.items() if path.startswith(base)}
    folders = skill_folders(path for path, entry in inner.items() if not entry.kind)
    if not folders:
        where = f" in {subdirectory}" if subdirectory else ""
        raise SourceError(f"found no {FILE}{where}, so there is no skill in it")
    chosen = {path: entry for path, entry in inner.items() if any(is_below(path, folder) for folder in folders)}
    check_size(sum(entry.size for entry in chosen.values()))
    return chosen


def check_size(size: int) -> None:
    """Raise SourceError for more bytes than a source may have."""
    if size > MOST_BYTES:
        raise too_large()


def too_large() -> SourceError:
    """Return the error for more bytes than a source may have."""
    limit = f"{MOST_BYTES >> 20} MiB"
    return SourceError(f"found more than {limit} in its skills, allowed: {limit}; name one of its folders")


def check_count(count: int) -> None:
    """Raise SourceError for more entries than a source may have."""
    if count > MOST_ENTRIES:
        raise SourceError(f"found more than {MOST_ENTRIES:,} files, allowed: that many; name one of its folders")


def is_junk(path: str) -> bool:
    """Return whether a path is that of something which programs leave behind."""
    return any(part in _JUNK or part.startswith("._") for part in path.split("/"))


def check_path(path: str) -> str:
    """Return a path of an archive or a repository in its usual form. Raises SourceError for one that leads anywhere else."""
    parts = [part for part in path.split("/") if part != "."]
    if parts and not parts[-1]:
        parts.pop()
    drive = parts[0][1:2] == ":" if parts else False
    try:
        path.encode()
    except UnicodeEncodeError:
        raise SourceError(f"found the path {path!a}, allowed: names in UTF-8") from None
    if not all(parts) or ".." in parts or drive or "\\" in path or not path.isprintable() or len(parts) > DEEPEST:
        raise SourceError(f"found the path {path!a}, allowed: paths below the source, without control characters")
    return "/".join(parts)


def read_folder(folder: Path, subdirectory: str = "") -> SourceTree:
    """Return the content of a folder. No link in it is followed. Blocks. Raises SourceError, OSError."""
    top = folder / subdirectory if subdirectory else folder
    entries: dict[str, SourceEntry] = {}
    _walk(top, "", entries, DEEPEST)
    chosen = choose_entries(entries, "")
    contents: dict[str, bytes] = {}
    for path, entry in chosen.items():
        if not entry.kind:
            with open_regular(top / path) as file:
                contents[path] = file.read(MOST_BYTES + 1)
            check_size(sum(map(len, contents.values())))
    return SourceTree(chosen, contents, Path(os.path.realpath(top)).name)


def _walk(folder: Path, prefix: str, entries: dict[str, SourceEntry], levels: int) -> None:
    """Add what is in a folder. Names that are no UTF-8 are added as what they are, and judged where a skill has them."""
    with (
        open_folder(folder) if prefix else open_folder(os.path.realpath(folder)) as descriptor,
        os.scandir(descriptor) as listed,
    ):
        found = list(_bounded(listed, MOST_ENTRIES - len(entries)))
    for entry in found:
        path = f"{prefix}{entry.name}"
        if is_junk(entry.name):
            continue
        status = os.lstat(folder / entry.name)
        if entry.is_dir(follow_symlinks=False):
            if not levels:
                raise SourceError(f"{path}: found folders deeper than {DEEPEST} levels")
            _walk(folder / entry.name, f"{path}/", entries, levels - 1)
        elif entry.is_file(follow_symlinks=False):
            entries[path] = SourceEntry("", status.st_size, bool(status.st_mode & 0o100))
        else:
            entries[path] = SourceEntry("link" if entry.is_symlink() else "special file")


def _bounded(listed: Iterable[os.DirEntry[str]], room: int) -> Iterable[os.DirEntry[str]]:
    for number, entry in enumerate(listed):
        if number >= room:
            check_count(MOST_ENTRIES + 1)
        yield entry
