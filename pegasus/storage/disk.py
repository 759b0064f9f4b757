"""The disk as the journal uses it: a thread for the work, and batches of appends.

The disk's work blocks, and a sync takes milliseconds. So the `Volume` lives in a thread, and is reached by `Disk.run` only.

A *batch* is the appends of many requests as few steps, without changing an order that counts. A *step* is appends to different
files that are synced together. It is durable before the next step is begun (`Volume.append_steps`). The appends of a request that
must be in order are in different steps. Nothing orders the files of different requests, such as the sessions of two chats, nor the
logs of different tasks within one; so they share a step: a disk syncs many files at once in about the time of one.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar, TypeVarTuple

import attrs
from outcome import Outcome
from trio import lowlevel

from pegasus.storage.files import Files, OsFiles
from pegasus.storage.messages import Commit
from pegasus.storage.volume import Volume

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_PATIENCE: Final = 1_000
"""Attempts to get the lock of the folder, 2 ms apart. A backup holds it for milliseconds, with 100,000 files for half a second."""


# ------------------------------------------------------------------ the thread


class Disk(Protocol):
    """A volume in another thread, so that Trio's event loop does not block. The journal reaches it only through this.

    >>> size = await disk.run(Volume.rewrite, path, parts)
    """

    async def run(self, work: Callable[[Volume, *Ts], T], *args: *Ts) -> T:
        """Return `work(volume, *args)`, or raise what it raises (usually StorageError).

        Only one call at a time: the journal is the only caller. Work is neither interrupted nor left out when the caller
        is cancelled; cancellation takes effect at its next checkpoint. The journal changes its state in memory around such
        a call, and could not tell otherwise what has happened on the disk.
        """


class FileDisk:
    """The files below the folder `root`, in a worker thread.

    >>> disk = FileDisk("/home/me/.pegasus/data")
    >>> content = await disk.run(Volume.read, "main/current.jsonl")
    """

    def __init__(self, root: str | Path, files: Files | None = None) -> None:
        """Make a volume of the files below `root`; nothing is read yet. files: those files, if they are not `OsFiles`."""
        self._volume = Volume(OsFiles(root) if files is None else files, str(root))
        self._root = root
        self._folder: int | None = None
        """Descriptor of the root, which the lock is on."""

    async def run(self, work: Callable[[Volume, *Ts], T], *args: *Ts) -> T:
        """Do the work in a thread; see `Disk`."""
        return await run_in_thread(self._run_locked, work, *args)

    def _run_locked(self, work: Callable[[Volume, *Ts], T], *args: *Ts) -> T:
        """Do the work while the folder is locked, so that a backup sees the files between two pieces of work.

        The kernel releases the lock of a process that ends. A backup that was stopped in between (Ctrl-Z) holds it on: then the
        work is done all the same, and the backup notices that.
        """
        if self._folder is None:
            with suppress(OSError):
                self._folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if self._folder is None or not _lock(self._folder):
            return work(self._volume, *args)
        try:
            return work(self._volume, *args)
        finally:
            fcntl.flock(self._folder, fcntl.LOCK_UN)

    def __del__(self) -> None:
        if self._folder is not None:
            with suppress(OSError):
                os.close(self._folder)


def _lock(folder: int) -> bool:
    """Lock a folder; False if that is not possible, or somebody else holds it for longer than a backup does."""
    for _ in range(_PATIENCE):
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.002)
        except OSError:
            return False
    return False


async def run_in_thread(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Return `work(*args)`, or raise what it raises. For short work that happens often: a cancel has no effect on it.

    `trio.to_thread` would do the same, with a limit, a copied context and a name for the thread that nobody needs: it takes
    half as long again for a small append, and every accepted message waits for one.

    >>> hits = await run_in_thread(index.find, "tea", 5)
    """
    task, token = lowlevel.current_task(), lowlevel.current_trio_token()

    def deliver(result: Outcome[T]) -> None:
        """Wake the task with the result. This runs in the worker thread, which may not touch Trio in another way."""
        token.run_sync_soon(lowlevel.reschedule, task, result)

    lowlevel.start_thread_soon(partial(work, *args), deliver)
    result: T = await lowlevel.wait_task_rescheduled(lambda _: lowlevel.Abort.FAILED)
    return result


# ------------------------------------------------------------------ batches


@attrs.define(eq=False, repr=False)
class Batch:
    """Appends of many requests, in as few steps as their order allows.

    The order is kept within a file and within a request. Each append goes into the first step that keeps it: behind the append before
    it in its request, and not before the last piece of its file. A request that has waited for the answer to another one is in a
    later batch, so nothing else could rely on an order.

    >>> batch = Batch()
    >>> batch.add([("x", b"1"), ("y", b"2")])
    >>> batch.add([("x", b"3")], together=[("v", b"4"), ("w", b"5")])
    >>> batch.add([("z", b"6")])
    >>> batch.steps()
    [[('x', b'13'), ('z', b'6')], [('y', b'2'), ('v', b'4'), ('w', b'5')]]
    """

    _steps: list[dict[str, list[bytes]]] = attrs.field(factory=list, init=False)
    """For each step, the parts of the bytes of each of its files."""
    _latest: dict[str, int] = attrs.field(factory=dict, init=False)
    """Index of the last step with a piece of each file."""

    def add(self, appends: Iterable[tuple[str, bytes]], together: Iterable[tuple[str, bytes]] = ()) -> None:
        """Add the appends of one request: those in order, and behind them those whose order does not matter."""
        reached, before = -1, ""
        for path, data in appends:
            reached = self._put(path, data, reached if path == before else reached + 1)
            before = path
        for path, data in together:
            self._put(path, data, reached + 1)

    def _put(self, path: str, data: bytes, earliest: int) -> int:
        """Add an append to the first step from `earliest` on that keeps the order of its file; return the index of that step."""
        index = max(earliest, self._latest.get(path, 0))
        if index == len(self._steps):
            self._steps.append({})
        self._steps[index].setdefault(path, []).append(data)
        self._latest[path] = index
        return index

    def steps(self) -> list[list[tuple[str, bytes]]]:
        """Return the appends to be made, step by step."""
        return [[(path, b"".join(data)) for path, data in step.items()] for step in self._steps]


def repeats(commit: Commit, content: bytes) -> bool:
    """Return whether the lines of a commit stand in its first file where they were to be appended: it was done already."""
    if commit.after is None or not commit.appends:
        return False
    path = commit.appends[0][0]
    lines = b"".join(data for other, data in commit.appends if other == path)
    begin = 0
    for _ in range(commit.after):
        begin = content.find(b"\n", begin) + 1
        if not begin:
            return False
    return bool(lines) and content.startswith(lines, begin)
