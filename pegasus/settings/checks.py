"""Checks that concern several keys, and channels whose adapter does not exist yet.

`check_settings` runs when every key is valid by itself. A setting for a feature that does not exist yet is refused, so
that nothing fails silently.

Each check is a function that gets the settings and `report`, and calls that for each mistake. A check names one key as the place
of the mistake, though it looks at several: the one that a person would change. Only the form of values is checked here, never
the world: whether a host resolves, a model exists or a folder can be read may change while the daemon runs, and is reported
where it is used.

The order of the checks is that of the settings, and so that of the error lines. A check that looks at keys with a mistake of
their own may report nonsense; therefore `report` leaves out keys that are known to be wrong.

Example::

    check_settings(Settings(hooks={"ci": HookSettings()}), known=set())
    # [SettingsProblem("defaults", "hooks.ci.secret", "nothing", "a secret that the caller signs with", …)]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import ip_network
from typing import Final, Protocol
from urllib.parse import urlsplit

from pegasus.host import SHORTEST_TOKEN
from pegasus.loopback import is_loopback
from pegasus.messages import Address
from pegasus.settings.channel_sections import SERVICE_SECTIONS, SlackSettings, SmsSettings, TelegramSettings
from pegasus.settings.keys import SettingsProblem, describe_setting, is_bare, one_of
from pegasus.settings.sections import (
    MODEL_ROLES,
    PROVIDER_TYPES,
    HttpSettings,
    ModelOptionSettings,
    ProviderSettings,
    Settings,
)
from pegasus.settings.tool_sections import DECISIONS, McpServerSettings


class ProblemReport(Protocol):
    """Takes a mistake."""

    def __call__(self, key: str, found: str, allowed: str, hint: str = "") -> None:
        """Add it. key: its path."""


LONGEST_SERVER_NAME: Final = 32
"""Characters of the name of an MCP server: half of the name of its tools."""
LONGEST_NODE_NAME: Final = 100
"""Characters of the name of a node, which stands in lists and in logs."""
_NEARLY: Final = 0.85
"""Share of letters that a mistyped name has in common with the right one: telegarm, but not teams, is telegram."""
_OWN_HEADERS: Final = ("content-length", "content-type", "host", "transfer-encoding")
"""Headers that depend on the request."""
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d-(([01]\d|2[0-3]):[0-5]\d|24:00)")
"""Two times of a day."""
OWN_FIELDS: Final = ("messages", "input", "stream", "tools")
"""Fields of a request's body that make up the conversation or decide how the answer is read."""

_LATER_CHANNELS: Final = ("web", "api")
"""Channel types whose adapter is not in this version."""
_CHANNELS: Final = ("cli", *SERVICE_SECTIONS, *_LATER_CHANNELS)
"""Channel types that a mistyped one is compared with."""


def check_settings(settings: Settings, known: set[str]) -> list[SettingsProblem]:
    """Return the problems of settings whose keys are valid one by one, in the order of the checks.

    known: key paths that already have a problem; a second one about the same key would only confuse. Such a key has
    another value in `settings` than was meant, so that a check of it may report something that is not a mistake.
    """
    problems: list[SettingsProblem] = []

    def report(key: str, found: str, allowed: str, hint: str = "") -> None:
        """Add a mistake, unless the key has one already."""
        if key not in known:
            problems.append(SettingsProblem(_origin(settings, key), key, found, allowed, hint))

    _check_hosts(settings, report)
    _check_token(settings, report)
    _check_providers(settings, report)
    _check_models(settings, report)
    _check_origins(settings, report)
    _check_http(settings, report)
    _check_hooks(settings, report)
    _check_owners(settings, report)
    _check_channels(settings, report)
    _check_tools(settings, report)
    _check_policy(settings, report)
    _check_schedule(settings, report)
    _check_web_address("telemetry.otlp_endpoint", settings.telemetry.otlp_endpoint, report)
    _check_headers("telemetry", settings.telemetry.headers, report)
    _check_nodes(settings, report)
    for name, agent in settings.agents.items():
        if not is_bare(name):
            report(f"agents.{name}", f'the name "{name}"', 'letters, digits, "-" and "_"')
        if not _is_web_address(agent.url):
            report(f"agents.{name}.url", f'"{agent.url}"', "an http:// or https:// address")
    for name, server in settings.mcp.servers.items():
        _check_mcp(f"mcp.servers.{name}", server, report)
    return problems


def _origin(settings: Settings, key: str) -> str:
    """Return the source of a key, or of a neighbour in its section where the key is missing.

    A missing key is a mistake too (`providers.x.type`), and its place is where the section was begun.
    """
    if key in settings.origins:
        return settings.origins[key]
    section = key.rpartition(".")[0] + "."
    return next((origin for path, origin in settings.origins.items() if path.startswith(section)), "defaults")


# ------------------------------------------------------------------ addresses


def _check_hosts(settings: Settings, report: ProblemReport) -> None:
    """Refuse an address that others can reach, unless the person says so.

    The connection is not encrypted, and the token would travel in the clear.
    """
    for name, server in (("gateway", settings.gateway), ("http", settings.http)):
        # "localhost" and other names of this machine count as well, as far as they need no lookup.
        if server.host == "127.0.0.1" or server.allow_remote or is_loopback(server.host):
            continue
        allowed = f'"127.0.0.1", "::1", "localhost", or {name}.allow_remote = true'
        hint = "The connection is not encrypted: put a TLS proxy or a tunnel in front."
        report(f"{name}.host", f'"{server.host}", which other machines can reach', allowed, hint)


def _check_token(settings: Settings, report: ProblemReport) -> None:
    """Refuse a token that can be guessed."""
    token = settings.gateway.token
    if token and len(token) < SHORTEST_TOKEN:
        allowed = f'at least {SHORTEST_TOKEN} characters, or "" for a token that is made at first start'
        report("gateway.token", f"a token of {len(token)} characters", allowed)


def _check_origins(settings: Settings, report: ProblemReport) -> None:
    """Refuse an origin that no browser sends: they have a scheme and a host, and no path.

    The gateway compares origins as texts, so that "https://example.org/" would never let anybody in.
    """
    for origin in settings.gateway.allowed_origins:
        scheme, separator, rest = origin.partition("://")
        if not (separator and scheme and rest) or "/" in rest:
            report("gateway.allowed_origins", f'"{origin}"', 'scheme and host, as "https://example.org"')


def _check_http(settings: Settings, report: ProblemReport) -> None:
    """Refuse a public address that is none, and hosts that no Host header names."""
    url = settings.http.public_url
    if url and (not _is_web_address(url) or urlsplit(url).path.strip("/") or urlsplit(url).query):
        report("http.public_url", f'"{url}"', 'scheme and host without a path, as "https://pegasus.example"')
    for host in settings.http.allowed_hosts:
        before, _, port = host.rpartition(":")
        # A colon belongs to a port only behind a name or behind an IPv6 address in brackets.
        name = before if port.isdigit() and (before.endswith("]") or ":" not in before) else host
        if not _is_host(name) or "*" in name or "/" in name:
            report("http.allowed_hosts", f'"{host}"', 'names, with a port if need be, as "pegasus.example"')


def _check_hooks(settings: Settings, report: ProblemReport) -> None:
    """Refuse a webhook that anybody could call, and a name that no path has."""
    for name, hook in settings.hooks.items():
        if not is_bare(name):
            report(f"hooks.{name}", f'the name "{name}"', 'letters, digits, "-" and "_"')
        if not hook.secret:
            hint = "Without one anybody could start work here."
            report(f"hooks.{name}.secret", "nothing", "a secret that the caller signs with", hint)
        _check_address(f"hooks.{name}.channel", hook.channel, report)


def _check_nodes(settings: Settings, report: ProblemReport) -> None:
    """Refuse an address of a database that is none, without repeating it, and a node that others cannot name or reach.

    What the address says is understood by libpq alone, which is asked when the daemon starts.
    """
    if settings.storage.url and not settings.storage.url.startswith(("postgresql://", "postgres://")):
        report("storage.url", "another address", 'one that begins with "postgresql://", or ""')
    if len(settings.node.name) > LONGEST_NODE_NAME or settings.node.name != settings.node.name.strip():
        allowed = f"at most {LONGEST_NODE_NAME} characters, without spaces around them"
        report("node.name", describe_setting(settings.node.name), allowed)
    _check_web_address("node.address", settings.node.address, report)


# ------------------------------------------------------------------ owners


def _check_owners(settings: Settings, report: ProblemReport) -> None:
    """Refuse an owner without a channel type, or with an empty name behind it.

    Owners decide about the agent's identity and model, so that an entry that matches other people than meant must not pass.
    """
    for entry in settings.agent.owners:
        kind, colon, name = entry.partition(":")
        if not kind or kind != kind.strip() or (colon and not name):
            allowed = 'a channel type, as "cli", or one with a channelId or userId behind a colon, as "telegram:12345"'
            report("agent.owners", f'"{entry}"', allowed)


def _check_channels(settings: Settings, report: ProblemReport) -> None:
    """Refuse a channel type that is nearly spelled as a known one: the known one would be open to everybody."""
    for name in settings.channels:
        # Names of people's own bridges are welcome, so that only a near miss of a known name is a mistake.
        near = get_close_matches(name.lower(), _CHANNELS, n=1, cutoff=_NEARLY)
        if near and name not in _CHANNELS and name.isalpha():
            report(f"channels.{name}", "a channel type", f'"{near[0]}", or a name that is less like it')
    for name, section in settings.channels.items():
        if isinstance(section, TelegramSettings | SlackSettings | SmsSettings):
            _check_service(f"channels.{name}", section, settings.http, report)
        elif name in _LATER_CHANNELS and section.enabled:
            report(f"channels.{name}.enabled", "true, which is not in this version yet", "false")


def _check_service(
    path: str, section: TelegramSettings | SlackSettings | SmsSettings, http: HttpSettings, report: ProblemReport
) -> None:
    """ProblemReport a malformed address, and an adapter that is to run without what it needs.

    Whether the service takes the credentials shows when the adapter runs.
    """
    _check_web_address(f"{path}.base_url", section.base_url, report)
    if not section.enabled:
        return
    if isinstance(section, TelegramSettings) and section.mode == "webhook" and not (http.enabled and http.public_url):
        allowed = '"poll"; for "webhook" http.enabled = true and http.public_url, which Telegram calls'
        report(f"{path}.mode", '"webhook"', allowed)
    needed = {
        TelegramSettings: ("bot_token",),
        SlackSettings: ("bot_token",),
        SmsSettings: ("account_sid", "auth_token", "from_number"),
    }
    # Only of an adapter that is to run: a section that is prepared for later may be incomplete.
    for key in needed[type(section)]:
        if not getattr(section, key):
            report(f"{path}.{key}", "nothing", "a value, since the adapter is enabled")
    if isinstance(section, SlackSettings) and not section.app_token and not section.signing_secret:
        report(f"{path}.app_token", "nothing", "a value, or one in signing_secret for the Events API")


# ------------------------------------------------------------------ models


def _check_providers(settings: Settings, report: ProblemReport) -> None:
    """Refuse a provider without a type, and a malformed address.

    One that is named like a type has that type by default.
    """
    for name, provider in settings.providers.items():
        if not provider.type:
            report(f"providers.{name}.type", "nothing", one_of(PROVIDER_TYPES))
        _check_web_address(f"providers.{name}.base_url", provider.base_url, report)
        if provider.wire == "responses" and provider.type != "openai":
            report(f"providers.{name}.wire", '"responses"', '"", since only type "openai" has two formats')
        _check_request(f"providers.{name}", provider, report)
    for name, options in settings.models.options.items():
        _check_request(f"models.options.{name}", options, report)


def _check_request(path: str, options: ProviderSettings | ModelOptionSettings, report: ProblemReport) -> None:
    """Refuse headers that no HTTP request can have, fields of the body that Pegasus makes, and a temperature that is none."""
    _check_headers(path, options.headers, report)
    for name in options.extra_body:
        if name in OWN_FIELDS:
            report(
                f"{path}.extra_body", f'the field "{name}"', "other fields of the request", "Pegasus makes this one."
            )
    # -1 stands for "not set", which a range cannot say.
    if -1 < options.temperature < 0:
        report(f"{path}.temperature", str(options.temperature), "a number from 0 to 2, or -1")


def _check_headers(path: str, headers: Mapping[str, str], report: ProblemReport) -> None:
    """Refuse headers that no HTTP request can have, and those that Pegasus sets."""
    for name, value in headers.items():
        if not name or not all(c.isascii() and (c.isalnum() or c in "!#$%&'*+-.^_`|~") for c in name):
            report(f"{path}.headers", f'the name "{name}"', "letters, digits and -, as X-Title")
        elif name.lower() in _OWN_HEADERS:
            report(
                f"{path}.headers", f'"{name}"', f"other headers than {', '.join(_OWN_HEADERS)}", "Pegasus sets these."
            )
        if not value.isascii():
            report(f"{path}.headers.{name}", "a value with other characters than ASCII", "ASCII only")


def _check_web_address(path: str, value: str, report: ProblemReport) -> None:
    if value and not _is_web_address(value):
        report(path, f'"{value}"', "an http:// or https:// address")


def _is_web_address(url: str) -> bool:
    """Return True for an http:// or https:// address."""
    try:
        # A broken IPv6 address raises ValueError.
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and " " not in url


def _check_models(settings: Settings, report: ProblemReport) -> None:
    """Refuse models without a provider that is defined, and routes whose sizes exclude each other.

    Whether the provider has a key, and knows the model, is judged by `pegasus.models`.
    """
    models = settings.models
    roles = [(f"models.{role}", getattr(models, role)) for role in MODEL_ROLES if getattr(models, role)]
    roles += [("models.fallback", name) for name in models.fallback]
    roles += [("models.choices", name) for name in models.choices]
    roles += [(f"models.options.{name}", name) for name in models.options if name not in MODEL_ROLES]
    for name, route in models.routes.items():
        roles.append((f"models.routes.{name}.model", route.model))
        if route.max_tokens and route.max_tokens < route.min_tokens:
            allowed = f"0, or at least min_tokens ({route.min_tokens})"
            report(f"models.routes.{name}.max_tokens", str(route.max_tokens), allowed)
    for key, name in roles:
        # Only the first slash separates: models of some providers have more of them in their names.
        provider, _, model = name.partition("/")
        if not provider or not model:
            report(key, f'"{name}"' if name else "nothing", '"<provider>/<model>"')
        elif provider not in settings.providers:
            known = ", ".join(settings.providers)
            hint = f"Define it as [providers.{provider}]."
            report(key, f'"{name}", whose provider is not defined', f"the providers {known}", hint)


# ------------------------------------------------------------------ tools


def _check_tools(settings: Settings, report: ProblemReport) -> None:
    """Refuse hosts that are none, and a web search without its address.

    An entry of `allowed_hosts` opens a hole in a protection, so that a mistyped one must not pass as a name that never fits. One of
    `hosts` would keep a program from what its owner means to open.
    """
    sandbox = settings.sandbox
    lists = (
        ("tools.allowed_hosts", settings.tools.allowed_hosts),
        ("sandbox.allowed_hosts", sandbox.allowed_hosts),
        ("sandbox.hosts", sandbox.hosts),
        ("push.allowed_hosts", settings.push.allowed_hosts),
    )
    for key, entry in ((key, entry) for key, entries in lists for entry in entries):
        if not _is_host(entry):
            allowed = 'host names, "*." before one for all below it, addresses and ranges, as "10.0.0.0/8"; no ports'
            report(key, f'"{entry}"', allowed)
    if settings.push.contact and not settings.push.contact.startswith(("mailto:", "https://")):
        report("push.contact", f'"{settings.push.contact}"', 'an address that begins with "mailto:" or "https://"')
    search = settings.tools.web_search
    _check_web_address("tools.web_search.base_url", search.base_url, report)
    if search.provider == "searxng" and not search.base_url:
        report("tools.web_search.base_url", "nothing", 'the address of your SearXNG, since provider = "searxng"')


def _is_host(entry: str) -> bool:
    """Return True for a host name, also with `*.` before it, an address or a range of addresses.

    A last label of digits is no name but an address that is wrong, as "10.0.0".
    """
    try:
        ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        labels = entry.removeprefix("*.").removesuffix(".").split(".")
        return (
            all(label and all(c.isalnum() or c in "-_" for c in label) for label in labels) and not labels[-1].isdigit()
        )
    return True


# ------------------------------------------------------------------ policy


def _check_policy(settings: Settings, report: ProblemReport) -> None:
    """Refuse a rule without a tool or with an unknown word: a rule that never fits is a wall that its author believes in."""
    for n, rule in enumerate(settings.policy.rules, 1):
        found = {
            "tool": (rule.get("tool", ""), ()),
            "who": (rule.get("who", "owner"), ("owner", "guest")),
            "decision": (rule.get("decision", ""), DECISIONS),
        }
        # A key that is missing has its default here, which is "" where the key must be there.
        for key, (value, words) in found.items():
            if not value or (words and value not in words):
                allowed = one_of(words) if words else 'the name of a tool or a pattern, as "github__*"'
                report("policy.rules", f"rule {n}: {key} = {describe_setting(value)}", allowed)
    _check_address("policy.owner_channel", settings.policy.owner_channel, report)


def _check_address(path: str, value: str, report: ProblemReport) -> None:
    if value and Address.parse(value) is None:
        report(path, f'"{value}"', 'a channel type and a channelId, as "telegram:12345", or ""')


# ------------------------------------------------------------------ tool servers


def _check_schedule(settings: Settings, report: ProblemReport) -> None:
    """Active hours have the form that the heartbeat reads."""
    hours = settings.schedule.active_hours
    if hours and not _HOURS.fullmatch(hours):
        report("schedule.active_hours", f'"{hours}"', '"", or hours as "08:00-22:00"')


def _check_mcp(path: str, server: McpServerSettings, report: ProblemReport) -> None:
    """Refuse a server that is none or two, and keys of the other kind: their author believes that they have an effect.

    The name is the beginning of the tools' names, which providers allow few characters for.
    """
    name = path.rpartition(".")[2]
    if not is_bare(name) or len(name) > LONGEST_SERVER_NAME or "__" in f"{name}_":
        allowed = (
            f'a name of at most {LONGEST_SERVER_NAME} letters, digits, "-" and "_", without "__" and "_" at the end'
        )
        report(path, f'the name "{name}"', allowed)
    if not server.command and not server.url:
        report(f"{path}.command", "nothing", "a program, or an address in url")
    # The checks below need to know which kind it is.
    if server.command and server.url:
        report(f"{path}.url", "a value", "nothing, since there is a command")
        return
    for key in ("args", "env", "cwd") if server.url else ("headers", "auth", "client_id", "client_secret", "scopes"):
        if getattr(server, key):
            kind = "url" if server.url else "command"
            report(f"{path}.{key}", "a value", f"nothing, since the server has a {kind}")
    if server.auth == "client_credentials":
        if not server.client_id:
            report(f"{path}.client_id", "nothing", 'a value, since auth = "client_credentials"')
        if not server.client_secret and not server.client_key:
            report(
                f"{path}.client_secret",
                "nothing",
                'a value here or in client_key, since auth = "client_credentials"',
            )
    elif server.client_key:
        report(f"{path}.client_key", "a value", 'nothing, since auth is not "client_credentials"')
    _check_kinds(path, server, report)
    _check_web_address(f"{path}.issuer", server.issuer, report)
    _check_web_address(f"{path}.url", server.url, report)
    _check_headers(path, server.headers, report)


def _check_kinds(path: str, server: McpServerSettings, report: ProblemReport) -> None:
    """Refuse a pattern that never fits: a tool that its author wants to be asked about would not be found in the list."""
    for key in ("reads", "fetches", "acts", "asks"):
        for name in getattr(server, key):
            if not name or "*" in name[:-1]:
                report(f"{path}.{key}", describe_setting(name), 'the name of a tool or its beginning, as "get_*"')
