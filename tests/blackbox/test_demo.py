"""Without an API key: the commands of the README show something, and the demo runs from start to end, through a kill -9."""

from __future__ import annotations

import subprocess

import pytest
import trio

from pegasus.models.stand_in import DEMO_DONE
from tests.blackbox.support import running
from tests.blackbox.support.command import PROGRAM

STAND_IN = {"models.default": "offline/stand-in"}


@pytest.mark.deadline(120)  # the demo alone takes half a minute
async def test_a_newcomer_without_a_key_sees_everything_work(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon:
        async with daemon.client("cli", "main") as client:
            assert "plumber" in await _result(client, "run cat notes.txt")
            assert "todo.md:" in await _result(client, "run grep -r TODO .")
            assert "recipes" in await _result(client, "run ls")
            assert "Noted: I like tea" in await client.ask("remember that I like tea")
            assert "not counted" in await client.ask("/usage")
            assert "Demo" in await client.ask("demo")
            while "half done" not in (await client.reply())["text"]:
                pass
        await _a_follower_is_told_of_the_kill(daemon, task="4")
        await daemon.start()
        async with daemon.client("cli", "main", lastSeq=0) as client:
            said = ""
            while "Recovery" not in said:
                said += (await client.reply(timeout=40))["text"]
            assert said.count(DEMO_DONE) == 1
            assert f"kill -9 {daemon.at.pid}\npegasus --home {daemon.home}\n" in said
        for arguments in ("memory list", "tasks list", "sessions list"):
            shown = await daemon.command(*arguments.split())
            assert shown.code == 0
            assert shown.out.strip(), arguments
        assert "demo.md" in (await daemon.command("memory", "log")).out


async def _a_follower_is_told_of_the_kill(daemon, task):
    command = [*PROGRAM, "--home", str(daemon.home), "tasks", "follow", task]
    pipe = subprocess.PIPE
    with trio.fail_after(30):
        process = await trio.lowlevel.open_process(command, stdout=pipe, stderr=pipe, env=daemon.env)
        out = b""
        while b"half done" not in out:
            out += await process.stdout.receive_some()
        daemon.kill()
        assert await process.wait() == 1
        problem = (await process.stderr.receive_some()).decode()
    assert problem.startswith("pegasus: ")
    assert "an unfinished task goes on at the next start" in problem
    assert problem.count("\n") == 1


async def _result(client, text):
    """What a job gives: the receipt comes first, then the result of the task."""
    assert "background task" in await client.ask(text)
    return (await client.reply())["text"]


async def test_the_sample_files_are_not_made_again(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon:
        notes = daemon.home / "workspace" / "notes.txt"
        async with daemon.client("cli", "main") as client:
            await client.ask("hello")
        notes.unlink()
        await daemon.restart()
        assert not notes.exists()
