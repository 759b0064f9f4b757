"""MCP server: other assistants talk to the agent, and look at its tasks and its memory (Model Context Protocol).

The routes are `mcp_operations`, mounted by the daemon beside those of the HTTP server. The official SDK takes a second to import and
20 MB, so that everything that needs it is imported at the first request to /mcp.

Read the files in this order; each uses only those before it:

    reach      what a token reaches
    turns      a message, its turn and the answer
    tools      the tools
    long_calls  long calls as tasks
    resources  memory, archives and logs of tasks
    changes    subscriptions to them
    sessions   its sessions, and which answers are one object
    server     the server of the SDK, made of all these
    door       the routes: who may come in, and one manager of sessions for each token
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegasus.web import Conversations, Operation


def mcp_operations(conversations: Conversations) -> Sequence[Operation]:
    """Return the routes of the server. What makes them is imported here, when the first client of HTTP connects."""
    from pegasus.mcp_server.door import McpDoor

    return McpDoor(conversations).operations()


__all__ = ["mcp_operations"]
