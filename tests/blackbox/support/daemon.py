"""The process under test: started with a home of its own, read from outside, killed in every way."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

import attrs
import trio

from tests.blackbox.support.command import PROGRAM, Result, command, environment
from tests.blackbox.support.forks import Forked, can_fork, fork_program
from tests.blackbox.support.peer import Closed, Peer, connect
from tests.blackbox.support.shared_state import move_files, shared_state_of
from tests.blackbox.support.waiting import POLL, until

READY = re.compile(r"pegasus ready ws=(ws://\S+) http=(\S+) pid=(\d+)")
START_TIMEOUT = 20.0
"""Seconds; a start takes a third of one, but the machine may be busy with other things."""

STARTED: list[Daemon] = []
"""Every daemon of the running test, for the report of a failure and for the reaper."""


@attrs.frozen
class Ready:
    """The ready line, taken apart."""

    ws: str
    http: str
    pid: int


class Exited(AssertionError):
    """The process ended before it was ready."""

    def __init__(self, code: int, stderr: str) -> None:
        super().__init__(f"exit code {code} before the ready line; stderr:\n{stderr}")
        self.code = code
        self.stderr = stderr


@cache
def has_bubblewrap() -> bool:
    """Whether bubblewrap works here."""
    bwrap = shutil.which("bwrap")
    command = [str(bwrap), "--ro-bind", "/", "/", "--unshare-all", "true"]
    return bwrap is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


EVERYTHING_TO_OWNERS = ({"tool": "*", "who": "owner", "decision": "allow"},)
"""Rules by which nobody is asked, so that tests of other things mean the same on machines with and without a sandbox."""


def toml(settings: Mapping[str, Any]) -> str:
    """Settings by key path as a TOML file: `gateway.port = 0`."""
    return "".join(f"{key} = {_value(value)}\n" for key, value in settings.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


class _Drain(threading.Thread):
    """Reads a pipe to its end, so that nobody who writes to it ever waits (and no limit on files applies to it)."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        super().__init__(daemon=True)
        assert pipe is not None
        self._pipe = pipe
        self._data = bytearray()
        self.start()

    def run(self) -> None:
        with self._pipe as pipe:
            while chunk := os.read(pipe.fileno(), 65536):
                self._data += chunk

    @property
    def text(self) -> str:
        """Everything so far."""
        return bytes(self._data).decode(errors="replace")


class Daemon:
    """One home and the processes that run on it, one after another. channel: the channelId of a client that names none."""

    def __init__(
        self,
        home: Path,
        settings: Mapping[str, Any] | None = None,
        *,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home
        # Commands of tests leave their traces beside the home, which Landlock does not allow: tests of walls set the mode themselves.
        reach = {"sandbox.writable": [tempfile.gettempdir()]} if has_bubblewrap() else {"sandbox.mode": "off"}
        self.settings = {
            "gateway.port": 0,
            "http.enabled": False,
            "policy.rules": EVERYTHING_TO_OWNERS,
            **reach,
            **(settings or {}),
        }
        self.options = tuple(options)
        self.env = environment({"HOME": str(home.parent), **(env or {})})
        self.channel = "c1"
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self.at: Ready | None = None
        self._out: _Drain | None = None
        self._err: _Drain | None = None
        STARTED.append(self)

    # ------------------------------------------------------------ starting and ending

    def configure(self, **more: Any) -> None:
        """Write the settings file; `more` by key path with "__" for the dot (gateway__port=0)."""
        self.settings |= {key.replace("__", "."): value for key, value in more.items()}
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "pegasus.toml").write_text(toml(shared_state_of(self.home) | self.settings))

    def spawn(self, *arguments: str) -> None:
        """Start the process and return at once."""
        assert self.process is None or self.process.poll() is not None, "still running"
        if not (self.home / "pegasus.toml").exists() and not self.home.is_file():
            self.configure()
        move_files(self.home)
        options = ["--home", str(self.home), *self.options, *(arguments or ("run", "--no-cli"))]
        if can_fork(self.env, environment()):
            self.process = fork_program(options, self.env, self.home.parent, environment())
        else:
            self.process = subprocess.Popen(
                [*PROGRAM, *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.env,
                cwd=self.home.parent,
            )
        self._out, self._err = _Drain(self.process.stdout), _Drain(self.process.stderr)
        self.at = None

    async def start(self, *arguments: str) -> Ready:
        """Start the process and wait for its ready line. Raises Exited."""
        self.spawn(*arguments)
        return await self.ready()

    async def ready(self) -> Ready:
        """Wait for the ready line. Raises Exited."""
        line = await until(self._ready_or_dead, "the ready line", START_TIMEOUT)
        return self._read_ready(line)

    def start_blocking(self) -> Ready:
        """As start, for fixtures that serve many tests."""
        self.spawn()
        deadline = time.monotonic() + START_TIMEOUT
        while not (line := self._ready_or_dead()):
            assert time.monotonic() < deadline, f"no ready line within {START_TIMEOUT} s"
            time.sleep(POLL)
        return self._read_ready(line)

    def _ready_or_dead(self) -> re.Match[str] | int | None:
        found = READY.search(self.stdout)
        if found and self.stdout.endswith("\n"):
            return found
        code = self._code()
        return None if code is None else code + 1000  # so that 0 is a value too

    def _read_ready(self, line: re.Match[str] | int) -> Ready:
        if isinstance(line, int):
            raise Exited(line - 1000, self.stderr)
        self.at = Ready(line[1], line[2], int(line[3]))
        return self.at

    async def exit(self, timeout: float = 15.0) -> int:
        """Wait until the process has ended by itself; its exit code (negative: killed by that signal)."""
        await until(lambda: self._code() is not None, "the end of the process", timeout)
        return self._running.returncode

    async def stop(self, number: int = signal.SIGTERM, timeout: float = 15.0) -> int:
        """Send a signal and wait for the end."""
        self.signal(number)
        return await self.exit(timeout)

    def signal(self, number: int) -> None:
        self._running.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait until the kernel has taken the process away."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._read_rest()

    async def restart(self) -> Ready:
        """A new process on the same home, after a kill -9 of one that still runs."""
        self.kill()
        return await self.start()

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _code(self) -> int | None:
        """The exit code once the process has ended and everything it wrote has been read."""
        code = self._running.poll()
        if code is not None:
            self._read_rest()
        return code

    def _read_rest(self) -> None:
        for drain in (self._out, self._err):
            if drain is not None:
                drain.join(5)

    @property
    def _running(self) -> subprocess.Popen[bytes] | Forked:
        assert self.process is not None, "never started"
        return self.process

    # ------------------------------------------------------------ looking at it

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def stdout(self) -> str:
        """What this run printed so far."""
        return self._out.text if self._out else ""

    @property
    def stderr(self) -> str:
        """What this run logged so far."""
        return self._err.text if self._err else ""

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    @property
    def url(self) -> str:
        return self._ready.ws

    @property
    def _ready(self) -> Ready:
        assert self.at is not None, "not ready"
        return self.at

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2].rstrip("/"))

    def memory(self) -> int:
        """Resident memory, bytes."""
        return self._memory("VmRSS")

    def peak_memory(self) -> int:
        """The highest resident memory since the start, bytes."""
        return self._memory("VmHWM")

    def _memory(self, name: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        match = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
        assert match, status
        return int(match[1]) * 1024

    def sockets(self) -> int:
        """Sockets the process holds."""
        count = 0
        for entry in os.scandir(f"/proc/{self.pid}/fd"):
            with suppress(FileNotFoundError):  # closed meanwhile
                count += os.readlink(entry.path).startswith("socket:")
        return count

    # ------------------------------------------------------------ talking to it

    @asynccontextmanager
    async def client(
        self, type: str = "web", channel_id: str | None = "", *, path: str = "", lazy: bool = False, **hello: Any
    ) -> AsyncIterator[Peer]:
        """A client that has been welcomed, on web:`channel` if nothing else is said. hello: further fields of the frame.

        channel_id None: a bridge. path: dial the HTTP server there, and not the gateway. lazy: see `connect`. userId and replyTo go
        into the channel. The gateway gives a client two seconds for its greeting, which a busy machine may take from the tests; so it
        dials again, as real clients do.
        """
        name = self.channel if channel_id == "" else channel_id
        url = f"{self._ready.http.replace('http', 'ws', 1)}{path}" if path else self.url
        for attempt in range(3):
            is_welcome = False
            try:
                async with connect(url, lazy=lazy) as peer:
                    await peer.hello(self.token, type, name, **hello)
                    is_welcome = True
                    yield peer
                    return
            except (trio.BrokenResourceError, Closed):
                if is_welcome or attempt == 2:
                    raise

    def bridge(self, type: str = "slack", **hello: Any) -> Any:
        """A client that serves a whole channel type."""
        return self.client(type, None, **hello)

    async def command(
        self, *arguments: str, stdin: bytes = b"", timeout: float = 30.0, env: Mapping[str, str] | None = None
    ) -> Result:
        """Run `pegasus ARGUMENTS` on this home to its end."""
        return await command(
            "--home", str(self.home), *arguments, stdin=stdin, timeout=timeout, env=self.env | dict(env or {})
        )


@asynccontextmanager
async def running(home: Path, settings: Mapping[str, Any] | None = None, **more: Any) -> AsyncIterator[Daemon]:
    """A daemon that is ready, and is killed at the end of the block if it still runs."""
    daemon = Daemon(home, settings, **more)
    try:
        await daemon.start()
        yield daemon
    finally:
        daemon.kill()
