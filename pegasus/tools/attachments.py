"""The tool save_attachment: a file that somebody attached to a message becomes a file of the workspace.

What is attached is kept below data/media, in the agent's home, which is closed to tools and hidden from commands. So a spreadsheet or
an archive, which no model reads by itself, has to be copied before a task can work with it.

The name of a kept file is the SHA-256 of its content, and whoever knows it may have the file: it stands in the conversation that the
file was sent to, and nobody guesses it. There is no listing. The content must have that hash, so neither a link in the place of the
file nor a damaged one is copied.

A file has at most `media.max_bytes`, since more is never kept. A copy that fails or is stopped leaves nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import attrs
import trio

from actors import ActorError, Ref
from pegasus.messages import Json
from pegasus.models import ToolSpec
from pegasus.outside import Outside
from pegasus.storage import JournalMessage, StorageError, is_kept_name, read_kept
from pegasus.tools.base import Effect, Reach, Tool, ToolContext, ToolError, parameters
from pegasus.tools.files import IncomingFile

_BLOCK: Final = 1 << 20
"""Bytes that are written at once. A cancel takes effect between two blocks."""
_SHORT: Final = 12
"""Characters of the hash in the name of a copy for which the model names only a folder."""
_SPEC: Final = ToolSpec(
    "save_attachment",
    "Copy a file that was attached to a message, named media/<sha256>.<ext>, into the workspace. Then other tools and "
    "commands can open it.",
    parameters(
        {
            "file": {"type": "string", "description": "media/<sha256>.<ext>, exactly as named"},
            "path": {"type": "string", "description": "New file, or folder ending in /"},
        },
        "file",
        "path",
    ),
)


def save_attachment_tool(journal: Ref[JournalMessage]) -> Tool:
    """Return the tool `save_attachment(file, path)`. journal: keeps what is attached.

    Example: `ToolExecutor([*standard_tools(…), save_attachment_tool(journal)])`.
    """

    async def save(arguments: Any, context: ToolContext) -> Json:
        name, path = arguments["file"], arguments["path"]
        if not is_kept_name(name):
            raise ToolError(
                f"found {name!r:.120}, allowed: media/<sha256>.<ext>, exactly as the message that it was attached to names it"
            )
        # The policy asks about calls that change something outside of the workspace; this one cannot.
        context = attrs.evolve(context, allowed_paths=(context.workspace,))
        digest, _, extension = name.rpartition("/")[2].partition(".")
        make = partial(IncomingFile, context, path, f"{digest[:_SHORT]}.{extension}")
        await trio.to_thread.run_sync(make)  # a path that is refused costs no reading
        content = await _read(journal, name)
        copy = await trio.to_thread.run_sync(partial(make, expected=len(content)))
        await trio.to_thread.run_sync(copy.__enter__)
        try:
            for start in range(0, len(content), _BLOCK):
                await trio.to_thread.run_sync(copy.write, content[start : start + _BLOCK])
            saved = await trio.to_thread.run_sync(copy.finish)
        finally:
            copy.__exit__(None, None, None)  # removes what is not complete, also when cancelled
        return {"path": saved, "size": len(content)}

    return Tool(_SPEC, save, "file", Effect.ONCE, reach=Reach.WORKSPACE, source=Outside.FILE)


async def _read(journal: Ref[JournalMessage], name: str) -> bytes:
    """Return the content of a kept file. Raises ToolError."""
    try:
        content = await read_kept(journal, name)
    except (StorageError, ActorError) as error:
        raise ToolError(f"{name} cannot be read now: {error}") from error
    if content is None:
        raise ToolError(
            f"{name} is not kept, or not any more: attached files are removed after media.keep_days. Compare the name; "
            "if it is right, ask for the file to be sent again"
        )
    return content
