"""The kinds of homes, by the names that a person gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pegasus.importing import hermes, nanobot, openclaw
from pegasus.importing.findings import Findings, NotAHome
from pegasus.importing.reading import CannotRead, ForeignFolder

HOMES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[ForeignFolder], Findings]]]] = {
    "openclaw": (openclaw.MARKS, openclaw.read_openclaw),
    "nanobot": (nanobot.MARKS, nanobot.read_nanobot),
    "hermes": (hermes.MARKS, hermes.read_hermes),
}
"""By name: what such a home has in it, and the function that reads one."""


def find_everything(path: Path, source: str) -> Findings:
    """Return what a foreign home has. Blocks while it reads; changes nothing. Raises NotAHome.

    Example: `find_everything(Path.home() / ".openclaw", "openclaw")`.
    """
    marks, read = HOMES[source]
    try:
        folder = ForeignFolder(path)
        there = set(folder.names("", ""))
        if not there & set(marks):
            raise NotAHome(f"{path}: found none of {', '.join(marks)}, which a home of {source} has")
        return read(folder)
    except (OSError, CannotRead) as error:
        raise NotAHome(f"{path}: {getattr(error, 'strerror', None) or error}") from None
