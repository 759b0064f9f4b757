"""Changes that file tools have made, each kept with what was there before, so that `/undo` can take them back.

A change is a file of its own in `<home>/data/undo`: a line of JSON, and behind it the former content. It is written before the change
is made, so that after a crash between the two the record says more than what happened, never less: whether the change was made is seen
from what stands at the path now. A change that failed is forgotten at once. `N.undone` beside it says which command has taken it back.
It is written first, so a command that is carried out again after a crash finishes what it has begun and takes back nothing more.

A change is taken back only while the path still holds what the change has left there, by content. So nothing that somebody has done
since is lost. What commands change is not kept: a record says that one ran, so that a person is told.

The records of owners' work and of guests' have bounds of their own, in number and bytes, and the oldest go first. None of them is
synced: after a power failure the last ones may be missing or cut off, which their hash tells.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Final

import attrs

from pegasus.tools.path_snapshots import PathSnapshot, PathSnapshotEntry
from pegasus.wire import decode_json, encode_json, from_wire, to_wire

MOST: Final = {"o": (200, 64 << 20), "g": (50, 16 << 20)}
"""Records and bytes that are kept: of the work of owners, and of all guests together."""
COMMAND: Final = "command"
"""Kind of the record that says that a command ran."""
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_SHOWN: Final = 100
"""Characters of a command that its record shows."""


@attrs.frozen
class FileChange:
    """A change that a tool has made, or a command that ran, without the former content."""

    at: int
    """Wall clock, ms."""
    task: str
    """Id of the task."""
    guest: str
    """Account of the guest that the work was for, "" for an owner."""
    how: str
    """"write", "edit", "delete", "move" or "command"."""
    root: str = ""
    """Allowed folder that the path lies in, a real path; of a command, its beginning."""
    steps: tuple[str, ...] = ()
    """Names from there to the path, of a move to the new one."""
    from_root: str = ""
    from_steps: tuple[str, ...] = ()
    """The same of the former path of a move."""
    made: int = 0
    """Folders above the path that the call has made."""
    after: str = ""
    """Identity of what the change has left at the path (`files.keeping.identity_of`)."""
    before: tuple[PathSnapshotEntry, ...] | None = ()
    """Entries of the snapshot of the path before; None: more than is kept."""
    digest: str = ""
    """Digest of that."""
    check: str = ""
    """Hash of the content behind the line."""
    n: int = 0
    """Number, from 1; it is the name of the file."""
    undone: str = ""
    """Key of the command that has taken it back, "" for none."""

    @property
    def path(self) -> str:
        """The path."""
        return os.path.join(self.root, *self.steps)

    @property
    def former_path(self) -> str:
        """The former path of a move."""
        return os.path.join(self.from_root, *self.from_steps)


class KeptChanges:
    """The records of one home. Its methods block and are called in threads.

    Example::

        kept = KeptChanges(home.data / "undo", wall_clock)
        [last, *_] = kept.changes("")   # the newest of owners' work
    """

    def __init__(self, folder: Path, clock: Callable[[], int]) -> None:
        self._folder = folder
        self._clock = clock
        self._lock = Lock()
        self._last: dict[str, tuple[str, str]] = {}
        """Kind and task of the newest record by guest, as far as this process has made it."""
        self._known: dict[int, tuple[str, int]] | None = None
        """Pool and size of each record by its number; None before the folder was read."""

    def now(self) -> int:
        """Return the time, ms."""
        return self._clock()

    # ------------------------------------------------------------------ keeping

    def begin(self, change: FileChange, before: PathSnapshot) -> int:
        """Keep a change that is about to be made, and return its number. Raises OSError."""
        line = encode_json({key: value for key, value in to_wire(change).items() if key not in ("n", "undone")})
        pool = "g" if change.guest else "o"
        data = line.encode("utf-8", "surrogatepass") + b"\n" + before.data
        with self._lock:
            records = self._records()
            number = max(records, default=0) + 1
            self._trim(records, pool, len(data))
            try:
                descriptor = os.open(self._path(number, pool), _NEW, 0o600)
            except FileNotFoundError:
                self._folder.mkdir(mode=0o700)
                descriptor = os.open(self._path(number, pool), _NEW, 0o600)
            records[number] = pool, len(data)
            with open(descriptor, "wb") as file:
                file.write(data)
            self._last[change.guest] = change.how, change.task
        return number

    def drop(self, number: int) -> None:
        """Forget a change that was not made."""
        with self._lock:
            self._remove(number)
            self._last.clear()

    def note_command(self, task: str, guest: str, command: str) -> None:
        """Keep that a command runs, once for several in a row of a task. Never raises: nothing but a sentence depends on it."""
        if self._last.get(guest) == (COMMAND, task):
            return
        with suppress(OSError):
            shown = " ".join(command.split())[:_SHOWN]
            self.begin(FileChange(self._clock(), task, guest, COMMAND, shown), PathSnapshot())

    def _trim(self, records: dict[int, tuple[str, int]], pool: str, coming: int) -> None:
        """Remove the oldest records of a pool, so that one more with so many bytes is within its bounds."""
        own = [(number, size) for number, (of, size) in records.items() if of == pool]
        most, room = MOST[pool]
        left, used = len(own), sum(size for _, size in own)
        for number, size in sorted(own):
            if left < most and used + coming <= room:
                return
            self._remove(number)
            left, used = left - 1, used - size

    def _records(self) -> dict[int, tuple[str, int]]:
        """Return pool and size of each record by its number. The folder is read once; nobody else writes there."""
        if self._known is None:
            self._known = {}
            with suppress(FileNotFoundError), os.scandir(self._folder) as found:
                for entry in found:
                    number, _, rest = entry.name.partition("-")
                    if number.isdecimal() and rest in ("o.change", "g.change"):
                        self._known[int(number)] = rest[0], entry.stat().st_size
        return self._known

    def _path(self, number: int, pool: str) -> Path:
        """Return the path of a record."""
        return self._folder / f"{number:08}-{pool}.change"

    def _remove(self, number: int) -> None:
        """Remove a record and what says that it was taken back; one that is gone, since newer ones needed its room, stays so."""
        if (record := self._records().pop(number, None)) is None:
            return
        pool, _ = record
        self._path(number, pool).unlink(missing_ok=True)
        (self._folder / f"{number:08}.undone").unlink(missing_ok=True)

    # ------------------------------------------------------------------ reading

    def changes(self, guest: str) -> list[FileChange]:
        """Return the changes of the work for a guest, "" for owners, the newest first. A damaged record is left out."""
        found = []
        with self._lock:
            for number, (pool, _) in sorted(self._records().items(), reverse=True):
                change = self._read(number, self._path(number, pool)) if pool == ("g" if guest else "o") else None
                if change is not None and change.guest == guest:
                    found.append(change)
        return found

    def _read(self, number: int, path: Path) -> FileChange | None:
        """Return a record without its content; None if it cannot be read."""
        try:
            with open(path, "rb") as file:
                line = file.readline().decode("utf-8", "surrogatepass")
            change = from_wire(decode_json(line), FileChange)
        except (OSError, ValueError):  # WireError is a ValueError
            return None
        undone = ""
        with suppress(OSError):
            undone = (self._folder / f"{number:08}.undone").read_text()
        return attrs.evolve(change, n=number, undone=undone)

    def content(self, change: FileChange) -> PathSnapshot | None:
        """Return what was at the path before, None if it was not kept or is damaged."""
        with suppress(OSError):
            data = self._path(change.n, "g" if change.guest else "o").read_bytes().partition(b"\n")[2]
            if change.before is not None and content_hash(data) == change.check:
                return PathSnapshot(change.before, data)
        return None

    @contextmanager
    def taking_back(self, change: FileChange, key: str) -> Iterator[None]:
        """Note on disk that the command with this key takes a change back, which the block does. If it fails, forget that again."""
        path = self._folder / f"{change.n:08}.undone"
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(key)
                file.flush()
                os.fsync(file.fileno())
            yield
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def content_hash(data: bytes) -> str:
    """Return the hash of the content behind a record's line."""
    return blake2b(data, digest_size=16).hexdigest()
