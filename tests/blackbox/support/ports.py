"""Ports of this machine: free ones, and waiting until a program listens."""

from __future__ import annotations

import random
import socket
from contextlib import closing

from tests.blackbox.support.waiting import until


def free_port() -> int:
    """Outside the range the system gives to others, so that it stays free while nobody listens."""
    while True:
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", random.randint(20_000, 32_000)))
            except OSError:
                continue
            return int(probe.getsockname()[1])


async def until_listening(port: int, timeout: float = 20.0) -> None:
    """Programs do not tell when they listen."""
    await until(lambda: _is_listening(port), f"a program that listens at port {port}", timeout)


def _is_listening(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
