"""Opening the database that the settings name. The driver is imported here and nowhere else, since it belongs to an extra."""

from __future__ import annotations

from importlib import import_module

from pegasus.storage.database.tables import Database
from pegasus.storage.messages import StorageError


def open_database(url: str) -> Database:
    """Return the database at an address. Nothing is connected yet. Raises StorageError: no address, or the extra is missing."""
    try:
        postgres = import_module("pegasus.storage.database.postgres")
    except ModuleNotFoundError as error:
        text = f"storage.url needs the extra: pip install 'pegasus-agent[postgres]' (there is no {error.name})"
        raise StorageError(text) from None
    database: Database = postgres.Postgres(url)
    return database
