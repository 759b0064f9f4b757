"""Who may talk to the gateway: token, Origin, hello first, loopback; and who may look into the process."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from contextlib import suppress

import pytest
import trio
from trio_websocket import ConnectionClosed, ConnectionRejected

from tests.blackbox.support import Daemon, Exited, connect, running
from tests.blackbox.support.command import PROGRAM

HELLO = {"type": "hello", "channel": {"type": "web", "channelId": "c1"}}


async def assert_unauthorized(peer):
    error = await peer.error("unauthorized")
    assert error["message"]
    assert await peer.closed() == 4401


@pytest.mark.parametrize("token", ["wrong", "", "x" * 100_000, "…", None])
async def test_a_wrong_token_in_hello(shared, token):
    async with connect(shared.url) as peer:
        await peer.send({**HELLO, "token": token})
        await assert_unauthorized(peer)


async def test_no_token_at_all(shared):
    async with connect(shared.url) as peer:
        await peer.send(HELLO)
        await assert_unauthorized(peer)


async def test_the_token_is_never_repeated(shared):
    async with connect(shared.url) as peer:
        await peer.send({**HELLO, "token": shared.token[:-1]})
        await assert_unauthorized(peer)
        assert shared.token[:-1] not in str(peer.seen)


async def test_the_token_in_the_header_is_enough(shared, name):
    header = (b"Authorization", f"Bearer {shared.token}".encode())
    async with connect(shared.url, headers=[header]) as peer:
        await peer.hello(None, "web", name)
        await peer.fence()


async def assert_turned_away(url, headers, token, status):
    """Refused in the handshake with this HTTP status, or let in as far as an `unauthorized` and the close."""
    try:
        async with connect(url, headers=headers) as peer:
            with suppress(ConnectionClosed):  # it may be told before it has said anything
                await peer.send({**HELLO, "token": token})
            await assert_unauthorized(peer)
    except ConnectionRejected as error:
        found = error.status_code
    else:
        return
    assert found == status


@pytest.mark.parametrize("value", ["Bearer wrong", "Bearer", "Basic {token}", "{token}x"])
async def test_a_wrong_token_in_the_header(shared, value):
    headers = [(b"Authorization", value.replace("{token}", shared.token).encode())]
    await assert_turned_away(shared.url, headers, None, 401)


async def test_a_wrong_token_in_the_header_beside_the_right_one_in_hello(shared, name):
    """One of both is enough to be let in, or the header wins: never let in with neither."""
    header = (b"Authorization", b"Bearer wrong")
    async with connect(shared.url, headers=[header]) as peer:
        await peer.send({**HELLO, "token": "wrong too"})
        await assert_unauthorized(peer)


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "message", "id": "x", "text": "hello"},
        {"type": "call", "id": "1", "method": "status", "params": {}},
        {"type": "ack", "seq": 1},
        {"type": "nonsense"},
        {},
        [],
    ],
    ids=["message", "call", "ack", "nonsense", "empty", "list"],
)
async def test_a_frame_before_hello(shared, frame):
    async with connect(shared.url) as peer:
        await peer.send(frame)
        await assert_unauthorized(peer)


async def test_a_frame_before_hello_also_with_the_token_in_the_header(shared):
    header = (b"Authorization", f"Bearer {shared.token}".encode())
    async with connect(shared.url, headers=[header]) as peer:
        await peer.send({"type": "call", "id": "1", "method": "status", "params": {}})
        await assert_unauthorized(peer)


@pytest.mark.parametrize("raw", ["{", b"\x00\x01", '{"a":' * 50_000], ids=["no JSON", "binary", "deep"])
async def test_rubbish_before_hello(shared, raw):
    async with connect(shared.url) as peer:
        await peer.send_raw(raw)
        await assert_unauthorized(peer)


async def test_a_large_frame_before_hello(shared):
    async with connect(shared.url) as peer:
        await peer.send_raw("x" * 2_000_000)
        error = await peer.get("error")
        assert error["code"] in ("too_large", "unauthorized")
        await peer.closed()


BAD_HELLOS = {
    "no channel": {},
    "channel null": {"channel": None},
    "channel a string": {"channel": "web"},
    "no type": {"channel": {"channelId": "c1"}},
    "type empty": {"channel": {"type": "", "channelId": "c1"}},
    "type a number": {"channel": {"type": 1, "channelId": "c1"}},
    "type with a newline": {"channel": {"type": "web\n[", "channelId": "c1"}},
    "type that reads as cli": {"channel": {"type": "cli\u200b", "channelId": "main"}},
    "type in full width": {"channel": {"type": "\uff43\uff4c\uff49", "channelId": "main"}},
    "type with a variation selector": {"channel": {"type": "cli\ufe0f", "channelId": "main"}},
    "userId with a tag": {"channel": {"type": "web", "channelId": "c1", "userId": "u1\U000e0061"}},
    "channelId a number": {"channel": {"type": "web", "channelId": 1}},
    "channelId empty": {"channel": {"type": "web", "channelId": ""}},
    "channelId too long": {"channel": {"type": "web", "channelId": "c" * 1_000}},
    "userId a list": {"channel": {"type": "web", "channelId": "c1", "userId": []}},
    "replyTo a number": {"channel": {"type": "web", "channelId": "c1", "replyTo": 5}},
    "lastSeq a string": {"channel": {"type": "web", "channelId": "c1"}, "lastSeq": "5"},
    "lastSeq negative": {"channel": {"type": "web", "channelId": "c1"}, "lastSeq": -5},
    "lastSeq true": {"channel": {"type": "web", "channelId": "c1"}, "lastSeq": True},
    "lastSeqs a list": {"channel": {"type": "web"}, "lastSeqs": [1]},
    "lastSeqs of strings": {"channel": {"type": "web"}, "lastSeqs": {"c1": "1"}},
}


@pytest.mark.parametrize("fields", BAD_HELLOS.values(), ids=BAD_HELLOS)
async def test_a_hello_with_a_wrong_field(shared, fields):
    async with connect(shared.url) as peer:
        await peer.send({"type": "hello", "token": shared.token, **fields})
        await peer.error("bad_frame")
        assert await peer.closed() == 4400


async def test_a_last_seq_beyond_the_last_is_harmless(shared, name):
    """A client from another world: it must not keep later replies from being delivered."""
    async with shared.client("web", name, lastSeq=1_000_000) as client:
        assert client.welcome["seq"] == 0
        await client.say("/help")
        assert (await client.reply())["seq"] == 1


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "https://127.0.0.1.evil.example", "null", "file://", "http://localhost.evil.example:7717"],
)
async def test_a_bad_origin_is_refused_even_with_the_token(shared, origin):
    headers = [(b"Origin", origin.encode()), (b"Authorization", f"Bearer {shared.token}".encode())]
    await assert_turned_away(shared.url, headers, shared.token, 403)


@pytest.mark.parametrize("origin", ["http://127.0.0.1:7718", "http://localhost:7718", "http://[::1]:7718"])
async def test_a_page_from_a_local_port_where_nothing_of_ours_listens_is_refused(shared, origin):
    """Whatever program takes http.port would otherwise be let in with its pages."""
    headers = [(b"Origin", origin.encode())]
    await assert_turned_away(shared.url, headers, shared.token, 403)


async def test_an_origin_from_the_settings_is_allowed(tmp_path):
    settings = {"models.default": "offline/stand-in", "gateway.allowed_origins": ["https://chat.example"]}
    async with running(tmp_path / "home", settings) as daemon:
        headers = [(b"Origin", b"https://chat.example")]
        async with connect(daemon.url, headers=headers) as peer:
            await peer.hello(daemon.token, "web", "c1")
        await assert_turned_away(daemon.url, [(b"Origin", b"https://other.example")], daemon.token, 403)


async def test_the_token_file_is_private_and_stays_the_same(tmp_path):
    async with running(tmp_path / "home", {"models.default": "offline/stand-in"}) as daemon:
        token = daemon.token
        assert len(token) >= 32
        assert stat.S_IMODE((daemon.home / "token").stat().st_mode) == 0o600
        await daemon.restart()
        assert daemon.token == token
        assert token not in daemon.stdout + daemon.stderr


async def test_a_token_from_the_settings(tmp_path):
    settings = {"models.default": "offline/stand-in", "gateway.token": "from-the-settings"}
    async with running(tmp_path / "home", settings) as daemon, connect(daemon.url) as peer:
        await peer.hello("from-the-settings", "web", "c1")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", "10.0.0.1"])
async def test_a_host_others_can_reach_is_refused(tmp_path, host):
    with pytest.raises(Exited) as refusal:
        async with running(tmp_path / "home", {"gateway.host": host}):
            pass
    assert refusal.value.code == 78
    assert "gateway.host" in refusal.value.stderr
    assert "allow_remote" in refusal.value.stderr


async def test_allow_remote_lifts_the_loopback_rule(tmp_path):
    settings = {"models.default": "offline/stand-in", "gateway.host": "0.0.0.0", "gateway.allow_remote": True}
    async with running(tmp_path / "home", settings) as daemon, connect(f"ws://127.0.0.1:{daemon.port}") as peer:
        await peer.hello(daemon.token, "web", "c1")


PLAIN_USER = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()
"""Beginning of a command line without the powers of root, before which nothing is hidden."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an attribute of Linux processes")
async def test_other_processes_of_the_user_read_neither_environment_nor_memory_of_the_daemon(home):
    if PLAIN_USER and shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    daemon = Daemon(home, {"models.default": "offline/stand-in"})
    daemon.configure()
    command = [*PLAIN_USER, *PROGRAM, "--home", str(home), "run", "--no-cli"]
    options = {"env": daemon.env, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = await trio.lowlevel.open_process(command, **options)
    try:
        ready = b""
        while b"\n" not in ready:
            ready += await process.stdout.receive_some()
        assert f"pid={process.pid}".encode() in ready
        for name, found in (("self", 2), (process.pid, 0)):
            paths = (f"/proc/{name}/environ", f"/proc/{name}/mem")
            count = "n=0; for f in $0 $1; do (exec < $f) 2>/dev/null && n=$((n+1)); done; echo $n"
            done = await trio.run_process([*PLAIN_USER, "sh", "-c", count, *paths], capture_stdout=True)
            assert int(done.stdout) == found
    finally:
        process.kill()
        await process.wait()
