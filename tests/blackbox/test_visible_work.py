"""Background work as people see it: task frames, numbers, /tasks, follow, --until-done. One daemon for all of it."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import asynccontextmanager

import trio

from pegasus.testing.provider.answers import Call
from tests.blackbox.support import serving
from tests.blackbox.support.command import PROGRAM
from tests.blackbox.support.model import SILENCE
from tests.blackbox.support.work import Effects, Office, act, answer, heard, later, log_path, rest, shell, task_id


async def test_work_is_visible_from_its_beginning_to_its_end(tmp_path):
    work, go = Effects(tmp_path), trio.Event()
    note = Call("notify", {"message": "half way — 半分"})
    book = Office(
        {
            "count": [act(note, shell("echo one two")), later(go, answer("there are two"))],
            "dig": [act(work.shell("dug", "sleep 600"))],
            "quick": [answer("so quick")],
        },
        {"be silent": SILENCE},
    )
    async with serving(tmp_path, book) as daemon:
        async with daemon.client() as client, daemon.bridge("web") as bridge, daemon.client("web", "other") as other:
            await client.say("do count")
            await book.thought("count", 2)
            await _frames_show_each_change(client)
            assert (await client.reply())["text"] == "update: half way — 半分"
            await _a_client_that_comes_later_is_shown_it(daemon)
            await _status_agrees(daemon, client)
            await _the_log_is_followed(daemon, go)
            assert await heard(client) == ["completed: there are two"]
            done = await client.get("task", state="COMPLETED")
            assert (done["number"], done["tool"], done["elapsedMs"] > 0) == (1, "", True)
            for stranger in (bridge, other):
                await stranger.fence()
                assert not [frame for frame in stranger.seen if frame["type"] == "task"]

            await client.say("do dig")
            await work.happened("dug")
            await _cancelled_by_its_number(daemon, client, work)

        await _sent_until_done(daemon)
        await rest(daemon)
        await daemon.restart()
        await _numbers_outlive_the_process(daemon)


async def _frames_show_each_change(client):
    """IDLE, thinking, each tool, thinking again: every frame is the whole state, and drafts of an address stay there."""
    frames = [await client.get("task")]
    while frames[-1]["step"] < 2:
        frames.append(await client.get("task"))
    assert {(frame["number"], frame["description"], frame["channel"]["channelId"]) for frame in frames} == {
        (1, "count", frames[0]["channel"]["channelId"])
    }
    states = [(frame["state"], frame["tool"], frame["step"]) for frame in frames]
    assert states[-1] == ("REASONING", "", 2)
    assert ("ACTING", "shell_exec", 1) in states
    assert states.index(("REASONING", "", 1)) < states.index(("ACTING", "shell_exec", 1))


async def _a_client_that_comes_later_is_shown_it(daemon):
    async with daemon.client() as late:
        frame = await late.get("task")
        assert (frame["number"], frame["state"], frame["step"]) == (1, "REASONING", 2)


async def _status_agrees(daemon, client):
    await client.say("/status")
    chat = (await client.reply())["text"]
    await client.say("/tasks")
    tasks = (await client.reply())["text"]
    shell = (await daemon.command("status")).out
    assert "I am waiting for 1 background task." in chat
    assert "Doing    waiting for 1 background task" in shell
    for text in (chat, tasks, shell):
        assert "1  thinking, step 2, " in text
        assert ": count" in text
    facts = json.loads((await daemon.command("status", "--json")).out)
    assert facts["running"][0]["number"] == 1


async def _the_log_is_followed(daemon, go):
    """The log so far, then what happens; the task goes on after Ctrl-C."""
    async with _following(daemon, "1") as process:
        await _read(process, "→ shell_exec")
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
    async with _following(daemon, "#1") as process:
        text = await _read(process, "→ shell_exec")
        go.set()
        text += await _read(process)
        assert await process.wait() == 0
    lines = text.splitlines()
    assert lines[0] == "Task 1: count"
    for said in (
        "created: count",
        '→ shell_exec {"command":"echo one two"}',
        "says: half way — 半分",
        '"stdout":"one two',
        "completed:",
    ):
        assert sum(said in line for line in lines) == 1, (said, text)
    assert lines[-1].strip() == "there are two"
    again = await daemon.command("tasks", "follow", "1")
    assert (again.code, again.out.splitlines()[-1].strip()) == (0, "there are two")


@asynccontextmanager
async def _following(daemon, name):
    process = await trio.lowlevel.open_process(
        [*PROGRAM, "--home", str(daemon.home), "tasks", "follow", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=daemon.env,
    )
    with trio.fail_after(30):
        yield process


async def _read(process, until_text=""):
    """The output up to a text, or to its end."""
    read = b""
    async for piece in process.stdout:
        read += piece
        if until_text and until_text in read.decode(errors="ignore"):
            break
    return read.decode()


async def _cancelled_by_its_number(daemon, client, work):
    refused = await daemon.command("tasks", "cancel", "9")
    assert (refused.code, refused.err) == (1, "pegasus: there is no task 9; the newest is 2\n")
    await client.say("/tasks cancel 2")
    stopped = (await client.reply())["text"]
    assert work.processes() == [], "the answer says that they have ended"
    assert stopped.startswith("Stopped task 2 (dig) (ran ")
    assert (await client.get("task", state="FAILED"))["number"] == 2
    assert (await heard(client))[0].startswith("stopped: stopped by the user")
    failed = await daemon.command("tasks", "follow", "2")
    assert failed.code == 1
    assert "stopped by the user (web)" in failed.out


async def _sent_until_done(daemon):
    sent = await daemon.command("send", "do quick", "--until-done")
    assert (sent.code, sent.out) == (0, "completed: so quick\n"), sent.err
    silent = await daemon.command("send", "be silent", "--until-done", timeout=20)
    assert silent.code == 1
    assert "said nothing" in silent.err


async def _numbers_outlive_the_process(daemon):
    listed = (await daemon.command("tasks", "list", "--date", _day(daemon))).out.splitlines()
    assert [line.split()[:2] for line in listed] == [["1", "completed"], ["2", "stopped"], ["3", "completed"]]
    shown = json.loads((await daemon.command("tasks", "show", "3", "--json")).out)
    assert (shown["number"], shown["description"]) == (3, "quick")
    async with daemon.client("web", "someone") as client:
        await client.say("/tasks")
        assert "No task is at work." in (await client.reply())["text"]
        await client.say("do count")
        await client.get("task", number=4)


def _day(daemon):
    return log_path(daemon.home, task_id(daemon.home, "quick")).parent.name
