"""The recipes of docs/user/models.md: each is pasted, with only its address changed to a server of its dialect, and asked."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pegasus.models import AssistantTurn, ModelClient, ModelRequest, ModelService, ToolResult, ToolSpec, UserTurn
from pegasus.models.base import CallBegun, CallPiece, ReasoningPiece, StreamPiece, TextPiece
from pegasus.settings import SettingsSource, load_settings
from pegasus.settings.sources import PROVIDER_VARIABLES
from pegasus.testing.provider import ProviderServer, open_provider
from pegasus.testing.provider.answers import Call, ProviderAnswer
from pegasus.testing.provider.dialects import DIALECTS, PLAIN, Dialect
from pegasus.testing.provider.ollama import OllamaHost, OllamaModel
from pegasus.testing.provider.requests import ProviderRequest

PAGE = (Path(__file__).parents[4] / "docs" / "user" / "models.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Recipes\n")[2].partition("\n## ")[0]
RECIPES = dict(re.findall(r"### ([^\n]+)\n\n```toml\n(.*?)```", SECTION, re.DOTALL))
KEYS = {variable: "a-key-0123456789" for variable, (_, key) in PROVIDER_VARIABLES.items() if key == "api_key"}
SERVICES = ["Ollama", "llama.cpp", "LM Studio", "vLLM", "OpenRouter", "Groq", "Mistral"]
SERVICES += ["DeepSeek", "xAI", "Gemini", "Azure", "Bedrock", "Vertex"]
HIDDEN = ("Gemini", "Vertex")
"""Services that keep the reasoning to themselves in this format."""
CLOCK = ToolSpec("current_time", "The time.", {"type": "object", "properties": {"zone": {"type": "string"}}})


def provider_of(recipe: str) -> str:
    found = re.search(r'default = "([^/"]+)/', recipe)
    assert found is not None
    return found[1]


def clock(request: ProviderRequest) -> ProviderAnswer:
    """Asks for the time, and then tells it."""
    if request.last.results or "words" in request.last.text:
        return ProviderAnswer("It is 12:00.", reasoning="So be it.", pieces=3)
    return ProviderAnswer("", (Call("current_time", {"zone": "Zürich"}),), reasoning="I need the clock.", pieces=3)


@asynccontextmanager
async def pasted(name: str, tmp_path: Path) -> AsyncIterator[tuple[ModelClient, ProviderServer]]:
    """The default model of a recipe, and the server that it asks."""
    recipe = RECIPES[name]
    provider = provider_of(recipe)
    dialect = DIALECTS.get(provider, PLAIN)
    model = re.search(r'default = "[^/"]+/([^"]+)"', recipe)
    assert model is not None
    thoughtful = OllamaModel(model[1], capabilities=("completion", "tools", "thinking"))
    host = OllamaHost(thoughtful) if name == "Ollama" else None
    async with open_provider(clock, ollama=host, dialect=dialect) as server:
        root = "" if host else dialect.root
        changed = [] if "base_url" in recipe else [f"providers.{provider}.base_url={server.url}{root}"]
        for url in re.findall(r'base_url = "([^"]+)"', recipe):
            assert urlsplit(url).path == root
            recipe = recipe.replace(url, server.url + root)
        file = tmp_path / "pegasus.toml"
        file.write_text(recipe, encoding="utf-8")
        settings = load_settings(SettingsSource(file, overrides=tuple(changed)), KEYS)
        service = ModelService(settings.models, settings.providers, rng=random.Random(1))
        await service.warm_up()
        try:
            yield service.client(), server
        finally:
            await service.aclose()
            assert server.invalid == []


def test_every_service_has_a_recipe_of_few_lines() -> None:
    assert list(RECIPES) == SERVICES
    assert all(len(recipe.splitlines()) <= 5 for recipe in RECIPES.values())
    assert set(DIALECTS) | {"ollama"} == {provider_of(recipe) for recipe in RECIPES.values()}


@pytest.mark.parametrize("name", SERVICES)
async def test_a_turn_with_a_tool_call_and_reasoning(name: str, tmp_path: Path) -> None:
    async with pasted(name, tmp_path) as (model, server):
        pieces: list[StreamPiece | None] = []
        turns: list[UserTurn | AssistantTurn] = [UserTurn(text="What time is it?")]
        for question in ("", "And now?"):
            first = await model.generate(ModelRequest("sys", tuple(turns), (CLOCK,), on_pieces=pieces.extend))
            assert [call.arguments for call in first.calls] == [{"zone": "Zürich"}]
            assert first.reasoning == ("" if name in HIDDEN else "I need the clock.")
            assert (first.text, first.stop_reason) == ("", "tool_calls")
            turns.append(AssistantTurn(first.text, first.calls, first.thinking, first.thinking_of))
            turns.append(UserTurn((ToolResult(first.calls[0].id, "current_time", "12:00"),)))
            last = await model.generate(ModelRequest("sys", tuple(turns), (CLOCK,), on_pieces=pieces.extend))
            assert (last.text, last.stop_reason) == ("It is 12:00.", "end")
            assert last.usage.prompt_tokens > 0
            turns.append(AssistantTurn(last.text, last.calls, last.thinking, last.thinking_of))
            turns.append(UserTurn(text=question or "And now?"))
        assert None not in pieces
        assert [piece for piece in pieces if isinstance(piece, CallBegun)] == [CallBegun(0, "current_time")] * 2
        spoken = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
        thought = "".join(piece.text for piece in pieces if isinstance(piece, ReasoningPiece))
        assert spoken == "It is 12:00." * 2
        assert thought == ("" if name in HIDDEN else "I need the clock.So be it." * 2)
        assert any(isinstance(piece, CallPiece) for piece in pieces)
        assert len(server.requests) == 4


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in ("Ollama", "Azure")])
async def test_a_conversation_that_began_elsewhere_goes_on(name: str, tmp_path: Path) -> None:
    """Ids, reasoning and signatures of another service do not fit; none of them makes a call fail."""
    async with pasted(name, tmp_path) as (model, _), open_provider(clock, dialect=DIALECTS["openrouter"]) as other:
        source = ModelService(
            load_settings(SettingsSource(overrides=("models.default=openrouter/x",)), KEYS).models,
            load_settings(
                SettingsSource(overrides=(f"providers.openrouter.base_url={other.url}/api/v1",)), KEYS
            ).providers,
            rng=random.Random(1),
        )
        ask = UserTurn(text="What time is it?")
        first = await source.client().generate(ModelRequest("", (ask,), (CLOCK,)))
        called = AssistantTurn(first.text, first.calls, first.thinking, first.thinking_of)
        results = UserTurn((ToolResult(first.calls[0].id, "current_time", "12:00"),), "in words, please")
        last = await model.generate(ModelRequest("", (ask, called, results), (CLOCK,)))
        assert last.text == "It is 12:00."
        await source.aclose()


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
async def test_every_service_takes_an_effort_or_is_learned_from(dialect: Dialect) -> None:
    async with open_provider(clock, dialect=dialect) as server:
        sets = [f"models.default={dialect.name}/x", f"providers.{dialect.name}.base_url={server.url}{dialect.root}"]
        settings = load_settings(SettingsSource(overrides=(*sets, "models.effort=high")), KEYS)
        service = ModelService(settings.models, settings.providers, rng=random.Random(1))
        response = await service.client().generate(ModelRequest("", (UserTurn(text="hi"),), (CLOCK,)))
        assert response.calls
        raw = server.requests[0].raw
        assert raw.get("reasoning_effort", (raw.get("reasoning") or {}).get("effort")) == "high"
        assert server.invalid == []
        await service.aclose()
