"""The models of this process: made from the settings when first asked for, sharing clients, connections and permits."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from pegasus.models.base import LanguageModel, ModelError
from pegasus.models.breaker import Breaker, BreakerStatus
from pegasus.models.fallback import FallbackModel
from pegasus.models.limits import context_window
from pegasus.models.roles import Provider, check_choice, choices, find_providers, role_spec, split_spec
from pegasus.settings import MODEL_ROLES

if TYPE_CHECKING:
    from pegasus.models.metering import Meter
    from pegasus.models.remote import RemoteModel
    from pegasus.models.sdk import Sdk
    from pegasus.models.sizing import Sizer
    from pegasus.models.tokens import TokenCounter
    from pegasus.settings import ModelSettings, ProviderSettings


class Models:
    """Hands out LanguageModels by role ("default", "subagent", "compact", "reflection") or by `<provider>/<model>`.

    Making it imports nothing and opens nothing. At most `max_concurrent_calls` calls run at a time in each lane, first come
    first served; a lane of its own keeps a conversation from waiting behind background work. meter: gives what counts and
    limits calls; None: nothing does. chosen: what takes the place of the default model of the settings (see `choose`). Raises
    ModelConfigError.
    """

    def __init__(
        self,
        settings: ModelSettings,
        providers: Mapping[str, ProviderSettings],
        *,
        rng: random.Random,
        meter: Callable[[], Meter] | None = None,
    ) -> None:
        self.chosen = ""
        self._settings = settings
        self._meter = meter
        self._breakers: dict[str, Breaker] = {}
        self._sizer: Sizer | None = None
        self._providers = find_providers(providers)
        self._rng = rng
        self._permits: dict[str, trio.Semaphore] = {}
        self._sdks: dict[str, Sdk] = {}
        self._remote: dict[str, RemoteModel] = {}
        self._estimates: dict[str, TokenCounter] = {}
        self._models: dict[tuple[str, str], LanguageModel] = {}
        self._specs: dict[tuple[str, str], str] = {}

    def name(self, role: str = "default") -> str:
        """`<provider>/<model>` of a role. Raises ModelConfigError where that cannot work."""
        spec = self._specs.get((role, self.chosen))
        if spec is None:
            spec = role_spec(role, self._settings, self._providers, self.chosen)
            split_spec(spec, self._providers, f"models.{role}")
            if role in MODEL_ROLES:
                self._specs[role, self.chosen] = spec
        return spec

    def get(self, role: str = "default", lane: str = "work") -> LanguageModel:
        """The model of a role, with the rules and the fallbacks of the settings. Raises ModelConfigError.

        No rule sends a model that was named itself (by a type of task, by a skill) to another.
        """
        model = self._chain(self.name(role), f"models.{role}", lane)
        routes = self._settings.routes
        if role not in MODEL_ROLES or not routes:
            return model
        from pegasus.models import sizing
        from pegasus.models.routing import RoutedModel

        self._sizer = self._sizer or sizing.Sizer()
        for name, route in routes.items():
            split_spec(route.model, self._providers, f"models.routes.{name}.model")
        routed = lambda spec: self._chain(spec, "models.routes", lane)  # noqa: E731
        return RoutedModel(model, role, routes.values(), routed, self._sizer.size)

    def _chain(self, spec: str, path: str, lane: str) -> LanguageModel:
        """This model, with those of `models.fallback` behind it."""
        specs = [spec, *(name for name in self._settings.fallback if name != spec)]
        if len(specs) == 1:
            return self._one(spec, path, lane)
        chain = [self._one(name, path if name == spec else "models.fallback", lane) for name in specs]
        return FallbackModel(chain, [self._breaker(name) for name in specs])

    def _breaker(self, spec: str) -> Breaker:
        """One for each model, whoever calls it."""
        settings = self._settings
        return self._breakers.setdefault(spec, Breaker(settings.breaker_failures, settings.breaker_pause))

    def breakers(self) -> Mapping[str, BreakerStatus]:
        """How the models fare that failed when they were last asked."""
        found = {spec: breaker.status for spec, breaker in self._breakers.items()}
        return {spec: status for spec, status in found.items() if status.failures}

    def choose(self, spec: str) -> str:
        """Let another model be the default, "" = that of the settings. Gives its name. Raises ModelConfigError."""
        self.check_choice(spec)
        self.chosen = spec
        return self.name()

    def check_choice(self, spec: str) -> None:
        """Whether `choose` would work. Raises ModelConfigError with what is allowed."""
        if spec:
            check_choice(spec, self._settings, self._providers)
        else:
            split_spec(role_spec("default", self._settings, self._providers), self._providers, "models.default")

    def choices(self) -> tuple[str, ...]:
        """What can be chosen; those of the settings first."""
        from pegasus.models.prices import PRICES

        return choices(self._settings, self._providers, tuple(PRICES))

    def context_window(self, role: str = "default") -> int:
        """Tokens that fit into the model of a role: the setting, else what is known of the model, else 128,000."""
        return self._settings.context_window or context_window(self.name(role))

    def counter(self, role: str = "default") -> TokenCounter:
        """Counts the tokens of requests for the model of a role (not for its fallbacks). Raises ModelConfigError."""
        from pegasus.models.tokens import Counter, Gauge

        spec = self.name(role)
        self._one(spec, f"models.{role}", "work")
        remote = self._remote.get(spec)
        return remote.counter if remote is not None else self._estimates.setdefault(spec, Counter(Gauge()))

    async def warm_up(self) -> None:
        """Import the SDK of the default model, in a thread. A call before that is done waits for it.

        What goes wrong here goes wrong again at the first call, which reports it; so nothing is raised.
        """
        provider, _ = split_spec(self.name(), self._providers, "models.default")
        self._one(self.name(), "models.default", "work")
        sdk = self._sdks.get(provider.name)
        if sdk is not None:
            with suppress(ModelError):
                await sdk.get()

    async def aclose(self) -> None:
        """Close all connections. Calls under way fail; a later call opens new ones."""
        for sdk in self._sdks.values():
            await sdk.aclose()

    # ------------------------------------------------------------ making

    def _one(self, spec: str, path: str, lane: str) -> LanguageModel:
        model = self._models.get((spec, lane))
        if model is None:
            provider, model_id = split_spec(spec, self._providers, path)
            model = self._make(spec, provider, model_id, lane)
            if self._meter is not None:
                from pegasus.models.metering import MeteredModel

                model = MeteredModel(model, self._meter)
            self._models[spec, lane] = model
        return model

    def _permits_of(self, lane: str) -> trio.Semaphore:
        most = self._settings.max_concurrent_calls
        return self._permits.setdefault(lane, trio.Semaphore(most, max_value=most))

    def _make(self, spec: str, provider: Provider, model_id: str, lane: str) -> LanguageModel:
        if provider.type == "offline":
            from pegasus.models.offline import StandIn

            return StandIn(spec)
        return self._make_remote(spec, provider, model_id, lane)

    def _make_remote(self, spec: str, provider: Provider, model_id: str, lane: str) -> LanguageModel:
        """With the provider's one client for all its models. What is imported here, no stand-in needs."""
        from pegasus.models.remote import RemoteModel, Wire

        sdk = self._sdks.get(provider.name)
        if provider.type == "anthropic":
            from pegasus.models import anthropic

            sdk = sdk or anthropic.sdk(provider.api_key, provider.base_url)
            wire: Wire = anthropic.AnthropicWire(model_id)
        else:
            from pegasus.models import openai

            sdk = sdk or openai.sdk(provider.type, provider.api_key, provider.base_url)
            wire = openai.ChatWire(model_id, provider.type, own=openai.is_own(provider.type, provider.base_url))
        self._sdks[provider.name] = sdk
        permits = self._permits_of(lane)
        timeout = self._settings.timeout
        model = RemoteModel(
            spec, wire, sdk, permits=permits, timeout=timeout, rng=self._rng, twin=self._remote.get(spec)
        )
        self._remote[spec] = model
        return model
