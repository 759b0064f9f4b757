"""The floors: what no program of this kind can do without. B a bare process, W an echo over WebSocket, F an append on disk.

(C, the bare provider call, is in provider.py.)
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from trio_websocket import WebSocketConnection, open_websocket_url

from benchmarks.processes import PYTHON, Ran, Running, run, running

IMPORTS = "import trio, attrs, cattrs, trio_websocket"

_ECHO = Path(__file__).with_name("echo.py")


def bare() -> Ran:
    """B: a process that imports the four libraries and ends."""
    return run([PYTHON, "-c", IMPORTS])


@contextmanager
def bare_idle(log: Path) -> Iterator[Running]:
    """B idle: the same process, kept alive within the block."""
    with running(
        [PYTHON, "-c", f"{IMPORTS}; import sys; print('ready', flush=True); sys.stdin.read()"], log=log
    ) as running_process:
        yield running_process


class Echo:
    """W: round trips over a WebSocket to a bare trio-websocket server in its own process."""

    def __init__(self, connection: WebSocketConnection) -> None:
        self._connection = connection

    async def round_trip(self, text: str) -> float:
        """Return the seconds from sending a text to its coming back."""
        began = time.perf_counter()
        await self._connection.send_message(text)
        await self._connection.get_message()
        return time.perf_counter() - began


@asynccontextmanager
async def echo(log: Path) -> AsyncIterator[Echo]:
    with running([PYTHON, str(_ECHO)], log=log) as server:
        async with open_websocket_url(server.line.split()[1], disconnect_timeout=2) as connection:
            yield Echo(connection)


class Appender:
    """F: one append and fdatasync at the end of a file of its own, in the folder that Pegasus writes to."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / "floor.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def append(self, data: bytes) -> float:
        """Return the seconds until the data is on disk."""
        began = time.perf_counter()
        os.write(self._fd, data)
        os.fdatasync(self._fd)
        return time.perf_counter() - began

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def appender(folder: Path) -> Iterator[Appender]:
    floor = Appender(folder)
    try:
        yield floor
    finally:
        floor.close()
