"""MCP: tools of servers that speak the Model Context Protocol.

`servers` has all servers of the settings; it is a source of tools for executors, and gives a supervisor for each server. `server` is
one server with its actor; `checking` connects to servers without an agent. `connection` and the transports `stdio` and `remote` use
the official SDK, which is imported when the first server is connected; so do `oauth` and `sign_in`, by which requests get access
tokens, kept in `tokens`. `place` says where a program runs and within which walls. `listing` and `results` make what servers send
harmless, and `questions` what they ask; `sorting` says what a call of a tool can do. `calls` has the calls under way, which wait
while a person is asked. `faults` has the limits.

A server is not trusted: it may hang, flood, lie, or put instructions into descriptions. Whatever it does costs its own tools only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegasus.late import late_names
from pegasus.mcp.faults import ServerDown
from pegasus.mcp.servers import McpServers, files_context, servers_json
from pegasus.mcp.tokens import FOLDER as TOKENS_FOLDER
from pegasus.mcp.tokens import TokenFile

if TYPE_CHECKING:
    from pegasus.mcp.checking import CheckResult, check_servers, kinds_text
    from pegasus.mcp.place import risks
    from pegasus.mcp.server import ServerState
    from pegasus.mcp.sign_in import sign_in_by_browser, sign_in_by_code
    from pegasus.mcp.sorting import KINDS, SORTING_KEYS, SortedTool, is_sorted
else:
    # Most homes have no servers.
    __getattr__ = late_names(__name__)

__all__ = [
    "KINDS",
    "SORTING_KEYS",
    "TOKENS_FOLDER",
    "CheckResult",
    "McpServers",
    "ServerDown",
    "ServerState",
    "SortedTool",
    "TokenFile",
    "check_servers",
    "files_context",
    "is_sorted",
    "kinds_text",
    "risks",
    "servers_json",
    "sign_in_by_browser",
    "sign_in_by_code",
]
