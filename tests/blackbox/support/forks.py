"""Processes of Pegasus without the cost of a start: forked from a process that has imported everything.

Starting the interpreter and importing Pegasus is most of what a short process costs, and is the same each time. So a server, one for
each pytest process, imports Pegasus once and forks for each program. The fork is a process like any other: it has its own pid,
environment, directory and standard streams, can be signalled and killed, and at its end waits for its threads and calls the functions
of `atexit`. Only the imports are not its own, and it does not tear its modules down: that would copy all memory that it shares with
the server, which costs more than most programs do. Some tests of terminals, pipes and services start `python -m pegasus` itself
(tests/pegasus/terminal/test_process.py, `test_cli`, `test_signals`), the chat starts its daemon itself, and PEGASUS_SPAWN=1 makes all
tests do so.

The server has no threads, since only the thread that forks would live on in the fork. It is told what to start on a socket, with
the descriptors of the streams and of a pipe into which it writes the exit status, and ends when the socket is closed.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import linecache
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import attrs

ROOT = Path(__file__).resolve().parents[3]
INTERPRETER = ("PYTHON", "LANG", "LC_", "COVERAGE")
"""Variables that the interpreter reads when it starts: a program for which they differ is not forked."""
LATE = (
    *("yaml", "jsonschema_rs", "json_repair", "re2", "tomlkit", "jiter", "httpx2", "httpcore2", "anthropic"),
    *("anyio._backends._trio", "anyio._core._sockets", "encodings.idna"),
)
"""What Pegasus imports when it first needs it."""
NOT_IMPORTED = "pegasus.testing"
"""What no program needs."""
CLOCK_AHEAD = "CLOCK_AHEAD"
"""Variable with the seconds that the wall clock of a forked program is ahead of that of the machine."""
_MOST = 1 << 20
"""Bytes of an order: arguments and environment."""


# ------------------------------------------------------------------ for tests


def can_fork(env: Mapping[str, str], base: Mapping[str, str]) -> bool:
    """Return whether a program with this environment may be forked."""

    def of_interpreter(variables: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in variables.items() if name.startswith(INTERPRETER)}

    return not os.environ.get("PEGASUS_SPAWN") and of_interpreter(env) == of_interpreter(base)


class Forked:
    """A program that the server has forked. Looks like a `subprocess.Popen`."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        self.returncode: int | None = None
        self.status = status
        """Pipe that tells the exit status; -1 once it is known."""

    def poll(self) -> int | None:
        """Return the exit code, None while the program runs."""
        return self.wait(0) if self.status < 0 or select.select([self.status], [], [], 0)[0] else None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code when the program has ended. Raises TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self.status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("pegasus", timeout or 0)
            told = os.read(self.status, 20)
            os.close(self.status)
            self.status = -1
            assert told, "the server of forks has ended"
            self.returncode = int(told)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended just now
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Server:
    """The server, as long as this pytest process runs."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST)
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=dict(env), cwd=ROOT)
        atexit.register(self.close)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def fork(self, order: Mapping[str, object], descriptors: Sequence[int]) -> int:
        socket.send_fds(self._socket, [json.dumps(order).encode()], list(descriptors))
        return int(self._socket.recv(20))


_server: list[_Server] = []


def fork_program(
    arguments: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    base: Mapping[str, str],
    *,
    stdin: bool = False,
    module: str = "pegasus",
) -> Forked:
    """Fork `pegasus ARGUMENTS`. base: environment of the server. stdin: a pipe; else /dev/null. module: another with a `main`."""
    if not _server:
        _server.append(_Server(base))
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    in_end, ours = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), -1)
    try:
        process = _fork(arguments, env, cwd, (in_end, out_end, err_end), module=module)
    finally:
        for descriptor in (in_end, out_end, err_end):
            os.close(descriptor)
    process.stdin = os.fdopen(ours, "wb", buffering=0) if stdin else None
    process.stdout, process.stderr = os.fdopen(out, "rb", buffering=0), os.fdopen(err, "rb", buffering=0)
    return process


def fork_on_terminal(
    arguments: Sequence[str], env: Mapping[str, str], cwd: Path, base: Mapping[str, str], slave: int
) -> Forked:
    """Fork `pegasus ARGUMENTS` with a terminal as its streams, in a session of its own."""
    if not _server:
        _server.append(_Server(base))
    return _fork(arguments, env, cwd, (slave, slave, slave), session=True)


def _fork(
    arguments: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    streams: tuple[int, int, int],
    *,
    session: bool = False,
    module: str = "pegasus",
) -> Forked:
    order = {"arguments": list(arguments), "env": dict(env), "cwd": str(cwd), "session": session, "module": module}
    status, status_end = os.pipe()
    try:
        return Forked(_server[0].fork(order, (*streams, status_end)), status)
    finally:
        os.close(status_end)


# ------------------------------------------------------------------ the server


def _preload() -> None:
    import pegasus

    for module in pkgutil.walk_packages(pegasus.__path__, "pegasus."):
        if not module.name.startswith(NOT_IMPORTED):
            importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    _prepare_conversions()


def _prepare_conversions() -> None:
    """Have the readers and writers of values made: a program makes each when it first needs it, a fifth of what a short one costs."""
    from pegasus.wire import from_wire, to_wire

    modules = [module for name, module in sys.modules.items() if name.startswith("pegasus.")]
    classes = {cls for module in modules for cls in vars(module).values() if isinstance(cls, type) and attrs.has(cls)}
    for cls in classes:
        for is_foreign in (False, True):
            with suppress(Exception):  # it needs fields, or is never read
                from_wire({}, cls, is_foreign=is_foreign)
        with suppress(Exception):
            to_wire(object.__new__(cls))


def serve(control: socket.socket) -> Callable[[], None]:
    """Fork a program for each order. Returns in the forks only, with their `main`."""
    gc.disable()
    _preload()
    linecache.clearcache()  # as the product does at its start: freed in a fork, this memory would be copied first
    gc.collect()
    gc.freeze()
    children: dict[int, int] = {}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        readable, _, _ = select.select([control, woken], [], [])
        if woken in readable:
            os.read(woken, 1000)
            _tell_ends(children)
        if control not in readable:
            continue
        order, descriptors, _, _ = socket.recv_fds(control, _MOST, 4)
        if not order:
            os._exit(0)
        *streams, status = descriptors
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            control.close()
            for descriptor in (woken, wake, status, *children.values()):
                os.close(descriptor)
            return _become(json.loads(order), streams)
        for descriptor in streams:
            os.close(descriptor)
        children[pid] = status
        control.send(str(pid).encode())


def _tell_ends(children: dict[int, int]) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with os.fdopen(children.pop(pid), "wb", buffering=0) as pipe, suppress(BrokenPipeError):
                pipe.write(str(os.waitstatus_to_exitcode(status)).encode())


def _become(order: dict[str, Any], streams: Sequence[int]) -> Callable[[], None]:
    """Give this process the streams, the environment, the directory and the arguments of the program; return its `main`."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    for descriptor in streams:
        os.close(descriptor)
    if order["session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    if ahead := float(os.environ.get(CLOCK_AHEAD, 0)):
        clock, clock_ns = time.time, time.time_ns
        time.time, time.time_ns = lambda: clock() + ahead, lambda: clock_ns() + int(ahead * 1e9)
    os.chdir(order["cwd"])
    name = order["module"]
    module = importlib.import_module("pegasus.__main__" if name == "pegasus" else name)
    sys.argv[:] = [module.__file__, *order["arguments"]]
    for name, mode, is_lines in (("stdin", "r", False), ("stdout", "w", False), ("stderr", "w", True)):
        old = getattr(sys, name)
        raw = io.FileIO(old.fileno(), mode, closefd=False)
        buffered = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
        stream = io.TextIOWrapper(buffered, old.encoding, old.errors, line_buffering=is_lines or raw.isatty())
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    gc.enable()
    return module.main


def _end(code: int) -> None:
    """End as the interpreter does up to the teardown of modules. Raises OSError where the streams cannot be flushed."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main = serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        main()
    except SystemExit as ended:
        if isinstance(ended.code, int):
            _end(ended.code)
        raise
    _end(0)
