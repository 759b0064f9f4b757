"""Memory in a real folder, written by a real journal."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import pytest

from actors import Child, Mailbox, open_supervisor
from pegasus.memory import FolderReader, Memory
from pegasus.storage import FileDisk, run_journal

NOW = 1_772_000_000_000


@asynccontextmanager
async def run(disk):
    """A journal on this disk."""
    child = Child("journal", partial(run_journal, clock=lambda: 0), disk, mailbox=Mailbox(capacity=1024))
    async with open_supervisor([child]) as supervisor:
        yield supervisor.ref("journal")


@asynccontextmanager
async def open_memory(data, disk=None):
    async with run(disk or FileDisk(data)) as journal:
        yield Memory(journal, FolderReader(data / "memory"), clock=lambda: NOW)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data" / "memory"


@pytest.fixture
async def memory(tmp_path):
    async with open_memory(tmp_path / "data") as memory:
        yield memory


@pytest.fixture
def put(folder):
    """Write a file by hand: put("facts/user.md", "text")."""

    def write(path, content):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content if isinstance(content, bytes) else content.encode())

    return write
