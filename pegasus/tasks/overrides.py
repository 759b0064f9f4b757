"""What one task has otherwise than its type: another model, fewer tools. It stands in the task's metadata, so a replay knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from pegasus.messages import Json, Metadata
from pegasus.tasks.types import TaskType

KEY: Final = "overrides"
"""In the metadata of a task; no event from outside may say it."""


def with_overrides(metadata: Metadata, model: str, tools: Sequence[str] | None) -> Metadata:
    """The metadata of a task that is to have these. model "" and tools None: as its type says."""
    found: dict[str, Json] = {}
    if model:
        found["model"] = model
    if tools is not None:
        found["tools"] = list(tools)
    return {**metadata, KEY: found} if found else metadata


def without_overrides(metadata: Metadata) -> Metadata:
    """The metadata without any, for what nobody in the house has said."""
    return {key: value for key, value in metadata.items() if key != KEY}


def overridden(task_type: TaskType, metadata: Metadata) -> TaskType:
    """The type as this task has it. Tools can only become fewer; a list that cannot be read allows none."""
    found: Any = metadata.get(KEY)
    if found is None:
        return task_type
    if not isinstance(found, Mapping):
        return attrs.evolve(task_type, within=())
    model, tools = found.get("model"), found.get("tools")
    if tools is not None and not (isinstance(tools, list | tuple) and all(isinstance(name, str) for name in tools)):
        tools = ()
    return attrs.evolve(
        task_type,
        model=model if isinstance(model, str) and model else task_type.model,
        within=None if tools is None else tuple(tools),
    )
