"""Moves between a folder and a database: whole or not at all, and the same bytes there and back."""

from __future__ import annotations

import pytest
import trio

from pegasus.moving import FolderError, export_database, move_to_database, move_to_folder, name_counts
from pegasus.storage import StorageError
from pegasus.storage.database.tables import NodeFacts
from pegasus.testing.memory_database import Fate, MemoryDatabase
from tests.pegasus.moving.conftest import folder, furnish, tree, write

LOGS = ("inbox/inbox.jsonl", "outbox/outbox.jsonl")


@pytest.fixture
def database():
    return MemoryDatabase()


@pytest.fixture
async def data(tmp_path):
    await furnish(tmp_path / "data")
    return tmp_path / "data"


def texts(path):
    return {name: content for name, (content, _) in tree(path).items()}


async def test_there_and_back_give_the_same_bytes_but_for_rewritten_logs(server, data, tmp_path):
    before, link = tree(data), await server.link("a")
    moved = await move_to_database(folder(data), link)
    assert tree(data) == before
    assert name_counts(moved.counts) == (
        "addresses: 3, messages: 6, replies: 4, lines of conversations: 7, files of messages: 1, files of memory: 2, "
        "guest files: 2, jobs: 2, model choices: 2, tokens: 1"
    )
    back = await move_to_folder(link, tmp_path / "back")
    assert back.counts == moved.counts
    found, wanted = texts(tmp_path / "back"), texts(data)
    assert {name: found[name] for name in set(found) - set(LOGS)} == {
        name: wanted[name] for name in set(wanted) - set(LOGS)
    }
    # The logs are what another move makes of them as well.
    write(tmp_path / "again", folder(tmp_path / "back").contents())
    assert texts(tmp_path / "again") == found


async def test_a_move_that_is_made_again_finds_everything_there(server, data, tmp_path):
    link = await server.link("a")
    await move_to_database(folder(data), link)
    assert (await move_to_database(folder(data), link)).is_repeat
    assert not (await move_to_folder(link, tmp_path / "back")).is_repeat
    before = tree(tmp_path / "back")
    assert (await move_to_folder(link, tmp_path / "back")).is_repeat
    assert tree(tmp_path / "back") == before


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNANSWERED, Fate.LATE])
async def test_a_database_that_goes_away_in_the_middle_has_everything_or_nothing(database, data, fate, autojump_clock):
    link = database.link("a")
    database.fate = lambda name, method: fate if method == "fill" else Fate.DONE
    with pytest.raises(StorageError):
        await move_to_database(folder(data), link)
    database.fate = lambda name, method: Fate.DONE
    await trio.sleep(60)
    assert (await move_to_database(folder(data), link)).is_repeat is (fate is not Fate.LOST)


async def test_a_database_that_holds_something_else_is_refused(database, data, tmp_path):
    link = database.link("a")
    await link.replace("main/current.jsonl", b"{}\n", 1, None)
    with pytest.raises(FolderError, match=r"not empty \(found lines of conversations: 1\)"):
        await move_to_database(folder(data), link)
    assert await link.read("main/current.jsonl") == b"{}\n"


async def test_nodes_that_run_are_named_and_nothing_moves(database, data, tmp_path):
    link = database.link("a")
    await link.register(NodeFacts("anna"), 5.0)
    with pytest.raises(FolderError, match="found running nodes on the database: anna; stop them"):
        await move_to_database(folder(data), link)
    with pytest.raises(FolderError, match="anna"):
        await move_to_folder(link, tmp_path / "back")
    assert not (tmp_path / "back").exists()


async def test_a_folder_that_holds_something_else_is_refused_and_stays(database, data, tmp_path):
    link = database.link("a")
    await move_to_database(folder(data), link)
    (tmp_path / "back").mkdir()
    (tmp_path / "back/mine").write_text("x")
    with pytest.raises(FolderError, match="back: is not empty"):
        await move_to_folder(link, tmp_path / "back")
    assert [path.name for path in tmp_path.iterdir() if path != data] == ["back"]
    assert [path.name for path in (tmp_path / "back").iterdir()] == ["mine"]


async def test_what_a_move_that_was_killed_has_left_is_in_nobodys_way(database, data, tmp_path):
    link = database.link("a")
    await move_to_database(folder(data), link)
    (tmp_path / ".back.part/main").mkdir(parents=True)
    (tmp_path / ".back.part/main/half").write_text("half")
    await move_to_folder(link, tmp_path / "back")
    assert not (tmp_path / ".back.part").exists()
    assert not (tmp_path / "back/main/half").exists()


async def test_a_full_disk_leaves_no_folder(database, data, tmp_path, monkeypatch):
    link = database.link("a")
    await move_to_database(folder(data), link)
    await link.replace("media/..", b"x", 1, None)
    with pytest.raises(FolderError, match="allowed: paths below the folder"):
        await move_to_folder(link, tmp_path / "back")
    assert [path for path in tmp_path.iterdir() if path != data] == []


async def test_a_part_of_the_data_can_be_read_alone(server, data, tmp_path):
    link = await server.link("a")
    await move_to_database(folder(data), link)
    await export_database(link, tmp_path / "part", ("cron/", "inbox/", "media/"))
    assert set(tree(tmp_path / "part")) == {"VERSION", "cron/jobs.json", "inbox/inbox.jsonl", "media/0a.png"}


async def test_rows_of_a_newer_program_are_in_nobodys_way_and_are_not_left_behind(server, data, tmp_path):
    link = await server.link("a")
    await move_to_database(folder(data), link)
    await link.put_rows("1", "of-the-future", "", {"k": "{}"}, (), 0)
    await export_database(link, tmp_path / "part", ("cron/",))
    assert set(tree(tmp_path / "part")) == {"VERSION", "cron/jobs.json"}
    with pytest.raises(FolderError, match='"of-the-future", which only a newer program knows'):
        await move_to_folder(link, tmp_path / "back")
    assert not (tmp_path / "back").exists()
