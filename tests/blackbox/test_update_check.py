"""`pegasus update --check`: a version replays homes that real agents have made, and shows what it would do differently."""

from __future__ import annotations

import sys

import pytest
import trio

from pegasus.host import Home
from pegasus.settings import SettingsSource
from pegasus.update import check_update
from tests.blackbox.support import running

STAND_IN = {"models.default": "offline/stand-in"}
THIS_VERSION = (sys.executable, "-P")


async def check(daemon, command=THIS_VERSION, **options):
    home = Home(daemon.home)
    return await check_update(home, SettingsSource(home.config, False, ()), command, **options)


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


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
