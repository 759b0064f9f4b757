"""The origin of a task's calls: the label of its model calls, and the sources from outside that its tool calls may repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pegasus.conversation import Entry
from pegasus.messages import ChannelInfo
from pegasus.models import Label
from pegasus.tasks.core.context import TaskContext
from pegasus.tools import Tool
from pegasus.wire import WireError, from_wire

_SOURCES = {"network": "web", "mcp": "other"}
"""Kind of source by category of tool. Files of the workspace do not count: they are mostly the task's own work."""


def label_of(context: TaskContext, role: str = "subagent") -> Label:
    """Return the label of a model call of this task, so that its cost is counted for the task and for the chat it came from.

    The metadata of the task may name the channel ("channel") and the number of the queue item ("item"). Values that
    make no sense are left out: a label must not fail a call.
    """
    metadata = context.input_metadata
    item = metadata.get("item")
    try:
        channel = from_wire(metadata["channel"], ChannelInfo) if "channel" in metadata else None
    except WireError:
        channel = None
    return Label(role, channel, item if type(item) is int else None, context.id)


def outside_sources(entries: Iterable[Entry], find_tool: Callable[[str], Tool | None]) -> tuple[str, ...]:
    """Return the kinds of sources from outside that a task has read so far, as `ToolContext.outside` has them.

    They are taken from the tools it has called. Memory marks what such a task writes, since a web page may have dictated it.
    """
    names = sorted({call.name for entry in entries for call in entry.calls})
    tools = [tool for name in names if (tool := find_tool(name)) is not None]
    return tuple(sorted({_SOURCES[tool.category] for tool in tools if tool.category in _SOURCES}))
