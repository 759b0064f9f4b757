"""Lean tools of tasks: fewer tools with shorter schemas, for a model with a small context window.

The schemas of all tools of a task take about 3,300 tokens, most of a window of 4,096; the lean ones take 700. A lean schema is made
from the full one: the first sentence of the description, the parameters that are required, and those that `SHOWN_WHEN_LEAN` names.
Tools that are left out can still be called. Tools that an installation adds stay as they are, since nobody here knows what matters in
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pegasus.messages import Json
from pegasus.models import ToolSpec
from pegasus.tools.standard import ALL_TASK_TOOLS

SHOWN_WHEN_LEAN: Final[Mapping[str, tuple[str, ...]]] = {
    "read_file": ("offset",),
    "write_file": (),
    "edit_file": (),
    "list_files": ("path",),
    "grep_files": ("path",),
    "web_fetch": ("offset",),
    "web_search": (),
    "shell_exec": (),
    "memory_search": (),
    "notify": (),
}
"""Tools that are shown, with the optional parameters that are."""


def lean_task_specs(specs: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return the lean form of a task's tools, in the same order.

    Example: `lean_task_specs([read_file, get_env])` has only `read_file`, with the parameters `path` and `offset`.
    """
    return tuple(
        _shorten(spec, SHOWN_WHEN_LEAN[spec.name]) if spec.name in SHOWN_WHEN_LEAN else spec
        for spec in specs
        if spec.name in SHOWN_WHEN_LEAN or spec.name not in ALL_TASK_TOOLS
    )


def _shorten(spec: ToolSpec, optional: tuple[str, ...]) -> ToolSpec:
    """Return a tool with the first sentence of its description, its required parameters, and these optional ones."""
    properties, required = spec.parameters["properties"], spec.parameters.get("required", [])
    assert isinstance(properties, dict)  # noqa: S101 - as `parameters` makes it
    assert isinstance(required, list)  # noqa: S101
    kept: dict[str, Json] = {
        name: schema for name, schema in properties.items() if name in required or name in optional
    }
    sentence = f"{spec.description.partition('. ')[0].rstrip('.')}."
    return ToolSpec(spec.name, sentence, {"type": "object", "properties": kept, "required": required})
