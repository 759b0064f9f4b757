"""Moves between a folder of files and a database, of which each is whole or has not happened.

**Into a database** everything goes in one transaction, so a process or a server that dies in the middle leaves an empty database. It
is then read back and compared with the files.

**Into a folder** everything is written beside it, synced, and renamed to its name at the end. What a process that died has left is
removed by the next move to the same place.

The source is not changed. A target that holds something is refused, unless it is just what the move would make: then a move before
this one was finished, and this one has nothing to do.
"""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Final

import attrs
import trio

from pegasus.host import sync_folder
from pegasus.moving.folder import DataFolder, FolderError, FolderWriter, Tally
from pegasus.storage.database import Content, Database

_NOT_EMPTY: Final = "the database is not empty (found {found}); give the address of an empty one"


@attrs.frozen
class Moved:
    """Report of a move."""

    counts: Mapping[str, int]
    """Numbers by kind, in the words of people."""
    problems: tuple[str, ...] = ()
    """Damage that was found, and where it is kept."""
    is_repeat: bool = False
    """True if everything was there already."""


async def move_to_database(folder: DataFolder, database: Database) -> Moved:
    """Put the data of a folder into an empty database. Raises FolderError, StorageError, OSError; then nothing was moved."""
    problems: list[str] = []
    wanted = Tally()
    for content in folder.contents(problems.append):
        wanted.add(content)

    async def contents() -> AsyncIterator[Content]:
        for content in folder.contents():
            yield content
            await trio.lowlevel.checkpoint()

    await _check_unused(database)
    found = await _tally(database)
    if found.counts and found.digest != wanted.digest:
        raise FolderError(_NOT_EMPTY.format(found=name_counts(found.counts)))
    if not found.counts and not await database.fill(wanted.digest, contents):
        raise FolderError(_NOT_EMPTY.format(found="something that came meanwhile"))
    if (await _tally(database)).digest != wanted.digest:
        raise FolderError("the database gives back something else than was put into it; do not use it, and report this")
    return Moved(wanted.counts, tuple(problems), is_repeat=bool(found.counts))


async def move_to_folder(database: Database, folder: Path) -> Moved:
    """Put the data of a database that no node uses into a folder that is empty or not there. Raises as `move_to_database` does."""
    await _check_unused(database)
    return await export_database(database, folder)


async def export_database(database: Database, folder: Path, paths: Collection[str] = ()) -> Moved:
    """Write the data of a database as it is at one moment into a folder, as the folder data of a home; see `move_to_folder`.

    paths: as in `Database.contents`.
    """
    part = part_of(folder)
    tally = Tally()
    writer = FolderWriter(part)
    try:
        async with database.contents(paths) as contents:
            async for content in contents:
                tally.add(content)
                writer.add(content)
        writer.finish()
        return Moved(tally.counts, is_repeat=put_in_place(part, folder))
    finally:
        shutil.rmtree(part, ignore_errors=True)


async def _check_unused(database: Database) -> None:
    if living := [node.facts.name for node in await database.nodes() if node.is_alive]:
        raise FolderError(f"found running nodes on the database: {', '.join(living)}; stop them first")


async def _tally(database: Database) -> Tally:
    tally = Tally()
    async with database.contents() as contents:
        async for content in contents:
            tally.add(content)
    return tally


def name_counts(counts: Mapping[str, int]) -> str:
    """Return numbers by kind as a text: "messages: 3, tokens: 1"."""
    return ", ".join(f"{kind}: {number}" for kind, number in counts.items())


# ------------------------------------------------------------------ folders


def part_of(folder: Path) -> Path:
    """Return a new folder beside one, in which that is made. Raises FolderError for a place where none can be made."""
    folder = folder.absolute()
    if not folder.parent.is_dir():
        raise FolderError(f"{folder.parent}: is no folder")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise FolderError(f"{folder}: is no folder")
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    return part


def put_in_place(part: Path, folder: Path) -> bool:
    """Give a finished folder its name. Return True if one that is the same has the name already. Raises FolderError otherwise."""
    if folder.is_dir() and any(folder.iterdir()):
        if not _is_same(part, folder):
            raise FolderError(f"{folder}: is not empty; give another folder")
        return True
    os.replace(part, folder)  # of folders only an empty one is replaced
    sync_folder(folder.absolute().parent)
    return False


def _is_same(one: Path, other: Path) -> bool:
    """Return whether two folders hold the same files."""
    found = filecmp.dircmp(one, other, ignore=[], hide=[])
    if found.left_only or found.right_only or found.common_funny:
        return False
    _, different, unreadable = filecmp.cmpfiles(one, other, found.common_files, shallow=False)
    return not different and not unreadable and all(_is_same(one / name, other / name) for name in found.common_dirs)
