"""A terminal that a test sits at: types, and waits for what appears."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from tests.blackbox.support.command import PROGRAM, environment
from tests.blackbox.support.forks import Forked, can_fork, fork_on_terminal
from tests.blackbox.support.waiting import until

ENTER, ALT_ENTER, CTRL_C, CTRL_D, UP = "\r", "\x1b\r", "\x03", "\x04", "\x1b[A"

_WHERE = b"\x1b[6n"
_CONTROL = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>78]|[\x00-\x08\x0b-\x1f]"
)


class Terminal:
    """A program on a pseudo-terminal of 100 columns. raw: everything it wrote."""

    def __init__(self, process: subprocess.Popen[bytes] | Forked, master: int, slave: int) -> None:
        self.process = process
        self.raw = b""
        self._stream = trio.lowlevel.FdStream(os.dup(master))
        self._slave = slave
        self._seen = 0

    async def type(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            await self._stream.send_all(key.encode())

    async def see(self, text: str, timeout: float = 15.0) -> None:
        """Wait until `text` appears, behind what was seen before."""

        def look() -> bool:
            found = self.text.find(text, self._seen)
            if found >= 0:
                self._seen = found + len(text)
            return found >= 0

        try:
            await until(look, f"{text!r} on the screen", timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}; behind it: {self.text[self._seen :][-1500:]!r}") from None

    @property
    def text(self) -> str:
        """Everything it wrote, without colours and cursor movements."""
        return _CONTROL.sub("", self.raw.decode(errors="replace"))

    def attributes(self) -> list[Any]:
        """How the terminal is set (termios)."""
        return termios.tcgetattr(self._slave)

    async def exit(self, timeout: float = 15.0) -> int:
        """The exit code, once the program has ended."""
        await until(lambda: self.process.poll() is not None, "the end of the program", timeout)
        return self.process.returncode

    async def read_all(self) -> None:
        """Read what the program writes, and tell it where the cursor is when it asks."""
        async with self._stream:
            async for chunk in self._stream:
                self.raw += chunk
                for _ in range(chunk.count(_WHERE)):
                    await self._stream.send_all(b"\x1b[1;1R")


@asynccontextmanager
async def terminal(home: Path, *arguments: str, env: Mapping[str, str] | None = None) -> AsyncIterator[Terminal]:
    """`pegasus ARGUMENTS` on a terminal; killed at the end of the block if it still runs."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    variables = environment({"TERM": "xterm-256color", "HOME": str(home.parent), **(env or {})})
    process: subprocess.Popen[bytes] | Forked
    if can_fork(variables, environment()):
        process = fork_on_terminal(["--home", str(home), *arguments], variables, Path.cwd(), environment(), slave)
    else:
        process = subprocess.Popen(  # noqa: ASYNC220 it returns at once
            [*PROGRAM, "--home", str(home), *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env=variables,
        )
    try:
        one = Terminal(process, master, slave)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.read_all)
            try:
                yield one
            finally:
                nursery.cancel_scope.cancel()
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)
