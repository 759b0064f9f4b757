"""A session before a disk that refuses."""

import json

import pytest
import trio

from pegasus.conversation.entry import Entry
from pegasus.main_agent.session import Session
from pegasus.testing.memory_disk import MemoryDisk
from tests.pegasus.storage.conftest import run_journal

PATH = "main/current.jsonl"
ENDLESS = 1 << 60


@pytest.mark.parametrize("operation", range(1, 9))
async def test_lines_that_were_refused_are_in_the_archive_whatever_the_disk_refuses_next(autojump_clock, operation):
    """A cancelled write leaves them in memory only; the next write makes up for it."""
    disk = MemoryDisk()
    async with run_journal(disk) as journal:
        session = Session((), journal.ref)
        await session.commit((Entry(1, "user", "first"),))
        disk.fail(times=ENDLESS)
        with trio.move_on_after(60) as refused:
            await session.add(Entry(2, "tool", "refused", call_id="c"))
        assert refused.cancelled_caught
        disk.files.end_faults()
        disk.fail(operation)
        name = await session.restart(lambda archived: (Entry(4, "system", f"after {archived}"),), 5)
        assert [entry.content for entry in session.entries] == [f"after {name}"]
    lines = disk.survivor().content(f"main/{name}").splitlines()
    assert [json.loads(line)["content"] for line in lines] == ["first", "refused"]


async def test_lines_that_were_refused_come_before_what_is_written_next(autojump_clock):
    disk = MemoryDisk()
    async with run_journal(disk) as journal:
        session = Session((), journal.ref)
        disk.fail(times=ENDLESS)
        with trio.move_on_after(60):
            await session.add(Entry(1, "user", "refused"))
        with trio.move_on_after(60):
            await session.commit((Entry(2, "assistant", "never happened"),))
        disk.files.end_faults()
        await session.commit((Entry(3, "assistant", "second"),))
        assert [entry.content for entry in session.entries] == ["refused", "second"]
    lines = disk.survivor().content(PATH).splitlines()
    assert [json.loads(line)["content"] for line in lines] == ["refused", "second"]


def contents(disk):
    return [json.loads(line)["content"] for line in disk.survivor().content(PATH).splitlines()]


async def test_a_note_is_in_memory_at_once_and_on_disk_a_moment_later(autojump_clock):
    disk = MemoryDisk()
    async with run_journal(disk) as journal:
        session = Session((), journal.ref, lines=0)
        await session.note(Entry(1, "user", "one"))
        await session.note(Entry(2, "user", "two"))
        assert [entry.content for entry in session.entries] == ["one", "two"]
        assert contents(disk) == []
        await trio.sleep(0.1)
        assert contents(disk) == ["one", "two"]


async def test_a_decision_is_written_behind_the_notes_that_are_under_way(autojump_clock):
    disk = MemoryDisk()
    async with run_journal(disk) as journal:
        session = Session((), journal.ref, lines=0)
        for number in range(3):
            await session.note(Entry(1, "user", f"note {number}"))
            await session.note(Entry(1, "user", f"another {number}"))
            await session.commit((Entry(2, "assistant", f"answer {number}"),))
            assert len(contents(disk)) == 3 * number + 3
    assert contents(disk) == [entry.content for entry in session.entries]


@pytest.mark.parametrize("times", [1, 2, 3, 40])
@pytest.mark.parametrize("operation", range(1, 9))
async def test_notes_that_the_disk_has_refused_are_written_before_anything_else(autojump_clock, operation, times):
    disk = MemoryDisk()
    async with run_journal(disk) as journal:
        session = Session((), journal.ref, lines=0)
        await session.commit((Entry(1, "user", "first"),))
        disk.fail(operation, times=times)
        await session.note(Entry(2, "user", "second"))
        await session.note(Entry(3, "user", "third"))
        await trio.sleep(0.1)
        await session.note(Entry(4, "user", "fourth"))
        await session.commit((Entry(5, "assistant", "fifth"),))
        await session.note(Entry(6, "tool", "sixth", call_id="c"))
        await session.commit((Entry(7, "assistant", "seventh"),))
    assert contents(disk) == ["first", "second", "third", "fourth", "fifth", "sixth", "seventh"]


@pytest.mark.parametrize("refused", [False, True])
async def test_notes_that_are_under_way_are_in_the_archive(autojump_clock, refused):
    disk = MemoryDisk()
    async with run_journal(disk) as journal:
        session = Session((), journal.ref, lines=0)
        await session.commit((Entry(1, "user", "first"),))
        if refused:
            disk.fail(times=3)
        await session.note(Entry(2, "user", "second"))
        name = await session.restart(lambda archived: (Entry(3, "system", f"after {archived}"),), 5)
        await session.commit((Entry(4, "user", "third"),))
    lines = disk.survivor().content(f"main/{name}").splitlines()
    assert [json.loads(line)["content"] for line in lines] == ["first", "second"]
    assert contents(disk) == [f"after {name}", "third"]


async def test_the_opening_names_its_own_archive_when_another_one_of_that_second_is_made_meanwhile(autojump_clock):
    disk = MemoryDisk()
    async with run_journal(disk) as journal:
        session = Session((), journal.ref)
        await session.commit((Entry(1, "user", "first"),))
        names = []

        def begin(archived):
            if not names:  # between the question for the name and the archiving
                disk.put("main/" + archived, b"another one\n")
            names.append(archived)
            return (Entry(2, "system", f"after {archived}"),)

        name = await session.restart(begin, 5)
    assert name == names[-1] != names[0]
    assert b"first" in disk.content(f"main/{name}")
    assert f"after {name}".encode() in disk.content(PATH)


async def test_a_session_whose_file_was_deleted_meanwhile_is_whole_in_its_archive(autojump_clock):
    """It is before the agent still, and the opening of the next one will say where to read it."""
    disk = MemoryDisk()
    async with run_journal(disk) as journal:
        session = Session((), journal.ref)
        await session.commit((Entry(1, "user", "first"),))
        del disk.files.names[PATH]
        name = await session.restart(lambda archived: (Entry(2, "system", f"after {archived}"),), 3)
        assert name
        assert [entry.content for entry in session.entries] == [f"after {name}"]
    assert b"first" in disk.content(f"main/{name}")
