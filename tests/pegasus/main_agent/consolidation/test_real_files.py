"""Notes on a real file system: what stands in the place of MEMORY.md is neither followed nor replaced."""

import os
from functools import partial

import pytest

from actors import Child, Mailbox, open_supervisor
from pegasus.identity import NOTES_FILE, OWNER_FILES, WorkspaceFiles
from pegasus.main_agent import notes_disk
from pegasus.main_agent.consolidation import Consolidator
from pegasus.main_agent.session import PendingNotes
from pegasus.memory import memory_in
from pegasus.settings import LiveValue, SessionSettings
from pegasus.storage import FileDisk, run_journal
from pegasus.testing.scripted import ScriptedModel

PENDING = PendingNotes("5f1c0a9d2b7e", 1_772_029_800_000, "Ann decided.", (), "", "- Likes tea")


def put_link(path):
    path.parent.joinpath("target").write_text("mine")
    path.symlink_to("target")


def put_text(content, path):
    path.write_bytes(content)


async def write(tmp_path, *, again=False):
    workspace = tmp_path / "workspace"
    child = Child("journal", partial(run_journal, clock=lambda: 0), FileDisk(tmp_path / "data"), mailbox=Mailbox(64))
    async with open_supervisor([child]) as root:
        memory = memory_in(tmp_path / "data", root.ref("journal"), lambda: 0, workspace)
        files = WorkspaceFiles(workspace, tmp_path / "record.json", names=(*OWNER_FILES, NOTES_FILE))
        files.load()
        model = ScriptedModel([])
        shared = Consolidator(
            model, lambda _: 0, lambda: 0, notes_disk(str(workspace)), memory, LiveValue(SessionSettings()), files
        )
        await shared.write(PENDING, "web:c1", again=again)
    return (workspace / "memory" / "HISTORY.md").read_text()


@pytest.fixture
def path(tmp_path):
    (tmp_path / "workspace" / "memory").mkdir(parents=True)
    return tmp_path / "workspace" / NOTES_FILE


async def test_the_notes_are_written_readable_by_their_owner_only(tmp_path, path):
    history = await write(tmp_path)
    assert path.read_text() == "- Likes tea\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "Ann decided." in history
    assert await write(tmp_path, again=True) == history, "nothing is done twice"


@pytest.mark.parametrize(
    "put",
    [put_link, os.mkdir, os.mkfifo, partial(put_text, b"\xff\xfe\n")],
    ids=["link", "folder", "pipe", "not UTF-8"],
)
async def test_what_is_no_text_of_an_owner_stays_and_the_history_has_the_lines(tmp_path, path, put):
    put(path)
    before = path.lstat()
    history = await write(tmp_path)
    assert "Not written to MEMORY.md, which stays as it is:\n- Likes tea" in history
    assert (path.lstat().st_mode, path.lstat().st_ino) == (before.st_mode, before.st_ino)
    if put is put_link:
        assert path.read_text() == "mine"


async def test_a_text_that_somebody_has_written_meanwhile_stays(tmp_path, path):
    path.write_text("- Mine alone\n")
    assert "Not written" not in await write(tmp_path)
    assert sorted(path.read_text().splitlines()) == ["- Likes tea", "- Mine alone"]
