"""Lists of tools as servers send them, made harmless: names, descriptions and schemas that models and providers can be shown.

Everything in such a list is a claim of the server. A description may be an instruction to the model, ten megabytes long or full of
characters that nobody sees; a schema may be one that a provider refuses, and with it every request that the tool is part of. So

* texts are cleaned as messages are, cut, and shown as the words of the server;
* a schema is kept where it is an object of JSON Schema of a moderate size. Of others the properties are kept without their words, and
  as a last resort the tool takes any object: its server checks the arguments itself;
* what has no usable name is left out.

Annotations (`readOnlyHint`) are claims as well. No call of such a tool is repeated because of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

import attrs
import trio

from pegasus.conversation import sanitize_for_prompt
from pegasus.formatting import cut_text
from pegasus.mcp.names import tool_name
from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.tools import is_valid_schema
from pegasus.wire import encode_json

LONGEST_DESCRIPTION: Final = 1_024
"""Characters of a description."""
LONGEST_WORDS: Final = 300
"""Characters of a description within a schema."""
LONGEST_PROPERTY: Final = 64
"""Characters of a parameter's name; providers refuse longer ones."""
LARGEST_SCHEMA: Final = 8_192
"""Characters of a schema as JSON."""
MOST_PARTS: Final = 2_000
"""Values of a schema that are looked at, whatever its size: a message of 8 MB holds half a million."""
MOST_PROPERTIES: Final = 200
"""Parameters of a tool."""
DEEPEST: Final = 12
"""Levels of a schema; no tool that people use has half of them."""
LONGEST_NAME: Final = 256
"""Characters of a server's own name of a tool."""
MOST_TOOLS: Final = 20_000
"""Tools of one server; further ones are left out."""
AT_A_TIME: Final = 5
"""Tools that are read without letting others run: less than a millisecond, or some fifty if all of them are as large as can be."""
ANYTHING: Final[Metadata] = {"type": "object", "properties": {}}
"""Schema of a tool whose own schema cannot be used."""

_REFUSED_AT_TOP: Final = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "$schema", "$id")
"""Keywords that providers refuse at the top of a tool's schema, or have no use for."""
_WORDS: Final = ("description", "title")
"""Keywords whose values are texts for people and models."""


@attrs.frozen(eq=False, repr=False)
class ListedTool:
    """A tool of a server: `ListedTool("read.file", ToolSpec("files__read_file", …))`."""

    own_name: str
    """Name that the server knows it by."""
    spec: ToolSpec
    """Name, description and schema for models."""
    is_extra: bool = False
    """It is no tool of the server, but stands for its resources or prompts (`extras`)."""


async def read_tools(server: str, found: Iterable[object]) -> tuple[ListedTool, ...]:
    """Return the tools of a server's list. Entries that are none, and second ones of a name, are left out.

    found: as they came, which may be anything. Others run meanwhile: ten thousand tools take half a second.
    """
    tools: dict[str, ListedTool] = {}
    names: set[str] = set()
    for number, entry in enumerate(found):
        if number % AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()
        own_name = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(entry, Mapping) or not isinstance(own_name, str) or not 0 < len(own_name) <= LONGEST_NAME:
            continue
        if own_name in tools or len(tools) >= MOST_TOOLS:
            continue
        name = tool_name(server, own_name, names)
        names.add(name)
        spec = ToolSpec(name, describe(server, entry), read_schema(entry.get("inputSchema")))
        tools[own_name] = ListedTool(own_name, spec)
    return tuple(tools.values())


def describe(server: str, entry: Mapping[str, Any]) -> str:
    """Return the description of a tool: whose words they are, and the words."""
    words = entry.get("description") or entry.get("title")
    text = clean(words, LONGEST_DESCRIPTION) if isinstance(words, str) else ""
    return f"Tool of the MCP server {server}. {text}" if text else f"Tool of the MCP server {server}."


def clean(text: str, limit: int) -> str:
    """Return a text from a server on one line, without characters that nobody sees, cut to `limit` characters."""
    return cut_text(" ".join(sanitize_for_prompt(text[: 4 * limit]).split()), limit)


# ------------------------------------------------------------------ schemas


def read_schema(schema: object) -> Metadata:
    """Return the schema of a tool's arguments in a form that providers take.

    Example: a schema of 100 kB becomes its properties with their types alone.
    """
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        return ANYTHING
    kept = {key: value for key, value in schema.items() if key not in _REFUSED_AT_TOP}
    properties = kept.get("properties", {})
    if not isinstance(properties, Mapping) or not all(isinstance(value, Mapping) for value in properties.values()):
        return ANYTHING
    if len(properties) > MOST_PROPERTIES:
        return ANYTHING
    for words in (LONGEST_WORDS, 0):
        try:
            bounded: dict[str, Json] = {**_bounded(kept, words, 0, count()), "type": "object"}
            bounded.setdefault("properties", {})
            if _is_sound(bounded) and len(encode_json(bounded)) <= LARGEST_SCHEMA:
                return bounded
        except (ValueError, RecursionError):
            break
    return _types_only(properties, kept.get("required"))


def is_moderate(schema: object) -> bool:
    """Return whether a schema is an object of at most LARGEST_SCHEMA characters."""
    try:
        return isinstance(schema, Mapping) and len(encode_json(schema)) <= LARGEST_SCHEMA
    except (ValueError, RecursionError):
        return False


def _bounded(value: Mapping[str, Any], words: int, level: int, parts: Iterator[int]) -> dict[str, Json]:
    """Return a schema whose texts have at most `words` characters. Raises ValueError if it is too large, too deep or refers elsewhere.

    parts: counts the values that were looked at.
    """
    if level > DEEPEST:
        raise ValueError("too deep")
    kept: dict[str, Json] = {}
    for key, item in value.items():
        if key == "$ref" and isinstance(item, str) and not item.startswith("#"):
            raise ValueError("a reference to another document")
        if key in _WORDS and isinstance(item, str):
            if words:
                kept[key] = clean(item, words)
        else:
            kept[key] = _bounded_item(item, words, level, parts)
    return kept


def _bounded_item(item: Any, words: int, level: int, parts: Iterator[int]) -> Json:
    if next(parts) >= MOST_PARTS:
        raise ValueError("too large")
    if isinstance(item, Mapping):
        return _bounded(item, words, level + 1, parts)
    if isinstance(item, list):
        if level >= DEEPEST:
            raise ValueError("too deep")
        return [_bounded_item(element, words, level + 1, parts) for element in item]
    if isinstance(item, str):
        if len(item) > LARGEST_SCHEMA:
            raise ValueError("too large")
        return sanitize_for_prompt(item)
    return item  # type: ignore[no-any-return]


def _is_sound(schema: Metadata) -> bool:
    """Return whether a schema is one: required names are texts, and those of properties are such as providers take."""
    required, properties = schema.get("required", []), schema.get("properties")
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        return False
    return (
        isinstance(properties, Mapping)
        and all(0 < len(name) <= LONGEST_PROPERTY for name in properties)
        and is_valid_schema(schema)
    )


def _types_only(properties: Mapping[str, Any], required: object) -> Metadata:
    """Return a schema that names the properties with their types; ANYTHING if even that is too large."""
    known = ("string", "number", "integer", "boolean", "array", "object", "null")
    short: dict[str, Json] = {}
    for name, schema in properties.items():
        kind = schema.get("type")
        short[name] = {"type": kind} if isinstance(kind, str) and kind in known else {}
    names: Sequence[object] = required if isinstance(required, list) else ()
    needed: list[Json] = [name for name in names if isinstance(name, str) and name in short]
    found: Metadata = {"type": "object", "properties": short, "required": needed}
    return found if _is_sound(found) and len(encode_json(found)) <= LARGEST_SCHEMA else ANYTHING
