"""`pegasus update --check`: a version replays homes that real agents have made, and shows what it would do differently."""

from __future__ import annotations

import json
import sys
import tempfile

import pytest
import trio

from pegasus.host import Home, HomeError
from pegasus.memory.changes import known_content
from pegasus.settings import SettingsSource
from pegasus.update import UpdateError, check_update
from pegasus.wire import encode_line
from tests.blackbox.support import running
from tests.regressions.__main__ import check as check_home
from tests.regressions.__main__ import copy_product, find
from tests.regressions.homes import make_homes
from tests.regressions.planted import REGRESSIONS

STAND_IN = {"models.default": "offline/stand-in"}
THIS_VERSION = (sys.executable, "-P")


async def check(daemon, command=THIS_VERSION, limit=60):
    return await check_home(daemon.home, command, limit)


def contents(home):
    """The files of a home. Over a database the agent writes its mirror some seconds late."""
    found = (path for path in sorted(home.rglob("*")) if path.is_file())
    return {path: path.read_bytes() for path in found if "mirror" not in path.parts}


async def say(client, text, id, replies=1):
    await client.post(text, id)
    for _ in range(replies):
        await client.ack(await client.reply(timeout=30))


@pytest.mark.deadline(90)
async def test_the_same_version_does_the_same_also_after_a_kill(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon:
        async with daemon.client("web", "c1") as page, daemon.client("cli", "main") as terminal:
            await say(page, "hello", "a1")
            await say(terminal, "what time is it?", "b1")
            await say(page, "remember that I like tea", "a2")
            await say(terminal, "run `uname -a`", "b2", replies=2)
            await say(terminal, "remind me in 1 minute to drink tea", "b3")
            await say(terminal, "/status", "b4")
            await trio.sleep(0.1)
        daemon.kill()
        await daemon.start()
        async with daemon.client("web", "c1") as page:
            await say(page, "what do you remember?", "a3")
            await say(page, "/new", "a4")
            await say(page, "hello", "a5")
            report = await check(daemon)
        assert report.different == []
        assert report.replayed >= 10
        assert report.same > 50


async def test_the_home_is_only_read(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon, daemon.client("web", "c1") as page:
        await say(page, "remember that I like tea", "a1")
        await trio.sleep(0.2)
        before = contents(daemon.home)
        assert (await check(daemon)).different == []
        assert contents(daemon.home) == before


async def test_what_a_reflection_has_changed_in_memory_is_no_difference(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon, daemon.client("web", "c1") as page:
        await say(page, "remember that I like tea", "a1")
    log, facts = daemon.home / "data/memory/.log/changes.jsonl", daemon.home / "data/memory/facts/user.md"
    last = json.loads(log.read_bytes().splitlines()[-1])
    text = facts.read_text() + "- Works at night\n"
    by = {"kind": "reflection", "task": "t-1", "source": "task"}
    after = {"hash": known_content(text.encode()).hash, "text": text}
    line = {"n": last["n"] + 1, "ts": last["ts"] + 20, "path": "facts/user.md", "how": "append", "by": by}
    log.write_bytes(
        log.read_bytes() + encode_line({**line, "before": last["after"], "after": after["hash"], "text": text})
    )
    facts.write_text(text)
    assert (await check(daemon)).different == []


@pytest.mark.deadline(150)
async def test_what_a_version_does_differently_is_reported(tmp_path):
    """A few of the regressions that ./scripts/regressions plants, one of each kind, on the home with something of everything."""
    names = (
        "the last line of a reply is missing",
        "the result of a task is not reported",
        "the interval of a job is cut in half",
        "a migration loses the facts",
    )
    [home, *_] = await make_homes(tmp_path / "homes")
    product = copy_product(tmp_path / "product")
    assert await find(None, [home], product) == ""
    for name in names:
        [regression] = [each for each in REGRESSIONS if each.name == name]
        assert await find(regression, [home], product), name


async def test_a_home_that_was_damaged_is_replayed_as_far_as_it_can_be_read(tmp_path):
    async with running(tmp_path / "home", STAND_IN) as daemon, daemon.client("web", "c1") as page:
        await say(page, "hello", "a1")
        await say(page, "what time is it?", "a2")
    for name in ("inbox/inbox.jsonl", "outbox/outbox.jsonl", "main/current.jsonl"):
        path = daemon.home / "data" / name
        path.write_bytes(path.read_bytes()[:-40] + b"\0\0\xff{")
    (daemon.home / "data" / "cron").mkdir(exist_ok=True)
    (daemon.home / "data" / "cron" / "jobs.json").write_text("[{]")
    assert (await check(daemon)).replayed >= 1


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import time; time.sleep(600)", "did not end within 2 s"),
        ("print('hello')", "could not replay the home: it ended with 0"),
        ("raise SystemExit('no such thing')", "no such thing"),
        ("import os; os.kill(os.getpid(), 9)", "it ended with -9"),
    ],
)
async def test_a_version_that_cannot_replay_is_refused_in_a_sentence_and_in_time(tmp_path, script, words):
    async with running(tmp_path / "home", STAND_IN) as daemon, daemon.client("web", "c1") as page:
        await say(page, "hello", "a1")
        with trio.fail_after(20), pytest.raises(UpdateError, match=words):
            await check(daemon, (sys.executable, "-c", script), limit=2)


async def test_without_room_for_the_copy_nothing_is_left(tmp_path, monkeypatch):
    async with running(tmp_path / "home", STAND_IN) as daemon, daemon.client("web", "c1") as page:
        await say(page, "hello", "a1")
        monkeypatch.setattr(tempfile, "tempdir", "/dev/full")
        with pytest.raises((UpdateError, HomeError), match="cannot be copied"):
            await check(daemon)


async def test_no_home_is_nothing_to_replay(tmp_path):
    home = Home(tmp_path)
    with pytest.raises(UpdateError, match="nothing to replay"):
        await check_update(home, SettingsSource(home.config, False, ()), THIS_VERSION)


async def test_a_replay_calls_nothing_and_writes_nowhere_else(tmp_path):
    """Whatever the version does: connections, programs, and files outside of the copy are refused."""
    code = (
        "import json, socket, subprocess, sys\n"
        "from pathlib import Path\n"
        "from pegasus.update.replay import forbid_outside\n"
        "forbid_outside(Path(sys.argv[1]))\n"
        "tried = {\n"
        "    'connect': lambda: socket.create_connection(('127.0.0.1', 9)),\n"
        "    'program': lambda: subprocess.run(['true']),\n"
        "    'write': lambda: open(sys.argv[2], 'w'),\n"
        "    'copy': lambda: open(sys.argv[1] + '/x', 'w').close(),\n"
        "}\n"
        "found = {}\n"
        "for name, act in tried.items():\n"
        "    try:\n"
        "        act()\n"
        "        found[name] = 'done'\n"
        "    except PermissionError:\n"
        "        found[name] = 'refused'\n"
        "print(json.dumps(found))\n"
    )
    (tmp_path / "copy").mkdir()
    done = await trio.run_process(
        [sys.executable, "-c", code, str(tmp_path / "copy"), str(tmp_path / "elsewhere")], capture_stdout=True
    )
    assert json.loads(done.stdout) == {"connect": "refused", "program": "refused", "write": "refused", "copy": "done"}
