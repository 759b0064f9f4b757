"""The models of the process: `ModelService` hands out clients by role and follows the settings.

    service = ModelService(settings.models, settings.providers, rng=Random())
    model = service.client("default", "conversation")
    response = await model.generate(request)
    service.reload(new.models, new.providers)  # `model` uses the new settings from its next call on

Everything that is made from one version of the settings is in one `ModelSetup`, which a reload replaces as a whole.

A `ModelClient` is what the rest of Pegasus calls. It belongs to a role ("default", "compact", …) or to a model by name. It stays valid
when settings are reloaded or another model is chosen: `prepare` asks the service which model that is at this moment, and returns a
`PreparedModel` for the calls of one thought.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

import trio

from pegasus.messages import Address, ChannelInfo, Json
from pegasus.models.base import ModelError, ModelRequest, ModelResponse
from pegasus.models.chat_choices import ChatChoices
from pegasus.models.client import Lane, ModelTarget, Next, PreparedModel
from pegasus.models.fallback import BreakerStatus
from pegasus.models.model_facts import TraitStore
from pegasus.models.providers import LOCAL_SERVERS, LocalModel, ModelConfigError, ProviderClient, find_local_models
from pegasus.models.roles import check_choice, describe_rules, list_choices
from pegasus.models.setup import ModelSetup, close_clients
from pegasus.models.tokens import PromptSize
from pegasus.models.usage import daily_usage, usage_report, usage_text
from pegasus.observe import get_logger
from pegasus.settings import MODEL_ROLES

if TYPE_CHECKING:
    from pegasus.models.audio import AudioModel
    from pegasus.models.embeddings import EmbeddingModel
    from pegasus.models.usage import UsageTracker
    from pegasus.settings import ModelSettings, ProviderSettings

_log = get_logger("models")

SEARCH_PAUSE: Final = 3.0
"""Seconds between two searches for local models, as long as the stand-in answers for want of one."""
READING: Final = 5.0
"""Seconds that a report waits for the records of calls before this start."""


# ------------------------------------------------------------------ the client of a role


class ClientSource(Protocol):
    """Models by role or name, of all chats or of one: `ModelService` and `ChatModels`."""

    def target(self, role: str) -> ModelTarget:
        """Return the model of a role or name at this moment. Raises ModelConfigError."""

    async def prepare(self, role: str) -> tuple[ModelTarget, Next]:
        """Return that model and the way of its calls (see `compose`), after asking the model's server what it can tell.

        Where there is no model, a local one is looked for. Raises ModelConfigError.
        """

    def client(self, role: str = "default", lane: Lane = "work") -> ModelClient:
        """Return a client of a role or model. It may be kept: it follows reloads and choices.

        lane: "conversation" for calls that a person waits for; these never wait behind background work. Raises ModelConfigError if
        the model cannot work now.
        """
        self.target(role)
        return ModelClient(self, role, lane)

    def context_window(self, role: str = "default") -> int:
        """Return how many tokens fit into the model of a role, as far as is known at this moment (see `ModelFacts`).

        Raises ModelConfigError.
        """
        return self.target(role).facts.context_window

    async def measure(self, request: ModelRequest, share: float, role: str = "default") -> PromptSize:
        """Return the size of a request to a role's model beside its window. Raises ModelConfigError.

        It is counted exactly if it is near this share of the window, where that is known. This takes at most 5 seconds.
        """
        target = self.target(role)
        window, is_assumed = target.facts.context_window, target.facts.is_assumed
        if is_assumed:
            return PromptSize(target.counter.estimate(request), window, is_assumed=True)
        return PromptSize(await target.counter.compare(request, round(share * window)), window)


class ModelClient:
    """`LanguageModel` of a role. It follows reloads of the settings and `/model` by itself, so it can be kept for good.

    A call that is under way when the settings change ends with the model it began with.

    Example::

        model = service.client("default", "conversation")
        prepared = await model.prepare()            # its name and window, for making the prompt
        response = await prepared.generate(request)
    """

    def __init__(self, source: ClientSource, role: str, lane: Lane = "work") -> None:
        self._source = source
        self._role = role
        self._lane: Lane = lane

    @property
    def name(self) -> str:
        """`<provider>/<model>` that would be asked now, before routing rules and fallbacks. Raises ModelConfigError."""
        return self._source.target(self._role).name

    async def prepare(self) -> PreparedModel:
        """Return the model at this moment. Find out which one that is and how large its window is, if a local server has to tell.

        Call it before a prompt is made whose length depends on the window. It takes no time once the server has answered, and at
        most two seconds else. Raises ModelError if the settings name a model that cannot work.
        """
        try:
            target, run = await self._source.prepare(self._role)
        except ModelConfigError as error:  # after a reload of the settings
            raise ModelError(str(error), kind="request") from error
        return PreparedModel(target.name, target.facts, target, self._role, self._lane, run)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Return the answer of the model at this moment, as `PreparedModel.generate` does. Raises ModelError."""
        return await (await self.prepare()).generate(request)


# ------------------------------------------------------------------ the models


class ModelService(ClientSource):
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
        """Facts about the behaviour of each model; read when the journal runs."""
        self.chat_choices = ChatChoices()
        """Models that were chosen for single chats; read when the journal runs."""
        self.chosen = ""
        """Model that replaces the default of the settings; see `choose`."""
        self._rng = rng
        self._setup = ModelSetup(settings, providers, rng, usage)
        self._replaced: list[ProviderClient] = []
        """HTTP clients of accounts that a reload has changed. They are closed before the next call that finds them idle."""
        self._target_by_role: dict[str, ModelTarget] = {}
        """Models by role or name, until something changes."""
        self._local_models: list[LocalModel] = []
        """Models of local servers, as they were found last."""
        self._found = ""
        """The local model that answers, as no other is named. It stays once it was found: a server may be away for a moment."""
        self._search = trio.Lock()
        self._next_search = -inf
        """Trio time from which local models may be looked for again."""

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

    @property
    def embedder(self) -> EmbeddingModel | None:
        """The model that `models.embed` names at this moment; None if it is ""."""
        return self._setup.embedder

    # ------------------------------------------------------------ local servers

    async def prepare(self, role: str) -> tuple[ModelTarget, Next]:
        """Return the model that a role means at this moment, and the way of its calls.

        First find out what only a local server can tell: whether there is one, and how large the window of its model is. Immediate in
        most cases, at most four seconds. Raises ModelConfigError.
        """
        await self.settle()
        if self._replaced:
            await self._close_replaced()
        target, run = self.target(role), self._setup.run
        await target.facts.ask_server(self.traits.get(target.name).context_window)
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
        setup = ModelSetup(settings, providers, self._rng, self.usage, previous=self._setup)
        for role in MODEL_ROLES:
            setup.target(setup.spec(role), f"models.{role}")
        self._replaced += self._setup.clients_not_in(setup)
        self._setup = setup
        self.restore_choice(self.chosen)

    def share_calls(self, nodes: int) -> None:
        """Let so many nodes share the calls that may run at the same time."""
        self._setup.limit.share(nodes)

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

    def breakers(self) -> Mapping[str, BreakerStatus]:
        """Return the models that failed when they were last asked and have fallbacks, with the state of their breakers."""
        return self._setup.fallback.failing()

    async def usage_report(self, channel: ChannelInfo | None = None) -> dict[str, Json]:
        """Return what was used, as JSON; {} where usage is not counted. channel: adds the sum of this chat.

        Waits at most five seconds for the calls before this start.
        """
        usage = await self._read_usage()
        return (
            {**usage_report(usage, channel), "counting": self.target("default").counter.method}
            if usage is not None
            else {}
        )

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
        """Get the default model ready: import what it needs, ask its server, load its tokenizer's table. Never raises.

        It takes up to a minute. A call that is made meanwhile waits for the SDK, but not for the table. An error of the SDK occurs
        again at the first call, which reports it.
        """
        await trio.to_thread.run_sync(import_module, "pegasus.models.answers", abandon_on_cancel=True)
        await self.prepare("default")
        setup = self._setup
        spec = self.target("default").name
        if (client := setup.http_client(spec)) is not None:
            with suppress(ModelError):
                await client.load()
        if (table := setup.tables.get(spec)) is not None:
            await table.load()

    async def _close_replaced(self) -> None:
        """Close the HTTP clients of earlier settings that no call uses any more.

        A thought that goes on with an earlier model after that opens connections anew, which close when its client is collected.
        """
        idle = [client for client in self._replaced if not client.is_busy]
        self._replaced = [client for client in self._replaced if client not in idle]
        await close_clients(idle)

    async def aclose(self) -> None:
        """Close all connections. Calls under way fail; a later call opens new ones."""
        replaced, self._replaced = self._replaced, []
        await close_clients(replaced)
        await self._setup.aclose()


class ChatModels(ClientSource):
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

    def target(self, role: str) -> ModelTarget:
        """Return the model that a role means in this chat now. Raises ModelConfigError."""
        return self._service.target(self._name(role))

    async def prepare(self, role: str) -> tuple[ModelTarget, Next]:
        """Return that model and the way of its calls, as `ModelService.prepare` does. Raises ModelConfigError."""
        return await self._service.prepare(self._name(role))
