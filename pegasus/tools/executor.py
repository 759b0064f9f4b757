"""Running the tools of a registry: each under its deadline, every result of a size that a conversation can bear."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from pegasus.messages import Metadata
from pegasus.tools.base import NO_CONTEXT, Tool, ToolContext, ToolOutcome, run_tool
from pegasus.tools.registry import ToolRegistry


class ToolExecutor:
    """Stateless but for the counts in its registry: one serves all tasks at once, and calls may overlap.

    timeout: seconds for one call; timeouts: by tool name, instead of it.
    """

    def __init__(
        self, registry: ToolRegistry, *, timeout: float = 60.0, timeouts: Mapping[str, float] | None = None
    ) -> None:
        self.registry = registry
        self._timeout = timeout
        self._timeouts = timeouts or {}

    def get(self, name: str) -> Tool | None:
        """The tool of this name, if there is one."""
        return self.registry.get(name)

    def all(self) -> tuple[Tool, ...]:
        """Every tool."""
        return self.registry.all()

    def timeout_of(self, name: str) -> float:
        """Seconds that one call of this tool may take."""
        return self._timeouts.get(name, self._timeout)

    async def run(self, tool: Tool, arguments: Metadata, context: ToolContext = NO_CONTEXT) -> ToolOutcome:
        """Check the arguments, run, count. Raises nothing but Cancelled (counted as a failure); the rest is in the outcome."""
        begun = trio.current_time()
        failed = True
        try:
            outcome = await run_tool(tool, arguments, self.timeout_of(tool.name), context)
            failed = outcome.failed
        finally:
            milliseconds = (trio.current_time() - begun) * 1000
            self.registry.called(tool.name, milliseconds, failed=failed)
        content = cut(outcome.content, context.max_result, tool.more)
        return ToolOutcome(content, outcome.failed, round(milliseconds))


def cut(content: str, most: int, more: str) -> str:
    """The content, or so much of its beginning that it has `most` characters with the notice of what is missing."""
    if len(content) <= most:
        return content
    shown = max(0, most - len(more) - 80)
    missing = len(content) - shown
    return f"{content[:shown]}\n[cut: {missing:,} of {len(content):,} characters are missing here. {more}]"
