"""Archives and sessions of a database, read as those of a folder are."""

from __future__ import annotations

import pytest
import trio

from pegasus.main_agent import StoredArchives, list_sessions
from pegasus.main_agent.session.files import chat_files
from pegasus.messages import Address
from pegasus.storage import Commit, read_stored
from pegasus.storage.database import DatabaseFolder
from pegasus.testing.memory_database import MemoryDatabase
from pegasus.wire import encode_line
from tests.pegasus.storage.conftest import NOW, run_node

CHAT = Address("web", "c1")
FILES = chat_files(CHAT)
ARCHIVE = "2026-02-25-143000.jsonl"


def entry(text):
    return encode_line({"ts": NOW, "role": "user", "content": text, "metadata": {"messageId": text}})


async def test_a_session_and_its_archive_are_found_and_read(autojump_clock):
    database = MemoryDatabase()
    async with run_node(database) as journal:
        await journal.ask(Commit, ((FILES.path, entry("now")), (f"sessions/{FILES.prefix}{ARCHIVE}", entry("before"))))
        stored = DatabaseFolder(database.link("a"))
        page = await trio.to_thread.run_sync(list_sessions, stored)
        assert {(row.file, row.chat, row.lines) for row in page.rows} == {
            (FILES.current, "web:c1", 1),
            (f"{FILES.prefix}{ARCHIVE}", "web:c1", 1),
        }
        archives = StoredArchives(stored, FILES)
        assert await archives.names() == (ARCHIVE,)
        assert "before" in (await archives.read(ARCHIVE, 1, 0, 50, 20_000)).text
        assert await trio.to_thread.run_sync(read_stored, stored, "sessions/none.jsonl") == b""
        with pytest.raises(FileNotFoundError):
            await archives.read("2026-01-01-000000.jsonl", 1, 0, 50, 20_000)


async def test_a_database_that_is_down_is_a_disk_that_cannot_be_read(autojump_clock):
    database = MemoryDatabase()
    stored = DatabaseFolder(database.link("a"))
    database.cut("a")
    with pytest.raises(OSError, match=r"\w"):
        await trio.to_thread.run_sync(list_sessions, stored)
