"""The tools of an installation by name, with statistics of their calls.

Tools can come and go while the daemon runs (those of an MCP server with their server), so the
registry can be changed. A caller that needs a stable set for a while, such as a task, takes the
tools out of it once. Statistics are kept by name and survive the removal of a tool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import attrs

from pegasus.messages import Json
from pegasus.models import ToolSpec
from pegasus.tools.base import Tool


@attrs.define
class _CallCounts:
    """Statistics of one tool since the start of the process."""

    count: int = 0
    """Calls, including failed ones."""
    failures: int = 0
    """Calls that ended with a ToolError or at their deadline."""
    milliseconds: float = 0.0
    """Time of all calls together."""

    def as_json(self) -> dict[str, Json]:
        """Return the statistics; at least one call has been counted."""
        average = round(self.milliseconds / self.count, 1)
        return {"count": self.count, "failures": self.failures, "avgDuration": average}


class ToolRegistry:
    """Tools in the order of their registration, which is also the order in which the model sees them.

        registry = ToolRegistry(standard_tools(settings.tools, memory, clock))
        registry.register(my_tool)
        registry.get("read_file")

    Names are unique. The registry holds no resources and has no lifecycle.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._calls: dict[str, _CallCounts] = {}
        self.register_many(tools)

    def register(self, tool: Tool) -> None:
        """Add a tool. Raises ValueError if the name is taken: logs could not tell the two apart."""
        self.register_many((tool,))

    def register_many(self, tools: Iterable[Tool]) -> None:
        """Add all of the tools, or none. Raises ValueError if a name is taken or occurs twice."""
        added: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools or tool.name in added:
                raise ValueError(f"there is a tool {tool.name!r} already")
            added[tool.name] = tool
        self._tools.update(added)

    def remove(self, name: str) -> None:
        """Remove a tool, for instance because its server is gone. Its statistics stay; an unknown name is ignored."""
        self._tools.pop(name, None)

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name, if there is one."""
        return self._tools.get(name)

    def has(self, name: str) -> bool:
        """Return whether there is a tool of this name."""
        return name in self._tools

    def all(self) -> tuple[Tool, ...]:
        """Return every tool."""
        return tuple(self._tools.values())

    def by_category(self, category: str) -> tuple[Tool, ...]:
        """Return the tools of one category."""
        return tuple(tool for tool in self._tools.values() if tool.category == category)

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return every tool as the model sees it."""
        return tuple(tool.spec for tool in self._tools.values())

    def count_call(self, name: str, milliseconds: float, *, failed: bool) -> None:
        """Add a finished call to the statistics."""
        counts = self._calls.setdefault(name, _CallCounts())
        counts.count += 1
        counts.failures += failed
        counts.milliseconds += milliseconds

    def stats(self) -> dict[str, Json]:
        """Return `{total, byCategory: {category: tools}, callStats: {name: {count, failures, avgDuration}}}`, durations in ms."""
        categories: dict[str, Json] = {}
        categories.update(Counter(tool.category for tool in self._tools.values()))
        calls: dict[str, Json] = {name: counts.as_json() for name, counts in self._calls.items()}
        return {"total": len(self._tools), "byCategory": categories, "callStats": calls}
