"""Which names a memory file may have, and which there are."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from pegasus.memory.shelf import Standing

FOLDER: Final = "memory"
"""Where the files and their log are, below data/."""
FOLDERS: Final = ("facts", "episodes")
MOST: Final = 500
"""Files there may be."""

_ALLOWED: Final = (
    f"allowed: {' or '.join(f'{folder}/NAME.md' for folder in FOLDERS)}, NAME of letters, digits, - _ and spaces"
)
_NAME: Final = re.compile(r"[\w][\w .-]{0,79}\.md")


class MemoryRefused(Exception):
    """It cannot be done; the text says why and what would work."""


def find(path: str, there: Sequence[Standing]) -> Standing | None:
    """The file of exactly this name, if there is one."""
    return next((one for one in there if one.path == path), None)


def check_new(path: str, there: Sequence[Standing]) -> None:
    """Refuse what is no good name, and a name that differs from one there is only by case or composition."""
    if find(path, there) is not None:
        return
    folder, _, name = path.partition("/")
    if folder not in FOLDERS or not _NAME.fullmatch(name) or len(name.encode()) > 200:
        raise MemoryRefused(f"{path!r} is no name for a memory file; {_ALLOWED}")
    for one in there:
        if _folded(one.path) == _folded(path):
            raise MemoryRefused(f"there is {one.path} already; use that name")
    if len(there) >= MOST:
        raise MemoryRefused(f"memory holds {len(there)} files already, and may hold {MOST}; add to one of them")


def no_such(path: str, there: Sequence[Standing]) -> MemoryRefused:
    """What to say about a file that is not there: which there are."""
    names = [one.path for one in there]
    known = f"There are: {', '.join(names[:50])}{' …' if len(names) > 50 else ''}" if names else "It is empty."
    return MemoryRefused(f"there is no {path!r} in memory. {known}")


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", path).casefold()
