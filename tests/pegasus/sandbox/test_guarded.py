"""Processes that are used while they run: their streams, their terminal, their end."""

import os
import signal
import sys

import pytest
import trio
import trio.lowlevel
import trio.testing

from pegasus.sandbox import CommandLimits, ProcessError, guarded, open_process
from pegasus.sandbox.guarded import ProcessEnd
from tests.pegasus.sandbox.processes import PYTHON, QUICK, Bell, alive, gone


@pytest.fixture
def start(environment, tmp_path):
    env = {**environment, "PS1": "> "}

    def start(command, **more):
        return open_process(command, cwd=tmp_path, env=env, **{"limits": QUICK, **more})

    return start


async def read_until(stream, wanted):
    """Everything that was written up to `wanted`."""
    text = b""
    with trio.fail_after(20):
        while wanted not in text:
            data = await stream.receive_some()
            assert data, text
            text += data
    return text


async def read_all(stream):
    with trio.fail_after(20):
        return b"".join([data async for data in stream])


# ------------------------------------------------------------------ streams


async def test_questions_and_answers(start):
    async with start('while read line; do echo "<$line>"; echo seen >&2; done; exit 3', stdin=True) as process:
        for word in (b"one", b"two"):
            await process.stdin.send_all(word + b"\n")
            assert await read_until(process.stdout, b"\n") == b"<" + word + b">\n"
        await process.stdin.aclose()
        assert await process.wait() == ProcessEnd(3)
        assert await read_all(process.stderr) == b"seen\nseen\n"


async def test_both_streams_in_one_keep_the_order_of_writing(start):
    async with start("for n in 1 2 3; do echo out $n; echo err $n >&2; done", merged=True) as process:
        assert process.stderr is None
        assert await read_all(process.stdout) == b"out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"


async def test_its_number_is_known(start):
    async with start("echo $$; cat", stdin=True) as process:
        assert int(await read_until(process.stdout, b"\n")) == process.pid


async def test_a_process_that_nobody_reads_from_waits(start):
    """The caller decides how fast it reads: nothing is lost, and nothing is kept in memory."""
    async with start("head -c 1000000 /dev/zero; echo end") as process:
        await trio.lowlevel.checkpoint()
        assert (await read_until(process.stdout, b"end\n")).count(b"\0") == 1_000_000


@pytest.mark.parametrize("command", [["no-such-program"], ["/"], ["a\0b"]])
async def test_a_program_that_cannot_be_started_is_refused_at_once(start, command):
    with pytest.raises(ProcessError, match="cannot run"):
        async with start(command):
            raise AssertionError("it was started")


# ------------------------------------------------------------------ ends


HOSTILE = (
    "trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM HUP; echo up; while :; do sleep 100; done' & wait; sleep 100"
)


async def test_leaving_the_block_ends_everything(start, mark):
    async with start(HOSTILE) as process:
        await read_until(process.stdout, b"up\n")
    assert alive(mark) == {}


async def test_a_stop_ends_everything_and_can_be_repeated(start, mark):
    async with start(HOSTILE) as process:
        await read_until(process.stdout, b"up\n")
        ended = await process.stop()
        assert alive(mark) == {}
        assert ended.signal == "SIGKILL"
        assert await process.stop() == await process.wait() == ended


async def test_many_may_wait_for_the_end(start):
    seen = []
    async with start("cat", stdin=True) as process, trio.open_nursery() as nursery:

        async def wait():
            seen.append(await process.wait())

        for _ in range(5):
            nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await process.stdin.aclose()
    assert seen == [ProcessEnd(0)] * 5


async def test_a_cancelled_wait_leaves_it_running(start):
    async with start("cat", stdin=True) as process:
        with trio.move_on_after(0.05):
            await process.wait()
        await process.stdin.send_all(b"still here\n")
        assert await read_until(process.stdout, b"\n") == b"still here\n"


async def test_a_cancel_ends_it_first(start, mark):
    with trio.CancelScope() as scope:
        async with start(HOSTILE) as process:
            await read_until(process.stdout, b"up\n")
            scope.cancel()
            await trio.sleep_forever()
    assert alive(mark) == {}


async def test_a_process_that_has_closed_its_output_ends_too(start):
    async with start("exec >/dev/null 2>&1; echo; sleep 100") as process:
        assert await read_all(process.stdout) == b""
        assert (await process.stop()).signal == "SIGTERM"


async def test_what_it_has_left_running_is_ended_and_counted(start):
    async with start("setsid sleep 100 & sleep 100 &") as process:
        assert await process.wait() == ProcessEnd(0, None, 2)


async def test_no_descriptor_stays_open(start):
    async with start("true"):
        pass
    before = len(os.listdir("/proc/self/fd"))
    for terminal in (False, True):
        async with start("cat", stdin=True, terminal=terminal):
            pass
        with pytest.raises(ProcessError):
            async with start(["no-such-program"], terminal=terminal):
                pass
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_guard_that_was_stopped_before_it_could_report_the_start(start, mark, monkeypatch):
    """The caller is not kept waiting, and leaving the block ends the command."""
    monkeypatch.setattr(guarded, "_GUARD_LIMIT", 0.3)
    monkeypatch.setattr(guarded.GuardedProcess, "take_report", lambda process, data: None)
    async with start("kill -STOP $PPID; echo running; sleep 100") as process:
        assert await read_until(process.stdout, b"\n") == b"running\n"
    assert alive(mark) == {}


# ------------------------------------------------------------------ terminal


async def test_a_terminal_has_a_size_and_is_the_controlling_one(start):
    script = "import os; print(os.get_terminal_size(), os.ttyname(0) == os.ttyname(2), os.tcgetpgrp(0) == os.getpgrp())"
    async with start([PYTHON, "-c", script], terminal=True) as process:
        assert (await read_all(process.stdout)).strip() == b"os.terminal_size(columns=120, lines=40) True True"


async def test_the_interrupt_character_ends_what_runs_in_the_foreground(start):
    async with start(
        "trap 'echo interrupted; exit 5' INT; echo up; while :; do sleep 0.05; done", terminal=True
    ) as process:
        await read_until(process.stdout, b"up\r\n")
        await process.stdin.send_all(b"\x03")
        assert b"interrupted" in await read_all(process.stdout)
        assert (await process.wait()).exit_code == 5


async def test_an_interactive_shell_ends_although_it_ignores_term(start):
    async with start(["/bin/sh", "-i"], terminal=True, limits=CommandLimits(grace=20)) as process:
        await process.stdin.send_all(b"echo $((40 + 2)); sleep 100 &\n")
        await read_until(process.stdout, b"42\r\n")
        with trio.fail_after(10):
            await process.stop()


async def test_no_session_escapes_with_the_terminal(start, mark):
    async with start(HOSTILE, terminal=True) as process:
        await read_until(process.stdout, b"up\r\n")
        await process.stop()
        assert alive(mark) == {}


# ------------------------------------------------------------------ the daemon dies

PARENT = """
import os, sys, trio
from pegasus.sandbox import guarded, CommandLimits, open_process

async def main():
    for terminal in (False, True):
        await open_process(sys.argv[2], cwd=sys.argv[1], env=dict(os.environ), stdin=True, terminal=terminal,
                           limits=CommandLimits(grace=0.2)).__aenter__()
    await trio.sleep_forever()

trio.run(main)
"""


async def test_a_daemon_that_is_killed_leaves_nothing_behind(mark, tmp_path):
    name, _, value = mark.partition("=")
    bell = Bell(tmp_path / "up")
    (tmp_path / "parent.py").write_text(PARENT)
    parent = await trio.lowlevel.open_process(
        [sys.executable, tmp_path / "parent.py", str(tmp_path), HOSTILE.replace("echo up", "echo > up")],
        env={**os.environ, name: value},
    )
    await bell.wait()
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await gone(mark)
