"""Files and commands of work that the client of its conversation carries out, in place of our own tools.

The gate gives a call the offer that it has decided with (`with_client`), so that what was decided and what is run are the same: a
command in a terminal of the client has no walls of ours. The client gets files of the person's folder only.
"""

from __future__ import annotations

from typing import Final

import attrs
import trio

from pegasus.sandbox import is_within
from pegasus.tools.base import ToolContext, ToolError, as_tool_error
from pegasus.tools.client_tools import READ_FILE, RUN_COMMAND, WRITE_FILE, ClientCallFailed, ClientOffer, ClientTools

FILE_SECONDS: Final = 20.0
"""Seconds that a client may take for a file."""
MOST_BYTES: Final = 256 << 10
"""Bytes of a file that a client reads or writes: it goes through a frame. Our own tools do it with larger ones."""


def with_client(clients: ClientTools, context: ToolContext) -> ToolContext:
    """Return the context of a call with what the client of its conversation offers, if it works in the folder of an owner's own."""
    channel = context.principal.channel
    if not context.folder or channel is None or not context.principal.is_owner:
        return context
    offer = clients.find(channel.address)
    return context if offer is None else attrs.evolve(context, client=offer)


def runs_in_client(tool: str, context: ToolContext) -> bool:
    """Return whether the client of the work runs the commands of this tool, without walls of ours."""
    return tool == "shell_exec" and context.client is not None and RUN_COMMAND in context.client.names


def text_in_client(context: ToolContext, path: str, size: int) -> bytes | None:
    """Return a text file as the client of the work has it, perhaps not saved yet; None if our own tools read it.

    path: real. size: that of the file on disk. Called in a thread of Trio. Raises ToolError.
    """
    offer = _offer_for(context, READ_FILE, path, size)
    if offer is None:
        return None
    with as_tool_error(ClientCallFailed):
        content = trio.from_thread.run(offer.call, READ_FILE, {"path": path}, FILE_SECONDS, context.key).get("content")
    if not isinstance(content, str):
        raise ToolError(f"the program that carries out {READ_FILE} has given back no text")
    return content.encode("utf-8", "surrogateescape")


def write_in_client(context: ToolContext, path: str, data: bytes) -> bool:
    """Let the client of the work write a text file; return False if our own tools must. As for `text_in_client`."""
    offer = _offer_for(context, WRITE_FILE, path, len(data))
    if offer is None:
        return False
    try:
        content = data.decode()
    except UnicodeDecodeError:
        return False
    with as_tool_error(ClientCallFailed):
        trio.from_thread.run(offer.call, WRITE_FILE, {"path": path, "content": content}, FILE_SECONDS, context.key)
    return True


def _offer_for(context: ToolContext, name: str, path: str, size: int) -> ClientOffer | None:
    offer = context.client
    is_for_client = offer is not None and name in offer.names and size <= MOST_BYTES
    return offer if is_for_client and is_within(path, context.folder) else None
