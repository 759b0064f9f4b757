"""Tools that need nothing but their arguments: current_time, sleep, and conversions of JSON and base64.

The clock is passed in, so that tests decide what time it is.

The conversions exist for models that cannot do them reliably themselves. Their arguments are bounded by the
length of a model's answer, so they are done at once and not in a thread. They are strict, because a tool that
guesses would hide the mistake that it was called to find. Only base64 is taken in all common forms: those
differ in nothing that matters.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import trio

from pegasus.messages import Json
from pegasus.models import ToolSpec
from pegasus.tools.base import Effect, Reach, Tool, ToolContext, ToolError, parameters
from pegasus.tools.text import decode_base64
from pegasus.wire import decode_json, encode_json


def basic_tools(clock: Callable[[], int]) -> tuple[Tool, ...]:
    """Return current_time, sleep, json_parse, json_stringify, base64_encode and base64_decode.

    All are pure, so they may be run again after a crash. clock: see `current_time`.
    """
    return (
        current_time(clock),
        Tool(_SLEEP, _sleep, "system", Effect.PURE, reach=Reach.INSIDE, repeats=True),
        Tool(_JSON_PARSE, _json_parse, "data", Effect.PURE, reach=Reach.INSIDE),
        Tool(_JSON_STRINGIFY, _json_stringify, "data", Effect.PURE, reach=Reach.INSIDE),
        Tool(_BASE64_ENCODE, _base64_encode, "data", Effect.PURE, reach=Reach.INSIDE),
        Tool(_BASE64_DECODE, _base64_decode, "data", Effect.PURE, reach=Reach.INSIDE),
    )


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

    async def run(arguments: Any, context: ToolContext) -> Json:
        """Return the time in the zone that is asked for."""
        now = clock()
        moment = datetime.fromtimestamp(now / 1000, UTC)
        zone = arguments.get("timezone")
        if not zone:
            # Asked anew at each call: the zone of the machine may change while the daemon runs.
            local = moment.astimezone()
            return _describe_time(now, local, str(local.tzinfo))
        try:
            return _describe_time(now, moment.astimezone(ZoneInfo(zone)), zone)
        except (KeyError, ValueError, OSError):  # ZoneInfo raises each of them for one kind of bad name
            return {**_describe_time(now, moment, "UTC"), "note": f"unknown time zone {zone!r}: this is UTC"}

    return Tool(_CURRENT_TIME, run, "system", Effect.PURE, reach=Reach.INSIDE)


def _describe_time(now: int, moment: datetime, zone: str) -> dict[str, Json]:
    """Return the result of current_time."""
    return {
        "timestamp": now,
        "iso": moment.isoformat(timespec="seconds"),
        "timezone": zone,
        "formatted": moment.strftime("%A, %d %B %Y, %H:%M:%S"),
    }


async def _sleep(arguments: Any, context: ToolContext) -> Json:
    """Sleep, unless the deadline of the call would end it first: then refuse at once instead of wasting the time.

    A cancel ends it at once, as everywhere.
    """
    duration = arguments["duration"]
    left = trio.current_effective_deadline() - trio.current_time()
    # Refused at the start: the deadline would end it with an error after all of that time.
    if duration >= left:
        raise ToolError(f"{duration:g} s is longer than a call may take here ({left:.0f} s)")
    await trio.sleep(duration)
    return {"slept": duration}


# ------------------------------------------------------------------ data

_TEXT: Final = {"type": "string"}
"""Schema of a text argument."""

_JSON_PARSE: Final = ToolSpec(
    "json_parse", "Parse JSON text; an error says where it is wrong.", parameters({"text": _TEXT}, "text")
)
_JSON_STRINGIFY: Final = ToolSpec(
    "json_stringify",
    "Write data as JSON text.",
    parameters({"data": {"description": "anything"}, "pretty": {"type": "boolean", "description": "indented"}}, "data"),
)
_BASE64_ENCODE: Final = ToolSpec(
    "base64_encode", "Encode text (as UTF-8) in base64.", parameters({"text": _TEXT}, "text")
)
_BASE64_DECODE: Final = ToolSpec(
    "base64_decode",
    "Decode base64, the usual or the URL alphabet, into text (UTF-8).",
    parameters({"encoded": _TEXT}, "encoded"),
)


async def _json_parse(arguments: Any, context: ToolContext) -> Json:
    """Parse JSON. The error of the parser names line and column, which is what a model needs to mend it."""
    try:
        return {"data": decode_json(arguments["text"])}
    except ValueError as error:
        raise ToolError(f"that is not JSON: {error}") from None


async def _json_stringify(arguments: Any, context: ToolContext) -> Json:
    """Write any JSON value as text.

    Text that is not ASCII is written as it is.
    """
    return {"text": encode_json(arguments["data"], indent=2 if arguments.get("pretty") else None)}


async def _base64_encode(arguments: Any, context: ToolContext) -> Json:
    """Encode text. Bytes cannot be passed in JSON; files with them are read by read_file with encoding base64."""
    try:
        return {"encoded": base64.b64encode(arguments["text"].encode()).decode()}
    except UnicodeEncodeError as error:
        raise ToolError(f"character {error.start} is half of a surrogate pair, which is not text") from None


async def _base64_decode(arguments: Any, context: ToolContext) -> Json:
    """Decode into text.

    Bytes that are not UTF-8 cannot be returned as JSON, so the error names the tool that can store
    them.
    """
    data = decode_base64(arguments["encoded"])
    try:
        return {"decoded": data.decode()}
    except UnicodeDecodeError as error:
        found = f"it decodes to {len(data):,} bytes that are not UTF-8 text (byte {error.start})"
        raise ToolError(f"{found}; write_file with encoding base64 can store them") from None
