"""Commands, real ones: what they say, what they may use, how they end."""

import os
import random
import resource
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import trio

from pegasus.sandbox import guarded, strays
from pegasus.sandbox.guarded import CommandLimits, ProcessError
from pegasus.sandbox.process import run_process
from tests.pegasus.sandbox.processes import PYTHON, QUICK, Bell, alive, gone

# ------------------------------------------------------------------ what it says


async def test_both_streams_and_the_exit_code(run):
    ended = await run("echo out; echo err >&2; exit 3")
    assert (ended.exit_code, ended.stdout, ended.stderr, ended.truncated) == (3, "out\n", "err\n", False)


async def test_a_program_without_a_shell(run):
    ended = await run(["printf", "%s|", "a b", "$HOME", "*"])
    assert ended.stdout == "a b|$HOME|*|"


async def test_it_runs_where_it_is_told_to(run, tmp_path):
    assert (await run("pwd -P")).stdout.strip() == str(tmp_path.resolve())


async def test_nothing_can_be_read_unless_given(run):
    assert (await run("cat; readlink /proc/self/fd/0")).stdout == "/dev/null\n"


async def test_a_large_input_meets_a_large_output(run):
    """Neither side waits for the other for ever."""
    data = b"0123456789abcdef" * 100_000
    ended = await run("cat", stdin=data, limits=CommandLimits(output=2 * len(data)))
    assert ended.stdout.encode() == data


async def test_an_input_that_nobody_reads(run):
    ended = await run("exec <&-; echo ok", stdin=b"x" * 1_000_000)
    assert ended.stdout == "ok\n"


async def test_bytes_that_are_no_text(run):
    assert (await run(r"printf 'a\377b\000c\303'")).stdout == "a\ufffdb\0c\ufffd"


async def test_both_pipes_full_at_once(run):
    code = "import os\nfor n in range(300): os.write(1, b'o' * 10000); os.write(2, b'e' * 10000)"
    ended = await run([PYTHON, "-c", code], limits=CommandLimits(output=10_000_000))
    assert (len(ended.stdout), len(ended.stderr)) == (3_000_000, 3_000_000)


async def test_the_middle_of_a_long_output_is_left_out(run):
    ended = await run(
        [PYTHON, "-c", "print('A' * 1000 + 'm' * 500_000 + 'Z' * 1000)"], limits=CommandLimits(output=1000)
    )
    assert ended.truncated
    assert ended.stdout == "A" * 500 + "\n… 501,001 bytes left out …\n" + "Z" * 499 + "\n"


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (11, "SIGSEGV"), (15, "SIGTERM"), (6, "SIGABRT")])
async def test_an_end_by_a_signal_is_told(run, number, name):
    ended = await run(f"kill -{number} $$")
    assert (ended.exit_code, ended.signal) == (128 + number, name)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["no-such-program"], "cannot run no-such-program: No such file or directory"),
        (["/"], "cannot run /: Permission denied"),
        (["a\0b"], "cannot run it: ValueError: embedded null byte"),
    ],
)
async def test_what_cannot_be_started(run, command, reason):
    with pytest.raises(ProcessError, match=reason):
        await run(command)


async def test_a_folder_that_is_not_there(run, tmp_path):
    with pytest.raises(ProcessError, match="nowhere: No such file or directory"):
        await run_process("true", cwd=tmp_path / "nowhere", env={})


# ------------------------------------------------------------------ what it may use


async def test_no_file_descriptor_of_the_daemon_is_handed_on(run):
    ours, theirs = os.pipe()
    try:
        os.set_inheritable(ours, True)
        ended = await run([PYTHON, "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:4])"])
    finally:
        os.close(ours)
        os.close(theirs)
    assert ended.stdout == "[0, 1, 2, 3]\n"  # 3 is the listing itself


async def test_signals_are_as_a_program_expects_them(run):
    """Neither the daemon's nor the guard's own dispositions are inherited: no signal is ignored or blocked."""
    ended = await run("grep -E 'Sig(Blk|Ign)' /proc/self/status")
    assert ended.stdout.split() == ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16]


async def test_a_file_beyond_the_limit(run):
    ended = await run("exec head -c 1000000 /dev/zero > big", limits=CommandLimits(file_size=10_000))
    assert ended.signal == "SIGXFSZ"


async def test_memory_beyond_the_limit(run):
    ended = await run([PYTHON, "-c", "bytearray(1 << 30)"], limits=CommandLimits(memory=300 << 20))
    assert "MemoryError" in ended.stderr


async def test_no_core_is_dumped(run):
    """Whatever the daemon itself may have."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        assert (await run("ulimit -c")).stdout == "0\n"
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


# ------------------------------------------------------------------ floods


async def test_a_gigabyte_costs_no_memory_and_ends_the_command(run):
    await run("true")
    tracemalloc.start()
    try:
        ended = await run("head -c 1073741824 /dev/zero; touch finished")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert ended.exceeded == "output"
    assert ended.truncated
    assert peak < 2_000_000


async def test_others_go_on_during_a_flood(run, tmp_path):
    """While one command floods without end, another starts and ends in the same loop."""
    there = Bell(tmp_path / "there")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run("echo > there; exec yes", limits=CommandLimits(flood=1 << 60)))
        await there.wait()
        with trio.fail_after(10):
            assert (await run("echo here")).stdout == "here\n"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("stream", [1, 2])
async def test_a_flood_of_a_program_that_ignores_its_end(run, stream):
    ended = await run(
        f"trap '' TERM; while :; do echo xxxxxxxxxxxxxxxx >&{stream}; done",
        limits=CommandLimits(flood=100_000, grace=0.2),
    )
    assert (ended.exceeded, ended.signal) == ("output", "SIGKILL")


# ------------------------------------------------------------------ ends


async def test_a_timeout_keeps_what_was_said(run):
    ended = await run("echo before; sleep 1000", timeout=0.3)
    assert (ended.timed_out, ended.exit_code, ended.stdout) == (True, 124, "before\n")


async def test_a_program_may_clean_up_at_term(run):
    ended = await run("trap 'echo cleaned; exit 0' TERM; echo up; while :; do sleep 0.05; done", timeout=0.5)
    assert ended.stdout == "up\ncleaned\n"


async def test_a_program_that_ignores_term_is_killed(run):
    ended = await run("trap '' TERM INT HUP; echo up; while :; do sleep 1000; done", timeout=0.3)
    assert (ended.timed_out, ended.signal, ended.stdout) == (True, "SIGKILL", "up\n")
    assert ended.seconds < 0.3 + QUICK.grace + 2


async def test_a_stopped_program_ends(run):
    assert (await run("kill -STOP $$", timeout=0.3)).timed_out


async def test_children_in_the_background_end_with_the_call(run):
    ended = await run("sleep 1000 & sleep 1000 & echo started")
    assert (ended.exit_code, ended.stdout, ended.outlived) == (0, "started\n", 2)
    assert ended.seconds < 5


async def test_nothing_outlives_a_plain_command(run):
    assert (await run("sleep 0.01; echo a | cat")).outlived == 0


DAEMON = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open("daemon", "w").write(str(os.getpid()))
while True: signal.pause()
"""


@pytest.mark.parametrize("keeps_pipe", [True, False])
async def test_a_daemon_that_ignores_term_ends(run, tmp_path, keeps_pipe):
    """Double fork, own session, TERM and HUP ignored: it cannot escape, whether it holds the output open or not."""
    (tmp_path / "daemon.py").write_text(DAEMON)
    silence = "" if keeps_pipe else "</dev/null >/dev/null 2>&1"
    ended = await run(f"{PYTHON} daemon.py {silence}; while [ ! -s daemon ]; do sleep 0.01; done; echo done")
    assert (ended.exit_code, ended.stdout, ended.outlived) == (0, "done\n", 1)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "daemon").read_text()), 0)


async def test_setsid_and_nohup_end(run):
    ended = await run("setsid sleep 1000 & nohup sleep 1000 >/dev/null 2>&1 & (setsid setsid sleep 1000 &) ; sleep 0.2")
    assert ended.outlived == 3


async def test_a_daemon_with_an_empty_environment_ends(run, tmp_path):
    """Descent is what counts, not what a process carries."""
    await run(
        "env -i setsid sh -c 'echo $$ > pid; trap \"\" TERM; while :; do sleep 1; done' & while [ ! -s pid ]; do :; done"
    )
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


RUNNER = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
count = 0
while True:
    if os.fork():
        os._exit(0)
    count += 1
    if count == 100: open("running", "w").close()
"""


async def test_a_process_that_flees_from_pid_to_pid_ends(run, tmp_path):
    """It forks and its parent ends, again and again: whoever looks for it has an old number."""
    (tmp_path / "runner.py").write_text(RUNNER)
    await run(f"{PYTHON} runner.py & while [ ! -e running ]; do sleep 0.01; done", limits=CommandLimits(grace=0.05))


BOMB = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(6): os.fork()
open(f"member{os.getpid()}", "w").close()
while True: signal.pause()
"""


async def test_a_crowd_that_ignores_term_ends(run, tmp_path):
    (tmp_path / "bomb.py").write_text(BOMB)
    await run(f"{PYTHON} bomb.py & while [ $(ls member* 2>/dev/null | wc -l) -lt 64 ]; do sleep 0.02; done")
    assert len(list(tmp_path.glob("member*"))) == 64


async def test_a_cancelled_call_returns_when_all_has_ended(run, tmp_path, mark):
    up = Bell(tmp_path / "up")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                run, "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo > up; sleep 1000' & wait; sleep 1000"
            )
            await up.wait()
            scope.cancel()
    assert alive(mark) == {}


async def test_cancelled_at_any_moment(run, mark):
    """From before its start to after its end: nothing is left, and no file stays open."""
    before = len(os.listdir("/proc/self/fd"))
    chance = random.Random(4)
    for _ in range(40):
        with trio.move_on_after(chance.uniform(0, 0.06)):
            await run("setsid sleep 1000 & sleep 0.01", limits=CommandLimits(grace=0.05))
        assert alive(mark) == {}
    assert len(os.listdir("/proc/self/fd")) == before


async def test_many_at_once(run):
    answers = {}

    async def one(n):
        answers[n] = await run(f"sleep 1000 & echo {n}; exit {n}")

    async with trio.open_nursery() as nursery:
        for n in range(30):
            nursery.start_soon(one, n)
    assert {n: (ended.exit_code, ended.stdout) for n, ended in answers.items()} == {n: (n, f"{n}\n") for n in range(30)}


# ------------------------------------------------------------------ attacks on the guard


async def test_the_command_kills_its_guard(run):
    """Its children are found by the call's mark."""
    ended = await run("setsid sleep 1000 & setsid sleep 1000 & kill -9 $PPID; sleep 1000")
    assert ended.signal == "SIGKILL"


async def test_the_command_kills_its_guard_before_that_can_say_anything(run, monkeypatch):
    """It has begun for all that: nobody may be told that it has not."""
    monkeypatch.setattr(guarded.GuardedProcess, "take_report", lambda call, data: None)
    ended = await run("kill -9 $PPID; sleep 1000")
    assert (ended.exit_code, ended.signal) == (137, "SIGKILL")


def test_a_process_that_is_becoming_another_program_is_found_too(mark, monkeypatch):
    """Meanwhile its environment is empty."""
    looks, real = [], strays._read_environment
    name, _, value = mark.partition("=")
    with subprocess.Popen(["sleep", "1000"], env={"PATH": os.environ["PATH"], name: value}) as child:

        def environment(pid):
            if pid != str(child.pid):
                return real(pid)
            looks.append(pid)
            return b"" if len(looks) == 1 else real(pid)

        monkeypatch.setattr(strays, "_read_environment", environment)
        strays.kill_marked(mark)
        try:
            assert child.wait(timeout=5) == -signal.SIGKILL
        finally:
            child.kill()


async def test_the_command_stops_its_guard(run, monkeypatch):
    monkeypatch.setattr("pegasus.sandbox.guarded._GUARD_LIMIT", 0.3)
    await run("kill -STOP $PPID; env -i setsid sleep 1000 & sleep 1000", timeout=0.5)


async def test_the_command_asks_its_guard_to_end(run):
    ended = await run("kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; sleep 0.1; echo unmoved")
    assert ended.stdout == "unmoved\n"


# ------------------------------------------------------------------ the daemon dies

PARENT = """
import os, sys, trio
from pegasus.sandbox.process import CommandLimits, run_process

async def main():
    limits = CommandLimits(grace=0.2)
    async with trio.open_nursery() as nursery:
        for command in sys.argv[2:]:
            nursery.start_soon(lambda c=command: run_process(c, cwd=sys.argv[1], env=dict(os.environ), limits=limits))

trio.run(main)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_daemon_that_is_killed_leaves_nothing_behind(number, mark, tmp_path):
    """kill -9 of the parent: the guards see their pipe end, and end everything, TERM-ignoring sessions of their own included."""
    name, _, value = mark.partition("=")
    commands = [
        "echo > one; exec sleep 1000",
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo > two; while :; do sleep 1; done' & wait; sleep 1000",
        "echo > three; exec yes",
    ]
    bells = [Bell(tmp_path / file) for file in ("one", "two", "three")]
    (tmp_path / "parent.py").write_text(PARENT)
    parent = await trio.lowlevel.open_process(
        [sys.executable, tmp_path / "parent.py", str(tmp_path), *commands], env={**os.environ, name: value}
    )
    for bell in bells:
        await bell.wait()
    assert len(alive(mark)) > 3
    parent.send_signal(number)
    await parent.wait()
    await gone(mark)


# ------------------------------------------------------------------ without a subreaper (macOS, some sandboxes)


@pytest.fixture
def without_adoption(monkeypatch, tmp_path):
    source = Path(guarded._GUARD).read_text()
    adopting = "self.adopts = prctl(_PR_SET_CHILD_SUBREAPER, 1)"
    assert adopting in source
    (tmp_path / "guard.py").write_text(source.replace(adopting, "self.adopts = False"))
    monkeypatch.setattr(guarded, "_GUARD", str(tmp_path / "guard.py"))


async def test_the_group_ends_without_adoption(run, without_adoption):
    ended = await run("trap '' TERM; sleep 1000 & sleep 1000", timeout=0.3)
    assert (ended.timed_out, ended.signal) == (True, "SIGKILL")


async def test_new_sessions_are_found_by_their_mark_without_adoption(run, without_adoption):
    assert (await run("setsid sleep 1000 & sleep 0.1; exit 4")).exit_code == 4


async def test_what_has_escaped_and_holds_the_pipes_open_is_not_waited_for_long(run, without_adoption, monkeypatch):
    """A session of its own and another environment: without adoption nothing finds such a process."""
    monkeypatch.setattr(guarded, "PIPE_LIMIT", 0.1)
    with trio.fail_after(5):
        ended = await run("echo said; env -i setsid sleep 8 & sleep 0.3; exit 4")
    assert (ended.exit_code, ended.stdout) == (4, "said\n")
