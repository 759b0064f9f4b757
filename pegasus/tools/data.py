"""Tools that turn data from one form into another: JSON and base64."""

from __future__ import annotations

import base64
import json
from typing import Any, Final, NoReturn

from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.tools.base import Effect, Tool, ToolContext, ToolError, parameters
from pegasus.tools.files.text import unbase64

_TEXT: Final = {"type": "string"}

_PARSE: Final = ToolSpec(
    "json_parse", "Parse JSON text; an error says where it is wrong.", parameters({"text": _TEXT}, "text")
)
_STRINGIFY: Final = ToolSpec(
    "json_stringify",
    "Write data as JSON text.",
    parameters({"data": {"description": "anything"}, "pretty": {"type": "boolean", "description": "indented"}}, "data"),
)
_ENCODE: Final = ToolSpec("base64_encode", "Encode text (as UTF-8) in base64.", parameters({"text": _TEXT}, "text"))
_DECODE: Final = ToolSpec(
    "base64_decode",
    "Decode base64, the usual or the URL alphabet, into text (UTF-8).",
    parameters({"encoded": _TEXT}, "encoded"),
)


def data_tools() -> tuple[Tool, ...]:
    """json_parse, json_stringify, base64_encode, base64_decode."""
    return (
        Tool(_PARSE, _parse, "data", Effect.PURE),
        Tool(_STRINGIFY, _stringify, "data", Effect.PURE),
        Tool(_ENCODE, _encode, "data", Effect.PURE),
        Tool(_DECODE, _decode, "data", Effect.PURE),
    )


async def _parse(arguments: Metadata, context: ToolContext) -> Json:
    given: Any = arguments["text"]
    try:
        return {"data": json.loads(given, parse_constant=_refuse)}
    except RecursionError:
        raise ToolError("that is nested too deep") from None
    except ValueError as error:
        raise ToolError(f"that is not JSON: {error}") from None


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON value")


async def _stringify(arguments: Metadata, context: ToolContext) -> Json:
    return {"text": json.dumps(arguments["data"], ensure_ascii=False, indent=2 if arguments.get("pretty") else None)}


async def _encode(arguments: Metadata, context: ToolContext) -> Json:
    given: Any = arguments["text"]
    try:
        return {"encoded": base64.b64encode(given.encode()).decode()}
    except UnicodeEncodeError as error:
        raise ToolError(f"character {error.start} is half of a pair, which is no text") from None


async def _decode(arguments: Metadata, context: ToolContext) -> Json:
    given: Any = arguments["encoded"]
    data = unbase64(given)
    try:
        return {"decoded": data.decode()}
    except UnicodeDecodeError as error:
        what = f"it decodes to {len(data):,} bytes that are no UTF-8 text (byte {error.start})"
        raise ToolError(f"{what}; write_file with encoding base64 can store them") from None
