"""All-or-nothing changes to the files below one folder.

`Volume` builds on the operations of a disk (`files`): appending, replacing and archiving files, reading, repair, and
errors that tell people what to do. Data is *durable* when a power failure cannot undo it: the bytes of a file after the file
is synced, its name (that the file exists, and under this name) after its folder is synced. The argument for its safety:

* A change is answered when every file that it touched is synced. A crash before that leaves a prefix of the change:
  whole appends in their order, then a piece of one, which the readers of lines set aside. Of files that are synced
  together any may be whole and any in pieces; their order was given up by whoever asked for it.
* On an error each file is what it was before, at once or before it is used again.
* Nothing is appended to a file whose name is not durable, or that still holds the rest of a failed append. So no record
  is ever written behind bytes that may vanish or be garbage.

**Appending.** An append is synced before the next file is touched; only files that may reach the disk in any order
are written first and then synced together. On an error each file is cut back to its size before. A sync that failed
is never repeated: the kernel may have dropped the data that it was to write, and report success for the second sync.
Cutting back and writing anew avoids the question. Since every append is synced before anything else happens, all that
is in front of it is on the disk, and the size is all that must be remembered. Where even cutting back fails, the file
takes no append until it has succeeded.

**Replacing.** The new content is written to a temporary file, synced, and renamed to the name of the old one. A rename is
atomic for readers, but the disk may forget it until the folder is synced. A folder whose names are perhaps not durable
yet takes no appends: a power failure could bring back the old file, without the records that were appended to the new one.

**Archiving.** The new content is durable beside the file, in `<path>.next`, before the file is renamed to its archive
name and `.next` to the name of the file. Between these two renames no file has the name. Three cases can be found later,
and each tells which step was the last one:

* the file and its `.next` exist: nothing was renamed; `.next` is deleted;
* only `.next` exists: the file is in its archive; `.next` gets the name;
* only the file exists: the change is complete, or was never begun.
"""

from __future__ import annotations

import errno
import posixpath
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple, TypeAlias

from pegasus.formatting import format_time
from pegasus.storage.files import Files
from pegasus.storage.messages import StorageError

Appends: TypeAlias = Sequence[tuple[str, bytes]]
"""Pairs of a path and the bytes to be appended to that file."""

_CHUNK = 1 << 20
"""Bytes that are written at once to a new file, so that many small parts are few writes."""

_OPEN_TOGETHER = 64
"""Files that are open at once, since a process may have a few hundred."""

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
    """A part of a file, in bytes.

    Example: `[line] = volume.read_spans("inbox/inbox.jsonl", [Span(4096, 120)])`.
    """

    offset: int
    """Byte at which it begins."""
    length: int
    """Number of bytes."""


class Volume:
    r"""Files below one root. Every error is a StorageError. Only one thread may use it at a time.

    >>> volume = Volume(OsFiles("/tmp/data"), "/tmp/data")
    >>> volume.append([("main/current.jsonl", b"1\n"), ("tasks/a.jsonl", b"2\n")])
    [0, 0]
    """

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._name = name
        """The root as error messages show it."""
        self._sizes_to_restore: dict[str, int] = {}
        """Files that hold the rest of a failed append, and the sizes to which they must be cut."""
        self._durable_folders: set[str] = set()
        """Folders whose names are on the disk. At first none: a process before this one may have left any state."""
        self._failed_syncs: set[str] = set()
        """Files whose content was there before this process, and could not be synced."""
        self._unfinished_archives: dict[str, str] = {}
        """Files whose archiving failed and could not be undone yet, and the paths of their archives."""

    # ------------------------------------------------------------------ changes

    def append(self, appends: Appends) -> list[int]:
        """Append to the files in this order, each of which is a step; see `append_steps`."""
        return self.append_steps([(append,) for append in appends])

    def append_steps(self, steps: Sequence[Appends]) -> list[int]:
        """Append to the files in these steps, all of it or nothing, and return the offset of each append.

        Each step is synced before a file of the next one is touched. The files of a step are different ones, and synced together.
        """
        begun: list[tuple[str, int]] = []
        path = ""
        try:
            for some in _few_at_once(steps):
                try:
                    for path, data in some:
                        self._restore_size(path)
                        self._undo_failed_archive(path)
                        self._sync_names(path)
                        # The size from before this append is the offset of the new bytes, and what the file is cut off
                        # to if anything fails.
                        begun.append((path, self._files.prepare(path)))
                        self._files.write(path, data)
                    # Only after this does the next step begin: what it refers to in this one cannot be missing after a
                    # power loss.
                    self._files.sync_all([path for path, _ in some])
                finally:
                    for opened, _ in some:
                        self._files.close(opened)
        except OSError as error:
            self._mark_names_unsynced(path)
            # The newest change first. What cannot be cut off now is cut off before the file is used next, and left out
            # by `read` until then; so a request that was refused never shows.
            for changed, size in reversed(begun):
                self._sizes_to_restore[changed] = size
                with suppress(OSError):
                    self._restore_size(changed)
            raise self._refusal("write", path, error) from error
        return [size for _, size in begun]

    def replace(self, path: str, content: bytes) -> None:
        """Make the file hold exactly `content`. Whatever happens, it holds that or what it held before."""
        with self._refusing("write", path):
            self._finish_archive(path)
            self._put(path, (content,))
            self._sync_names(path)

    def rewrite(self, path: str, parts: Iterable[bytes | Span]) -> int:
        """Replace the file by one with the same meaning, made of new bytes and spans of the old one. Return its size.

        It is no error if the new name could not be made durable: either file will do, and nothing is appended before
        it is durable.
        """
        with self._refusing("rewrite", path):
            size = self._put(path, self._bytes_of(path, parts))
            with suppress(OSError):
                self._sync_names(path)
            return size

    def archive(self, path: str, content: bytes, at: int, name: str | None = None, prefix: str = "") -> str:
        """Rename the file to its time (`at`: ms since the epoch, shown in UTC) and begin it with `content`.

        Return the archive's name, "" if there was no file; its file name is `prefix` and that. An archive that would not be called
        `name` is a StorageError. On an error the file is what it was before, at the latest when it is used again. A process that dies
        in here leaves the old state or the new one, once the next process has read the file.
        """
        with self._refusing("archive", path), ExitStack() as undo:
            self._restore_size(path)
            archive = self._archive_path(path, at, prefix)
            free = posixpath.basename(archive).removeprefix(prefix)
            if name is not None and free != name:
                raise OSError(errno.EEXIST, f"its archive would be {free!r} and not {name!r}")
            if not archive:
                self._put(path, (content,))
                self._sync_names(path)
                return ""
            # From here on a failure is undone, now or before the file is used next. A crash is finished or forgotten by
            # the next process (`_finish_archive`), which tells the two apart by whether `path` exists.
            self._unfinished_archives[path] = archive
            undo.callback(self._undo_archive, path)
            # The new content is durable under its name aside before the old file loses its name.
            self._write_new(_next_path(path), (content,))
            self._files.sync_folder(path)
            # Nobody writes to this file again, so this is the last chance to sync what a killed process has left.
            self._make_durable(path, self._files.read(path))
            self._mark_names_unsynced(path)
            # Between this rename and the next one there is no file of this name. A crash here is the one that the next
            # process has to finish.
            self._files.rename(path, archive)
            self._files.rename(_next_path(path), path)
            self._sync_names(path)
            undo.pop_all()
            del self._unfinished_archives[path]
            return free

    def archive_name(self, path: str, at: int, prefix: str = "") -> str:
        """Return the name that `archive` would return, "" if there is no file."""
        with self._refusing("archive", path):
            return posixpath.basename(self._archive_path(path, at, prefix)).removeprefix(prefix)

    # ------------------------------------------------------------------ reading

    def read(self, path: str) -> bytes:
        """Return the whole file, b"" if there is none. The rest of a failed append is not part of it."""
        with self._refusing("read", path), suppress(FileNotFoundError):
            self._finish_archive(path)
            return self._files.read(path)[: self._sizes_to_restore.get(path)]
        return b""

    def read_each(self, paths: Sequence[str]) -> tuple[bytes | StorageError, ...]:
        """Return the content of each file, or the error in its place, so that one bad file does not hide the others."""
        contents: list[bytes | StorageError] = []
        for path in paths:
            try:
                contents.append(self.read(path))
            except StorageError as error:
                contents.append(error)
        return tuple(contents)

    def count_lines(self, path: str) -> int:
        """Return the number of lines of a file, 0 if there is none."""
        return self.read(path).count(b"\n")

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
                self._make_durable(path, content)
        return contents

    # ------------------------------------------------------------------ repair

    def keep_copy(self, path: str, data: bytes) -> str:
        """Write damaged bytes of a file to `<path>.bad-<n>`, for the first n that is free or has them already; return that path.

        So a repair that a crash or a full disk has cut off, and that begins anew, makes no second copy.
        """
        n = 1
        with self._refusing("repair", path):
            while self._files.exists(copy := f"{path}.bad-{n}"):
                with suppress(StorageError):  # something else may be in its place
                    if self.read_durable([copy]) == [data]:
                        return copy
                n += 1
        self.replace(copy, data)  # whole or not at all: a part of it would be taken for another copy
        return copy

    def set_tail_aside(self, path: str, offset: int, tail: bytes) -> str:
        """Move the end of a file, from `offset` on, to `<path>.bad-<n>`. A crash in between leaves both."""
        copy = self.keep_copy(path, tail)
        self.cut(path, offset)
        return copy

    def cut(self, path: str, size: int) -> None:
        """Cut the file off, durably."""
        with self._refusing("repair", path):
            self._sizes_to_restore[path] = size
            self._restore_size(path)

    # ------------------------------------------------------------------ parts of a change

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """Open a file for appending, and give its size."""
        try:
            yield self._files.prepare(path)
        finally:
            self._files.close(path)

    def _restore_size(self, path: str) -> None:
        """Remove the rest of a failed append, if the file holds one."""
        if path in self._sizes_to_restore:
            with self._opened(path):
                self._files.truncate(path, self._sizes_to_restore[path])
                self._files.sync(path)
            del self._sizes_to_restore[path]

    def _sync_names(self, path: str) -> None:
        """Make the names in the folder of this file durable, if they are not known to be."""
        folder = path.rpartition("/")[0]
        if folder not in self._durable_folders:
            if self._files.exists(path):  # otherwise the folder is synced when the file is created
                self._files.sync_folder(path)
            self._durable_folders.add(folder)

    def _mark_names_unsynced(self, path: str) -> None:
        """Note that a name in the folder of this file is perhaps not durable."""
        self._durable_folders.discard(path.rpartition("/")[0])

    def _put(self, path: str, parts: Iterable[bytes]) -> int:
        """Make the file consist of these parts, and return its size. Its name is durable after `_sync_names`."""
        # Synced before it is renamed. In the other order a power loss could leave the new name with no content.
        size = self._write_new(f"{path}.tmp", parts)
        try:
            self._files.rename(f"{path}.tmp", path)
        except OSError:
            self._remove_if_possible(f"{path}.tmp")
            raise
        self._mark_names_unsynced(path)
        self._sizes_to_restore.pop(path, None)
        return size

    def _write_new(self, path: str, parts: Iterable[bytes]) -> int:
        """Write and sync a new file, and return its size. Its name is not durable. On an error there is no such file."""
        size = 0
        try:
            self._files.begin(path)
            for chunk in _chunks(parts):
                self._files.write(path, chunk)
                size += len(chunk)
            self._files.sync(path)
        except OSError:
            self._remove_if_possible(path)
            raise
        finally:
            self._files.close(path)
        return size

    def remove_old(
        self, folders: Iterable[str], since: int, before: int, limit: int, names: str, spared: Container[str]
    ) -> tuple[str, ...]:
        """Delete old files as `RemoveOldFiles` says, and folders that are empty then; return the paths of those files.

        A file that cannot be deleted is left. After a crash some may be there again.
        """
        gone: list[str] = []
        for folder in folders:
            with self._refusing("read", folder):
                old = old_names(self._files.written(folder), since, before, names)
            paths = [path for name in old if (path := f"{folder}/{name}") not in spared][: limit - len(gone)]
            for path in paths:
                self._remove_if_possible(path)
            gone += [path for path in paths if not self._files.exists(path)]
            if paths:
                with suppress(OSError):
                    self._files.remove_folder(folder)
        return tuple(gone)

    def _remove_if_possible(self, path: str) -> None:
        """Delete a file that does no harm if it stays."""
        with suppress(OSError):
            self._files.remove(path)

    def _make_durable(self, path: str, content: bytes) -> None:
        """Make durable what a reader has found in the file, and the file's name.

        A process that was killed may have left bytes that readers see and the disk does not have yet. If the sync
        fails, another one would prove nothing, so the next try writes the content to a new file.
        """
        if not content:
            return
        if path not in self._failed_syncs:
            # Entered before the attempt: an error in the middle of it must count as a failed sync, too.
            self._failed_syncs.add(path)
            with suppress(OSError), self._opened(path):
                self._files.sync(path)
                self._failed_syncs.discard(path)
        # After a failed sync the system may take the pages for clean, and the next sync succeeds without writing them.
        # A new file with the same content is the only proof.
        if path in self._failed_syncs:
            self._put(path, (content,))
            self._failed_syncs.discard(path)
        self._mark_names_unsynced(path)
        self._sync_names(path)

    def _bytes_of(self, path: str, parts: Iterable[bytes | Span]) -> Iterator[bytes]:
        for part in parts:
            found = part if isinstance(part, bytes) else self._files.read(path, *part)
            if isinstance(part, Span) and len(found) != part.length:
                raise OSError(errno.EIO, "the file is shorter than it was")
            yield found

    def _free_name(self, name: Callable[[int], str]) -> str:
        """Return the first of name(1), name(2), … that no file has."""
        n = 1
        while self._files.exists(name(n)):
            n += 1
        return name(n)

    # ------------------------------------------------------------------ parts of archiving

    def _archive_path(self, path: str, at: int, prefix: str) -> str:
        """Return the path that an archive would get now, "" if there is no file."""
        self._finish_archive(path)
        if not self._files.exists(path):
            return ""
        stem = posixpath.join(posixpath.dirname(path), prefix + format_time(at, "%Y-%m-%d-%H%M%S"))
        return self._free_name(lambda n: f"{stem}-{n}.jsonl" if n > 1 else f"{stem}.jsonl")

    def _finish_archive(self, path: str) -> None:
        """Complete a change that was cut off.

        A change that failed in this process is undone. One that a process before this one has died of is finished if
        the file is in its archive already, and forgotten if not.
        """
        self._undo_failed_archive(path)
        following = _next_path(path)
        if not self._files.exists(following):
            return
        if self._files.exists(path):  # it was not renamed yet
            self._remove_if_possible(following)
            return
        self._mark_names_unsynced(path)
        self._files.rename(following, path)
        self._sync_names(path)

    def _undo_failed_archive(self, path: str) -> None:
        """Give the file its name again, if archiving it has failed in this process."""
        if path not in self._unfinished_archives:
            return
        archive, following = self._unfinished_archives[path], _next_path(path)
        if self._files.exists(archive):
            if self._files.exists(path):
                self._files.rename(path, following)
            self._files.rename(archive, path)
        del self._unfinished_archives[path]

    def _undo_archive(self, path: str) -> None:
        """Undo as far as the disk allows; the rest is done before the file is used again."""
        with suppress(OSError):
            self._undo_failed_archive(path)
            self._files.remove(_next_path(path))

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


def old_names(written: Mapping[str, int], since: int, before: int, names: str) -> list[str]:
    """Return the names of old files, the oldest first, without the newest one of those that the expression groups together."""
    matches = {name: match for name in written if (match := re.fullmatch(names, name))}
    found = sorted(matches, key=lambda name: (written[name], name))
    newest = {match["of"]: name for name in found if "of" in (match := matches[name]).groupdict()}
    kept = set(newest.values())
    return [name for name in found if since <= written[name] < before and name not in kept]


def _next_path(path: str) -> str:
    return f"{path}.next"


def _few_at_once(steps: Sequence[Appends]) -> Iterator[Appends]:
    """Yield the steps, and those with many files as several."""
    for step in steps:
        for begin in range(0, len(step), _OPEN_TOGETHER):
            yield step[begin : begin + _OPEN_TOGETHER]


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
