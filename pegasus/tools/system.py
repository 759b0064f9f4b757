"""Tools about the machine and the call itself: current_time, sleep, get_env, set_env.

They show as little of the machine as possible. The clock is passed in, so that tests decide what
time it is. Environment variables are those that commands would get, which is what a model wants to
know; the daemon's own may be secrets and are not shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import trio

from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.tools.base import Effect, Tool, ToolContext, ToolError, parameters
from pegasus.tools.environment import command_environment

# ------------------------------------------------------------------ time

_CURRENT_TIME: Final = ToolSpec(
    "current_time",
    "Get the current date and time.",
    parameters(
        {
            "timezone": {
                "type": "string",
                "description": "IANA name such as Asia/Shanghai; without it, the machine's own time zone",
            }
        }
    ),
)
"""The zone is optional, since the machine's own is usually the user's."""
_SLEEP: Final = ToolSpec(
    "sleep",
    "Wait. For longer waits than one call may take, finish and say what to look at later.",
    parameters({"duration": {"type": "number", "exclusiveMinimum": 0, "description": "seconds"}}, "duration"),
)
"""Says that a call has a limit, so that a model plans longer waits differently."""


def current_time(clock: Callable[[], int]) -> Tool:
    """Return the tool `current_time(timezone?)`, which gives timestamp (ms), iso, timezone and formatted.

    clock: returns the wall clock in ms since the epoch. An unknown zone is not an error: the answer
    is UTC, with a note.

        tool = current_time(lambda: time.time_ns() // 1_000_000)
        await tool.run({"timezone": "Asia/Shanghai"}, context)
    """

    async def run(arguments: Metadata, context: ToolContext) -> Json:
        now = clock()
        moment = datetime.fromtimestamp(now / 1000, UTC)
        zone: Any = arguments.get("timezone")
        if not zone:
            local = moment.astimezone()
            return _describe_time(now, local, str(local.tzinfo))
        try:
            return _describe_time(now, moment.astimezone(ZoneInfo(zone)), zone)
        except (KeyError, ValueError, OSError):  # ZoneInfo raises each of them for one kind of bad name
            return {**_describe_time(now, moment, "UTC"), "note": f"unknown time zone {zone!r}: this is UTC"}

    return Tool(_CURRENT_TIME, run, "system", Effect.PURE)


def _describe_time(now: int, moment: datetime, zone: str) -> dict[str, Json]:
    """Return the result of current_time."""
    return {
        "timestamp": now,
        "iso": moment.isoformat(timespec="seconds"),
        "timezone": zone,
        "formatted": moment.strftime("%A, %d %B %Y, %H:%M:%S"),
    }


async def _sleep(arguments: Metadata, context: ToolContext) -> Json:
    """Sleep, unless the deadline of the call would end it first: then refuse at once instead of wasting the time.

    A cancel ends it at once, as everywhere.
    """
    duration: Any = arguments["duration"]
    left = trio.current_effective_deadline() - trio.current_time()
    if duration >= left:
        raise ToolError(f"{duration:g} s is longer than a call may take here ({left:.0f} s)")
    await trio.sleep(duration)
    return {"slept": duration}


# ------------------------------------------------------------------ environment variables

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


def system_tools(environ: Mapping[str, str] = os.environ) -> tuple[Tool, ...]:
    """Return sleep, get_env and set_env. environ: the daemon's own environment.

    Both variable tools work on what commands get (`command_environment`): the few variables of the
    daemon that are passed on, and those that the task has set. So no key, token or password of the
    daemon can be read, whatever its name, and nothing that a task sets reaches the daemon or
    another task.

    The variables of a task are in the context of its calls and end with the task; they are not stored.
    """

    async def get_env(arguments: Metadata, context: ToolContext) -> Json:
        """Read a variable. For one of the daemon's own, the note says why it is not shown."""
        key: Any = arguments["key"]
        value = command_environment(environ, context.env).get(key)
        result: dict[str, Json] = {"key": key, "value": value}
        if value is None and key in environ:
            result["note"] = "it is set for the agent itself, but not handed on to tools, since it may be a secret"
        return result

    async def set_env(arguments: Metadata, context: ToolContext) -> Json:
        """Set a variable in the mapping that all calls of the task share."""
        key: Any = arguments["key"]
        value: Any = arguments["value"]
        _check_variable(key, value, context.env)
        previous = command_environment(environ, context.env).get(key)
        context.env[key] = value
        return {"key": key, "previous": previous, "current": value}

    return (
        Tool(_SLEEP, _sleep, "system", Effect.PURE),
        Tool(_GET_ENV, get_env, "system", Effect.PURE),
        Tool(_SET_ENV, set_env, "system", Effect.IDEMPOTENT),
    )


def _check_variable(key: str, value: str, present: Mapping[str, str]) -> None:
    """Raise ToolError unless the variable can be passed to a command and the task may set another one."""
    if not _VARIABLE_NAME.fullmatch(key):
        raise ToolError(
            f"{key!r} is not the name of a variable; allowed: letters, digits and _, not beginning with a digit"
        )
    if "\0" in value or len(value) > MAX_VALUE:
        raise ToolError(f"the value must have at most {MAX_VALUE:,} characters and no NUL")
    if key not in present and len(present) >= MAX_VARIABLES:
        raise ToolError(f"{MAX_VARIABLES} variables are set already")
