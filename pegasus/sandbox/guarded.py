"""A process below a guard: starting it, its pipes or its terminal, and ending it for certain, with everything it has started.

Between the daemon and the command stands a guard (`pegasus.sandbox.guard`), a small process that
becomes the parent of every orphan below it. All processes of the command are ended in four cases:
the command itself ends, `stop` is called, the block of `open_process` is left (also by a cancel), and the
daemon is gone (also after kill -9, because the guard notices that its pipe from the daemon is
closed). They get SIGTERM, after `grace` seconds SIGKILL, and are reaped. If a guard was killed or
stopped by what it guards, `pegasus.sandbox.strays` searches for the processes instead.

Order of one command: pipes, guard, order (what to run) over the guard's stdin, the guard's report that the
program runs, the work of the caller, closing the guard's stdin (which asks it to end everything),
waiting for the guard. Ending is shielded from cancellation, so that a cancelled caller cleans up as
completely as any other.

No task runs here in the background: the guard's reports wait in their pipe (there are four short ones) until
somebody waits for the end. So a process costs nothing while it runs.
"""

from __future__ import annotations

import errno
import itertools
import marshal
import os
import resource
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias, cast

import attrs
import trio

from pegasus.sandbox import strays
from pegasus.sandbox.proxy import serve_proxy
from pegasus.sandbox.sandbox import CommandSandbox, Sandbox, remove_folder

_GUARD: Final = str(Path(__file__).with_name("guard.py"))
"""Path of the module that guards each command."""
_RUN_GUARD: Final = "import sys; sys.path.append(sys.argv.pop(1).rpartition('/')[0]); import guard; guard.run()"
"""Program that runs it. Its first argument is the path above, the others are those of the guard."""
_GUARD_LIMIT: Final = 5.0
"""Seconds after which the guard is taken for stopped or stuck: at the start, and beyond the grace at the end."""
PIPE_LIMIT: Final = 1.0
"""Seconds after the end of everything until reading ends: a process that has escaped may hold a pipe open."""
_LIBRARY_PATHS: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Variables without which some Python interpreters do not start. The guard gets no others."""
_call_numbers = itertools.count(1)
"""Numbers of calls, one part of a mark that is unique."""

NO_SANDBOX: Final = Sandbox()
"""No walls and no limits."""
TERMINAL_SIZE: Final = 40, 120
"""Lines and columns of a terminal. It is wide, so that few lines are wrapped."""
DEFAULT_OUTPUT: Final = 64 * 1024
"""Bytes of each stream that are kept: about 16,000 tokens, more than a model can use of one command."""
MARK: Final = "PEGASUS_CALL"
"""The environment variable by which the processes of a call are found. Its value is unique for each
call."""


class ProcessError(Exception):
    """A command that could not be started. The text names the reason.

    Example::

        try:
            async with open_process(["no-such-program"], cwd=folder, env=environment) as process: ...
        except ProcessError as error:   # "cannot run no-such-program: No such file or directory"
            raise ToolError(str(error)) from error
    """


@attrs.frozen(eq=False, repr=False)
class CommandLimits:
    """Limits of one command.

    Example: `CommandLimits(memory=1 << 30, grace=5.0)` gives it one gigabyte in all, and five seconds to end.
    """

    output: int = DEFAULT_OUTPUT
    """Bytes kept of each stream."""
    flood: int = 256 * 1024 * 1024
    """Bytes of both streams after which the command is ended. All output is read all the time, so
    that the command never blocks on a full pipe; reading costs no memory, but nobody wants this
    much."""
    file_size: int = 4 * 1024 * 1024 * 1024
    """Bytes of a file that it may write; more ends it with SIGXFSZ, so that a loop cannot fill the disk."""
    memory: int = 0
    """Bytes that all processes of the command may have together; 0 = unlimited. One process alone is refused more by the
    kernel (RLIMIT_DATA, which counts what it may write to and shares with nobody). The sum is looked at up to 20 times a second by
    the guard, which then ends the command."""
    processes: int = 0
    """Processes that it may have at the same time; 0 = unlimited. The guard ends a command that has more."""
    grace: float = 1.0
    """Seconds between SIGTERM and SIGKILL."""


@attrs.frozen
class ProcessEnd:
    """The end of a process. Example: `ProcessEnd(139, "SIGSEGV")` of one that has crashed."""

    exit_code: int
    """The exit code; 128 + number after a signal, as shells report it."""
    signal: str | None = None
    """The name of the signal that ended it."""
    outlived: int = 0
    """Processes that it had left running, and that were ended with it."""
    exceeded: str = ""
    """The limit for which it was ended: "memory", "processes", "output", or "" for none."""


@asynccontextmanager
async def open_process(
    command: str | Sequence[str],
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    limits: CommandLimits | None = None,
    stdin: bool = False,
    merged: bool = False,
    terminal: bool = False,
    sandbox: Sandbox = NO_SANDBOX,
) -> AsyncIterator[GuardedProcess]:
    """Start a program (a sequence) or a shell command (a str); on leaving the block, nothing of it is left.

        async with open_process(["server"], cwd=folder, env=environment, stdin=True) as server:
            await server.stdin.send_all(b"...")
            answer = await server.stdout.receive_some()

    stdin: whether it can be written to; without it, it reads /dev/null. merged: stderr goes into stdout, in the
    order of writing. terminal: it gets a terminal as its stdin, stdout and stderr, and as its controlling terminal.
    Its streams must be read by the caller, or it blocks when they are full. sandbox: the walls around it. Its limits of memory and
    processes count where `limits` sets none.

    Raises ProcessError if it cannot be started. Leaving the block ends everything first, which takes up to
    `limits.grace` seconds, and a few seconds more if the guard was attacked; a cancel does not shorten it.
    """
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    limits = limits or CommandLimits()
    limits = attrs.evolve(
        limits, memory=limits.memory or sandbox.memory, processes=limits.processes or sandbox.processes
    )
    mark = f"{os.getpid()}.{next(_call_numbers)}.{time.monotonic_ns()}"
    async with AsyncExitStack() as around:
        try:
            await around.enter_async_context(sandbox.running_program())
            walls = sandbox.walls(env, mark)
        except OSError as error:
            raise ProcessError(f"the command could not be started: {error}") from error
        if walls.folder:
            around.push_async_callback(_remove_folder, walls.folder)
        order = _encode_order(argv, str(cwd), walls, mark, limits, terminal)
        with ExitStack() as open_pipes:
            try:
                process, conduit = await _start_guard(
                    open_pipes, limits, mark, walls, stdin=stdin, merged=merged, terminal=terminal
                )
            except OSError as error:
                raise ProcessError(f"the command could not be started: {error}") from error
            try:
                await process.begin(order)
                if conduit is None or walls.proxy is None or sandbox.dial is None:
                    yield process
                else:
                    async with serve_proxy(conduit, walls.proxy, sandbox.dial):
                        yield process
            finally:
                await process.stop()


async def _remove_folder(folder: str) -> None:
    """Remove the folder for temporary files of a command, also on cancel."""
    with trio.CancelScope(shield=True):
        await trio.to_thread.run_sync(remove_folder, folder)


def _encode_order(
    argv: list[str], cwd: str, walls: CommandSandbox, mark: str, limits: CommandLimits, has_terminal: bool
) -> bytes:
    """Return the order for the guard: 4 bytes of length, then marshal data.

    marshal is part of the interpreter, so the guard can read it without importing anything; both
    sides are the same version.
    """
    bounds = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, limits.file_size)]
    if limits.memory:
        bounds.append((resource.RLIMIT_DATA, limits.memory))
    order = {
        "argv": argv,
        "cwd": cwd,
        "env": {**walls.environment, MARK: mark},
        "limits": bounds,
        "memory": limits.memory,
        "processes": limits.processes,
        "grace": limits.grace,
        "terminal": has_terminal,
        "walls": None if walls.kernel is None else dict(walls.kernel),
        "proxy": None if walls.proxy is None else walls.proxy.as_dict(),
    }
    try:
        data = marshal.dumps(order)
    except ValueError as error:
        raise ProcessError(f"the command cannot be passed on: {error}") from error
    return len(data).to_bytes(4, "big") + data


async def _start_guard(
    open_pipes: ExitStack,
    limits: CommandLimits,
    mark: str,
    walls: CommandSandbox,
    *,
    stdin: bool,
    merged: bool,
    terminal: bool,
) -> tuple[GuardedProcess, socket.socket | None]:
    """Start a guard, which then waits for its order. Raises OSError.

    Also returns the socket over which it sends that of the proxy, if the command has one.

    walls: they may have a program that builds them and starts the guard. That program lives as long as the guard and would keep the
    command's pipes open, so it gets others: its stdout is nowhere, its stderr goes to the reports.

    open_pipes: closes the pipes. The guard inherits the other ends; this process closes its copies of them at
    once, because a pipe ends only when all copies of its writing end are closed. Shielded: starting takes some
    milliseconds in a thread, and a process that was started must be known.
    """
    with ExitStack() as inherited:
        report_end, report = os.pipe()
        reports = trio.lowlevel.FdStream(report_end)
        open_pipes.callback(reports.close)
        inherited.callback(os.close, report)
        stdin_stream: trio.lowlevel.FdStream | None = None
        stderr_stream: trio.lowlevel.FdStream | None = None
        stdout_stream: trio.abc.ReceiveStream
        if terminal:
            master, command_end = os.openpty()
            stdin_stream = trio.lowlevel.FdStream(master)
            open_pipes.callback(stdin_stream.close)
            stdout_stream = _TerminalOutput(stdin_stream)
            termios.tcsetwinsize(command_end, TERMINAL_SIZE)
            inherited.callback(os.close, command_end)
            streams = [command_end] * 3
        else:
            if stdin:
                command_end, stdin_end = os.pipe()
                stdin_stream = trio.lowlevel.FdStream(stdin_end)
                open_pipes.callback(stdin_stream.close)
            else:
                command_end = os.open(os.devnull, os.O_RDONLY)
            inherited.callback(os.close, command_end)
            stdout_stream, output = _open_output(open_pipes, inherited)
            errors = output
            if not merged:
                stderr_stream, errors = _open_output(open_pipes, inherited)
            streams = [command_end, output, errors]
        conduit, guards_end = None, -1
        if walls.proxy is not None:
            conduit, other = socket.socketpair()
            open_pipes.callback(conduit.close)
            inherited.callback(other.close)
            guards_end = other.fileno()
        numbers = (report, *streams, guards_end)
        passed = (report, *streams, *([guards_end] if conduit is not None else []))
        with trio.CancelScope(shield=True):
            guard = await trio.lowlevel.open_process(
                [*walls.prefix, sys.executable, *("-I", "-S", "-c", _RUN_GUARD, _GUARD), *map(str, numbers)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=report,
                pass_fds=passed,
                env={name: os.environ[name] for name in _LIBRARY_PATHS if name in os.environ},
                cwd="/",
                start_new_session=True,
            )
    assert guard.stdin is not None  # noqa: S101
    open_pipes.callback(cast("trio.lowlevel.FdStream", guard.stdin).close)
    process = GuardedProcess(guard, reports, limits.grace, mark, stdin_stream, stdout_stream, stderr_stream)
    return process, conduit


def _open_output(open_pipes: ExitStack, inherited: ExitStack) -> tuple[trio.lowlevel.FdStream, int]:
    """Make a pipe for output; return the end to read from, and the other one, which the command inherits."""
    end, command_end = os.pipe()
    inherited.callback(os.close, command_end)
    stream = trio.lowlevel.FdStream(end)
    open_pipes.callback(stream.close)
    return stream, command_end


@attrs.define(eq=False, repr=False)
class GuardedProcess:
    """A process that runs below a guard. Made by `open_process`, whose block it does not outlive.

    For example:

        async for data in process.stdout: ...
        ended = await process.wait()
    """

    _guard: trio.Process
    """Guard, which waits for its order."""
    _reports: trio.abc.ReceiveStream
    """Its reports."""
    _grace: float
    """As in `CommandLimits`."""
    _mark: str
    """Value of MARK, by which its processes are found."""
    stdin: trio.abc.SendStream | None
    """Leads to its stdin, None if it has none. A terminal ends its input with the character ^D, not by closing."""
    stdout: trio.abc.ReceiveStream
    """Its output as bytes; it ends when all writers have ended or closed it."""
    stderr: trio.abc.ReceiveStream | None
    """The same of its errors; None if they go into stdout."""
    pid: int = attrs.field(default=0, init=False)
    """The process id of the command as it sees it itself, which is not that of others where it has a PID namespace; 0 if it has
    attacked its guard before the guard could report it."""
    exceeded: str = attrs.field(default="", init=False)
    """The limit for which it is ended; see `ProcessEnd`."""
    _reading: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    """Held by the one that reads the reports."""
    _ending: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    """Held by the one that ends everything."""
    _has_ended: bool = attrs.field(default=False, init=False)
    """Nothing of it is left."""
    _partial_report: bytes = attrs.field(default=b"", init=False)
    """Beginning of a report whose line end was not read yet."""
    _is_silent: bool = attrs.field(default=False, init=False)
    """The guard is gone; there are no more reports."""
    _refusal: str = attrs.field(default="", init=False)
    """Reason why it could not be started, as the guard reported it."""
    _status: int | None = attrs.field(default=None, init=False)
    """Wait status of the command; None until the guard has reported it."""
    _outlived: int = attrs.field(default=0, init=False)
    """Processes that it had left running."""
    _last_words: str = attrs.field(default="", init=False)
    """Last line that is no report: the reason why the guard, or the program that builds its walls, did not work."""

    def terminal_modes(self) -> int | None:
        """Return the local modes of its terminal (`termios.ICANON` and others), None if it has none or that is gone."""
        if not isinstance(self.stdout, _TerminalOutput):
            return None
        with suppress(termios.error, OSError):
            return int(termios.tcgetattr(self.stdout.descriptor)[3])
        return None

    def programs_on_terminal(self) -> frozenset[str]:
        """Return the names of the programs in the foreground of its terminal, as the kernel has them (15 bytes at most)."""
        found: set[str] = set()
        if not isinstance(self.stdout, _TerminalOutput):
            return frozenset()
        with suppress(OSError):  # the terminal is gone
            group = os.tcgetpgrp(self.stdout.descriptor)
            for process in Path("/proc").glob("[0-9]*/stat"):
                with suppress(OSError, ValueError):
                    name, _, rest = process.read_text(errors="replace").partition(" (")[2].rpartition(") ")
                    if int(rest.split()[2]) == group:
                        found.add(name)
        return frozenset(found)

    async def begin(self, order: bytes) -> None:
        """Send the guard what to run, and return when the program runs. Raises ProcessError if it cannot be started."""
        assert self._guard.stdin is not None  # noqa: S101
        with suppress(trio.BrokenResourceError):  # the guard is gone already; its last reports tell why
            await self._guard.stdin.send_all(order)
        # A command can stop its guard before the guard has reported the start. It runs then, and is ended like any other.
        with trio.move_on_after(_GUARD_LIMIT):
            while not (self.pid or self._refusal or self._is_silent):
                await self._read_report()
        if self._refusal:
            raise ProcessError(_explain_refusal(self._refusal))
        if not self.pid and self._is_silent:
            await self.stop()
            # A guard that was killed by a signal was killed by its command, which has started then.
            if (self._guard.returncode or 0) >= 0:
                reason = self._last_words or "its guard ended too early"
                raise ProcessError(f"the command could not be started: {reason}")

    async def wait(self) -> ProcessEnd:
        """Wait until the process has ended by itself, and everything that it has left running was ended.

        A cancel leaves it running. Any number of tasks may wait.
        """
        while self._status is None and not self._is_silent:
            await self._read_report()
        return await self.stop()

    async def stop(self) -> ProcessEnd:
        """End the process and everything that it has started. Return when nothing of it is left; a cancel does not shorten it.

        Any number of tasks may call it. Its streams should be read meanwhile: a program that is full of output may need that to end.
        """
        with trio.CancelScope(shield=True):
            async with self._ending:
                if not self._has_ended:
                    await _end_everything(self._guard, self._mark, self._grace)
                    self._has_ended = True
            with trio.move_on_after(_GUARD_LIMIT):  # a process that has escaped may hold the pipe open
                while not self._is_silent:
                    await self._read_report()
        return ProcessEnd(*_parse_status(self._status), self._outlived, self.exceeded)

    async def _read_report(self) -> None:
        """Read the next reports of the guard, unless another task has done it meanwhile."""
        if self._reading.locked():
            async with self._reading:
                return
        async with self._reading:
            data = await self._reports.receive_some()
            self._is_silent = not data
            self.take_report(data)

    def take_report(self, data: bytes | bytearray) -> None:
        """Take lines of the guard's reports (described in `guard.py`)."""
        *lines, self._partial_report = (self._partial_report + data).split(b"\n")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "started":
                self.pid = int(rest)
            elif word == "refused":
                self._refusal = self._refusal or rest
            elif word == "ended":
                self._status = int(rest)
            elif word == "left":
                self._outlived = int(rest)
            elif word == "exceeded":
                self.exceeded = rest
            else:
                self._last_words = line.decode(errors="replace")


TakeOutput: TypeAlias = Callable[[bytes | bytearray], None]
"""A function that gets the next bytes that a process has written."""


async def read_to_end(
    process: GuardedProcess, *take: TakeOutput, flood: int, stopping: trio.Event | None = None
) -> None:
    """Hand on what a process writes, and return when it has ended, wrote more than `flood` bytes, or `stopping` is set.

    take: gets the output, and a second one the errors, if they have a pipe of their own.

    Nothing of it is left then, also when cancelled. It is read while it is being ended, whoever wants that, so that it can say its
    last words.
    """
    stopping, total = trio.Event() if stopping is None else stopping, 0

    async def read(pipe: trio.abc.ReceiveStream, take: TakeOutput, reading: trio.CancelScope) -> None:
        """Hand on the output of one stream, and end the process if it floods."""
        nonlocal total
        with reading:
            async for data in pipe:
                take(data)
                total += len(data)
                if total > flood:
                    process.exceeded = "output"
                    stopping.set()

    async def wait_for_stop(waiting: trio.CancelScope) -> None:
        """End the wait for the process."""
        await stopping.wait()
        waiting.cancel()

    readings = [trio.CancelScope(shield=True) for _ in take]
    async with trio.open_nursery() as nursery:
        for pipe, taker, reading in zip((process.stdout, process.stderr), take, readings, strict=False):
            if pipe is not None:
                nursery.start_soon(read, pipe, taker, reading)
        try:
            async with trio.open_nursery() as waiting:
                waiting.start_soon(wait_for_stop, waiting.cancel_scope)
                await process.wait()
                waiting.cancel_scope.cancel()
        finally:
            await process.stop()
            for reading in readings:
                reading.deadline = trio.current_time() + PIPE_LIMIT


class _TerminalOutput(trio.abc.ReceiveStream):
    """The output of a terminal. It ends when the last process with this terminal has ended or closed it."""

    def __init__(self, terminal: trio.lowlevel.FdStream) -> None:
        self._terminal = terminal

    @property
    def descriptor(self) -> int:
        """The descriptor of the terminal."""
        return self._terminal.fileno()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return the next output, b"" at its end."""
        try:
            return bytes(await self._terminal.receive_some(max_bytes))
        except trio.BrokenResourceError:  # EIO: nobody has it open
            return b""

    async def aclose(self) -> None:
        """Close the terminal in both directions: it is one descriptor, which `stdin` uses as well."""
        await self._terminal.aclose()


async def _end_everything(guard: trio.Process, mark: str, grace: float) -> None:
    """Have the guard end all processes, or end them without it if it cannot."""
    assert guard.stdin is not None  # noqa: S101
    await guard.stdin.aclose()
    with trio.move_on_after(grace + _GUARD_LIMIT):
        await guard.wait()
    # A guard that still runs was stopped by its command. It cannot reap while it is stopped, so the
    # processes below it are killed first, and then the guard, which passes them on to init.
    if guard.returncode is None:
        await trio.to_thread.run_sync(strays.kill_descendants, guard.pid)
        guard.kill()
        await guard.wait()
    # Any other code than 0 means that processes may have escaped: the guard was killed, or there is
    # no subreaper. The mark finds those that have kept their environment.
    if guard.returncode != 0:
        await trio.to_thread.run_sync(strays.kill_marked, f"{MARK}={mark}")


def _parse_status(status: int | None) -> tuple[int, str | None]:
    """Return exit code and signal of a wait status. None is unknown, because the guard was killed."""
    if status is None:
        return 128 + signal.SIGKILL, "SIGKILL"
    code = os.waitstatus_to_exitcode(status)
    return (code, None) if code >= 0 else (128 - code, signal_name(-code))


def signal_name(number: int) -> str:
    """Return the name of a signal: SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _explain_refusal(refusal: str) -> str:
    """Return the reason why a command could not be started, from the guard's report `<errno> <subject>`."""
    number, _, subject = refusal.partition(" ")
    if int(number) == errno.EINVAL:
        return f"cannot run it: {subject}"
    return f"cannot run {subject}: {os.strerror(int(number))}"
