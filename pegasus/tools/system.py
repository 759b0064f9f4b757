"""Tools about the machine itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from pegasus.messages import Json, Metadata
from pegasus.models.base import ToolSpec
from pegasus.tools.base import Effect, Tool, ToolContext

_CURRENT_TIME = ToolSpec(
    "current_time",
    "Get the current date and time.",
    {
        "type": "object",
        "properties": {
            "timezone": {
                "type": "string",
                "description": "IANA name such as Asia/Shanghai; without it, the machine's own time zone",
            }
        },
    },
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
