"""Changes of files that happen entirely or not at all: appending, replacing, archiving.

Three classes share the work, each for one kind of change. All of them work on `Files`, block, and may raise OSError.
Then nothing of the change is left, or what is left of it is undone before the file is used again.

**Appending.** An append is synced before the next file is touched. On an error each file is cut back to its size
before. A sync that failed is never repeated: the kernel may have dropped the data that it was to write, and report
success for the second sync. Cutting back and writing anew avoids the question. Since every append is synced before
anything else happens, all that is in front of it is on the disk, and the size is all that must be remembered. Where
even cutting back fails, the file takes no append until it has succeeded.

**Replacing.** The new content is written to a temporary file, synced, and renamed to the name of the old one. A folder
whose names are perhaps not durable yet takes no appends: a power failure could bring back the old file, without the
records that were appended to the new one.

**Archiving.** The new content is durable beside the file, in `<path>.next`, before the file is renamed to its archive
name. So a file that is missing while its `.next` is there is whole in an archive and in that, and the next reader
finishes the change.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import TypeAlias

from pegasus.formatting import format_time
from pegasus.storage.files import Files

Appends: TypeAlias = Sequence[tuple[str, bytes]]
"""Pairs of a path and the bytes to be appended to that file."""

_CHUNK = 1 << 20
"""Bytes that are written at once to a new file, so that many small parts are few writes."""


class Appender:
    r"""Appends to several files, all or nothing.

    >>> appender.append([("main/current.jsonl", b"1\n"), ("tasks/a.jsonl", b"2\n")])
    [0, 0]
    """

    def __init__(self, files: Files, before_append: Callable[[str], None]) -> None:
        self.failed_path = ""
        """The file that was being worked on when the last OSError was raised."""
        self._files = files
        """Operations of the disk."""
        self._before_append = before_append
        """Called with the path before a file is written to; what it raises fails the append."""
        self._sizes_to_restore: dict[str, int] = {}
        """Files that hold the rest of a failed append, and the sizes to which they must be cut."""

    def append(self, appends: Appends) -> list[int]:
        """Append in this order, each file synced before the next one is touched. Return the offset of each append."""
        begun: list[tuple[str, int]] = []
        try:
            for path, data in appends:
                self.failed_path = path
                self.restore(path)
                self._before_append(path)
                size = self._files.prepare(path)
                begun.append((path, size))
                self._files.write(path, data)
                self._files.sync(path)
        except OSError:
            for path, size in reversed(begun):
                self._sizes_to_restore[path] = size
                with suppress(OSError):
                    self._files.forget(path)
                    self.restore(path)
            raise
        return [size for _, size in begun]

    def restore(self, path: str) -> None:
        """Remove the rest of a failed append, if the file holds one."""
        if path in self._sizes_to_restore:
            self._files.prepare(path)
            self._files.truncate(path, self._sizes_to_restore[path])
            try:
                self._files.sync(path)
            except OSError:
                self._files.forget(path)
                raise
            del self._sizes_to_restore[path]

    def without_failed_append(self, path: str, content: bytes) -> bytes:
        """Return the content of a file as it is once the rest of a failed append is removed."""
        return content[: self._sizes_to_restore.get(path)]

    def forget(self, path: str) -> None:
        """Drop what is known of a file that has been replaced by another one."""
        self._sizes_to_restore.pop(path, None)


class FileReplacer:
    """Replacement of whole files, with a record of the folders in which all names are durable.

    A rename is atomic for readers, but the disk may forget it until the folder is synced. `put` therefore marks the
    folder as doubtful, and `sync_names` makes it durable; an append to any file of the folder calls that first.

        replacer = FileReplacer(files, appender)
        replacer.sync_names("main/current.jsonl")   # before the first append in that folder
    """

    def __init__(self, files: Files, appender: Appender) -> None:
        self._files = files
        self._appender = appender
        """Must forget the rest of a failed append when the file is replaced."""
        self._durable_folders: set[str] = set()
        """Folders whose names are on the disk. At first none: a process before this one may have left any state."""
        self._failed_syncs: set[str] = set()
        """Files whose content was there before this process, and could not be synced."""

    # ------------------------------------------------------------------ names

    def sync_names(self, path: str) -> None:
        """Make the names in the folder of this file durable, if they are not known to be."""
        folder = posixpath.dirname(path)
        if folder not in self._durable_folders:
            if self._files.exists(path):  # otherwise the folder is synced when the file is created
                self._files.sync_folder(path)
            self._durable_folders.add(folder)

    def distrust_names(self, path: str) -> None:
        """Note that a name in the folder of this file is perhaps not durable."""
        self._durable_folders.discard(posixpath.dirname(path))

    def free_name(self, name: Callable[[int], str]) -> str:
        """Return the first of name(1), name(2), … that no file has."""
        n = 1
        while self._files.exists(name(n)):
            n += 1
        return name(n)

    # ------------------------------------------------------------------ contents

    def put(self, path: str, parts: Iterable[bytes]) -> int:
        """Make the file consist of these parts, and return its size. Its name is durable after `sync_names`."""
        with ExitStack() as undo:
            size = self.write_new(f"{path}.tmp", parts, undo)
            self._files.rename(f"{path}.tmp", path)
            undo.pop_all()
        self.distrust_names(path)
        self._appender.forget(path)
        return size

    def write_new(self, path: str, parts: Iterable[bytes], undo: ExitStack) -> int:
        """Write and sync a new file, and return its size. Its name is not durable. `undo` deletes it again."""
        undo.callback(self.remove_if_possible, path)
        self._files.begin(path)
        size = 0
        for chunk in _chunks(parts):
            self._files.write(path, chunk)
            size += len(chunk)
        self._files.sync(path)
        return size

    def make_durable(self, path: str, content: bytes) -> None:
        """Make durable what a reader has found in the file, and the file's name.

        A process that was killed may have left bytes that readers see and the disk does not have yet. If the sync
        fails, another one would prove nothing, so the next try writes the content to a new file.
        """
        if not content:
            return
        if path not in self._failed_syncs:
            self._failed_syncs.add(path)
            with suppress(OSError):
                self._files.sync(path)
                self._failed_syncs.discard(path)
        if path in self._failed_syncs:
            self.put(path, (content,))
            self._failed_syncs.discard(path)
        self.distrust_names(path)
        self.sync_names(path)

    def remove_if_possible(self, path: str) -> None:
        """Delete a file that does no harm if it stays."""
        with suppress(OSError):
            self._files.remove(path)


class FileArchiver:
    """Renames a file to the name of its time, and begins it anew.

    There are two renames, and a moment between them in which no file has the name. Three cases can be found later, and each
    tells which step was the last one:

    * the file and its `.next` exist: nothing was renamed; `.next` is deleted;
    * only `.next` exists: the file is in its archive; `.next` gets the name;
    * only the file exists: the change is complete, or was never begun.
    """

    def __init__(self, files: Files, appender: Appender, replacer: FileReplacer) -> None:
        self._files = files
        self._appender = appender
        self._replacer = replacer
        self._unfinished: dict[str, str] = {}
        """Files whose archiving failed and could not be undone yet, and the paths of their archives."""

    def archive(self, path: str, content: bytes, at: int, name: str | None) -> str:
        """Archive the file, begin it with `content`, and return the archive's file name; see `Volume.archive`.

        On an error the file is what it was before, at the latest when it is used again. A process that dies in here
        leaves the old state or the new one, once `finish` has been called by the next process.
        """
        with ExitStack() as undo:
            self._appender.restore(path)
            self.finish(path)
            archive = self._archive_of(path, at)
            if name is not None and posixpath.basename(archive) != name:
                raise OSError(errno.EEXIST, f"its archive would be {posixpath.basename(archive)!r} and not {name!r}")
            if not archive:
                self._replacer.put(path, (content,))
                self._replacer.sync_names(path)
                return ""
            following = self._write_next(path, content)
            self._unfinished[path] = archive
            undo.callback(self._undo, path)
            # Nobody writes to this file again, so this is the last chance to sync what a killed process has left.
            self._replacer.make_durable(path, self._files.read(path))
            self._replacer.distrust_names(path)
            self._files.rename(path, archive)
            self._files.rename(following, path)
            self._replacer.sync_names(path)
            undo.pop_all()
            del self._unfinished[path]
            self._appender.forget(path)
            return posixpath.basename(archive)

    def name(self, path: str, at: int) -> str:
        """Return the file name that an archive would get now, "" if there is no file."""
        self.finish(path)
        return posixpath.basename(self._archive_of(path, at))

    def finish(self, path: str) -> None:
        """Complete a change that was cut off.

        A change that failed in this process is undone. One that a process before this one has died of is finished if
        the file is in its archive already, and forgotten if not.
        """
        self.undo_failed(path)
        following = _next_path(path)
        if not self._files.exists(following):
            return
        if self._files.exists(path):  # it was not renamed yet
            self._replacer.remove_if_possible(following)
            return
        self._replacer.distrust_names(path)
        self._files.rename(following, path)
        self._appender.forget(path)
        self._replacer.sync_names(path)

    def undo_failed(self, path: str) -> None:
        """Give the file its name again, if archiving it has failed in this process."""
        if path not in self._unfinished:
            return
        archive, following = self._unfinished[path], _next_path(path)
        if self._files.exists(archive):
            if self._files.exists(path):
                self._files.rename(path, following)
            self._files.rename(archive, path)
        del self._unfinished[path]

    def _undo(self, path: str) -> None:
        """Undo as far as the disk allows; the rest is done before the file is used again."""
        with suppress(OSError):
            self.undo_failed(path)
            self._files.remove(_next_path(path))

    def _write_next(self, path: str, content: bytes) -> str:
        following = _next_path(path)
        with ExitStack() as undo:
            self._replacer.write_new(following, (content,), undo)
            self._files.sync_folder(following)
            undo.pop_all()
        return following

    def _archive_of(self, path: str, at: int) -> str:
        """Return the path of the archive, "" if there is no file."""
        if not self._files.exists(path):
            return ""
        stem = posixpath.join(posixpath.dirname(path), format_time(at, "%Y-%m-%d-%H%M%S"))
        return self._replacer.free_name(lambda n: f"{stem}-{n}.jsonl" if n > 1 else f"{stem}.jsonl")


def _next_path(path: str) -> str:
    return f"{path}.next"


def _chunks(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces of about a megabyte."""
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
