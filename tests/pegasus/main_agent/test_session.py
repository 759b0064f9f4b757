"""A session before a disk that refuses."""

import json

import pytest
import trio

from pegasus.conversation.entry import Entry
from pegasus.main_agent.session import Session
from pegasus.storage.writing import OWED_BYTES
from pegasus.testing.memory_disk import MemoryDisk
from tests.pegasus.storage.conftest import run_journal

PATH = "main/current.jsonl"
ENDLESS = 1 << 60


@pytest.mark.parametrize("operation", range(1, 9))
async def test_lines_that_were_refused_are_in_the_archive_whatever_the_disk_refuses_next(autojump_clock, operation):
    """So many that the journal could not keep them until the disk takes something again."""
    disk = MemoryDisk()
    async with run_journal(disk) as journal:
        session = Session(PATH, (), journal.ref)
        await session.commit((Entry(1, "user", "first"),))
        disk.fail(times=ENDLESS)
        await session.add(Entry(2, "assistant", "kept"))
        await trio.sleep(0.1)
        await session.add(Entry(3, "user", "refused" + "x" * OWED_BYTES))
        disk.files.end_faults()
        disk.fail(operation)
        name = await session.restart(lambda archived: (Entry(4, "system", f"after {archived}"),), 5)
        assert [entry.content for entry in session.entries] == [f"after {name}"]
    lines = disk.survivor().content(f"main/{name}").splitlines()
    assert [json.loads(line)["content"].rstrip("x") for line in lines] == ["first", "kept", "refused"]


async def test_a_session_whose_file_was_deleted_meanwhile_is_whole_in_its_archive(autojump_clock):
    """It is before the agent still, and the opening of the next one will say where to read it."""
    disk = MemoryDisk()
    async with run_journal(disk) as journal:
        session = Session(PATH, (), journal.ref)
        await session.commit((Entry(1, "user", "first"),))
        del disk.files.names[PATH]
        name = await session.restart(lambda archived: (Entry(2, "system", f"after {archived}"),), 3)
        assert name
        assert [entry.content for entry in session.entries] == [f"after {name}"]
    assert b"first" in disk.content(f"main/{name}")
