"""Pegasus's own home is closed to file tools, whatever the owner has allowed; the workspace in it is not."""

import os

import pytest

from pegasus.tools import base_context
from pegasus.tools.files.paths import folder_of, locate
from tests.pegasus.tools.conftest import Workshop

SECRET = "the-token-of-the-test"


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "person" / ".pegasus"
    (home / "workspace").mkdir(parents=True)
    (home / "data").mkdir()
    (home / "token").write_text(SECRET)
    (home / "data" / "facts.md").write_text(SECRET)
    (tmp_path / "elsewhere.toml").write_text(SECRET)
    return home


@pytest.fixture
def work(home, tmp_path):
    """Tools that may touch everything."""
    workshop = Workshop(home / "workspace", ("/",))
    closed = (home, home / "token", tmp_path / "elsewhere.toml")
    workshop.context = base_context(home / "workspace", ("/",), 128_000, closed)
    return workshop


async def test_nothing_in_the_home_can_be_read_written_or_looked_at(work, home, tmp_path):
    for path in (f"{home}/token", "../token", f"{home}/data/facts.md", f"{home}/new", str(tmp_path / "elsewhere.toml")):
        for name, arguments in (
            ("read_file", {"path": path}),
            ("write_file", {"path": path, "content": "x"}),
            ("edit_file", {"path": path, "old_string": "t", "new_string": "x", "replace_all": True}),
            ("get_file_info", {"path": path}),
            ("grep_files", {"path": path, "pattern": "."}),
            ("delete_file", {"path": path}),
            ("move_file", {"from": path, "to": "mine"}),
            ("move_file", {"from": "mine", "to": path}),
        ):
            assert "belongs to the agent itself" in await work.refused(name, arguments)
    assert "belongs to the agent itself" in await work.refused("list_files", path=str(home))
    assert (home / "token").read_text() == SECRET


async def test_the_workspace_and_the_rest_stay_open(work, home, tmp_path):
    await work("write_file", path="note", content="mine")
    await work("write_file", path=str(home.parent / "diary"), content="theirs")
    assert (await work("read_file", path=f"{home}/workspace/note"))["content"].strip() == "mine"
    assert (await work("read_file", path=str(home.parent / "diary")))["content"].strip() == "theirs"
    await work("move_file", {"from": "note", "to": str(tmp_path / "moved")})


async def test_a_search_from_above_leaves_it_out(work, home, tmp_path):
    await work("write_file", path=str(home.parent / "diary"), content=SECRET)
    found = await work("grep_files", path=str(tmp_path), pattern=SECRET)
    assert [match["file"] for match in found["matches"]] == [f"{tmp_path}/person/diary"]
    listed = await work("list_files", path=str(tmp_path), recursive=True)
    assert [entry["name"] for entry in listed["files"]] == ["person", "diary"]


async def test_links_of_both_kinds_lead_nowhere(work, home):
    (home / "workspace/hard").hardlink_to(home / "token")
    (home / "workspace/soft").symlink_to(home / "token")
    (home / "workspace/folder").symlink_to(home)
    for path in ("hard", "soft", "folder/token"):
        assert "belongs to the agent itself" in await work.refused("read_file", path=path)
    assert SECRET not in str(await work("grep_files", path=".", pattern="."))


async def test_a_folder_that_holds_it_can_be_neither_moved_nor_deleted(work, home):
    assert "must not" in (await work.refused("delete_file", path=str(home.parent))).replace("not replace", "must not")
    await work.refused("move_file", {"from": str(home.parent), "to": str(home.parent.parent / "taken")})
    assert (home / "token").exists()


async def test_another_spelling_of_its_name_does_not_help(work, home):
    """On a file system that ignores case the path differs, and the folder is the same: what it is counts."""
    located = locate(work.context, str(home.parent / "x" / "token"))
    other = located._replace(steps=(*located.steps[:-2], ".pegasus", "token"))
    with pytest.raises(Exception, match="belongs to the agent itself"), folder_of(other):
        pass


def test_what_does_not_exist_closes_nothing(home):
    context = base_context(home / "workspace", ("/",), 0, (home / "nowhere",))
    with folder_of(locate(context, "x")) as folder:
        assert os.fstat(folder)
