"""Commands within walls of both kinds: what they cannot reach, what they can still do, and that they end as others do."""

import os
import signal
import socket
import sys
import tempfile
from contextlib import ExitStack

import attrs
import pytest
import trio

from pegasus.sandbox import ProcessError, open_process
from tests.pegasus.sandbox.processes import PYTHON, QUICK, Bell, alive, gone
from tests.pegasus.sandbox.walls import SECRET, make_home, make_sandbox


@pytest.fixture
def sandbox(each_kind):
    return each_kind


@pytest.fixture
def environment(environment, home):
    return {**environment, "HOME": os.environ["HOME"]}


# ------------------------------------------------------------------ files


async def test_keys_settings_and_the_persons_files_are_out_of_reach(run, home):
    found = await run(f"cat {home}/token {home}/pegasus.toml {home.parent}/diary; ls -R {home.parent} {home}")
    assert SECRET not in found.stdout
    assert "token" not in found.stdout
    assert "diary" not in found.stdout


async def test_the_workspace_can_be_written_and_the_system_read(run, home):
    found = await run("echo kept > file && mkdir -p a/b && mv file a/b && cat a/b/file && head -c 4 /etc/passwd")
    assert found.stdout == "kept\nroot"
    assert (home / "workspace/a/b/file").read_text() == "kept\n"


async def test_the_system_cannot_be_written(run):
    found = await run("echo x > /etc/pegasus-test; echo x > /usr/pegasus-test; rm -f /etc/hostname; ls /etc/hostname")
    assert found.stdout == "/etc/hostname\n"
    assert "pegasus-test" not in os.listdir("/etc") + os.listdir("/usr")


async def test_each_command_has_a_folder_for_temporary_files_that_goes_with_it(run, home):
    found = await run(
        'echo x > "$TMPDIR/f" && cat "$TMPDIR/f"; mkdir "$TMPDIR/d"; touch "$TMPDIR/d/g"; chmod 0 "$TMPDIR/d"'
    )
    assert found.stdout == "x\n"
    assert os.listdir(home / "run/commands") == []
    assert (await run('ls "$TMPDIR"/f "$TMPDIR"/d')).stdout == ""


async def test_it_has_a_home_of_its_own_for_caches(run, home):
    found = await run('cd && echo x > ~/.cache-of-it && cat ~/.cache-of-it; ls "$HOME"')
    assert found.stdout == "x\n"
    assert not (home.parent / ".cache-of-it").exists()


async def test_opened_folders_can_be_written_but_never_the_home_within_them(home, tmp_path, run, sandbox):
    (tmp_path / "other").mkdir()
    opened = make_sandbox(home, sandbox.kind, writable=(str(tmp_path / "other"),), allowed_paths=(str(home.parent),))
    found = await run(
        f"echo x > {tmp_path}/other/f; cat {home.parent}/diary; cat {home}/token; echo kept > g", sandbox=opened
    )
    assert (tmp_path / "other/f").read_text() == "x\n"
    assert (home / "workspace/g").read_text() == "kept\n"
    assert found.stdout == SECRET, "the diary, which was opened, and not the token"


async def test_everything_opened_is_everything_but_the_agents_own_home(home, run, sandbox):
    opened = make_sandbox(home, sandbox.kind, allowed_paths=("/",))
    found = await run(f"cat {home.parent}/diary; cat {home}/token; echo > g; ls", sandbox=opened)
    assert found.stdout == f"{SECRET}g\n"


async def test_a_home_in_an_opened_folder_cannot_be_moved_out_of_its_hiding_place(tmp_path, run, sandbox):
    """The folders above it cannot be renamed: under another name it would not be hidden from the next command."""
    deep = make_home(tmp_path / "a/b")
    opened = make_sandbox(deep, sandbox.kind, writable=(str(tmp_path),))
    await run(
        f"cd {tmp_path}; mv a z; mv a/b z; mv a/b/person z; mv {deep} z", sandbox=opened, folder=deep / "workspace"
    )
    assert (deep / "token").read_text() == SECRET
    found = await run(f"cat {tmp_path}/z*/token {tmp_path}/*/*/*/.pegasus/token; ls {tmp_path}/a/b", sandbox=opened)
    assert SECRET not in found.stdout


async def test_what_programs_share_in_memory_is_their_own(run):
    share = "import multiprocessing as m; l = m.Lock(); v = m.Value('i', 3); print(v.value)"
    assert (await run([PYTHON, "-c", share])).stdout == "3\n"


async def test_the_kernels_own_files_cannot_be_written(run):
    names = "/proc/sys/kernel/core_pattern /proc/sysrq-trigger /sys/kernel/uevent_helper /proc/sys/kernel/hostname"
    found = await run(
        f'for f in {names}; do [ -e $f ] && sh -c "cat $f > $f" 2>/dev/null && echo written $f; done; echo end'
    )
    assert found.stdout == "end\n"


async def test_terminals_of_others_are_out_of_reach(run):
    master, slave = os.openpty()
    try:
        found = await run(f"echo typed > {os.ttyname(slave)} && echo written")
        assert found.stdout == ""
    finally:
        os.close(master)
        os.close(slave)


async def test_a_hard_link_leads_nowhere(run, home):
    found = await run(f"ln {home}/token stolen; ln -s {home}/token link; cat stolen link")
    assert SECRET not in found.stdout
    assert not (home / "workspace/stolen").exists()


async def test_python_runs_wherever_it_is_installed(run):
    assert (await run([PYTHON, "-c", "import json, ssl; print(6 * 7)"])).stdout == "42\n"


# ------------------------------------------------------------------ processes


async def test_it_cannot_signal_or_look_into_processes_outside(run):
    pid = os.getpid()
    found = await run(f"kill -0 {pid} 2>/dev/null && echo signalled; cat /proc/{pid}/environ 2>/dev/null; echo here")
    assert found.stdout == "here\n"


async def test_it_can_neither_kill_nor_stop_its_guard(run):
    """Everything that it has started ends with it all the same, also what has left its session and its environment."""
    attack = "for p in $PPID 1; do kill -9 $p; kill -STOP $p; done 2>/dev/null"
    found = await run(f"{attack}; env -i setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & sleep 0.2; echo alive")
    assert (found.exit_code, found.stdout, found.outlived) == (0, "alive\n", 2)


async def test_it_cannot_attach_itself_to_its_guard(run):
    """A tracer could make the guard do anything."""
    attach = "import ctypes, os; c = ctypes.CDLL(None); print([c.ptrace(16, p, None, None) for p in (os.getppid(), 1)])"
    assert (await run([PYTHON, "-c", attach], timeout=5.0)).stdout == "[-1, -1]\n"


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
async def test_an_attacked_guard_still_ends_everything_at_the_timeout(run, number):
    ended = await run(f"kill -{int(number)} $PPID 1; trap '' TERM; sleep 1000", timeout=0.5)
    assert (ended.timed_out, ended.signal) == (True, "SIGKILL")
    assert ended.seconds < 0.5 + QUICK.grace + 2


async def test_it_may_clean_up_at_term(run):
    ended = await run("trap 'echo cleaned; exit 0' TERM; echo up; while :; do sleep 0.05; done", timeout=0.7)
    assert ended.stdout == "up\ncleaned\n"


async def test_children_that_outlive_it_are_counted_and_ended(run):
    ended = await run("sleep 1000 & setsid sleep 1000 & echo started; sleep 0.2")
    assert (ended.exit_code, ended.stdout, ended.outlived) == (0, "started\n", 2)


async def test_exit_codes_and_signals_arrive(run):
    assert (await run("exit 7")).exit_code == 7
    ended = await run("kill -SEGV $$")
    assert (ended.exit_code, ended.signal) == (139, "SIGSEGV")


async def test_what_is_not_there_is_refused(run):
    with pytest.raises(ProcessError, match="cannot run no-such-program: No such file"):
        await run(["no-such-program"])


async def test_a_cancel_ends_all_of_it(run, home, mark):
    up = Bell(home / "workspace/up")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                run, "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo > up; sleep 1000' & wait; sleep 1000"
            )
            await up.wait()
            scope.cancel()
    assert alive(mark) == {}
    assert os.listdir(home / "run/commands") == []


async def test_output_ends_when_the_command_closes_it(home, sandbox, mark):
    """Nothing in between holds the pipe open."""
    name, _, value = mark.partition("=")
    env = {"PATH": os.environ["PATH"], name: value}
    async with open_process(
        "echo said; exec >&- 2>&-; sleep 1000", cwd=home / "workspace", env=env, limits=QUICK, sandbox=sandbox
    ) as process:
        with trio.fail_after(10):
            assert b"".join([part async for part in process.stdout]) == b"said\n"


async def test_a_terminal(run):
    found = await run("stty size; test -t 0 && echo terminal; echo x > /dev/tty", terminal=True)
    assert found.stdout.split() == ["40", "120", "terminal", "x"]


async def test_it_has_neither_privileges_nor_a_way_to_get_them(run):
    found = await run("grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status")
    effective, bound, no_more = found.stdout.split()[1::2]
    assert (effective, no_more) == ("0" * 16, "1")
    assert bound == "0" * 16 or os.geteuid(), "a user cannot drop what it does not have"


async def test_the_kernel_ends_it_before_the_daemon(run):
    """It cannot make itself, or its guard, a later or an earlier one."""
    found = await run("for p in self 1; do echo 0 > /proc/$p/oom_score_adj; done; cat /proc/self/oom_score_adj")
    assert int(found.stdout) >= 800


# ------------------------------------------------------------------ network

REACHES = """
import socket, sys
def attempt(what, *call):
    try:
        what(*call)
        print("reached")
    except OSError as error:
        print("refused")
def tcp(): socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2)
def path(): socket.socket(socket.AF_UNIX).connect(sys.argv[2])
def abstract(): socket.socket(socket.AF_UNIX).connect("\\0" + sys.argv[3])
def pair(address, kind):
    one, _ = socket.socketpair(socket.AF_UNIX, kind)
    one.sendto(b"x", address)
def pair_path(): pair(sys.argv[4], socket.SOCK_DGRAM)
def pair_abstract(): pair("\\0" + sys.argv[3] + "-packets", socket.SOCK_DGRAM)
def pair_raw(): pair(sys.argv[4], socket.SOCK_RAW)
for way in (tcp, path, abstract, pair_path, pair_abstract, pair_raw): attempt(way)
"""


async def test_no_socket_leads_outside(run, home):
    """Neither TCP on loopback, where the gateway listens, nor unix sockets with a path or without, by streams or packets."""
    name = f"pegasus-test-{os.getpid()}"
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for kind, ending in ((socket.SOCK_STREAM, ""), (socket.SOCK_DGRAM, "-packets")):
            for address in (str(home / f"socket{ending}"), f"\0{name}{ending}"):
                outside = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
                outside.bind(address)
                if kind is socket.SOCK_STREAM:
                    outside.listen()
        arguments = [str(server.getsockname()[1]), str(home / "socket"), name, str(home / "socket-packets")]
        found = await run([PYTHON, "-c", REACHES, *arguments])
    assert found.stdout.split() == ["refused"] * 6, found


SPEAK = """
import os, socket, sys
def connect(): socket.socket(socket.AF_UNIX).connect(sys.argv[1] + "/socket")
def send(): socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", sys.argv[1] + "/packets")
def write(): os.write(os.open(sys.argv[1] + "/pipe", os.O_WRONLY | os.O_NONBLOCK), b"x")
def own():
    os.mkfifo("pipe"), os.write(os.open("pipe", os.O_RDWR), b"x")
    open("/dev/null", "w").write("x"), open(os.environ["TMPDIR"] + "/file", "w").write("x")
for way in (connect, send, write, own):
    try: way(), print("reached")
    except OSError: print("refused")
"""


async def test_neither_sockets_nor_pipes_in_folders_that_can_be_read_lead_outside(run):
    """A read-only mount keeps nobody from connecting to a socket in it, nor from writing to a pipe."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, ExitStack() as stack:
        os.chmod(folder, 0o755)
        for name, kind in (("socket", socket.SOCK_STREAM), ("packets", socket.SOCK_DGRAM)):
            outside = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            outside.bind(f"{folder}/{name}")
            if kind is socket.SOCK_STREAM:
                outside.listen()
        os.mkfifo(f"{folder}/pipe")
        stack.callback(os.close, os.open(f"{folder}/pipe", os.O_RDWR))
        found = await run([PYTHON, "-c", SPEAK, folder])
    assert found.stdout.split() == ["refused", "refused", "refused", "reached"], found


async def test_a_service_of_its_own_is_reached_within_bubblewrap(run, sandbox):
    if sandbox.kind != "bubblewrap":
        pytest.skip("within Landlock's walls there are no unix sockets")
    talk = "import socket as s; a = s.socket(s.AF_UNIX); a.bind('own'); a.listen(); s.socket(s.AF_UNIX).connect('own'); print('up')"
    assert (await run([PYTHON, "-c", talk])).stdout == "up\n"


async def test_pipes_between_its_own_processes_work(run):
    for kind in ("STREAM", "SEQPACKET"):
        pair = f"from socket import *; a, b = socketpair(AF_UNIX, SOCK_{kind}); a.send(b'x'); print(b.recv(1))"
        assert (await run([PYTHON, "-c", pair])).stdout == "b'x'\n"


# ------------------------------------------------------------------ limits


@pytest.mark.parametrize("walled", [True, False])
async def test_too_many_processes_end_it(run, sandbox, walled):
    walls = attrs.evolve(sandbox if walled else type(sandbox)(), processes=40, memory=0)
    ended = await run("for i in $(seq 200); do sleep 1000 & done; wait", sandbox=walls)
    assert (ended.exceeded, ended.signal) == ("processes", "SIGKILL")
    assert ended.seconds < 10


async def test_two_hundred_children_are_allowed_and_end_with_it(run):
    ended = await run("for i in $(seq 200); do sleep 1000 & done; sleep 0.3; echo all")
    assert (ended.stdout, ended.outlived, ended.exceeded) == ("all\n", 200, "")


async def test_one_process_gets_no_more_memory_than_allowed(run, sandbox):
    walls = attrs.evolve(sandbox, memory=200 << 20)
    ended = await run([PYTHON, "-c", "bytearray(1 << 30)"], sandbox=walls)
    assert "MemoryError" in ended.stderr


async def test_processes_together_get_no_more_memory_than_allowed(run, sandbox):
    walls = attrs.evolve(sandbox, memory=200 << 20)
    crowd = "import os, signal\nfor _ in range(3): os.fork()\nx = bytearray(os.urandom(1 << 20) * 60); signal.pause()"
    ended = await run([PYTHON, "-c", crowd], sandbox=walls)
    assert (ended.exceeded, ended.signal) == ("memory", "SIGKILL")


async def test_memory_that_is_shared_after_a_fork_counts_once(run, sandbox):
    walls = attrs.evolve(sandbox, memory=200 << 20)
    crowd = "import os, signal\nx = bytearray(os.urandom(1 << 20) * 60)\nfor _ in range(4): os.fork()\nsignal.sigtimedwait((), 0.5)"
    ended = await run([PYTHON, "-c", crowd], sandbox=walls)
    assert (ended.exceeded, ended.exit_code) == ("", 0)


# ------------------------------------------------------------------ the daemon dies

PARENT = """
import os, sys, trio
from pathlib import Path
import attrs
from pegasus.sandbox import CommandLimits, probe_sandbox, run_process
from pegasus.sandbox import landlock
from pegasus.settings import Settings

async def main(home, kind, command):
    sandbox = probe_sandbox(Settings(), home, home / "workspace")
    if kind == "landlock":
        sandbox = attrs.evolve(sandbox, bubblewrap=(), landlock=landlock.version())
    await run_process(command, cwd=home / "workspace", env=dict(os.environ), limits=CommandLimits(grace=0.2), sandbox=sandbox)

trio.run(main, Path(sys.argv[1]), sys.argv[2], sys.argv[3])
"""


async def test_a_killed_daemon_leaves_nothing_even_if_the_guard_was_attacked(home, sandbox, mark, tmp_path):
    name, _, value = mark.partition("=")
    attack = "kill -STOP $PPID 1; kill -9 $PPID 1; trap '' TERM; env -i setsid sleep 1000 & echo > up; sleep 1000"
    bell = Bell(home / "workspace/up")
    (tmp_path / "parent.py").write_text(PARENT)
    parent = await trio.lowlevel.open_process(
        [sys.executable, tmp_path / "parent.py", str(home), sandbox.kind, attack],
        env={**os.environ, name: value},
    )
    await bell.wait()
    parent.kill()
    await parent.wait()
    await gone(mark)
