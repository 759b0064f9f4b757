"""Signals: a graceful stop, a second one at once, SIGHUP; and what hangs is ended."""

from __future__ import annotations

import json
import shlex
import signal
from contextlib import asynccontextmanager

import pytest
import trio

from tests.blackbox.support import HANG, Book, Daemon, connect, running, serving, until
from tests.blackbox.support.command import PROGRAM
from tests.blackbox.support.shared_state import silent_database
from tests.blackbox.support.work import Effects, Office, act

STAND_IN = {"models.default": "offline/stand-in"}


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


async def test_a_stop_ends_in_time_while_a_model_call_hangs_and_a_command_ignores_term(tmp_path):
    """Exit code 0 within the grace and one second, and nothing that was started lives on."""
    work, grace = Effects(tmp_path), 5.0
    stubborn = "trap '' TERM; setsid sh -c \"trap '' TERM; sleep 600\" & sleep 600"
    book = Office({"dig": act(work.shell("dug", stubborn))}, {"hello": HANG})
    async with serving(tmp_path, book, {"run.shutdown_grace": grace}) as daemon:
        async with daemon.client() as client, daemon.client(channel_id="c2") as other:
            await client.say("do dig")
            await work.happened("dug")
            asked = len(book.asked)
            await other.say("hello")
            await book.reached(asked + 1)
        began = trio.current_time()
        assert await daemon.stop() == 0, daemon.stderr[-2000:]
        assert trio.current_time() - began < grace + 1
        assert work.processes() == []


async def test_a_stop_with_clients_that_do_not_react(home):
    """They do not answer the close frame either."""
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


HANGING_DISK = """
import os, pathlib, time

real, marker = os.fdatasync, pathlib.Path(os.environ["HANG_WHILE"])

def fdatasync(fd):
    while marker.exists():
        time.sleep(0.01)
    real(fd)

os.fdatasync = fdatasync
"""
"""Python runs a `sitecustomize` of its path before the program."""


@asynccontextmanager
async def hanging(folder, settings=None):
    """A daemon whose disk, as on a dead network file system, or database does not answer any more, in the middle of a message."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(HANGING_DISK)
    env = {"PYTHONPATH": str(folder / "site"), "HANG_WHILE": str(folder / "hang")}
    async with serving(folder, Book(), settings, env=env) as daemon, daemon.client() as client:
        await client.ask("hello")
        (folder / "hang").touch()
        with silent_database():
            await client.post("hello again")
            with trio.move_on_after(0.3):
                await client.reply(timeout=10)
                raise AssertionError("the disk is not blocked")
            yield daemon


@pytest.mark.parametrize(("first", "second"), [(signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)])
async def test_a_second_signal_ends_a_hanging_stop_at_once(tmp_path, first, second):
    async with hanging(tmp_path) as daemon:
        daemon.signal(first)
        with pytest.raises(AssertionError, match="the end of the process"):
            await daemon.exit(timeout=0.4)
        began = trio.current_time()
        assert await daemon.stop(second) == 128 + second
        assert trio.current_time() - began < 1


async def test_a_hanging_stop_ends_after_the_grace(tmp_path):
    async with hanging(tmp_path, {"run.shutdown_grace": 0.1}) as daemon:
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


async def test_a_closed_stdout_and_stderr_are_no_problem(home):
    """As after a terminal was closed; the log file goes on."""
    daemon = Daemon(home, STAND_IN)
    daemon.configure()
    command = shlex.join([*PROGRAM, "--home", str(daemon.home), "run", "--no-cli"])
    async with trio.open_nursery() as nursery:
        process = await nursery.start(_run_shell, f"exec {command} >&- 2>&- <&-", daemon.env)
        facts = home / "run" / "daemon.json"
        await until(facts.exists, "daemon.json")
        url = json.loads(facts.read_text())["ws"]
        async with connect(url) as peer:
            await peer.hello(daemon.token, "web", "c1")
            await peer.ask("hello")
        process.terminate()
        assert await process.wait() == 0
        nursery.cancel_scope.cancel()


async def _run_shell(script, env, task_status):
    process = await trio.lowlevel.open_process(["sh", "-c", script], env=env)
    try:
        task_status.started(process)
        await process.wait()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
