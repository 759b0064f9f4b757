"""Tools for commands in the background: command_start, command_output, command_input, command_stop and command_list.

The commands themselves are in `pegasus.sandbox.background`; they belong to the task of the call and end with it. All tools
but the list return the same object: the command, whether it runs, and what it has written since the last look. So a
start that fails at once, and the answer to a line of input, are seen without a further call.

The object has these fields:

    commandId, command, running, seconds     the command as it is now; seconds since its start
    exitCode, signal                         once it has ended; signal only if one has ended it
    output                                   what it has written since the last look, of either tool
    note                                     if output was lost or is waiting, or if something else than the program has ended it

A call that is cancelled while it waits loses nothing: the output stays for the next look. The command runs on, except when its task
is what was cancelled.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import trio

from pegasus.messages import Json
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted
from pegasus.sandbox import (
    NO_SANDBOX,
    BackgroundCommand,
    BackgroundCommands,
    CommandError,
    CommandLimits,
    ProcessError,
    Sandbox,
)
from pegasus.settings import LiveValue
from pegasus.tools.base import Effect, Reach, Tool, ToolContext, ToolError, as_tool_error, parameters
from pegasus.tools.shell import ENV, PTY, note_command, notes_of_end, prepare_command, time_left
from pegasus.tools.walls import changed_files, enclose, look_for_changes, note_of_changes, note_of_walls

MAX_WAIT: Final = 60.0
"""Seconds that one call may wait for output."""
_WAIT_AT_START: Final = 1.0
"""Seconds to wait for the first output. A start that fails at once is seen within them."""
_WAIT_FOR_ANSWER: Final = 2.0
"""Seconds to wait for what a program answers to its input."""
_WAIT_FOR_OUTPUT: Final = 10.0
"""Seconds to wait for news of a command that is known to run."""
_ID: Final[Json] = {"type": "string", "description": 'As command_start has returned it, such as "c1"'}
"""Schema of the id of a command."""


def _wait(usual: float) -> Json:
    """Return the schema of the time to wait for output. usual: seconds if the model says nothing."""
    what = f"Seconds to wait for output or the end, at most {MAX_WAIT:g}; without it, {usual:g}. It returns as soon as there is some"
    return {"type": "number", "minimum": 0, "maximum": MAX_WAIT, "description": what}


_START: Final = ToolSpec(
    "command_start",
    "Start a shell command in the background and go on while it runs: a server, a long build, a program to talk to. Returns its "
    "commandId and its first output. It ends with this task at the latest, with everything it has started.",
    parameters(
        {
            "command": {"type": "string"},
            "cwd": {"type": "string", "description": "Folder to run in; without it, the workspace"},
            "env": ENV,
            "pty": PTY,
            "wait": _wait(_WAIT_AT_START),
        },
        "command",
    ),
)
"""Says that it ends with the task, because models start servers and expect them to stay."""
_OUTPUT: Final = ToolSpec(
    "command_output",
    "What a background command has written since the last look, stdout and stderr in one, and its exit code if it has ended. "
    "Waits if there is nothing new.",
    parameters({"commandId": _ID, "wait": _wait(_WAIT_FOR_OUTPUT)}, "commandId"),
)
"""Says that it waits, so that a model does not ask again and again."""
_INPUT: Final = ToolSpec(
    "command_input",
    "Write to the input of a background command, and return what it answers. A line needs its line break. On a terminal, control "
    'characters are keys: "\\u0003" is Ctrl-C, "\\u0004" Ctrl-D, "\\u001b" Esc.',
    parameters(
        {
            "commandId": _ID,
            "text": {"type": "string"},
            "end": {"type": "boolean", "description": "True: the input ends here"},
            "wait": _wait(_WAIT_FOR_ANSWER),
        },
        "commandId",
        "text",
    ),
)
"""Names the line break and the keys, which models otherwise leave out."""
_STOP: Final = ToolSpec(
    "command_stop",
    "End a background command and everything it has started, and return its last output.",
    parameters({"commandId": _ID}, "commandId"),
)
"""Returns the last output, so that no further look is needed."""
_LIST: Final = ToolSpec("command_list", "List the background commands of this task.", parameters({}))
"""Lists those of this task only: no task sees the commands of another one."""


def background_tools(
    limits: CommandLimits = CommandLimits(), sandbox: LiveValue[Sandbox] = LiveValue(NO_SANDBOX)
) -> tuple[Tool, ...]:
    """Return the five tools. limits: of each command; `output` bytes of it are kept, and more than `flood` bytes end it.

    sandbox: the walls around each command. For example:

        tools = background_tools(CommandLimits(grace=5.0))

    The effect of starting and of writing is ONCE: after a crash the command is gone in any case. Reading and stopping can be repeated.
    """

    async def start(arguments: Any, context: ToolContext) -> Json:
        """Start a command. What is wrong with the arguments is refused before anything is started."""
        # Looked up first, so that a caller without background commands is told that and nothing else.
        commands, line = _commands_of(context), arguments["command"]
        if not line.strip():
            raise ToolError("command is empty")
        folder, environment, terminal = await prepare_command(arguments, context)
        walls = await enclose(sandbox.now, context, lasts=True)
        await note_command(context, line)
        with as_tool_error(ProcessError, CommandError):
            look = partial(look_for_changes, walls, context, lasts=True)
            command = await commands.start(line, folder, environment, limits, terminal, walls, look)
        return await _look(command, context, limits, walls, arguments.get("wait", _WAIT_AT_START))

    async def output(arguments: Any, context: ToolContext) -> Json:
        """Wait for output, and return it."""
        command = _find(context, arguments)
        return await _look(command, context, limits, sandbox.now, arguments.get("wait", _WAIT_FOR_OUTPUT))

    async def write(arguments: Any, context: ToolContext) -> Json:
        """Write to a command, and return what it answers."""
        command = _find(context, arguments)
        text = arguments["text"].encode("utf-8", "replace")
        with as_tool_error(CommandError):
            await command.write(text, end=arguments.get("end", False))
        return await _look(command, context, limits, sandbox.now, arguments.get("wait", _WAIT_FOR_ANSWER))

    async def stop(arguments: Any, context: ToolContext) -> Json:
        """End a command. One that has ended before is no error.

        The output of its last moments is part of the result.
        """
        command = _find(context, arguments)
        await command.stop()
        return await _look(command, context, limits, sandbox.now, 0.0)

    async def list_all(arguments: Any, context: ToolContext) -> Json:
        """List the commands, oldest first."""
        return [_describe(command) for command in _commands_of(context)]

    return (
        Tool(_START, start, "code", Effect.ONCE, reach=Reach.OUTSIDE, source=Untrusted.COMMAND),
        Tool(_OUTPUT, output, "code", Effect.IDEMPOTENT, reach=Reach.INSIDE, source=Untrusted.COMMAND),
        Tool(_INPUT, write, "code", Effect.ONCE, reach=Reach.OUTSIDE, source=Untrusted.COMMAND),
        Tool(_STOP, stop, "code", Effect.IDEMPOTENT, reach=Reach.INSIDE, source=Untrusted.COMMAND),
        Tool(_LIST, list_all, "code", Effect.PURE, reach=Reach.INSIDE, source=Untrusted.COMMAND),
    )


def _commands_of(context: ToolContext) -> BackgroundCommands:
    """Return the background commands of the caller. Raises ToolError if it cannot have any.

    The Main Agent has none: it ends with no task, so its commands would end with the process only.
    """
    if context.commands is None:
        raise ToolError("only background tasks can have background commands; start a task for this")
    return context.commands


def _find(context: ToolContext, arguments: Any) -> BackgroundCommand:
    """Return the command that a call names. Raises ToolError."""
    with as_tool_error(CommandError):
        return _commands_of(context).get(arguments["commandId"])


async def _look(
    command: BackgroundCommand, context: ToolContext, limits: CommandLimits, sandbox: Sandbox, wait: float
) -> dict[str, Json]:
    """Wait for news of a command, and return its state with the output since the last look.

    wait: seconds, cut so that the call ends before its own deadline. The output gets three fifths of the room of a result; the rest
    is for the other fields.
    """
    # The deadline of the call would lose the output of the command for this look, so the wait ends before it.
    await command.wait_for_news(min(wait, time_left(limits.grace)))
    end = command.end
    part = await command.read(max(context.max_result * 3 // 5, 1_000))
    notes = []
    if part.lost:
        notes.append(f"{part.lost:,} bytes before this output are lost, because nobody read them in time")
    if part.waiting:
        notes.append(f"{part.waiting:,} bytes more are waiting; read on with command_output")
    if end is not None:
        notes += notes_of_end(end.exceeded, end.outlived, limits, sandbox)
        notes += note_of_walls(end.exit_code, part.text, sandbox)
    notes += note_of_changes(await changed_files(sandbox, context, lasts=True))
    note: dict[str, Json] = {"note": "; ".join(notes)} if notes else {}
    return {**_describe(command), "output": part.text, **note}


def _describe(command: BackgroundCommand) -> dict[str, Json]:
    """Return a command without its output.

    The name of the command is part of it, because a model remembers what it has started better than "c1".
    """
    state: dict[str, Json] = {
        "commandId": command.id,
        "command": command.name,
        "running": command.end is None,
        "seconds": round(trio.current_time() - command.started_at),
    }
    if command.end is not None:
        state["exitCode"] = command.end.exit_code
        if command.end.signal:
            state["signal"] = command.end.signal
    return state
