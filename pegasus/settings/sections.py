"""Every section and key of pegasus.toml with its default, its limits and its meaning.

The functions that declare fields are explained in `keys`. A key that is added here appears in error messages, in the file
of `pegasus init` and in `config show` by itself; docs/user/settings.md needs its line, and a test says which.

Sections have neither equality nor a repr: nothing compares them, and a repr would show secrets in a traceback.

The docstring of a section and the words of a key stand in the file of `pegasus init`, so that they are one line each and speak to
the person who edits that file. Reasons for programmers stand in comments here.

Defaults are chosen for one person on one machine who has set nothing but an API key. Times are in seconds, sizes in bytes, amounts
of money in US dollars. 0, "" or [] is the usual value for "no limit" or "none", and the words of the key say so.

The words of a key are its documentation in the code as well, so that fields of sections have no strings below them. Sections
with a name of the user's own, as they stand in a file::

    [providers.home]
    type = "openai"
    base_url = "http://192.168.1.5:8000/v1"

    [models.routes.pictures]
    model = "openai/gpt-4.1"
    media = "image"

    [prices."home/big"]
    input = 0.5

In a program::

    settings = Settings(gateway=GatewaySettings(port=0), log=LogSettings(level="debug"))
    settings.models.max_concurrent_calls  # 3, the default
    settings.providers["openai"].type     # "openai", a provider that exists without a section
"""

# ruff: noqa: RUF009  (`section` and `sections` return attrs.field)

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from pegasus.settings.channel_sections import SERVICE_SECTIONS, ChannelSettings, standard_channels
from pegasus.settings.keys import (
    choice,
    flag,
    json_table,
    number,
    section,
    sections,
    text,
    texts,
    texts_by_name,
    whole,
)
from pegasus.settings.tool_sections import (
    McpSettings,
    PolicySettings,
    RemoteAgentSettings,
    SandboxSettings,
    ScheduleSettings,
    ToolSettings,
)

PROVIDER_TYPES: Final = ("anthropic", "openai", "gemini", "ollama", "llamacpp", "lmstudio", "offline")
"""Protocols that `pegasus.models` speaks; "offline" is the stand-in that answers without a service."""
SERVICE_TYPES: Final = {
    "openrouter": "openai",
    "groq": "openai",
    "mistral": "openai",
    "deepseek": "openai",
    "xai": "openai",
    "together": "openai",
    "fireworks": "openai",
    "bedrock": "openai",
    "vertex": "gemini",
    "azure": "openai",
    "vllm": "openai",
}
"""Types of the services that exist as providers without a section, beside the types themselves. `pegasus.models` knows the rest."""
MODEL_ROLES: Final = ("default", "subagent", "compact", "reflection")
"""Purposes of model calls. Each is a key of [models], and a role without a model of its own uses that of "default"."""


@attrs.frozen(eq=False, repr=False)
class RunSettings:
    """The process."""

    # Well below the 90 s after which systemd kills a service that does not stop.
    shutdown_grace: float = number(
        10.0, "seconds a stop may take; what is left when a third of it remains is ended hard", least=0, most=3600
    )


@attrs.frozen(eq=False, repr=False)
class RouteSettings:
    """A rule that sends some calls to another model: the first in the file whose conditions all hold counts. NAME is any name."""

    # `filled`: a route without a model is a mistake, though the default is "". Its own default must exist, for `pegasus init` to show.
    model: str = text("", 'model of these calls, as "<provider>/<model>"', filled=True)
    role: str = choice("", 'only calls of this role; "" = any', "", *MODEL_ROLES)
    channel: str = text("", 'only work for this channel, as "slack" or "slack:<channelId>"; "" = any')
    media: str = choice("", '"image": only where an image is in the conversation', "", "image")
    min_tokens: int = whole(0, "only prompts of at least about so many tokens", least=0)
    max_tokens: int = whole(0, "only prompts of at most about so many tokens; 0 = any", least=0)


EFFORTS: Final = ("", "low", "medium", "high")
"""Values of `effort`: how much a model thinks before it answers; "" leaves that to its provider."""
_EFFORT_DOC: Final = (
    'how much a model thinks before it answers: "low", "medium" or "high"; "" = as its provider decides'
)
"""Words of the key `effort`, which two sections have."""
_TIMEOUT: Final = 120.0
"""Default of `models.timeout`. A server of one's own, which may have to load the model first, gets more (`models.options`)."""


@attrs.frozen(eq=False, repr=False)
class ModelOptionSettings:
    """Options of one role or of one model; what is set here wins over [providers.NAME] and [models], a role over a model."""

    effort: str = choice("", _EFFORT_DOC, *EFFORTS)
    # -1 instead of 0 for "not set": 0 is a temperature that people use.
    temperature: float = number(-1.0, "0 to 2; -1 = as the model is made", least=-1, most=2)
    max_tokens: int = whole(0, "length of an answer at most, thinking included; 0 = as Pegasus decides", least=0)
    timeout: float = number(
        0.0, "seconds until the first token, retries included; 0 = models.timeout", least=0, most=86400
    )
    silence_timeout: float = number(0.0, "seconds between two tokens; 0 = models.silence_timeout", least=0, most=86400)
    context_window: int = whole(0, "tokens; 0 = models.context_window", least=0)
    headers: Mapping[str, str] = texts_by_name("HTTP headers of each request")
    query: Mapping[str, str] = texts_by_name("query parameters of each request's address")
    extra_body: Mapping[str, Any] = json_table("fields that are put into each request's body, over those of Pegasus")


@attrs.frozen(eq=False, repr=False)
class ModelSettings:
    """Models, as "<provider>/<model>". Roles not named fall back to default."""

    # Only the four roles of MODEL_ROLES fall back to `default`. transcribe, speech and embed do not: they need another kind of model.
    default: str = text(
        "",
        '"" = a model of the first service whose API key is in the environment, else one of a local server that answers '
        "(Ollama, llama.cpp, LM Studio), else the stand-in",
    )
    subagent: str = text("", "the model of background tasks")
    compact: str = text("", "the model that summarises a long session")
    reflection: str = text("", "the model that looks back on a finished task")
    transcribe: str = text(
        "", 'what writes down voice messages, such as "openai/gpt-4o-mini-transcribe"; "" = nothing does'
    )
    speech: str = text(
        "", 'what speaks, for the tool speak, such as "openai/gpt-4o-mini-tts"; "" = the tool does not exist'
    )
    embed: str = text(
        "",
        'what makes vectors of texts, so that memory is searched by meaning too, such as "ollama/nomic-embed-text"; "" = by words',
    )
    voice: str = text("alloy", "voice of models.speech, as the service names it")
    fallback: tuple[str, ...] = texts("tried in order when the first is down or overloaded")
    max_concurrent_calls: int = whole(
        3, "model calls at the same time, of all chats and tasks together", least=1, most=1000
    )
    effort: str = choice("", _EFFORT_DOC, *EFFORTS)
    # A call that hangs must not occupy one of max_concurrent_calls for much longer; an answer that comes may take its time.
    timeout: float = number(
        _TIMEOUT,
        "seconds until the first token, retries included; 120 means 600 for a server on your own machine or network",
        above=0,
        most=86400,
    )
    silence_timeout: float = number(60.0, "seconds between two tokens of an answer", above=0, most=86400)
    context_window: int = whole(
        0,
        "tokens; 0 = as the server says or is known of the model, else 128000 (8192 for a server on your own machine or network)",
        least=0,
    )
    choices: tuple[str, ...] = texts("what /model may choose; [] = any model of a provider that can be used")
    breaker_failures: int = whole(3, "failed calls in a row after which a model with fallbacks is left alone", least=1)
    breaker_pause: float = number(30.0, "seconds until it is tried again; doubled each time, up to 600", above=0)
    routes: Mapping[str, RouteSettings] = sections(RouteSettings)
    options: Mapping[str, ModelOptionSettings] = sections(ModelOptionSettings, models=True, words=MODEL_ROLES)


@attrs.frozen(eq=False, repr=False)
class ProviderSettings:
    """A service that runs models; NAME is what stands before the "/" in a model's name."""

    type: str = choice(
        "",
        "the protocol it speaks; may be left out where NAME is one of these words or a known service",
        *PROVIDER_TYPES,
    )
    api_key: str = text("", "usually ${VARIABLE}, so that the key is not in this file", secret=True)
    base_url: str = text("", '"" = the service\'s own address')
    wire: str = choice(
        "",
        'type "openai": "chat" = Chat Completions; "responses" = Responses; "" = by the model',
        "",
        "chat",
        "responses",
    )
    temperature: float = number(-1.0, "0 to 2; -1 = as the model is made", least=-1, most=2)
    max_tokens: int = whole(0, "length of an answer at most, thinking included; 0 = as Pegasus decides", least=0)
    headers: Mapping[str, str] = texts_by_name("HTTP headers of each request")
    query: Mapping[str, str] = texts_by_name("query parameters of each request's address")
    extra_body: Mapping[str, Any] = json_table("fields that are put into each request's body, over those of Pegasus")


@attrs.frozen(eq=False, repr=False)
class BudgetSettings:
    """Limits of what models may cost, in US dollars and in tokens (in and out); 0 = no limit. Days and months are those of UTC."""

    # Costs need prices, which a new or local model may lack; tokens are always known. So each limit exists in both units.
    daily_cost: float = number(0.0, "dollars a day", least=0)
    daily_tokens: int = whole(0, "tokens a day", least=0)
    monthly_cost: float = number(0.0, "dollars a month", least=0)
    monthly_tokens: int = whole(0, "tokens a month", least=0)
    task_cost: float = number(0.0, "dollars for one background task", least=0)
    task_tokens: int = whole(0, "tokens for one background task", least=0)
    message_cost: float = number(0.0, "dollars for one message and the tasks that it leads to", least=0)
    message_tokens: int = whole(0, "tokens for one message and the tasks that it leads to", least=0)
    guest_daily_cost: float = number(0.0, "dollars a day for each person who is no owner", least=0)
    guest_daily_tokens: int = whole(0, "tokens a day for each person who is no owner", least=0)
    channel_daily_cost: float = number(0.0, "dollars a day for one chat and its tasks", least=0)
    channel_daily_tokens: int = whole(0, "tokens a day for one chat and its tasks", least=0)


@attrs.frozen(eq=False, repr=False)
class PriceSettings:
    """Prices of models that Pegasus does not know, or that you pay another price for: US dollars per million tokens."""

    input: float = number(0.0, "tokens of the prompt", least=0)
    output: float = number(0.0, "tokens of the answer", least=0)
    # -1 instead of 0 for "as input": reading from a cache is free with some providers.
    cache_read: float = number(-1.0, "tokens of the prompt read from the provider's cache; -1 = as input", least=-1)
    cache_write: float = number(-1.0, "tokens of the prompt written to it; -1 = as input", least=-1)


@attrs.frozen(eq=False, repr=False)
class AgentSettings:
    """Behaviour of the agent."""

    # `scope` decides which actor runs (`pegasus.app.tree`), so it needs a restart; all others take effect with a reload.
    speech: str = choice(
        "auto",
        '"monologue": only the reply tool speaks; "direct": plain text is the reply; "auto": monologue with models that call tools, '
        "direct with those that have shown that they do not",
        "auto",
        "monologue",
        "direct",
    )
    show_reasoning: bool = flag(
        False, "whether the model's reasoning is shown while a reply is being written, where the channel can show it"
    )
    show_usage: bool = flag(
        False, "whether each reply has in its metadata what the message has used so far, and screens show it below"
    )
    scope: str = choice(
        "global",
        '"global": one session for all private channels of the owner; "chat": one session per channel and chat, in parallel; '
        "guests always have conversations of their own",
        "global",
        "chat",
        restart=True,
    )
    max_active_chats: int = whole(
        50,
        'scope "chat": chats that are in memory at the same time; the others are on disk, and read when they are written to',
        least=1,
    )
    persona: str = text("", 'path of a persona JSON, from the home directory; "" = built in')
    # max_thoughts and max_replies end a loop of a model that calls tools, or replies, without end.
    max_thoughts: int = whole(20, "model calls one message may cause", least=1, most=1000)
    tools: tuple[str, ...] = texts(
        'names or patterns of the tools the agent itself has, as "memory_*"; [] = all. reply is always there'
    )
    max_replies: int = whole(200, "replies one message may get", least=1, most=1000)
    owners: tuple[str, ...] = texts(
        'owners beside those who have shown the owner\'s token, who always are: "type:userId", "type:channelId" or "type:*"; their '
        "messages go first, and they decide about its identity, its model and what it may do",
        "cli:*",
        "web:*",
        "api:*",
    )
    when_busy: str = choice(
        "followup",
        'a message that comes while another one of the same chat is handled: "followup": waits its turn; "steer": joins that '
        'turn before its next model call; "interrupt": ends the present model call, which is repeated with it',
        "followup",
        "steer",
        "interrupt",
    )
    steer_cap: int = whole(10, "messages that may join one turn; more wait for the next one", least=1, most=1000)
    burst_cap: int = whole(
        1, "waiting messages of one chat that are handled together as one; 1 = each alone", least=1, most=1000
    )


@attrs.frozen(eq=False, repr=False)
class LimitSettings:
    """Limits of each guest, that is of everybody who is no owner; 0 = no limit. Owners have no such limits."""

    # They bound what strangers can cost on a channel that is open. Numbers of a budget are beside them: `budget.guest_daily_cost`.
    guest_messages_per_minute: int = whole(30, "messages a minute", least=0)
    guest_waiting: int = whole(20, "messages that may wait for an answer", least=0)
    guest_tasks: int = whole(10, "background tasks that have not ended", least=0)
    guest_disk_mb: int = whole(200, "megabytes of a guest's folder and of what they have sent", least=0)
    guest_memory_kb: int = whole(64, "kilobytes of the notes that the agent keeps for them", least=0)


@attrs.frozen(eq=False, repr=False)
class TaskSettings:
    """Background tasks."""

    # The numbers below bound what a model can start: it decides about tasks, and their cost is the owner's.
    max_active: int = whole(5, "tasks that work at the same time; more wait in order", least=1, most=1000)
    max_queued: int = whole(100, "tasks that may wait; more are refused", least=0)
    max_concurrent_tools: int = whole(3, "tool calls at the same time, all tasks together", least=1, most=1000)
    max_iterations: int = whole(10, "rounds of thinking in one task", least=1, most=10000)
    timeout: float = number(300.0, "seconds for one task", above=0)
    recovery: str = choice(
        "resume",
        'unfinished tasks at start: "resume": replayed and continued; "fail": failed and reported',
        "resume",
        "fail",
        restart=True,
    )


@attrs.frozen(eq=False, repr=False)
class SessionSettings:
    """Memory of a conversation."""

    # The rest of the window is for the summary itself, for the next messages and for results of tools.
    compact_threshold: float = number(
        0.8, "part of the context window that may be full before older turns are summarised", least=0.1, most=1
    )
    memory_window: int = whole(50, 'scope "chat": messages kept before consolidation; 0 = any number', least=0)
    consolidation_timeout: float = number(
        30.0, "seconds that the model may take for one consolidation", above=0, most=86400
    )


@attrs.frozen(eq=False, repr=False)
class MediaSettings:
    """Files that travel with messages."""

    # The upper bound keeps a reply within the 64 MiB that clients take as one frame, in base64.
    max_bytes: int = whole(20971520, "bytes of all files of one message or reply, at most", least=1, most=47185920)
    keep_days: int = whole(
        90, "days after which files in data/media are removed, at least 31; 0 = never", least=0, most=36500
    )


@attrs.frozen(eq=False, repr=False)
class GatewaySettings:
    """The WebSocket server."""

    # The port is fixed by default, so that a program that was configured once finds the daemon after each start.
    # Clients on the same machine read daemon.json instead.
    host: str = text("127.0.0.1", "the address to listen on", filled=True, restart=True)
    port: int = whole(7717, "0 = any free port", least=0, most=65535, restart=True)
    token: str = text(
        "", '"" = made at first start, kept in the file "token" of the home directory', secret=True, restart=True
    )
    allow_remote: bool = flag(False, "must be true where host is not this machine alone", restart=True)
    allowed_origins: tuple[str, ...] = texts("origins of web pages that may connect; no other page may")
    # Attachments are in the frame as base64, which makes them a third larger.
    max_frame_bytes: int = whole(1048576, "bytes of one frame, at most", least=1024, most=1 << 30)
    # Off by default: a compressed connection costs 0.3 MB of memory, and on loopback it saves nothing.
    compression: bool = flag(False, "whether frames are compressed for clients that ask for it, for slow networks")


@attrs.frozen(eq=False, repr=False)
class HttpSettings:
    """The HTTP server."""

    # The limits of the body are wider than those of a frame: a webhook or an upload comes as one request.
    enabled: bool = flag(True, "whether the HTTP server runs: the web page, and the API for programs", restart=True)
    host: str = text("127.0.0.1", "the address to listen on", filled=True, restart=True)
    port: int = whole(7718, "0 = any free port", least=0, most=65535, restart=True)
    allow_remote: bool = flag(False, "must be true where host is not this machine alone", restart=True)
    public_url: str = text("", 'address at which the outside reaches it, as "https://pegasus.example"; "" = none')
    allowed_hosts: tuple[str, ...] = texts("names under which it may be reached, beside its own and that of public_url")
    max_body_bytes: int = whole(33554432, "bytes of the body of a request, at most", least=1024, most=1 << 30)


@attrs.frozen(eq=False, repr=False)
class PushSettings:
    """Notifications of browsers that have the page."""

    contact: str = text(
        "",
        'address of mail or of a page for those who run push services, as "mailto:me@example.org"; "" = http.public_url',
    )
    allowed_hosts: tuple[str, ...] = texts("hosts that may be push services though they are not public, as your own")


@attrs.frozen(eq=False, repr=False)
class HookSettings:
    """A webhook, `POST /hooks/NAME` of the HTTP server: what arrives there becomes a background task, or a message."""

    secret: str = text("", "signs the requests (HMAC-SHA256 of the body); must be set", secret=True)
    template: str = text(
        "", "the text, with {{name}} for fields of the JSON body, dots going deeper; without one the body follows it"
    )
    channel: str = text("", 'the conversation of the message, as "telegram:12345"; "" = a background task')
    repeats: bool = flag(False, "whether the same signed body counts again within 24 hours")


@attrs.frozen(eq=False, repr=False)
class A2aSettings:
    """The door for other agents (Agent2Agent protocol), `/a2a` of the HTTP server."""

    signing_key: str = text(
        "", 'file with a private key (PEM, EC on P-256) that the agent card is signed with; "" = it is not signed'
    )


@attrs.frozen(eq=False, repr=False)
class LogSettings:
    """Logs: on stderr and in logs/pegasus.log."""

    # The words are those of `pegasus.observe`; --log-level is short for the first key.
    level: str = choice("info", "lowest level that is logged", "debug", "info", "warning", "error")
    format: str = choice("line", "format of a log entry", "line", "json")


@attrs.frozen(eq=False, repr=False)
class RetentionSettings:
    """Bounds of what the agent does not need for its work. Memory is never removed; files have media.keep_days."""

    log_mb: int = whole(10, "megabytes of a log file, which then gets a number behind its name", least=1, most=10_000)
    log_files: int = whole(5, "log files in all; the oldest is removed", least=2, most=1_000)
    archive_days: int = whole(
        0, "days after which an archived conversation is removed, by its last line; 0 = never", least=0, most=36500
    )
    task_days: int = whole(
        0,
        "days after which the log of a task that is over is removed, by its last event; 0 = never",
        least=0,
        most=36500,
    )


@attrs.frozen(eq=False, repr=False)
class TelemetrySettings:
    """Traces and metrics over OTLP, by the conventions of OpenTelemetry for generative AI. It needs the extra "telemetry"."""

    # The exporter's threads and connections are made once; headers and content are read with the endpoint.
    otlp_endpoint: str = text(
        "", 'address of a collector, as "http://127.0.0.1:4318"; "" = nothing is exported', restart=True
    )
    headers: Mapping[str, str] = texts_by_name("HTTP headers of each request", restart=True)
    content: bool = flag(False, "true: texts of people, models and tools are exported, too", restart=True)


@attrs.frozen(eq=False, repr=False)
class StorageSettings:
    """Place of everything durable: files in the home, or a PostgreSQL that several nodes share."""

    # Secret as a whole: a password can stand in several places of it, and none of its parts is worth a parser that may be wrong.
    url: str = text(
        "",
        'a PostgreSQL, as "postgresql://host/name"; "" = files in the home. What it leaves out is taken from PGHOST, PGUSER, '
        'PGPASSFILE and the like. It needs the extra "postgres"',
        secret=True,
        restart=True,
    )


@attrs.frozen(eq=False, repr=False)
class NodeSettings:
    """This node, where several share a database."""

    name: str = text("", 'a name that no other node has; "" = the name of the machine', restart=True)
    address: str = text(
        "",
        'where other nodes reach its HTTP server, as "http://10.0.0.5:7718"; "" = through the database',
        restart=True,
    )
    # A third of it passes between renewals, and a node stops a second before its end: below 3 s nothing is left for a slow database.
    lease: float = number(
        5.0,
        "seconds after which the others take over the chats of a node that is gone",
        least=3,
        most=300,
        restart=True,
    )


@attrs.frozen(eq=False, repr=False)
class SettingsSource:
    """Places that settings are read from, to read them again.

    Example::

        SettingsSource(home.config, overrides=("log.level=debug",))
    """

    file: Path | None = None
    """Settings file, None = no file."""
    required: bool = False
    """The file must exist."""
    overrides: tuple[str, ...] = ()
    """Values of --set, "section.key=value" each."""
    table: Mapping[str, Any] | None = attrs.field(default=None, kw_only=True)
    """Sections and values of a program that embeds the agent, in place of the file's; None = there are none."""


def _standard_providers() -> Mapping[str, ProviderSettings]:
    """Return a provider for each type, under the type's name, and for each known service.

    So an API key in the environment is all that is needed, and `[providers.anthropic]` needs no `type`.
    """
    types = {name: name for name in PROVIDER_TYPES} | SERVICE_TYPES
    return {name: ProviderSettings(type=kind) for name, kind in types.items()}


@attrs.frozen(eq=False, repr=False)
class Settings:
    """All settings. `Settings()` is all defaults, with nothing taken from a file or the environment.

    Example::

        settings = load_settings(SettingsSource(Path("pegasus.toml")))
        settings.gateway.port
    """

    run: RunSettings = section(RunSettings)
    """[run]: read by the daemon at its start."""
    models: ModelSettings = section(ModelSettings)
    """[models]: read by `pegasus.models`, which takes or refuses a new one as the guard of a reload."""
    providers: Mapping[str, ProviderSettings] = sections(ProviderSettings, _standard_providers)
    """[providers.NAME]: all types and known services are in it without being written."""
    budget: BudgetSettings = section(BudgetSettings)
    """[budget]: read by the usage tracker before each model call."""
    prices: Mapping[str, PriceSettings] = sections(PriceSettings, models=True)
    """[prices."provider/model"]: they win over the prices that Pegasus knows."""
    agent: AgentSettings = section(AgentSettings)
    """[agent]: read by the Main Agent for each thought; `owners` by everything that decides about rights."""
    limits: LimitSettings = section(LimitSettings)
    """[limits]: read by intake and by the task system, for guests only."""
    tasks: TaskSettings = section(TaskSettings)
    """[tasks]: read by the task system."""
    tools: ToolSettings = section(ToolSettings)
    """[tools]: bounds of tool calls, of the Main Agent and of tasks alike."""
    policy: PolicySettings = section(PolicySettings)
    """[policy]: decisions about tool calls, and about how owners are asked."""
    sandbox: SandboxSettings = section(SandboxSettings)
    """[sandbox]: walls around commands and around tool servers that are programs."""
    schedule: ScheduleSettings = section(ScheduleSettings)
    """[schedule]: the heartbeat. Jobs are no settings; the agent and `pegasus cron` keep them."""
    session: SessionSettings = section(SessionSettings)
    """[session]: when a conversation is made shorter."""
    media: MediaSettings = section(MediaSettings)
    """[media]: bounds of files that travel with messages, and how long they are kept."""
    gateway: GatewaySettings = section(GatewaySettings)
    """[gateway]: the WebSocket server, and the token that also guards the HTTP server."""
    http: HttpSettings = section(HttpSettings)
    """[http]: the HTTP server."""
    push: PushSettings = section(PushSettings)
    """[push]: read for each notification."""
    hooks: Mapping[str, HookSettings] = sections(HookSettings)
    """[hooks.NAME]: a path of the HTTP server each."""
    a2a: A2aSettings = section(A2aSettings)
    """[a2a]: the door for other agents."""
    agents: Mapping[str, RemoteAgentSettings] = sections(RemoteAgentSettings)
    """[agents.NAME]: other agents that work may be delegated to."""
    channels: Mapping[str, ChannelSettings] = sections(ChannelSettings, standard_channels, known=SERVICE_SECTIONS)
    """[channels.TYPE]: "cli" is in it without being written. A type that is not in it is open to everybody."""
    mcp: McpSettings = section(McpSettings)
    """[mcp.servers.NAME]: servers of tools; a reload starts and stops only those that have changed."""
    telemetry: TelemetrySettings = section(TelemetrySettings)
    """[telemetry]: read by the daemon at its start."""
    storage: StorageSettings = section(StorageSettings)
    """[storage]: read by the daemon at its start."""
    node: NodeSettings = section(NodeSettings)
    """[node]: read by the daemon at its start, where storage.url is set."""
    retention: RetentionSettings = section(RetentionSettings)
    """[retention]: read with [log], at every reload, and once an hour by what removes old files."""
    log: LogSettings = section(LogSettings)
    """[log]: what is logged, and how."""
    origins: Mapping[str, str] = attrs.field(factory=dict, kw_only=True)
    """File, variable or option that has set each key path."""
    source: SettingsSource = attrs.field(factory=SettingsSource, kw_only=True)
    """Places that these settings were read from."""
