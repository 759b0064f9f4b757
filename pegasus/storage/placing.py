"""Putting whole files in the place of others, and knowing in which folders all names are durable."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress

from pegasus.storage.appending import Appender
from pegasus.storage.files import Files

_CHUNK = 1 << 20


class Places:
    """Everything here may raise OSError."""

    def __init__(self, files: Files, appender: Appender) -> None:
        self._files = files
        self._appender = appender
        self._durable_folders: set[str] = set()
        """Whose names are on the disk; nothing is known of what a process before this one has left."""
        self._distrusted: set[str] = set()

    # ------------------------------------------------------------------ names

    def sync_names(self, path: str) -> None:
        """The names in the folder of this file are on the disk."""
        folder = posixpath.dirname(path)
        if folder not in self._durable_folders:
            if self._files.exists(path):  # else the folder is synced when it is made
                self._files.sync_folder(path)
            self._durable_folders.add(folder)

    def doubt_names(self, path: str) -> None:
        """A name in the folder of this file is perhaps not on the disk."""
        self._durable_folders.discard(posixpath.dirname(path))

    def free_name(self, name: Callable[[int], str]) -> str:
        """The first of name(1), name(2), … that no file has."""
        n = 1
        while self._files.exists(name(n)):
            n += 1
        return name(n)

    # ------------------------------------------------------------------ contents

    def put(self, path: str, parts: Iterable[bytes]) -> int:
        """Make the file consist of these, durably, but for its name (see `sync_names`); gives its size."""
        with ExitStack() as undo:
            size = self.write_beside(f"{path}.tmp", parts, undo)
            self._files.rename(f"{path}.tmp", path)
            undo.pop_all()
        self.doubt_names(path)
        self._appender.forget(path)
        return size

    def write_beside(self, temporary: str, parts: Iterable[bytes], undo: ExitStack) -> int:
        """Write a file of this name, durably, but for its name; `undo` removes it again. Gives its size."""
        undo.callback(remove_if_possible, self._files, temporary)
        self._files.begin(temporary)
        size = 0
        for chunk in _chunks(parts):
            self._files.write(temporary, chunk)
            size += len(chunk)
        self._files.sync(temporary)
        return size

    def make_durable(self, path: str, data: bytes) -> None:
        """What a reader has found in the file is on the disk, and so is its name."""
        if not data:
            return
        if path not in self._distrusted:
            self._distrusted.add(path)
            with suppress(OSError):
                self._files.sync(path)
                self._distrusted.discard(path)
        if path in self._distrusted:  # a sync has failed, so another one would prove nothing
            self.put(path, (data,))
            self._distrusted.discard(path)
        self.doubt_names(path)
        self.sync_names(path)


def remove_if_possible(files: Files, path: str) -> None:
    """Delete a file that is in nobody's way."""
    with suppress(OSError):
        files.remove(path)


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
