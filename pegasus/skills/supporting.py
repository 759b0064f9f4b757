"""The files beside a SKILL.md (references/, examples/, scripts/ …): named with the body, read when they are wanted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pegasus.skills.skill import FILE, Skill

MOST: Final = 50
"""Files that are named."""
DEEPEST: Final = 3
"""Folders below the skill's own."""
LARGEST: Final = 64 << 10
"""Bytes of one that is read."""


def supporting_files(skill: Skill) -> tuple[str, ...]:
    """Their paths below the skill's folder, in order; hidden ones and links are none. Reads the file system, briefly."""
    found: list[str] = []
    for path in _walk(skill.folder, "", DEEPEST):
        if len(found) == MOST:
            break
        found.append(path)
    return tuple(found)


def _walk(folder: Path, above: str, levels: int) -> Iterator[str]:
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        name = f"{above}{entry.name}"
        if entry.name.startswith(".") or not entry.name.isprintable() or name == FILE:
            continue
        if entry.is_file(follow_symlinks=False):
            yield name
        elif levels and entry.is_dir(follow_symlinks=False):
            yield from _walk(folder / entry.name, f"{name}/", levels - 1)


def read_supporting(skill: Skill, path: str) -> str:
    """One of them as text. Raises ValueError: it leads out of the folder, is hidden, is none, is no text, or is too large."""
    try:
        folder, real = os.path.realpath(skill.folder), os.path.realpath(skill.folder / path)
        if not Path(real).is_relative_to(folder):
            raise ValueError(f"{path!r} is not in the folder of the skill {skill.name}")
        if any(name.startswith(".") for name in Path(real).relative_to(folder).parts):
            raise ValueError(f"{path!r} is hidden; there are: {_known(skill)}")
        with open(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ValueError(f"{path!r} is no file; there are: {_known(skill)}")
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ValueError(f"{path!r} is larger than {LARGEST >> 10} kB")
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path!r} is no text") from None
    except OSError as error:
        raise ValueError(f"{path!r}: {error.strerror}; there are: {_known(skill)}") from None


def _known(skill: Skill) -> str:
    return ", ".join(supporting_files(skill)) or "none"
