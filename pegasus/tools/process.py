"""Running a command that can be ended for certain, with all it has started.

Between the daemon and the command stands a guard (`pegasus.tools.guard`), a process that adopts every orphan below it. At
the end of the call, at its deadline, when it is cancelled, and when the daemon is gone (kill -9 too: a pipe tells the guard),
all of it gets TERM, after `grace` seconds KILL, and is reaped, before the call returns. A guard that was itself killed or
stopped by what it guards is stood in for by a search for the call's mark in the environments of all processes.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import trio

from pegasus.tools import sweep
from pegasus.tools.capture import KEPT, Capture

_GUARD: Final = str(Path(__file__).with_name("guard.py"))
_STUCK: Final = 5.0  # seconds beyond the grace after which the guard itself must be at fault
_CHUNK: Final = 1 << 16  # a pipe holds no more
_LIBRARIES: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # without which some interpreters do not start
_calls = itertools.count(1)

MARK: Final = "PEGASUS_CALL"
"""The environment variable by which processes of a call are known."""


class ProcessError(Exception):
    """The command could not be started; the text says why."""


@attrs.frozen
class Limits:
    """What a command may use.

    output: bytes kept of each stream. flood: bytes of both streams after which it is ended, since nobody wants more (it is read
    all the time, so that it never blocks on a full pipe). file_size: of one file, bytes. memory: address space of one process,
    bytes; None = as much as there is. grace: seconds between TERM and KILL.
    """

    output: int = KEPT
    flood: int = 256 * 1024 * 1024
    file_size: int = 4 * 1024 * 1024 * 1024
    memory: int | None = None
    grace: float = 1.0


@attrs.frozen
class Ended:
    """How a command ended and what it wrote.

    exit_code: its own; 128 + number after a signal (as shells say it), 124 after the timeout (as timeout(1) says it).
    signal: "SIGSEGV", where one ended it. outlived: processes that it had left running and that were ended with it.
    seconds: from the call to its end. truncated: whether output is left out.
    """

    exit_code: int
    stdout: str
    stderr: str
    truncated: bool
    seconds: float
    signal: str | None = None
    timed_out: bool = False
    flooded: bool = False
    outlived: int = 0


async def run_process(
    command: str | Sequence[str],
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    timeout: float = math.inf,
    limits: Limits | None = None,
    stdin: bytes = b"",
) -> Ended:
    """Run a program, or a line of shell (a str), to its end or for `timeout` seconds; nothing of it is left on return.

    stdin: what it can read; nothing by default. On cancel everything is ended first, within the grace (`Limits.grace`), or a few
    seconds more where the guard was attacked. Raises ProcessError where it cannot be started.
    """
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    call = _Call(limits or Limits())
    mark = f"{os.getpid()}.{next(_calls)}.{time.monotonic_ns()}"
    order = _packed({"argv": argv, "cwd": str(cwd), "env": {**env, MARK: mark}, **_bounds(call.limits)})
    began = trio.current_time()
    pipes = _Pipes()
    try:
        guard = await pipes.start_guard(feeding=bool(stdin))
        timed_out = await call.run(pipes, guard, order, stdin, timeout, mark)
        pipes.take_rest(call)
    except OSError as error:
        raise ProcessError(f"the command could not be started: {error}") from error
    finally:
        pipes.close()
    was_killed = guard.returncode is not None and guard.returncode < 0
    return call.result(trio.current_time() - began, timed_out, was_killed)


def _bounds(limits: Limits) -> dict[str, object]:
    bounds = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, limits.file_size)]
    if limits.memory is not None:
        bounds.append((resource.RLIMIT_AS, limits.memory))
    return {"limits": bounds, "grace": limits.grace}


def _packed(order: dict[str, object]) -> bytes:
    import marshal

    try:
        data = marshal.dumps(order)
    except ValueError as error:
        raise ProcessError(f"the command cannot be passed on: {error}") from error
    return len(data).to_bytes(4, "big") + data


class _Pipes:
    """The ends of the pipes of one call that are open in this process."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self.stdout = self.stderr = self.report = self.stdin = -1

    def _pipe(self, ours: int) -> tuple[int, int]:
        ends = os.pipe()
        self._open.update(ends)
        os.set_blocking(ends[ours], False)
        return ends

    async def start_guard(self, *, feeding: bool) -> trio.Process:
        """The guard, waiting for its order; it alone has the other ends. OSError: there is no room for it."""
        self.stdout, stdout = self._pipe(0)
        self.stderr, stderr = self._pipe(0)
        self.report, report = self._pipe(0)
        if feeding:
            stdin, self.stdin = self._pipe(1)
        else:
            stdin = os.open(os.devnull, os.O_RDONLY)
            self._open.add(stdin)
        with trio.CancelScope(shield=True):  # some milliseconds in a thread; what was started must be known
            guard = await trio.lowlevel.open_process(
                [sys.executable, "-I", "-S", _GUARD, str(report), str(stdin)],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                pass_fds=(report, stdin),
                env={name: os.environ[name] for name in _LIBRARIES if name in os.environ},
                cwd="/",
                start_new_session=True,
            )
        self.close(stdout, stderr, report, stdin)
        return guard

    def close(self, *fds: int) -> None:
        """Close these, or all."""
        for fd in self._open.intersection(fds) if fds else tuple(self._open):
            self._open.discard(fd)
            os.close(fd)

    def take_rest(self, call: _Call) -> None:
        """What is still in the pipes when everything has ended. Takes no more than a pipe holds, and never waits."""
        for fd, take in ((self.report, call.hear), (self.stdout, call.stdout.add), (self.stderr, call.stderr.add)):
            for _ in range(64):
                try:
                    data = os.read(fd, _CHUNK)
                except BlockingIOError:
                    break
                if not data:
                    break
                take(data)


class _Call:
    """What is known of one command while it runs."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.stdout = Capture(limits.output)
        self.stderr = Capture(limits.output)
        self.flooded = False
        self._heard = b""
        self._done = trio.Event()
        self._refused = ""
        self._started = False
        self._status: int | None = None
        self._outlived = 0

    async def run(
        self, pipes: _Pipes, guard: trio.Process, order: bytes, stdin: bytes, timeout: float, mark: str
    ) -> bool:
        """To the end of everything; True if that was the timeout."""
        async with trio.open_nursery() as nursery:
            try:
                nursery.start_soon(self._listen, pipes.report)
                nursery.start_soon(self._read, pipes.stdout, self._watched(self.stdout))
                nursery.start_soon(self._read, pipes.stderr, self._watched(self.stderr))
                if stdin:
                    nursery.start_soon(self._feed, pipes, stdin)
                with trio.move_on_after(timeout) as scope:
                    await self._begin(guard, order)
                    await self._done.wait()
            finally:
                with trio.CancelScope(shield=True):
                    await _end(guard, mark, self.limits.grace)
            nursery.cancel_scope.cancel()
        return scope.cancelled_caught

    async def _begin(self, guard: trio.Process, order: bytes) -> None:
        assert guard.stdin is not None  # noqa: S101
        try:
            await guard.stdin.send_all(order)
        except trio.BrokenResourceError:
            self._done.set()

    @staticmethod
    async def _read(fd: int, take: Callable[[bytes], object]) -> None:
        while True:
            try:
                data = os.read(fd, _CHUNK)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(fd)
                continue
            if not data:
                return
            take(data)
            await trio.lowlevel.checkpoint()

    async def _listen(self, fd: int) -> None:
        await self._read(fd, self.hear)
        self._done.set()  # the guard is gone

    async def _feed(self, pipes: _Pipes, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                try:
                    view = view[os.write(pipes.stdin, view) :]
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(pipes.stdin)
        except BrokenPipeError:
            pass  # it does not want to read
        pipes.close(pipes.stdin)

    def _watched(self, capture: Capture) -> Callable[[bytes], object]:
        def take(data: bytes) -> None:
            capture.add(data)
            if self.stdout.total + self.stderr.total > self.limits.flood:
                self.flooded = True
                self._done.set()

        return take

    def hear(self, data: bytes) -> None:
        """A report of the guard."""
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "started":
                self._started = True
            elif word == "refused":
                self._refused = self._refused or rest
            elif word == "ended":
                self._status = int(rest)
                self._done.set()
            elif word == "left":
                self._outlived = int(rest)

    def result(self, seconds: float, timed_out: bool, was_killed: bool) -> Ended:
        """How it ended. was_killed: its guard was, perhaps by itself, before it could be said that it had begun.

        Raises ProcessError if it never began.
        """
        if self._refused:
            raise ProcessError(_reason(self._refused))
        if not (self._started or timed_out or was_killed):
            raise ProcessError("the command could not be started: its guard ended too early")
        code, signal = _exit(self._status)
        return Ended(
            124 if timed_out else code,
            self.stdout.text(),
            self.stderr.text(),
            self.stdout.truncated or self.stderr.truncated,
            seconds,
            signal,
            timed_out,
            self.flooded,
            self._outlived,
        )


async def _end(guard: trio.Process, mark: str, grace: float) -> None:
    """Have the guard end everything, or do it for a guard that cannot."""
    assert guard.stdin is not None  # noqa: S101
    await guard.stdin.aclose()
    with trio.move_on_after(grace + _STUCK):
        await guard.wait()
    if guard.returncode is None:
        await trio.to_thread.run_sync(sweep.below, guard.pid)
        guard.kill()
        await guard.wait()
    if guard.returncode != 0:
        await trio.to_thread.run_sync(sweep.marked, f"{MARK}={mark}")


def _exit(status: int | None) -> tuple[int, str | None]:
    """Exit code and signal name of a wait status; None: nobody knows, since the guard was killed."""
    if status is None:
        return 128 + 9, "SIGKILL"
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code, None
    return 128 - code, signal_name(-code)


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _reason(refused: str) -> str:
    number, _, what = refused.partition(" ")
    if int(number) == errno.EINVAL:
        return f"cannot run it: {what}"
    return f"cannot run {what}: {os.strerror(int(number))}"
