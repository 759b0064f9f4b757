"""Tools about the machine itself."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import trio

from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.tools.base import Effect, Tool, ToolContext, ToolError, parameters
from pegasus.tools.environment import command_environment

_CURRENT_TIME = ToolSpec(
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


def current_time(clock: Callable[[], int]) -> Tool:
    """The tool `current_time(timezone?)`. clock: wall clock, ms since the epoch.

    Gives timestamp (ms), iso, timezone, formatted; an unknown zone gives UTC and says so.
    """

    async def run(arguments: Metadata, context: ToolContext) -> Json:
        now = clock()
        wanted = arguments.get("timezone")
        moment = datetime.fromtimestamp(now / 1000, UTC)
        if not isinstance(wanted, str) or not wanted:
            local = moment.astimezone()
            return _describe(now, local, str(local.tzinfo))
        from zoneinfo import ZoneInfo

        try:
            return _describe(now, moment.astimezone(ZoneInfo(wanted)), wanted)
        except (KeyError, ValueError, OSError):  # ZoneInfo raises each of them for one kind of bad name
            return {**_describe(now, moment, "UTC"), "note": f"unknown time zone {wanted!r}: this is UTC"}

    return Tool(_CURRENT_TIME, run, "system", Effect.PURE)


def _describe(now: int, moment: datetime, zone: str) -> dict[str, Json]:
    return {
        "timestamp": now,
        "iso": moment.isoformat(timespec="seconds"),
        "timezone": zone,
        "formatted": moment.strftime("%A, %d %B %Y, %H:%M:%S"),
    }


# ------------------------------------------------------------------ waiting

_SLEEP: Final = ToolSpec(
    "sleep",
    "Wait. For longer waits than one call may take, finish and say what to look at later.",
    parameters({"duration": {"type": "number", "exclusiveMinimum": 0, "description": "seconds"}}, "duration"),
)


async def _sleep(arguments: Metadata, context: ToolContext) -> Json:
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
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
LONGEST_VALUE: Final = 32_768
MOST_VARIABLES: Final = 100
"""Characters of a value, and variables, that one task may set."""


def system_tools(environ: Mapping[str, str] = os.environ) -> tuple[Tool, ...]:
    """sleep, get_env, set_env. environ: the daemon's own environment.

    Both variables' tools speak of what commands get (`pegasus.tools.environment`): the few variables of the daemon that are
    handed on, and what the task has set. So no key, token or password of the daemon can be asked for, whatever its name
    is, and nothing that a task sets reaches the daemon or another task.
    """

    async def get_env(arguments: Metadata, context: ToolContext) -> Json:
        key: Any = arguments["key"]
        value = command_environment(environ, context.env).get(key)
        result: dict[str, Json] = {"key": key, "value": value}
        if value is None and key in environ:
            result["note"] = "it is set for the agent itself, but not handed on to tools, since it may be a secret"
        return result

    async def set_env(arguments: Metadata, context: ToolContext) -> Json:
        key: Any = arguments["key"]
        value: Any = arguments["value"]
        previous = command_environment(environ, context.env).get(key)
        _check_variable(key, value, context.env)
        context.env[key] = value
        return {"key": key, "previous": previous, "current": value}

    return (
        Tool(_SLEEP, _sleep, "system", Effect.PURE),
        Tool(_GET_ENV, get_env, "system", Effect.PURE),
        Tool(_SET_ENV, set_env, "system", Effect.IDEMPOTENT),
    )


def _check_variable(key: str, value: str, known: Mapping[str, str]) -> None:
    if not _NAME.fullmatch(key):
        raise ToolError(f"{key!r} is no name of a variable: letters, digits and _, not beginning with a digit")
    if "\0" in value or len(value) > LONGEST_VALUE:
        raise ToolError(f"the value must have at most {LONGEST_VALUE:,} characters and no NUL")
    if key not in known and len(known) >= MOST_VARIABLES:
        raise ToolError(f"{MOST_VARIABLES} variables are set already")
