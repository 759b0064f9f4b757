"""Results of MCP calls as JSON for the model: texts, structured content, and files, which are kept in the workspace.

A result may hold pictures, sound and other files. They are written below `mcp/<server>/` in the workspace and named to the model,
which can read or pass on the file. The name is made of the content, so the same picture is kept once. Models that see are shown the
pictures as well.
"""

from __future__ import annotations

import binascii
import mimetypes
from base64 import b64decode
from collections.abc import Iterable
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from pegasus.messages import Json, Media
from pegasus.tools import ResultWithImages, ToolContext, ToolError, save_incoming
from pegasus.wire import decode_json

if TYPE_CHECKING:
    from mcp_types import CallToolResult, GetPromptResult, ReadResourceResult

MOST_FILES: Final = 20
"""Files of one result that are kept."""


@attrs.frozen(eq=False, repr=False)
class ResultReader:
    """Makes JSON of the results of one server.

    Example::

        reader = ResultReader("browser", files_context(workspace))
        shown = await reader.read_call(result)
        shown.result     # {"text": "…", "files": [{"path": "mcp/browser/3f….png", "mime": "image/png", "bytes": 5120}]}
        shown.pictures   # for models that see
    """

    server: str
    """The server's name, which is the name of the folder for its files."""
    files: ToolContext
    """Context with the workspace, where files are kept."""

    async def read_call(self, result: CallToolResult) -> ResultWithImages:
        """Return the result of a tool. Raises ToolError with the server's words for a call that failed there."""
        found, pictures = await self._read_blocks(result.content)
        if result.is_error:
            text = str(found.get("text") or "no reason was given")
            raise ToolError(f"the MCP server {self.server} reports an error: {text}")
        if result.structured_content is not None:
            found["structured"] = result.structured_content
            # Both would cost the tokens twice.
            if set(found) == {"text", "structured"} and _says_the_same(str(found["text"]), result.structured_content):
                del found["text"]  # servers repeat structured content as text for clients that know only that
        return ResultWithImages(found or {"text": ""}, pictures)

    async def read_resource(self, result: ReadResourceResult) -> ResultWithImages:
        """Return the contents of a resource."""
        return ResultWithImages(*await self._read_blocks(_Embedded(part) for part in result.contents))

    async def read_prompt(self, result: GetPromptResult) -> ResultWithImages:
        """Return the messages of a prompt.

        Each message keeps its role, since a prompt may be a whole conversation.
        """
        messages = [(message.role, await self._read_blocks([message.content])) for message in result.messages]
        pictures = tuple(picture for _, (_, shown) in messages for picture in shown)
        return ResultWithImages({"messages": [{"role": role, **found} for role, (found, _) in messages]}, pictures)

    async def _read_blocks(self, blocks: Iterable[Any]) -> tuple[dict[str, Json], tuple[Media, ...]]:
        """Return texts, files and links of blocks of content, and the pictures among them."""
        texts: list[str] = []
        files: list[Json] = []
        links: list[Json] = []
        pictures: list[Media] = []
        for block in blocks:
            match block.type:
                case "text":
                    texts.append(block.text)
                case "image" | "audio":
                    kept = await self._keep(block.data, block.mime_type, len(files))
                    files.append(kept)
                    if block.type == "image" and "path" in kept:
                        pictures.append(Media(str(kept["path"]), block.mime_type, block.data))
                case "resource" if getattr(block.resource, "text", None) is not None:
                    texts.append(block.resource.text)
                case "resource":
                    kept = await self._keep(block.resource.blob, block.resource.mime_type, len(files))
                    files.append({**kept, "uri": str(block.resource.uri)})
                case "resource_link":
                    links.append({"uri": str(block.uri), "name": block.name})
                case other:
                    texts.append(f"(content of the unknown type {other!r:.40} is left out)")
        found: dict[str, Json] = {"text": "\n".join(texts)} if texts else {}
        found |= ({"files": files} if files else {}) | ({"links": links} if links else {})
        return found, tuple(pictures)

    async def _keep(self, data: str, mime: str | None, before: int) -> dict[str, Json]:
        """Write a file and return its path, or the reason why it is not kept. before: files of this result so far.

        A file that cannot be kept is no error of the call: the model is told with the rest of the result.
        """
        kind = mime or "application/octet-stream"
        if before >= MOST_FILES:
            return {"mime": kind, "note": f"not kept: {MOST_FILES} files are the most of one result"}
        try:
            content = b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return {"mime": kind, "note": "not kept: it is not base64"}
        suffix = mimetypes.guess_extension(kind.partition(";")[0].strip(), strict=False) or ".bin"
        # The folder and the name come from here, never from the server, so it cannot choose where something is written.
        name = f"{sha256(content).hexdigest()[:16]}{suffix}"
        save = partial(save_incoming, self.files, f"mcp/{self.server}/{name}", name, content, replace=True)
        try:
            path = await trio.to_thread.run_sync(save)
        except ToolError as error:
            return {"mime": kind, "note": f"not kept: {error}"}
        return {"path": path, "mime": kind, "bytes": len(content)}


@attrs.frozen(eq=False, repr=False)
class _Embedded:
    """A content of a resource in the form of a block."""

    resource: Any
    """The content as the SDK has read it: a text, or a file in base64."""
    type: str = "resource"
    """Type under which `_read_blocks` finds it."""


def _says_the_same(text: str, structured: object) -> bool:
    """Return whether a text is the JSON of structured content."""
    try:
        return bool(decode_json(text) == structured)
    except ValueError:
        return False
