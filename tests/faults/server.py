"""The PostgreSQL of a trial: nodes are a user of their own there, whom it can refuse, and what it costs is counted."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio

from tests.postgres_server import PostgresServer

END_CONNECTIONS = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'node'"
"""Statement that ends every connection of a node."""
GROWING = ("pegasus.line", "pegasus.item", "pegasus.reply")
"""Tables that a turn makes larger."""
NO_SPACE = """create function no_space() returns trigger language plpgsql as
$$ begin raise exception 'could not extend file: No space left on device' using errcode = 'disk_full'; end $$"""
_TICKS = os.sysconf("SC_CLK_TCK")


class NodesServer:
    """A server whose calls do not hold up the others of this process."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    @property
    def port(self) -> int:
        """Of the server that writes: another one after a fail-over."""
        return int(self._server.port)

    def url(self, port: int = 0, user: str = "node") -> str:
        """Return the address of the database. port: of a link to it."""
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/postgres"

    async def start(self) -> None:
        """Start it, and wait until it answers; after a crash it recovers first."""
        await trio.to_thread.run_sync(self._server.start)

    async def stop(self, mode: str) -> None:
        """Stop it. mode: "immediate", as a crash does; "fast", which ends every connection first."""
        await trio.to_thread.run_sync(self._server.stop, mode)

    def signal(self, number: int) -> None:
        """Send a signal to all of its processes."""
        self._server.signal(number)

    async def remove(self) -> None:
        """Stop it, and remove all that it holds."""
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._server.remove)

    async def execute(self, *statements: str) -> list[Any]:
        """Run statements as the administrator; return the rows of the last one."""
        return await trio.to_thread.run_sync(self._server.execute, *statements)

    @asynccontextmanager
    async def without_connections(self) -> AsyncIterator[None]:
        """End the connections of nodes, and let no new one be made, while the block runs."""
        await self.execute("alter role node connection limit 0", END_CONNECTIONS)
        try:
            yield
        finally:
            await self.execute("alter role node connection limit -1")

    @asynccontextmanager
    async def without_space(self) -> AsyncIterator[None]:
        """Refuse what makes a table larger with the error of a full disk, while the block runs."""
        for table in GROWING:
            await self.execute(
                f"create trigger no_space before insert on {table} for each statement execute function no_space()"
            )
        try:
            yield
        finally:
            for table in GROWING:
                await self.execute(f"drop trigger no_space on {table}")

    async def fail_over(self, lag: float) -> None:
        """Let a new synchronous replica take the place of the server, which stops at once.

        lag: seconds for which the replica only writes down what it gets, before that. It has to replay that when it is promoted.
        """
        replica = await trio.to_thread.run_sync(PostgresServer, self._server)
        await self.execute("alter system set synchronous_standby_names = '*'", "select pg_reload_conf()")
        while not await self.execute("select 1 from pg_stat_replication where sync_state = 'sync'"):  # noqa: ASYNC110
            await trio.sleep(0.02)  # from here on each commit waits for it
        await trio.to_thread.run_sync(replica.execute, "select pg_wal_replay_pause()")
        await trio.sleep(lag)
        await self.stop("immediate")
        old, self._server = self._server, replica
        await trio.to_thread.run_sync(replica.promote)
        await trio.to_thread.run_sync(old.remove)

    # ------------------------------------------------------------ what it costs

    async def transactions(self) -> int:
        """Return the number of transactions that nodes have made; those of the last second are perhaps not counted yet."""
        [(count,)] = await self.execute("select xact_commit from pg_stat_database where datname = 'postgres'")
        return int(count)

    def cpu(self) -> float:
        """Return the seconds of the processor that it has taken, all its processes together."""
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended meanwhile
                words = path.read_text().rpartition(")")[2].split()
                if path.parent.name == str(self._server.pid):
                    ticks += sum(map(int, words[11:15]))  # with the children that have ended
                elif int(words[1]) == self._server.pid:
                    ticks += sum(map(int, words[11:13]))
        return ticks / _TICKS


@asynccontextmanager
async def open_server() -> AsyncIterator[NodesServer]:
    """A server for as long as the block lasts."""
    opened = NodesServer(await trio.to_thread.run_sync(PostgresServer))
    try:
        await opened.execute("create role node login", "grant create on database postgres to node", NO_SPACE)
        yield opened
    finally:
        await opened.remove()
