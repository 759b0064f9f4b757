"""Memory of several nodes: the log is shared, and each node has the files as people read and edit them."""

from __future__ import annotations

import pytest

from pegasus.memory import Author, FolderReader, Memory
from pegasus.memory.working_copy import RECORD, WorkingCopy
from pegasus.storage import FileDisk, ReadFile, StorageError
from tests.pegasus.storage.conftest import run_journal


class Nodes:
    """Nodes whose journal is the database that they share."""

    def __init__(self, journal, folder):
        self._journal, self.folder = journal, folder
        self.copies = {}

    async def count_lines(self, paths):
        return {path: (await self._journal.ask(ReadFile, path)).count(b"\n") for path in paths}

    def start(self, name):
        """Memory of a node, as after a start of its process."""
        home = self.folder / name
        copy = self.copies[name] = WorkingCopy(FileDisk(home), "memory")
        reader = FolderReader(home / "memory")
        return Memory(self._journal.ref, reader, lambda: 1, copy=copy, count_lines=self.count_lines)

    def file(self, name, path="facts/user.md"):
        return self.folder / name / "memory" / path

    async def stored(self, path="facts/user.md"):
        return (await self._journal.ask(ReadFile, f"memory/{path}")).decode()


@pytest.fixture
async def nodes(tmp_path):
    (tmp_path / "database").mkdir()
    for name in "ab":
        (tmp_path / name).mkdir()
    async with run_journal(FileDisk(tmp_path / "database")) as journal:
        yield Nodes(journal, tmp_path)


async def test_what_one_node_writes_all_nodes_have(nodes):
    a, b = nodes.start("a"), nodes.start("b")
    await a.append("facts/user.md", "- Likes: tea", by=Author())
    assert [file.path for file in await b.list()] == ["facts/user.md"]
    assert nodes.file("b").read_text() == nodes.file("a").read_text() == await nodes.stored()
    await b.append("facts/user.md", "- Likes: rain", by=Author())
    assert "rain" in await a.read("facts/user.md")
    assert await nodes.stored() == nodes.file("a").read_text()


async def test_a_new_home_takes_everything_and_reports_nothing_as_deleted(nodes):
    a = nodes.start("a")
    await a.append("facts/user.md", "- Likes: tea", by=Author())
    b = nodes.start("b")
    nodes.file("b").parent.mkdir(parents=True)
    nodes.file("b").write_text("- of an older copy of this home\n")
    assert [file.path for file in await b.list()] == ["facts/user.md"]
    assert "tea" in nodes.file("b").read_text()
    assert [change.how for change in await a.log()] == ["append"]


async def test_an_edit_by_hand_in_the_copy_of_a_node_comes_in(nodes):
    a, b = nodes.start("a"), nodes.start("b")
    await a.append("facts/user.md", "- Likes: tea", by=Author())
    await b.list()
    nodes.file("b").write_text("- Likes: coffee\n")
    await b.list()
    assert "coffee" in await a.read("facts/user.md")
    assert await nodes.stored() == "- Likes: coffee\n" == nodes.file("a").read_text()
    nodes.file("a").unlink()
    await a.list()
    assert await b.list() == ()
    assert await nodes.stored() == ""


async def test_an_edit_by_hand_while_another_node_writes_is_a_later_edit(nodes):
    a, b = nodes.start("a"), nodes.start("b")
    await a.append("facts/user.md", "- Likes: tea", by=Author())
    await b.list()
    nodes.file("b").write_text("- Likes: coffee\n")
    await a.append("facts/user.md", "- Likes: rain", by=Author())
    await b.list()
    assert nodes.file("b").read_text() == "- Likes: coffee\n" == await nodes.stored()
    assert [change.how for change in await a.log()] == ["edit", "append", "append"]


async def test_a_crash_before_the_record_was_written_is_no_edit(nodes):
    a, b = nodes.start("a"), nodes.start("b")
    await a.append("facts/user.md", "- Likes: tea", by=Author())
    await b.list()
    record = nodes.file("b", RECORD).read_bytes()
    await a.append("facts/user.md", "- Likes: rain", by=Author())
    await b.list()
    nodes.file("b", RECORD).write_bytes(record)
    await nodes.start("b").list()
    assert [change.how for change in await a.log()] == ["append", "append"]


async def test_a_node_that_decides_by_an_old_log_is_refused_and_then_reads_it(nodes, monkeypatch):
    a, b = nodes.start("a"), nodes.start("b")
    await b.list()

    logged = b._logged
    await b.append("facts/user.md", "- Likes: tea", by=Author())
    await a.append("facts/user.md", "- Likes: rain", by=Author())
    current = logged._is_current

    async def believes():
        return True

    monkeypatch.setattr(logged, "_is_current", believes)
    with pytest.raises(StorageError, match="somebody else has changed the memory"):
        await b.append("facts/user.md", "- Likes: snow", by=Author())
    monkeypatch.setattr(logged, "_is_current", current)
    await b.append("facts/user.md", "- Likes: snow", by=Author())
    assert "rain" in await nodes.stored()
    assert "snow" in await nodes.stored()


async def test_a_large_file_that_somebody_puts_into_a_new_home_stays_and_hides_nothing(nodes):
    """The log holds the content of no large file. One that is too large to be read is only where it was put."""
    a, b = nodes.start("a"), nodes.start("b")
    nodes.file("a").parent.mkdir(parents=True)
    for path, size in (("facts/large.md", 100_000), ("facts/huge.md", 300_000)):
        nodes.file("a", path).write_bytes(b"- the same\n" * (size // 11))
    await a.list()
    await b.append("facts/user.md", "- Likes: tea", by=Author())
    assert {file.path for file in await a.list()} == {"facts/user.md", "facts/large.md", "facts/huge.md"}
    assert {file.path for file in await b.list()} == {"facts/user.md", "facts/large.md"}
    assert nodes.file("a", "facts/huge.md").stat().st_size > 299_000
    assert nodes.file("b", "facts/large.md").read_bytes() == nodes.file("a", "facts/large.md").read_bytes()
    assert [change.how for change in await a.log()] == ["append", "edit", "edit"]
    nodes.file("b", "facts/large.md").write_bytes(b"- another\n" * 9_000)
    await b.list()
    await a.list()
    assert nodes.file("a", "facts/large.md").read_bytes() == b"- another\n" * 9_000
    assert [change.how for change in await nodes.start("a").log()] == ["edit", "append", "edit", "edit"]
