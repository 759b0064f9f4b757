"""A well-behaved process: ready line, daemon.json, lock, signals, exit codes, systemd (interfaces section 1)."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import time

import pytest
import trio

from tests.blackbox.support import HANG, Book, Daemon, Exited, connect, running, serving, until

STAND_IN = {"models.default": "offline/stand-in"}


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


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
    daemon = Daemon(home, options=("--set", "gateway.port=0", "--set", "models.default=offline/stand-in"))
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


# ------------------------------------------------------------------ ending


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it_gracefully(home, number):
    async with running(home, STAND_IN) as daemon, connect(daemon.url) as peer:
        await peer.hello(daemon.token, "web", "c1")
        assert await daemon.stop(number) == 0
        assert await peer.closed() in (1001, 1000, 1012)


async def test_a_stop_while_the_model_hangs_is_quick(tmp_path):
    async with serving(tmp_path, book := Book({"hello": HANG})) as daemon, daemon.client() as client:
        await client.say("hello")
        await book.reached(1)
        began = trio.current_time()
        assert await daemon.stop() == 0
        assert trio.current_time() - began < 5
        await book.abandoned()


async def test_a_stop_with_clients_that_do_not_react(home):
    """A hundred that sent hello and nothing more will not answer a close frame either."""
    async with running(home, {**STAND_IN, "run.shutdown_grace": 1.5}) as daemon, trio.open_nursery() as nursery:
        ready = []

        async def freeze():
            async with connect(daemon.url, lazy=True) as peer:
                await peer.hello(daemon.token, "web", f"c{len(ready)}")
                peer.socket._reader_running = False
                ready.append(peer)
                await trio.sleep_forever()

        for _ in range(20):
            nursery.start_soon(freeze)
        await until(lambda: len(ready) == 20, "twenty clients")
        began = trio.current_time()
        assert await daemon.stop() == 0
        assert trio.current_time() - began < 1.5 + 2
        nursery.cancel_scope.cancel()


def block_the_disk(daemon):
    """Put a FIFO nobody reads in place of the session: the next append waits for ever, as on a dead network file system."""
    path = daemon.home / "data" / "main" / "current.jsonl"
    path.rename(path.with_suffix(".aside"))
    os.mkfifo(path)


async def hang(daemon):
    """Make the daemon hang in such an append."""
    async with daemon.client() as client:
        await client.ask("hello")
        block_the_disk(daemon)
        await client.post("hello again")
        with trio.move_on_after(0.3):
            await client.reply(timeout=10)
            raise AssertionError("the disk is not blocked")


@pytest.mark.parametrize(("first", "second"), [(signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)])
async def test_a_second_signal_ends_a_hanging_stop_at_once(tmp_path, first, second):
    async with serving(tmp_path, Book()) as daemon:
        await hang(daemon)
        daemon.signal(first)
        with pytest.raises(AssertionError, match="the end of the process"):
            await daemon.exit(timeout=0.4)
        began = trio.current_time()
        assert await daemon.stop(second) == 128 + second
        assert trio.current_time() - began < 1


async def test_a_hanging_stop_ends_after_the_grace(tmp_path):
    async with serving(tmp_path, Book(), {"run.shutdown_grace": 0.1}) as daemon:
        await hang(daemon)
        assert await daemon.stop(timeout=8) == 128 + signal.SIGTERM


async def test_two_signals_at_once(home):
    """Both are there before the process gets to look: it ends, one way or the other, at once."""
    async with running(home, STAND_IN) as daemon:
        daemon.signal(signal.SIGSTOP)
        daemon.signal(signal.SIGTERM)
        daemon.signal(signal.SIGINT)
        daemon.signal(signal.SIGCONT)
        assert await daemon.exit(5) in (128 + signal.SIGTERM, 128 + signal.SIGINT)


async def test_a_signal_during_the_start_ends_it(home):
    daemon = Daemon(home, STAND_IN)
    for moment in (0.05, 0.12, 0.2):
        daemon.spawn()
        await trio.sleep(moment)
        daemon.signal(signal.SIGTERM)
        code = await daemon.exit(5)
        assert code in (0, -signal.SIGTERM, 143), daemon.stderr
        assert "Traceback" not in daemon.stderr


async def test_sighup_reloads_the_settings(tmp_path):
    async with serving(tmp_path, book := Book()) as daemon, daemon.client() as client:
        await client.ask("one")
        daemon.configure(models__default="test/model-2")
        daemon.signal(signal.SIGHUP)
        await until(lambda: "reloaded" in daemon.stderr, "a log line about the reload")
        await client.ask("two")
        assert [view.body["model"] for view in book.asked] == ["model-1", "model-2"]


async def test_sighup_with_a_mistake_keeps_the_old_settings_and_says_why(tmp_path):
    async with serving(tmp_path, Book()) as daemon, daemon.client() as client:
        daemon.configure(models__timeout=-1)
        daemon.signal(signal.SIGHUP)
        await until(lambda: "models.timeout" in daemon.stderr, "the mistake in the log")
        assert await client.ask("hello") == "echo: hello"


async def test_a_closed_stdout_and_stderr_are_no_problem(home, tmp_path):
    """As after a terminal was closed; the log file goes on."""
    daemon = Daemon(home, STAND_IN)
    daemon.configure()
    script = f"exec {' '.join(map(_quoted, _command(daemon)))} >&- 2>&- <&-"
    async with trio.open_nursery() as nursery:
        process = await nursery.start(_run_shell, script, daemon.env)
        facts = home / "run" / "daemon.json"
        await until(facts.exists, "daemon.json")
        url = json.loads(facts.read_text())["ws"]
        async with connect(url) as peer:
            await peer.hello(daemon.token, "web", "c1")
            await peer.ask("hello")
        process.terminate()
        assert await process.wait() == 0
        nursery.cancel_scope.cancel()


def _command(daemon):
    from tests.blackbox.support.daemon import PROGRAM

    return [*PROGRAM, "--home", str(daemon.home), "run", "--no-cli"]


def _quoted(word):
    return "'" + word + "'"


async def _run_shell(script, env, task_status):
    process = await trio.lowlevel.open_process(["sh", "-c", script], env=env)
    try:
        task_status.started(process)
        await process.wait()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


# ------------------------------------------------------------------ refusing to start


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


@pytest.mark.parametrize("name", ["run", "logs", "data", "lock", "token", "workspace"])
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
            daemon.signal(signal.SIGTERM)
            while b"STOPPING=1" not in (last := await _datagram(listener)):
                assert b"WATCHDOG=1" in last
            assert await daemon.exit() == 0


async def _datagram(listener):
    return await trio.to_thread.run_sync(listener.recv, 4096)


async def test_a_notify_socket_nobody_listens_on(home):
    async with running(home, STAND_IN, env={"NOTIFY_SOCKET": "/nowhere/at/all"}) as daemon:
        assert await daemon.stop() == 0
