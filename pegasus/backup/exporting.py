"""A copy of the data of a home as it was at one moment, to be read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pegasus.backup.snapshot import BackupError, Snapshot, with_snapshot
from pegasus.host import Home
from pegasus.moving import part_of, put_in_place


def copy_data(home: Home, folder: Path) -> int:
    """Copy what is below data/ into a folder that is empty or not there; return the number of files.

    Raises BackupError, FolderError and OSError; then the folder is as it was.
    """
    if not home.data.is_dir():
        raise BackupError(f"{home}: there is nothing to copy")
    part = part_of(folder)

    def copy(snapshot: Snapshot, _: object) -> int:
        files = [file for file in snapshot.files if file.path.startswith("data/")]
        part_of(folder)  # empty, also after another attempt
        for file in files:
            place = part / file.path.removeprefix("data/")
            snapshot.copy(home, file, place)
            os.utime(place, ns=(file.changed, file.changed))
            place.chmod(0o600)
        shutil.copyfile(home.data / "VERSION", part / "VERSION")
        put_in_place(part, folder)
        return len(files)

    try:
        return with_snapshot(home, copy, secrets=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)
