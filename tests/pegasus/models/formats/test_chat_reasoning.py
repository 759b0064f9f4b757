"""Reasoning in Chat Completions: read from every service, sent back as each one wants it."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from pegasus.models import AssistantTurn, ModelRequest, ModelResponse, ToolCall, ToolResult, ToolSpec, UserTurn
from pegasus.models.base import CallBegun, CallOptions, CallPiece, ReasoningPiece, StreamPiece, TextPiece
from pegasus.models.formats.chat import ChatWire
from pegasus.models.formats.chat_dialects import GEMINI, OPENAI, ChatDialect
from pegasus.models.providers.accounts import find_providers
from pegasus.settings import ProviderSettings

CLOCK = ToolSpec("now", "The time.", {"type": "object"})
ASK = UserTurn(text="What time is it?")


def wire_of(provider: str) -> ChatWire:
    return ChatWire("m", find_providers({})[provider].dialect)


def answer(
    wire: ChatWire, *deltas: dict[str, Any], after_results: bool = False
) -> tuple[ModelResponse, list[StreamPiece]]:
    turns: tuple[Any, ...] = (ASK,)
    if after_results:
        called = AssistantTurn(calls=(ToolCall("call00001", "now", {}),))
        turns = (ASK, called, UserTurn(results=(ToolResult("call00001", "now", "12:00"),)))
    assembler = wire.assembler(ModelRequest("", turns, (CLOCK,)))
    for delta in deltas:
        assembler.feed({"choices": [{"index": 0, "delta": delta}]})
    assembler.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return assembler.response(), assembler.pieces


def call(call_id: str = "call00002") -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "id": call_id, "function": {"name": "now", "arguments": "{}"}}]}


def sent_back(wire: ChatWire, response: ModelResponse) -> Any:
    """The assistant message of this answer in the next request."""
    turn = AssistantTurn(response.text, response.calls, response.thinking, response.thinking_of)
    results = tuple(ToolResult(made.id, made.name, "12:00") for made in response.calls)
    following = UserTurn(results) if results else UserTurn(text="thanks")
    return json.loads(wire.body(ModelRequest("", (ASK, turn, following), (CLOCK,))))["messages"][1]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_streamed_and_kept_apart_from_the_text(field: str) -> None:
    response, pieces = answer(wire_of("vllm"), {field: "Let "}, {field: "me see."}, {"content": "Noon."}, call())
    assert response.reasoning == "Let me see."
    assert response.text == "Noon."
    assert pieces == [
        ReasoningPiece("Let "),
        ReasoningPiece("me see."),
        TextPiece("Noon."),
        CallBegun(0, "now"),
        CallPiece(0, "{}"),
    ]
    assert response.thinking == ()


def test_reasoning_of_a_server_that_does_not_stream() -> None:
    wire = wire_of("deepseek")
    assembler = wire.assembler(ModelRequest("", (ASK,)))
    message = {"role": "assistant", "content": "Noon.", "reasoning_content": "Let me see."}
    assembler.feed_whole({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    assert assembler.response().reasoning == "Let me see."


class TestDeepSeek:
    def test_reasoning_of_a_call_goes_back(self) -> None:
        wire = wire_of("deepseek")
        response, _ = answer(wire, {"reasoning_content": "I need "}, {"reasoning_content": "a clock"}, call())
        assert sent_back(wire, response)["reasoning_content"] == "I need a clock"

    def test_reasoning_of_an_answer_without_calls_does_not(self) -> None:
        wire = wire_of("deepseek")
        response, _ = answer(wire, {"reasoning_content": "Easy"}, {"content": "Noon."})
        assert response.reasoning == "Easy"
        assert "reasoning_content" not in sent_back(wire, response)

    def test_reasoning_of_the_answer_to_results_goes_back(self) -> None:
        wire = wire_of("deepseek")
        response, _ = answer(wire, {"reasoning_content": "So"}, {"content": "Noon."}, after_results=True)
        assert sent_back(wire, response)["reasoning_content"] == "So"

    def test_a_call_of_another_provider_has_empty_reasoning(self) -> None:
        turn = ModelResponse("", (ToolCall("c1", "now", {}),), None, "tool_calls", ({"type": "thinking"},), "anthropic")  # type: ignore[arg-type]
        assert sent_back(wire_of("deepseek"), turn)["reasoning_content"] == ""


def test_a_server_that_wants_reasoning_back_is_learned_from() -> None:
    wire = ChatWire("m")
    response, _ = answer(wire, {"reasoning_content": "Hm"}, call())
    assert "reasoning_content" not in sent_back(wire, response)
    request = ModelRequest("", (ASK,), (CLOCK,))
    message = {"error": {"message": "The `reasoning_content` in the thinking mode must be passed back to the API."}}
    assert wire.adapt(400, message, request)
    assert sent_back(wire, response)["reasoning_content"] == ""
    later, _ = answer(wire, {"reasoning_content": "Hm"}, call())
    assert sent_back(wire, later)["reasoning_content"] == "Hm"
    assert not wire.adapt(400, message, request)


class TestOpenRouter:
    def test_details_go_back_unchanged(self) -> None:
        wire = wire_of("openrouter")
        deltas = [
            {
                "reasoning": "I ",
                "reasoning_details": [{"type": "reasoning.text", "text": "I ", "index": 0, "id": None}],
            },
            {
                "reasoning": "see",
                "reasoning_details": [{"type": "reasoning.text", "text": "see", "index": 0, "signature": "s1"}],
            },
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x==", "id": "r1", "index": 1}]},
        ]
        response, pieces = answer(wire, *deltas, call())
        assert response.reasoning == "I see"
        assert [piece for piece in pieces if isinstance(piece, ReasoningPiece)] == [
            ReasoningPiece("I "),
            ReasoningPiece("see"),
            ReasoningPiece(""),
        ]
        assert sent_back(wire, response)["reasoning_details"] == [
            {"type": "reasoning.text", "text": "I see", "index": 0, "id": None, "signature": "s1"},
            {"type": "reasoning.encrypted", "data": "x==", "id": "r1", "index": 1},
        ]

    def test_summaries_are_reasoning(self) -> None:
        detail = {"type": "reasoning.summary", "summary": "Thought about it", "index": 0}
        response, _ = answer(wire_of("openrouter"), {"reasoning_details": [detail]}, {"content": "Noon."})
        assert response.reasoning == "Thought about it"


class TestMistral:
    def test_chunks_of_thinking_go_back(self) -> None:
        wire = wire_of("mistral")
        chunk = {"type": "thinking", "thinking": [{"type": "text", "text": "Let me see."}]}
        response, _ = answer(wire, {"content": [chunk]}, {"content": [{"type": "text", "text": "Noon."}]}, call())
        assert response.reasoning == "Let me see."
        assert response.text == "Noon."
        assert sent_back(wire, response)["content"] == [
            {"type": "thinking", "thinking": [{"type": "text", "text": "Let me see."}], "closed": True},
            {"type": "text", "text": "Noon."},
        ]

    def test_ids_have_nine_characters_and_stay_the_same(self) -> None:
        called = AssistantTurn("", (ToolCall("call_of_another_1", "now", {}),))
        results = UserTurn((ToolResult("call_of_another_1", "now", "12:00"),), "and now?")
        sent = json.loads(wire_of("mistral").body(ModelRequest("", (ASK, called, results), (CLOCK,))))["messages"]
        made = sent[1]["tool_calls"][0]["id"]
        assert len(made) == 9
        assert made.isalnum()
        assert sent[2]["tool_call_id"] == made
        assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]


def test_a_server_that_wants_no_message_after_results_is_learned_from() -> None:
    wire = ChatWire("m")
    called = AssistantTurn("", (ToolCall("c1", "now", {}),))
    request = ModelRequest("", (ASK, called, UserTurn((ToolResult("c1", "now", "12:00"),), "and now?")), (CLOCK,))
    assert wire.adapt(400, {"message": "Unexpected role 'user' after role 'tool'"}, request)
    roles = [message["role"] for message in json.loads(wire.body(request))["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


def test_reasoning_of_one_service_is_not_sent_to_another() -> None:
    response, _ = answer(
        wire_of("openrouter"), {"reasoning_details": [{"type": "reasoning.text", "text": "x"}]}, call()
    )
    for other in ("deepseek", "mistral", "vllm", "groq", "gemini"):
        message = sent_back(wire_of(other), response)
        assert "reasoning_details" not in message
        assert message.get("reasoning_content", "") == ""
        assert message["content"] is None


@pytest.mark.parametrize(
    ("settings", "dialect"),
    [
        (ProviderSettings("openai", base_url="https://api.deepseek.com/beta"), "deepseek"),
        (ProviderSettings("openai", base_url="https://openrouter.ai/api/v1"), "openrouter"),
        (ProviderSettings("openai", base_url="https://api.moonshot.ai/v1"), "deepseek"),
        (ProviderSettings("openai", base_url="http://10.0.0.1/v1"), "openai"),
        (ProviderSettings("gemini", base_url="http://10.0.0.1/v1"), "gemini"),
        (ProviderSettings("gemini", base_url="https://openrouter.ai/api/v1"), "gemini"),
    ],
)
def test_a_service_is_known_by_its_address(settings: ProviderSettings, dialect: str) -> None:
    assert find_providers({"mine": settings})["mine"].dialect.name == dialect


def test_vertex_speaks_as_gemini_does() -> None:
    assert find_providers({})["vertex"].dialect.name == "gemini"


# ------------------------------------------------------------------ effort


def head(wire: ChatWire, effort: str, tools: tuple[ToolSpec, ...] = (CLOCK,)) -> Any:
    return json.loads(wire.body(ModelRequest("", (ASK,), tools, options=CallOptions(effort=effort))))


@pytest.mark.parametrize("dialect", [OPENAI, GEMINI])
def test_effort_is_asked_for(dialect: ChatDialect) -> None:
    assert head(ChatWire("m", dialect), "high")["reasoning_effort"] == "high"
    assert "reasoning_effort" not in head(ChatWire("m", dialect), "")


def test_openrouter_has_a_field_of_its_own() -> None:
    sent = head(wire_of("openrouter"), "low")
    assert sent["reasoning"] == {"effort": "low"}
    assert "reasoning_effort" not in sent


@pytest.mark.parametrize(
    "message", ["Unrecognized request argument supplied: reasoning_effort", "reasoning is not supported by this model"]
)
def test_a_model_that_refuses_effort_is_asked_without(message: str) -> None:
    wire = ChatWire("m")
    request = ModelRequest("", (ASK,), (), options=CallOptions(effort="high"))
    assert wire.adapt(400, {"error": {"message": message}}, request)
    assert "reasoning_effort" not in head(wire, "high", ())
    assert not wire.adapt(400, {"error": {"message": message}}, request)


def test_tools_that_need_no_reasoning_win_over_the_effort() -> None:
    wire = ChatWire("gpt-6-sol", is_own=True)
    request = ModelRequest("", (ASK,), (CLOCK,), options=CallOptions(effort="high"))
    message = {
        "error": {"message": "Function tools with reasoning_effort are not supported", "param": "reasoning_effort"}
    }
    assert wire.adapt(400, message, request)
    assert "reasoning_effort" not in head(wire, "high")
    assert wire.adapt(400, message, request)
    assert head(wire, "high")["reasoning_effort"] == "none"
    assert not wire.adapt(400, message, request)


# ------------------------------------------------------------------ usage


def test_reasoning_that_only_the_total_has_is_counted() -> None:
    assembler = ChatWire("grok-4.5").assembler(ModelRequest("", (ASK,)))
    details = {"completion_tokens_details": {"reasoning_tokens": 300}}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 420, **details}
    assembler.feed({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": usage})
    assert attrs.asdict(assembler.response().usage)["completion_tokens"] == 320


def test_what_came_from_the_cache_of_deepseek() -> None:
    assembler = wire_of("deepseek").assembler(ModelRequest("", (ASK,)))
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_cache_hit_tokens": 64,
        "prompt_cache_miss_tokens": 36,
    }
    assembler.feed({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": usage})
    assert assembler.response().usage.cache_read_tokens == 64
