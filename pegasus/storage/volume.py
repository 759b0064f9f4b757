"""What storage does to files, all or nothing: appends to several, replacing one, archiving one, reading.

The arguments for safety, once:

* A request is safe when every file it touched is synced; until then nobody is told. What a crash leaves of it is a
  prefix: whole files of the batch in order, then a piece of one, which the reader of lines sets aside.
* On any error each file is cut back to its size before. A sync that failed is not repeated: the kernel may have
  dropped the pages and call the next sync a success. The descriptor is closed, the file cut back, and whoever
  comes next writes anew.
* Where even the cutting fails, the file is closed to appends until it succeeds; likewise a folder whose new names
  are not durable yet. So no record is ever written behind something that may vanish or be garbage.
"""

from __future__ import annotations

import errno
import posixpath
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple, TypeAlias

from pegasus.storage.files import Files
from pegasus.storage.messages import StorageError

Appends: TypeAlias = Sequence[tuple[str, bytes]]


class Span(NamedTuple):
    """A part of a file."""

    offset: int
    length: int


_CHUNK = 1 << 20
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
        self._to_cut: dict[str, int] = {}
        self._folders_to_sync: set[str] = set()
        self._distrusted: set[str] = set()

    # ------------------------------------------------------------------ appending

    def append(self, batch: Appends, sync: bool, unsynced: Collection[str] = ()) -> list[int]:
        """Append to the files in this order, syncing each before the next is touched; gives the offset of each part.

        unsynced: files for which nobody waits, and which may as well be synced another time.
        """
        touched: list[tuple[str, int]] = []
        path = ""
        try:
            for path, data in batch:
                touched.append((path, self._prepare(path)))
                self._files.write(path, data)
                if sync and path not in unsynced:
                    self._files.sync(path)
        except OSError as error:
            for done, size in reversed(touched):
                self._cut_back(done, size)
            raise self._refusal("write", path, error) from error
        return [offset for _, offset in touched]

    def _prepare(self, path: str) -> int:
        if path in self._to_cut:
            self._files.truncate(path, self._to_cut[path])
            self._files.sync(path)
            del self._to_cut[path]
        if self._folders_to_sync:
            self._sync_folder(path)
        return self._files.prepare(path)

    def _cut_back(self, path: str, size: int) -> None:
        self._to_cut[path] = size
        with suppress(OSError):
            self._files.forget(path)
            self._files.truncate(path, size)
            self._files.sync(path)
            del self._to_cut[path]

    def _sync_folder(self, path: str) -> None:
        folder = posixpath.dirname(path)
        if folder in self._folders_to_sync:
            self._files.sync_folder(path)
            self._folders_to_sync.discard(folder)

    # ------------------------------------------------------------------ whole files

    def replace(self, path: str, content: bytes) -> None:
        """Make the file hold exactly `content`; whatever happens it holds that or what it held before."""
        with self._refusing("write", path):
            self._put(path, (content,))
            self._sync_folder(path)

    def rewrite(self, path: str, parts: Iterable[bytes | Span]) -> int:
        """Replace the file by one that says the same, made of new bytes and spans of the old; gives the new size.

        That the new name is not durable yet is no error: either file will do, and nothing is appended before it is.
        """
        with self._refusing("rewrite", path):
            size = self._put(path, self._bytes_of(path, parts))
            with suppress(OSError):
                self._sync_folder(path)
            return size

    def archive(self, path: str, content: bytes, at: int) -> str:
        """Rename the file to its time (`at`: ms since the epoch, UTC) and begin it with `content`.

        Gives the archive's file name, "" if there was no file. On StorageError the file is what it was.
        """
        with self._refusing("archive", path), ExitStack() as undo:
            temporary = f"{path}.tmp"
            self._write_temporary(path, (content,), undo)
            archived = self._archive_name(path, at) if self._files.exists(path) else ""
            if archived:
                self._files.sync(path)  # nobody will write to it again, so this is the last chance
                self._files.rename(path, archived)
                undo.callback(_attempt, self._files.rename, archived, path)
            self._files.rename(temporary, path)
            undo.callback(_attempt, self._files.rename, path, temporary)
            self._files.sync_folder(path)
            undo.pop_all()
            self._to_cut.pop(path, None)
            return posixpath.basename(archived)

    def _put(self, path: str, parts: Iterable[bytes]) -> int:
        with ExitStack() as undo:
            size = self._write_temporary(path, parts, undo)
            self._files.rename(f"{path}.tmp", path)
            undo.pop_all()
        self._folders_to_sync.add(posixpath.dirname(path))
        self._to_cut.pop(path, None)
        return size

    def _write_temporary(self, path: str, parts: Iterable[bytes], undo: ExitStack) -> int:
        temporary = f"{path}.tmp"
        undo.callback(_attempt, self._files.remove, temporary)
        if self._files.prepare(temporary):  # left behind by a crash
            self._files.truncate(temporary, 0)
        size = 0
        for chunk in _chunks(parts):
            self._files.write(temporary, chunk)
            size += len(chunk)
        self._files.sync(temporary)
        return size

    def _bytes_of(self, path: str, parts: Iterable[bytes | Span]) -> Iterator[bytes]:
        for part in parts:
            if isinstance(part, bytes):
                yield part
                continue
            found = self._files.read(path, part.offset, part.length)
            if len(found) != part.length:
                raise OSError(errno.EIO, "the file is shorter than it was")
            yield found

    def _archive_name(self, path: str, at: int) -> str:
        stem = posixpath.join(posixpath.dirname(path), time.strftime("%Y-%m-%d-%H%M%S", time.gmtime(at // 1000)))
        return self._free(lambda n: f"{stem}-{n}.jsonl" if n > 1 else f"{stem}.jsonl")

    def _free(self, name: Callable[[int], str]) -> str:
        n = 1
        while self._files.exists(name(n)):
            n += 1
        return name(n)

    # ------------------------------------------------------------------ reading and repair

    def read(self, path: str) -> bytes:
        """The whole file, b"" if there is none; without what was refused and could not be cut off yet."""
        with self._refusing("read", path), suppress(FileNotFoundError):
            return self._files.read(path)[: self._to_cut.get(path)]
        return b""

    def read_spans(self, path: str, spans: Sequence[Span]) -> list[bytes]:
        """Parts of a file; shorter or empty where it was cut off or deleted meanwhile."""
        with self._refusing("read", path), suppress(FileNotFoundError):
            return [self._files.read(path, *span) for span in spans]
        return [b""] * len(spans)

    def keep_copy(self, path: str, data: bytes, suffix: str) -> str:
        """Put `data` into `<path>.<suffix>-<n>`, n being free, durably; gives that path."""
        with self._refusing("repair", path):
            copy = self._free(lambda n: f"{path}.{suffix}-{n}")
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

    def open_logs(self, paths: Sequence[str]) -> list[bytes]:
        """Read whole files, b"" where there is none; what is read is durable.

        A process that was killed may have left records that readers see and the disk does not have yet. Whoever
        takes them for true tells people that they are safe, so they are made so first; likewise the files' names.
        """
        contents = [self.read(path) for path in paths]
        for path, data in zip(paths, contents, strict=True):
            with self._refusing("write", path):
                self._make_durable(path, data)
        return contents

    def _make_durable(self, path: str, data: bytes) -> None:
        if not data:
            return
        if path not in self._distrusted:
            self._distrusted.add(path)
            with suppress(OSError):
                self._files.sync(path)
                self._distrusted.discard(path)
        if path in self._distrusted:  # a sync has failed, so another one would prove nothing
            self._put(path, (data,))
            self._distrusted.discard(path)
        self._files.sync_folder(path)

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


def _attempt(undo: Callable[..., None], *paths: str) -> None:
    with suppress(OSError):
        undo(*paths)


def _chunks(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of about a megabyte, so that many small parts are few writes."""
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= _CHUNK:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
