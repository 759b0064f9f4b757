"""`pegasus mcp …`: servers of tools (Model Context Protocol).

`list` asks the daemon for the state of each. `check` connects to the servers itself, whether or not a daemon runs: it starts the
same programs and asks for their tools, so that a mistake in the settings is found before the agent is told about a tool.

`check` starts programs without the walls that the daemon puts around them. It finds mistakes in a command, an address,
a token or the protocol, and none that come from the walls.

`login` is for servers with auth = "oauth". It gets a token by way of the person's browser and puts it into a file of
the home, where the daemon looks at each attempt to connect. So a running agent needs no restart and no message.
"""

from __future__ import annotations

import importlib
from typing import Final

import attrs
import click
import trio

from pegasus.cli.commands import JSON, pegasus
from pegasus.cli.control import Answer, answering_command, json_line, print_text, report_failure
from pegasus.formatting import format_duration, plural, quote
from pegasus.host import Home
from pegasus.settings import Settings

MCP = pegasus.subgroup("mcp", "List and check MCP servers, whose tools the agent uses.")

_NAME = click.Argument(["name"], required=False, metavar="[NAME]")
"""Name of a server in the settings."""
_NONE: Final = (
    "No MCP servers. A section [mcp.servers.NAME] of the settings makes one, from the next start or reload on."
)


def servers_text(answer: Answer) -> str:
    """Return a line for each server: name, state, tools, protocol, or the reason why it is down.

    Servers stand in the order of the settings.
    """
    return "\n".join(server_line(server) for server in answer["servers"]) or _NONE


def server_line(server: Answer) -> str:
    """Return the line of a server: `time  up, 2 tools (2025-11-25)`.

    `pegasus status` prints the same line. A server that is down has a reason; one that is off has none.
    """
    facts = [server["state"]]
    if server.get("tools"):
        facts.append(plural(server["tools"], "tool"))
    protocol, reason = server.get("protocol"), server.get("reason")
    return (
        f"{server['name']}  {', '.join(facts)}"
        + (f" ({protocol})" if protocol else "")
        + (f": {reason}" if reason else "")
    )


@answering_command(MCP, "list", JSON, method="mcp.list", text=servers_text)
def run_list(home: Home, settings: Settings) -> Answer:
    """List the servers and their state."""
    servers = settings.mcp.servers.items()
    # Without a daemon no server runs, and no state but "off" is known.
    return {
        "servers": [{"name": name, "state": "not running" if server.enabled else "off"} for name, server in servers]
    }


@MCP.declare("check", _NAME, JSON)
def run_check(home: Home, settings: Settings, *, name: str | None, as_json: bool) -> int:
    """Connect to every server, or to NAME, and count its tools."""
    from pegasus.mcp import TOKENS_FOLDER, check_servers, files_context

    known = settings.mcp.servers
    if name is not None and name not in known:
        return report_failure(
            f"there is no server {quote(name)} in the settings; there are: {', '.join(known) or 'none'}"
        )
    # A server that is switched off is checked if it is named: a person tries it before switching it on.
    chosen = [(key, server) for key, server in known.items() if (server.enabled if name is None else key == name)]
    # Servers are started in the workspace. A check may come before the first start of the agent, which makes it.
    home.workspace.mkdir(parents=True, exist_ok=True)
    results = trio.run(check_servers, chosen, files_context(home.workspace), home.path / TOKENS_FOLDER)
    if as_json:
        print_text(json_line({"servers": [attrs.asdict(result) for result in results]}), always=False)
    for result in () if as_json else results:
        if result.problem:
            print_text(f"{result.name}  failed: {result.problem}")
        else:
            took = format_duration(result.seconds)
            print_text(f"{result.name}  answers, {plural(result.tools, 'tool')} ({result.protocol}, {took})")
    # No server at all is no failure: the exit code is 0.
    if not results and not as_json:
        print_text(_NONE)
    return 1 if any(result.problem for result in results) else 0


@MCP.declare(
    "login",
    click.Argument(["name"], metavar="NAME"),
    click.Option(["--device"], is_flag=True, help="With a code, for a browser on another machine."),
)
def run_login(home: Home, settings: Settings, *, name: str, device: bool) -> int:
    """Sign in to a server with auth = "oauth".

    The agent uses the token from its next attempt to connect on.
    """
    from pegasus.mcp import TOKENS_FOLDER, ServerDown, TokenFile

    server = settings.mcp.servers.get(name)
    if server is None or server.auth != "oauth":
        known = [key for key, server in settings.mcp.servers.items() if server.auth == "oauth"]
        return report_failure(
            f'{quote(name)} is no server with auth = "oauth"; there are: {", ".join(known) or "none"}'
        )
    # Loaded here: signing in needs a web server and is rare.
    module = importlib.import_module("pegasus.mcp.sign_in")
    file = TokenFile(home.path / TOKENS_FOLDER / f"{name}.json")
    try:
        count = trio.run(module.sign_in_by_code if device else module.sign_in, server, file, print_text)
    except ServerDown as error:
        return report_failure(f"{name}: {error}")
    print_text(f"{name}  signed in, {plural(count, 'tool')}")
    return 0
