"""The tables of a database: made when it is empty, extended when a newer program may, refused when they are newer than the program.

They stand in a PostgreSQL schema of their own, "pegasus", and have a version. A version only adds to the one before, so programs of
both can work with it. It is made by the first program that knows it, once no living node knows only the one before: until then the
newer program works with the older tables. A program that meets tables of a newer version ends with a sentence.

One transaction does all of it, under an advisory lock: two nodes that start at the same time make one set of tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psycopg

from pegasus.storage.database.connection import DatabaseRefused, TrioConnection, fetch

_LOCK: Final = 0x7065_6761_7375_7300
"""Key of the advisory lock: "pegasus" in ASCII."""
OLDEST_SERVER: Final = 150_000
"""Oldest PostgreSQL that is tried, as `server_version_num` has it."""


FACTS: Final = """current_setting('server_version_num')::int, current_setting('server_encoding'), current_database(),
    to_regclass('pegasus.version') is null and exists (select from pg_class where relnamespace = to_regnamespace('pegasus'))"""
"""Columns for `find_refusal`."""


def find_refusal(server: int, encoding: str, database: str, is_taken: bool) -> str:
    """Return why a database cannot be used, and what to do; "" if it can. The arguments are the columns FACTS."""
    if server < OLDEST_SERVER:
        return f"the server is PostgreSQL {server // 10_000}; allowed: {OLDEST_SERVER // 10_000} or newer"
    if encoding != "UTF8":
        return (
            f'the database "{database}" has the encoding {encoding}; allowed: UTF8. Make another one: '
            f"CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8'"
        )
    if is_taken:
        return f'the schema pegasus of the database "{database}" holds tables of another program; name another database'
    return ""


def steps() -> tuple[str, ...]:
    """Return the statements that lead to version 1, from there to version 2, and so on."""
    return (Path(__file__).with_name("schema.sql").read_text("utf-8"),)


async def prepare(connection: TrioConnection, versions: Sequence[str]) -> int:
    """Bring the tables to the newest version that may be, and return it. versions: as `steps` returns them.

    Raises DatabaseRefused with what to do.
    """
    [(user, database)] = await fetch(connection, "select current_user, current_database()")
    try:
        async with connection.transaction():
            return await _bring_up(connection, versions)
    except psycopg.errors.InsufficientPrivilege as error:
        name = '"' + user.replace('"', '""') + '"'
        raise DatabaseRefused(
            f'the user {name} has too few rights in the database "{database}" ({error.diag.message_primary}). Let its owner run: '
            f"CREATE SCHEMA IF NOT EXISTS pegasus; ALTER SCHEMA pegasus OWNER TO {name}; and, if there are tables in it, "
            f"GRANT ALL ON ALL TABLES IN SCHEMA pegasus TO {name}; GRANT ALL ON ALL SEQUENCES IN SCHEMA pegasus TO {name};"
        ) from None


async def _bring_up(connection: TrioConnection, versions: Sequence[str]) -> int:
    """Do what `prepare` says, within a transaction."""
    await fetch(connection, "select pg_advisory_xact_lock(%s)", _LOCK)
    # Before the lock a session would note that there is no schema, and not hear of one that was made while it waited.
    [facts] = await fetch(connection, f"select {FACTS}")
    if refusal := find_refusal(*facts):
        raise DatabaseRefused(refusal)
    [(is_there, has_schema)] = await fetch(
        connection, "select to_regclass('pegasus.version') is not null, to_regnamespace('pegasus') is not null"
    )
    number, oldest = 0, len(versions)
    if is_there:
        [(number, oldest)] = await fetch(
            connection,
            "select number, (select coalesce(min(tables), %s) from pegasus.node where until > clock_timestamp()) from pegasus.version",
            len(versions),
        )
        if number > len(versions):
            raise DatabaseRefused(
                f"the tables of the database have version {number}, and this program knows {len(versions)}: start a newer program"
            )
    elif not has_schema:
        await fetch(connection, "create schema pegasus")
    for version in range(number + 1, min(oldest, len(versions)) + 1):
        # Without parameters all statements of the text are run.
        await connection.execute(versions[version - 1])
        await fetch(connection, "update pegasus.version set number = %s", version)
        number = version
    return int(number)
