"""`python mcp_fixtures.py`: the `pegasus` command, whose MCP server has the tools and resources of the conformance suite.

Everything else is the product: the daemon, the routes, the tokens, the sessions and the SDK's server. Only the lists of tools and of
resources are others. What the MCP server of Pegasus does not offer at all, such as prompts, is not here either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    Tool,
)

from pegasus.__main__ import main
from pegasus.mcp_server import server
from pegasus.mcp_server.resources import ServedResources
from pegasus.mcp_server.tools import Run, ServedTool, ToolRequest, error_result

PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SILENCE: Final = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
BLOB: Final = "test://static-binary"
TEXTS: Final = {
    "test://static-text": ("text/plain", "This is the content of the static text resource."),
    "test://watched-resource": ("text/plain", "This resource does not change."),
}
MISSING_CAPABILITY: Final = -32021
NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
SCHEMA_2020: Final[Mapping[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
"""The schema that the suite wants to see again as it is."""
HEADER: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
}
"""An argument that is a header of the request, too."""


# ------------------------------------------------------------------ tools


def _says(*content: ContentBlock) -> Run:
    async def run(call: ToolRequest) -> CallToolResult:
        return CallToolResult(content=list(content))

    return run


async def _fail(call: ToolRequest) -> CallToolResult:
    return error_result("This tool intentionally returns an error for testing")


async def _report_progress(call: ToolRequest) -> CallToolResult:
    for done in (0, 50, 100):
        await call.context.session.report_progress(done, 100, f"{done} of 100")
        await trio.sleep(0.05)
    return CallToolResult(content=[TextContent(text="done")])


async def _want_sampling(call: ToolRequest) -> CallToolResult:
    capabilities = call.context.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        wanted: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_CAPABILITY, "Missing required client capability", wanted)
    return CallToolResult(content=[TextContent(text="there is sampling")])


def _tools() -> Sequence[ServedTool]:
    image = ImageContent(data=PIXEL, mime_type="image/png")
    embedded = TextResourceContents(
        uri="test://embedded-resource", mime_type="text/plain", text="This is an embedded resource content."
    )
    mixed = TextResourceContents(
        uri="test://mixed-content-resource", mime_type="application/json", text='{"test":"data","value":123}'
    )
    rows: Sequence[tuple[str, Run, Mapping[str, Any]]] = (
        ("test_simple_text", _says(TextContent(text="This is a simple text response for testing.")), NO_ARGUMENTS),
        # A tool of the product never sends log messages or requests of its own.
        ("test_logging_tool", _says(TextContent(text="done, and nothing logged")), NO_ARGUMENTS),
        ("test_streaming_elicitation", _says(TextContent(text="done, and nothing asked")), NO_ARGUMENTS),
        ("test_image_content", _says(image), NO_ARGUMENTS),
        ("test_audio_content", _says(AudioContent(data=SILENCE, mime_type="audio/wav")), NO_ARGUMENTS),
        ("test_embedded_resource", _says(EmbeddedResource(resource=embedded)), NO_ARGUMENTS),
        (
            "test_multiple_content_types",
            _says(TextContent(text="Multiple content types test:"), image, EmbeddedResource(resource=mixed)),
            NO_ARGUMENTS,
        ),
        ("test_error_handling", _fail, NO_ARGUMENTS),
        ("test_tool_with_progress", _report_progress, NO_ARGUMENTS),
        ("test_missing_capability", _want_sampling, NO_ARGUMENTS),
        ("json_schema_2020_12_tool", _says(TextContent(text="as it should be")), SCHEMA_2020),
        ("test_header", _says(TextContent(text="as it should be")), HEADER),
    )
    return [
        ServedTool(Tool(name=name, description="A fixture", input_schema=dict(schema)), lambda reach: True, run)
        for name, run, schema in rows
    ]


# ------------------------------------------------------------------ resources


class FixtureResources(ServedResources):
    """The resources of the suite."""

    async def list(self, params: PaginatedRequestParams | None) -> ListResourcesResult:
        found = [Resource(uri=uri, name=uri, mime_type=mime) for uri, (mime, _) in TEXTS.items()]
        return ListResourcesResult(resources=[*found, Resource(uri=BLOB, name=BLOB, mime_type="image/png")])

    def templates(self) -> ListResourceTemplatesResult:
        form = ResourceTemplate(uri_template="test://template/{id}/data", name="data", mime_type="application/json")
        return ListResourceTemplatesResult(resource_templates=[form])

    async def read(
        self, context: ServerRequestContext[Any, Any], params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        if params.uri == BLOB:
            blob = BlobResourceContents(uri=BLOB, mime_type="image/png", blob=PIXEL)
            return ReadResourceResult(contents=[blob])
        return await super().read(context, params)

    async def content(self, context: ServerRequestContext[Any, Any], uri: str) -> tuple[str, str]:
        if uri in TEXTS:
            return TEXTS[uri]
        if match := re.fullmatch(r"test://template/(\w+)/data", uri):
            return "application/json", f'{{"id":"{match[1]}","templateTest":true,"data":"Data for ID: {match[1]}"}}'
        return await super().content(context, uri)


if __name__ == "__main__":
    vars(server).update(make_tools=_tools, ServedResources=FixtureResources)
    main()
