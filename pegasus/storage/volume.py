"""All-or-nothing changes to the files below one folder, and the thread that does them.

`Volume` puts the parts together: appends and whole-file changes (`atomic`) on the operations of a disk (`files`). It
adds reading, repair, and errors that tell people what to do. The argument for its safety:

* A change is answered when every file that it touched is synced. A crash before that leaves a prefix of the change:
  whole appends in their order, then a piece of one, which the readers of lines set aside.
* On an error each file is what it was before, at once or before it is used again.
* Nothing is appended to a file whose name is not durable, or that still holds the rest of a failed append. So no record
  is ever written behind bytes that may vanish or be garbage.

`Volume` blocks, and Trio's event loop must not. The journal therefore reaches it through a `Disk`:

    size = await disk.run(Volume.rewrite, path, parts)

`FileDisk` uses Trio's worker threads with a limit of one. The limit keeps the requests in their order, and makes it
safe that `Volume` and `OsFiles` have no locks. Work is neither interrupted nor left out when the caller is cancelled:
the journal changes its state in memory around such a call, and could not tell otherwise what has happened on the disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar, TypeVarTuple

import trio

from pegasus.storage.atomic import Appender, Appends, FileArchiver, FileReplacer
from pegasus.storage.files import OPEN_FILES, Files, OsFiles
from pegasus.storage.messages import StorageError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_ADVICE = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "the quota of this user is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "it must belong to the user who runs pegasus",
    errno.EPERM: "it must belong to the user who runs pegasus",
    errno.EIO: "the disk may be failing; look at the kernel's log",
    errno.EISDIR: "a folder is in the place of a file; move it away",
    errno.EINVAL: "something else is in the place of a file; move it away",
    errno.ENXIO: "something else is in the place of a file; move it away",
    errno.ENOTDIR: "a file is in the place of a folder; move it away",
    errno.EMFILE: "too many open files; raise the limit (ulimit -n)",
}
"""Advice to the operator by errno, part of a StorageError."""


class Span(NamedTuple):
    """A part of a file, in bytes."""

    offset: int
    length: int


class Volume:
    r"""Files below one root. Every error is a StorageError. Only one thread may use it at a time.

    >>> volume = Volume(OsFiles("/tmp/data"), "/tmp/data")
    >>> volume.append([("main/current.jsonl", b"{}\n")])
    [0]
    """

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._name = name
        """The root as error messages show it."""
        self._appender = Appender(files, self._before_append)
        self._replacer = FileReplacer(files, self._appender)
        self._archiver = FileArchiver(files, self._appender, self._replacer)

    # ------------------------------------------------------------------ changes

    def append(self, appends: Appends) -> list[int]:
        """Append to the files in this order, all of it or nothing, and return the offset of each append.

        Each file is synced before the next one is touched.
        """
        try:
            return self._appender.append(appends)
        except OSError as error:
            self._replacer.distrust_names(self._appender.failed_path)
            raise self._refusal("write", self._appender.failed_path, error) from error

    def _before_append(self, path: str) -> None:
        self._archiver.undo_failed(path)
        self._replacer.sync_names(path)

    def replace(self, path: str, content: bytes) -> None:
        """Make the file hold exactly `content`. Whatever happens, it holds that or what it held before."""
        with self._refusing("write", path):
            self._archiver.finish(path)
            self._replacer.put(path, (content,))
            self._replacer.sync_names(path)

    def rewrite(self, path: str, parts: Iterable[bytes | Span]) -> int:
        """Replace the file by one with the same meaning, made of new bytes and spans of the old one. Return its size.

        It is no error if the new name could not be made durable: either file will do, and nothing is appended before
        it is durable.
        """
        with self._refusing("rewrite", path):
            size = self._replacer.put(path, self._bytes_of(path, parts))
            with suppress(OSError):
                self._replacer.sync_names(path)
            return size

    def archive(self, path: str, content: bytes, at: int, name: str | None = None) -> str:
        """Rename the file to its time (`at`: ms since the epoch, shown in UTC) and begin it with `content`.

        Return the archive's file name, "" if there was no file. On StorageError the file is what it was. An archive
        that would not be called `name` is such an error.
        """
        with self._refusing("archive", path):
            return self._archiver.archive(path, content, at, name)

    def archive_name(self, path: str, at: int) -> str:
        """Return the file name that the archive would get, "" if there is no file."""
        with self._refusing("archive", path):
            return self._archiver.name(path, at)

    def _bytes_of(self, path: str, parts: Iterable[bytes | Span]) -> Iterator[bytes]:
        for part in parts:
            if isinstance(part, bytes):
                yield part
                continue
            found = self._files.read(path, part.offset, part.length)
            if len(found) != part.length:
                raise OSError(errno.EIO, "the file is shorter than it was")
            yield found

    # ------------------------------------------------------------------ reading

    def read(self, path: str) -> bytes:
        """Return the whole file, b"" if there is none. The rest of a failed append is not part of it."""
        with self._refusing("read", path), suppress(FileNotFoundError):
            self._archiver.finish(path)
            return self._appender.without_failed_append(path, self._files.read(path))
        return b""

    def read_spans(self, path: str, spans: Sequence[Span]) -> list[bytes]:
        """Return parts of a file, shorter or empty where it was cut off or deleted meanwhile."""
        with self._refusing("read", path), suppress(FileNotFoundError):
            return [self._files.read(path, *span) for span in spans]
        return [b""] * len(spans)

    def read_durable(self, paths: Sequence[str]) -> list[bytes]:
        """Return whole files, b"" where there is none, after making durable what is returned.

        A process that was killed may have left records that readers see and the disk does not have yet. The journal
        answers from the records that it has read, so they must not vanish afterwards; neither must the files' names.
        """
        contents = [self.read(path) for path in paths]
        for path, content in zip(paths, contents, strict=True):
            with self._refusing("write", path):
                self._replacer.make_durable(path, content)
        return contents

    # ------------------------------------------------------------------ repair

    def keep_copy(self, path: str, data: bytes, suffix: str) -> str:
        """Write `data` to `<path>.<suffix>-<n>`, for the first n that is free, and return that path."""
        with self._refusing("repair", path):
            copy = self._replacer.free_name(lambda n: f"{path}.{suffix}-{n}")
        self.append(((copy, data),))
        return copy

    def set_tail_aside(self, path: str, offset: int, tail: bytes) -> str:
        """Move the end of a file, from `offset` on, to `<path>.torn-<n>`. A crash in between leaves both."""
        copy = self.keep_copy(path, tail, "torn")
        self.cut(path, offset)
        return copy

    def cut(self, path: str, size: int) -> None:
        """Cut the file off, durably."""
        with self._refusing("repair", path):
            self._files.truncate(path, size)
            self._files.sync(path)
            self._appender.forget(path)

    def close(self) -> None:
        """Give descriptors back; they are opened again when needed."""
        with suppress(OSError):
            self._files.close()

    # ------------------------------------------------------------------ errors

    @contextmanager
    def _refusing(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._refusal(verb, path, error) from error

    def _refusal(self, verb: str, path: str, error: OSError) -> StorageError:
        advice = _ADVICE.get(error.errno or 0)
        reason = error.strerror or str(error)
        return StorageError(f"cannot {verb} {self._name}/{path}: {reason}{f'; {advice}' if advice else ''}")


class Disk(Protocol):
    """A volume in another thread."""

    async def run(self, work: Callable[[Volume, *Ts], T], *args: *Ts) -> T:
        """Return `work(volume, *args)`, or raise what it raises (usually StorageError).

        Calls are done one at a time, in the order in which they came. Cancellation does not interrupt them; it takes
        effect at the caller's next checkpoint.
        """

    def close(self) -> None:
        """Give descriptors back. The next `run` opens them again. To be called only while nothing runs."""


class FileDisk:
    """The files below the folder `root`, in a worker thread.

    >>> disk = FileDisk("/home/me/.pegasus/data")
    >>> content = await disk.run(Volume.read, "main/current.jsonl")
    """

    def __init__(self, root: str | Path, open_files: int = OPEN_FILES) -> None:
        self._volume = Volume(OsFiles(root, open_files), str(root))
        self._one_at_a_time = trio.CapacityLimiter(1)

    async def run(self, work: Callable[[Volume, *Ts], T], *args: *Ts) -> T:
        """Do the work in a thread; see `Disk`."""
        with trio.CancelScope(shield=True):
            result = await trio.to_thread.run_sync(
                work, self._volume, *args, limiter=self._one_at_a_time, thread_name="pegasus-disk"
            )
        return result  # noqa: RET504 -- mypy takes the scope for one that may swallow

    def close(self) -> None:
        """Close all descriptors."""
        self._volume.close()
