"""Ollama through the whole client: the window, what it refuses, what it cuts, and models that load for minutes."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from pegasus.models import AssistantTurn, ModelError, ModelRequest, ModelService, ToolResult, UserTurn
from pegasus.models.base import StreamPiece, TextPiece
from pegasus.settings import ModelOptionSettings, ModelSettings, ProviderSettings, RouteSettings
from pegasus.testing.provider import ProviderServer, open_provider
from pegasus.testing.provider.answers import Call, ProviderAnswer, cut, failing, hang
from pegasus.testing.provider.ollama import OllamaHost, OllamaModel
from tests.pegasus.models.conftest import REPLY, request

LONG = "several words of a text that is too long " * 800
"""About 8,200 tokens."""


def service_of(url: str, *, kind: str = "ollama", model: str = "test-model", **settings: object) -> ModelService:
    made = ModelSettings(**{"default": f"box/{model}", "timeout": 300.0, **settings})
    return ModelService(made, {"box": ProviderSettings(kind, "", url)}, rng=random.Random(1))


@asynccontextmanager
async def opened(
    host: OllamaHost, *answers: ProviderAnswer, end: str = "", **settings: object
) -> AsyncIterator[tuple[ProviderServer, ModelService]]:
    """A model on an Ollama that gives these answers, the last one for ever."""
    left = list(answers) or [ProviderAnswer("hello")]
    async with open_provider(lambda _: left.pop(0) if len(left) > 1 else left[0], ollama=host) as server:
        service = service_of(server.url + end, **settings)
        try:
            yield server, service
        finally:
            await service.aclose()
    assert server.invalid == []


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/api"])
async def test_a_call_at_any_spelling_of_the_address(end: str) -> None:
    async with opened(OllamaHost(), end=end) as (server, service):
        response = await service.client().generate(request())
    assert (response.text, response.usage.prompt_tokens > 0) == ("hello", True)
    assert server.requests[0].path == "/api/chat"


async def test_a_turn_with_a_tool_and_its_result() -> None:
    answers = ProviderAnswer("Well", (Call("reply", {"text": "hé"}),), pieces=2), ProviderAnswer("Done")
    async with opened(OllamaHost(), *answers) as (server, service):
        model, pieces = service.client(), list[StreamPiece | None]()
        asked = request(text="hi", on_pieces=pieces.extend)
        first = await model.generate(asked)
        assert (first.text, first.calls[0].arguments, first.stop_reason) == ("Well", {"text": "hé"}, "tool_calls")
        assert pieces[:2] == [TextPiece("We"), TextPiece("ll")]
        turns = (
            *asked.turns,
            AssistantTurn("Well", first.calls),
            UserTurn((ToolResult(first.calls[0].id, "reply", "ok"),)),
        )
        assert (await model.generate(attrs.evolve(asked, turns=turns))).text == "Done"
        assert server.connections == 1


async def test_the_window_is_the_models_own_and_asked_for_once() -> None:
    host = OllamaHost(OllamaModel(context_length=16_384))
    async with opened(host) as (server, service):
        model = service.client()
        assert service.context_window() == 8192  # until the server has answered
        assert (await model.prepare()).facts.context_window == service.context_window() == 16_384
        for _ in range(3):
            await model.generate(request())
    assert [request.raw["options"]["num_ctx"] for request in server.requests] == [16_384] * 3
    assert (host.shown, host.loads) == (1, 1)


async def test_a_model_that_a_rule_names_is_asked_for_its_window_before_its_first_call() -> None:
    host = OllamaHost(OllamaModel(context_length=16_384))
    rules = {"all": RouteSettings(model="box/test-model")}
    async with opened(host, default="offline/stand-in", routes=rules) as (server, service):
        for _ in range(2):
            await service.client().generate(request())
    assert [asked.raw["options"]["num_ctx"] for asked in server.requests] == [16_384] * 2
    assert host.shown == 1


async def test_calls_at_the_same_time_wait_for_the_same_answer() -> None:
    host = OllamaHost(OllamaModel(context_length=16_384))
    async with opened(host) as (server, service), trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(service.client().generate, request())
    assert [request.raw["options"]["num_ctx"] for request in server.requests] == [16_384] * 3
    assert (host.shown, host.loads) == (1, 1)


@pytest.mark.parametrize(
    ("model", "settings", "window"),
    [
        (OllamaModel(context_length=131_072), {}, 32_768),
        (OllamaModel(context_length=131_072, num_ctx=65_536), {}, 65_536),
        (OllamaModel(context_length=131_072), {"context_window": 100_000}, 100_000),
        (OllamaModel(), {"options": {"box/test-model": ModelOptionSettings(context_window=2048)}}, 2048),
    ],
)
async def test_the_settings_win_over_the_server(model: OllamaModel, settings: dict[str, object], window: int) -> None:
    async with opened(OllamaHost(model), **settings) as (server, service):
        await service.client().generate(request())
        assert service.context_window() == window
    assert server.requests[0].raw["options"]["num_ctx"] == window


async def test_a_prompt_that_is_too_long_is_refused_with_the_window() -> None:
    async with opened(OllamaHost(OllamaModel(context_length=4096))) as (server, service):
        with pytest.raises(
            ModelError, match=r"too long .*exceeds the available context size \(4096 tokens\)"
        ) as caught:
            await service.client().generate(request(text=LONG))
        assert (caught.value.kind, caught.value.context_window) == ("overflow", 4096)
        assert '"' not in str(caught.value)
    assert server.count == 1


async def test_an_old_server_that_cuts_the_prompt_is_noticed_once() -> None:
    async with opened(OllamaHost(OllamaModel(context_length=4096), truncates=True)) as (_, service):
        model = service.client()
        assert (await model.generate(request())).notice == ""
        notice = (await model.generate(request(text=LONG))).notice
        assert "box/test-model has read only 2,050 of about 8," in notice
        assert "4,096 tokens from now on" in notice
        assert (await model.generate(request(text=LONG))).notice == ""


async def test_ollama_behind_the_other_format_is_noticed_too() -> None:
    """There the window cannot be chosen, so the beginning of every prompt is lost."""
    short = ProviderAnswer("hello", usage=attrs.evolve(ProviderAnswer().usage, prompt_tokens=2050))
    async with open_provider(lambda _: short) as server:
        service = service_of(server.openai_url, kind="openai")
        notice = (await service.client().generate(request(text=LONG))).notice
        assert 'provider of type "ollama"' in notice
        assert service.context_window() == 4096
        await service.aclose()


async def test_a_model_that_is_not_there_is_named() -> None:
    async with opened(OllamaHost(OllamaModel("other"))) as (_, service):
        with pytest.raises(ModelError, match="test-model") as caught:
            await service.client().generate(request())
        assert (caught.value.kind, caught.value.status) == ("request", 404)


async def test_a_model_without_tools_says_so() -> None:
    async with opened(OllamaHost(OllamaModel(capabilities=("completion",)))) as (_, service):
        with pytest.raises(ModelError, match="does not support tools"):
            await service.client().generate(request())
        assert (await service.client().generate(request(tools=()))).text == "hello"


async def test_a_model_that_cannot_think_is_asked_without_it() -> None:
    async with opened(OllamaHost(), effort="high") as (server, service):
        assert (await service.client().generate(request())).text == "hello"
        assert (await service.client().generate(request())).text == "hello"
    assert ["think" in request.raw for request in server.requests] == [False, False]


async def test_a_model_may_take_minutes_to_load(mock_clock: MockClock) -> None:
    """Longer than `models.timeout`, which is for servers elsewhere."""
    host, texts = OllamaHost(OllamaModel(loading=150.0)), list[str]()

    async def ask(service: ModelService) -> None:
        texts.append((await service.client().generate(request())).text)

    usual = ModelSettings().timeout
    async with opened(host, timeout=usual) as (server, service), trio.open_nursery() as nursery:
        nursery.start_soon(ask, service)
        await server.until(lambda _: host.loads == 1)
        mock_clock.jump(149)
        await trio.testing.wait_all_tasks_blocked()
        assert texts == []
        mock_clock.jump(1)
    assert texts == ["hello"]


@pytest.mark.parametrize(
    "fault", [failing("", "model runner has unexpectedly stopped"), cut(ProviderAnswer("half"), 1)]
)
async def test_a_broken_stream_is_tried_again(fault: ProviderAnswer, fast_clock: MockClock) -> None:
    async with opened(OllamaHost(), fault, ProviderAnswer("whole")) as (server, service):
        assert (await service.client().generate(request())).text == "whole"
        assert server.count == 2


async def test_a_cancelled_call_hangs_up() -> None:
    async with opened(OllamaHost(), hang(1)) as (server, service):
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(service.client().generate, request())
                await server.until(lambda server: len(server.requests) == 1)
                nursery.cancel_scope.cancel()
            await server.until(lambda server: server.hung_up == 1)


async def test_a_server_that_comes_back_is_asked_for_its_window_again() -> None:
    host = OllamaHost(OllamaModel(context_length=2048))
    async with open_provider(ollama=host) as server:
        port = int(server.url.rpartition(":")[2])
        service = service_of(server.url, timeout=0.5)
        await service.client().generate(request(tools=()))
        assert service.context_window() == 2048
    with pytest.raises(ModelError, match="Ollama does not answer"):
        await service.client().generate(request(tools=()))
    async with open_provider(ollama=OllamaHost(OllamaModel(context_length=6000)), port=port):
        await service.client().generate(request(tools=()))
        assert service.context_window() == 6000
        await service.aclose()


async def test_the_options_of_a_request_are_not_the_callers_business() -> None:
    asked = ModelRequest("", (UserTurn(text="hello"),), tools=(REPLY,))
    async with opened(OllamaHost()) as (_, service):
        await service.client().generate(asked)
    assert asked.options.context_window == 0
