"""Checks of servers without an agent: each is connected to as the agent would do it, its list is read, and it is disconnected.

All are checked at the same time, and each has its own `timeout`, so the check ends when the slowest has had its time. A program runs
in its folder and within its walls, since a check without them would find a program that the agent cannot start.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
import trio

from pegasus.mcp.faults import ServerDown
from pegasus.mcp.server import McpServer
from pegasus.mcp.sorting import KINDS, SortedTool
from pegasus.messages import Json
from pegasus.policy import ToolKind
from pegasus.sandbox import Sandbox
from pegasus.settings import McpServerSettings
from pegasus.tools import ToolContext

GRACE: Final = 2.0
"""Seconds of a server's timeout that are kept for ending it."""
GRACE_SHARE: Final = 0.2
"""The same as a part of a short timeout."""


@attrs.frozen(eq=False, repr=False)
class CheckResult:
    """Outcome for one server.

    Example::

        CheckResult("time", (SortedTool("now", ToolKind.ACT, ToolKind.OPEN_READER, "only reads"),), "2025-11-25", 0.4)
        CheckResult("github", problem="the program ended with exit code 1", seconds=0.2)
    """

    name: str
    """Name of the server in the settings."""
    tools: tuple[SortedTool, ...] = ()
    """Tools that exist here."""
    protocol: str = ""
    """Version of the protocol."""
    seconds: float = 0.0
    """Time until the list was there."""
    problem: str = ""
    """Reason why it cannot be used; "" = it answers."""

    def as_json(self) -> Json:
        """Return the outcome for programs: the number of the tools, and their names by kind, those that harm least first."""
        return {
            "name": self.name,
            "tools": len(self.tools),
            "kinds": {kind: [tool.name for tool in self.tools if tool.kind is kind] for kind in KINDS},
            "protocol": self.protocol,
            "seconds": self.seconds,
            "problem": self.problem,
        }


async def check_servers(
    servers: Sequence[tuple[str, McpServerSettings]], files: ToolContext, folder: Path, sandbox: Sandbox
) -> list[CheckResult]:
    """Return the outcome for each server, in their order. files, folder, sandbox: as for `McpServer`."""
    results: dict[str, CheckResult] = {}
    async with trio.open_nursery() as nursery:
        for name, settings in servers:
            nursery.start_soon(_check_server, name, settings, files, folder, sandbox, results)
    return [results[name] for name, _ in servers]


async def _check_server(
    name: str,
    settings: McpServerSettings,
    files: ToolContext,
    folder: Path,
    sandbox: Sandbox,
    results: dict[str, CheckResult],
) -> None:
    # A program that ignores requests to end is killed within the timeout, too: the check as a whole keeps to it.
    reserve = min(GRACE, settings.timeout * GRACE_SHARE)
    hurried = attrs.evolve(settings, timeout=settings.timeout - reserve)
    server = McpServer(name, hurried, files, folder, sandbox, grace=reserve / 2)
    begun = trio.current_time()
    with trio.move_on_after(settings.timeout) as scope:
        server.on_up = scope.cancel
        with suppress(ServerDown):
            await server.run()
    state, seconds = server.state, trio.current_time() - begun
    if state.state == "up":
        results[name] = CheckResult(name, server.sorted_tools(), state.protocol, seconds)
    else:
        problem = state.reason or f"it did not answer within {settings.timeout:g} s"
        results[name] = CheckResult(name, problem=problem, seconds=seconds)


def kinds_text(tools: Sequence[SortedTool], *, as_trusted: bool = False) -> str:
    """Return how many tools there are of each kind. as_trusted: as they were if their server were trusted.

    Example: "2 private readers, 1 act".
    """
    kinds = [tool.if_trusted if as_trusted else tool.kind for tool in tools]
    counts = {kind: kinds.count(kind) for kind in ToolKind}
    return ", ".join(f"{count} {KINDS[kind][count != 1]}" for kind, count in counts.items() if count)
