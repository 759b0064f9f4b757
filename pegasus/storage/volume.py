"""What storage does to files, all or nothing: appends to several, replacing one, archiving one, reading.

The arguments for safety, once:

* A request is safe when every file it touched is synced, or carried by a line of one that is (see `redo`); until then
  nobody is told. What a crash leaves of it is a prefix: whole files of the batch in order, then a piece of one, which
  the reader of lines sets aside.
* On any error each file is cut back to its size before (see `appending`), or is what it was before (see `archiving`).
* A folder whose new names are not durable yet (see `placing`) takes no appends. So no record is ever written behind
  something that may vanish or be garbage.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from pegasus.storage.appending import Appended, Appender, Appends, Write
from pegasus.storage.archiving import Archives
from pegasus.storage.files import Files
from pegasus.storage.messages import StorageError
from pegasus.storage.placing import Places
from pegasus.storage.redo import Run, Tail


class Span(NamedTuple):
    """A part of a file."""

    offset: int
    length: int


_ADVICE = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "the quota of this user is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "it must belong to the user who runs pegasus",
    errno.EPERM: "it must belong to the user who runs pegasus",
    errno.EIO: "the disk may be failing; look at the kernel's log",
    errno.EISDIR: "a folder is in the place of a file; move it away",
    errno.ENOTDIR: "a file is in the place of a folder; move it away",
    errno.EMFILE: "too many open files; raise the limit (ulimit -n)",
}


class Volume:
    """All-or-nothing changes to the files below one root. Not to be shared by threads. Every error is a StorageError."""

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._name = name
        self._appender = Appender(files, self._ready)
        self._places = Places(files, self._appender)
        self._archives = Archives(files, self._appender, self._places)

    # ------------------------------------------------------------------ appending

    def append(self, parts: Appends, sync: bool, unsynced: Collection[str] = ()) -> list[int]:
        """Append to the files in this order, syncing each before the next is touched; gives the offset of each part.

        unsynced: files for which nobody waits, and which may as well be synced another time.
        """
        return self.write(Write(parts, sync, unsynced)).offsets

    def write(self, write: Write) -> Appended:
        """Append all of it or nothing."""
        try:
            return self._appender.append(write)
        except OSError as error:
            self._places.doubt_names(self._appender.at)
            raise self._refusal("write", self._appender.at, error) from error

    def _ready(self, path: str) -> None:
        self._archives.bring_back(path)
        self._places.sync_names(path)

    # ------------------------------------------------------------------ whole files

    def replace(self, path: str, content: bytes) -> None:
        """Make the file hold exactly `content`; whatever happens it holds that or what it held before."""
        with self._refusing("write", path):
            self._archives.finish(path)
            self._places.put(path, (content,))
            self._places.sync_names(path)

    def rewrite(self, path: str, parts: Iterable[bytes | Span]) -> int:
        """Replace the file by one that says the same, made of new bytes and spans of the old; gives the new size.

        That the new name is not durable yet is no error: either file will do, and nothing is appended before it is.
        """
        with self._refusing("rewrite", path):
            size = self._places.put(path, self._bytes_of(path, parts))
            with suppress(OSError):
                self._places.sync_names(path)
            return size

    def archive(self, path: str, content: bytes, at: int, name: str | None = None) -> str:
        """Rename the file to its time (`at`: ms since the epoch, UTC) and begin it with `content`.

        Gives the archive's file name, "" if there was no file. On StorageError the file is what it was; so it is if
        the archive would not be called `name`.
        """
        with self._refusing("archive", path):
            return self._archives.archive(path, content, at, name)

    def archive_name(self, path: str, at: int) -> str:
        """The file name that the archive would get, "" if there is no file."""
        with self._refusing("archive", path):
            return self._archives.name(path, at)

    def _bytes_of(self, path: str, parts: Iterable[bytes | Span]) -> Iterator[bytes]:
        for part in parts:
            if isinstance(part, bytes):
                yield part
                continue
            found = self._files.read(path, part.offset, part.length)
            if len(found) != part.length:
                raise OSError(errno.EIO, "the file is shorter than it was")
            yield found

    # ------------------------------------------------------------------ reading and repair

    def read(self, path: str) -> bytes:
        """The whole file, b"" if there is none; as it ought to be, if what a refused write did is not undone yet."""
        with self._refusing("read", path), suppress(FileNotFoundError):
            self._archives.finish(path)
            return self._appender.as_promised(path, self._files.read(path))
        return self._appender.as_promised(path, b"")

    def read_spans(self, path: str, spans: Sequence[Span]) -> list[bytes]:
        """Parts of a file; shorter or empty where it was cut off or deleted meanwhile."""
        with self._refusing("read", path), suppress(FileNotFoundError):
            return [self._files.read(path, *span) for span in spans]
        return [b""] * len(spans)

    def keep_copy(self, path: str, data: bytes, suffix: str) -> str:
        """Put `data` into `<path>.<suffix>-<n>`, n being free, durably; gives that path."""
        with self._refusing("repair", path):
            copy = self._places.free_name(lambda n: f"{path}.{suffix}-{n}")
            self.append(((copy, data),), sync=True)
            return copy

    def set_tail_aside(self, path: str, offset: int, tail: bytes) -> str:
        """Move the end of a file, from `offset` on, to `<path>.torn-<n>`; a crash in between leaves both."""
        copy = self.keep_copy(path, tail, "torn")
        self.cut(path, offset)
        return copy

    def cut(self, path: str, size: int) -> None:
        """Cut the file off, durably."""
        with self._refusing("repair", path):
            self._files.truncate(path, size)
            self._files.sync(path)
            self._appender.forget(path)

    def redo(self, run: Run) -> str:
        """Make the file hold the run at its place, durably; gives what was wrong with it, "" if nothing was.

        What was different was never synced (see `redo`); a copy is kept of what is no beginning of the run.
        """
        path, offset, data = run
        with self._refusing("write", path):
            self._appender.mend(path)
            found = self.read(path)
            if len(found) < offset:
                return f"{path} has {len(found)} bytes, and had {offset} when replies were kept; it is left as it is"
            behind = found[offset:]
            if behind.startswith(data):
                self._appender.settle(path, Tail(offset, behind))
                return ""
            copy = "" if data.startswith(behind.rstrip(b"\0")) else self._copy_of(path, behind)
            self._appender.restore(path, offset, data)
            return (
                f"{path}, from byte {offset} on: {len(data)} bytes were missing, and were written from the outbox{copy}"
            )

    def _copy_of(self, path: str, data: bytes) -> str:
        try:
            return f"; what was there instead is in {self.keep_copy(path, data, 'torn')}"
        except StorageError as error:
            return f"; in the place of {data[:200]!r} (no copy: {error})"

    def open_logs(self, paths: Sequence[str]) -> list[bytes]:
        """Read whole files, b"" where there is none; what is read is durable.

        A process that was killed may have left records that readers see and the disk does not have yet. Whoever
        takes them for true tells people that they are safe, so they are made so first; likewise the files' names.
        """
        contents = [self.read(path) for path in paths]
        for path, data in zip(paths, contents, strict=True):
            with self._refusing("write", path):
                self._places.make_durable(path, data)
        return contents

    def close(self) -> None:
        """Give descriptors back; they are opened again when needed."""
        with suppress(OSError):
            self._files.close()

    # ------------------------------------------------------------------ errors

    @contextmanager
    def _refusing(self, what: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._refusal(what, path, error) from error

    def _refusal(self, what: str, path: str, error: OSError) -> StorageError:
        advice = _ADVICE.get(error.errno or 0)
        why = error.strerror or str(error)
        return StorageError(f"cannot {what} {self._name}/{path}: {why}{f'; {advice}' if advice else ''}")
