"""`pegasus mcp …`: servers of tools (Model Context Protocol).

`list` asks the daemon for the state of each. `check` connects to the servers itself, whether or not a daemon runs: it starts the
same programs as the daemon would, in the same folders, with the same environment and within the same walls, and asks for their tools.
So a mistake in the settings is found before the agent is told about a tool. `add` does that with a server that is not in the settings
yet, shows what kinds of tools it has, and writes the settings.

`login` is for servers with auth = "oauth". It gets a token by way of the person's browser and puts it into a file of
the home, where the daemon looks at each attempt to connect. So a running agent needs no restart and no message.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import Final

import click
import trio

from pegasus.cli.chat import COMES_BACK_SECONDS, ensure_daemon
from pegasus.cli.commands import JSON, OneOf, Options, pegasus, program_name
from pegasus.cli.config import check_text, describe_effect, write_settings
from pegasus.cli.control import (
    Answer,
    answering_command,
    ask_daemon,
    find_daemon,
    is_terminal,
    json_line,
    print_text,
    report_failure,
)
from pegasus.cli.status import server_line
from pegasus.client import ClientError, NotConnected
from pegasus.formatting import format_duration, plural, quote
from pegasus.host import Home, read_daemon
from pegasus.mcp import (
    KINDS,
    TOKENS_FOLDER,
    CheckResult,
    ServerDown,
    SortedTool,
    TokenFile,
    check_servers,
    files_context,
    kinds_text,
)
from pegasus.sandbox import Sandbox, SandboxError, probe_sandbox
from pegasus.settings import EditError, McpServerSettings, Settings, SettingsError, set_key, settings_text
from pegasus.tools import passed_on, with_network
from pegasus.wire import decode_object

MCP = pegasus.subgroup("mcp", "Add, list and check MCP servers, whose tools the agent uses.")

MOST_NAMED: Final = 30
"""Tools of a kind that `mcp add` names."""
POLL: Final = 0.2
"""Seconds between two questions to the daemon about a new server."""

_NAME = click.Argument(["name"], required=False, metavar="[NAME]")
"""Name of a server in the settings."""


@MCP.declare("serve", is_client=True)
def run_serve(home: Home, settings: Settings) -> int:
    """Be an MCP server on stdin and stdout, for another assistant.

    Assistants start it as they start any such server. It joins the agent that runs, and starts one in the background if none does;
    that goes on when the assistant ends.
    """
    options = click.get_current_context().find_object(Options)
    arguments = () if options is None else options.arguments()

    async def find() -> tuple[str, str]:
        with trio.move_on_after(
            COMES_BACK_SECONDS
        ):  # it may have been killed, and be started by whatever has started it before
            while has_run[0] and read_daemon(home) is None:  # noqa: ASYNC110  another process notifies nobody
                await trio.sleep(POLL)
        await ensure_daemon(home, arguments)
        has_run[0] = True
        daemon = read_daemon(home)
        if daemon is None or daemon.http is None:
            raise NotConnected("the HTTP server of the agent is off (http.enabled of the settings), and /mcp is on it")
        return f"{daemon.http}/mcp", find_daemon(home, settings).token

    has_run = [False]
    # An HTTP client, which no other command of this file needs.
    from pegasus.cli.mcp_relay import McpRelay

    trio.run(McpRelay(find).run)
    return 0


def _no_servers() -> str:
    return f"No MCP servers. `{program_name()} mcp add` makes one, or a section [mcp.servers.NAME] of the settings."


def servers_text(answer: Answer) -> str:
    """Return a line for each server: name, state, tools, protocol, or the reason why it is down.

    Servers stand in the order of the settings.
    """
    return "\n".join(server_line(server) for server in answer["servers"]) or _no_servers()


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
    """Connect to every server, or to NAME, as the agent does, and count its tools by kind."""
    known = settings.mcp.servers
    if name is not None and name not in known:
        return report_failure(
            f"there is no server {quote(name)} in the settings; there are: {', '.join(known) or 'none'}"
        )
    # A server that is switched off is checked if it is named: a person tries it before switching it on.
    chosen = [(key, server) for key, server in known.items() if (server.enabled if name is None else key == name)]
    try:
        results = _check(home, settings, chosen)
    except SandboxError as error:
        return report_failure(str(error))
    if as_json:
        print_text(json_line({"servers": [result.as_json() for result in results]}), always=False)
    for result in () if as_json else results:
        print_text(_result_line(result))
    # No server at all is no failure: the exit code is 0.
    if not results and not as_json:
        print_text(_no_servers())
    return 1 if any(result.problem for result in results) else 0


def _check(home: Home, settings: Settings, servers: Sequence[tuple[str, McpServerSettings]]) -> list[CheckResult]:
    """Return the outcome for each server. Raises HomeError, SandboxError.

    A check may come before the first start of the agent, which makes the folders.
    """
    home.prepare()
    _take_environment(home)
    sandbox = Sandbox()
    if any(server.command and server.sandbox for _, server in servers):
        sandbox = with_network(probe_sandbox(settings, home.path, home.workspace), settings)
    return trio.run(check_servers, servers, files_context(home.workspace), home.path / TOKENS_FOLDER, sandbox)


def _take_environment(home: Home) -> None:
    """Take over what the daemon of this home hands to programs, so that the same ones are found. Without a daemon nothing changes.

    A service manager gives it another PATH than a shell has.
    """
    if read_daemon(home) is None:
        return
    try:
        found = decode_object(home.environment.read_bytes())
    except (OSError, ValueError):  # of an older version
        return
    for name in passed_on(os.environ):
        del os.environ[name]
    os.environ.update({name: value for name, value in found.items() if isinstance(value, str)})


def _result_line(result: CheckResult, *, as_trusted: bool = False) -> str:
    """Return the outcome on a line: `time  answers, 2 tools (2025-11-25, 0.4 s): 1 open reader, 1 act`."""
    if result.problem:
        return f"{result.name}  failed: {result.problem}"
    facts = f"{plural(len(result.tools), 'tool')} ({result.protocol}, {format_duration(result.seconds)})"
    kinds = kinds_text(result.tools, as_trusted=as_trusted)
    return f"{result.name}  answers, {facts}" + (f": {kinds}" if kinds else "")


# ------------------------------------------------------------------ adding a server


@MCP.declare(
    "add",
    click.Argument(["name"], metavar="NAME"),
    click.Argument(["command"], nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND [ARG]...]"),
    click.Option(["--url"], metavar="URL", help="Address of a server that runs elsewhere, in place of COMMAND."),
    click.Option(["--env"], multiple=True, metavar="NAME=VALUE", help="Variable for COMMAND; repeatable."),
    click.Option(["--trust"], type=OneOf(["none", "hints"]), help="Whether what it says of its tools counts."),
    options_only=True,
    takes_dashes=True,
)
def run_add(
    options: Options, *, name: str, command: tuple[str, ...], url: str | None, env: tuple[str, ...], trust: str | None
) -> int:
    """Check the server NAME as the agent would start it, show the kinds of its tools, and write it into the settings.

    Options stand before --, and what follows it is the server's own. A server that is in the settings already needs no COMMAND:
    it is checked, and you are asked whether to trust what it says of its tools.
    """
    home = options.home()
    source = options.source(home)
    assert source.file is not None  # noqa: S101 - `Options.source` always names one
    path = ("mcp", "servers", name)
    try:
        old = settings_text(source)
        table = _table(command, url, env)
        done = "added" if table else "changed"
        before = options.load()[1].mcp.servers
        if (name in before) == bool(table):
            return report_failure(_describe_wrong_name(name, is_known=name in before))
        changes: list[tuple[tuple[str, ...], object]] = [(path, table)] if table else []
        if trust is not None:
            changes.append(((*path, "trust"), trust))
        settings = check_text(home, source, _changed(old, changes))
        [result] = _check(home, settings, [(name, settings.mcp.servers[name])])
        # Shown as if it were trusted, so that the person sees what that would mean.
        says = any(tool.says for tool in result.tools)
        as_trusted = trust is None and says
        print_text(_result_line(result, as_trusted=as_trusted))
        if result.problem:
            if table:  # keys that the reason names can only be set in the file
                print_text(f"To set more about it, write it into {source.file}:\n\n{_changed('', changes).strip()}\n")
            return report_failure(f"{name} was not {done}, since it does not answer")
        print_text(tools_text(result.tools, as_trusted=as_trusted))
        if trust is None and says and _asks_for_trust():
            changes.append(((*path, "trust"), "hints"))
        # The file is read again: somebody may have changed it while the server was checked and the person was asked.
        old = settings_text(source)
        added = _changed(old, changes)
        settings = check_text(home, source, added)
    except (EditError, SandboxError, SettingsError) as error:
        return report_failure(f"{name} was not {done}: {error}")
    is_trusted = settings.mcp.servers[name].trust == "hints"
    print_text(f"{name}: {'trusted' if is_trusted else 'not trusted'} ({source.file})")
    if not is_trusted:
        print_text(
            "All of its tools count as acts, but those whose names speak of destruction. Name those that only read: "
            f"{program_name()} config set mcp.servers.{name}.reads '[\"get_*\"]'"
        )
    if added != old:
        write_settings(source.file, added)
        print_text(describe_effect(home, settings, settings, f"mcp.servers.{name}", source.file))
        _show_in_agent(home, settings, name)
    return 0


def _changed(content: str, changes: Sequence[tuple[tuple[str, ...], object]]) -> str:
    """Return the text of a settings file with these keys set. Raises EditError."""
    for path, value in changes:
        content = set_key(content, path, value)
    return content


def _table(command: Sequence[str], url: str | None, env: Sequence[str]) -> dict[str, object]:
    """Return the keys of a new server; {} if there is nothing about one. Raises BadParameter."""
    if url is not None and command:
        raise click.UsageError(f"found --url and the command {shlex.join(command)}; allowed: one of them")
    variables: dict[str, str] = {}
    for variable in env:
        key, equals, value = variable.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"found {quote(variable)}; allowed: NAME=VALUE", param_hint="--env")
        variables[key] = value
    if variables and not command:
        raise click.UsageError("found --env without a command; allowed: it with a COMMAND")
    if url is not None:
        return {"url": url}
    if not command:
        return {}
    table: dict[str, object] = {"command": command[0]}
    if command[1:]:
        table["args"] = list(command[1:])
    return table | ({"env": variables} if variables else {})


def _describe_wrong_name(name: str, *, is_known: bool) -> str:
    if is_known:
        change = f"{program_name()} config unset mcp.servers.{name}"
        return f"there is a server {quote(name)} already; remove it first: {change}"
    return f"there is no server {quote(name)} in the settings; to add one, give its command behind -- or its --url"


def tools_text(tools: Sequence[SortedTool], *, as_trusted: bool) -> str:
    """Return the tools in four groups, each with what the server says of it. as_trusted: as they were if the server were trusted."""
    lines = []
    for kind, (_, several) in KINDS.items():
        group = [tool for tool in tools if (tool.if_trusted if as_trusted else tool.kind) is kind]
        if group:
            lines.append(f"{several} ({_MEANINGS[kind]}):")
        width = max((len(tool.name) for tool in group[:MOST_NAMED]), default=0)
        lines += [f"  {tool.name:<{width}}  {tool.says or 'the server says nothing'}" for tool in group[:MOST_NAMED]]
        if len(group) > MOST_NAMED:
            lines.append(f"  and {len(group) - MOST_NAMED:,} more")
    return "\n".join(lines)


_MEANINGS: Final = {
    "private_reader": "read data of yours, and tell nobody else",
    "open_reader": "change nothing, but others see what they ask for",
    "act": "change or send something",
    "destructive": "change something for good; you are always asked once text from outside was read",
}
"""Kinds of tools in a few words."""


def _asks_for_trust() -> bool:
    """Return whether a person trusts the server; False where nobody is there to be asked."""
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        return False
    question = "These kinds are what the server says of itself. Trust it? Otherwise each of its tools counts as an act"
    return click.confirm(question, default=False)


def _show_in_agent(home: Home, settings: Settings, name: str) -> None:
    """Print the state of a server in the running agent once it has one; nothing where no agent runs, or it does not know it."""
    if read_daemon(home) is None:
        return
    try:
        state = trio.run(_wait_for, home, settings, name)
    except ClientError:
        return
    if state is not None:
        print_text(f"In the agent: {server_line(state)}")


async def _wait_for(home: Home, settings: Settings, name: str) -> Answer | None:
    """Return the state of a server in the daemon when it is up or down; None if the daemon has no such server. Raises ClientError."""
    until = trio.current_time() + settings.mcp.servers[name].timeout
    while True:
        answer = await ask_daemon(find_daemon(home, settings), "mcp.list", {})
        state: Answer | None = next((server for server in answer["servers"] if server["name"] == name), None)
        if state is None or state["state"] != "connecting" or trio.current_time() > until:
            return state
        await trio.sleep(POLL)


@MCP.declare(
    "login",
    click.Argument(["name"], metavar="NAME"),
    click.Option(["--device"], is_flag=True, help="With a code, for a browser on another machine."),
)
def run_login(home: Home, settings: Settings, *, name: str, device: bool) -> int:
    """Sign in to a server with auth = "oauth".

    The agent uses the token from its next attempt to connect on.
    """
    server = settings.mcp.servers.get(name)
    if server is None or server.auth != "oauth":
        known = [key for key, server in settings.mcp.servers.items() if server.auth == "oauth"]
        return report_failure(
            f'{quote(name)} is no server with auth = "oauth"; there are: {", ".join(known) or "none"}'
        )
    # Loaded here: signing in needs a web server and is rare.
    from pegasus.mcp import sign_in_by_browser, sign_in_by_code

    file = TokenFile(home.path / TOKENS_FOLDER / f"{name}.json")
    try:
        count = trio.run(sign_in_by_code if device else sign_in_by_browser, server, file, print_text)
    except ServerDown as error:
        return report_failure(f"{name}: {error}")
    print_text(f"{name}  signed in, {plural(count, 'tool')}")
    return 0
