"""What a task's model calls are for, so that they are counted for the task, and for the chat and message it came from."""

from __future__ import annotations

from pegasus.messages import ChannelInfo
from pegasus.models import Label
from pegasus.tasks.context import TaskContext
from pegasus.wire import WireError, from_wire


def label_of(context: TaskContext, role: str = "subagent") -> Label:
    """The label of a call for this task. Its metadata may name the channel, and the number of the queue item ("item")."""
    metadata = context.input_metadata
    item = metadata.get("item")
    try:
        channel = from_wire(metadata["channel"], ChannelInfo) if "channel" in metadata else None
    except WireError:
        channel = None
    return Label(role, channel, item if type(item) is int else None, context.id)
