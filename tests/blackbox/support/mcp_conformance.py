"""The client that the conformance suite of the protocol drives: `python -m tests.blackbox.support.mcp_conformance URL`.

It is Pegasus's own client, with a person who agrees to everything: an address that a browser should open is opened here.

The suite starts a program for each scenario. To import the SDK takes a second, so that program (`RELAY`) only asks the test for a
client, which is forked, and ends as it has ended.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
import trio

from pegasus.mcp import ServerDown, TokenFile
from pegasus.mcp.connection import CallFailed, McpConnection, open_connection
from pegasus.mcp.oauth import make_auth
from pegasus.mcp.questions import ServerAnswer, ServerQuestion, read_question
from pegasus.mcp.remote import RemoteServer, open_remote
from pegasus.mcp.sign_in import sign_in_by_browser
from pegasus.policy import fill_form
from pegasus.settings import McpServerSettings
from tests.blackbox.support.command import command, environment

RELAY = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    variables = {name: value for name, value in os.environ.items() if name.startswith("MCP_CONFORMANCE_")}
    connection.sendall(json.dumps([sys.argv[-1], variables]).encode() + b"\\n")
    code, errors = json.load(connection.makefile())
sys.stderr.write(errors)
sys.exit(code)
"""
"""`python RELAY SOCKET URL`."""
SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


@asynccontextmanager
async def conformance_command(folder: Path) -> AsyncIterator[str]:
    """The command that the suite is given, for as long as the block lasts."""

    async def relay(stream: trio.SocketStream) -> None:
        async with stream:
            asked = b""
            while not asked.endswith(b"\n"):
                asked += await stream.receive_some()
            url, variables = json.loads(asked)
            ended = await command(url, env=environment(variables), module=__name__)
            await stream.send_all(json.dumps([ended.code, ended.err]).encode())

    (folder / "relay.py").write_text(RELAY)
    with trio.socket.socket(trio.socket.AF_UNIX) as listener:
        await listener.bind(str(folder / "s"))
        listener.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, relay, [trio.SocketListener(listener)])
            yield f"{sys.executable} -I -S {folder / 'relay.py'} {folder / 's'}"
            nursery.cancel_scope.cancel()


# ------------------------------------------------------------------ the client


async def run_scenario() -> None:
    client_id = CONTEXT.get("client_id", "")
    if SCENARIO == "auth/basic-cimd":
        client_id = "https://conformance-test.local/client-metadata.json"
    settings = McpServerSettings(url=sys.argv[-1], client_id=client_id, client_secret=CONTEXT.get("client_secret", ""))
    folder = Path(tempfile.mkdtemp())
    file = TokenFile(folder / "mcp" / "server.json")
    if SCENARIO.startswith("auth/client-credentials"):
        key = folder / "key.pem"
        key.write_text(CONTEXT.get("private_key_pem", ""))
        has_key = "private_key_pem" in CONTEXT
        settings = attrs.evolve(settings, auth="client_credentials", client_key=str(key) if has_key else "")
    elif SCENARIO.startswith("auth/"):
        settings = attrs.evolve(settings, auth="oauth")
        async with trio.open_nursery() as nursery:

            def show(line: str) -> None:
                if line.startswith("http"):
                    nursery.start_soon(visit, line)

            await sign_in_by_browser(settings, file, show, use)
        return
    remote = RemoteServer(settings.url, {}, make_auth(settings, file))
    streams = open_remote(remote, sse=False)
    async with open_connection(streams, lambda: None, legacy=False, ask=agree) as connection:
        await use(connection)


async def agree(asked: ServerQuestion) -> ServerAnswer:
    """The answer of a person who leaves everything as it is."""
    question = read_question("conformance", asked)
    return ServerAnswer("accept", None if question.url else fill_form(question.fields, {}))


async def visit(url: str) -> None:
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(url)


async def use(connection: McpConnection) -> int:
    """Do what a model may do: list the tools, and call each, or make the calls that the scenario wants."""
    tools = {tool["name"]: tool["inputSchema"] for tool in await connection.list_tools() if isinstance(tool, dict)}
    wanted = [(call["name"], call["arguments"]) for call in CONTEXT.get("toolCalls", ())]
    for name, arguments in wanted or [(name, arguments_for(name, tools)) for name in tools]:
        try:
            await connection.call_tool(name, arguments)
        except CallFailed as error:
            print(name, error, file=sys.stderr)
    return len(tools)


def arguments_for(name: str, tools: dict[str, Any]) -> dict[str, Any]:
    """Arguments that the suite's tools take: two numbers, or the schema of another tool as this client knows it."""
    properties = tools[name].get("properties") or {}
    if "schema" in properties:
        return {"schema": next(schema for other, schema in tools.items() if other != name)}
    return {"a": 5, "b": 3} if properties else {}


def main() -> None:
    try:
        trio.run(run_scenario)
    except ServerDown as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
