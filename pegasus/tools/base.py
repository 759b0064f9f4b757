"""A tool, and the one way it is run: arguments checked, under a deadline, every failure a result the model can read."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import attrs
import trio

from pegasus.messages import ChannelInfo, Json, Metadata
from pegasus.models.base import ToolSpec


class ToolError(Exception):
    """The tool could not do it; the text tells the model why and what would work."""


class Effect(StrEnum):
    """What running a tool again does, which decides what becomes of a call that a crash interrupted."""

    PURE = "pure"  # nothing but a look: run it again; may run side by side with others
    IDEMPOTENT = "idempotent"  # the same call with the same key has its effect once
    ONCE = "once"  # every run may have its effect: never run again unasked


@attrs.frozen(eq=False)
class ToolContext:
    """What a call may know and touch beside its arguments; never the model's choice (trap T12).

    key: the same for the same call, also when it is run again after a crash. workspace: where relative paths begin.
    allowed_paths: folders, as real paths; what lies below one of them may be read and written.
    origin: the channel of the message that the call is made for, if it is made for one.
    """

    task_id: str = ""
    key: str = ""
    user_id: str | None = None
    workspace: Path = Path()
    allowed_paths: tuple[Path, ...] = ()
    origin: ChannelInfo | None = None


@attrs.frozen(eq=False)
class Tool:
    """spec: what the model sees; its parameters are also what arguments are checked against.

    category: system, file, network, data, memory, code, task, mcp or custom.
    """

    spec: ToolSpec
    run: Callable[[Metadata, ToolContext], Awaitable[Json]]
    category: str = "custom"
    effect: Effect = Effect.ONCE

    @property
    def name(self) -> str:
        """As the model calls it."""
        return self.spec.name


NO_CONTEXT = ToolContext()


@attrs.frozen
class ToolOutcome:
    """content: JSON of the result, or `Error: …`. failed: whether the call failed."""

    content: str
    failed: bool


def failure(message: str) -> ToolOutcome:
    """The outcome of a call that failed."""
    return ToolOutcome(f"Error: {message}", failed=True)


async def run_tool(tool: Tool, arguments: Metadata, timeout: float, context: ToolContext = NO_CONTEXT) -> ToolOutcome:
    """Run once, for at most `timeout` seconds, after which the tool is cancelled (trap T27). Raises nothing but Cancelled."""
    problem = check_arguments(tool.spec.parameters, arguments)
    if problem is not None:
        return failure(problem)
    try:
        with trio.fail_after(timeout):
            result = await tool.run(arguments, context)
    except trio.TooSlowError:
        return failure(f"{tool.spec.name} was ended: it took longer than {timeout:g} s")
    except ToolError as error:
        return failure(str(error))
    except Exception as error:  # a broken tool must not end the thought
        return failure(f"{tool.spec.name} failed: {type(error).__name__}: {error}")
    return ToolOutcome(json.dumps(result, ensure_ascii=False, separators=(",", ":")), failed=False)


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (Mapping,),
    "array": (list, tuple),
}


def check_arguments(schema: Metadata, arguments: Metadata) -> str | None:
    """What is wrong with the arguments, in words for the model, or None.

    Understands the part of JSON Schema that our tools use: type, properties, required, enum.
    """
    properties: Any = schema.get("properties", {})
    required: Any = schema.get("required", [])
    problems = [f"{name} is required" for name in required if arguments.get(name) is None]
    for name, value in arguments.items():
        if name not in properties:
            problems.append(f"{name} is not a parameter (there are: {', '.join(properties) or 'none'})")
        elif value is not None and (problem := _check_value(properties[name], value)):
            problems.append(f"{name} {problem}")
    return "; ".join(problems) or None


def _check_value(schema: Mapping[str, Any], value: Json) -> str | None:
    wanted = schema.get("type", "")
    if wanted in _TYPES and (
        not isinstance(value, _TYPES[wanted]) or (isinstance(value, bool) and wanted in ("integer", "number"))
    ):
        return f"must be of type {wanted}, found {type(value).__name__}"
    if "enum" in schema and value not in schema["enum"]:
        return f"must be one of {', '.join(map(str, schema['enum']))}, found {value!r}"
    return None
