"""`serve_editor`: an editor on stdin and stdout."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from pegasus.acp.agent import EditorAgent
from pegasus.acp.link import EditorLink
from pegasus.client import FindEndpoint, read_lines, write_line


async def serve_editor(
    find: FindEndpoint,
    start: Callable[[], Awaitable[None]],
    folder_problem: Callable[[str], str],
    room: int,
    *,
    stdin: int = 0,
    stdout: int = 1,
) -> None:
    """Serve the editor until it closes its end. What was accepted goes on in the daemon. The parameters are those of `EditorAgent`."""
    link = EditorLink(read_lines(stdin), partial(write_line, stdout))
    async with trio.open_nursery() as nursery:
        await link.run(EditorAgent(link, nursery, find, start, folder_problem, room))
        nursery.cancel_scope.cancel()
