"""The model of an installation without a key: a local one that answers, found when it starts and later."""

from __future__ import annotations

import random
from typing import Any

import pytest
from trio.testing import MockClock

from pegasus.models import ModelService
from pegasus.models.service import SEARCH_PAUSE
from pegasus.settings import ModelSettings, ProviderSettings
from pegasus.testing.provider import open_provider
from pegasus.testing.provider.ollama import OllamaHost, OllamaModel
from tests.pegasus.models.conftest import request

NOBODY = "http://127.0.0.1:1"


def service_of(url: str, settings: ModelSettings | None = None, **more: ProviderSettings) -> ModelService:
    elsewhere = {name: ProviderSettings(base_url=NOBODY) for name in ("llamacpp", "lmstudio")}
    accounts = {**elsewhere, "ollama": ProviderSettings(base_url=url), **more}
    return ModelService(settings or ModelSettings(), accounts, rng=random.Random(1))


async def test_a_model_is_found_at_the_start() -> None:
    host = OllamaHost(OllamaModel("plain", 4096, ("completion",)), OllamaModel("able", 16_384))
    async with open_provider(ollama=host) as server:
        service = service_of(server.url)
        client = service.client()
        assert client.name == "offline/stand-in"
        await service.warm_up()
        assert client.name == "ollama/able"
        assert service.context_window() == 16_384
        assert (await client.generate(request())).text
        assert service.choices()[:3] == ("offline/stand-in", "ollama/able", "ollama/plain")
        assert service.client("compact").name == "ollama/able"
        await service.aclose()


async def test_a_model_that_is_being_looked_for_can_be_waited_for() -> None:
    async with open_provider(ollama=OllamaHost()) as server:
        service = service_of(server.url)
        await service.settle()
        assert service.target("default").name == "ollama/test-model"
        assert server.count == 0  # no call was made
        await service.aclose()


async def test_a_server_that_starts_later_is_found_before_the_next_answer(mock_clock: MockClock) -> None:
    async with open_provider() as closed:
        port = int(closed.url.rpartition(":")[2])
    service = service_of(f"http://127.0.0.1:{port}")
    client = service.client()
    await client.prepare()  # as each call does
    async with open_provider(port=port, ollama=OllamaHost()) as server:
        await client.prepare()
        assert client.name == "offline/stand-in"  # not looked for again so soon
        mock_clock.jump(SEARCH_PAUSE)
        await client.generate(request())
        assert (server.count, client.name) == (1, "ollama/test-model")
        await service.aclose()


async def test_a_model_stays_when_its_server_goes_away_for_a_moment() -> None:
    async with open_provider(ollama=OllamaHost()) as server:
        service = service_of(server.url)
        await service.warm_up()
    await service.prepare("default")
    assert service.client().name == "ollama/test-model"


@pytest.mark.parametrize(
    ("settings", "more", "name"),
    [
        (ModelSettings(default="offline/stand-in"), {}, "offline/stand-in"),
        (ModelSettings(), {"openai": ProviderSettings(api_key="k")}, "openai/"),
    ],
)
async def test_a_model_of_the_settings_or_of_a_key_wins(settings: Any, more: Any, name: str) -> None:
    async with open_provider(ollama=OllamaHost()) as server:
        service = service_of(server.url, settings, **more)
        await service.prepare("default")
        assert service.client().name.startswith(name)


async def test_a_model_that_only_makes_embeddings_is_not_chosen() -> None:
    async with open_provider(ollama=OllamaHost(OllamaModel("embed", 2048, ("embedding",)))) as server:
        service = service_of(server.url)
        await service.prepare("default")
        assert service.client().name == "offline/stand-in"


async def test_a_reload_keeps_the_model_that_was_found() -> None:
    async with open_provider(ollama=OllamaHost()) as server:
        service = service_of(server.url)
        await service.prepare("default")
        accounts = {"ollama": ProviderSettings(base_url=server.url)}
        service.reload(ModelSettings(timeout=60.0), accounts)
        assert service.client().name == "ollama/test-model"
        service.choose("offline/stand-in")
        assert service.client().name == "offline/stand-in"
        service.choose("")
        assert service.client().name == "ollama/test-model"
