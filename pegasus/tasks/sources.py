"""What a task has read from outside so far, by the tools it has called: words it remembers may come from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pegasus.conversation import Entry
from pegasus.tools import Tool

_KINDS = {"network": "web", "mcp": "other"}
"""By categories of tools. Files of the workspace are mostly the task's own work: of them the model says it itself."""


def outside_of(entries: Iterable[Entry], find: Callable[[str], Tool | None]) -> tuple[str, ...]:
    """Kinds of sources, as `ToolContext.outside` has them. find: a tool by its name."""
    names = {call.name for entry in entries for call in entry.calls}
    tools = (find(name) for name in sorted(names))
    return tuple(sorted({kind for tool in tools if tool is not None and (kind := _KINDS.get(tool.category, ""))}))
