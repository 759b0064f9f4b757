"""The tools there are, by name, and what has become of their calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pegasus.messages import Json
from pegasus.models import ToolSpec
from pegasus.tools.base import Tool


class ToolRegistry:
    """Tools in the order they were registered, which is the order the model sees them in."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._calls: dict[str, _Calls] = {}
        self.register_many(tools)

    def register(self, tool: Tool) -> None:
        """Add a tool. Raises ValueError if there is one of this name: two would be mixed up in every log."""
        if tool.name in self._tools:
            raise ValueError(f"there is a tool {tool.name!r} already")
        self._tools[tool.name] = tool

    def register_many(self, tools: Iterable[Tool]) -> None:
        """Add all of these, or none. Raises ValueError as `register` does."""
        tools = tuple(tools)
        taken = Counter(tool.name for tool in tools)
        for name, times in taken.items():
            if times > 1 or name in self._tools:
                raise ValueError(f"there is a tool {name!r} already")
        self._tools.update({tool.name: tool for tool in tools})

    def remove(self, name: str) -> None:
        """Take a tool away (its server is gone, say); what is known of its calls stays. Nothing happens if there is none."""
        self._tools.pop(name, None)

    def get(self, name: str) -> Tool | None:
        """The tool of this name, if there is one."""
        return self._tools.get(name)

    def has(self, name: str) -> bool:
        """Whether there is a tool of this name."""
        return name in self._tools

    def all(self) -> tuple[Tool, ...]:
        """Every tool."""
        return tuple(self._tools.values())

    def by_category(self, category: str) -> tuple[Tool, ...]:
        """The tools of one category."""
        return tuple(tool for tool in self._tools.values() if tool.category == category)

    def specs(self) -> tuple[ToolSpec, ...]:
        """Every tool as the model sees it."""
        return tuple(tool.spec for tool in self._tools.values())

    def called(self, name: str, milliseconds: float, *, failed: bool) -> None:
        """Count a call that has ended."""
        calls = self._calls.setdefault(name, _Calls())
        calls.count += 1
        calls.failures += failed
        calls.milliseconds += milliseconds

    def stats(self) -> dict[str, Json]:
        """JSON: total, byCategory {category: tools}, callStats {name: {count, failures, avgDuration in ms}}."""
        categories: dict[str, Json] = {}
        categories.update(Counter(tool.category for tool in self._tools.values()))
        calls: dict[str, Json] = {name: calls.as_json() for name, calls in self._calls.items()}
        return {"total": len(self._tools), "byCategory": categories, "callStats": calls}


class _Calls:
    """Of one tool, so far."""

    __slots__ = ("count", "failures", "milliseconds")

    def __init__(self) -> None:
        self.count = 0
        self.failures = 0
        self.milliseconds = 0.0

    def as_json(self) -> dict[str, Json]:
        average = round(self.milliseconds / self.count, 1)
        return {"count": self.count, "failures": self.failures, "avgDuration": average}
