"""A well-behaved process: ready line, daemon.json, files, logs, systemd."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
import time

import pytest
import trio

from tests.blackbox.support import Book, Daemon, connect, running, serving, until

STAND_IN = {"models.default": "offline/stand-in"}


async def test_the_ready_line_is_the_only_thing_on_stdout(tmp_path):
    async with serving(tmp_path, Book()) as daemon:
        async with daemon.client() as client:
            await client.ask("hello")
        daemon.signal(signal.SIGHUP)
        await daemon.stop()
        assert daemon.stdout == f"pegasus ready ws={daemon.url} http=- pid={daemon.pid}\n"


async def test_when_the_ready_line_is_there_the_gateway_listens(home):
    async with running(home, STAND_IN) as daemon, connect(daemon.url) as peer:
        await peer.hello(daemon.token, "web", "c1")


async def test_daemon_json_says_the_same_and_goes_with_the_daemon(home):
    before = time.time() * 1000
    async with running(home, STAND_IN) as daemon:
        path = home / "run" / "daemon.json"
        facts = json.loads(path.read_text())
        assert set(facts) == {"pid", "ws", "http", "version", "startedAt"}
        assert (facts["pid"], facts["ws"], facts["http"]) == (daemon.pid, daemon.url, None)
        assert before - 1000 < facts["startedAt"] < time.time() * 1000
        assert await daemon.stop() == 0
        assert not path.exists()


async def test_home_is_made_and_private(home):
    ports = ("--set", "gateway.port=0", "--set", "http.port=0")
    daemon = Daemon(home, options=(*ports, "--set", "models.default=offline/stand-in"))
    daemon.configure = lambda: None  # nobody but the daemon makes anything
    await daemon.start()
    try:
        async with daemon.client() as client:
            await client.ask("hello")
        assert stat.S_IMODE(home.stat().st_mode) & 0o077 == 0
        for path in (home / "data").rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    finally:
        daemon.kill()


async def test_the_log_is_on_stderr_and_in_the_file(tmp_path):
    async with serving(tmp_path, Book(), {"log.level": "debug"}) as daemon:
        log = daemon.home / "logs" / "pegasus.log"
        await until(lambda: log.exists() and "ready" in log.read_text(), "the log file")
        await until(lambda: "ready" in daemon.stderr, "the log on stderr")
        async with daemon.client() as client:
            await client.ask("hello")
        await daemon.stop()
        for secret in (daemon.token, "sk-test-0123456789"):
            assert secret not in log.read_text() + daemon.stderr


async def test_log_lines_as_json(home):
    async with running(home, {**STAND_IN, "log.format": "json"}) as daemon:
        await until(lambda: "ready" in daemon.stderr, "the log on stderr")
        await daemon.stop()
        assert all(isinstance(json.loads(line), dict) for line in daemon.stderr.splitlines())


# ------------------------------------------------------------------ other processes of the same user


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
async def test_the_environment_and_memory_of_the_daemon_are_closed_to_other_processes(home):
    """A process that is not dumpable has files in /proc that belong to root, and only root may read them."""
    async with running(home, STAND_IN, env={"ANTHROPIC_API_KEY": "sk-hidden"}) as daemon:
        reader = "import os; os.setgid(65534); os.setuid(65534); " if os.getuid() == 0 else ""
        for name in ("environ", "maps"):
            script = f"{reader}print(open('/proc/{daemon.pid}/{name}', 'rb').read())"
            result = await trio.run_process(
                [sys.executable, "-c", script], capture_stdout=True, capture_stderr=True, check=False
            )
            assert b"PermissionError" in result.stderr, result


# ------------------------------------------------------------------ systemd


@pytest.mark.parametrize("abstract", [False, True])
async def test_notify_socket(home, tmp_path, abstract):
    address = f"\0pegasus-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(10)
        env = {"NOTIFY_SOCKET": address.replace("\0", "@"), "WATCHDOG_USEC": "200000"}
        async with running(home, STAND_IN, env=env) as daemon:
            heard = [await _datagram(listener) for _ in range(4)]
            assert [b"READY=1" in one for one in heard] == [True, False, False, False]
            assert all(b"WATCHDOG=1" in one for one in heard[1:])
            daemon.signal(signal.SIGHUP)
            while b"RELOADING=1" not in (last := await _datagram(listener)):
                assert b"WATCHDOG=1" in last
            assert b"MONOTONIC_USEC=" in last
            while b"READY=1" not in (last := await _datagram(listener)):
                assert b"WATCHDOG=1" in last
            daemon.signal(signal.SIGTERM)
            while b"STOPPING=1" not in (last := await _datagram(listener)):
                assert b"WATCHDOG=1" in last
            assert await daemon.exit() == 0


async def _datagram(listener):
    return await trio.to_thread.run_sync(listener.recv, 4096)


async def test_a_notify_socket_nobody_listens_on(home):
    async with running(home, STAND_IN, env={"NOTIFY_SOCKET": "/nowhere/at/all"}) as daemon:
        assert await daemon.stop() == 0
