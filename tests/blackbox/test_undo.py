"""`/undo` for files that tasks have changed, with the real process."""

from __future__ import annotations

import os

import pytest

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import serving, until
from tests.blackbox.support.work import Office, act, answer, heard, shell


def office(*calls, more=()):
    """A task `work` that makes these calls, one after the other; further tasks by name."""
    jobs = {"work": [*map(act, calls), answer("done")]}
    return Office({**jobs, **{name: [*map(act, each), answer("done")] for name, each in more}})


def write(path, content, **more):
    return Call("write_file", {"path": path, "content": content, **more})


async def work(client, job="work", **more):
    await client.say(f"do {job}", **more)
    await heard(client)


async def test_edit_new_file_move_and_deletion_are_taken_back_one_after_the_other(tmp_path):
    book = office(
        Call("edit_file", {"path": "notes.txt", "old_string": "tea", "new_string": "coffee"}),
        write("deep/er/new.bin", "AAEC/w==", encoding="base64"),
        Call("move_file", {"from": "run.sh", "to": "moved/go.sh"}),
        Call("delete_file", {"path": "folder"}),
    )
    async with serving(tmp_path, book) as daemon, daemon.client() as client:
        desk = daemon.home / "workspace"
        (desk / "notes.txt").write_text("tea\n")
        (desk / "run.sh").write_text("#!/bin/sh\n")
        (desk / "run.sh").chmod(0o755)
        (desk / "folder/in").mkdir(parents=True)
        (desk / "folder/in/data").write_bytes(bytes(range(256)))
        (desk / "folder/in/data").chmod(0o640)
        (desk / "folder/link").symlink_to("in/data")
        await work(client)
        assert not (desk / "folder").exists()
        said = await client.ask("/undo")
        assert "`folder`, which task 1 had deleted, is there again" in said
        assert (desk / "folder/in/data").read_bytes() == bytes(range(256))
        assert (desk / "folder/in/data").stat().st_mode & 0o777 == 0o640
        assert os.readlink(desk / "folder/link") == "in/data"
        said = await client.ask("/undo 2")
        assert "`run.sh` again" in said
        assert "new.bin`, which task 1 had made, is gone" in said
        assert (desk / "run.sh").stat().st_mode & 0o777 == 0o755
        assert not (desk / "moved").exists()
        assert not (desk / "deep").exists()
        assert "`notes.txt` is as it was" in await client.ask("/undo")
        assert (desk / "notes.txt").read_text() == "tea\n"
        assert "There is no change" in await client.ask("/undo")


async def test_a_change_is_taken_back_after_a_restart_and_never_twice(tmp_path):
    book = office(write("a.txt", "one"), write("a.txt", "two"))
    async with serving(tmp_path, book) as daemon:
        file = daemon.home / "workspace/a.txt"
        async with daemon.client() as client:
            await work(client)
        daemon.kill()
        await daemon.restart()
        async with daemon.client() as client:
            await client.say("/undo", "m-undo")
            await until(lambda: file.read_text() == "one", "the former content")
            await client.say("/undo", "m-undo")  # the same message once more is the same message
            await client.say("/undo", "m-undo-2")
            await until(lambda: not file.exists(), "the first write taken back")
            await client.say("/undo", "m-undo-3")
            while "There is no change" not in (await client.reply())["text"]:
                pass


async def test_a_file_that_somebody_has_changed_since_stays_and_is_shown(tmp_path):
    book = office(write("a.txt", "from the task\n"))
    async with serving(tmp_path, book) as daemon, daemon.client() as client:
        file = daemon.home / "workspace/a.txt"
        file.write_text("before\n")
        await work(client)
        file.write_text("mine `````` by hand\n")
        said = await client.ask("/undo")
        assert "was changed since" in said
        assert "-mine `````` by hand" in said
        assert "+before" in said
        assert file.read_text() == "mine `````` by hand\n"
        file.unlink()
        assert "is gone by now" in await client.ask("/undo")
        assert not file.exists()


async def test_what_a_command_has_changed_is_named_as_not_kept(tmp_path):
    book = office(write("a.txt", "x"), shell("echo by command > b.txt"))
    async with serving(tmp_path, book) as daemon, daemon.client() as client:
        await work(client)
        said = await client.ask("/undo")
        assert "`a.txt`, which task 1 had made, is gone" in said
        assert "echo by command > b.txt" in said
        assert "stays" in said
        assert (daemon.home / "workspace/b.txt").exists()


async def test_the_newest_of_memory_and_files_comes_first(tmp_path):
    book = office(
        write("a.txt", "x"),
        Call("memory_append", {"path": "episodes/2026-01.md", "entry": "## A\n\n- Summary: b\n"}),
        write("b.txt", "x"),
    )
    async with serving(tmp_path, book) as daemon, daemon.client() as client:
        desk = daemon.home / "workspace"
        await work(client)
        await client.ask("/undo 2")
        assert [(desk / name).exists() for name in ("a.txt", "b.txt")] == [True, False]
        assert "a.txt" in await client.ask("/undo")
        assert not (desk / "a.txt").exists()


async def test_a_guest_takes_back_what_their_own_tasks_did_and_nothing_else(tmp_path):
    book = office(write("owners.txt", "x"), more=[("eve", [write("mine.txt", "x")])])
    settings = {"channels.irc.access": "open"}
    async with (
        serving(tmp_path, book, settings) as daemon,
        daemon.client() as owner,
        daemon.bridge("irc") as bridge,
    ):
        eve = {"channel": {"type": "irc", "channelId": "eve"}}
        mal = {"channel": {"type": "irc", "channelId": "mal"}}
        await work(owner)
        await work(bridge, "eve", **eve)
        [made] = (daemon.home / "guests").glob("*/mine.txt")
        assert "no change of a file of yours" in await bridge.ask("/undo 5", **mal)
        assert made.exists()
        assert "owners.txt" in await owner.ask("/undo 5")
        assert made.exists()
        assert "mine.txt" in await bridge.ask("/undo 5", **eve)
        assert not made.exists()


@pytest.mark.parametrize("size", [9 << 20])
async def test_what_is_too_large_to_be_kept_is_named_and_stays(tmp_path, size):
    book = office(write("big", "small now"))
    async with serving(tmp_path, book) as daemon, daemon.client() as client:
        file = daemon.home / "workspace/big"
        file.write_bytes(b"x" * size)
        await work(client)
        assert "more than is kept" in await client.ask("/undo")
        assert file.read_text() == "small now"


async def test_in_a_folder_of_the_chat_each_edit_is_shown_and_taken_back(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "code.py").write_text("a = 1\nb = 2\n")
    book = office(Call("edit_file", {"path": "code.py", "old_string": "b = 2", "new_string": "b = 3\x1b[31m"}))
    async with serving(tmp_path, book) as daemon, daemon.client("cli", "one") as client:
        await client.say("do work", metadata={"folder": str(folder)})
        edit = await client.get("edit")
        assert edit["path"] == str(folder / "code.py")
        assert edit["diff"] == "```diff\n@@ -1 +1 @@\n a = 1\n-b = 2\n+b = 3\\x1b[31m\n```"
        await heard(client)
        assert "code.py` is as it was" in await client.ask("/undo")
        assert (folder / "code.py").read_text() == "a = 1\nb = 2\n"
