"""The models of the process: `ModelService` hands out clients by role and follows the settings.

    service = ModelService(settings.models, settings.providers, rng=Random())
    model = service.client("default", "conversation")
    response = await model.generate(request)
    service.reload(new.models, new.providers)  # `model` uses the new settings from its next call on

Everything that is derived from one version of the settings is in one `_Setup`: accounts, HTTP clients, models, breakers and
middleware. It is built lazily and never changed; a reload replaces it as a whole. So a mistake in the new settings changes nothing,
and a call that is under way keeps what it began with.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from pegasus.messages import Address, ChannelInfo, Json
from pegasus.models.audio import AudioModel
from pegasus.models.base import ModelError, ModelRequest
from pegasus.models.catalog import known_window
from pegasus.models.chat_choices import ChatChoices
from pegasus.models.client import CallLimit, Lane, ModelClient, ModelTarget, Next, Routing, compose
from pegasus.models.exact_tokens import CountByProvider, CountByTable
from pegasus.models.fallback import BreakerStatus, Fallback
from pegasus.models.formats import AnthropicWire
from pegasus.models.model_facts import ModelFacts
from pegasus.models.options import effective_options
from pegasus.models.providers import (
    LOCAL_SERVERS,
    HttpModel,
    LocalModel,
    ModelConfigError,
    ProviderAccount,
    ProviderClient,
    describe_models,
    find_local_models,
    find_providers,
    is_local_address,
    split_spec,
)
from pegasus.models.roles import (
    AUDIO_ROLES,
    OFFLINE,
    audio_account,
    check_choice,
    describe_rules,
    list_choices,
    role_spec,
)
from pegasus.models.stand_in import StandIn
from pegasus.models.tokens import ExactCount, TokenCounter
from pegasus.models.traits import TraitStore
from pegasus.models.usage import daily_usage, usage_report, usage_text
from pegasus.observe import get_logger
from pegasus.settings import MODEL_ROLES

if TYPE_CHECKING:
    from pegasus.models.usage import UsageTracker
    from pegasus.settings import ModelSettings, ProviderSettings

_log = get_logger("models")

SEARCH_PAUSE: Final = 3.0
"""Seconds between two searches for local models, as long as the stand-in answers for want of one."""
READING: Final = 5.0
"""Seconds that a report waits for the records of calls before this start."""


class ModelService:
    """Models by role ("default", "subagent", "compact", "reflection") or by `<provider>/<model>`.

    Creating it imports no SDK and opens no connection. rng: randomness of the pauses between retries. usage: counts and limits calls;
    None: nothing does. Raises ModelConfigError if the default model, a fallback or a rule cannot work.
    """

    def __init__(
        self,
        settings: ModelSettings,
        providers: Mapping[str, ProviderSettings],
        *,
        rng: random.Random,
        usage: UsageTracker | None = None,
    ) -> None:
        self.usage = usage
        self.traits = TraitStore()
        """What is known about each model's manners; read when the journal runs."""
        self.chat_choices = ChatChoices()
        """Models that were chosen for single chats; read when the journal runs."""
        self.chosen = ""
        """Model that replaces the default of the settings; see `choose`."""
        self._rng = rng
        self._setup = _Setup(settings, providers, rng, usage)
        self._target_by_role: dict[str, ModelTarget] = {}
        """Models by role or name, until something changes."""
        self._local_models: list[LocalModel] = []
        """Models of local servers, as they were found last."""
        self._found = ""
        """The local model that answers, as no other is named. It stays once it was found: a server may be away for a moment."""
        self._search = trio.Lock()
        self._next_search = -inf
        """Trio time from which local models may be looked for again."""

    def client(self, role: str = "default", lane: Lane = "work") -> ModelClient:
        """Return a client of a role or model. It may be kept: it follows `reload` and `choose`.

        lane: "conversation" for calls that a person waits for; these never wait behind background work. Raises ModelConfigError if
        the model cannot work now.
        """
        self.target(role)
        return ModelClient(self, role, lane)

    def for_chat(self, chat: Address) -> ChatModels:
        """Return the models of a chat that has a conversation of its own, and maybe a model that was chosen for it."""
        return ChatModels(self, chat)

    def target(self, role: str) -> ModelTarget:
        """Return the model that a role means at this moment. Raises ModelConfigError."""
        target = self._target_by_role.get(role)
        if target is None:
            target = self._setup.target(self._setup.spec(role, self.chosen, self._found), f"models.{role}")
            self._target_by_role[role] = target
        return target

    def audio(self, role: str) -> AudioModel | None:
        """Return what the setting `models.transcribe` or `models.speech` names at this moment; None if it is "".

        role: "transcribe" or "speech".
        """
        return self._setup.audio(role)

    # ------------------------------------------------------------ local servers

    async def prepare(self, role: str) -> tuple[ModelTarget, Next]:
        """Return the model that a role means at this moment, and the way of its calls.

        First find out what only a local server can tell: whether there is one, and how large the window of its model is. Immediate in
        most cases, at most four seconds. Raises ModelConfigError.
        """
        await self.settle()
        target, run = self.target(role), self._setup.run
        await target.facts.learn(self.traits.get(target.name).context_window)
        return target, run

    async def settle(self) -> None:
        """Wait until it is known whether a local model answers in place of the stand-in. At most two seconds; never raises."""
        if self._needs_local_model:
            await self._find_default()

    @property
    def _needs_local_model(self) -> bool:
        """True if a local model would answer if there is one, and none was found yet."""
        return self._setup.lacks_model and not self._found and not self.chosen

    async def _find_default(self) -> None:
        """Look for a local model in place of the stand-in, at most every few seconds."""
        async with self._search:
            if not self._found and trio.current_time() >= self._next_search:
                await self.look_around()

    async def look_around(self) -> list[LocalModel]:
        """Return the models of the local servers that answer now. At most two seconds; never raises.

        The best of them answers from now on if there is no other model than the stand-in.
        """
        providers = self._setup.providers
        addresses = {server.provider: providers[server.provider].base_url for server in LOCAL_SERVERS}
        self._local_models = await find_local_models(addresses)
        self._next_search = trio.current_time() + SEARCH_PAUSE
        found = next((model for model in self._local_models if not model.is_remote), None)
        if found is not None and self._needs_local_model:
            self._found = found.spec
            self._target_by_role.clear()
            _log.info("a local model answers, since no other is set", model=found.spec, server=found.server)
        return self._local_models

    @property
    def origin(self) -> str:
        """Reason why the default model is the one that answers, for people. It does not tell of a choice by `/model`."""
        is_found = self._found and self.target("default").name == self._found
        return "found on this machine" if is_found and not self._setup.settings.default else "as in the settings"

    # ------------------------------------------------------------ changing

    def reload(self, settings: ModelSettings, providers: Mapping[str, ProviderSettings]) -> None:
        """Use other settings from the next call on. Raises ModelConfigError; nothing has changed then.

        The models of all roles are checked, as at a start, where a client of each role is made: a compaction may begin hours later.
        A chosen model that is not possible any more gives way to that of the settings.
        """
        setup = _Setup(settings, providers, self._rng, self.usage, previous=self._setup)
        for role in MODEL_ROLES:
            setup.target(setup.spec(role), f"models.{role}")
        self._setup = setup
        self.restore_choice(self.chosen)

    def choose(self, spec: str) -> str:
        """Replace the default model, "" to use that of the settings again; return its name. Raises ModelConfigError."""
        self.check_choice(spec)
        self.chosen = spec
        self._target_by_role.clear()
        return self.target("default").name

    def check_choice(self, spec: str) -> None:
        """Check whether `choose` would work. Raises ModelConfigError with what is allowed."""
        setup = self._setup
        if spec:
            check_choice(spec, setup.settings, setup.providers)
        else:
            setup.target(setup.spec("default"), "models.default")

    def restore_choice(self, spec: str) -> None:
        """Choose a model that was chosen before, if it is still possible. Otherwise log that, and use that of the settings."""
        try:
            self.choose(spec)
        except ModelConfigError as error:
            self.choose("")
            _log.warning("the chosen model cannot be used; the one of the settings is", chosen=spec, error=str(error))

    def choices(self) -> tuple[str, ...]:
        """Return the models that can be chosen: those of the settings first, then those that `look_around` found last."""
        local = [model.spec for model in self._local_models]
        return list_choices(self._setup.settings, self._setup.providers, [*filter(None, [self._found]), *local])

    @property
    def rules(self) -> list[str]:
        """Rules of the settings that send calls to other models, a line for each."""
        return describe_rules(self._setup.settings)

    # ------------------------------------------------------------ information

    def context_window(self, role: str = "default") -> int:
        """Return how many tokens fit into the model of a role, as far as is known at this moment (see `ModelFacts`).

        Raises ModelConfigError.
        """
        return self.target(role).facts.context_window

    def assumes_window(self, role: str = "default") -> bool:
        """Return whether the window of a role's model is only assumed, and no call has shown that there is such a model."""
        return self.target(role).facts.is_assumed

    def token_counter(self, role: str = "default") -> TokenCounter:
        """Return the token counter of a role's model (not of its fallbacks). Raises ModelConfigError."""
        return self.target(role).counter

    async def compare_tokens(self, request: ModelRequest, limit: int) -> int:
        """Return the tokens of a request to the default model, counted exactly if they are near the limit."""
        return await self.token_counter().compare(request, limit)

    def breakers(self) -> Mapping[str, BreakerStatus]:
        """Return the models that failed when they were last asked and have fallbacks, with the state of their breakers."""
        return self._setup.fallback.failing()

    async def usage_report(self, channel: ChannelInfo | None = None) -> dict[str, Json]:
        """Return what was used, as JSON; {} where usage is not counted. channel: adds the sum of this chat.

        Waits at most five seconds for the calls before this start.
        """
        usage = await self._read_usage()
        return {**usage_report(usage, channel), "counting": self.token_counter().method} if usage is not None else {}

    async def daily_usage(self) -> list[Json]:
        """Return what each day of this month and the last has used; [] where usage is not counted. Waits as `usage_report` does."""
        usage = await self._read_usage()
        return daily_usage(usage) if usage is not None else []

    async def _read_usage(self) -> UsageTracker | None:
        """Return the tracker with the calls before this start, if they are read in time; None where usage is not counted."""
        if self.usage is not None:
            self.usage.wanted.set()
            with trio.move_on_after(READING):
                await self.usage.loaded.wait()
        return self.usage

    async def usage_text(self, channel: ChannelInfo | None = None) -> str:
        """Return the answer to `/usage` in this chat."""
        report = await self.usage_report(channel)
        text = usage_text(report) if report else "Usage is not counted."
        is_free = self.target("default").is_offline
        return f"The stand-in answers; it costs nothing and is not counted.\n{text}" if is_free else text

    # ------------------------------------------------------------ connections

    async def warm_up(self) -> None:
        """Get the default model ready: ask its server, import its SDK and load its tokenizer's table. Never raises.

        It takes up to a minute. A call that is made meanwhile waits for the SDK, but not for the table. An error of the SDK occurs
        again at the first call, which reports it.
        """
        await self.prepare("default")
        setup = self._setup
        spec = self.target("default").name
        if (client := setup.http_client(spec)) is not None:
            with suppress(ModelError):
                await client.load()
        if (table := setup.tables.get(spec)) is not None:
            await table.load()

    async def aclose(self) -> None:
        """Close all connections. Calls under way fail; a later call opens new ones."""
        await self._setup.aclose()


class ChatModels:
    """The models of one chat: those of the service, but for a default model that was chosen for this chat (see `ChatChoices`).

    Example: `await service.for_chat(Address("web", "c1")).client("default", "conversation").generate(request)`.
    """

    def __init__(self, service: ModelService, chat: Address) -> None:
        self._service = service
        self._chat = chat

    def _name(self, role: str) -> str:
        """Return the chosen model for the default role; else the role itself."""
        service = self._service
        chosen = service.chat_choices.usable(self._chat, service.check_choice) if role == "default" else ""
        return chosen or role

    def client(self, role: str = "default", lane: Lane = "work") -> ModelClient:
        """Return a client that may be kept: it follows reloads and choices. Raises ModelConfigError."""
        self.target(role)
        return ModelClient(self, role, lane)

    def target(self, role: str) -> ModelTarget:
        """Return the model that a role means in this chat now. Raises ModelConfigError."""
        return self._service.target(self._name(role))

    async def prepare(self, role: str) -> tuple[ModelTarget, Next]:
        """Return that model and the way of its calls, as `ModelService.prepare` does. Raises ModelConfigError."""
        return await self._service.prepare(self._name(role))

    def context_window(self, role: str = "default") -> int:
        """Return how many tokens fit into the model of a role, as far as is known. Raises ModelConfigError."""
        return self._service.context_window(self._name(role))

    def assumes_window(self, role: str = "default") -> bool:
        """Return whether the window of a role's model is only assumed, and no call has shown that there is such a model."""
        return self._service.assumes_window(self._name(role))

    async def compare_tokens(self, request: ModelRequest, limit: int) -> int:
        """Return the tokens of a request to this chat's model, counted exactly if they are near the limit."""
        return await self._service.token_counter(self._name("default")).compare(request, limit)


class _Setup:
    """Everything that is derived from one version of the settings. Models are created when they are first asked for.

    previous: the setup that this one replaces. Its connections are used further where the provider's account is the same, so that a
    reload that changes something else costs no TLS handshake. Token counters and breakers begin anew: the provider behind a name
    may be another.
    """

    def __init__(
        self,
        settings: ModelSettings,
        providers: Mapping[str, ProviderSettings],
        rng: random.Random,
        usage: UsageTracker | None,
        previous: _Setup | None = None,
    ) -> None:
        self.settings = settings
        self.providers = find_providers(providers)
        self.tables: dict[str, CountByTable] = {}
        """Exact counts by tiktoken, by model."""
        self.lacks_model = not settings.default and self.spec("default") == OFFLINE
        """No model is named and no key is known: a local model answers, if there is one."""
        self._rng = rng
        self._clients: dict[str, ProviderClient] = previous.clients_of(self.providers) if previous is not None else {}
        """HTTP clients by provider: all its models share the connections."""
        self._targets: dict[str, ModelTarget] = {}
        """Models by `<provider>/<model>`. All roles and lanes share one, with its counter and what its wire format has learned."""
        self._usage = usage
        self._audio: dict[str, AudioModel | None] = {role: self._create_audio(role) for role in AUDIO_ROLES}
        self.target(self.spec("default"), "models.default")
        routes = [
            (route, self.target(route.model, f"models.routes.{name}.model")) for name, route in settings.routes.items()
        ]
        self.fallback = Fallback(
            [self.target(spec, "models.fallback") for spec in settings.fallback],
            after=settings.breaker_failures,
            pause=settings.breaker_pause,
        )
        self.run = compose(
            [
                *([Routing(routes)] if routes else []),
                *([self.fallback] if settings.fallback else []),
                *([usage] if usage is not None else []),
                CallLimit(settings.max_concurrent_calls),
            ]
        )
        """The way of a call; middleware that the settings do not use is left out."""

    def spec(self, role: str, chosen: str = "", found: str = "") -> str:
        """Return `<provider>/<model>` of a role or name."""
        return role_spec(role, self.settings, self.providers, chosen, found)

    def target(self, spec: str, path: str) -> ModelTarget:
        """Return a model. path: the settings key that an error names. Raises ModelConfigError."""
        if spec not in self._targets:
            provider, model_id = split_spec(spec, self.providers, path)
            self._targets[spec] = self._create(spec, provider, model_id)
        return self._targets[spec]

    def clients_of(self, providers: Mapping[str, ProviderAccount]) -> dict[str, ProviderClient]:
        """Return the HTTP clients of the providers that are the same in this setup: their connections stay open."""
        return {name: sdk for name, sdk in self._clients.items() if providers.get(name) == self.providers[name]}

    def http_client(self, spec: str) -> ProviderClient | None:
        """Return the HTTP client of a model that was created; None for the stand-in."""
        return self._clients.get(spec.partition("/")[0])

    async def aclose(self) -> None:
        async with trio.open_nursery() as nursery:
            for client in self._clients.values():
                nursery.start_soon(client.aclose)

    def audio(self, role: str) -> AudioModel | None:
        """Return the model that hears or speaks, if one is named."""
        return self._audio[role]

    def _create_audio(self, role: str) -> AudioModel | None:
        """Create what a setting names. Raises ModelConfigError if it cannot work."""
        spec, path = getattr(self.settings, role), f"models.{role}"
        if not spec:
            return None
        provider, model_id = audio_account(spec, self.providers, path)
        connect = provider.kind.connect
        if connect is None:
            return None
        if provider.name not in self._clients:
            self._clients[provider.name] = connect(provider)
        client = self._clients[provider.name]
        client.hide((*provider.headers.values(), *provider.query.values()))
        return AudioModel(
            spec,
            model_id,
            client,
            self._usage,
            timeout=self.settings.timeout,
            headers=provider.headers,
            query=provider.query,
            key_name=provider.kind.key if provider.is_own_service else "",
        )

    def _create(self, spec: str, provider: ProviderAccount, model_id: str) -> ModelTarget:
        """Create the model for a spec."""
        kind = provider.kind
        options = {role: effective_options(role, spec, self.settings, provider) for role in MODEL_ROLES}
        facts = self._facts(spec, provider, model_id, options["default"].context_window)
        if kind.wire is None or kind.connect is None:
            return ModelTarget(spec, StandIn(spec), TokenCounter(), facts, is_offline=True)
        if provider.name not in self._clients:
            self._clients[provider.name] = kind.connect(provider)
        client, wire = self._clients[provider.name], kind.wire(model_id, provider)
        exact: ExactCount | None = None
        if isinstance(wire, AnthropicWire):
            exact = CountByProvider(client, wire.count_path, wire.count_body, options)
        elif provider.type == "openai" and provider.is_own_service:
            exact = self.tables[spec] = CountByTable(model_id)
        key_name = kind.key if provider.is_own_service else ""
        model = HttpModel(spec, provider.type, wire, client, key_name=key_name, rng=self._rng)
        client.hide(
            value for option in options.values() for value in (*option.headers.values(), *option.query.values())
        )
        return ModelTarget(spec, model, TokenCounter(exact), facts, options=options)

    def _facts(self, spec: str, provider: ProviderAccount, model_id: str, configured: int) -> ModelFacts:
        """Return the facts about a model. A server is asked if it is Ollama, or speaks OpenAI's format on the user's own network."""
        is_local, is_ollama = is_local_address(provider.url), provider.type == "ollama"

        async def describe() -> LocalModel | None:
            models = await describe_models(provider.name, provider.url, is_ollama, model=model_id, key=provider.api_key)
            return models[0] if models else None

        can_tell = is_ollama or (is_local and provider.type in ("openai", "llamacpp", "lmstudio"))
        return ModelFacts(
            spec,
            configured=configured,
            known=known_window(spec),
            is_local=is_local,
            describe=describe if can_tell else None,
        )
