"""The real process at a pseudo-terminal and at pipes, with the stand-in as its model."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios

import pytest
import trio

pytestmark = pytest.mark.blackbox

PATIENCE = 60
CTRL_D = b"\x04"
LEAVE = 2 * CTRL_D
"""Leaves whether or not the agent is still at the end of its turn, when the first one asks."""


def command(home, *arguments):
    return [sys.executable, "-m", "pegasus", "--home", str(home), *arguments]


def environment(**changes):
    names = ("PATH", "HOME", "LANG", "PYTHONPATH", "VIRTUAL_ENV")
    plain = {name: os.environ[name] for name in names if name in os.environ}
    return {**plain, "TERM": "xterm", "PYTHONUTF8": "1", **changes}


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "pegasus.toml").write_text(
        '[gateway]\nport = 0\n[http]\nport = 0\n[models]\ndefault = "offline/stand-in"\n'
    )
    return home


class Pty:
    """A program at a terminal of 60 columns; what it shows is on `glass`."""

    def __init__(self, arguments, glass, **changes):
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        self.modes = termios.tcgetattr(self.slave)
        self.glass = glass
        self.process = subprocess.Popen(
            arguments,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env=environment(**changes),
            start_new_session=True,
        )

    def type(self, keys):
        os.write(self.master, keys)

    async def wait(self, text):
        """Until the text is shown."""
        with trio.move_on_after(PATIENCE):
            while text not in self.glass.shown:
                await self.read()
        assert text in self.glass.shown, f"after {PATIENCE} s on {self.glass.shown!r}"

    async def read(self):
        await trio.lowlevel.wait_readable(self.master)
        self.glass.write(os.read(self.master, 65536).decode())

    async def ended(self):
        """The exit code; what is written on the way is shown."""
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_reading)
                code = await trio.to_thread.run_sync(self.process.wait)
                nursery.cancel_scope.cancel()
        return code

    async def _keep_reading(self):
        while True:
            await self.read()

    def hang_up(self):
        os.close(self.master)
        self.master = -1

    def restored(self):
        return termios.tcgetattr(self.slave) == self.modes

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for end in (self.master, self.slave):
            if end >= 0:
                os.close(end)


@pytest.fixture
def pty(glass):
    opened = []

    def at_a_terminal(arguments, **changes):
        opened.append(Pty(arguments, glass, **changes))
        return opened[-1]

    yield at_a_terminal
    for pty in opened:
        pty.close()


@pytest.fixture
def daemon(home):
    process = subprocess.Popen(command(home, "run"), stdout=subprocess.PIPE, env=environment(), text=True)
    assert process.stdout.readline().startswith("pegasus ready")
    yield process
    process.terminate()
    assert process.wait(PATIENCE) == 0
    process.stdout.close()


async def piped(home, text, **options):
    with trio.fail_after(PATIENCE):
        return await trio.run_process(
            command(home, "chat"),
            stdin=text,
            env=environment(),
            check=False,
            capture_stdout=True,
            capture_stderr=True,
            **options,
        )


async def test_a_person_talks_with_the_daemon_of_this_terminal_and_ends_it(home, pty):
    terminal = pty(command(home))
    await terminal.wait("Talking with Pegasus")
    terminal.type("hello 中文".encode())
    await terminal.wait("› hello 中文")
    assert not terminal.restored()
    terminal.type(b"\r")
    await terminal.wait("Hello!")
    terminal.type(LEAVE)
    assert await terminal.ended() == 0
    assert terminal.restored()
    assert "\x1b[?2004l" in terminal.glass.raw.rpartition("\x1b[?2004h")[2]
    assert (home / "run" / "history").read_text() == '"hello 中文"\n'


async def test_enter_during_the_start_is_enter(home, pty):
    """The terminal makes a line feed of it as long as there is no prompt."""
    terminal = pty(command(home))
    terminal.type("hello 中文\r".encode())
    await terminal.wait("Hello!")
    terminal.type(b"second\n\r")  # Ctrl-J, at the prompt, is a line break
    await terminal.wait("› second")
    terminal.type(LEAVE)
    assert await terminal.ended() == 0
    assert '"hello 中文"\n' in (home / "run" / "history").read_text()


async def test_a_signal_gives_the_terminal_back(home, pty):
    terminal = pty(command(home))
    await terminal.wait("Talking with Pegasus")
    terminal.type(b"half a li")
    await terminal.wait("› half a li")
    terminal.process.send_signal(signal.SIGTERM)
    assert await terminal.ended() == 0
    assert terminal.restored()


async def test_a_terminal_that_hangs_up_ends_its_daemon(home, pty):
    terminal = pty(command(home))
    await terminal.wait("Talking with Pegasus")
    os.close(terminal.slave)
    terminal.slave = -1
    terminal.hang_up()
    with trio.fail_after(PATIENCE):
        assert await trio.to_thread.run_sync(terminal.process.wait) == 0


async def test_chat_joins_a_daemon_and_leaves_it_running(home, daemon, pty):
    terminal = pty(command(home, "chat"))
    await terminal.wait("Talking with Pegasus")
    terminal.type(b"hello\r")
    await terminal.wait("Hello!")
    terminal.type(LEAVE)
    assert await terminal.ended() == 0
    assert terminal.restored()
    assert daemon.poll() is None


async def test_chat_follows_the_size_of_the_window(home, daemon, pty):
    terminal = pty(command(home, "chat"))
    await terminal.wait("Talking with Pegasus")
    terminal.type(b"one two three")
    await terminal.wait("› one two three")
    fcntl.ioctl(terminal.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 10, 0, 0))
    terminal.process.send_signal(signal.SIGWINCH)
    await terminal.wait("› one two\n  three")


async def test_run_needs_a_home_without_an_agent_and_says_that_one_runs(home, daemon, pty):
    terminal = pty(command(home, "run"))
    assert await terminal.ended() == 75
    await terminal.wait("an agent runs here already")


async def test_a_person_gets_a_sentence_instead_of_the_ready_line(home, pty):
    terminal = pty(command(home, "run", "--no-cli"))
    await terminal.wait("Pegasus is running (process")
    assert "pegasus ready" not in terminal.glass.shown
    terminal.process.send_signal(signal.SIGINT)
    assert await terminal.ended() == 0


async def test_a_dumb_terminal_gets_lines(home, daemon, pty):
    terminal = pty(command(home, "chat"), TERM="dumb")
    await terminal.wait("Talking with Pegasus (offline/stand-in)")
    terminal.type(b"/status\n")
    await terminal.wait("Up for")
    terminal.type(CTRL_D)
    assert await terminal.ended() == 0
    assert "\x1b" not in terminal.glass.raw


async def test_piped_lines_are_answered_in_order(home, daemon):
    done = await piped(home, "/status\n\nhello caf\udce9\n/exit\nnever\n".encode("utf-8", "surrogateescape"))
    assert done.returncode == 0
    assert done.stderr == b""
    assert b"\x1b" not in done.stdout
    assert 0 <= done.stdout.index(b"I am idle.") < done.stdout.index(b"Hello!")


async def test_without_a_daemon_one_line_says_so(home):
    done = await piped(home, b"hello\n")
    assert done.returncode == 1
    assert done.stdout == b""
    assert (
        done.stderr.decode() == f"pegasus: no agent is running in {home}; start one with: pegasus --home {home} run\n"
    )


async def test_a_reader_that_leaves_early_is_no_error(home, daemon):
    reader, writer = os.pipe()
    os.close(reader)
    with trio.fail_after(PATIENCE):
        done = await trio.run_process(
            command(home, "chat"),
            stdin=b"/status\n/help\n",
            stdout=writer,
            env=environment(),
            check=False,
            capture_stderr=True,
        )
    os.close(writer)
    assert done.returncode == 0
    assert done.stderr == b""


def test_a_signal_ends_a_piped_chat_that_waits(home, daemon):
    reader, writer = os.pipe()
    process = subprocess.Popen(
        command(home, "chat"), stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    os.write(writer, b"/status\n")
    assert process.stdout.readline() == b"I am idle.\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    os.close(reader)
    os.close(writer)
    assert process.returncode == 130
    assert errors == b""


def test_nothing_of_a_screen_is_imported_before_one_is_opened():
    script = (
        "import sys, pegasus.terminal; "
        "print([m for m in ('prompt_toolkit', 'rich', 'asyncio', 'markdown_it') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout == "[]\n"
