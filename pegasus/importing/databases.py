"""A foreign SQLite database: copied with its write-ahead log, and opened without trust.

Nothing in the foreign home changes by it: the last messages may be in the log alone, and opening the file itself would move them. The
copy is deleted at the end, also after an error.

    with open_database(folder, "state.db") as database:
        names = columns_of(database, "sessions")
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from pegasus.importing.foreign_home import CannotRead, ForeignFolder

LARGEST_DATABASE: Final = 512 << 20
"""Bytes of a database."""
QUERY_SECONDS: Final = 120.0
"""Seconds that all queries of a database may take together."""


@contextmanager
def open_database(folder: ForeignFolder, name: str) -> Iterator[sqlite3.Connection | None]:
    """Yield a copy of a database, None if there is none. Raises CannotRead, also for an error of SQLite in the block."""
    content = folder.content(name, LARGEST_DATABASE)
    if content is None:
        yield None
        return
    log = folder.content(f"{name}-wal", LARGEST_DATABASE)
    # SQLite makes the index of the log anew.
    folder.known.add(f"{name}-shm")
    with tempfile.TemporaryDirectory(prefix="pegasus-import-") as temporary:
        copy = Path(temporary) / "copy.db"
        copy.write_bytes(content)
        if log:
            copy.with_name("copy.db-wal").write_bytes(log)
        try:
            with closing(sqlite3.connect(copy)) as database:
                _guard(database)
                yield database
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            raise CannotRead(f"it cannot be read ({error})") from None


def columns_of(database: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of a table's columns, none if there is no such table. table: a constant of this program."""
    return {str(row[1]) for row in database.execute(f"PRAGMA table_info({table})")}


def _guard(database: sqlite3.Connection) -> None:
    """Make a foreign database harmless. After QUERY_SECONDS in all, each query fails with sqlite3.OperationalError.

    Only its tables are read, by queries of this program: a view in the place of a table, whose text would run as a query, is refused.
    `PRAGMA trusted_schema = OFF` would refuse more than that: the tables of OpenClaw check their values by functions that it forbids.
    Texts that are no UTF-8 are read with replacements instead of ending the import.
    """
    end = time.monotonic() + QUERY_SECONDS
    database.text_factory = lambda data: data.decode("utf-8", "replace")
    database.set_progress_handler(lambda: int(time.monotonic() > end), 100_000)
    database.set_authorizer(_judge)


def _judge(action: int, first: str | None, second: str | None, _database: str | None, within: str | None) -> int:
    """Return whether SQLite may do a step of a query. within: the view or trigger that it is a step of."""
    is_allowed = within is None and (
        action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
        or (action == sqlite3.SQLITE_PRAGMA and first == "table_info")
        or (action == sqlite3.SQLITE_FUNCTION and second == "count")
    )
    return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY
