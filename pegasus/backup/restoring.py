"""A home made of a backup: whole, or not there.

The home must be empty, so that nothing is lost and nothing of it mixes with what comes. It is locked. `data/VERSION` says from
the first moment that a restore is going on, and nothing starts there. All files are written and checked against the manifest,
then synced, and VERSION is written last. On an error everything is removed that was written. A process that dies leaves a home
that says so; the next restore removes what is there and begins anew.

Nothing of the backup decides where a file is written but paths that the manifest's check has let through. Folders are made here,
in an empty home, and links come after all files: no file can be written through a link. Files belong to their owner only.
"""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import attrs

from pegasus.backup.archive import CHUNK, ZSTD_MAGIC, BackupFile, CheckedContent, Manifest, archive_reader
from pegasus.backup.sealing import Opener, is_sealed
from pegasus.backup.snapshot import VERSION_FILE, BackupError
from pegasus.host import Home, HomeError, is_being_restored, mark_restoring, own_home, write_format

SPARE: Final = 1 << 24
"""Bytes that must be free beside those of the files: names and folders take room, too."""
_OF_A_PROCESS: Final = frozenset({"lock", "run", "logs"})
"""Names in a home that a process makes, and that do not count as data."""


@attrs.frozen
class Restored:
    """Report of a backup that was restored."""

    files: int
    version: str
    """Version of the program that made the backup."""
    created_at: int
    """Ms since the epoch."""
    secrets: bool
    emptied: tuple[str, ...]
    """Keys of the settings that are to be set again."""
    damaged: tuple[str, ...]
    """Media that were damaged in the home already."""
    has_database: bool = False
    """True if the settings name a database, or did in the home."""


def restore_backup(source: Path, home: Home, *, passphrase: str | None) -> Restored:
    """Make a home of a backup. Raises BackupError, HomeError, OSError; then the home is as it was.

    passphrase: of a sealed backup. The path of the home may be that of a folder which is empty or not there.
    """
    damaged: list[str] = []
    with source.open("rb") as stream, _opened(stream, source, passphrase) as (manifest, files), _emptied(home):
        _check_room(home, manifest)
        for file, content in files:
            if file.path != VERSION_FILE:
                _write(home.path / file.path, file, content)
                content.finish()
                damaged += [file.path] if content.is_damaged else []
        for folder in manifest.folders:
            (home.path / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        for link in manifest.links:
            place = home.path / link.path
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            place.symlink_to(link.target)
        os.sync()
        write_format(home, manifest.format)
    return Restored(
        len(manifest.files),
        manifest.version,
        manifest.created_at,
        manifest.secrets,
        manifest.emptied,
        tuple(damaged),
        _names_database(home, manifest),
    )


def _names_database(home: Home, manifest: Manifest) -> bool:
    """Return whether the restored settings, or those that secrets were left out of, name a database."""
    with suppress(OSError, ValueError):
        storage = tomllib.loads(home.config.read_text("utf-8")).get("storage", {})
        return "storage.url" in manifest.emptied or (isinstance(storage, dict) and bool(storage.get("url")))
    return False


@contextmanager
def _opened(stream: BinaryIO, source: Path, passphrase: str | None) -> Iterator[Any]:
    """Yield the manifest and the files of a backup. Raises BackupError, which names the file."""
    try:
        head = stream.read(len(ZSTD_MAGIC))
        stream.seek(0)
        if is_sealed(source):
            if passphrase is None:
                raise BackupError("it is encrypted; give --passphrase-file")
            opener: Any = Opener(stream, passphrase)
        elif head == ZSTD_MAGIC:
            opener = stream
        else:
            raise BackupError("this is no backup of Pegasus, or it is cut off")
        with archive_reader(opener) as found:
            yield found
    except BackupError as error:
        raise BackupError(f"{source}: {error}") from None


@contextmanager
def _emptied(home: Home) -> Iterator[None]:
    """Hold an empty home while the body fills it. Raises HomeError, BackupError. On an error the home is as it was."""
    _check_empty(home)
    existed, before = home.path.exists(), _names(home.path)
    with own_home(home):
        _check_empty(home)  # again: now nobody else can fill it
        try:
            for mark in _left_marks(home):
                mark.unlink()
            if is_being_restored(home):
                _clear(home, _OF_A_PROCESS)
                home.prepare()
            mark_restoring(home)
            yield
        except BaseException:
            _clear(home, before & _OF_A_PROCESS)
            if not existed:
                with suppress(OSError):
                    home.path.rmdir()
            raise


def _names(folder: Path) -> set[str]:
    with suppress(OSError):
        return set(os.listdir(folder))
    return set()


def _left_marks(home: Home) -> list[Path]:
    """Return what restores have left that died while they wrote that they begin: files beside data/VERSION."""
    return list(home.data.glob(".VERSION.*"))


def _check_empty(home: Home) -> None:
    """Raise BackupError for a home that holds a file which a process has not made by itself."""
    if home.path.exists() and not home.path.is_dir():
        raise HomeError(f"{home}: is no folder")
    if is_being_restored(home):
        return
    known = {home.lock, *_left_marks(home)}
    for folder, inner, names in os.walk(home.path):
        if Path(folder) == home.path:
            inner[:] = [name for name in inner if name not in _OF_A_PROCESS]
        for file in (Path(folder, name) for name in names):
            if file not in known:
                raise HomeError(f"{home}: is not empty (found {file}); move it away, or give --into another folder")


def _clear(home: Home, keep: set[str] | frozenset[str]) -> None:
    """Remove what is in the home but some names. What cannot be removed stays, and the home goes on saying that it is not whole."""
    places = [home.path / name for name in _names(home.path) - keep - {home.data.name}]
    if not home.data.is_symlink():
        places += [home.data / name for name in _names(home.data) - {Path(VERSION_FILE).name}]
    for path in (*places, home.data):  # data/VERSION last: a process may die here, too
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


def _check_room(home: Home, manifest: Manifest) -> None:
    free = shutil.disk_usage(home.path).free
    if manifest.size + SPARE > free:
        raise HomeError(f"{home}: {free >> 20} MB are free on its disk, and {manifest.size >> 20} MB are needed")


def _write(place: Path, file: BackupFile, content: CheckedContent) -> None:
    """Write a file that is not there yet, in a folder that is made."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = 0o700 if file.executable else 0o600
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb", buffering=0) as stream:
        while data := content.read(CHUNK):
            view = memoryview(data)
            while view:
                view = view[stream.write(view) :]
        os.utime(descriptor, (file.mtime, file.mtime))
