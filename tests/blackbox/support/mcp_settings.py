"""MCP servers in the tests: settings that run `mcp_server.py` with its habits, and what one can see of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.blackbox.support.daemon import Daemon
from tests.blackbox.support.peer import Peer
from tests.blackbox.support.waiting import until, until_async

SCRIPT = Path(__file__).with_name("mcp_server.py")


def server(
    name: str, *habits: str, timeout: float = 10.0, env: dict[str, str] | None = None, **options: object
) -> dict[str, Any]:
    """The settings of a server with these habits; options: `log=path` and what a habit needs."""
    key = f"mcp.servers.{name}"
    found = {
        f"{key}.command": sys.executable,
        f"{key}.args": ["-S", str(SCRIPT), *habits, *(f"{option}={value}" for option, value in options.items())],
        f"{key}.timeout": timeout,
    }
    return found | {f"{key}.env.{variable}": value for variable, value in (env or {}).items()}


async def states(client: Peer) -> dict[str, dict[str, Any]]:
    """The servers by name, as `mcp.list` reports them."""
    return {one["name"]: one for one in (await client.call("mcp.list"))["servers"]}


async def reached(daemon: Daemon, name: str, state: str = "up", timeout: float = 15.0) -> dict[str, Any]:
    """Wait until a server is in this state; return what is known of it."""
    async with daemon.client("control", "mcp") as control:
        found: dict[str, Any] = {}

        async def is_there() -> bool:
            nonlocal found
            found = (await states(control))[name]
            return bool(found["state"] == state)

        await until_async(is_there, f"{name} is {state}", timeout, lambda: found)
    return found


def received(log: Path) -> list[dict[str, Any]]:
    """The messages that a server with `log=` has got so far."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


async def got(log: Path, method: str, count: int = 1) -> list[dict[str, Any]]:
    """Wait for messages of this method, and return them."""
    await until(lambda: len(_of(log, method)) >= count, f"{count} {method}")
    return _of(log, method)


def _of(log: Path, method: str) -> list[dict[str, Any]]:
    return [message for message in received(log) if message.get("method") == method]
