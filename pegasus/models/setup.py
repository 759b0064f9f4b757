"""Everything that is made from one version of the settings: accounts, HTTP clients, models, breakers, and the way of a call.

A `ModelSetup` is built lazily and never changed; a reload replaces it as a whole (see `ModelService`). So a mistake in the new
settings changes nothing, and a call that is under way keeps what it began with.

The default model, those of routes and fallbacks, and the models for audio are made at once, so that a mistake in them is found when
settings are read (ModelConfigError) and not by the first call. `ModelService.reload` asks for those of the other roles as well.

Who shares what: a provider has one HTTP client, and with it one pool of connections, for all its models and for audio. A model has one
`ModelTarget` for all roles, so that its token counter and its facts are learned once. The middleware of a call is one list for all
models; to add one, name it in `run`.

    setup = ModelSetup(settings.models, settings.providers, Random(), usage)
    target = setup.target(setup.spec("default"), "models.default")
    response = await setup.run(ModelCall(target, "default", "work", request, AnswerFilter(request, PieceRelay())))
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import trio

from pegasus.models.base import CallOptions
from pegasus.models.catalog import known_window
from pegasus.models.client import CallLimit, ModelTarget, Routing, compose
from pegasus.models.fallback import Fallback
from pegasus.models.model_facts import ModelFacts
from pegasus.models.providers import (
    LocalModel,
    ProviderAccount,
    ProviderClient,
    describe_models,
    find_providers,
    is_local_address,
    split_spec,
)
from pegasus.models.roles import AUDIO_ROLES, EMBED_ROLE, OFFLINE, endpoint_account, role_spec
from pegasus.models.stand_in import StandIn
from pegasus.models.tokens import CountByProvider, CountByTable, ExactCount, TokenCounter
from pegasus.settings import MODEL_ROLES, ModelOptionSettings, ModelSettings

if TYPE_CHECKING:
    from pegasus.models.audio import AudioModel
    from pegasus.models.embeddings import EmbeddingModel
    from pegasus.models.usage import UsageTracker
    from pegasus.settings import ProviderSettings


class ModelSetup:
    """Everything that is made from one version of the settings. Models are created when they are first asked for.

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
        previous: ModelSetup | None = None,
    ) -> None:
        self.settings = settings
        self.providers = find_providers(providers)
        self.tables: dict[str, CountByTable] = {}
        """Exact counts by tiktoken, by model."""
        self.lacks_model = not settings.default and self.spec("default") == OFFLINE
        """No model is named and no key is known: a local model answers, if there is one."""
        self._rng = rng
        # Taken over before any model is made, since the models below are made with them.
        self._clients: dict[str, ProviderClient] = previous.clients_of(self.providers) if previous is not None else {}
        """HTTP clients by provider: all its models share the connections."""
        self._targets: dict[str, ModelTarget] = {}
        """Models by `<provider>/<model>`. All roles and lanes share one, with its counter and what its wire format has learned."""
        self._usage = usage
        self._audio: dict[str, AudioModel | None] = {role: self._create_audio(role) for role in AUDIO_ROLES}
        self.embedder = self._create_embedder()
        """The model of `models.embed`; None if it is not set."""
        # Made at once, so that a mistake ends the reload and not a call.
        self.target(self.spec("default"), "models.default")
        routes = [
            (route, self.target(route.model, f"models.routes.{name}.model")) for name, route in settings.routes.items()
        ]
        self.fallback = Fallback(
            [self.target(spec, "models.fallback") for spec in settings.fallback],
            after=settings.breaker_failures,
            pause=settings.breaker_pause,
        )
        self.limit: CallLimit = CallLimit(
            settings.max_concurrent_calls, previous.limit.nodes if previous is not None else 1
        )
        """Bound of the calls that run at the same time."""
        self.run = compose(
            [
                # The order is that of the way of a call, see `client.py`. Usage is inside of the fallback, so
                # that each model that is asked is counted; the limit is inside of usage, so that a call waits
                # for its place only once a budget has admitted it.
                *([Routing(routes)] if routes else []),
                *([self.fallback] if settings.fallback else []),
                *([usage] if usage is not None else []),
                self.limit,
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

    def clients_not_in(self, other: ModelSetup) -> list[ProviderClient]:
        """Return the HTTP clients of this setup that another one does not use."""
        return [client for client in self._clients.values() if client not in other._clients.values()]

    async def aclose(self) -> None:
        """Close all HTTP clients, also those that were taken over from the setup before."""
        await close_clients(self._clients.values())

    def audio(self, role: str) -> AudioModel | None:
        """Return the model that hears or speaks, if one is named."""
        return self._audio[role]

    def _create_audio(self, role: str) -> AudioModel | None:
        """Create what a setting names. Raises ModelConfigError if it cannot work."""
        if not (spec := getattr(self.settings, role)):
            return None
        from pegasus.models.audio import AudioModel

        provider, model_id = endpoint_account(spec, self.providers, role)
        return AudioModel(spec, model_id, *self._endpoint(provider))

    def _create_embedder(self) -> EmbeddingModel | None:
        """Create what `models.embed` names. Raises ModelConfigError if it cannot work."""
        if not (spec := self.settings.embed):
            return None
        from pegasus.models.embeddings import EmbeddingModel

        provider, model_id = endpoint_account(spec, self.providers, EMBED_ROLE)
        # The address of Ollama's other endpoints is a level higher.
        path = "/v1/embeddings" if provider.type == "ollama" else "/embeddings"
        return EmbeddingModel(spec, model_id, *self._endpoint(provider), path=path)

    def _endpoint(
        self, provider: ProviderAccount
    ) -> tuple[ProviderClient, UsageTracker | None, float, Mapping[str, str], Mapping[str, str], str]:
        """Return what models behind endpoints of their own share: the fields of `EndpointModel` behind its names."""
        connect = provider.kind.connect
        assert connect is not None  # noqa: S101 providers of these types are servers
        if provider.name not in self._clients:
            self._clients[provider.name] = connect(provider)
        client = self._clients[provider.name]
        # Errors of a service may repeat a request's header or address.
        client.hide((*provider.headers.values(), *provider.query.values()))
        return client, self._usage, self.settings.timeout, provider.headers, provider.query, provider.key_name

    def _create(self, spec: str, provider: ProviderAccount, model_id: str) -> ModelTarget:
        """Create the model for a spec, and the HTTP client of its provider if there is none yet.

        Tokens are counted exactly where the provider has a call for that or publishes its table; elsewhere they are estimated. Values
        of headers and queries may be keys, so the client hides them.
        """
        kind = provider.kind
        options = {role: effective_options(role, spec, self.settings, provider) for role in MODEL_ROLES}
        facts = self._facts(spec, provider, model_id, options["default"].context_window)
        if kind.wire is None or kind.connect is None:
            return ModelTarget(spec, StandIn(spec), TokenCounter(), facts, is_offline=True)
        from pegasus.models.providers import HttpModel

        if provider.name not in self._clients:
            self._clients[provider.name] = kind.connect(provider)
        client, wire = self._clients[provider.name], kind.wire(model_id, provider)
        exact: ExactCount | None = None
        # Servers of others that speak this format may lack the endpoint. They refuse the first count, and are
        # not asked again.
        if provider.type == "anthropic":
            from pegasus.models.formats import AnthropicWire  # no other model's start needs it

            assert isinstance(wire, AnthropicWire)  # noqa: S101 its type makes that
            exact = CountByProvider(client, wire.count_path, wire.count_body, options)
        elif provider.type == "openai" and provider.is_own_service:
            exact = self.tables[spec] = CountByTable(model_id)
        model = HttpModel(spec, provider.type, wire, client, key_name=provider.key_name, rng=self._rng)
        client.hide(
            value for option in options.values() for value in (*option.headers.values(), *option.query.values())
        )
        return ModelTarget(spec, model, TokenCounter(exact), facts, options=options)

    def _facts(self, spec: str, provider: ProviderAccount, model_id: str, configured: int) -> ModelFacts:
        """Return the facts about a model. A server is asked if it is Ollama, or speaks OpenAI's format on the user's own network."""
        is_local, is_ollama = is_local_address(provider.url), provider.type == "ollama"

        async def describe() -> LocalModel | None:
            """Ask the model's server about it, None if it does not answer."""
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


async def close_clients(clients: Iterable[ProviderClient]) -> None:
    """Close HTTP clients. Calls under way fail; a later call opens new connections."""
    async with trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(client.aclose)


# ------------------------------------------------------------------ options of a call

LOCAL_TIMEOUT: Final = 600.0
"""Seconds until the first token of a server on one's own machine or network. It may have to load the model first."""
_NOTHING: Final = ModelOptionSettings()
"""Options of a role or model that the settings do not name."""
_ROOM_TO_THINK: Final = {"": 0, "low": 2_048, "medium": 8_192, "high": 24_576}
"""Tokens by effort, about as Google counts these words (https://ai.google.dev/gemini-api/docs/openai#thinking)."""


def effective_options(role: str, spec: str, settings: ModelSettings, provider: ProviderAccount) -> CallOptions:
    """Return the options of a call. role: of the call; a name that is no role has no options. spec: `<provider>/<model>`.

    The same option may be set in four places. The first that has it wins:

        [models.options.subagent]            the role of the call
        [models.options."openai/gpt-6-sol"]  the model
        [providers.openai]                   its provider
        [models]                             everything

    Tables (`headers`, `query`, `extra_body`) are merged by name in the same order, so that a role can add a header to those of the
    provider. "", 0 and -1 mean "not set"; so a role cannot take back what its provider sets, only replace it.

    This decides what is wanted. How a service wants it said, and whether a model takes it at all, is a matter of its wire format.
    """
    layers = [settings.options.get(name, _NOTHING) for name in (role, spec)]
    # Only where nobody has set the time: a setting counts for local servers as well.
    is_patient = settings.timeout == ModelSettings().timeout and is_local_address(provider.url)

    def first(name: str, *rest: Any) -> Any:
        """Return the first of the values that is set; the last one of `rest` if none is."""
        values = [*(getattr(layer, name) for layer in layers), *rest]
        return next((value for value in values if value), rest[-1])

    def merged(name: str) -> Mapping[str, Any]:
        """Return the tables of all layers as one; the value of an earlier layer wins."""
        tables: list[Mapping[str, Any]] = [
            getattr(provider, name),
            *(getattr(layer, name) for layer in reversed(layers)),
        ]
        return {key: value for table in tables for key, value in table.items()}

    # 0 is a temperature, so "not set" is a negative number here, unlike everywhere else.
    temperatures = [layer.temperature for layer in layers] + [provider.temperature]
    effort = first("effort", settings.effort)
    thinks = effort or ("medium" if provider.thinks(spec.partition("/")[2]) else "")
    return CallOptions(
        effort=effort,
        room_to_think=_ROOM_TO_THINK[thinks],
        temperature=next((value for value in temperatures if value >= 0), None),
        max_tokens=first("max_tokens", provider.max_tokens),
        timeout=first("timeout", LOCAL_TIMEOUT if is_patient else settings.timeout),
        silence_timeout=first("silence_timeout", settings.silence_timeout),
        context_window=first("context_window", settings.context_window),
        headers=merged("headers"),
        query=merged("query"),
        extra_body=merged("extra_body"),
    )
