"""Tools that stand for what a server has beside tools: its resources (data by address) and its prompts (texts by name).

They are ordinary tools with fixed names: `<server>__list_resources`, `<server>__read_resource`, `<server>__get_prompt`. A server's own
tool of such a name wins, and the setting `tools` decides about them as about any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pegasus.mcp.listing import ListedTool, clean
from pegasus.mcp.names import SEPARATOR
from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.tools import parameters

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
    return ListedTool(name, spec, is_extra=True)


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
    """Return the texts of an entry that people and models need; {} for one without an address."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get(key), str):
        return {}
    names = (key, "name", "description", "mimeType")
    return {name: clean(value, LONGEST_TEXT) for name in names if isinstance(value := entry.get(name), str)}
