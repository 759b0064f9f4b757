"""Tools that convert data: json_parse, json_stringify, base64_encode, base64_decode.

They exist for models that cannot do it reliably themselves. The arguments are bounded by the length
of a model's answer, so the conversions are done at once and not in a thread.

They are strict, because a tool that guesses would hide the mistake that it was called to find. Only
base64 is taken in all common forms: those differ in nothing that matters.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.tools.base import Effect, Tool, ToolContext, ToolError, parameters
from pegasus.tools.text import decode_base64
from pegasus.wire import decode_json, encode_json

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


def data_tools() -> tuple[Tool, ...]:
    """Return json_parse, json_stringify, base64_encode and base64_decode.

    All are pure, so they may be run again after a crash. Their errors say what is wrong with the input, as the
    model usually asks for exactly that.
    """
    return (
        Tool(_JSON_PARSE, _json_parse, "data", Effect.PURE),
        Tool(_JSON_STRINGIFY, _json_stringify, "data", Effect.PURE),
        Tool(_BASE64_ENCODE, _base64_encode, "data", Effect.PURE),
        Tool(_BASE64_DECODE, _base64_decode, "data", Effect.PURE),
    )


async def _json_parse(arguments: Metadata, context: ToolContext) -> Json:
    """Parse JSON. The error of the parser names line and column, which is what a model needs to mend it."""
    text: Any = arguments["text"]
    try:
        return {"data": decode_json(text)}
    except ValueError as error:
        raise ToolError(f"that is not JSON: {error}") from None


async def _json_stringify(arguments: Metadata, context: ToolContext) -> Json:
    """Write any JSON value as text.

    Text that is not ASCII is written as it is.
    """
    return {"text": encode_json(arguments["data"], indent=2 if arguments.get("pretty") else None)}


async def _base64_encode(arguments: Metadata, context: ToolContext) -> Json:
    """Encode text. Bytes cannot be passed in JSON; files with them are read by read_file with encoding base64."""
    text: Any = arguments["text"]
    try:
        return {"encoded": base64.b64encode(text.encode()).decode()}
    except UnicodeEncodeError as error:
        raise ToolError(f"character {error.start} is half of a surrogate pair, which is not text") from None


async def _base64_decode(arguments: Metadata, context: ToolContext) -> Json:
    """Decode into text.

    Bytes that are not UTF-8 cannot be returned as JSON, so the error names the tool that can store
    them.
    """
    encoded: Any = arguments["encoded"]
    data = decode_base64(encoded)
    try:
        return {"decoded": data.decode()}
    except UnicodeDecodeError as error:
        found = f"it decodes to {len(data):,} bytes that are not UTF-8 text (byte {error.start})"
        raise ToolError(f"{found}; write_file with encoding base64 can store them") from None
