"""Checking servers without an agent: each is connected to, its list is read, and it is disconnected.

All are checked at the same time, and each has its own `timeout`, so the check ends when the slowest has had its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import trio

from pegasus.mcp.faults import ServerDown
from pegasus.mcp.server import McpServer
from pegasus.settings import McpServerSettings
from pegasus.tools import ToolContext

GRACE: Final = 2.0
"""Seconds of a server's timeout that are kept for ending it."""
GRACE_SHARE: Final = 0.2
"""The same as a part of a short timeout."""


@attrs.frozen(eq=False, repr=False)
class CheckResult:
    """Outcome for one server: `CheckResult("time", 2, "2025-11-25", 0.4)`, or with the reason why it cannot be used."""

    name: str
    tools: int = 0
    """Tools that exist here."""
    protocol: str = ""
    """Version of the protocol."""
    seconds: float = 0.0
    """Time until the list was there."""
    problem: str = ""
    """Why it cannot be used; "" = it answers."""


async def check_servers(
    servers: Sequence[tuple[str, McpServerSettings]], files: ToolContext, tokens: Path
) -> list[CheckResult]:
    """Return the outcome for each server, in their order. files: context with the workspace. tokens: folder of access tokens."""
    results: dict[str, CheckResult] = {}
    async with trio.open_nursery() as nursery:
        for name, settings in servers:
            nursery.start_soon(_check, name, settings, files, tokens, results)
    return [results[name] for name, _ in servers]


async def _check(
    name: str, settings: McpServerSettings, files: ToolContext, tokens: Path, results: dict[str, CheckResult]
) -> None:
    # A program that ignores requests to end takes a while after its deadline; the check as a whole keeps to the timeout.
    patience = settings.timeout - min(GRACE, settings.timeout * GRACE_SHARE)
    server, begun = McpServer(name, attrs.evolve(settings, timeout=patience), files, tokens), trio.current_time()
    with trio.CancelScope() as scope:
        server.on_up = scope.cancel
        try:
            await server.run()
        except ServerDown:
            results[name] = CheckResult(name, problem=server.state.reason, seconds=trio.current_time() - begun)
            return
    state = server.state
    results[name] = CheckResult(name, state.tools, state.protocol, trio.current_time() - begun)
