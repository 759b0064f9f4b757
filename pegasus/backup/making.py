"""A backup, made under another name until it is whole.

The manifest comes first in the file and holds the hash of every file, so files are read twice: once for their hashes, and once to be
written. Media are read once, since their names are their hashes. What turns out to be another file the second time makes the attempt
void, and the next one holds it fast from the beginning: opened under the lock if it is part of `data`, else copied.

The bytes go to `.<name>.part` beside the file, which gets its name when all of it is on the disk. So there is a whole backup
under that name or none. What a `kill -9` leaves is taken by the next backup of the same name; nobody else makes one at the same
time, since the part is locked.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

import attrs

from pegasus import __version__
from pegasus.backup.archive import (
    LAYOUT,
    ZSTD_MAGIC,
    BackupFile,
    BackupLink,
    Manifest,
    add_file,
    archive_writer,
    hash_of,
)
from pegasus.backup.blanking import holds_secret, without_secrets
from pegasus.backup.sealing import MAGIC, Sealer
from pegasus.backup.snapshot import BackupError, FoundFile, Snapshot, SnapshotChanged, with_snapshot
from pegasus.host import Home, read_format, sync_folder

_SMALL: Final = 1 << 20
"""Bytes of a file at the top of the home that is searched for secrets at most."""
_CONFIG: Final = "pegasus.toml"


@attrs.frozen
class Made:
    """Report of a backup that was made."""

    files: int
    size: int
    """Bytes of the files."""
    left_out: tuple[str, ...]
    """Things that are not in it and were not expected to be missing, with the reason."""
    emptied: tuple[str, ...]
    """Keys of the settings whose secrets were left out."""


def make_backup(home: Home, target: Path, *, passphrase: str | None, secrets: bool, clock: Callable[[], int]) -> Made:
    """Write a backup of a home, whether an agent runs there or not. Raises BackupError, OSError, HomeError.

    passphrase: the file is sealed with it. secrets: with the token and all keys. target: a backup there is replaced when the new
    one is whole, and nothing else is. On an error the target is as it was.
    """
    if not home.data.is_dir():
        raise BackupError(f"{home}: there is nothing to back up")
    with _part_of(target, home) as stream:

        def write(snapshot: Snapshot, held: Collection[str]) -> Made:
            stream.seek(0)
            stream.truncate()
            with _Contents(home, snapshot, held, target) as contents:
                if not secrets:
                    contents.blank()
                return _write(home, snapshot, contents, stream, passphrase, secrets=secrets, at=clock())

        return with_snapshot(home, write, secrets=secrets)


def _write(
    home: Home,
    snapshot: Snapshot,
    contents: _Contents,
    stream: BinaryIO,
    passphrase: str | None,
    *,
    secrets: bool,
    at: int,
) -> Made:
    """Write a backup of a snapshot."""
    files = list(contents.described())
    manifest = Manifest(
        backup=LAYOUT,
        version=__version__,
        format=read_format(home),
        created_at=at,
        secrets=secrets,
        files=tuple(files),
        links=tuple(BackupLink(*link) for link in snapshot.links),
        folders=tuple(snapshot.folders),
        emptied=tuple(contents.emptied),
    )
    sealer = None if passphrase is None else Sealer(stream, passphrase)
    with archive_writer(sealer or stream, manifest) as tar:
        for file in files:
            with contents.read(file.path) as content:
                add_file(tar, file, content)
    if sealer is not None:
        sealer.finish()
    return Made(len(files), manifest.size, tuple(snapshot.left_out), manifest.emptied)


class _Contents:
    """Contents of the files of a snapshot: the files themselves, copies of some, and texts in place of others. A context manager."""

    def __init__(self, home: Home, snapshot: Snapshot, held: Collection[str], target: Path) -> None:
        """held: files that are copied. target: the disk of the backup takes the copies, too."""
        self.emptied: list[str] = []
        self._folder = target.absolute().parent
        self._home, self._snapshot, self._held = home, snapshot, held
        self._texts: dict[str, bytes] = {}
        self._copies: dict[str, BinaryIO] = {}
        self._found = {file.path: file for file in snapshot.files}

    def __enter__(self) -> _Contents:
        return self

    def __exit__(self, *error: object) -> None:
        for copy in self._copies.values():
            copy.close()

    def blank(self) -> None:
        """Leave out secrets: those of the settings, and files at the top of the home that hold one."""
        known: list[str] = []
        if _CONFIG in self._found:
            blanked = without_secrets(self._bytes(_CONFIG).decode("utf-8-sig", "replace"))
            if blanked is None:
                self._leave_out(_CONFIG, "has mistakes, so that its secrets cannot be told from the rest")
            else:
                self._texts[_CONFIG], self.emptied, known = blanked.text.encode(), blanked.keys, blanked.values
        with suppress(OSError, ValueError):
            known.append(self._home.token.read_text().strip())
        for file in list(self._found.values()):
            is_on_top = "/" not in file.path and file.path != _CONFIG
            if is_on_top and file.size <= _SMALL and holds_secret(self._bytes(file.path), known):
                self._leave_out(file.path, "holds a secret")

    def _leave_out(self, path: str, reason: str) -> None:
        self._snapshot.left_out.append(f"{path}: {reason}; --passphrase-file takes it, encrypted")
        del self._found[path]

    def _bytes(self, path: str) -> bytes:
        file = self._found[path]
        with self._snapshot.read(self._home, file) as stream:
            return stream.read(file.size)

    def described(self) -> Iterator[BackupFile]:
        """Yield what the manifest says of each file. Raises SnapshotChanged."""
        for file in list(self._found.values()):
            text = self._texts.get(file.path)
            if text is not None:
                yield self._describe(file, len(text), hash_of(BytesIO(text), len(text)))
                continue
            if file.is_immutable and file.path not in self._held:
                name = file.path.rpartition("/")[2].partition(".")[0]
                if len(name) == 64:  # the hash of its content
                    yield attrs.evolve(self._describe(file, file.size, name), by_name=True)
                    continue
            with self._snapshot.read(self._home, file) as stream:
                if file.path in self._held and file.path not in self._copies and not self._snapshot.holds(file.path):
                    size = self._copy(file, stream)
                    yield self._describe(file, size, hash_of(self._copies[file.path], size))
                else:
                    yield self._describe(file, file.size, hash_of(stream, file.size))

    def _copy(self, file: FoundFile, stream: BinaryIO) -> int:
        """Copy a file that changes; return the size of the copy, which is closed with this object."""
        copy = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
        self._copies[file.path] = copy
        while data := stream.read(1 << 20):
            copy.write(data)
        size = copy.tell()
        copy.seek(0)
        return size

    def _describe(self, file: FoundFile, size: int, sha256: str | None) -> BackupFile:
        if sha256 is None:
            raise SnapshotChanged(file.path)
        mtime = min(max(0, file.changed // 1_000_000_000), (1 << 33) - 1)
        return BackupFile(file.path, size, sha256, mtime, file.is_executable)

    @contextmanager
    def read(self, path: str) -> Iterator[BinaryIO]:
        """Open the content of a file. Raises SnapshotChanged."""
        if path in self._texts:
            yield BytesIO(self._texts[path])
        elif path in self._copies:
            self._copies[path].seek(0)
            yield self._copies[path]
        else:
            with self._snapshot.read(self._home, self._found[path]) as stream:
                yield stream


# ------------------------------------------------------------------ the target


@contextmanager
def _part_of(target: Path, home: Home) -> Iterator[BinaryIO]:
    """Yield a file beside the target that takes its name when the body has ended, and is removed when it fails."""
    target = target.absolute()
    _check_target(target, home)
    part = target.with_name(f".{target.name}.part")
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=1 << 16) as stream:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"{target}: another process is making a backup there") from None
        if not _is_named(part, descriptor):  # it was the part of a backup that has become whole since
            raise BackupError(f"{target}: another process has just made a backup there")
        try:
            os.fchmod(descriptor, 0o600)
            yield stream
            stream.flush()
            os.fsync(descriptor)
            part.replace(target)
        except BaseException:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise
    sync_folder(target.parent)


def _is_named(path: Path, descriptor: int) -> bool:
    """Return whether the open file still has this name."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False


def _check_target(target: Path, home: Home) -> None:
    """Raise BackupError for a place that would become part of the backup, or holds something else."""
    folder = target.parent.resolve()
    if not folder.is_dir():
        raise BackupError(f"{target.parent}: is no folder")
    root = home.path.resolve()
    if folder.is_relative_to(root) and not folder.is_relative_to(root / "backups"):
        raise BackupError(
            f"{target}: found a place in the home, which would be part of the backup; choose another folder"
        )
    try:
        status = target.stat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise BackupError(f"{target}: found something else than a file; choose another name")
    with target.open("rb") as stream:
        head = stream.read(len(MAGIC))
    if status.st_size and head != MAGIC and not head.startswith(ZSTD_MAGIC):
        raise BackupError(f"{target}: found a file that is no backup; it is not overwritten, choose another name")
