"""The memory tools, as the model calls them."""

from __future__ import annotations

import json
from functools import partial

import pytest

from actors import Child, open_supervisor
from pegasus.memory import FolderShelf, Memory
from pegasus.storage import FileDisk
from pegasus.storage.journal import journal
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.tools.base import run_tool
from pegasus.tools.memory import memory_tools


@pytest.fixture
async def call(tmp_path):
    async with open_supervisor([Child("journal", partial(journal, clock=lambda: 0), FileDisk(tmp_path))]) as supervisor:
        tools = {
            tool.name: tool
            for tool in memory_tools(Memory(supervisor.ref("journal"), FolderShelf(tmp_path / "memory")))
        }

        async def call(name, **arguments):
            outcome = await run_tool(tools[name], arguments, 10)
            return outcome.content if outcome.failed else json.loads(outcome.content)

        yield call


async def test_a_life_of_a_memory_file(call):
    assert await call("memory_list") == []
    entry = {"path": "facts/user.md", "entry": "- Name: Ann", "summary": "who the user is"}
    assert await call("memory_append", **entry) == {"path": "facts/user.md", "size": 48}
    assert await call("memory_patch", path="facts/user.md", old_str="Ann", new_str="$&") == {
        "path": "facts/user.md",
        "size": 47,
    }
    assert (await call("memory_read", path="facts/user.md"))["content"].endswith("- Name: $&\n")
    assert await call("memory_list") == [{"path": "facts/user.md", "summary": "who the user is", "size": 47}]
    assert await call("memory_write", path="facts/user.md", content="# User") == {"path": "facts/user.md", "size": 7}


async def test_what_is_refused_is_told_with_what_would_work(call):
    await call("memory_write", path="facts/user.md", content="x")
    assert "There are: facts/user.md" in await call("memory_read", path="facts/missing.md")
    assert "allowed: facts/NAME.md" in await call("memory_write", path="../x.md", content="x")
    assert "path is required" in await call("memory_read")


async def test_a_disk_that_refuses_is_told(tmp_path):
    disk = MemoryDisk()
    async with open_supervisor([Child("journal", partial(journal, clock=lambda: 0), disk)]) as supervisor:
        memory = Memory(supervisor.ref("journal"), FolderShelf(tmp_path))
        write = next(tool for tool in memory_tools(memory) if tool.name == "memory_write")
        disk.fail(times=50)
        outcome = await run_tool(write, {"path": "facts/a.md", "content": "x"}, 10)
    assert outcome.failed
    assert "free some space" in outcome.content
