"""A disk in memory for tests in virtual time. It can be slow, full, failing, and lose power.

It behaves as badly as an operating system may: what was not synced is gone after a crash, names too; a write that is
refused has written half of its data; and after a failed sync the data is lost although the next sync succeeds.

    disk = MemoryDisk(delay=0.01)
    disk.lose_power(3)                     # the machine goes off at the third operation from now
    …
    disk.crash(torn_bytes=10)              # it is on again, with up to 10 bytes of each file that were not synced

The journal promises that nothing it accepted is lost. That promise can only be tested against a disk that loses
everything it is allowed to lose, at every possible point. So every operation that changes something is counted,
and a test can let the n-th one fail or switch the machine off in the middle of it. A test that loops over n has
tried every crash point of a scenario, without a process or a file.

The file system is modelled in two layers, as in a journaling file system with delayed allocation. `names` is
what processes see. `_durable_names` is what a crash leaves: a file whose folder was never synced has no durable
name, however often its data was synced. Each `_Node` (an inode) remembers how many of its bytes are durable.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, TypeVarTuple, cast

import trio

from pegasus.storage import Files, Volume

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class PowerLoss(Exception):
    """The machine is off. Nothing more is done until `crash()` or `reopen()` starts it again.

    Raised by every operation from then on, so the actors of the world fail as they would die with the process.

    Example::

        disk.lose_power()
        with pytest.raises(PowerLoss):
            disk.files.sync_folder("journal")
    """


class MemoryDisk:
    """A `pegasus.storage.Disk` without threads.

    It implements the interface over `MemoryFiles` and adds time: each request takes `delay` seconds and happens
    at its end as a whole. The same object is given to one world after the other, with `crash` (power failure)
    or `reopen` (killed process) in between.

    Example::

        disk = MemoryDisk(delay=0.01)
        async with open_world(model, disk=disk) as world:
            await kill(world)
        async with open_world(model, disk=disk) as world:  # what was synced is there
            ...
    """

    def __init__(self, delay: float = 0.0, capacity: int | None = None) -> None:
        self.files = MemoryFiles(capacity)
        """The file system below. Tests use it for what a process does that bypasses the journal."""
        self.delay = delay
        """Seconds that each request takes, by `trio.sleep`."""
        self.runs = 0
        """Number of requests so far."""
        self._volume = Volume(self.files, "memory")

    async def run(self, work: Callable[[Volume, *Ts], T], *args: *Ts) -> T:
        """Do the work here. Like the real disk it is not interrupted by cancellation.

        The sleep is shielded and comes first, so a cancelled caller finds the work done, never half done.
        Raises what the work raises: OSError for a planned fault, PowerLoss after `lose_power`.
        """
        self.runs += 1
        with trio.CancelScope(shield=True):
            await trio.sleep(self.delay)
        return work(self._volume, *args)

    @property
    def fsyncs(self) -> int:
        """Number of syncs of a file so far."""
        return self.files.fsyncs

    @property
    def operations(self) -> int:
        """Number of operations so far that change something; `fail` and `lose_power` count them."""
        return self.files.operations

    def content(self, path: str) -> bytes:
        """Return what a reader sees in the file now, b"" if there is none."""
        return self.files.content(path)

    def put(self, path: str, content: bytes) -> None:
        """Create or replace a file, durably."""
        self.files.put(path, content)

    def paths(self) -> list[str]:
        """Return the names of all files."""
        return sorted(self.files.names)

    def fail(self, operation: int = 1, error: int = errno.ENOSPC, times: int = 1) -> None:
        """Make the `operation`-th operation from now (1 is the next), and `times - 1` after it, fail with this errno."""
        self.files.fail(operation, OSError(error, os.strerror(error)), times)

    def lose_power(self, operation: int = 1) -> None:
        """Turn the machine off when the `operation`-th operation from now is half done."""
        self.files.fail(operation, PowerLoss(), 1 << 60)

    def crash(self, torn_bytes: int = 0, *, nulls: bool = False) -> None:
        """Keep only what was synced, and up to `torn_bytes` more of each file (as NUL bytes, if `nulls`). Faults end."""
        self.files.crash(torn_bytes, nulls)
        self._volume = Volume(self.files, "memory")

    def reopen(self) -> None:
        """Become the disk of another process: what the one before has written is there, synced or not. Faults end."""
        self.files.end_faults()
        self._volume = Volume(self.files, "memory")

    def survivor(self, torn_bytes: int = 0, *, nulls: bool = False) -> MemoryDisk:
        """Return another disk with what `crash` would leave of this one. This one goes on unchanged."""
        other = MemoryDisk(self.delay, self.files.capacity)
        for path, content in self.files.durable(torn_bytes, nulls).items():
            other.put(path, content)
        return other


class DiskFolder:
    """A folder of a `MemoryDisk` as a disk of its own, such as the workspace beside the data: the same faults, power and time.

    Example: `DiskFolder(disk, "workspace")` has as `memory/MEMORY.md` what the disk has as `workspace/memory/MEMORY.md`.
    """

    def __init__(self, disk: MemoryDisk, folder: str) -> None:
        self._disk = disk
        self._volume = Volume(cast(Files, _FolderFiles(disk.files, folder)), f"memory/{folder}")

    async def run(self, work: Callable[[Volume, *Ts], T], *args: *Ts) -> T:
        """Do the work here, as `MemoryDisk.run` does."""
        with trio.CancelScope(shield=True):
            await trio.sleep(self._disk.delay)
        return work(self._volume, *args)


class _FolderFiles:
    """The files of a folder, by their paths in it."""

    def __init__(self, files: MemoryFiles, folder: str) -> None:
        self._files = files
        self._folder = folder

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._files, name)

        def call(path: Any, *args: Any) -> object:
            """Call the method with paths below the folder."""
            if name == "sync_all":
                return method([f"{self._folder}/{each}" for each in path])
            if name == "rename":
                args = (f"{self._folder}/{args[0]}",)
            return method(f"{self._folder}/{path}", *args)

        return call


class MemoryFiles:
    """`pegasus.storage.files.Files` in memory.

    Folders exist by being named. The names in a folder are durable from `sync_folder` on.

    Each method is one system call of the real `Files`. Methods that change something first count as an
    operation, at which a planned fault is raised. Missing files raise FileNotFoundError, as there.

    Example::

        files = MemoryFiles(capacity=1 << 20)  # a write beyond a megabyte fails with ENOSPC
        disk.files.names  # the files as readers see them
    """

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        """Bytes that all files together may have; None for no limit."""
        self.names: dict[str, _Node] = {}
        """The files as readers see them."""
        self.now: Callable[[], int] = lambda: 1 << 62
        """Returns the time that files are written at, ms; by default they never get old."""
        self.fsyncs = 0
        """Syncs of a file so far, including failed ones."""
        self.operations = 0
        """Changing operations so far, the number that faults are planned by."""
        self.unreadable: set[str] = set()
        """Files whose reading fails with EIO."""
        self._durable_names: dict[str, _Node] = {}
        """The files that a crash leaves, by name. Nodes are shared with `names`: their data becomes durable
        separately."""
        self._faults: dict[int, Exception] = {}
        """Planned errors by the number of the operation."""
        self._endless: tuple[int, Exception] | None = None
        """The operation from which on all fail, and how."""

    # ------------------------------------------------------------------ Files

    def prepare(self, path: str) -> int:
        """Open a file for appending, create it if it is missing, and return its size in bytes.

        An empty file's name is synced too, because a process may have died between creating it and syncing the
        folder.
        """
        if path not in self.names:
            self._operation()
            self.names[path] = _Node()
        if not self.names[path].data:
            self.sync_folder(path)
        return len(self.names[path].data)

    def begin(self, path: str) -> None:
        """Start a new empty file under this name, also if there is one.

        The old node lives on under its durable name.
        """
        self._operation()
        self.names[path] = _Node()
        self.names[path].written = self.now()

    def written(self, folder: str) -> dict[str, int]:
        """Return the files of a folder with the time at which they were begun."""
        found = ((path.rpartition("/"), node.written) for path, node in self.names.items())
        return {name: at for (parent, _, name), at in found if parent == folder}

    def remove_folder(self, folder: str) -> None:
        """Do nothing: a folder is there if there is something in it."""

    def write(self, path: str, data: bytes) -> None:
        """Append the data, or as much of it as the capacity allows, which raises ENOSPC as a real disk does.

        A planned fault leaves the first half: a failed write may be partial, and recovery must cope with that.
        After the machine has gone off nothing is written any more.
        """
        node = self.names[path]
        try:
            self._operation()
        except Exception:
            if self._endless is None or self.operations <= self._endless[0]:  # the power was on until now
                node.data += data[: len(data) // 2]
            raise
        room = len(data) if self.capacity is None else max(0, self.capacity - self._used())
        node.data += data[:room]
        if room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self, path: str) -> None:
        """Make the content of the file durable.

        A sync that fails marks the data as clean without making it durable, as Linux does: the next sync
        succeeds and saves nothing. Whoever retries a failed sync without writing the data again loses it, and
        tests must see that.
        """
        node = self._node(path)
        self.fsyncs += 1
        try:
            self._operation()
        except OSError:
            node.clean = len(node.data)
            raise
        node.sync()

    def sync_all(self, paths: Sequence[str]) -> None:
        """Make the content of these files durable, the last one first: a disk has its own order, and nobody may rely on another."""
        for path in reversed(paths):
            self.sync(path)

    def truncate(self, path: str, size: int) -> None:
        """Cut the file to `size` bytes.

        What is cut of synced data is still there after a crash until the next sync.
        """
        node = self._node(path)
        self._operation()
        del node.data[size:]
        node.clean = min(node.clean, size)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return up to `length` bytes from `offset` on, all the rest if it is None."""
        if path in self.unreadable:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        data = self._node(path).data
        return bytes(data[offset:] if length is None else data[offset : offset + length])

    def exists(self, path: str) -> bool:
        """Return whether readers see a file of this name."""
        return path in self.names

    def rename(self, old: str, new: str) -> None:
        """Give the file another name at once, replacing a file of that name. Durable only after `sync_folder`."""
        node = self._node(old)
        self._operation()
        del self.names[old]
        self.names[new] = node

    def remove(self, path: str) -> None:
        """Remove the name. A crash before `sync_folder` brings the file back."""
        self._node(path)
        self._operation()
        del self.names[path]

    def sync_folder(self, path: str) -> None:
        """Make the names in the folder of `path` durable, additions and removals.

        Other folders keep their old state.
        """
        self._operation()
        folder = path.rpartition("/")[0]
        kept = {name: node for name, node in self._durable_names.items() if name.rpartition("/")[0] != folder}
        now = {name: node for name, node in self.names.items() if name.rpartition("/")[0] == folder}
        self._durable_names = kept | now

    def close(self, path: str) -> None:
        """Do nothing: there are no descriptors."""

    # ------------------------------------------------------------------ for tests

    def content(self, path: str) -> bytes:
        """Return what a reader sees now."""
        node = self.names.get(path)
        return bytes(node.data) if node else b""

    def put(self, path: str, content: bytes) -> None:
        """Create or replace a file, durably."""
        node = self.names[path] = self._durable_names[path] = _Node()
        node.data += content
        node.sync()

    def append_unsynced(self, path: str, data: bytes) -> None:
        """Append as a process that is killed before it can sync: readers see the data, a crash forgets it."""
        self.prepare(path)
        self.write(path, data)

    def fail(self, operation: int, error: Exception, times: int) -> None:
        """Plan faults, counted from the next operation."""
        first = self.operations + operation
        if times >= 1 << 60:
            self._endless = (first, error)
        else:
            self._faults.update(dict.fromkeys(range(first, first + times), error))

    def crash(self, torn_bytes: int, nulls: bool) -> None:
        """Forget what was not durable."""
        left = self.durable(torn_bytes, nulls)
        self.names.clear()
        self._durable_names.clear()
        for path, content in left.items():
            self.put(path, content)
        self.end_faults()

    def end_faults(self) -> None:
        """Cancel all faults, planned and lasting."""
        self._faults.clear()
        self._endless = None

    def durable(self, torn_bytes: int, nulls: bool) -> dict[str, bytes]:
        """Return what a crash would leave."""
        return {path: node.durable(torn_bytes, nulls) for path, node in self._durable_names.items()}

    def _node(self, path: str) -> _Node:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.names[path]

    def _used(self) -> int:
        return sum(len(node.data) for node in self.names.values())

    def _operation(self) -> None:
        self.operations += 1
        if self._endless is not None and self.operations >= self._endless[0]:
            raise self._endless[1]
        if self.operations in self._faults:
            raise self._faults[self.operations]


class _Node:
    """A file: an inode, which may have several names or none."""

    def __init__(self) -> None:
        self.data = bytearray()
        """The content as readers see it."""
        self.written = 1 << 62
        """Time at which it was begun, ms."""
        self.clean = 0
        """Number of its bytes that the system takes for written."""
        self._synced = bytearray()
        """The content that survives a crash."""

    def sync(self) -> None:
        """Make all data durable. Bytes that a failed sync has marked as clean are lost: they become NUL bytes."""
        missing = self.clean - len(self._synced)  # a failed sync lost these
        self._synced += b"\0" * missing
        self._synced[self.clean :] = self.data[self.clean :]
        self.clean = len(self.data)

    def durable(self, torn_bytes: int, nulls: bool) -> bytes:
        """Return what a crash leaves.

        These are the durable bytes, and up to `torn_bytes` of the others (as NUL bytes, if `nulls`), unless a sync of
        the file has failed.
        """
        size = len(self._synced)
        torn = self.data[size : size + torn_bytes] if self.clean == size else b""
        return bytes(self._synced) + (b"\0" * len(torn) if nulls else bytes(torn))
