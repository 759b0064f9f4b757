"""The databases that the contract is held against. One more is one more entry of SERVERS."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from pegasus.testing.memory_database import MemoryDatabase


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


@asynccontextmanager
async def memory_server():
    """Open an empty database in memory."""
    yield MemoryServer()


SERVERS = {"memory": memory_server}
"""Databases by name: each an async context manager of a server with `link` and `end_lease`."""


@pytest.fixture(params=SERVERS)
async def server(request):
    async with SERVERS[request.param]() as server:
        yield server
