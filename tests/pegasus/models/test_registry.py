"""The models of a process: lazily made, sharing clients, with fallbacks."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
import trio

from pegasus.models import LanguageModel, ModelError, ModelResponse, Models
from pegasus.models.fallback import FallbackModel
from pegasus.settings import ModelSettings, ProviderSettings
from pegasus.testing.provider import ProviderServer, open_provider
from pegasus.testing.provider_answer import Answer, refuse
from pegasus.testing.scripted import ScriptedModel, down, say
from tests.pegasus.models.conftest import provider_of, request

ANTHROPIC = {"anthropic": ProviderSettings(api_key="k")}


def models(settings: ModelSettings, providers: dict[str, ProviderSettings] | None = None) -> Models:
    return Models(settings, providers or {}, rng=random.Random(1))


async def ask(model: LanguageModel) -> ModelResponse:
    return await model.generate(request())


async def test_without_a_key_it_answers_offline() -> None:
    model = models(ModelSettings()).get()
    assert model.name == "offline/stand-in"
    assert "stand-in" in (await ask(model)).text


async def test_a_role_gives_the_same_model_again() -> None:
    made = models(ModelSettings(default="anthropic/a", subagent="anthropic/b"), ANTHROPIC)
    assert made.get() is made.get("default") is made.get("compact")
    assert made.get("subagent").name == "anthropic/b"
    assert made.get("anthropic/c").name == "anthropic/c"


async def test_models_of_one_provider_share_its_connections(server: ProviderServer) -> None:
    made = models(ModelSettings(default="openai/a", compact="openai/b"), {"openai": provider_of("openai", server)})
    assert (await ask(made.get())).text
    assert (await ask(made.get("compact"))).text
    assert [seen.model for seen in server.requests] == ["a", "b"]
    assert server.connections == 1
    await made.aclose()


async def test_a_call_during_the_import_waits_for_it(server: ProviderServer) -> None:
    made = models(ModelSettings(default="anthropic/a"), {"anthropic": provider_of("anthropic", server)})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.warm_up)
        nursery.start_soon(ask, made.get())
    assert server.count == 1
    await made.aclose()


async def test_after_closing_a_call_opens_a_new_connection(server: ProviderServer) -> None:
    made = models(ModelSettings(default="openai/a"), {"openai": provider_of("openai", server)})
    await ask(made.get())
    await made.aclose()
    await ask(made.get())
    assert server.connections == 2
    await made.aclose()


async def test_another_provider_answers_when_the_first_is_overloaded(server: ProviderServer) -> None:
    server.script = lambda _: refuse(529, retry_after=3600)
    async with open_provider(lambda _: Answer("from the second")) as second:
        made = models(
            ModelSettings(default="anthropic/a", fallback=("openai/b",)),
            {"anthropic": provider_of("anthropic", server), "openai": provider_of("openai", second)},
        )
        assert (await ask(made.get())).text == "from the second"
        assert made.get().name == "anthropic/a"
        await made.aclose()


@pytest.mark.parametrize("kind", ["overloaded", "server", "network", "timeout"])
async def test_the_chain_is_tried_in_order_while_providers_fail(kind: str) -> None:
    chain = tuple(ScriptedModel([step]) for step in (down(kind), down("network"), say("third"), say("never")))
    assert (await ask(FallbackModel(chain))).text == "third"
    assert [len(model.requests) for model in chain] == [1, 1, 1, 0]


@pytest.mark.parametrize("kind", ["auth", "request", "protocol"])
async def test_what_is_wrong_with_the_request_or_the_key_is_told_at_once(kind: str) -> None:
    chain = (ScriptedModel([down(kind, "the reason")]), ScriptedModel([say("never")]))
    with pytest.raises(ModelError, match="the reason") as caught:
        await ask(FallbackModel(chain))
    assert caught.value.kind == kind


async def test_when_all_fail_the_error_is_the_first_ones_with_what_the_others_said() -> None:
    chain = (ScriptedModel([down("overloaded", "one is busy")]), ScriptedModel([down("auth", "two has no key")]))
    with pytest.raises(ModelError, match="one is busy; then two has no key") as caught:
        await ask(FallbackModel(chain))
    assert caught.value.kind == "overloaded"


async def test_the_context_window_is_the_setting_or_what_is_known() -> None:
    assert (
        models(ModelSettings(default="openai/gpt-4o"), {"openai": ProviderSettings(api_key="k")}).context_window()
        == 128_000
    )
    assert models(ModelSettings(context_window=5)).context_window("compact") == 5


async def test_an_sdk_that_cannot_be_imported_is_a_model_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    made = models(ModelSettings(default="ollama/x"))
    await made.warm_up()
    with pytest.raises(ModelError, match="the package openai cannot be used"):
        await ask(made.get())


def test_nothing_heavy_is_imported_before_a_provider_is_used() -> None:
    """Start-up must not pay for an SDK, nor for what only remote models need."""
    code = (
        "import sys, random, os; from pegasus.models import Models; from pegasus.settings import ModelSettings as S\n"
        "Models(S(), {}, rng=random.Random(1)).get()\n"
        "heavy = {'anthropic', 'openai', 'httpx', 'httpx2', 'pydantic', 'asyncio', 'pegasus.models.remote'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_the_sdk_of_the_configured_provider_is_imported() -> None:
    code = (
        "import sys, random, trio; from pegasus.models import Models\n"
        "from pegasus.settings import ModelSettings as S, ProviderSettings as Provider\n"
        "made = Models(S(default='ollama/x', fallback=('anthropic/y',)), {'anthropic': Provider(api_key='k')}, rng=random.Random(1))\n"
        "made.get(); trio.run(made.warm_up); print(sorted({'anthropic', 'openai'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['openai']"


async def test_a_conversation_does_not_wait_behind_background_work() -> None:
    """Tasks may hold every place of their lane; the Main Agent has places of its own."""
    made = models(ModelSettings(default="anthropic/a", max_concurrent_calls=1), ANTHROPIC)
    work, talk = made.get("subagent"), made.get("default", "conversation")
    assert work is made.get("default")
    assert work._permits is not talk._permits
    assert made.get("anthropic/b")._permits is work._permits
