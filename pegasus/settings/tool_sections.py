"""Sections about what the agent may do: tools, rules about their calls, walls around commands, and servers of tools.

They are declared as those in `sections`, whose rules hold here as well.

They stand in a file of their own because one question leads to all of them: what may a tool call do? A call passes them in this
order: `policy` says whether it may be made at all, or asks an owner; `tools` bounds its time and the paths and hosts that it may
reach; `sandbox` walls in the commands that it starts. `mcp` adds tools, which pass the same three. `schedule` decides only when
the agent works by itself.

Defaults confine file tools to the workspace and web tools to public addresses.
A list of exceptions is empty by default. In a file, and in a program::

    [[policy.rules]]
    tool = "shell_exec"
    match = "git push *"
    decision = "ask"

    [mcp.servers.github]
    url = "https://api.githubcopilot.com/mcp/"
    auth = "oauth"

    tools = ToolSettings(timeouts={"shell_exec": 600.0}, allowed_paths=("/srv/reports",))
    Settings(tools=tools).tools.timeouts["shell_exec"]  # 600.0
"""

# ruff: noqa: RUF009  (`section` and `sections` return attrs.field)

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from pegasus.settings.keys import (
    choice,
    flag,
    number,
    seconds_by_name,
    section,
    sections,
    text,
    text_tables,
    texts,
    texts_by_name,
    whole,
)


@attrs.frozen(eq=False, repr=False)
class WebSearchSettings:
    """Service behind the tool web_search."""

    provider: str = choice(
        "",
        '"" = the one that the environment names (TAVILY_API_KEY, BRAVE_API_KEY, SEARXNG_BASE_URL), else duckduckgo, which '
        'wants no key; "none" = no searches',
        "",
        "none",
        "tavily",
        "brave",
        "duckduckgo",
        "searxng",
    )
    api_key: str = text(
        "", "for tavily and brave; usually ${VARIABLE}, so that the key is not in this file", secret=True
    )
    base_url: str = text("", 'the address of your SearXNG; "" = the service\'s own address')
    max_results: int = whole(10, "results of one search, at most", least=1, most=50)


@attrs.frozen(eq=False, repr=False)
class ToolSettings:
    """Limits of tools."""

    # Both lists of exceptions are empty by default: a page that the agent reads may tell it to use any tool.
    timeout: float = number(60.0, "seconds for one call", above=0, most=86400)
    timeouts: Mapping[str, float] = seconds_by_name("seconds for one call of the named tool, instead of timeout")
    allowed_paths: tuple[str, ...] = texts('[] = the workspace only; ["/"] = everything')
    allowed_hosts: tuple[str, ...] = texts(
        "host names, addresses and CIDR ranges that web tools and `pegasus skills install` may reach though they are not public"
    )
    web_hosts: tuple[str, ...] = texts(
        "host names (*.example.org: all below it), addresses and CIDR ranges that web tools may reach; [] = all public ones"
    )
    max_download_mb: int = whole(500, "MiB of one file that download saves, at most", least=1, most=1 << 20)
    web_search: WebSearchSettings = section(WebSearchSettings)


DECISIONS: Final = ("allow", "ask", "deny")
"""Decisions of a rule about a tool call; "ask": an owner is asked."""
RULE_KEYS: Final = ("tool", "match", "who", "decision")
"""Keys of a rule."""


@attrs.frozen(eq=False, repr=False)
class PolicySettings:
    """Rules about tool calls. They decide, never a model."""

    # The tables stay texts here; `parse_rules` in `pegasus.access` makes rules of them.
    default: str = choice("allow", "for tools that no rule names and that have no decision of their own", *DECISIONS)
    timeout: float = number(3600.0, "seconds that an approval waits for an owner; then it is a no", above=0)
    owner_channel: str = text(
        "", 'where owners are asked if none is on the channel of the work, as "telegram:12345"; "" = terminal and page'
    )
    after_untrusted: str = choice(
        "ask",
        "for calls that send data out or change things outside the workspace, once their task has read text from outside",
        *DECISIONS,
    )
    rules: tuple[Mapping[str, str], ...] = text_tables(
        "[[policy.rules]]: the first that fits counts; tool and match are patterns, who is owner or guest", *RULE_KEYS
    )


@attrs.frozen(eq=False, repr=False)
class ScheduleSettings:
    """Scheduled jobs run whatever is set here; the heartbeat is a look at HEARTBEAT.md of the workspace now and then."""

    # 31,536,000 seconds are a year. A heartbeat is a model call each time, unless HEARTBEAT.md asks for nothing.
    heartbeat: float = number(0.0, "seconds between two looks; 0 = none", least=0, most=31_536_000)
    active_hours: str = text("", 'local time in which it looks, as "08:00-22:00"; "" = always')


@attrs.frozen(eq=False, repr=False)
class SandboxSettings:
    """Walls around commands, and limits of what one command may use."""

    # "auto" by default, so that the agent starts on every machine; the walls that it found are in `pegasus status`.
    mode: str = choice(
        "auto",
        '"auto": bubblewrap where it works, else Landlock, else none, with a warning; "require": no start unless '
        'the walls are full; "off": no walls',
        "auto",
        "require",
        "off",
    )
    network: str = choice(
        "none",
        'network of commands within the walls: "all" is HTTP, HTTPS and what else a proxy carries, to public addresses only',
        "none",
        "all",
    )
    hosts: tuple[str, ...] = texts(
        "what is reached from within the walls: host names (*.example.org: all below it), addresses and ranges; [] = all public ones"
    )
    allowed_hosts: tuple[str, ...] = texts(
        'network "all": host names, addresses and CIDR ranges that commands may reach though they are not public'
    )
    writable: tuple[str, ...] = texts("folders that commands may write to beside the workspace and tools.allowed_paths")
    # Two gigabytes are enough for builds and leave the usual machine usable.
    memory_mb: int = whole(2048, "megabytes that all processes of one command may have together; 0 = no limit", least=0)
    processes: int = whole(256, "processes that one command may have at the same time; 0 = no limit", least=0)


@attrs.frozen(eq=False, repr=False)
class RemoteAgentSettings:
    """Another agent that work may be delegated to (Agent2Agent protocol)."""

    url: str = text("", "its address, below which its card is, or that of the card; must be set")
    token: str = text("", "the token that it wants", secret=True)


@attrs.frozen(eq=False, repr=False)
class McpServerSettings:
    """A server of tools (Model Context Protocol)."""

    # One class for both kinds, so that a server has either a command or a url and no key that names the kind. `checks` refuses
    # the keys of the other kind. env and headers usually hold keys: their values are secret.
    enabled: bool = flag(True, "false = defined, not used")
    command: str = text("", "the program that is the server; it runs on this machine")
    args: tuple[str, ...] = texts("its arguments")
    env: Mapping[str, str] = texts_by_name("environment variables for it")
    cwd: str = text(
        "", 'its working directory; "" = mcp/NAME in the home, "workspace" = the workspace, where others may put code'
    )
    sandbox: bool = flag(True, "whether it runs within the walls of commands; false = it may do all that you can")
    url: str = text("", "the address of a server that runs elsewhere, in place of a command")
    headers: Mapping[str, str] = texts_by_name("HTTP headers of each request")
    auth: str = choice(
        "",
        'how to get an access token: "oauth" = a person signs in; "client_credentials" = by a secret or a key of this program',
        "",
        "oauth",
        "client_credentials",
    )
    client_id: str = text("", 'name of this program at that service; "" = it registers itself')
    client_secret: str = text("", "secret of this program at that service", secret=True)
    client_key: str = text(
        "", "file with the private key (PEM) of this program at that service, in place of client_secret"
    )
    scopes: str = text("", 'what the token is to allow, with blanks between; "" = as the server says')
    issuer: str = text("", 'the service that may be given client_secret; "" = the one that the server names')
    tools: tuple[str, ...] = texts('names or patterns of its tools that exist here, as "read_*"', "*")
    # Nobody but the owner knows what a tool does: without these keys each one counts as one that changes something.
    trust: str = choice(
        "none", 'whether what it says of its tools counts (readOnlyHint and the like): "hints" = yes', "none", "hints"
    )
    reads: tuple[str, ...] = texts(
        'its tools that read your own data and tell nobody else, by name or beginning, as "get_*"'
    )
    fetches: tuple[str, ...] = texts("its tools that change nothing, but whose arguments others may see, as a search")
    acts: tuple[str, ...] = texts("its tools that change or send something; stands above reads, fetches and trust")
    asks: tuple[str, ...] = texts(
        "its tools that you want to be asked about, once text from outside was read; stands above all others"
    )
    timeout: float = number(60.0, "seconds for one call, and for connecting", above=0, most=86400)


@attrs.frozen(eq=False, repr=False)
class McpSettings:
    """Servers of tools (Model Context Protocol)."""

    servers: Mapping[str, McpServerSettings] = sections(McpServerSettings)
