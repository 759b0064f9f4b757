"""Tools that run programs: shell_exec and run_python.

The programs have the rights of the user who runs Pegasus. `cwd` must be an allowed folder, but what
a command does after its start is not restricted by the allowed paths. Their environment holds none
of the daemon's secrets (`pegasus.tools.environment`), and everything that they start ends with the
call (`pegasus.tools.process`).

There are three times for one command, and the shortest counts: the timeout that the model asks for,
the deadline of the call, and the moment by which the command has to end so that its output can
still be returned (`time_left`). Without the last, a command that runs into the deadline would lose
what it has written, which usually shows why it did not finish.

Python code is passed on stdin and not as a file or argument: no file is left behind, and the code is
not visible in the list of processes. `-I` keeps the interpreter from importing modules of the
workspace instead of those that the code means.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import attrs
import trio

from pegasus.formatting import plural
from pegasus.messages import Json
from pegasus.models import ToolSpec
from pegasus.tools.base import Effect, Tool, ToolContext, ToolError, parameters
from pegasus.tools.environment import command_environment
from pegasus.tools.files import real_folder
from pegasus.tools.process import CommandLimits, CommandResult, ProcessError, run_process, signal_name

_MARGIN: Final = 1.0
"""Seconds, beside the grace, by which a command ends before the deadline of the call, so that its
output can be returned."""
_TIMEOUT: Final[Json] = {
    "type": "number",
    "description": "Seconds after which it is ended; what it wrote until then is returned. At most what the tool itself has",
}
"""Schema of the timeout, which both tools have."""

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
"""Says that nothing survives the call, because models start servers in the background."""

_PYTHON: Final = ToolSpec(
    "run_python",
    "Run Python code in a new interpreter, in the workspace, and wait for it. Only what it prints is returned. "
    "Everything it starts ends with it. It has no terminal and no input.",
    parameters({"code": {"type": "string"}, "timeout": _TIMEOUT}, "code"),
)
"""Says that only printed text comes back; models expect the value of the last expression."""

_MORE: Final = "Let it write to a file in the workspace, and read parts of that."
"""Advice of a result that was cut."""


def shell_tools(limits: CommandLimits = CommandLimits()) -> tuple[Tool, ...]:
    """Return shell_exec and run_python. limits: of each command, see `CommandLimits`.

    Both have the effect ONCE: whether a command did something before a crash is unknown, and only the model can
    look.

        tools = shell_tools(CommandLimits(grace=5.0))
    """

    async def shell_exec(arguments: Any, context: ToolContext) -> Json:
        """Run a line of shell. What is wrong with the arguments is refused before anything is started."""
        command = arguments["command"]
        if not command.strip():
            raise ToolError("command is empty")
        return await _run(command, arguments, context, limits)

    async def run_python(arguments: Any, context: ToolContext) -> Json:
        """Run code in a new interpreter, so that it cannot touch the daemon's own modules."""
        argv = [sys.executable, "-I", "-u", "-X", "utf8", "-"]
        return await _run(argv, arguments, context, limits, stdin=arguments["code"].encode("utf-8", "replace"))

    return (
        Tool(_SHELL, shell_exec, "code", Effect.ONCE, more=_MORE),
        Tool(_PYTHON, run_python, "code", Effect.ONCE, more=_MORE),
    )


async def _run(
    command: str | Sequence[str], arguments: Any, context: ToolContext, limits: CommandLimits, stdin: bytes = b""
) -> Json:
    """Run a command for a tool and return its result.

    The folder is checked in a thread, because that touches the disk. The output kept of each stream
    depends on the room that the result has, so that a result is not cut in the middle of its JSON.

    A cancel ends the command with everything that it has started before it takes effect (`run_process`).
    """
    requested, env = arguments.get("timeout", math.inf), arguments.get("env", {})
    if not requested > 0:
        raise ToolError(f"timeout must be above 0 seconds, found {requested}")
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise ToolError(f"env: {name!r} is not an environment variable with a text as its value")
    folder = await trio.to_thread.run_sync(real_folder, context, arguments.get("cwd") or ".")
    environment = command_environment(os.environ, {**context.env, **env})
    # Both streams fit into the result as JSON: two fifths each, a fifth for the other fields and for escapes.
    bounds = attrs.evolve(limits, output=min(limits.output, max(context.max_result * 2 // 5, 1000)))
    timeout = min(requested, time_left(limits.grace))
    try:
        result = await run_process(command, cwd=folder, env=environment, timeout=timeout, limits=bounds, stdin=stdin)
    except ProcessError as error:
        raise ToolError(str(error)) from error
    return _format_result(result, timeout, limits)


def time_left(grace: float) -> float:
    """Return the seconds a command may take, so that its result can be returned before the deadline of the call.

    It is the rest of the call less the grace and a margin, but never less than three quarters of
    the rest.
    """
    left = trio.current_effective_deadline() - trio.current_time()
    return max(left - min(grace + _MARGIN, left / 4), 0.0) if left < math.inf else left


def _format_result(result: CommandResult, timeout: float, limits: CommandLimits) -> dict[str, Json]:
    """Return the result as the model sees it.

    `note` is there only if there is something that the exit code does not say.
    """
    note = "; ".join(_notes(result, timeout, limits))
    return {
        "exitCode": result.exit_code,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "truncated": result.truncated,
        "durationMs": round(result.seconds * 1000),
        **({"note": note} if note else {}),
    }


def _notes(result: CommandResult, timeout: float, limits: CommandLimits) -> list[str]:
    """Return notes about facts that the exit code does not show."""
    if result.timed_out:
        return [f"ended after {timeout:.3g} s, with all it had started"]
    if result.flooded:
        return [f"ended because it wrote more than {limits.flood >> 20} MiB"]
    notes = []
    if result.signal:
        notes.append(f"killed by {result.signal}")
    elif result.exit_code > 128 and (name := signal_name(result.exit_code - 128)).startswith("SIG"):
        notes.append(f"exit code {result.exit_code} usually means: killed by {name}")
    if result.outlived:
        left = plural(result.outlived, "process", "processes")
        notes.append(f"{left} still running in the background when the command was done, and ended with it")
    return notes
