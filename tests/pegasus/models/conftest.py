"""Models of both wire formats on a provider server of the test's own."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
from trio.testing import MockClock

from pegasus.models import (
    AssistantTurn,
    Lane,
    LanguageModel,
    ModelClient,
    ModelRequest,
    ModelResponse,
    ModelService,
    TokenCounter,
    ToolSpec,
    Turn,
    Usage,
    UserTurn,
)
from pegasus.models.client import Middleware, ModelTarget, Next, compose
from pegasus.models.providers import local_servers
from pegasus.models.usage.tracker import UsageRecord
from pegasus.settings import ModelSettings, ProviderSettings
from pegasus.testing.provider import ProviderServer, open_provider

KEY = "a-key-of-no-known-shape-0123"
REPLY = ToolSpec(
    "reply",
    "Speak.",
    {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)


def provider_of(form: str, server: ProviderServer) -> ProviderSettings:
    """The settings that point a provider type to this server."""
    url = server.url if form == "anthropic" else server.openai_url
    return ProviderSettings(type=form, api_key=KEY, base_url=url)


@asynccontextmanager
async def opened(form: str, server: ProviderServer, **settings: object) -> AsyncIterator[LanguageModel]:
    """A model of one wire format on this server."""
    models = ModelService(
        ModelSettings(default=f"{form}/test-model", **{"timeout": 3000.0, **settings}),
        {form: provider_of(form, server)},
        rng=random.Random(1),
    )
    await models.warm_up()
    try:
        yield models.client("default", "conversation")
    finally:
        await models.aclose()


@attrs.frozen
class FixedSource:
    """Source of one model."""

    only: ModelTarget
    middleware: Sequence[Middleware]

    def target(self, role: str) -> ModelTarget:
        return self.only

    async def prepare(self, role: str) -> tuple[ModelTarget, Next]:
        return self.only, compose(self.middleware)


def target(model: LanguageModel) -> ModelTarget:
    return ModelTarget(model.name, model, TokenCounter())


def client(model: LanguageModel, *middleware: Middleware, role: str = "default", lane: Lane = "work") -> ModelClient:
    """A client of this model, whose calls pass the middleware."""
    return ModelClient(FixedSource(target(model), middleware), role, lane)


def usage_record(
    id: str, ts: int, model: str, usage: Usage, cost: float | None, role: str = "default", **fields: object
) -> UsageRecord:
    tokens = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
    cached = {"cache_read_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return UsageRecord(id=id, ts=ts, model=model, cost=cost, role=role, **tokens, **cached, **fields)


Ask = Callable[..., Awaitable[ModelResponse]]


@pytest.fixture(params=["anthropic", "openai"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def no_servers_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests from finding model servers that run on the developer's machine: nothing listens at port 1."""
    closed = [attrs.evolve(server, base_url="http://127.0.0.1:1") for server in local_servers.LOCAL_SERVERS]
    monkeypatch.setattr(local_servers, "LOCAL_SERVERS", closed)


@pytest.fixture
def fast_clock() -> MockClock:
    """Real sockets need a clock that runs; this one runs 20 times as fast, so that pauses between retries cost little."""
    return MockClock(rate=20)


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with open_provider() as server:
        yield server


@pytest.fixture
async def model(form: str, server: ProviderServer) -> AsyncIterator[LanguageModel]:
    async with opened(form, server) as model:
        yield model


@pytest.fixture
def ask(model: LanguageModel) -> Ask:
    """Ask the model, by default "hello"; turns and other fields as given."""

    async def ask(*turns: Turn, text: str = "hello", **fields: object) -> ModelResponse:
        return await model.generate(request(*turns, text=text, **fields))

    return ask


def request(*turns: Turn, text: str = "hello", **fields: object) -> ModelRequest:
    return ModelRequest(
        **{"system": "You are a test.", "turns": turns or (UserTurn(text=text),), "tools": (REPLY,), **fields}
    )


def assistant(response: ModelResponse) -> AssistantTurn:
    """The turn that a response becomes."""
    return AssistantTurn(response.text, response.calls, response.thinking, response.thinking_of)
