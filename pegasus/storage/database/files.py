"""Files of other packages in the database, and collections of rows.

A path that ends in ".jsonl" is lines, any other path one content; the path is the name, as on a disk. A collection of rows has no
path here. Who reads its file all the same gets one that is put together of the rows.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from functools import partial

from pegasus.formatting import format_time
from pegasus.storage.database.calls import DatabaseCalls
from pegasus.storage.database.notes import Notes
from pegasus.storage.database.tables import Database
from pegasus.storage.journal import check_paths
from pegasus.storage.leases import owner_of
from pegasus.storage.messages import (
    Archive,
    ArchiveName,
    Changed,
    NextChange,
    PutRows,
    ReadFile,
    ReadFiles,
    ReadRows,
    RemoveOldFiles,
    ReplaceFile,
    SetAside,
    StorageError,
    StoredRows,
    WholeCollection,
    WholeFile,
)
from pegasus.storage.row_files import LINE_FILES, ROW_FILES, collection_of, rows_path
from pegasus.storage.volume import old_names


class DatabaseFiles:
    """Messages about whole files and collections.

    Example: `await files.answer(ReadFile(reply, "memory/MEMORY.md"))` is its content.
    """

    def __init__(
        self,
        database: Database,
        calls: DatabaseCalls,
        notes: Notes,
        clock: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        """clock: wall clock, ms. new_id: returns a name for a request that no other has."""
        self._database = database
        self._calls = calls
        self._notes = notes
        self._clock = clock
        self._new_id = new_id
        self._changes: list[NextChange] = []
        """Queries for changes of collections."""

    @staticmethod
    def keys_of(message: WholeFile | WholeCollection) -> list[str]:
        """Return the owner keys in whose order a message is answered. Raises ValueError for an invalid path."""
        if isinstance(message, WholeCollection):
            path = rows_path(message.collection, message.owner)
            check_paths((path,))
            return [owner_of(path)]
        if isinstance(message, RemoveOldFiles):
            check_paths(message.paths)
            return [f"files/{path}" for path in message.paths]
        paths = message.paths if isinstance(message, ReadFiles) else (message.path,)
        check_paths(paths)
        return [owner_of(path) for path in paths]

    async def answer(self, message: WholeFile | WholeCollection) -> object:
        """Do what a message asks for, and return the answer. Raises StorageError, LeaseLost, Changed and ValueError."""
        until_done, database = self._calls.until_done, self._database
        match message:
            case ReadFile(_, path):
                return await self._read(path)
            case ReadFiles(_, paths):
                return await self._read_each(paths)
            case ReplaceFile(_, path, content, lease):
                _check_lines(path, content)
                at = self._clock()
                return await until_done(lambda: database.replace(path, content, at, lease))
            case SetAside(_, path, content):
                return await self._set_aside(path, content)
            case RemoveOldFiles():
                return await self._remove_old(message)
            case Archive():
                return await self._archive(message)
            case ArchiveName(_, path, at, prefix):
                return await self._archive_name(path, at, prefix)
            case ReadRows(_, collection, owner):
                rows = await until_done(lambda: database.read_rows(collection, owner))
                _, form = ROW_FILES[collection]
                return StoredRows(form.content(rows.rows.items()) if rows.rows else b"", rows.version)
            case PutRows(_, collection, owner, put, delete, _, version):
                id = self._new_id()
                try:
                    return await until_done(lambda: database.put_rows(id, collection, owner, put, delete, version))
                except Changed as error:
                    raise Changed(f"{rows_path(collection, owner)} was changed by somebody else") from error

    # ------------------------------------------------------------------ changes of collections

    def watch(self, query: NextChange) -> None:
        """Answer a query when its collection has changed."""
        self._changes = [other for other in self._changes if not other.reply.abandoned]
        self._changes.append(query)

    async def look(self) -> None:
        """Answer the queries whose collections have changed."""
        rows = {(query.collection, query.owner) for query in self._changes if query.collection in ROW_FILES}
        lines = {
            (query.collection, query.owner): LINE_FILES[query.collection].format(owner=query.owner)
            for query in self._changes
            if query.collection in LINE_FILES
        }
        versions = dict(await self._database.versions(rows)) if rows else {}
        if lines:
            lengths = await self._database.lengths(set(lines.values()))
            versions |= {collection: lengths.get(path, 0) for collection, path in lines.items()}
        waiting: list[NextChange] = []
        for query in self._changes:
            version = versions.get((query.collection, query.owner), 0)
            if version != query.version and version:
                query.reply.send(version)
            else:
                waiting.append(query)
        self._changes = waiting

    # ------------------------------------------------------------------ single messages

    async def _read(self, path: str) -> bytes:
        found = collection_of(path)
        if found is not None and found[0] in ROW_FILES:
            rows = (await self._calls.until_done(lambda: self._database.read_rows(*found))).rows
            return ROW_FILES[found[0]][1].content(rows.items()) if rows else b""
        return await self._calls.until_done(lambda: self._database.read(path))

    async def _read_each(self, paths: Sequence[str]) -> tuple[bytes | StorageError, ...]:
        """Return the content of each file, or the error in its place."""
        contents: list[bytes | StorageError] = []
        for path in paths:
            try:
                contents.append(await self._read(path))
            except StorageError as error:
                contents.append(error)
        return tuple(contents)

    async def _names(self, path: str, beginning: str) -> set[str]:
        """Return the names beside a file that begin in this way."""
        folder = posixpath.dirname(path)
        found = await self._calls.until_done(lambda: self._database.names(folder, beginning))
        return {name for name, _, _ in found}

    async def _set_aside(self, path: str, content: bytes) -> str:
        taken, n = await self._names(path, f"{posixpath.basename(path)}.bad-"), 1
        while posixpath.basename(copy := f"{path}.bad-{n}") in taken:
            if await self._read(copy) == content:
                return copy
            n += 1
        at = self._clock()
        await self._calls.until_done(lambda: self._database.replace(copy, content, at, None))
        return copy

    async def _archive_name(self, path: str, at: int, prefix: str) -> str:
        """Return the name that an archive would get, without the prefix; "" if there is no file."""
        name = posixpath.basename(path)
        if name not in await self._names(path, name):
            return ""
        stem, n = format_time(at, "%Y-%m-%d-%H%M%S"), 1
        taken = await self._names(path, prefix + stem)
        while prefix + (free := f"{stem}-{n}.jsonl" if n > 1 else f"{stem}.jsonl") in taken:
            n += 1
        return free

    async def _archive(self, message: Archive) -> str:
        # A session that was archived cannot show any more what is done.
        await self._notes.flush()
        path, content, at, lease = message.path, message.content, message.at, message.lease
        _check_lines(path, content)
        name = await self._archive_name(path, at, message.prefix)
        if message.name not in (None, name):
            raise StorageError(f"{path}: its archive would be {name!r} and not {message.name!r}")
        if not name:
            await self._calls.until_done(lambda: self._database.replace(path, content, at, lease))
            return ""
        new = message.prefix + name
        archive = partial(self._database.archive, self._new_id(), path, new, content, at, lease)
        if not await self._calls.until_done(archive):
            raise StorageError(f"{path} cannot be archived as {name!r}, since that name is taken")
        return name

    async def _remove_old(self, message: RemoveOldFiles) -> tuple[str, ...]:
        gone: list[str] = []
        for folder in message.paths:
            written = {
                name: at for name, _, at in await self._calls.until_done(partial(self._database.names, folder, ""))
            }
            old = old_names(written, message.since, message.before, message.names)
            paths = [path for name in old if (path := f"{folder}/{name}") not in message.spared]
            paths = paths[: message.limit - len(gone)]
            if paths:
                await self._calls.until_done(partial(self._database.remove, paths))
            gone += paths
        return tuple(gone)


def _check_lines(path: str, content: bytes) -> None:
    """Raise ValueError for content of a file of lines that is not whole lines of text."""
    if path.endswith(".jsonl"):
        lines_in(path, content)


def lines_in(path: str, data: bytes) -> tuple[str, ...]:
    """Return the lines of some bytes, without their newlines. Raises ValueError if they are not whole lines of text."""
    if not path.endswith(".jsonl"):
        raise ValueError(f"{path!r} is no file of lines; its name must end in .jsonl")
    if data and not data.endswith(b"\n"):
        raise ValueError(f"{path!r}: found a line without its end")
    if b"\0" in data:
        raise ValueError(f"{path!r}: found a NUL byte")
    return tuple(data.decode().split("\n")[:-1])
