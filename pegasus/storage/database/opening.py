"""Opening the database that the settings name. The driver is imported here and nowhere else, since it belongs to an extra."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Final

from pegasus.storage.database.tables import Database
from pegasus.storage.inbox import InboxLog
from pegasus.storage.messages import StorageError
from pegasus.wire import encode_line

_NO_MESSAGES: Final = encode_line({"type": "compacted", "lastN": 0})
"""All that the inbox of an agent has which has sent replies, such as codes for strangers, and has accepted no message."""


def open_database(url: str) -> Database:
    """Return the database at an address. Nothing is connected yet. Raises StorageError: no address, or the extra is missing."""
    try:
        postgres = import_module("pegasus.storage.database.postgres")
    except ModuleNotFoundError as error:
        text = f"storage.url needs the extra: pip install 'pegasus-agent[postgres]' (there is no {error.name})"
        raise StorageError(text) from None
    database: Database = postgres.Postgres(url, random=Random())  # noqa: S311 pauses only
    return database


def has_messages(data: Path) -> bool:
    """Return whether the folder data of a home holds messages, from before its agent had a database."""
    with suppress(OSError):
        return (data / InboxLog.path).stat().st_size > len(_NO_MESSAGES)
    return False
