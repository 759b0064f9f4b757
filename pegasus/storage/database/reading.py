"""Files of a database, for reading beside the journal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from io import BytesIO
from typing import BinaryIO, TypeVar

import trio

from pegasus.storage.database.tables import Database
from pegasus.storage.messages import StorageError
from pegasus.storage.stored_files import ScannedFile

T = TypeVar("T")


class DatabaseFolder:
    """The files of a database: `DatabaseFolder(database)`. For threads of Trio: the loop asks the database meanwhile."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self, path: str) -> BinaryIO:
        """Open a file, which is in memory as a whole."""
        content = _ask(self._database.read, path)
        folder, _, name = path.rpartition("/")
        if not content and not any(self.scan(folder, lambda other: other == name)):
            raise FileNotFoundError(path)
        return BytesIO(content)

    def scan(self, folder: str, is_wanted: Callable[[str], bool]) -> Iterator[ScannedFile]:
        """Yield the files of a folder."""
        for name, size, at in _ask(self._database.names, folder):
            if is_wanted(name):
                yield ScannedFile(name, size, at * 1_000_000)


def _ask(question: Callable[[str], Awaitable[T]], name: str) -> T:
    """Return the answer of the database. Raises OSError, as a disk would, while it does not answer."""
    try:
        return trio.from_thread.run(question, name)
    except StorageError as error:
        raise OSError(str(error)) from error
