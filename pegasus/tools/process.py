"""Running a command so that it can be ended for certain, with everything it has started.

Between the daemon and the command stands a guard (`pegasus.tools.guard`), a small process that
becomes the parent of every orphan below it. All processes of the command are ended in five cases:
the command itself ends, its timeout is over, the call is cancelled, it writes too much, and the
daemon is gone (also after kill -9, because the guard notices that its pipe from the daemon is
closed). They get SIGTERM, after `grace` seconds SIGKILL, and are reaped. Only then does the call
return. If a guard was killed or stopped by what it guards, `pegasus.tools.strays` searches for the
processes instead.

Order of one call: pipes, guard, order (what to run) over the guard's stdin, reading until the guard
reports the end, closing the guard's stdin (which asks it to end everything), waiting for the guard,
reading what is left in the pipes. Ending is shielded from cancellation, so that a cancelled call cleans
up as completely as any other.
"""

from __future__ import annotations

import codecs
import errno
import itertools
import marshal
import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple, cast

import attrs
import trio

from pegasus.tools import strays

_GUARD: Final = str(Path(__file__).with_name("guard.py"))
"""Path of the script that guards each command."""
_GUARD_LIMIT: Final = 5.0
"""Seconds beyond the grace after which the guard is taken for stopped or stuck."""
_PIPE_LIMIT: Final = 1.0
"""Seconds after the end of everything until reading ends: a process that has escaped may hold a pipe open."""
_LIBRARY_PATHS: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Variables without which some Python interpreters do not start. The guard gets no others."""
_call_numbers = itertools.count(1)
"""Numbers of calls, one part of a mark that is unique."""

MARK: Final = "PEGASUS_CALL"
"""The environment variable by which the processes of a call are found. Its value is unique for each
call."""
DEFAULT_OUTPUT: Final = 64 * 1024
"""Bytes of each stream that are kept: about 16,000 tokens, more than a model can use of one command."""


class ProcessError(Exception):
    """A command that could not be started. The text names the reason."""


@attrs.frozen
class CommandLimits:
    """Limits of one command.

    `CommandLimits(memory=1 << 30, grace=5.0)` gives a command one gigabyte for each process and five seconds to
    end.
    """

    output: int = DEFAULT_OUTPUT
    """Bytes kept of each stream."""
    flood: int = 256 * 1024 * 1024
    """Bytes of both streams after which the command is ended. All output is read all the time, so
    that the command never blocks on a full pipe; reading costs no memory, but nobody wants this
    much."""
    file_size: int = 4 * 1024 * 1024 * 1024
    """Bytes of a file that it may write; more ends it with SIGXFSZ, so that a loop cannot fill the disk."""
    memory: int | None = None
    """Bytes of address space of one process; None = unlimited."""
    grace: float = 1.0
    """Seconds between SIGTERM and SIGKILL."""


@attrs.frozen
class CommandResult:
    """The end of a command and its output."""

    exit_code: int
    """The exit code; 128 + number after a signal (as shells report it), 124 after the timeout (as
    timeout(1) reports it)."""
    stdout: str
    """Its output, the middle left out if it was long."""
    stderr: str
    """The same of its errors."""
    truncated: bool
    """True if a part of the output is left out."""
    seconds: float
    """Time from the call to the end of everything."""
    signal: str | None = None
    """The name of the signal that ended it, such as "SIGSEGV"."""
    timed_out: bool = False
    """True if it was ended because its time was up."""
    flooded: bool = False
    """True if it was ended because it wrote too much."""
    outlived: int = 0
    """Processes that it had left running, and that were ended with it."""


async def run_process(
    command: str | Sequence[str],
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    timeout: float = math.inf,
    limits: CommandLimits | None = None,
    stdin: bytes = b"",
) -> CommandResult:
    """Run a program (a sequence) or a shell command (a str) to its end, or for `timeout` seconds. Nothing of it is left on return.

        result = await run_process("make test", cwd=folder, env=environment, timeout=60.0)

    stdin: bytes that it can read; by default it reads /dev/null. On cancel everything is ended
    first, which takes up to `limits.grace` seconds, and a few seconds more if the guard was
    attacked. Raises ProcessError if it cannot be started.
    """
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    limits = limits or CommandLimits()
    mark = f"{os.getpid()}.{next(_call_numbers)}.{time.monotonic_ns()}"
    order = _encode_order(argv, str(cwd), {**env, MARK: mark}, limits)
    running = _RunningCommand(limits)
    start = trio.current_time()
    with ExitStack() as open_pipes:
        try:
            pipes = await _start_guard(open_pipes, with_stdin=bool(stdin))
        except OSError as error:
            raise ProcessError(f"the command could not be started: {error}") from error
        timed_out = await running.run(pipes, order, stdin, timeout, mark)
    return running.result(trio.current_time() - start, timed_out, guard_was_killed=(pipes.guard.returncode or 0) < 0)


def _encode_order(argv: list[str], cwd: str, env: Mapping[str, str], limits: CommandLimits) -> bytes:
    """Return the order for the guard: 4 bytes of length, then marshal data.

    marshal is part of the interpreter, so the guard can read it without importing anything; both
    sides are the same version.
    """
    bounds = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, limits.file_size)]
    if limits.memory is not None:
        bounds.append((resource.RLIMIT_AS, limits.memory))
    try:
        data = marshal.dumps({"argv": argv, "cwd": cwd, "env": env, "limits": bounds, "grace": limits.grace})
    except ValueError as error:
        raise ProcessError(f"the command cannot be passed on: {error}") from error
    return len(data).to_bytes(4, "big") + data


class _Pipes(NamedTuple):
    """The guard of one call, and the ends of the pipes that this process holds."""

    guard: trio.Process
    """Its stdin brings the order; its stdout and stderr are those of the command."""
    reports: trio.lowlevel.FdStream
    """Brings the guard's reports."""
    stdin: trio.lowlevel.FdStream | None
    """Leads to the command's stdin, if it has input."""


async def _start_guard(open_pipes: ExitStack, *, with_stdin: bool) -> _Pipes:
    """Start a guard, which then waits for its order. Raises OSError.

    open_pipes: closes the pipes. The guard inherits the other ends; this process closes its copies of them at
    once, because a pipe ends only when all copies of its writing end are closed. Shielded: starting takes some
    milliseconds in a thread, and a process that was started must be known.
    """
    with ExitStack() as inherited:
        report_end, report = os.pipe()
        reports = trio.lowlevel.FdStream(report_end)
        open_pipes.callback(reports.close)
        inherited.callback(os.close, report)
        stdin_stream = None
        if with_stdin:
            stdin, stdin_end = os.pipe()
            stdin_stream = trio.lowlevel.FdStream(stdin_end)
            open_pipes.callback(stdin_stream.close)
        else:
            stdin = os.open(os.devnull, os.O_RDONLY)
        inherited.callback(os.close, stdin)
        with trio.CancelScope(shield=True):
            guard = await trio.lowlevel.open_process(
                [sys.executable, "-I", "-S", _GUARD, str(report), str(stdin)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(report, stdin),
                env={name: os.environ[name] for name in _LIBRARY_PATHS if name in os.environ},
                cwd="/",
                start_new_session=True,
            )
    for stream in (guard.stdin, guard.stdout, guard.stderr):
        open_pipes.callback(cast("trio.lowlevel.FdStream", stream).close)
    return _Pipes(guard, reports, stdin_stream)


class _RunningCommand:
    """The state of one command: its output, and what its guard has reported.

    Three tasks read the pipes. The main flow waits for `_finished` and then ends everything. After that the
    pipes end by themselves, since nobody is left who could write; only a process that has escaped can hold one
    open, and is not waited for long.
    """

    def __init__(self, limits: CommandLimits) -> None:
        self.stdout = HeadAndTail(limits.output)
        """What it has written so far."""
        self.stderr = HeadAndTail(limits.output)
        """The same for its errors."""
        self._limits = limits
        self._finished = trio.Event()  # the command has ended, floods, or its guard is gone
        self._flooded = False
        """It was ended because it wrote too much."""
        self._partial_report = b""
        """Beginning of a report whose line end was not read yet."""
        self._refusal = ""
        """Reason why it could not be started, as the guard reported it."""
        self._started = False
        """The guard has reported the start."""
        self._status: int | None = None  # wait status of the command; None until the guard has reported it
        self._outlived = 0
        """Processes that it had left running."""

    async def run(self, pipes: _Pipes, order: bytes, stdin: bytes, timeout: float, mark: str) -> bool:
        """Run until everything has ended. Return True if the timeout was the reason."""
        guard = pipes.guard
        async with trio.open_nursery() as nursery:
            try:
                nursery.start_soon(self._read_reports, pipes.reports)
                nursery.start_soon(self._read_output, guard.stdout, self.stdout)
                nursery.start_soon(self._read_output, guard.stderr, self.stderr)
                if pipes.stdin is not None:
                    nursery.start_soon(_write_stdin, pipes.stdin, stdin)
                with trio.move_on_after(timeout) as scope:
                    await self._send_order(guard, order)
                    await self._finished.wait()
            finally:
                with trio.CancelScope(shield=True):
                    await _end_everything(guard, mark, self._limits.grace)
            nursery.cancel_scope.deadline = trio.current_time() + _PIPE_LIMIT
        return scope.cancelled_caught

    async def _send_order(self, guard: trio.Process, order: bytes) -> None:
        """Send the guard what to run."""
        assert guard.stdin is not None  # noqa: S101
        try:
            await guard.stdin.send_all(order)
        except trio.BrokenResourceError:  # the guard is gone already
            self._finished.set()

    async def _read_reports(self, pipe: trio.abc.ReceiveStream) -> None:
        """Read the reports of the guard until it is gone."""
        async for data in pipe:
            self.take_report(data)
        self._finished.set()

    async def _read_output(self, pipe: trio.abc.ReceiveStream | None, output: HeadAndTail) -> None:
        """Store the output of one stream, and end the command if it floods."""
        assert pipe is not None  # noqa: S101
        async for data in pipe:
            output.add(data)
            if self.stdout.total + self.stderr.total > self._limits.flood:
                self._flooded = True
                self._finished.set()

    def take_report(self, data: bytes | bytearray) -> None:
        """Take lines of the guard's reports (described in `guard.py`)."""
        *lines, self._partial_report = (self._partial_report + data).split(b"\n")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "started":
                self._started = True
            elif word == "refused":
                self._refusal = self._refusal or rest
            elif word == "ended":
                self._status = int(rest)
                self._finished.set()
            elif word == "left":
                self._outlived = int(rest)

    def result(self, seconds: float, timed_out: bool, guard_was_killed: bool) -> CommandResult:
        """Return the result. Raises ProcessError if the command never started.

        guard_was_killed: the guard was ended by a signal. The command may have done that before its
        start could be reported, so it counts as started.
        """
        if self._refusal:
            raise ProcessError(_explain_refusal(self._refusal))
        if not (self._started or timed_out or guard_was_killed):
            raise ProcessError("the command could not be started: its guard ended too early")
        exit_code, signal_that_ended_it = _parse_status(self._status)
        return CommandResult(
            124 if timed_out else exit_code,
            self.stdout.text(),
            self.stderr.text(),
            self.stdout.truncated or self.stderr.truncated,
            seconds,
            signal_that_ended_it,
            timed_out,
            self._flooded,
            self._outlived,
        )


async def _write_stdin(pipe: trio.abc.SendStream, data: bytes) -> None:
    """Write the input of the command and close the pipe, so that the command sees its end."""
    async with pipe:
        with suppress(trio.BrokenResourceError):  # the command has closed its stdin
            await pipe.send_all(data)


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


# ------------------------------------------------------------------ output


_CONTINUATION_BYTES: Final = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 that continue a character."""


class HeadAndTail:
    """The beginning and the end of a stream of any length. Memory stays within about three times the limit.

    For example:

        output = HeadAndTail(1000)
        output.add(b"...")
        output.text()
    """

    def __init__(self, limit: int = DEFAULT_OUTPUT) -> None:
        """limit: bytes to keep, half of them from the beginning and half from the end."""
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        """At least the last half; trimmed only when it is four times that, so that adding stays cheap."""
        self.total = 0
        """Bytes of the stream so far."""

    def add(self, data: bytes | bytearray) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._half :] if self._half else b""
        if len(self._tail) > 4 * self._half:
            del self._tail[: -self._half]

    @property
    def dropped(self) -> int:
        """Bytes in the middle that are not kept."""
        return self.total - len(self._head) - min(len(self._tail), self._half)

    @property
    def truncated(self) -> bool:
        """True if something is not kept."""
        return self.dropped > 0

    def text(self) -> str:
        """Return the kept text. Bytes that are not UTF-8 are replaced, and a line in the middle tells how much is missing."""
        tail = bytes(self._tail[-self._half :]) if self._half else b""
        if not self.truncated:
            return bytes(self._head + tail).decode("utf-8", "replace")
        # An incremental decoder keeps back a last character that is cut in two. The tail may begin with the end of one.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(self._head)
        tail = tail.lstrip(_CONTINUATION_BYTES)
        return f"{head}\n… {self.dropped:,} bytes left out …\n{tail.decode('utf-8', 'replace')}"
