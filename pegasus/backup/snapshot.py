"""Files of a home as they were at one moment, while the agent goes on writing.

**The moment.** Everything below `data` is written by the journal, which holds a lock on the folder during each of its changes
(`FileDisk`). A snapshot takes this lock and looks at the names and sizes of all files. So `data` is seen between two changes, as a
`kill -9` would leave it at that moment, and what the agent promises after a kill holds for the backup: what was accepted before
the backup began is on disk by then, a reply that was acknowledged has its thought in the session, and work that was not done is
done again. No order in which files are read one by one would give that: a message may be marked as done in one file a moment
after another file was read that still lacks its reply.

**Behind it.** The lock is held for some milliseconds, and the files are read later. Meanwhile they change in two ways only. A log
grows: its first bytes, as many as it had, stay what they were. Any other file is replaced as a whole by another one of the same
name: the old one stays readable for whoever has it open. So files that were written last are opened under the lock (`MOST_OPEN`),
which are those that are likely to be replaced. A file that was not opened and turns out to be another one when it is read makes
the attempt void; the next attempt opens it (`SnapshotChanged`). Attempts end, since each knows more files.

**The rest.** Media are never changed, and kept before the message that names them; so they are looked at after `data`, without
the lock. Programs that the agent has started write into the workspace whenever they like. Each file there is taken as it is; one
that changes while it is read is copied first. Notes in the workspace are written before the session is shortened that they were
made of, and are looked at later, so a backup may have them twice but not lose them.

A lock that is not respected (by a version from before it, or on a network file system without locks) is noticed: the files that were
opened are looked at twice. Symbolic links are never followed. Those that lead out of their own folder are left out, as are
sockets, pipes and devices.
"""

from __future__ import annotations

import fcntl
import os
import posixpath
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import attrs

from pegasus.guarded_open import open_folder, open_regular
from pegasus.host import Home

T = TypeVar("T")

MOST_OPEN: Final = 2_000
"""Files of `data` that are kept open at most, the newest first."""
_LOCK_WAIT: Final = 30.0
"""Seconds to wait for the journal. One change takes milliseconds, on a slow disk seconds."""
_ATTEMPTS: Final = 200
"""Snapshots that are taken at most for one use. Each holds one more file fast."""
_LOOKS: Final = 50
"""Looks at files that somebody changes in spite of the lock."""
_IMMUTABLE: Final = ("media", "transcripts")
"""Folders of data whose files are named by their content, and never changed."""
_LEFT_OUT: Final = frozenset({"lock", "run", "logs", "backups", "versions", "mirror"})
"""Names in a home that no backup has: they are made again, are backups themselves, or programs."""
SECRET_NAMES: Final = frozenset({"token", "mcp", "push.key"})
"""Names in a home that hold nothing but secrets: the owner's token, tokens of MCP servers, and the key for push services."""
_SECRET_DATA: Final = ("a2a",)
"""Folders of data that are made of secrets: the credentials for other agents' targets of push notifications."""
VERSION_FILE: Final = "data/VERSION"
"""The file that a restore writes last, from the manifest."""
_MADE_AGAIN: Final = "data/memory/.index.sqlite"


class BackupError(Exception):
    """A backup that cannot be made or used. str() is a sentence for people."""


class SnapshotChanged(Exception):
    """A file that is not what it was when the snapshot was made.

    Example: the next attempt passes its `path` in `held`.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@attrs.frozen
class FoundFile:
    """A regular file of the home, as it was at the moment of the snapshot."""

    path: str
    """Below the home, with "/"."""
    size: int
    """Bytes that count; a log may have grown since."""
    identity: tuple[int, int]
    """Device and inode."""
    changed: int
    """Time of its last change, ns."""
    is_executable: bool

    @property
    def is_immutable(self) -> bool:
        """True for a file whose name is its content."""
        return self.path.startswith(tuple(f"data/{name}/" for name in _IMMUTABLE))


class Snapshot:
    """Names and sizes of the files of a home at one moment, and the means to read them. A context manager: it closes files."""

    def __init__(self) -> None:
        self.files: list[FoundFile] = []
        """Regular files: those of data first, media last."""
        self.links: list[tuple[str, str]] = []
        """Symbolic links and where they lead."""
        self.folders: list[str] = []
        """Folders without a file."""
        self.left_out: list[str] = []
        """Things that are not part of it, though one might expect that, with the reason."""
        self._opened: dict[str, BinaryIO] = {}

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files that are held."""
        for stream in self._opened.values():
            stream.close()

    def hold(self, home: Home, file: FoundFile) -> None:
        """Open a file now, so that it stays readable when another one takes its name. Raises OSError."""
        self._opened[file.path] = open_regular(home.place(file.path))

    def holds(self, path: str) -> bool:
        """Return whether the file is held."""
        return path in self._opened

    def is_as_found(self, home: Home) -> bool:
        """Return whether every file that is held still is what was found, and has its name."""
        return all(_matches(file, home) for file in self.files if file.path in self._opened)

    @contextmanager
    def read(self, home: Home, file: FoundFile) -> Iterator[BinaryIO]:
        """Open a file for reading from its beginning. Raises SnapshotChanged, and OSError.

        No more than its size counts. That the content is the same each time must be checked by the reader.
        """
        if (held := self._opened.get(file.path)) is not None:
            held.seek(0)
            yield held
            return
        try:
            stream = open_regular(home.place(file.path))
        except FileNotFoundError:
            raise SnapshotChanged(file.path) from None
        with stream:
            status = os.fstat(stream.fileno())
            if (status.st_dev, status.st_ino) != file.identity or status.st_size < file.size:
                raise SnapshotChanged(file.path)
            yield stream

    def copy(self, home: Home, file: FoundFile, target: Path) -> None:
        """Write a file as it was found, in a folder that is made. Raises SnapshotChanged, and OSError."""
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        left = file.size
        with self.read(home, file) as stream, target.open("wb") as copy:
            while left and (data := stream.read(min(left, 1 << 20))):
                copy.write(data)
                left -= len(data)
        if left:
            raise SnapshotChanged(file.path)


def _matches(file: FoundFile, home: Home) -> bool:
    try:
        status = home.place(file.path).lstat()
    except OSError:
        return False
    return ((status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns) == (
        file.identity,
        file.size,
        file.changed,
    )


def with_snapshot(home: Home, use: Callable[[Snapshot, Collection[str]], T], *, secrets: bool) -> T:
    """Return what `use` makes of a snapshot; while it raises SnapshotChanged, of another one. Raises what `take_snapshot` does.

    use: is given the snapshot, and the files that were found replaced by now.
    """
    held: set[str] = set()
    for _ in range(_ATTEMPTS):
        try:
            with take_snapshot(home, secrets=secrets, held=held) as snapshot:
                return use(snapshot, held)
        except SnapshotChanged as changed:
            held.add(changed.path)
    raise BackupError(f"{home}: files change faster than they can be read; stop the agent, and try again")


def take_snapshot(home: Home, *, secrets: bool, held: Collection[str] = ()) -> Snapshot:
    """Return the files of a home as they are now. Raises BackupError, and OSError for what cannot be read.

    secrets: with the files that hold nothing else. held: files that another attempt has found replaced.
    """
    skip = {f"data/{name}" for name in (_IMMUTABLE if secrets else _IMMUTABLE + _SECRET_DATA)}
    for _ in range(_LOOKS):
        snapshot = Snapshot()
        try:
            with _writing_paused(home):
                _find(home, snapshot, "data", skip=skip)
                newest = sorted(snapshot.files, key=lambda file: -file.changed)
                kept = {file.path for file in newest[:MOST_OPEN]} | set(held)
                for file in snapshot.files:
                    if file.path in kept:
                        snapshot.hold(home, file)
                if not snapshot.is_as_found(home):
                    raise SnapshotChanged("data")
            _find_rest(home, snapshot, secrets=secrets)
        except (SnapshotChanged, FileNotFoundError):
            snapshot.close()
            time.sleep(0.01)
        except BaseException:
            snapshot.close()
            raise
        else:
            return snapshot
    raise BackupError(f"{home.data}: changes all the time; stop the agent, and make the backup then")


def _find_rest(home: Home, snapshot: Snapshot, *, secrets: bool) -> None:
    """Add what is not written by the journal: the other files of the home, and media last."""
    left_out = _LEFT_OUT if secrets else _LEFT_OUT | SECRET_NAMES
    for entry in sorted(os.scandir(home.path), key=lambda entry: entry.name):
        if entry.name not in left_out and entry.name != "data":
            _find(home, snapshot, entry.name)
    for name in _IMMUTABLE:
        if (home.data / name).exists():
            _find(home, snapshot, f"data/{name}")


@contextmanager
def _writing_paused(home: Home) -> Iterator[None]:
    """Keep the journal from changing files while the body runs. Raises BackupError if it does not let go."""
    with open_folder(home.data) as folder:
        until = time.monotonic() + _LOCK_WAIT
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    text = f"{home.data}: the agent has been writing for {_LOCK_WAIT:g} s; does its disk hang?"
                    raise BackupError(text) from None
                time.sleep(0.001)
            except OSError:  # a file system without locks: what changes meanwhile is noticed
                break
        yield


def _find(home: Home, snapshot: Snapshot, top: str, skip: Collection[str] = ()) -> None:
    """Add a file or folder of the home and all that is below it."""
    root = home.path
    status = home.place(top).lstat()
    if not stat.S_ISDIR(status.st_mode):
        _add(snapshot, top, status, root)
        return
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            with open_folder(home.place(folder)) as descriptor, os.scandir(descriptor) as entries:
                found = {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
        except FileNotFoundError:
            if top == "data":
                raise
            continue
        except OSError as error:
            _refuse_or_leave(snapshot, folder, error)
            continue
        if not found:
            snapshot.folders.append(folder)
        inner = _add_all(snapshot, folder, found, root)
        waiting += [path for path in reversed(inner) if path not in skip]


def _add_all(snapshot: Snapshot, folder: str, found: Mapping[str, os.stat_result], root: os.PathLike[str]) -> list[str]:
    """Add the files of a folder; return the folders in it."""
    inner = []
    for name, status in sorted(found.items()):
        path = posixpath.join(folder, name)
        if stat.S_ISDIR(status.st_mode):
            inner.append(path)
        else:
            _add(snapshot, path, status, root)
    return inner


def _add(snapshot: Snapshot, path: str, status: os.stat_result, root: os.PathLike[str]) -> None:
    """Add what is neither a folder nor to be left out."""
    in_data = path.startswith("data/")
    if path == VERSION_FILE or path.startswith(_MADE_AGAIN) or (in_data and path.endswith(".tmp")):
        return
    try:
        path.encode()
    except UnicodeEncodeError:
        snapshot.left_out.append(f"{path!a}: its name is no UTF-8")
        return
    if stat.S_ISREG(status.st_mode):
        identity = (status.st_dev, status.st_ino)
        file = FoundFile(path, status.st_size, identity, status.st_mtime_ns, bool(status.st_mode & 0o100))
        if in_data or os.access(os.path.join(root, path), os.R_OK):
            snapshot.files.append(file)
        else:
            snapshot.left_out.append(f"{path}: cannot be read")
    elif stat.S_ISLNK(status.st_mode):
        target = ""
        with suppress(OSError):
            target = os.readlink(os.path.join(root, path))
        if link_stays_inside(path, target):
            snapshot.links.append((path, target))
        else:
            snapshot.left_out.append(f"{path}: a link that leads out of its folder")
    else:
        snapshot.left_out.append(f"{path}: no file")


def _refuse_or_leave(snapshot: Snapshot, folder: str, error: OSError) -> None:
    """Raise the error if it is about data, which a backup must have; else note that the folder is left out."""
    if folder.split("/")[0] == "data":
        raise error
    snapshot.left_out.append(f"{folder}: {error.strerror}")


def link_stays_inside(path: str, target: str) -> bool:
    """Return whether a symbolic link leads to something in the same folder of the home (workspace, skills …).

    `..` may stand at the beginning only: behind another name it would mean the folder above wherever that name leads.
    """
    parts = target.split("/")
    ups = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    depth = path.count("/") - 1  # folders above the link, within the folder of the home
    return (
        bool(target)
        and target.isprintable()
        and ups <= depth
        and ".." not in parts[ups:]
        and not target.startswith("/")
    )
