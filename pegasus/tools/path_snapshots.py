"""Snapshots of paths, held in memory: a file, a link, or a folder with all that is in it, as far as that is small enough.

Everything is relative to the descriptor of a folder, so no link is followed. All functions block, and are called in threads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from typing import Final

import attrs

from pegasus.guarded_open import open_folder, open_regular

MOST_BYTES: Final = 8 << 20
"""Bytes of content that one snapshot holds."""
MOST_ENTRIES: Final = 1_000
"""Files, links and folders that one snapshot holds."""


@attrs.frozen
class PathSnapshotEntry:
    """One file, link or folder of a snapshot."""

    path: str
    """Path from the top of the snapshot, "" for the top itself."""
    kind: str
    """"file", "link" or "folder"."""
    mode: int
    """Its permissions."""
    size: int = 0
    """Bytes of its content in the snapshot's data, in the order of the entries; of a link, those of its target."""


@attrs.frozen(eq=False, repr=False)
class PathSnapshot:
    """State of a path. Example: `take_snapshot(folder, "notes.txt")` of a file has one entry and its content."""

    entries: tuple[PathSnapshotEntry, ...] = ()
    """Upper ones first; none for a path at which nothing is."""
    data: bytes = b""
    """Contents of the entries, one behind the other."""

    @property
    def is_file(self) -> bool:
        """Return whether it is a regular file."""
        return bool(self.entries) and self.entries[0].kind == "file"

    @property
    def digest(self) -> str:
        """Return what tells its content from another one; permissions do not count. "" for nothing."""
        if not self.entries:
            return ""
        found = blake2b(digest_size=16)
        for entry in self.entries:
            found.update(f"{entry.kind} {entry.size} {entry.path}\0".encode("utf-8", "surrogateescape"))
        found.update(self.data)
        return found.hexdigest()


def of_file(data: bytes) -> PathSnapshot:
    """Return the snapshot of a file with this content."""
    return PathSnapshot((PathSnapshotEntry("", "file", 0, len(data)),), data)


def take_snapshot(folder: int, name: str) -> PathSnapshot | None:
    """Return what is at a name of an open folder; None if it is more than is kept, or something else. Raises OSError."""
    entries: list[PathSnapshotEntry] = []
    parts: list[bytes] = []
    try:
        _read(folder, name, "", entries, parts)
    except FileNotFoundError:
        return PathSnapshot() if not entries else None
    except _TooMuch:
        return None
    return PathSnapshot(tuple(entries), b"".join(parts))


class _TooMuch(Exception):
    """More than a snapshot holds, or what cannot be held: a pipe, a device."""


def _read(folder: int, name: str, path: str, entries: list[PathSnapshotEntry], parts: list[bytes]) -> None:
    """Add what is at a name, and in it."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    mode, data, kind = stat.S_IMODE(status.st_mode), b"", "folder"
    if stat.S_ISLNK(status.st_mode):
        kind, data = "link", os.fsencode(os.readlink(name, dir_fd=folder))
    elif stat.S_ISREG(status.st_mode):
        with open_regular(name, folder) as file:
            kind, data = "file", file.read(MOST_BYTES + 1)
    elif not stat.S_ISDIR(status.st_mode):
        raise _TooMuch
    entries.append(PathSnapshotEntry(path, kind, mode, len(data)))
    parts.append(data)
    if len(entries) > MOST_ENTRIES or sum(map(len, parts)) > MOST_BYTES:
        raise _TooMuch
    if kind == "folder":
        with open_folder(name, folder) as inner:
            for each in sorted(os.listdir(inner)):
                _read(inner, each, f"{path}/{each}" if path else each, entries, parts)


def put_back(snapshot: PathSnapshot, folder: int, name: str) -> None:
    """Make what a snapshot holds at a name of an open folder where nothing is. Raises OSError; a part may be there then."""
    position = 0
    for entry in snapshot.entries:
        data = snapshot.data[position : position + entry.size]
        position += entry.size
        _put(folder, name, entry, data)
    # Folders get their permissions last, deepest first: one that cannot be written to must be filled before.
    for entry in reversed(snapshot.entries):
        if entry.kind == "folder":
            with _upper(folder, name, entry) as (upper, last), open_folder(last, upper) as made:
                os.fchmod(made, entry.mode)


def _put(folder: int, name: str, entry: PathSnapshotEntry, data: bytes) -> None:
    """Make one entry of the snapshot whose top has this name."""
    with _upper(folder, name, entry) as (upper, last):
        if entry.kind == "folder":
            os.mkdir(last, 0o700, dir_fd=upper)
        elif entry.kind == "link":
            os.symlink(os.fsdecode(data), last, dir_fd=upper)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(last, flags, 0o600, dir_fd=upper), "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), entry.mode)
                file.flush()
                os.fsync(file.fileno())


@contextmanager
def _upper(folder: int, name: str, entry: PathSnapshotEntry) -> Iterator[tuple[int, str]]:
    """Yield the open folder that an entry lies in, and its name there; no link is followed. name: of the top of the snapshot."""
    *above, last = os.path.join(name, entry.path).rstrip("/").split("/")
    with ExitStack() as stack:
        for each in above:
            folder = stack.enter_context(open_folder(each, folder))
        yield folder, last
