"""When the daemon must not start: one line that says why, and the right exit code."""

from __future__ import annotations

import json
import socket

import pytest

from tests.blackbox.support import Daemon, Exited, connect, running

STAND_IN = {"models.default": "offline/stand-in"}


async def test_a_second_daemon_on_one_home_is_refused_and_the_first_is_well(home):
    async with running(home, STAND_IN) as first, first.client() as client:
        with pytest.raises(Exited) as refusal:
            async with running(home, STAND_IN):
                pass
        assert refusal.value.code == 75
        assert str(first.pid) in refusal.value.stderr
        assert len(refusal.value.stderr.splitlines()) == 1
        assert await client.ask("hello")
        assert json.loads((home / "run" / "daemon.json").read_text())["pid"] == first.pid


async def test_the_lock_goes_with_a_killed_process(home):
    async with running(home, STAND_IN) as daemon:
        await daemon.restart()
        assert json.loads((home / "run" / "daemon.json").read_text())["pid"] == daemon.pid


async def test_a_home_below_a_file(tmp_path):
    """Nobody, not even root, can make a folder there."""
    (tmp_path / "file").write_text("")
    with pytest.raises(Exited) as refusal:
        async with running(tmp_path / "file", STAND_IN):
            pass
    assert refusal.value.code == 78
    assert str(tmp_path / "file") in refusal.value.stderr
    assert len(refusal.value.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "name",
    ["run", "logs", "lock", "token", "workspace", pytest.param("data", marks=pytest.mark.files("a file in its place"))],
)
async def test_a_part_of_the_home_that_is_of_the_wrong_kind(home, name):
    daemon = Daemon(home, STAND_IN)
    daemon.configure()
    if name in ("lock", "token"):
        (home / name).mkdir()
    else:
        (home / name).write_text("")
    with pytest.raises(Exited) as refusal:
        await daemon.start()
    assert refusal.value.code == 78
    assert str(home / name) in refusal.value.stderr
    assert "Traceback" not in refusal.value.stderr


@pytest.mark.files("a folder in the place of a file")
@pytest.mark.parametrize("name", ["main/current.jsonl", "inbox/inbox.jsonl", "outbox/outbox.jsonl"])
async def test_data_that_cannot_be_read_at_start(home, name):
    """A folder in the place of a file: it is named, and so is what to do."""
    (home / "data" / name).mkdir(parents=True)
    with pytest.raises(Exited) as refusal:
        async with running(home, STAND_IN):
            pass
    assert refusal.value.code in (1, 78)
    said = [line for line in refusal.value.stderr.splitlines() if line.startswith("pegasus: ")]
    assert len(said) == 1
    assert str(home / "data" / name) in said[0]


async def test_a_port_in_use(home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Exited) as refusal:
            async with running(home, {**STAND_IN, "gateway.port": port}):
                pass
    assert refusal.value.code == 1
    assert str(port) in refusal.value.stderr
    assert "Traceback" not in refusal.value.stderr
    async with running(home, {**STAND_IN, "gateway.port": 0}):
        pass


async def test_a_fixed_port_can_be_taken_again_after_a_kill(home):
    async with running(home, STAND_IN) as daemon, connect(daemon.url) as peer:
        await peer.hello(daemon.token, "web", "c1")
        daemon.configure(gateway__port=daemon.port)
        port = daemon.port
        daemon.kill()
        await daemon.start()
        assert daemon.port == port
