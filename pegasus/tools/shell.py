"""Tools that run programs, shell_exec and run_python, and their environment: get_env and set_env.

The programs run within the walls that the machine can build (`pegasus.sandbox.sandbox`): they can read the system and write to the
workspace and the allowed folders. Without walls they have the rights of the user who runs Pegasus. Their environment holds none
of the daemon's secrets, and everything that they start ends with the call (`pegasus.sandbox.process`).

There are three times for one command, and the shortest counts: the timeout that the model asks for,
the deadline of the call, and the moment by which the command has to end so that its output can
still be returned (`time_left`). Without the last, a command that runs into the deadline would lose
what it has written, which usually shows why it did not finish.

Python code is passed on stdin and not as a file or argument: no file is left behind, and the code is
not visible in the list of processes. `-I` keeps the interpreter from importing modules of the
workspace instead of those that the code means; they are found behind all others.

The rule for the environment is a list of what is passed on, not of what is kept back. A secret in a variable that
nobody thought of stays inside. The names of secrets are guessed only for masking (`secrets_in_environment` in `pegasus.redaction`).
There a wrong guess costs little: a value that is not secret is shown as `***`, or a secret with an unusual name
is not masked if a command finds it in some other way.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from pegasus.formatting import plural
from pegasus.messages import Json
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted
from pegasus.sandbox import NO_SANDBOX, CommandLimits, CommandResult, ProcessError, Sandbox, run_process, signal_name
from pegasus.settings import LiveValue
from pegasus.tools.base import Effect, Reach, Tool, ToolContext, ToolError, as_tool_error, parameters
from pegasus.tools.client_tools import RUN_COMMAND, ClientCallFailed, ClientOffer
from pegasus.tools.command_variables import NON_INTERACTIVE, TERMINAL_TYPE, command_environment
from pegasus.tools.files import real_folder
from pegasus.tools.in_client import runs_in_client
from pegasus.tools.walls import changed_files, enclose, note_of_changes, note_of_walls

_MARGIN: Final = 1.0
"""Seconds, beside the grace, by which a command ends before the deadline of the call, so that its
output can be returned."""
CLIENT_SECONDS: Final = 3600.0
"""Seconds that a command in a terminal of a client may take, where nothing else bounds it."""
_TIMEOUT: Final[Json] = {
    "type": "number",
    "description": "Seconds after which it is ended; what it wrote until then is returned. At most what the tool itself has",
}
"""Schema of the timeout, which both tools have."""

ENV: Final[Json] = {
    "type": "object",
    "description": "Environment variables to set",
    "additionalProperties": {"type": "string"},
}
"""Schema of the variables that a command gets."""
PTY: Final[Json] = {
    "type": "boolean",
    "description": "Give it a terminal, for a program that needs one; control sequences are left out of its output",
}
"""Schema of the wish for a terminal."""

_SHELL: Final = ToolSpec(
    "shell_exec",
    "Run a shell command (sh -c) and wait for it. Everything it starts ends with it, background processes too: use command_start "
    "for what is to go on running. It has no input, and no terminal unless pty is true. Of long output the beginning and the end are "
    "returned.",
    parameters(
        {
            "command": {"type": "string"},
            "cwd": {"type": "string", "description": "Folder to run in; without it, the workspace"},
            "timeout": _TIMEOUT,
            "env": ENV,
            "pty": PTY,
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

_RUN_CODE: Final = """
def run():
    import os, sys
    module, code = sys.modules["__main__"], sys.stdin.buffer.read()
    def show(kind, error, trace):
        import traceback
        while trace and trace.tb_frame.f_code.co_filename == "<string>":
            trace = trace.tb_next
        traceback.print_exception(kind, error, trace)
    class Source:
        get_source = staticmethod(lambda name: code.decode("utf-8", "replace"))
    sys.excepthook, module.__loader__ = show, Source
    sys.argv[:] = ["(code)"]
    sys.path.append(os.getcwd())
    sys.stdout.reconfigure(errors="backslashreplace")
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("code")
        os.write(file, code)
        module.__file__ = f"/proc/{os.getpid()}/fd/{file}"
    del module.run
    return compile(code, "(code)", "exec", dont_inherit=True), module.__dict__
exec(*run())
"""
"""Program that runs the code on its stdin as `__main__`, as if it were a file that is left nowhere.

Tracebacks have the lines of the code (`get_source`). Processes that multiprocessing spawns find the code in a file that exists
in memory only, while this process lives. Modules of the workspace can be imported, behind all others, so that none takes the
place of one that the code means. Nothing is imported that the code does not need, since each import is a part of every call.
"""

_MORE: Final = "Let it write to a file in the workspace, and read parts of that."
"""Advice of a result that was cut."""


def shell_tools(
    limits: CommandLimits = CommandLimits(), sandbox: LiveValue[Sandbox] = LiveValue(NO_SANDBOX)
) -> tuple[Tool, ...]:
    """Return shell_exec and run_python. limits: of each command, see `CommandLimits`. sandbox: the walls around each.

    Both have the effect ONCE: whether a command did something before a crash is unknown, and only the model can
    look.

        tools = shell_tools(CommandLimits(grace=5.0))
    """

    async def shell_exec(arguments: Any, context: ToolContext) -> Json:
        """Run a line of shell. What is wrong with the arguments is refused before anything is started."""
        command = arguments["command"]
        if not command.strip():
            raise ToolError("command is empty")
        return await _run(command, arguments, context, limits, sandbox.now)

    async def run_python(arguments: Any, context: ToolContext) -> Json:
        """Run code in a new interpreter, so that it cannot touch the daemon's own modules."""
        argv = [sys.executable, "-I", "-u", "-X", "utf8", "-c", _RUN_CODE]
        return await _run(
            argv, arguments, context, limits, sandbox.now, stdin=arguments["code"].encode("utf-8", "replace")
        )

    return (
        Tool(_SHELL, shell_exec, "code", Effect.ONCE, _MORE, Reach.OUTSIDE, Untrusted.COMMAND),
        Tool(_PYTHON, run_python, "code", Effect.ONCE, _MORE, Reach.OUTSIDE, Untrusted.COMMAND),
    )


async def _run(
    command: str | Sequence[str],
    arguments: Any,
    context: ToolContext,
    limits: CommandLimits,
    sandbox: Sandbox,
    stdin: bytes = b"",
) -> Json:
    """Run a command for a tool and return its result.

    The output kept of each stream
    depends on the room that the result has, so that a result is not cut in the middle of its JSON.

    A cancel ends the command with everything that it has started before it takes effect (`run_process`).
    """
    requested = arguments.get("timeout", math.inf)
    if not requested > 0:
        raise ToolError(f"timeout must be above 0 seconds, found {requested}")
    # Before the time is measured, since looking at the disk may take a part of it.
    folder, environment, terminal = await prepare_command(arguments, context)
    if context.client is not None and runs_in_client(_SHELL.name, context) and isinstance(command, str):
        return await _run_in_client(context.client, command, folder, arguments, context, limits)
    # Both streams fit into the result as JSON: two fifths each, a fifth for the other fields and for escapes.
    bounds = attrs.evolve(limits, output=min(limits.output, max(context.max_result * 2 // 5, 1000)))
    # Ended by its own timeout, a command returns its output. The deadline of the call would return nothing.
    timeout = min(requested, time_left(limits.grace))
    sandbox = await enclose(sandbox, context)
    await note_command(context, command if isinstance(command, str) else "run_python")
    with as_tool_error(ProcessError):
        result = await run_process(
            command,
            cwd=folder,
            env=environment,
            timeout=timeout,
            limits=bounds,
            stdin=stdin,
            terminal=terminal,
            shown=True,
            sandbox=sandbox,
        )
    changed = note_of_changes(await changed_files(sandbox, context))
    return _format_result(result, timeout, limits, sandbox, changed)


async def _run_in_client(
    offer: ClientOffer, command: str, folder: Path, arguments: Any, context: ToolContext, limits: CommandLimits
) -> Json:
    """Run a command in a terminal of the client, which ends it at the timeout, and return its result."""
    timeout = min(arguments.get("timeout", math.inf), time_left(limits.grace), CLIENT_SECONDS)
    await note_command(context, command)
    asked: dict[str, Json] = {
        "command": command,
        "cwd": str(folder),
        "env": {**NON_INTERACTIVE, **context.env, **arguments.get("env", {})},
        "seconds": timeout,
        "outputBytes": min(limits.output, max(context.max_result * 2 // 5, 1000)),
    }
    with as_tool_error(ClientCallFailed):
        # A little longer than the command may take, so that the client can still give back what it has written.
        result = await offer.call(RUN_COMMAND, asked, timeout + min(limits.grace, timeout / 4), context.key)
    notes = [f"ended after {timeout:.3g} s"] if result.get("timedOut") else []
    notes += [f"killed by {result['signal']}"] if result.get("signal") else []
    return {
        "exitCode": result.get("exitCode"),
        "stdout": str(result.get("output") or ""),
        "stderr": "",
        "truncated": bool(result.get("truncated")),
        "note": "; ".join(["it ran in a terminal of the editor", *notes]),
    }


async def note_command(context: ToolContext, command: str) -> None:
    """Keep that a command runs, beside the changes that can be taken back: what it changes cannot."""
    if (changes := context.changes) is not None:
        note = partial(changes.note_command, context.task_id, context.principal.guest, command)
        await trio.to_thread.run_sync(note)


async def prepare_command(arguments: Any, context: ToolContext) -> tuple[Path, dict[str, str], bool]:
    """Return folder, environment and terminal of a command with the arguments `cwd`, `env` and `pty`. Raises ToolError.

    The folder is checked in a thread, because that touches the disk.

    A name with "=" or a NUL would become another variable, or end the environment.
    """
    env = arguments.get("env", {})
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise ToolError(f"env: {name!r} is not an environment variable with a text as its value")
    folder = await trio.to_thread.run_sync(real_folder, context, arguments.get("cwd") or ".")
    terminal = bool(arguments.get("pty"))
    # It wins over the TERM of NON_INTERACTIVE, and the variables of the task win over it.
    kind = {"TERM": TERMINAL_TYPE} if terminal else {}
    return Path(folder), command_environment(os.environ, {**kind, **context.env, **env}), terminal


def time_left(grace: float) -> float:
    """Return the seconds a command may take, so that its result can be returned before the deadline of the call.

    It is the rest of the call less the grace and a margin, but never less than three quarters of
    the rest.

    Three quarters, because a call with very little time would otherwise begin a command that is ended at once.
    """
    left = trio.current_effective_deadline() - trio.current_time()
    return max(left - min(grace + _MARGIN, left / 4), 0.0) if left < math.inf else left


def _format_result(
    result: CommandResult, timeout: float, limits: CommandLimits, sandbox: Sandbox, changed: Sequence[str]
) -> dict[str, Json]:
    """Return the result as the model sees it.

    `note` is there only if there is something that the exit code does not say. changed: a note about files.
    """
    walls = note_of_walls(result.exit_code, f"{result.stdout}\n{result.stderr}", sandbox)
    note = "; ".join([*_notes(result, timeout, limits, sandbox), *changed, *walls])
    return {
        "exitCode": result.exit_code,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "truncated": result.truncated,
        "durationMs": round(result.seconds * 1000),
        **({"note": note} if note else {}),
    }


def _notes(result: CommandResult, timeout: float, limits: CommandLimits, sandbox: Sandbox) -> list[str]:
    """Return notes about facts that the exit code does not show."""
    if result.waited_for:
        hidden = "something that is typed without being shown, such as a password"
        what = hidden if result.waited_for == "secret" else result.waited_for
        return [
            f"ended early, with all it had started: it waits for {what}, and nobody types here. Say all in its arguments "
            "(-m, -y, --batch, --no-pager), or talk to it with command_start (pty) and command_input"
        ]
    if result.timed_out:
        return [f"ended after {timeout:.3g} s, with all it had started"]
    notes = notes_of_end(result.exceeded, result.outlived, limits, sandbox)
    if result.exceeded:
        return notes
    # What follows can be true beside processes that were left.
    if result.signal:
        notes.insert(0, f"killed by {result.signal}")
    # A shell reports the signal of its last program as an exit code, which a program may also return by itself. So it
    # is only a guess.
    elif result.exit_code > 128 and (name := signal_name(result.exit_code - 128)).startswith("SIG"):
        notes.insert(0, f"exit code {result.exit_code} usually means: killed by {name}")
    return notes


def notes_of_end(exceeded: str, outlived: int, limits: CommandLimits, sandbox: Sandbox) -> list[str]:
    """Return for the model why a command was ended, or that it has left processes. The arguments are as in `CommandResult`."""
    if exceeded == "output":
        return [f"ended because it wrote more than {limits.flood >> 20} MiB"]
    if exceeded == "memory":
        megabytes = (limits.memory or sandbox.memory) >> 20
        return [f"ended because its processes used more than {megabytes:,} MB of memory together (sandbox.memory_mb)"]
    if exceeded:
        return [f"ended because it had more than {limits.processes or sandbox.processes} processes (sandbox.processes)"]
    if not outlived:
        return []
    left = plural(outlived, "process", "processes")
    return [f"{left} still running in the background when the command was done, and ended with it"]


# ------------------------------------------------------------------ get_env and set_env

_GET_ENV: Final = ToolSpec(
    "get_env",
    "An environment variable, as commands of this task see it; null if there is none.",
    parameters({"key": {"type": "string"}}, "key"),
)
_SET_ENV: Final = ToolSpec(
    "set_env",
    "Set an environment variable for the commands that this task runs from now on.",
    parameters({"key": {"type": "string"}, "value": {"type": "string"}}, "key", "value"),
)
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
"""Names that shells accept."""
MAX_VALUE: Final = 32_768
"""Characters of a variable that a task sets. The system limits the environment of a command as a whole."""
MAX_VARIABLES: Final = 100
"""Variables that one task may set. They are kept in memory and passed to every command."""


def environment_tools(environ: Mapping[str, str] = os.environ) -> tuple[Tool, ...]:
    """Return get_env and set_env. environ: the daemon's own environment.

    Both variable tools work on what commands get (`command_environment`): the few variables of the
    daemon that are passed on, and those that the task has set. So no key, token or password of the
    daemon can be read, whatever its name, and nothing that a task sets reaches the daemon or
    another task.

    The variables of a task are in the context of its calls and end with the task; they are not stored.
    """

    async def get_env(arguments: Any, context: ToolContext) -> Json:
        """Read a variable. For one of the daemon's own, the note says why it is not shown."""
        key = arguments["key"]
        value = command_environment(environ, context.env).get(key)
        result: dict[str, Json] = {"key": key, "value": value}
        if value is None and key in environ:
            result["note"] = "it is set for the agent itself, but not handed on to tools, since it may be a secret"
        return result

    async def set_env(arguments: Any, context: ToolContext) -> Json:
        """Set a variable in the mapping that all calls of the task share."""
        key, value = arguments["key"], arguments["value"]
        _check_variable(key, value, context.env)
        # What commands have seen until now, which may be the value of the daemon.
        previous = command_environment(environ, context.env).get(key)
        context.env[key] = value
        return {"key": key, "previous": previous, "current": value}

    return (
        Tool(_GET_ENV, get_env, "system", Effect.PURE, reach=Reach.INSIDE),
        Tool(_SET_ENV, set_env, "system", Effect.IDEMPOTENT, reach=Reach.INSIDE),
    )


def _check_variable(key: str, value: str, present: Mapping[str, str]) -> None:
    """Raise ToolError unless the variable can be passed to a command and the task may set another one."""
    if not _VARIABLE_NAME.fullmatch(key):
        raise ToolError(
            f"{key!r} is not the name of a variable; allowed: letters, digits and _, not beginning with a digit"
        )
    if "\0" in value or len(value) > MAX_VALUE:
        raise ToolError(f"the value must have at most {MAX_VALUE:,} characters and no NUL")
    # A variable that is set already may be changed without limit.
    if key not in present and len(present) >= MAX_VARIABLES:
        raise ToolError(f"{MAX_VARIABLES} variables are set already")
