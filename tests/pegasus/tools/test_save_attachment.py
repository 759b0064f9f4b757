"""The tool save_attachment: what somebody attached becomes a file of the workspace, and nothing else does."""

import hashlib
import json
import os
from types import SimpleNamespace

import attrs
import pytest
import trio

from pegasus.access import Policy, Principal, Role, SandboxState
from pegasus.messages import ChannelInfo
from pegasus.outside import Untrusted
from pegasus.settings import LiveValue
from pegasus.storage import FileDisk, keep_file
from pegasus.tools import PolicyGate, ToolExecutor, base_context, save_attachment_tool
from pegasus.tools.files import incoming
from tests.pegasus.storage.conftest import run_journal

MIB = 1 << 20
DATA = b"PK\x03\x04" + bytes(range(256)) * 10


@pytest.fixture
async def journal(tmp_path):
    (tmp_path / "data").mkdir()
    async with run_journal(FileDisk(tmp_path / "data")) as running:
        yield running.ref


@pytest.fixture
def context(workspace, tmp_path):
    context = base_context(workspace, (str(tmp_path),), 128_000, (tmp_path / "data",))
    return attrs.evolve(context, principal=Principal(Role.OWNER, ChannelInfo("cli", "main")), task_id="t1", key="t1/c1")


@pytest.fixture
def save(journal, context):
    """Call the tool as a task does, with the policy as it is by default; the result, or the error."""

    async def save(file, path="data.zip", context=context):
        gate = PolicyGate(LiveValue(Policy()), LiveValue(SandboxState(stands=True)), None)
        executor = ToolExecutor([save_attachment_tool(journal)], gate=gate)
        outcome = await executor.run(executor.get("save_attachment"), {"file": file, "path": path}, context)
        if not outcome.failed:
            assert outcome.outside == (Untrusted.FILE,)
        return outcome.content if outcome.failed else json.loads(outcome.content)

    return save


@pytest.fixture
async def kept(journal):
    return await keep_file(journal, DATA, "zip")


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def test_an_attached_file_becomes_a_file_of_the_workspace(save, kept, workspace):
    assert await save(kept, "in/data.zip") == {"path": "in/data.zip", "size": len(DATA)}
    assert (workspace / "in/data.zip").read_bytes() == DATA
    assert files(workspace) == ["in/data.zip"]


async def test_a_file_of_megabytes_and_an_empty_one_come_whole(save, journal, workspace):
    for data in (os.urandom(3 * MIB + 1), b""):
        path = f"{len(data)}.bin"
        assert (await save(await keep_file(journal, data, "bin"), path))["size"] == len(data)
        assert (workspace / path).read_bytes() == data


async def test_in_a_folder_it_is_named_by_its_content(save, kept, workspace):
    digest = hashlib.sha256(DATA).hexdigest()
    assert (await save(kept, "in/"))["path"] == f"in/{digest[:12]}.zip"


@pytest.mark.parametrize(
    "name",
    [
        "media",
        "media/",
        "media/data.zip",
        "media/*",
        "../token",
        "sessions/current.jsonl",
        "{kept}\n",
        " {kept}",
        "./{kept}",
        "/data/{kept}",
        "media/../{kept}",
        "[File: {kept}]",
        "{kept}/../../token",
        "{kept}.bak",
        "{upper}",
        "",
    ],
)
async def test_nothing_but_the_exact_name_of_an_attached_file_is_taken(save, kept, workspace, name):
    told = await save(name.format(kept=kept, upper=kept.upper()))
    assert "exactly as the message that it was attached to names it" in told
    assert files(workspace) == []


async def test_a_file_that_was_removed_is_named_with_the_reason(save, kept, workspace, tmp_path):
    (tmp_path / "data" / kept).unlink()
    told = await save(kept)
    assert "removed after media.keep_days" in told
    assert "ask for the file to be sent again" in told
    assert files(workspace) == []


@pytest.mark.parametrize("kind", ["link", "damaged"])
async def test_a_link_or_a_damaged_file_in_its_place_is_not_copied(save, kept, workspace, tmp_path, kind):
    (tmp_path / "data" / kept).unlink()
    (tmp_path / "data" / "secret").write_text("the key")
    if kind == "link":
        (tmp_path / "data" / kept).symlink_to(tmp_path / "data" / "secret")
    else:
        (tmp_path / "data" / kept).write_bytes(DATA[:100])
    assert (await save(kept)).startswith("Error:")
    assert files(workspace) == []


async def test_an_existing_file_stays(save, kept, workspace):
    (workspace / "data.zip").write_text("mine")
    assert "exists already" in await save(kept)
    assert (workspace / "data.zip").read_text() == "mine"


@pytest.mark.parametrize(
    "path", ["../x", "/etc/cron.d/x", "link/x", "~/x", "../data/media/x", "../other/x", "a\0b", ""]
)
async def test_outside_of_the_workspace_nothing_is_saved(save, kept, context, workspace, tmp_path, path):
    (workspace / "link").symlink_to(tmp_path)
    before = files(tmp_path)
    assert (await save(kept, path)).startswith("Error:")
    assert files(tmp_path) == before


@pytest.mark.parametrize("path", ["AGENTS.md", "./soul.MD", "new/../USER.md", "memory/MEMORY.md", "link"])
async def test_it_becomes_no_part_of_every_prompt(save, kept, workspace, path):
    (workspace / "link").symlink_to("IDENTITY.md")
    assert "part of every prompt" in await save(kept, path)
    assert files(workspace) == []


async def test_work_for_a_guest_saves_in_the_workspace_only(save, kept, context, workspace):
    guest = attrs.evolve(context, principal=Principal(Role.GUEST, ChannelInfo("web", "c1")), outside=(Untrusted.GUEST,))
    for path in ("../x", "AGENTS.md"):
        assert "only work for the owner may do this" in await save(kept, path, guest)
    assert files(workspace) == []
    assert (await save(kept, "data.zip", guest))["size"] == len(DATA)


async def test_a_full_disk_is_noticed_before(save, kept, workspace, monkeypatch):
    monkeypatch.setattr(incoming.os, "fstatvfs", lambda fd: SimpleNamespace(f_bavail=MIB, f_frsize=100))
    assert "too few for data.zip" in await save(kept)
    assert files(workspace) == []


async def test_a_disk_that_gets_full_on_the_way_leaves_nothing(save, kept, workspace, monkeypatch):
    def refuse(fd, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(incoming.os, "write", refuse)
        told = await save(kept)
    assert "the disk is full" in told
    assert files(workspace) == []


async def test_a_cancelled_copy_leaves_nothing(save, journal, workspace, monkeypatch):
    file = await keep_file(journal, bytes(3 * MIB), "bin")
    real = incoming.IncomingFile.write
    scope = trio.CancelScope()

    def write(self, data):
        real(self, data)
        trio.from_thread.run_sync(scope.cancel)

    monkeypatch.setattr(incoming.IncomingFile, "write", write)
    with scope:
        await save(file, "new/data.bin")
    assert scope.cancelled_caught
    assert files(workspace) == []
