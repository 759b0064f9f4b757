"""The control plane's methods about MCP servers: what kinds of tools one has, and whether the owner trusts what it says of them.

`mcp.list`, which shows the state of each, is among the methods about the daemon (`status`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import attrs
import trio

from pegasus.app.reload import MISTAKES
from pegasus.formatting import quote
from pegasus.gateway import BadParams, Caller, Method, NotAllowed, NotFound, Params, require_text
from pegasus.host import HomeError
from pegasus.mcp import KINDS, SORTING_KEYS, McpServers, is_sorted
from pegasus.messages import Json
from pegasus.settings import EditError, Key, LiveSettings, McpServerSettings, find_key, set_key

MOST_SHOWN: Final = 500
"""Tools that one answer lists; `total` counts all."""


@attrs.frozen(eq=False, repr=False)
class ServerMethods:
    """MCP servers: `mcp.tools`, `mcp.trust`.

    Example::

        servers = ServerMethods(environment.mcp, in_force, reloader.edit)
        await servers.trust(caller, {"name": "mail", "trust": "hints", "asks": ["send_*"]})
    """

    mcp: McpServers
    """The servers."""
    in_force: LiveSettings
    """The settings."""
    change_settings: Callable[[Callable[[str], str]], Awaitable[object]]
    """Changes the text of the settings file, and puts it in force (`Reloader.edit`)."""

    def methods(self) -> dict[str, Method]:
        """Return the methods by the names that they have on the wire."""
        return {"mcp.tools": self.tools, "mcp.trust": self.trust}

    async def tools(self, caller: Caller, params: Params) -> Json:
        """Return the tools of the server `name` with their kinds, and what the settings say about these."""
        await trio.lowlevel.checkpoint()
        name = require_text(params, "name")
        server = next((server for server in self.mcp.servers if server.name == name), None)
        if server is None:
            raise NotFound(f"name: there is no MCP server {quote(name)} in the settings")
        tools = server.sorted_tools()
        return {
            "name": name,
            "isSorted": is_sorted(server.settings),
            "total": len(tools),
            "counts": {kind: sum(tool.kind is kind for tool in tools) for kind in KINDS},
            **_lists(server.settings),
            "tools": [
                {"name": tool.name, "kind": tool.kind, "ifTrusted": tool.if_trusted, "says": tool.says}
                for tool in tools[:MOST_SHOWN]
            ],
        }

    async def trust(self, caller: Caller, params: Params) -> Json:
        """Change what the settings say about the tools of the server `name`: `trust`, `reads`, `fetches`, `acts`, `asks`.

        What is left out stays. The answer has what is in force then. Only the owner's own clients may call it: whoever sorts tools
        decides which of their calls are asked about.
        """
        if not caller.grant.proves_owner(caller.type):
            raise NotAllowed(
                "only the owner says what tools do, on the page, in the terminal or as a program with the home's token"
            )
        name = require_text(params, "name")
        if name not in self.in_force.now.mcp.servers:
            raise NotFound(f"name: there is no MCP server {quote(name)} in the settings")
        wanted = {key: _checked(key, params[key]) for key in SORTING_KEYS if params.get(key) is not None}
        if not wanted:
            raise BadParams(f"found nothing to change, allowed: {', '.join(SORTING_KEYS)}")
        try:
            await self.change_settings(partial(_with_keys, name, wanted))
        except (EditError, HomeError, *MISTAKES) as error:
            raise BadParams(str(error)) from None
        return {"name": name, **_lists(self.in_force.now.mcp.servers[name])}


def _checked(key: str, value: Json) -> Json:
    """Return a value that the settings can hold under this key. Raises BadParams."""
    declared = find_key(("mcp", "servers", "NAME", key))
    assert isinstance(declared, Key)  # noqa: S101  one of SORTING_KEYS
    try:
        declared.check(value)
    except ValueError:
        raise BadParams(f"{key}: found {quote(value, 40)}, allowed: {declared.allowed}") from None
    return value


def _with_keys(server: str, wanted: Params, content: str) -> str:
    """Return the text of a settings file with these keys of a server. Raises EditError."""
    for key, value in wanted.items():
        content = set_key(content, ("mcp", "servers", server, key), value)
    return content


def _lists(settings: McpServerSettings) -> dict[str, Json]:
    """Return what settings say about the kinds of a server's tools."""
    return {"trust": settings.trust, **{key: list(getattr(settings, key)) for key in SORTING_KEYS if key != "trust"}}
