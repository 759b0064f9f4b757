"""The client that the conformance suite of the protocol drives: `python mcp_conformance.py URL`.

It is Pegasus's own client, with a person who agrees to everything: an address that a browser should open is opened here.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import attrs
import httpx2
import trio

from pegasus.mcp import ServerDown, TokenFile
from pegasus.mcp.connection import CallFailed, McpConnection, open_connection
from pegasus.mcp.oauth import make_auth
from pegasus.mcp.remote import RemoteServer, open_remote
from pegasus.mcp.sign_in import sign_in
from pegasus.settings import McpServerSettings

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


async def main() -> None:
    client_id = CONTEXT.get("client_id", "")
    if SCENARIO == "auth/basic-cimd":
        client_id = "https://conformance-test.local/client-metadata.json"
    settings = McpServerSettings(url=sys.argv[-1], client_id=client_id, client_secret=CONTEXT.get("client_secret", ""))
    folder = Path(tempfile.mkdtemp())
    file = TokenFile(folder / "mcp" / "server.json")
    if SCENARIO.startswith("auth/client-credentials"):
        settings = attrs.evolve(settings, auth="client_credentials")
    elif SCENARIO.startswith("auth/"):
        settings = attrs.evolve(settings, auth="oauth")
        async with trio.open_nursery() as nursery:

            def show(line: str) -> None:
                if line.startswith("http"):
                    nursery.start_soon(visit, line)

            await sign_in(settings, file, show, use)
        return
    remote = RemoteServer(settings.url, {}, make_auth(settings, file))
    async with open_connection(open_remote(remote, sse=False), lambda: None, legacy=False) as connection:
        await use(connection)


async def visit(url: str) -> None:
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(url)


async def use(connection: McpConnection) -> int:
    """Do what a model may do: list the tools, and call each."""
    tools = await connection.list_tools()
    for tool in tools:
        assert isinstance(tool, dict)
        try:
            await connection.call_tool(tool["name"], {"a": 5, "b": 3} if tool["inputSchema"].get("properties") else {})
        except CallFailed as error:
            print(tool["name"], error, file=sys.stderr)
    return len(tools)


try:
    trio.run(main)
except ServerDown as error:
    print(error, file=sys.stderr)
    sys.exit(1)
