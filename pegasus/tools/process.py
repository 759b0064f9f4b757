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
reading what is left in the pipes. The part after the order is shielded from cancellation, so that a
cancelled call cleans up as completely as any other.
"""

from __future__ import annotations

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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import trio

from pegasus.tools import strays

_GUARD: Final = str(Path(__file__).with_name("guard.py"))
"""Path of the script that guards each command."""
_GUARD_LIMIT: Final = 5.0
"""Seconds beyond the grace after which the guard is taken for stopped or stuck."""
_READ_SIZE: Final = 1 << 16
"""Bytes of one read; a pipe holds no more."""
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
    pipes = _Pipes()
    try:
        guard = await pipes.start_guard(with_stdin=bool(stdin))
        timed_out = await running.run(pipes, guard, order, stdin, timeout, mark)
        pipes.read_rest(running)
    except OSError as error:
        raise ProcessError(f"the command could not be started: {error}") from error
    finally:
        pipes.close()
    guard_was_killed = guard.returncode is not None and guard.returncode < 0
    return running.result(trio.current_time() - start, timed_out, guard_was_killed)


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


class _Pipes:
    """The pipes of one call: the ends that this process holds.

    There are four: stdout and stderr from the command, reports from the guard, and stdin to the
    command if it has input. The guard inherits the other ends; this process closes its copies of
    them at once, because a pipe ends only when all copies of its writing end are closed. The own
    ends do not block, so that they can be waited for by the event loop.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()
        """Descriptors that have to be closed."""
        self.stdout = self.stderr = self.report = self.stdin = -1

    def _pipe(self, own_end: int) -> tuple[int, int]:
        """Make a pipe whose own end does not block, and remember both ends for closing."""
        ends = os.pipe()
        self._open.update(ends)
        os.set_blocking(ends[own_end], False)
        return ends

    async def start_guard(self, *, with_stdin: bool) -> trio.Process:
        """Start the guard, which then waits for its order and alone holds the other ends. Raises OSError.

        Shielded: starting takes some milliseconds in a thread, and a process that was started must
        be known.
        """
        self.stdout, stdout = self._pipe(0)
        self.stderr, stderr = self._pipe(0)
        self.report, report = self._pipe(0)
        if with_stdin:
            stdin, self.stdin = self._pipe(1)
        else:
            stdin = os.open(os.devnull, os.O_RDONLY)
            self._open.add(stdin)
        with trio.CancelScope(shield=True):
            guard = await trio.lowlevel.open_process(
                [sys.executable, "-I", "-S", _GUARD, str(report), str(stdin)],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                pass_fds=(report, stdin),
                env={name: os.environ[name] for name in _LIBRARY_PATHS if name in os.environ},
                cwd="/",
                start_new_session=True,
            )
        self.close(stdout, stderr, report, stdin)
        return guard

    def close(self, *fds: int) -> None:
        """Close these descriptors, or all that are open."""
        for fd in self._open.intersection(fds) if fds else tuple(self._open):
            self._open.discard(fd)
            os.close(fd)

    def read_rest(self, running: _RunningCommand) -> None:
        """Read what is left in the pipes when everything has ended: no more than a pipe holds, and without waiting."""
        for fd, take in (
            (self.report, running.take_report),
            (self.stdout, running.stdout.add),
            (self.stderr, running.stderr.add),
        ):
            for _ in range(64):
                try:
                    data = os.read(fd, _READ_SIZE)
                except BlockingIOError:
                    break
                if not data:
                    break
                take(data)


class _RunningCommand:
    """The state of one command: its output, and what its guard has reported.

    Three tasks read the pipes as long as anything may arrive. The main flow waits for `_finished`,
    then ends everything, and only then cancels the readers. Data that was still in the pipes at that
    moment is read afterwards by `_Pipes.read_rest`, when nobody can write any more.
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

    async def run(
        self, pipes: _Pipes, guard: trio.Process, order: bytes, stdin: bytes, timeout: float, mark: str
    ) -> bool:
        """Run until everything has ended. Return True if the timeout was the reason."""
        async with trio.open_nursery() as nursery:
            try:
                nursery.start_soon(self._read_reports, pipes.report)
                nursery.start_soon(self._read, pipes.stdout, self._take_output(self.stdout))
                nursery.start_soon(self._read, pipes.stderr, self._take_output(self.stderr))
                if stdin:
                    nursery.start_soon(self._write_stdin, pipes, stdin)
                with trio.move_on_after(timeout) as scope:
                    await self._send_order(guard, order)
                    await self._finished.wait()
            finally:
                with trio.CancelScope(shield=True):
                    await _end_everything(guard, mark, self._limits.grace)
            nursery.cancel_scope.cancel()
        return scope.cancelled_caught

    async def _send_order(self, guard: trio.Process, order: bytes) -> None:
        """Send the guard what to run."""
        assert guard.stdin is not None  # noqa: S101
        try:
            await guard.stdin.send_all(order)
        except trio.BrokenResourceError:  # the guard is gone already
            self._finished.set()

    @staticmethod
    async def _read(fd: int, take: Callable[[bytes], object]) -> None:
        """Read a pipe until its end and pass on the data.

        The checkpoint after each read lets other tasks run: a command that writes without pause
        would otherwise keep this loop going for ever.
        """
        while True:
            try:
                data = os.read(fd, _READ_SIZE)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(fd)
                continue
            if not data:
                return
            take(data)
            await trio.lowlevel.checkpoint()

    async def _read_reports(self, fd: int) -> None:
        """Read the reports of the guard until it is gone."""
        await self._read(fd, self.take_report)
        self._finished.set()  # the guard is gone

    async def _write_stdin(self, pipes: _Pipes, data: bytes) -> None:
        """Write the input of the command and close the pipe, so that the command sees its end."""
        view = memoryview(data)
        try:
            while view:
                try:
                    view = view[os.write(pipes.stdin, view) :]
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(pipes.stdin)
        except BrokenPipeError:
            pass  # the command has closed its stdin
        pipes.close(pipes.stdin)

    def _take_output(self, stream: HeadAndTail) -> Callable[[bytes], object]:
        """Return a function that stores output of one stream and ends the command if it floods."""

        def take(data: bytes) -> None:
            stream.add(data)
            if self.stdout.total + self.stderr.total > self._limits.flood:
                self._flooded = True
                self._finished.set()

        return take

    def take_report(self, data: bytes) -> None:
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

    def add(self, data: bytes) -> None:
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
        head = _without_partial_character(bytes(self._head)).decode("utf-8", "replace")
        while tail and tail[0] & 0xC0 == 0x80:  # the end of a character whose beginning is not kept
            tail = tail[1:]
        return f"{head}\n… {self.dropped:,} bytes left out …\n{tail.decode('utf-8', 'replace')}"


def _without_partial_character(data: bytes) -> bytes:
    """Return the data without a last character that is cut in two."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if byte >> 5 == 0b110 else 3 if byte >> 4 == 0b1110 else 4 if byte >> 3 == 0b11110 else 1
        return data[:-back] if length > back else data
    return data
