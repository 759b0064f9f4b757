"""Thinking of Claude and the lifetime of its prompt cache, in requests; held against Anthropic's own client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from pegasus.models import AssistantTurn, Label, ModelRequest, ToolCall, ToolResult, Usage, UserTurn
from pegasus.models.base import CallOptions, ReasoningPiece, StreamPiece
from pegasus.models.catalog import known_price
from pegasus.models.formats.anthropic import AnthropicWire
from pegasus.models.formats.claude_thinking import claude_version, thinking_way
from pegasus.models.providers.accounts import find_providers
from pegasus.testing.provider import open_provider
from pegasus.testing.provider.answers import Call, ProviderAnswer
from pegasus.testing.provider.formats import parse
from pegasus.testing.provider.requests import Invalid
from tests.pegasus.models.conftest import KEY, REPLY, opened

ASK = UserTurn(text="What time is it?")
ADAPTIVE = {"type": "adaptive", "display": "summarized"}
HEADERS = {"content-type": "application/json"}


def request(effort: str = "", *turns: Any, **fields: Any) -> ModelRequest:
    return ModelRequest(
        "sys", turns or (ASK,), (REPLY,), options=CallOptions(effort=effort), **{"max_tokens": 30_000, **fields}
    )


def body(model: str, asked: ModelRequest, wire: AnthropicWire | None = None) -> Any:
    sent = (wire or AnthropicWire(model)).body(asked)
    parse("/v1/messages", HEADERS, sent)
    return json.loads(sent)


@pytest.mark.parametrize(
    ("model", "version", "way"),
    [
        ("claude-sonnet-5-5", (5, 5), "adaptive"),
        ("claude-fable-5", (5, 0), "adaptive"),
        ("claude-opus-4-6-20260205", (4, 6), "adaptive"),
        ("us.anthropic.claude-opus-4-7-v1:0", (4, 7), "adaptive"),
        ("claude-haiku-4-5-20251001", (4, 5), "budget"),
        ("claude-sonnet-4-20250514", (4, 0), "budget"),
        ("claude-3-7-sonnet-latest", (3, 7), "budget"),
        ("claude-3-5-haiku-20241022", (3, 5), ""),
        ("claude-3-opus-20240229", (3, 0), ""),
        ("anthropic/claude-opus-5", (5, 0), "adaptive"),
        ("deepseek-flash", None, "budget"),
    ],
)
def test_what_a_model_takes(model: str, version: tuple[int, int] | None, way: str) -> None:
    assert claude_version(model) == version
    assert thinking_way(model) == way


def test_a_newer_model_decides_itself_and_is_guided_by_effort() -> None:
    sent = body("claude-sonnet-5-5", request())
    assert sent["thinking"] == ADAPTIVE
    assert "output_config" not in sent
    sent = body("claude-sonnet-5-5", request("low"))
    assert sent["thinking"] == ADAPTIVE
    assert sent["output_config"] == {"effort": "low"}


def test_its_answers_have_room_to_think() -> None:
    account = find_providers({})["anthropic"]
    assert account.thinks("claude-sonnet-5-5")
    assert not account.thinks("claude-haiku-4-5")


@pytest.mark.parametrize(("effort", "budget"), [("low", 2048), ("medium", 8192), ("high", 24576)])
def test_an_older_model_gets_a_budget_where_an_effort_is_set(effort: str, budget: int) -> None:
    wire = AnthropicWire("claude-haiku-4-5")
    assert body("", request(effort), wire)["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert wire.headers(request(effort)) == {"anthropic-beta": "interleaved-thinking-2025-05-14"}
    assert "thinking" not in body("", request(), wire)
    assert wire.headers(request()) == {}


def test_a_budget_leaves_room_for_the_answer() -> None:
    assert body("claude-haiku-4-5", request("high", max_tokens=4096))["thinking"]["budget_tokens"] == 3072
    assert "thinking" not in body("claude-haiku-4-5", request("high", max_tokens=2000))


@pytest.mark.parametrize("choice", ["required", "reply"])
@pytest.mark.parametrize("model", ["claude-sonnet-5-5", "claude-haiku-4-5"])
def test_a_tool_that_must_be_called_excludes_thinking(model: str, choice: str) -> None:
    assert "thinking" not in body(model, request("high", tool_choice=choice))


def test_a_budget_waits_while_calls_of_another_model_are_open() -> None:
    foreign = AssistantTurn("", (ToolCall("c1", "reply", {}),))
    results = UserTurn((ToolResult("c1", "reply", "done"),))
    assert "thinking" not in body("claude-haiku-4-5", request("high", ASK, foreign, results))
    assert "thinking" in body("claude-sonnet-5-5", request("high", ASK, foreign, results))


def test_what_is_refused_is_not_asked_for_again() -> None:
    wire = AnthropicWire("claude-opus-9")
    asked = request("high")
    assert wire.adapt(400, {"error": {"message": "This model does not support the effort parameter."}}, asked)
    assert body("", asked, wire)["thinking"] == ADAPTIVE
    assert "output_config" not in body("", asked, wire)
    assert wire.adapt(400, {"error": {"message": "adaptive thinking is not supported on this model"}}, asked)
    assert body("", asked, wire)["thinking"]["type"] == "enabled"
    assert wire.adapt(400, {"error": {"message": "thinking is not supported on this model"}}, asked)
    assert "thinking" not in body("", asked, wire)
    assert not wire.adapt(400, {"error": {"message": "thinking is not supported on this model"}}, asked)


def test_a_model_that_takes_no_budget_is_asked_to_decide() -> None:
    wire = AnthropicWire("next-generation")
    asked = request("high")
    refusal = '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort"'
    assert wire.adapt(400, {"error": {"message": refusal}}, asked)
    assert body("", asked, wire)["thinking"] == ADAPTIVE
    assert body("", asked, wire)["output_config"] == {"effort": "high"}


async def test_reasoning_is_told_apart_and_goes_back() -> None:
    block = {"type": "thinking", "thinking": "I need the clock.", "signature": "sig"}
    pieces: list[StreamPiece | None] = []
    answer = ProviderAnswer("", (Call("reply", {"text": "noon"}),), thinking=(block,), pieces=2)
    async with open_provider(lambda _: answer) as server, opened("anthropic", server) as model:
        response = await model.generate(ModelRequest("", (ASK,), (REPLY,), on_pieces=pieces.extend))
        assert response.reasoning == "I need the clock."
        assert response.thinking == (block,)
        assert "".join(p.text for p in pieces if isinstance(p, ReasoningPiece)) == "I need the clock."


# ------------------------------------------------------------------ caches

HOUR, MINUTES = {"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral"}


def markers(sent: Any) -> list[Any]:
    return [
        sent["tools"][-1]["cache_control"],
        sent["system"][-1]["cache_control"],
        sent["messages"][-1]["content"][-1]["cache_control"],
    ]


def test_a_conversation_with_people_is_cached_for_an_hour_and_a_task_for_minutes() -> None:
    assert markers(body("claude-sonnet-5-5", request())) == [HOUR] * 3
    assert markers(body("claude-sonnet-5-5", request(label=Label("subagent")))) == [MINUTES] * 3
    assert markers(body("some-model", request())) == [MINUTES] * 3


def test_a_server_that_knows_no_hours_is_learned_from() -> None:
    wire = AnthropicWire("claude-sonnet-5-5")
    message = {"error": {"message": "tools.0.cache_control.ephemeral.ttl: Extra inputs are not permitted"}}
    assert wire.adapt(400, message, request())
    assert markers(body("", request(), wire)) == [MINUTES] * 3
    assert not wire.adapt(400, message, request(label=Label("subagent")))


def test_the_service_wants_long_lifetimes_first() -> None:
    sent = body("claude-sonnet-5-5", request())
    sent["tools"][-1]["cache_control"] = MINUTES
    with pytest.raises(Invalid, match="1h"):
        parse("/v1/messages", HEADERS, json.dumps(sent).encode())


async def test_an_hour_in_the_cache_costs_twice_the_input() -> None:
    usage = Usage(1_000_000, 0, 0, 1_000_000, 1_000_000)
    async with (
        open_provider(lambda _: ProviderAnswer("hi", usage=usage)) as server,
        opened("anthropic", server) as model,
    ):
        counted = (await model.generate(ModelRequest("", (ASK,)))).usage
    assert counted == usage
    price = known_price("claude-sonnet-5-5")
    assert price is not None
    assert price.cost(counted) == pytest.approx(4.0)
    assert price.cost(Usage(1_000_000, 0, 0, 1_000_000)) == pytest.approx(2.5)
    assert price.at_most(1_000_000, 0) == pytest.approx(4.0)


# ------------------------------------------------------------------ the service's own client


@pytest.mark.parametrize("model", ["claude-sonnet-5-5", "claude-haiku-4-5"])
def test_requests_have_the_types_of_the_official_client(model: str) -> None:
    from anthropic.types import message_create_params as params  # takes a second of each worker that collects the tests

    block = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
    turn = AssistantTurn("", (ToolCall("c1", "reply", {"text": "x"}),), (block,), "anthropic")
    sent = body(model, request("high", ASK, turn, UserTurn((ToolResult("c1", "reply", "done"),), "thanks")))
    TypeAdapter(params.MessageCreateParamsStreaming).validate_python(sent, strict=False, extra="forbid")


async def test_the_official_client_reads_our_server() -> None:
    import anthropic

    block = {"type": "thinking", "thinking": "I need the clock.", "signature": "sig"}
    answer = ProviderAnswer("Noon.", (Call("reply", {"text": "noon"}),), thinking=(block,), pieces=3)
    async with open_provider(lambda _: answer) as server:
        client = anthropic.AsyncAnthropic(api_key=KEY, base_url=server.url, max_retries=0)
        sent = {key: value for key, value in body("claude-sonnet-5-5", request("low")).items() if key != "stream"}
        async with client.messages.stream(**sent) as stream:
            message = await stream.get_final_message()
        assert [content.type for content in message.content] == ["thinking", "text", "tool_use"]
        assert message.content[2].input == {"text": "noon"}
        await client.close()
