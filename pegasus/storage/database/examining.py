"""A look at the database for `pegasus doctor`: it changes nothing, and makes no tables. Imported there alone."""

from __future__ import annotations

import time
from typing import Any, Final

import psycopg

from pegasus.storage.database.connection import IS_SHARED, SHARED, TAKE_SESSION, explain, parameters_of
from pegasus.storage.database.node_list import DatabaseFacts
from pegasus.storage.database.schema import FACTS, find_refusal, steps

CONNECT_SECONDS: Final = "5"
"""Seconds that the connection may take."""


def look_at_database(url: str) -> DatabaseFacts:
    """Return what a database is like. Blocks. Raises StorageError."""
    parameters: dict[str, Any] = {**parameters_of(url), "connect_timeout": CONNECT_SECONDS}
    try:
        with psycopg.connect(**parameters, autocommit=True) as connection:
            connection.execute(f"select {TAKE_SESSION}".encode())
            with psycopg.connect(**parameters, autocommit=True) as other:
                is_shared = bool((other.execute(f"select {IS_SHARED}".encode()).fetchone() or (False,))[0])
            return _look(connection, is_shared=is_shared)
    except psycopg.Error as error:
        raise explain(error) from None


def _look(connection: psycopg.Connection[Any], *, is_shared: bool) -> DatabaseFacts:
    """Return the facts. is_shared: a pooler gives one session to several clients."""

    def row(statement: str) -> tuple[Any, ...]:
        found = connection.execute(statement.encode()).fetchone()
        return found or ()

    before, sent = time.time(), time.perf_counter()
    server, clock, is_read_only, commit, fsync, names, replicas, has_tables, may_create = row(
        "select current_setting('server_version'), extract(epoch from clock_timestamp())::float8, "
        "current_setting('transaction_read_only')::bool, "
        "current_setting('synchronous_commit'), current_setting('fsync'), current_setting('synchronous_standby_names'), "
        "(select count(*) from pg_stat_replication), to_regclass('pegasus.version') is not null, "
        "coalesce(has_schema_privilege(to_regnamespace('pegasus'), 'create'), has_database_privilege(current_database(), 'create'))"
    )
    round_trip = time.perf_counter() - sent
    refusal = SHARED if is_shared else find_refusal(*row(f"select {FACTS}"))
    tables, may_write, others = 0, bool(may_create), []
    if has_tables:
        # Of several rights in one call any is enough.
        (may_write,) = row(
            "select bool_and(has_table_privilege(c.oid, r)) from pg_class c, "
            "unnest(array['select', 'insert', 'update', 'delete']) as r "
            "where c.relnamespace = 'pegasus'::regnamespace and c.relkind = 'r'"
        )
    if has_tables and may_write:
        (tables,) = row("select number from pegasus.version")
        others = connection.execute(
            "select name, version, settings, is_draining from pegasus.node where until > clock_timestamp() order by name"
        ).fetchall()
    return DatabaseFacts(
        server=str(server),
        refusal=refusal,
        tables=int(tables),
        known=len(steps()),
        may_write=bool(may_write),
        is_read_only=bool(is_read_only),
        is_synced=commit != "off" and fsync == "on",
        replicas=int(replicas),
        has_synchronous_replica=bool(names) and commit not in ("off", "local"),
        ahead=float(clock) - before - round_trip / 2,
        round_trip=round_trip,
        others=tuple(others),
    )
