"""Tools that run programs: `shell_exec` and `run_python` (interfaces 8.7).

What they run has the rights of the user who runs Pegasus: `cwd` is held to the allowed paths, what a command then does is not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import attrs
import trio

from pegasus.formatting import plural
from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.tools.base import Effect, Tool, ToolContext, ToolError, parameters
from pegasus.tools.environment import command_environment
from pegasus.tools.paths import real_folder
from pegasus.tools.process import Ended, Limits, ProcessError, run_process, signal_name

_MARGIN: Final = 1.0  # seconds beside the grace that are left of the tool's deadline to tell what came of it
_TIMEOUT: Final[Json] = {
    "type": "number",
    "description": "Seconds after which it is ended; what it wrote until then is returned. At most what the tool itself has",
}

_SHELL: Final = ToolSpec(
    "shell_exec",
    "Run a shell command (sh -c) and wait for it. Everything it starts ends with it, background processes too. It has no "
    "terminal and no input. Of long output the beginning and the end are returned.",
    parameters(
        {
            "command": {"type": "string"},
            "cwd": {"type": "string", "description": "Folder to run in; without it, the workspace"},
            "timeout": _TIMEOUT,
            "env": {
                "type": "object",
                "description": "Environment variables to set",
                "additionalProperties": {"type": "string"},
            },
        },
        "command",
    ),
)

_PYTHON: Final = ToolSpec(
    "run_python",
    "Run Python code in a new interpreter, in the workspace, and wait for it. Only what it prints is returned. "
    "Everything it starts ends with it. It has no terminal and no input.",
    parameters({"code": {"type": "string"}, "timeout": _TIMEOUT}, "code"),
)

_MORE: Final = "Let it write to a file in the workspace, and read parts of that."


def shell_tools(limits: Limits | None = None) -> tuple[Tool, ...]:
    """`shell_exec` and `run_python`. limits: what a command may use."""
    bounds = limits or Limits()

    async def shell_exec(arguments: Metadata, context: ToolContext) -> Json:
        command: Any = arguments["command"]
        if not command.strip():
            raise ToolError("command is empty")
        cwd: Any = arguments.get("cwd") or "."
        env: Any = arguments.get("env") or {}
        return await _run(command, cwd, env, arguments, context, bounds)

    async def run_python(arguments: Metadata, context: ToolContext) -> Json:
        code: Any = arguments["code"]
        argv = [sys.executable, "-I", "-u", "-X", "utf8", "-"]
        return await _run(argv, ".", {}, arguments, context, bounds, stdin=code.encode("utf-8", "replace"))

    return (
        Tool(_SHELL, shell_exec, "code", Effect.ONCE, more=_MORE),
        Tool(_PYTHON, run_python, "code", Effect.ONCE, more=_MORE),
    )


async def _run(
    command: str | Sequence[str],
    cwd: str,
    env: dict[str, str],
    arguments: Metadata,
    context: ToolContext,
    limits: Limits,
    stdin: bytes = b"",
) -> Json:
    asked: Any = arguments.get("timeout")
    if asked is not None and not asked > 0:
        raise ToolError(f"timeout must be above 0 seconds, found {asked}")
    for name, value in env.items():
        if not isinstance(value, str) or not name or "=" in name or "\0" in name + value:
            raise ToolError(f"env: {name!r} is no environment variable with a text as its value")
    folder = await trio.to_thread.run_sync(real_folder, context, cwd)
    environment = command_environment(os.environ, {**context.env, **env})
    bounds = attrs.evolve(limits, output=_share(limits.output, context.max_result))
    timeout = min(asked or float("inf"), time_left(limits.grace))
    try:
        ended = await run_process(command, cwd=folder, env=environment, timeout=timeout, limits=bounds, stdin=stdin)
    except ProcessError as error:
        raise ToolError(str(error)) from error
    return _told(ended, timeout, limits)


def time_left(grace: float) -> float:
    """Seconds a command may take so that its end can still be told before the deadline of the call."""
    left = trio.current_effective_deadline() - trio.current_time()
    return max(left - min(grace + _MARGIN, left / 4), 0.0) if left < float("inf") else left


def _share(kept: int, room: int) -> int:
    """Bytes of each stream: two of them, as JSON, should fit into `room` characters."""
    return min(kept, max(room * 2 // 5, 1000))


def _told(ended: Ended, timeout: float, limits: Limits) -> dict[str, Json]:
    note = "; ".join(_notes(ended, timeout, limits))
    return {
        "exitCode": ended.exit_code,
        "stdout": ended.stdout,
        "stderr": ended.stderr,
        "truncated": ended.truncated,
        "durationMs": round(ended.seconds * 1000),
        **({"note": note} if note else {}),
    }


def _notes(ended: Ended, timeout: float, limits: Limits) -> list[str]:
    """What the numbers do not say."""
    if ended.timed_out:
        return [f"ended after {timeout:.3g} s, with all it had started"]
    if ended.flooded:
        return [f"ended because it wrote more than {limits.flood >> 20} MiB"]
    notes = []
    if ended.signal:
        notes.append(f"killed by {ended.signal}")
    elif ended.exit_code > 128 and (name := signal_name(ended.exit_code - 128)).startswith("SIG"):
        notes.append(f"exit code {ended.exit_code} usually means: killed by {name}")
    if ended.outlived:
        left = plural(ended.outlived, "process", "processes")
        notes.append(f"{left} still running in the background when the command was done, and ended with it")
    return notes
