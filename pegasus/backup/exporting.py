"""A copy of the data of a home as it was at one moment, to be read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from pegasus.backup.snapshot import BackupError, SnapshotChanged, take_snapshot
from pegasus.host import Home
from pegasus.moving import part_of, put_in_place

_ATTEMPTS: Final = 200
"""Attempts at most. Each holds one more file fast, as in a backup."""


def copy_data(home: Home, folder: Path) -> int:
    """Copy what is below data/ into a folder that is empty or not there; return the number of files.

    Raises BackupError, FolderError and OSError; then the folder is as it was.
    """
    if not home.data.is_dir():
        raise BackupError(f"{home}: there is nothing to copy")
    part = part_of(folder)
    held: set[str] = set()
    try:
        for _ in range(_ATTEMPTS):
            try:
                count = _copy(home, part, held)
                put_in_place(part, folder)
                return count
            except SnapshotChanged as changed:
                held.add(changed.path)
                part = part_of(folder)
        raise BackupError(f"{home}: files change faster than they can be read; stop the agent, and try again")
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _copy(home: Home, part: Path, held: set[str]) -> int:
    """Copy the files of a snapshot. Raises SnapshotChanged, with whose path in `held` the next attempt may succeed."""
    count = 0
    with take_snapshot(home, secrets=True, held=held) as snapshot:
        for file in snapshot.files:
            if not file.path.startswith("data/"):
                continue
            place = part / file.path.removeprefix("data/")
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with snapshot.read(home, file) as stream, place.open("xb") as copy:
                left = file.size
                while left and (data := stream.read(min(left, 1 << 20))):
                    copy.write(data)
                    left -= len(data)
            if left:
                raise SnapshotChanged(file.path)
            os.utime(place, ns=(file.changed, file.changed))
            place.chmod(0o600)
            count += 1
        shutil.copyfile(home.data / "VERSION", part / "VERSION")
    return count
