"""Lists of tools as servers send them, made harmless: names, descriptions and schemas that models and providers can be shown.

Everything in such a list is a claim of the server. A description may be an instruction to the model, ten megabytes long or full of
characters that nobody sees; a schema may be one that a provider refuses, and with it every request that the tool is part of. So

* texts are cleaned as messages are, cut, and shown as the words of the server;
* a schema is kept where it is an object of JSON Schema of a moderate size. Of others the properties are kept without their words, and
  as a last resort the tool takes any object: its server checks the arguments itself;
* what has no usable name is left out.

Annotations (`readOnlyHint`) are claims as well. No call of such a tool is repeated because of them; `sorting` has what they count for.

**Names.** Models call a tool `<server>__<tool>`, in the characters and the length that all providers take: letters, digits, `_` and
`-`, and 64 characters. Other characters become `_`; a name that is too long, and one that would be the same as another tool's, ends
with a hash of the server's own name of the tool. So the name of a tool depends on its server's list alone, and is the same after a
restart.

**Extras** stand for what a server has beside tools: its resources (data by address) and its prompts (texts by name). They are
ordinary tools with fixed names: `<server>__list_resources`, `<server>__read_resource`, `<server>__get_prompt`. A server's own tool
of such a name wins, and the setting `tools` decides about them as about any other.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import attrs
import trio

from pegasus.conversation import sanitize_for_prompt
from pegasus.formatting import cut_text
from pegasus.mcp.sorting import NO_HINTS, ToolHints, read_hints
from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.tools import is_valid_schema, parameters
from pegasus.wire import encode_json

LONGEST_DESCRIPTION: Final = 1_024
"""Characters of a description."""
LONGEST_WORDS: Final = 300
"""Characters of a description within a schema."""
LARGEST_SCHEMA: Final = 8_192
"""Characters of a schema as JSON."""
LARGEST_SOURCE: Final = 65_536
"""Characters of a schema as the server sends it. Of a larger one only the types are taken: a message of 8 MB holds half a million."""
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

LONGEST_TOOL_NAME: Final = 64
"""Characters of the name under which models call a tool, at most."""
SEPARATOR: Final = "__"
"""Stands between server and tool. The name of a server may not hold it, so that two servers never have tools of one name."""
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]")
_HASH: Final = 8
"""Hexadecimal digits of the hash at the end of a name."""

_REFUSED_AT_TOP: Final = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "$schema", "$id")
"""Keywords that providers refuse at the top of a tool's schema, or have no use for."""
_PROPERTY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Names of parameters that all providers take. Anthropic refuses a request as a whole for any other."""
_WORDS: Final = ("description", "title")
"""Keywords whose values are texts for people and models."""


@attrs.frozen(eq=False, repr=False)
class ListedTool:
    """A tool of a server, as it is shown to models.

    Example::

        tools = await read_tools("files", [{"name": "read.file", "inputSchema": {"type": "object"}}])
        tools[0].own_name    # "read.file", which calls of the server use
        tools[0].spec.name   # "files__read_file", which models use
    """

    own_name: str
    """Name that the server knows it by."""
    spec: ToolSpec
    """Name, description and schema for models."""
    hints: ToolHints = NO_HINTS
    """The server's words about what a call changes."""
    is_extra: bool = False
    """True if it is no tool of the server, but stands for its resources or prompts."""


def tool_name(server: str, tool: str, taken: Container[str] = ()) -> str:
    """Return the name under which models call a tool. taken: names that other tools of the server have.

    Example: `tool_name("files", "read.file")` is "files__read_file".
    """
    name = f"{server}{SEPARATOR}{_OTHERS.sub('_', tool)}"
    if len(name) <= LONGEST_TOOL_NAME and name not in taken:
        return name
    digest = sha256(tool.encode("utf-8", "replace")).hexdigest()[:_HASH]
    return f"{name[: LONGEST_TOOL_NAME - _HASH - 1]}_{digest}"


async def read_tools(server: str, found: Iterable[object]) -> tuple[ListedTool, ...]:
    """Return the tools of a server's list. Entries that are none, and second ones of a name, are left out.

    found: as they came, which may be anything. Others run meanwhile: ten thousand tools take half a second.

    The first entry of a name wins. The order of the server is kept, so that a prompt is the same after a restart.
    """
    tools: dict[str, ListedTool] = {}
    names: set[str] = set()
    for number, entry in enumerate(found):
        if number % AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()
        own_name = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(entry, Mapping) or not isinstance(own_name, str) or not 0 < len(own_name) <= LONGEST_NAME:
            continue
        # Second ones are dropped and not renamed: the server itself could not tell them apart.
        if own_name in tools or len(tools) >= MOST_TOOLS:
            continue
        name = tool_name(server, own_name, names)
        names.add(name)
        spec = ToolSpec(name, describe(server, entry), read_schema(entry.get("inputSchema")))
        tools[own_name] = ListedTool(own_name, spec, read_hints(entry))
    return tuple(tools.values())


def describe(server: str, entry: Mapping[str, Any]) -> str:
    """Return the description of a tool: whose words they are, and the words."""
    words = entry.get("description") or entry.get("title")
    text = clean(words, LONGEST_DESCRIPTION) if isinstance(words, str) else ""
    return f"Tool of the MCP server {server}. {text}" if text else f"Tool of the MCP server {server}."


def clean(text: str, limit: int) -> str:
    """Return a text from a server on one line, without characters that nobody sees, cut to `limit` characters.

    The text is cut before it is cleaned, too, since cleaning megabytes would hold up others. Four times the limit
    leaves room for what cleaning removes.
    """
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
    if not all(map(_PROPERTY.fullmatch, properties)):
        # Left out are those that no provider takes. The server says so if it misses one, and the model may give it nevertheless.
        properties = {name: value for name, value in properties.items() if _PROPERTY.fullmatch(name)}
        kept["properties"] = properties
        kept.pop("additionalProperties", None)
        if isinstance(required := kept.get("required"), list):
            kept["required"] = [name for name in required if isinstance(name, str) and name in properties]
    # Words first go, then everything but the types: what a parameter is called helps a model more than a description of
    # it.
    for words in (LONGEST_WORDS, 0) if is_moderate(schema, LARGEST_SOURCE) else ():
        try:
            cleaned: dict[str, Json] = {"properties": {}, **_cleaned(kept, words), "type": "object"}
        except ValueError:
            break
        if is_moderate(cleaned) and _is_sound(cleaned):
            return cleaned
    # What is left was too large or not sound even without its words.
    return _types_only(properties, kept.get("required"))


def is_moderate(schema: object, most: int = LARGEST_SCHEMA) -> bool:
    """Return whether a schema is an object of at most so many characters."""
    try:
        return isinstance(schema, Mapping) and len(encode_json(schema)) <= most
    except (ValueError, RecursionError):
        return False


def _cleaned(value: Any, words: int, level: int = 0) -> Any:
    """Return a part of a schema whose descriptions have at most `words` characters.

    Raises ValueError if it is too deep, or refers to another document, which a provider would have to fetch.
    """
    if isinstance(value, str):
        return sanitize_for_prompt(value)
    if not isinstance(value, Mapping | list):
        return value
    if level > DEEPEST:
        raise ValueError("too deep")
    if isinstance(value, list):
        return [_cleaned(item, words, level + 1) for item in value]
    kept: dict[str, Any] = {}
    for key, item in value.items():
        if key == "$ref" and isinstance(item, str) and not item.startswith("#"):
            raise ValueError("a reference to another document")
        if key not in _WORDS or not isinstance(item, str):
            kept[key] = _cleaned(item, words, level + 1)
        elif words:
            kept[key] = clean(item, words)
    return kept


def _is_sound(schema: Metadata) -> bool:
    """Return whether a schema is one, and required names are texts."""
    required = schema.get("required", [])
    return isinstance(required, list) and all(isinstance(name, str) for name in required) and is_valid_schema(schema)


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
    return found if is_moderate(found) and _is_sound(found) else ANYTHING


# ------------------------------------------------------------------ resources and prompts

LIST_RESOURCES: Final = "list_resources"
READ_RESOURCE: Final = "read_resource"
GET_PROMPT: Final = "get_prompt"
MOST_LISTED: Final = 200
"""Resources that one listing names."""
LONGEST_TEXT: Final = 300
"""Characters of a name, an address or a description in a listing."""
_MOST_NAMED: Final = 20
"""Prompts that the description of `get_prompt` names."""


def extra_tools(server: str, *, has_resources: bool, prompts: Iterable[object]) -> list[ListedTool]:
    """Return the tools for a server's resources and prompts. prompts: entries of its list, unchecked; none = it has none."""
    found: list[ListedTool] = []
    if has_resources:
        found += [
            _extra(server, LIST_RESOURCES, "List the resources: data that can be read by its address.", parameters({})),
            _extra(server, READ_RESOURCE, "Read a resource.", parameters({"uri": {"type": "string"}}, "uri")),
        ]
    if named := [prompt for prompt in map(_describe_prompt, prompts) if prompt]:
        schema = parameters(
            {
                "name": {"type": "string"},
                "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
            },
            "name",
        )
        words = "Get the text of a prompt that the server has prepared. There are: " + "; ".join(named[:_MOST_NAMED])
        found.append(_extra(server, GET_PROMPT, words, schema))
    return found


def _extra(server: str, name: str, words: str, schema: Metadata) -> ListedTool:
    spec = ToolSpec(f"{server}{SEPARATOR}{name}", f"Of the MCP server {server}: {words}", schema)
    # By the protocol these only read. Nothing tells how far their addresses and arguments go.
    return ListedTool(name, spec, ToolHints(reads=True), is_extra=True)


def _describe_prompt(prompt: object) -> str:
    """Return a prompt's name with its arguments, "" for an entry that is none."""
    name = prompt.get("name") if isinstance(prompt, Mapping) else None
    if not isinstance(prompt, Mapping) or not isinstance(name, str) or not name:
        return ""
    arguments = prompt.get("arguments")
    names = [
        str(argument["name"])
        for argument in (arguments if isinstance(arguments, list) else ())
        if isinstance(argument, Mapping) and isinstance(argument.get("name"), str)
    ]
    return clean(f"{name}({', '.join(names)})", LONGEST_TEXT)


def read_listing(resources: Iterable[object], templates: Iterable[object]) -> Json:
    """Return the resources of a server and the patterns of their addresses, cleaned and bounded."""
    listed: list[Json] = [found for entry in resources if (found := _describe_resource(entry, "uri"))]
    patterns: list[Json] = [found for entry in templates if (found := _describe_resource(entry, "uriTemplate"))]
    listing: dict[str, Json] = {"resources": listed[:MOST_LISTED]}
    if patterns:
        listing["templates"] = patterns[:MOST_LISTED]
    if len(listed) > MOST_LISTED:
        listing["note"] = f"the first {MOST_LISTED} of {len(listed):,}"
    return listing


def _describe_resource(entry: object, key: str) -> dict[str, Json]:
    """Return the texts of an entry that people and models need; {} for one without an address.

    What else is in the entry is dropped, since nothing here uses it.
    """
    if not isinstance(entry, Mapping) or not isinstance(entry.get(key), str):
        return {}
    names = (key, "name", "description", "mimeType")
    return {name: clean(value, LONGEST_TEXT) for name in names if isinstance(value := entry.get(name), str)}
