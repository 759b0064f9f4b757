"""Files that other programs run by themselves, with the real process: what commands of deceived work can do to them."""

from __future__ import annotations

import shutil

import pytest

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import serving
from tests.blackbox.support.walls import WALLS, output_of
from tests.blackbox.support.work import Office, act, answer, heard, shell

FILES = (
    ".git/config",
    ".git/hooks/pre-commit",
    ".vscode/tasks.json",
    ".envrc",
    ".venv/bin/python",
    "deep/in/it/.npmrc",
    "CLAUDE.md",
)
SPOIL = "for f in " + " ".join(FILES) + "; do echo evil >> $f; done 2>/dev/null; mv .git .old; rm -rf .vscode .venv; "
MAKE = "mkdir -p new/.git/hooks && echo mine > new/.git/hooks/pre-push && echo made"


async def spoiled(tmp_path, env, *, after_reading, background=False, tells_owner=False):
    """What became of the files after a command of a task, its result, and the log; `after_reading` a file, which others may have
    written."""
    results = []

    def keep(view):
        results.append(output_of(view))
        return answer("done")

    start = Call("command_start", {"command": SPOIL + MAKE, "wait": 10}) if background else shell(SPOIL + MAKE)
    reading = [act(Call("read_file", {"path": "readme"}))] if after_reading else []
    book = Office({"work": [*reading, act(start), keep]})
    async with serving(tmp_path, book, {**WALLS, "sandbox.writable": []}, env=env) as daemon:
        workspace = daemon.home / "workspace"
        for name in (*FILES, "readme"):
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).write_text("as it was")
        async with daemon.client() as client:
            await client.say("do work")
            notes = [text for text in await heard(client, 2 if tells_owner else 1) if text != "completed: done"]
            assert len(notes) == tells_owner
            assert all(name in "".join(notes) for name in FILES if tells_owner)
        assert (workspace / "new/.git/hooks/pre-push").read_text() == "mine\n"
        kept = [name for name in FILES if (workspace / name).exists() and (workspace / name).read_text() == "as it was"]
        return kept, results[0], daemon.stderr


async def test_the_result_says_why_such_a_file_cannot_be_changed_or_removed(tmp_path):
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    notes = []

    def keep(view):
        notes.append(output_of(view)["note"])
        return answer("done")

    read = act(Call("read_file", {"path": "readme"}))
    book = Office(
        {
            "change": [read, act(shell("echo x >> .git/config")), keep],
            "remove": [read, act(shell("rm -r .vscode")), keep],
        }
    )
    async with serving(tmp_path, book, WALLS) as daemon, daemon.client() as client:
        for name in (".git/config", ".vscode/tasks.json", "readme"):
            (daemon.home / "workspace" / name).parent.mkdir(exist_ok=True)
            (daemon.home / "workspace" / name).write_text("as it was")
        for job in book.jobs:
            await client.say(f"do {job}")
            assert await heard(client) == ["completed: done"]
    assert len(notes) == 2
    for note in notes:
        assert "the walls around commands keep what other programs run by themselves as it is" in note
        assert ".git/config" in note


@pytest.mark.parametrize("background", [False, True])
async def test_commands_of_work_that_has_read_from_outside_leave_them_as_they_are(tmp_path, background):
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    kept, result, _ = await spoiled(tmp_path, {}, after_reading=True, background=background)
    assert kept == list(FILES)
    assert "made" in result.get("stdout", "") + result.get("output", "")


async def test_an_owners_work_that_has_read_nothing_changes_them(tmp_path):
    kept, _, _ = await spoiled(tmp_path, {}, after_reading=False)
    assert kept == []


async def test_a_command_in_the_background_changes_none_since_it_takes_input_later(tmp_path):
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    kept, _, _ = await spoiled(tmp_path, {}, after_reading=False, background=True)
    assert kept == list(FILES)


@pytest.mark.parametrize("after_reading", [False, True])
async def test_walls_that_cannot_close_them_name_each_that_a_command_changed(tmp_path, no_bubblewrap, after_reading):
    """An owner is told of those that were there before, unless nobody else can have asked for it."""
    kept, result, log = await spoiled(tmp_path, no_bubblewrap, after_reading=after_reading, tells_owner=after_reading)
    assert kept == []
    assert "changed what other programs run or obey by themselves: " in result["note"]
    assert ".git/config" in result["note"]
    assert "new/.git/hooks/pre-push" in log
    assert "files that programs run by themselves" in log


async def test_what_a_task_has_made_itself_stays_its_own(tmp_path):
    """A task that makes a repository sets it up with its next commands, though it has read their output meanwhile."""
    book = Office(
        {
            "work": [
                act(shell("git init -q .")),
                act(shell("git config user.name Ada && echo set")),
                lambda view: answer(view.last),
            ]
        }
    )
    async with serving(tmp_path, book, WALLS) as daemon, daemon.client() as client:
        await client.say("do work")
        [text] = await heard(client)
        assert '"stdout":"set\\n"' in text


@pytest.mark.parametrize(
    "call",
    [
        Call("write_file", {"path": ".git/hooks/pre-commit", "content": "evil"}),
        Call("edit_file", {"path": ".git/config", "old_string": "as it was", "new_string": "evil"}),
        Call("write_file", {"path": ".git/commondir", "content": "../evil"}),
        Call("move_file", {"from": "made", "to": "project"}),
        Call("delete_file", {"path": ".envrc"}),
    ],
)
async def test_file_tools_ask_once_the_work_has_read_from_outside(tmp_path, call):
    book = Office({"work": [act(Call("read_file", {"path": "readme"})), act(call), lambda view: answer(view.last)]})
    async with serving(tmp_path, book, {"policy.rules": []}) as daemon, daemon.client() as client:
        workspace = daemon.home / "workspace"
        for name in (*FILES, "readme", "made/.git/config"):
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).write_text("as it was")
        before = sorted(workspace.rglob("*"))
        await client.say("do work")
        shown = await client.get("approval", state="open")
        assert (shown["tool"], shown["arguments"]) == (call.name, call.arguments)
        await client.say(f"/deny {shown['id']}")
        assert "said no" in (await heard(client, 2))[-1]
        assert (sorted(workspace.rglob("*")), (workspace / ".git/config").read_text()) == (before, "as it was")
