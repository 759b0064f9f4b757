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
from typing import TYPE_CHECKING, Final

import trio

from pegasus.messages import ChannelInfo, Json
from pegasus.models.anthropic import AnthropicWire
from pegasus.models.base import ModelError, ModelRequest
from pegasus.models.catalog import context_window
from pegasus.models.client import CallLimit, Lane, ModelClient, ModelTarget, Next, Routing, compose
from pegasus.models.fallback import BreakerStatus, Fallback
from pegasus.models.http_model import HttpModel, ProviderClient
from pegasus.models.roles import (
    ModelConfigError,
    ProviderAccount,
    check_choice,
    find_providers,
    list_choices,
    role_spec,
    split_spec,
)
from pegasus.models.stand_in import StandIn
from pegasus.models.tokens import CountByProvider, CountByTable, ExactCount, TokenCounter
from pegasus.models.usage_report import usage_report, usage_text
from pegasus.observe import get_logger
from pegasus.settings import MODEL_ROLES

if TYPE_CHECKING:
    from pegasus.models.usage_tracker import UsageTracker
    from pegasus.settings import ModelSettings, ProviderSettings

_log = get_logger("models")

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
        self.chosen = ""
        """Model that replaces the default of the settings; see `choose`."""
        self._rng = rng
        self._setup = _Setup(settings, providers, rng, usage)
        self._target_by_role: dict[str, ModelTarget] = {}
        """Models by role or name, until something changes."""

    def client(self, role: str = "default", lane: Lane = "work") -> ModelClient:
        """Return a client of a role or model. It may be kept: it follows `reload` and `choose`.

        lane: "conversation" for calls that a person waits for; these never wait behind background work. Raises ModelConfigError if
        the model cannot work now.
        """
        self.target(role)
        return ModelClient(self, role, lane)

    def target(self, role: str) -> ModelTarget:
        """Return the model that a role means at this moment. Raises ModelConfigError."""
        target = self._target_by_role.get(role)
        if target is None:
            target = self._setup.target(self._setup.spec(role, self.chosen), f"models.{role}")
            self._target_by_role[role] = target
        return target

    def resolve(self, role: str) -> tuple[ModelTarget, Next]:
        """Return the model that a role means at this moment, and the way of its calls. Raises ModelConfigError."""
        return self.target(role), self._setup.run

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
        """Return the models that can be chosen, those of the settings first."""
        return list_choices(self._setup.settings, self._setup.providers)

    # ------------------------------------------------------------ information

    def context_window(self, role: str = "default") -> int:
        """Return how many tokens fit into the model of a role: by the settings, else as known of the model, else 128,000.

        Raises ModelConfigError.
        """
        return self.target(role).context_window

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
        if self.usage is None:
            return {}
        self.usage.wanted.set()
        with trio.move_on_after(READING):
            await self.usage.loaded.wait()
        return {**usage_report(self.usage, channel), "counting": self.token_counter().method}

    async def usage_text(self, channel: ChannelInfo | None = None) -> str:
        """Return the answer to `/usage` in this chat."""
        report = await self.usage_report(channel)
        return usage_text(report) if report else "Usage is not counted."

    # ------------------------------------------------------------ connections

    async def warm_up(self) -> None:
        """Import the SDK of the default model and load its tokenizer's table, in threads. Takes up to a minute; never raises.

        A call that is made meanwhile waits for the SDK, but not for the table. An error of the SDK occurs again at the first call,
        which reports it.
        """
        setup = self._setup
        spec = setup.spec("default", self.chosen)
        setup.target(spec, "models.default")
        if (client := setup.http_client(spec)) is not None:
            with suppress(ModelError):
                await client.load()
        if (table := setup.tables.get(spec)) is not None:
            await table.load()

    async def aclose(self) -> None:
        """Close all connections. Calls under way fail; a later call opens new ones."""
        await self._setup.aclose()


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
        self._rng = rng
        self._clients: dict[str, ProviderClient] = previous.clients_of(self.providers) if previous is not None else {}
        """HTTP clients by provider: all its models share the connections."""
        self._targets: dict[str, ModelTarget] = {}
        """Models by `<provider>/<model>`. All roles and lanes share one, with its counter and what its wire format has learned."""
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

    def spec(self, role: str, chosen: str = "") -> str:
        """Return `<provider>/<model>` of a role or name."""
        return role_spec(role, self.settings, self.providers, chosen)

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

    def _create(self, spec: str, provider: ProviderAccount, model_id: str) -> ModelTarget:
        """Create the model for a spec."""
        kind = provider.kind
        if kind.wire is None or kind.connect is None:
            return ModelTarget(spec, StandIn(spec), TokenCounter(), self._window(spec), is_offline=True)
        if provider.name not in self._clients:
            self._clients[provider.name] = kind.connect(provider)
        client, wire = self._clients[provider.name], kind.wire(model_id, provider)
        exact: ExactCount | None = None
        if isinstance(wire, AnthropicWire):
            exact = CountByProvider(client, wire.count_path, wire.count_body)
        elif provider.type == "openai" and provider.is_own_service:
            exact = self.tables[spec] = CountByTable(model_id)
        model = HttpModel(spec, provider.type, wire, client, timeout=self.settings.timeout, rng=self._rng)
        return ModelTarget(spec, model, TokenCounter(exact), self._window(spec))

    def _window(self, spec: str) -> int:
        """Return the context window: that of the settings, else what is known of the model."""
        return self.settings.context_window or context_window(spec)
