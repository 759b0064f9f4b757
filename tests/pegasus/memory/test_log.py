"""The log of memory: who changed what and why, edits by hand, taking back, and what is done about damage."""

import json
from contextlib import suppress

import pytest
import trio

from pegasus.memory import Author, MemoryRefused, logged_files, view_of
from pegasus.memory.changes import ABSENT
from pegasus.storage import StorageError
from pegasus.testing.memory_disk import MemoryDisk
from tests.pegasus.memory.conftest import NOW, open_memory
from tests.pegasus.memory.test_memory import on

TASK = Author("task", "t1", "zhang", "slack:#general", "asked to", "own")


async def log_of(memory, **given):
    return [(change.n, change.how, change.by.kind) for change in await memory.log(**given)]


async def test_every_change_is_logged_newest_first(memory):
    await memory.write("facts/a.md", "# A\n", TASK)
    await memory.append("facts/a.md", "- b: 1")
    await memory.patch("facts/a.md", "b: 1", "b: 2", Author("reflection", "t2"))
    third, second, first = await memory.log()
    assert [(one.n, one.how, one.by.kind) for one in (first, second, third)] == [
        (1, "write", "task"),
        (2, "append", "main-agent"),
        (3, "patch", "reflection"),
    ]
    assert (first.by, first.ts, first.path, first.before) == (TASK, NOW, "facts/a.md", ABSENT)
    assert second.before == first.after
    view = view_of(third)
    assert (view["removed"], view["added"]) == ("- b: 1\n", "- b: 2\n")


async def test_the_log_of_one_file_and_page_by_page(memory):
    for n in range(6):
        await memory.append(f"facts/{'ab'[n % 2]}.md", f"- {n}")
    assert [n for n, *_ in await log_of(memory, path="facts/a.md")] == [5, 3, 1]
    assert [n for n, *_ in await log_of(memory, limit=2)] == [6, 5]
    assert [n for n, *_ in await log_of(memory, limit=2, before=5)] == [4, 3]


async def test_what_changes_nothing_is_not_logged(memory):
    await memory.write("facts/a.md", "x")
    await memory.write("facts/a.md", "x\n")
    assert len(await memory.log()) == 1


async def test_edits_by_hand_are_noticed_at_the_next_look_and_logged_once(memory, put, folder):
    await memory.write("facts/a.md", "# A\n\n- b: 1\n")
    put("facts/a.md", "# A\n\n- b: 2\n")
    put("facts/new.md", "mine")
    await memory.list()
    await memory.list()
    assert await log_of(memory) == [(3, "edit", "hand"), (2, "edit", "hand"), (1, "write", "main-agent")]
    (folder / "facts/new.md").unlink()
    assert (await memory.log())[0].after == ABSENT


async def test_an_edit_while_nobody_looked_is_logged_by_the_next_process(tmp_path, put, folder):
    async with open_memory(tmp_path / "data") as memory:
        await memory.write("facts/a.md", "one")
    put("facts/a.md", "two")
    async with open_memory(tmp_path / "data") as memory:
        [edit, _] = await memory.log()
        assert (edit.by.kind, edit.before.text, edit.after.text) == ("hand", "one\n", "two")
        await memory.undo(edit.n)
    assert (folder / "facts/a.md").read_text() == "one\n"


async def test_a_file_that_was_deleted_by_mistake_comes_back(memory, folder):
    await memory.write("facts/a.md", "precious")
    (folder / "facts/a.md").unlink()
    [gone, _] = await memory.log()
    await memory.undo(gone.n)
    assert await memory.read("facts/a.md") == "precious\n"


async def test_undo_is_a_change_that_can_be_taken_back(memory):
    await memory.write("facts/a.md", "one")
    await memory.write("facts/a.md", "two")
    undone = await memory.undo(2, Author("user"))
    assert (undone.n, undone.how, undone.undoes, undone.by.kind) == (3, "undo", 2, "user")
    assert await memory.read("facts/a.md") == "one\n"
    with pytest.raises(MemoryRefused, match=r"change 2 of facts/a\.md cannot be taken back: change 3 took it back"):
        await memory.undo(2)
    await memory.undo(3)
    assert await memory.read("facts/a.md") == "two\n"


async def test_the_undo_of_a_new_file_takes_it_away(memory):
    await memory.write("facts/a.md", "one")
    await memory.undo(1)
    assert await memory.list() == ()
    await memory.undo(2)
    assert await memory.read("facts/a.md") == "one\n"


async def test_what_later_changes_stand_on_is_not_taken_back(memory):
    await memory.append("facts/a.md", "- b: 1")
    await memory.append("facts/a.md", "- c: 1")
    await memory.patch("facts/a.md", "b: 1", "b: 2")
    with pytest.raises(MemoryRefused, match="change 3 changed the same lines later"):
        await memory.undo(1)
    await memory.undo(2)
    assert await memory.read("facts/a.md") == "# A\n\n> Summary: A\n\n- b: 2\n"
    with pytest.raises(MemoryRefused, match="there is no change 9"):
        await memory.undo(9)


async def test_bytes_that_are_no_utf8_survive_an_undo(memory, put, folder):
    put("facts/a.md", b"caf\xe9\n")
    await memory.list()
    await memory.write("facts/a.md", "new")
    await memory.undo(2)
    assert (folder / "facts/a.md").read_bytes() == b"caf\xe9\n"


async def test_a_huge_file_is_logged_without_its_content(memory, put, folder):
    await memory.write("facts/a.md", "small")
    put("facts/a.md", "x" * 1_000_000)
    [edit, _] = await memory.log()
    assert edit.after.text is None
    assert (folder / ".log/changes.jsonl").stat().st_size < 2_000
    with pytest.raises(MemoryRefused, match="split it by hand"):
        await memory.undo(edit.n)
    put("facts/a.md", "small again")
    with pytest.raises(MemoryRefused, match="too large to be kept"):
        await memory.undo(edit.n)


async def test_the_log_does_not_grow_for_ever(memory, folder, monkeypatch):
    """It is shortened, and the version before the last of every file is still there."""
    monkeypatch.setattr(logged_files, "GROWTH", 4_000)
    monkeypatch.setattr(logged_files, "shortened", lambda data: shortened(data, 1_000))
    await memory.write("facts/old.md", "first")
    await memory.write("facts/old.md", "second")
    for n in range(100):
        await memory.write("facts/a.md", f"{n} " + "x" * 100)
    assert (folder / ".log/changes.jsonl").stat().st_size < 7_000
    numbers = [change.n for change in await memory.log(limit=500)]
    assert numbers[0] == 102
    assert numbers[-1] == 2
    await memory.undo(2)
    assert await memory.read("facts/old.md") == "first\n"


def shortened(data, kept, real=logged_files.shortened):
    return real(data, kept)


async def test_a_damaged_log_is_put_aside_and_what_is_good_goes_on(tmp_path, folder):
    async with open_memory(tmp_path / "data") as memory:
        await memory.write("facts/a.md", "one")
        await memory.write("facts/a.md", "two")
    log = folder / ".log/changes.jsonl"
    log.write_bytes(b"garbage\n" + log.read_bytes() + b'{"n":3,"torn')
    async with open_memory(tmp_path / "data") as memory:
        await memory.write("facts/a.md", "three")
        assert await log_of(memory) == [
            (3, "write", "main-agent"),
            (2, "write", "main-agent"),
            (1, "write", "main-agent"),
        ]
    assert (folder / ".log/changes.jsonl.bad-1").read_bytes() == b'garbage\n{"n":3,"torn\n'
    assert all(json.loads(line) for line in log.read_text().splitlines())


async def test_a_log_that_is_gone_begins_anew(tmp_path, folder):
    async with open_memory(tmp_path / "data") as memory:
        await memory.write("facts/a.md", "one")
    (folder / ".log/changes.jsonl").unlink()
    async with open_memory(tmp_path / "data") as memory:
        assert await log_of(memory) == [(1, "edit", "hand")]
        assert await memory.read("facts/a.md") == "one\n"


async def test_a_disk_that_refuses_the_file_but_not_the_log_leaves_no_lie():
    for operation in range(1, 12):
        disk = MemoryDisk()
        async with on(disk) as memory:
            await memory.write("facts/a.md", "one")
            disk.fail(operation)
            with suppress(StorageError):
                await memory.write("facts/a.md", "two")
            disk.files._faults.clear()
            made = await memory.read("facts/a.md") == "two\n"
            assert [change.how for change in await memory.log()] == ["write"] * (1 + made)
            await memory.write("facts/a.md", "three")
            last = (await memory.log())[0]
            assert (last.before.text, last.after.text) == ("two\n" if made else "one\n", "three\n")


async def test_a_change_that_is_cancelled_is_made_whole_or_not_at_all(autojump_clock):
    for delay in range(1, 12):
        disk = MemoryDisk(delay=0.1)
        async with on(disk) as memory:
            await memory.write("facts/a.md", "one")
            with trio.move_on_after(delay * 0.05):
                await memory.write("facts/a.md", "two")
            text = await memory.read("facts/a.md")
            assert [change.how for change in await memory.log()] == ["write"] * (1 + (text == "two\n"))
            await memory.write("facts/a.md", "three")
            last = (await memory.log())[0]
            assert (last.before.text, last.after.text) == (text, "three\n")


async def test_a_log_that_cannot_be_written_keeps_nobody_from_reading(put):
    disk = MemoryDisk()
    disk.put("memory/facts/a.md", b"by hand")
    async with on(disk) as memory:
        disk.fail(times=1000)
        assert await memory.read("facts/a.md") == "by hand"
        with pytest.raises(StorageError):
            await memory.append("facts/a.md", "x")


async def test_nothing_written_forgets_the_file(memory):
    await memory.write("facts/a.md", "one")
    assert (await memory.write("facts/a.md", "")).size == 0
    assert await memory.list() == ()
    await memory.undo(2)
    assert await memory.read("facts/a.md") == "one\n"
