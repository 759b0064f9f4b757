"""Putting a file aside under the name of its time, and beginning it anew: all or nothing, over errors and crashes.

The new content is durable beside the file, in `<path>.next`, before the file is renamed. A file that is missing while its
`.next` is there is therefore whole in an archive and in that, and whoever reads it next finishes the change.
"""

from __future__ import annotations

import errno
import posixpath
from contextlib import ExitStack, suppress

from pegasus.formatting import format_time
from pegasus.storage.appending import Appender
from pegasus.storage.files import Files
from pegasus.storage.placing import Places, remove_if_possible


class Archives:
    """Everything here may raise OSError."""

    def __init__(self, files: Files, appender: Appender, places: Places) -> None:
        self._files = files
        self._appender = appender
        self._places = places
        self._unfinished: dict[str, str] = {}
        """Files that could not be put aside, nor brought back under their name yet; and the names of their archives."""

    def archive(self, path: str, content: bytes, at: int, name: str | None) -> str:
        """As `Volume.archive`. On an error the file is what it was, at the latest when it is used again."""
        with ExitStack() as undo:
            self._appender.mend(path)
            self.finish(path)
            archived = self._archive_of(path, at)
            if name is not None and posixpath.basename(archived) != name:
                raise OSError(errno.EEXIST, f"its archive would be {posixpath.basename(archived)!r} and not {name!r}")
            if not archived:
                self._places.put(path, (content,))
                self._places.sync_names(path)
                return ""
            following = self._write_next(path, content)
            self._unfinished[path] = archived
            undo.callback(self._undo, path)
            self._sync_for_good(path)
            self._places.doubt_names(path)
            self._files.rename(path, archived)
            self._files.rename(following, path)
            self._places.sync_names(path)
            undo.pop_all()
            del self._unfinished[path]
            self._appender.forget(path)
            return posixpath.basename(archived)

    def name(self, path: str, at: int) -> str:
        """The file name that the archive would get, "" if there is no file."""
        self.finish(path)
        return posixpath.basename(self._archive_of(path, at))

    def finish(self, path: str) -> None:
        """Bring a change that was cut off to an end: undone if it failed here, finished if a process before this one died of it."""
        self.bring_back(path)
        following = _following(path)
        if not self._files.exists(following):
            return
        if self._files.exists(path):
            remove_if_possible(self._files, following)  # the file was not renamed yet
            return
        self._places.doubt_names(path)
        self._files.rename(following, path)
        self._appender.forget(path)
        self._places.sync_names(path)

    def bring_back(self, path: str) -> None:
        """Give the file its name again, if an archive of it has failed here."""
        if path not in self._unfinished:
            return
        archived, following = self._unfinished[path], _following(path)
        if self._files.exists(archived):
            if self._files.exists(path):
                self._files.rename(path, following)
            self._files.rename(archived, path)
        del self._unfinished[path]

    def _undo(self, path: str) -> None:
        """As far as the disk lets us; the rest is done before the file is used again."""
        with suppress(OSError):
            self.bring_back(path)
            self._files.remove(_following(path))

    def _sync_for_good(self, path: str) -> None:
        """Nobody will write to it again, so this is the last chance. Where it fails, what is lost is written anew the next time."""
        tail = self._appender.tail(path, self._files.prepare(path))
        if tail.certain:
            self._appender.settle(path, tail)
        else:
            self._places.make_durable(path, self._files.read(path))

    def _write_next(self, path: str, content: bytes) -> str:
        following = _following(path)
        with ExitStack() as undo:
            self._places.write_beside(following, (content,), undo)
            self._files.sync_folder(following)
            undo.pop_all()
        return following

    def _archive_of(self, path: str, at: int) -> str:
        """The path of the archive, "" if there is no file."""
        if not self._files.exists(path):
            return ""
        stem = posixpath.join(posixpath.dirname(path), format_time(at, "%Y-%m-%d-%H%M%S"))
        return self._places.free_name(lambda n: f"{stem}-{n}.jsonl" if n > 1 else f"{stem}.jsonl")


def _following(path: str) -> str:
    return f"{path}.next"
