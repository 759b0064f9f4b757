"""The bridge in shell, with the real websocat."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from pegasus.messages import ChannelInfo
from tests.examples.conftest import EXAMPLES, texts_of
from tests.pegasus.gateway.world import TOKEN, world

PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
MISSING = [name for name in ("websocat", "jq", "bash") if shutil.which(name, path=PATH) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
ANNA = ChannelInfo("folder", "anna")


@asynccontextmanager
async def running(folder, gateway, token=TOKEN):
    settings = {"PATH": PATH, "PEGASUS_URL": gateway.url, "PEGASUS_TOKEN": token, "PEGASUS_PAUSE": "0.05"}
    process = await trio.lowlevel.open_process(
        ["bash", str(EXAMPLES / "folder_bridge.sh"), str(folder)],
        env=settings,
        start_new_session=True,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await process.stderr.aclose()


async def until_there(*paths):
    with trio.fail_after(20):
        while not all(path.exists() for path in paths):  # noqa: ASYNC110 another program makes them
            await trio.sleep(0.02)


def drop(folder, name, text):
    (folder / "in").mkdir(parents=True, exist_ok=True)
    (folder / f".{name}").write_text(text)
    (folder / f".{name}").rename(folder / "in" / name)


async def test_a_file_is_a_message_and_a_reply_is_a_file(tmp_path):
    async with world() as gateway, running(tmp_path, gateway):
        drop(tmp_path, "anna.weather", 'Grüße, "anna"\n\t\\o/\n')
        await until_there(tmp_path / "done" / "anna.weather")
        ((message, _),) = gateway.journal.accepted
        assert (message.text, message.channel) == ('Grüße, "anna"\n\t\\o/\n', ChannelInfo("folder", "anna", "anna"))
        await gateway.say(ANNA, "It's\n“fine”")
        await until_there(tmp_path / "out" / "anna.1")
        assert (tmp_path / "out" / "anna.1").read_text() == "It's\n“fine”\n"
        await gateway.journal.until(lambda: gateway.journal.acks)


async def test_after_a_lost_connection_and_a_kill_nothing_is_missing(tmp_path):
    async with world() as gateway:
        drop(tmp_path, "anna.1", "first")
        async with running(tmp_path, gateway):
            await until_there(tmp_path / "done" / "anna.1")
            await gateway.crash()
            drop(tmp_path, "anna.2", "second")
            await gateway.say(ANNA, "r1")
            await until_there(tmp_path / "done" / "anna.2", tmp_path / "out" / "anna.1")
        await gateway.say(ANNA, "r2")
        drop(tmp_path, "anna.3", "third")
        async with running(tmp_path, gateway):
            await until_there(tmp_path / "done" / "anna.3", tmp_path / "out" / "anna.2")
        assert texts_of(gateway) == ["first", "second", "third"]


async def test_what_is_refused_is_put_aside_and_a_wrong_token_ends_it(tmp_path):
    async with world() as gateway:
        async with running(tmp_path, gateway):
            drop(tmp_path, "anna.empty", "")
            drop(tmp_path, "anna.large", "x" * 600_000)
            drop(tmp_path, "anna.good", "hello")
            await until_there(tmp_path / "refused" / "anna.large", tmp_path / "done" / "anna.good")
        with trio.fail_after(20):
            async with running(tmp_path, gateway, token="wrong") as process:
                assert await process.wait() == 1
