"""Work in a folder of the owner's own, which a chat names with its messages, with the real process."""

from __future__ import annotations

import json
import re

import pytest

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import command, serving, until
from tests.blackbox.support.terminal import CTRL_D, ENTER, terminal
from tests.blackbox.support.walls import WALLS
from tests.blackbox.support.work import Office, act, answer, heard, shell


def results(view):
    """What the tools of a task have answered, the last round of them."""
    return [json.loads(result.content) for result in view.request.turns[-1].results]


def project(tmp_path, name="project"):
    folder = tmp_path / name
    folder.mkdir()
    return folder


async def test_a_task_of_the_chat_works_in_its_folder_with_tools_and_commands(tmp_path, walled):
    folder, seen = project(tmp_path), []
    (folder / "notes.txt").write_text("here")

    def keep(view):
        seen.extend(results(view))
        return answer("done")

    calls = (
        Call("read_file", {"path": "notes.txt"}),
        Call("write_file", {"path": "src/new.py", "content": "print(1)\n"}),
        shell("pwd; cat notes.txt; echo made > by_command.txt"),
    )
    book = Office({"work": [act(*calls), keep]})
    async with serving(tmp_path, book, {**WALLS, "sandbox.writable": []}, env=walled) as daemon:
        async with daemon.client() as client:
            await client.say("do work", metadata={"folder": str(folder)})
            assert await heard(client) == ["completed: done"]
        assert "folder" in book.of("work")[0].request.turns[0].text
        assert seen[0]["content"] == "here"
        assert seen[2]["stdout"] == f"{folder}\nhere"
        assert (folder / "src/new.py").read_text() == "print(1)\n"
        assert (folder / "by_command.txt").read_text() == "made\n"
        assert not (daemon.home / "workspace/src").exists()


async def test_two_chats_have_two_folders_and_a_third_has_the_workspace(tmp_path):
    one, two = project(tmp_path, "one"), project(tmp_path, "two")
    write = act(Call("write_file", {"path": "file.txt", "content": "x"}))
    book = Office({name: [write, answer("done")] for name in ("a", "b", "c")})
    async with (
        serving(tmp_path, book) as daemon,
        daemon.client("cli", "one") as first,
        daemon.client("cli", "two") as second,
        daemon.client("cli", "three") as third,
    ):
        await first.say("do a", metadata={"folder": str(one)})
        await heard(first)
        assert (one / "file.txt").exists()
        await second.say("do b", metadata={"folder": str(two)})
        await heard(second)
        assert (two / "file.txt").exists()
        assert not (daemon.home / "workspace/file.txt").exists()
        await third.say("do c")
        await heard(third)
        assert (daemon.home / "workspace/file.txt").exists()


async def test_the_folder_is_kept_with_the_task_over_a_restart(tmp_path):
    folder = project(tmp_path)
    write = act(Call("write_file", {"path": "late.txt", "content": "x"}))
    book = Office({"work": [act(Call("ask_user", {"question": "Which?"})), write, answer("done")]})
    async with serving(tmp_path, book) as daemon:
        async with daemon.client() as client:
            await client.say("do work", metadata={"folder": str(folder)})
            [asked] = await heard(client)
        await daemon.restart()
        async with daemon.client() as client:
            # This message comes without a folder: that of the task counts.
            await client.say(f"tell {asked.split()[2]} the blue one")
            await until(lambda: (folder / "late.txt").exists(), "the file")


async def test_files_that_programs_run_are_guarded_there_as_in_the_workspace(tmp_path, walled):
    folder, seen = project(tmp_path), []
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text("[core]\n")
    page = folder / "page.txt"
    page.write_text("text of somebody else")

    def keep(view):
        seen.extend(results(view))
        return answer("done")

    # What was read from a file is text from outside: after that nobody but an owner lets the settings of git be changed.
    spoil = shell("echo '[core] fsmonitor = evil' >> .git/config; cat .git/config")
    book = Office({"work": [act(Call("read_file", {"path": "page.txt"})), act(spoil), keep]})
    settings = {**WALLS, "sandbox.writable": []}
    async with serving(tmp_path, book, settings, env=walled) as daemon, daemon.client() as client:
        await client.say("do work", metadata={"folder": str(folder)})
        await heard(client)
        status = await client.call("status")
    text = (folder / ".git/config").read_text()
    if status["sandbox"]["kind"] == "bubblewrap":
        assert "fsmonitor" not in text
    else:
        assert "changed what other programs run" in seen[0]["note"]


async def test_settings_that_lie_in_it_stay_closed_and_a_link_in_its_place_is_not_followed(tmp_path, walled):
    folder, other, seen = project(tmp_path), project(tmp_path, "other"), []
    (other / "secret").write_text("x")

    def swap(view):
        seen.extend(result.content for result in view.request.turns[-1].results)
        folder.rename(tmp_path / "moved")
        folder.symlink_to(other)
        return act(shell(f"cat {folder}/secret", cwd=str(daemon.home / "workspace")), Call("list_files", {}))

    def keep(view):
        seen.extend(result.content for result in view.request.turns[-1].results)
        return answer("done")

    book = Office({"work": [act(Call("read_file", {"path": "pegasus.toml"}), shell("cat pegasus.toml")), swap, keep]})
    async with serving(tmp_path, book, {**WALLS, "sandbox.writable": []}, env=walled, start=False) as daemon:
        daemon.configure()
        (folder / "pegasus.toml").write_text((daemon.home / "pegasus.toml").read_text())
        (daemon.home / "pegasus.toml").unlink()
        await daemon.start("--config", str(folder / "pegasus.toml"))
        async with daemon.client() as client:
            await client.say("do work", metadata={"folder": str(folder)})
            await heard(client)
    assert "belongs to the agent itself" in seen[0]
    assert "provider" not in seen[1]
    assert json.loads(seen[2])["exitCode"] != 0
    assert "outside of what tools may touch" in seen[3]


async def test_what_is_not_a_folder_of_ones_own_is_refused_with_a_sentence(tmp_path):
    closed = project(tmp_path, "closed")
    closed.chmod(0o500)
    file = tmp_path / "file"
    file.write_text("")
    link = tmp_path / "link"
    link.symlink_to(closed)
    async with serving(tmp_path, Office()) as daemon, daemon.client() as client:
        refused = [
            str(daemon.home),
            str(daemon.home / "data"),
            str(daemon.home.parent.parent),
            "/",
            "/etc",
            "/usr/share",
        ]
        (keys := daemon.home.parent / ".ssh").mkdir()
        refused += ["/proc/self", str(keys), str(daemon.home.parent), str(file), str(tmp_path / "missing")]
        refused += [str(link), "relative", "", 7, "/home/somebody"]
        for folder in refused:
            id = await client.post("hello", metadata={"folder": folder})
            frame = await client.get("error", "accepted", id=id)
            assert frame["type"] == "error", (folder, frame)
            assert "folder" in frame["message"]


async def test_a_guests_message_has_no_folder(tmp_path):
    folder = project(tmp_path)
    write = act(Call("write_file", {"path": "file.txt", "content": "x"}))
    book = Office({"work": [write, answer("done")]})
    settings = {"channels.irc.access": "open"}
    async with serving(tmp_path, book, settings) as daemon, daemon.bridge("irc") as bridge:
        channel = {"type": "irc", "channelId": "eve"}
        await bridge.say("do work", channel=channel, metadata={"folder": str(folder)})
        await heard(bridge)
        assert not list(folder.iterdir())


@pytest.mark.parametrize("name", ["/etc", "{home}", "missing"])
async def test_the_command_refuses_it_before_it_talks_to_anybody(tmp_path, name):
    home = tmp_path / "home"
    folder = name.format(home=home) if name != "missing" else str(tmp_path / "missing")
    result = await command("--home", str(home), "chat", "--folder", folder)
    assert result.code == 2
    assert "--folder" in result.err
    assert "Traceback" not in result.err


async def test_one_command_works_in_a_folder_shows_the_edit_and_takes_it_back(tmp_path):
    folder = project(tmp_path)
    (folder / "tea.txt").write_text("tea\n")
    edit = Call("edit_file", {"path": "tea.txt", "old_string": "tea", "new_string": "coffee"})
    async with serving(tmp_path, Office({"work": [act(edit), answer("done")]}), start=False) as daemon:
        daemon.configure()
        async with terminal(daemon.home, "chat", "--folder", str(folder)) as screen:
            await screen.see("tasks work in")
            await screen.see("Ctrl-D stops")
            await screen.type("do work", ENTER)
            await screen.see("tea.txt")
            await screen.see("-tea")
            await screen.see("+coffee")
            await screen.see("completed: done")
            await screen.type("/undo", ENTER)
            await screen.see("Taken back:")
            assert (folder / "tea.txt").read_text() == "tea\n"
            await screen.type(CTRL_D, CTRL_D)
            assert await screen.exit() == 0


async def test_the_rules_of_the_folder_are_shown_as_text_from_outside(tmp_path):
    folder, bare = project(tmp_path), project(tmp_path, "bare")
    (folder / "CLAUDE.md").write_text("Indent with tabs.\n")
    (folder / "AGENTS.md").symlink_to("/etc/hostname")
    (bare / "CLAUDE.md").mkdir()
    work = [act(Call("read_file", {"path": "CLAUDE.md"})), answer("done")]
    book = Office({"work": work, "other": work})
    async with serving(tmp_path, book) as daemon, daemon.client() as client:
        await client.say("do work", metadata={"folder": str(folder)})
        assert await heard(client) == ["completed: done"]
        await client.say("do other", metadata={"folder": str(bare)})
        assert await heard(client) == ["completed: done"]
    first, second = (view.request for view in book.of("work"))
    shown = "\n".join(turn.text for turn in first.turns if turn.text)
    assert f"In {folder}, where you work, the file CLAUDE.md has rules" in shown
    assert "Indent with tabs." in shown
    [log] = [
        text for path in (daemon.home / "data/tasks").rglob("*.jsonl") if "folder_rules" in (text := path.read_text())
    ]
    assert re.search(r'"type":"folder_rules",("outside":\["file"\],"fence":"\w+","fencedFrom":\d+)', log), (
        "it is labelled"
    )
    assert sum(turn.text.count("Indent with tabs.") for turn in second.turns) == 1, "it is shown once"
    assert "has rules for those" not in "".join(turn.text for turn in book.of("other")[0].request.turns)
