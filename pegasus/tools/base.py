"""A tool, and the one way it is run: arguments checked, under a deadline, every failure a result the model can read."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

import attrs
import trio

from pegasus.formatting import describe_error, first_cause
from pegasus.messages import ChannelInfo, Json, Metadata
from pegasus.models import ToolSpec
from pegasus.tools.arguments import check_arguments, without_nulls

__all__ = [
    "MAX_RESULT",
    "NO_CONTEXT",
    "Effect",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolOutcome",
    "check_arguments",
    "failure",
    "parameters",
    "run_tool",
]

MAX_RESULT: Final = 25_600
"""Characters of a result, where nobody knows the context window: 5 % of 128,000 tokens (see `pegasus.tools.context`)."""


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
    env: what set_env has set; one mapping for all calls of a task, and added to the environment of what it runs.
    max_result: characters a result may have; more is cut by the executor, unless the tool shapes its result by it.
    role: who calls, where that is not plain from task_id ("reflection"). outside: the kinds of sources outside ("web", "file")
    that the caller has read on its way, which what it remembers may come from.
    """

    task_id: str = ""
    key: str = ""
    user_id: str | None = None
    workspace: Path = Path()
    allowed_paths: tuple[Path, ...] = ()
    origin: ChannelInfo | None = None
    env: dict[str, str] = attrs.field(factory=dict)
    max_result: int = MAX_RESULT
    role: str = ""
    outside: tuple[str, ...] = ()


@attrs.frozen(eq=False)
class Tool:
    """spec: what the model sees; its parameters are also what arguments are checked against.

    category: system, file, network, data, memory, code, task, mcp or custom. more: a sentence for the model, how to get
    the rest of a result that was too long.
    """

    spec: ToolSpec
    run: Callable[[Metadata, ToolContext], Awaitable[Json]]
    category: str = "custom"
    effect: Effect = Effect.ONCE
    more: str = "Ask for less at a time."

    @property
    def name(self) -> str:
        """As the model calls it."""
        return self.spec.name


NO_CONTEXT = ToolContext()


@attrs.frozen
class ToolOutcome:
    """content: JSON of the result, or `Error: …`. failed: whether the call failed. duration_ms: 0 where nobody measured."""

    content: str
    failed: bool
    duration_ms: int = 0


def failure(message: str) -> ToolOutcome:
    """The outcome of a call that failed."""
    return ToolOutcome(f"Error: {message}", failed=True)


def parameters(properties: Mapping[str, Json], *required: str) -> Metadata:
    """The JSON Schema of a tool's arguments: an object with these properties and no others."""
    schema: dict[str, Json] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return {**schema, "additionalProperties": False}


async def run_tool(tool: Tool, arguments: Metadata, timeout: float, context: ToolContext = NO_CONTEXT) -> ToolOutcome:
    """Run once, for at most `timeout` seconds, after which the tool is cancelled (trap T27). Raises nothing but Cancelled.

    A null among the arguments counts as absent, unless the schema wants it: some models fill in all they do not need.
    """
    arguments = without_nulls(tool.spec.parameters, arguments)
    problem = check_arguments(tool.spec.parameters, arguments)
    if problem is not None:
        return failure(problem)
    try:
        with trio.move_on_after(timeout):
            return ToolOutcome(_written(await tool.run(arguments, context)), failed=False)
        return failure(f"{tool.name} was ended: it took longer than {timeout:g} s")
    except Exception as error:  # a broken tool must not end the thought
        return failure(_why(tool.name, error))
    except BaseExceptionGroup as group:  # beside what broke there is a Cancelled, which alone goes on
        raise group.split(Exception)[1] or group from None


def _why(name: str, error: BaseException) -> str:
    """For the model: what went wrong, without the groups that nurseries wrap around it."""
    error = first_cause(error)
    if isinstance(error, ToolError):
        return str(error)
    if isinstance(error, trio.TooSlowError):
        return f"{name} failed: something in it took too long"
    return f"{name} failed: {describe_error(error)}"


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _written(result: Json) -> str:
    """The result as JSON. Names that are no Unicode keep their bytes as escapes, which the model can hand back."""
    text = json.dumps(result, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return json.dumps(result, separators=(",", ":")) if _SURROGATE.search(text) else text
