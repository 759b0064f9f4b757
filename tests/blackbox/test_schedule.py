"""Scheduled jobs of the real daemon: asked for in the chat and on the command line, once each, over a kill -9."""

from __future__ import annotations

import json
import random
import time

import pytest
import trio

from tests.blackbox.support import HANG, Book, Call, Thought, reply, say, serving
from tests.blackbox.support.waiting import until


async def test_a_reminder_that_was_asked_for_in_a_chat_comes_once_over_a_kill(shared, name):
    daemon = shared
    async with daemon.client(channel_id=name) as client:
        assert "I will remind you at" in await client.ask("remind me in 3 seconds to drink tea")
    daemon.kill()
    await daemon.start()
    async with daemon.client(channel_id=name, lastSeq=1) as client:
        assert (await client.reply(timeout=20))["text"] == "Reminder: drink tea"
        assert await client.ask("hello") == "Hello! What can I do for you?"
    jobs = json.loads((await daemon.command("cron", "list", "--json")).out)["jobs"]
    [job] = [job for job in jobs if job["prompt"] == "drink tea"]
    assert (job["runs"], job["enabled"], job["over"]) == (1, False, True)
    assert f"{job['id']}  over " in (await daemon.command("cron", "list")).out


async def test_a_single_time_that_is_paused_is_not_over(shared, name):
    daemon = shared
    added = await daemon.command(
        "cron", "add", "--at", "2199-12-01T09:00", "--prompt", "x", "--channel", f"web:{name}", "--json"
    )
    id = json.loads(added.out)["id"]
    assert (await daemon.command("cron", "pause", id)).out.startswith(f"Paused {id}  paused ")
    assert (await daemon.command("cron", "resume", id)).code == 0
    assert (await daemon.command("cron", "remove", id)).code == 0


async def test_jobs_are_kept_on_the_command_line(shared, name):
    daemon = shared
    place = f"web:{name}"
    added = await daemon.command(
        "cron",
        "add",
        "--cron",
        "0 9 * * 1-5",
        "--tz",
        "Europe/Berlin",
        "--prompt",
        "news",
        "--channel",
        place,
        "--json",
    )
    job = json.loads(added.out)
    assert (job["channel"], job["schedule"]) == (place, {"cron": "0 9 * * 1-5", "tz": "Europe/Berlin"})
    assert job["next"] > 0
    assert (await daemon.command("cron", "pause", job["id"])).code == 0
    assert "paused" in (await daemon.command("cron", "list")).out
    async with daemon.client(channel_id=name) as client:
        assert (await daemon.command("cron", "run", job["id"])).code == 0
        assert "Reminder: news" in (await client.reply())["text"]
    assert (await daemon.command("cron", "remove", job["id"])).code == 0
    for arguments in (["remove", job["id"]], ["add", "--cron", "0 9 30 2 *", "--prompt", "x", "--channel", place]):
        refused = await daemon.command("cron", *arguments)
        assert refused.code == 1
        assert refused.err.count("\n") == 1


async def test_a_job_is_added_in_words(tmp_path):
    async with serving(tmp_path, Book()) as daemon:
        words = ("cron", "add", "every", "weekday", "at", "8:30", "--tz", "Europe/Berlin")
        added = await daemon.command(*words, "--prompt", "x", "--channel", "web:c1", "--json")
        assert json.loads(added.out)["schedule"] == {"cron": "30 8 * * 1-5", "tz": "Europe/Berlin"}
        once = await daemon.command("cron", "add", "in 2 hours", "--prompt", "x", "--channel", "web:c1", "--json")
        assert 7100_000 < json.loads(once.out)["next"] - time.time() * 1000 < 7205_000
        for wrong, why in ((["soon"], "in 10 minutes"), (["at 9", "--every", "60"], "without cron"), ([], "or when")):
            refused = await daemon.command("cron", "add", *wrong, "--prompt", "x", "--channel", "web:c1")
            assert refused.code == 1
            assert why in refused.err


async def test_a_run_during_which_the_process_is_killed_is_finished_once(tmp_path):
    """kill -9 while the model thinks about the run: the next start goes on with it, and does not run it again."""
    cut = [True]

    def think(view):
        if "is due" in view.question.text and cut:
            cut.clear()
            daemon.kill()
            return HANG
        return say("done: " + view.question.text.splitlines()[-1])

    async with serving(tmp_path, Book(otherwise=think)) as daemon:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
        added = await daemon.command("cron", "add", "--at", moment, "--prompt", "tea", "--channel", "web:c1", "--json")
        assert added.code == 0
        await until(lambda: daemon.process.poll() is not None, "the end of the process", 20)
        await daemon.start()
        async with daemon.client() as client:
            assert (await client.reply(timeout=20))["text"] == "done: tea"
            assert await client.ask("hello") == "done: hello"
        [job] = json.loads((await daemon.command("cron", "list", "--json")).out)["jobs"]
        assert (job["runs"], job["over"]) == (1, True)


@pytest.mark.deadline(60)
@pytest.mark.parametrize("seed", [1, 2])
async def test_each_run_and_its_file_come_once_however_often_the_process_is_killed(tmp_path, seed):
    """kill -9 at random moments, also while it starts, while ten jobs are due one after another. Each sends a file."""
    choices, kills = random.Random(seed), 0

    def work(view):
        call = reply(view.question.text.splitlines()[-1])
        return Thought(calls=(Call("reply", {**call.arguments, "media": ["notes.txt"]}),))

    async def jobs():
        return json.loads((await daemon.command("cron", "list", "--json")).out)["jobs"]

    async with serving(tmp_path, Book(otherwise=work)) as daemon:
        file = daemon.home / "workspace" / "notes.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"hello")
        async with daemon.client() as client:
            begin = time.time() + 3  # on a busy machine ten calls take a second or two
            for number in range(10):
                at = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begin + number / 2))}
                job = {"schedule": at, "prompt": f"job {number}", "channel": "web:c1", "missed": "once"}
                await client.call("cron.add", **job)
        while kills < 8:
            await trio.sleep(choices.choice([0, 0.05, 0.3, 0.6, 0.9]) * choices.random())
            daemon.kill()
            kills += 1
            await daemon.start()
        async with daemon.client("web", "c1", lastSeq=0) as client:
            replies = await client.replies(10, timeout=20)
            await client.say("job 10")
            replies.append(await client.reply())
        assert [frame["seq"] for frame in replies] == list(range(1, 12))
        assert sorted(frame["text"] for frame in replies) == sorted(f"job {number}" for number in range(11))
        assert {tuple(file["name"] for file in frame["media"]) for frame in replies} == {("notes.txt",)}
        assert {(job["runs"], job["over"]) for job in await jobs()} == {(1, True)}
