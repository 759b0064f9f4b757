"""The databases that the contract is held against. One more is one more entry of SERVERS, and one more parameter."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from pegasus.storage.database.postgres import Postgres
from pegasus.testing.memory_database import MemoryDatabase
from tests.postgres_server import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]


class MemoryServer:
    """A database in memory, as the tests of the contract need it."""

    def __init__(self):
        self.memory = MemoryDatabase()

    async def link(self, name):
        """A way to the database, as a process has one."""
        return self.memory.link(name)

    async def end_lease(self, node):
        """Let the lease of a node end now, by the clock of the database."""
        self.memory.tables.end_lease(node)


class PostgresLinks:
    """A database of a PostgreSQL, as the tests of the contract need it."""

    def __init__(self, server, url):
        self._server, self._url = server, url
        self.links = []

    async def link(self, name):
        self.links.append(Postgres(self._url))
        return self.links[-1]

    async def end_lease(self, node):
        self._server.execute(f"update pegasus.node set until = now() where id = {node}", url=self._url)


@asynccontextmanager
async def memory_server(request):
    """Open an empty database in memory."""
    yield MemoryServer()


@asynccontextmanager
async def postgres_links(request):
    """Open an empty database of the server that the tests share."""
    links = PostgresLinks(request.getfixturevalue("postgres_server"), request.getfixturevalue("postgres_url"))
    try:
        yield links
    finally:
        for link in links.links:
            await link.aclose()


SERVERS = {"memory": memory_server, "postgres": postgres_links}
"""Databases by name: each an async context manager of a server with `link` and `end_lease`."""


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.real_time)])
async def server(request):
    async with SERVERS[request.param](request) as server:
        yield server
