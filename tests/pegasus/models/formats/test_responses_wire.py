"""The Responses API: what is sent, what is read, what is learned; held against OpenAI's own client."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai.types.responses import response_create_params as params
from pydantic import TypeAdapter

from pegasus.models import (
    AssistantTurn,
    Image,
    ModelClient,
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelService,
    ToolCall,
    ToolResult,
    Usage,
    UserTurn,
)
from pegasus.models.base import CallBegun, CallOptions, CallPiece, ReasoningPiece, StreamPiece, TextPiece
from pegasus.models.formats.responses import ResponsesWire, is_reasoning_model
from pegasus.models.providers.accounts import find_providers
from pegasus.models.setup import effective_options
from pegasus.settings import ModelSettings, ProviderSettings
from pegasus.testing.provider import ProviderServer, open_provider
from pegasus.testing.provider.answers import Call, ProviderAnswer, cut, failing, refuse, sequence
from pegasus.testing.provider.requests import ProviderRequest
from tests.pegasus.models.conftest import KEY, REPLY

ASK = UserTurn(text="What time is it?")
THOUGHTFUL = ProviderAnswer("", (Call("reply", {"text": "It is noon."}),), reasoning="I need the clock.", pieces=3)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def body(*turns: Any, wire: ResponsesWire | None = None, **fields: Any) -> Any:
    return json.loads((wire or ResponsesWire("m")).body(ModelRequest("sys", turns or (ASK,), (REPLY,), **fields)))


def turn_of(response: ModelResponse) -> AssistantTurn:
    return AssistantTurn(response.text, response.calls, response.thinking, response.thinking_of)


def results_of(turn: AssistantTurn, text: str = "") -> UserTurn:
    return UserTurn(tuple(ToolResult(call.id, call.name, "done") for call in turn.calls), text)


@asynccontextmanager
async def served(server: ProviderServer, **fields: Any) -> AsyncIterator[ModelClient]:
    account = ProviderSettings("openai", KEY, server.openai_url, "responses")
    settings = ModelSettings(default="openai/gpt-6.1-terra", timeout=3000.0, **fields)
    service = ModelService(settings, {"openai": account}, rng=random.Random(1))
    await service.warm_up()
    try:
        yield service.client()
    finally:
        await service.aclose()
        assert server.invalid == []


# ------------------------------------------------------------------ requests


def test_the_state_stays_here() -> None:
    sent = body()
    assert sent["store"] is False
    assert sent["include"] == ["reasoning.encrypted_content"]
    assert sent["instructions"] == "sys"
    assert list(sent)[-1] == "input"


def test_effort_and_room_to_think() -> None:
    sent = body(options=CallOptions(effort="high"), max_tokens=5000)
    assert sent["reasoning"] == {"effort": "high", "summary": "auto"}
    assert sent["max_output_tokens"] == 5000
    assert body()["reasoning"] == {"summary": "auto"}
    options = effective_options("default", "openai/gpt-6.1-terra", ModelSettings(), find_providers({})["openai"])
    assert options.room_to_think == 8192


def test_a_conversation_becomes_a_flat_list() -> None:
    called = AssistantTurn("Let me see.", (ToolCall("c1", "reply", {"text": "é"}),))
    results = UserTurn(
        (ToolResult("c1", "reply", "no such channel", is_error=True),), "and?", (Image("image/png", PIXEL),)
    )
    assert body(ASK, called, results)["input"] == [
        {"role": "user", "content": [{"type": "input_text", "text": "What time is it?"}]},
        {"role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "c1", "name": "reply", "arguments": '{"text":"é"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "Error: no such channel"},
        {
            "role": "user",
            "content": [
                {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PIXEL}"},
                {"type": "input_text", "text": "and?"},
            ],
        },
    ]


def test_silence_and_empty_messages_have_a_note() -> None:
    sent = body(UserTurn(text=" "), AssistantTurn(), UserTurn(text="x"))["input"]
    assert sent[0]["content"][0]["text"] == "(empty message)"
    assert sent[1] == {"role": "assistant", "content": "(silence)"}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [("auto", None), ("none", "none"), ("required", "required"), ("reply", {"type": "function", "name": "reply"})],
)
def test_the_choice_of_a_tool(choice: str, sent: Any) -> None:
    assert body(tool_choice=choice).get("tool_choice") == sent


RS = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}


def test_reasoning_goes_back_in_its_place() -> None:
    layout = (
        RS,
        {"type": "message", "text": "First.", "phase": "commentary"},
        {"type": "function_call", "id": "c1"},
        {**RS, "id": "rs_2"},
        {"type": "function_call", "id": "c2"},
    )
    turn = AssistantTurn("First.", (ToolCall("c1", "reply", {}), ToolCall("c2", "reply", {})), layout, "responses")
    kinds = [item.get("id") or item.get("call_id") or item for item in body(ASK, turn, results_of(turn))["input"][1:6]]
    assert kinds == ["rs_1", {"role": "assistant", "content": "First.", "phase": "commentary"}, "c1", "rs_2", "c2"]


def test_a_layout_that_does_not_fit_any_more_keeps_the_reasoning() -> None:
    layout = (RS, {"type": "message", "text": "First."}, {"type": "function_call", "id": "gone"})
    turn = AssistantTurn("First. Second.", (ToolCall("c2", "reply", {}),), layout, "responses")
    sent = body(ASK, turn, results_of(turn))["input"][1:4]
    assert [item.get("type", "message") for item in sent] == ["reasoning", "message", "function_call"]


@pytest.mark.parametrize("other", ["responses/azure", "anthropic", None])
def test_reasoning_of_another_service_stays_here(other: str | None) -> None:
    turn = AssistantTurn("", (ToolCall("c1", "reply", {}),), (RS,), other)
    assert [item.get("type") for item in body(ASK, turn, results_of(turn))["input"]] == [
        None,
        "function_call",
        "function_call_output",
    ]


def test_reasoning_that_nothing_follows_gets_a_note() -> None:
    turn = AssistantTurn("", (), (RS,), "responses")
    assert body(ASK, turn, UserTurn(text="x"))["input"][2] == {"role": "assistant", "content": "(silence)"}


# ------------------------------------------------------------------ what is learned


def refusal(message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"message": message, "type": "invalid_request_error", "param": param, "code": code}


def test_what_is_refused_is_left_out_once() -> None:
    wire = ResponsesWire("m")
    own = AssistantTurn("", (ToolCall("c1", "reply", {}),), (RS,), "responses")
    request = ModelRequest("", (ASK, own, results_of(own)), (REPLY,), options=CallOptions(effort="high"))

    def sent() -> Any:
        return json.loads(wire.body(request))

    verify = refusal("Your organization must be verified to generate reasoning summaries.", "reasoning.summary")
    assert wire.adapt(400, verify, request)
    assert sent()["reasoning"] == {"effort": "high"}
    effort = refusal("Unsupported parameter: 'reasoning.effort' is not supported with this model.", "reasoning.effort")
    assert wire.adapt(400, effort, request)
    assert "reasoning" not in sent()
    foreign = refusal("The encrypted content for item rs_1 could not be verified.", code="invalid_encrypted_content")
    assert wire.adapt(400, foreign, request)
    assert [item.get("type") for item in sent()["input"]] == [None, "function_call", "function_call_output"]
    assert wire.adapt(400, refusal("Encrypted content is not supported with this model."), request)
    assert "include" not in sent()
    for message in (verify, effort, foreign):
        assert not wire.adapt(400, message, request)


def test_other_refusals_teach_nothing() -> None:
    request = ModelRequest("", (ASK,), (), options=CallOptions(effort="high"))
    assert not ResponsesWire("m").adapt(400, refusal("The model does not exist"), request)
    assert not ResponsesWire("m").adapt(500, refusal("reasoning failed"), request)


# ------------------------------------------------------------------ answers


def collect(*events: dict[str, Any]) -> tuple[ModelResponse, list[StreamPiece]]:
    assembler = ResponsesWire("m").assembler(ModelRequest("", (ASK,), (REPLY,)))
    for event in events:
        assert assembler.feed(event) is None
    return assembler.response(), assembler.pieces


def done(index: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def ended(status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {"status": status, "output": [], **fields}}


def test_items_that_come_whole_are_streamed_whole() -> None:
    response, pieces = collect(
        done(0, type="reasoning", id="rs_1", summary=[{"text": "A"}, {"text": "B"}], encrypted_content="x"),
        done(1, type="message", content=[{"type": "output_text", "text": "Noon."}]),
        done(2, type="function_call", call_id="c1", name="reply", arguments="{}"),
        ended(),
    )
    assert response.reasoning == "A\n\nB"
    assert pieces == [
        ReasoningPiece(""),
        ReasoningPiece("A\n\nB"),
        TextPiece("Noon."),
        CallBegun(0, "reply"),
        CallPiece(0, "{}"),
    ]
    assert response.thinking_of == "responses"
    assert response.stop_reason == "tool_calls"


def test_a_refusal_is_one() -> None:
    response, pieces = collect(
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
        {"type": "response.refusal.delta", "output_index": 0, "delta": "I cannot help with that."},
        done(0, type="message", content=[{"type": "refusal", "refusal": "I cannot help with that."}]),
        ended(),
    )
    assert (response.text, response.stop_reason) == ("I cannot help with that.", "refusal")
    assert pieces == [TextPiece("I cannot help with that.")]


@pytest.mark.parametrize(("why", "reason"), [("max_output_tokens", "length"), ("content_filter", "refusal")])
def test_an_incomplete_answer_says_why(why: str, reason: str) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "reply", "arguments": ""}
    opened = {"type": "response.output_item.added", "output_index": 0, "item": call}
    piece = {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"text": "It'}
    response, _ = collect(opened, piece, ended("incomplete", incomplete_details={"reason": why}))
    assert response.stop_reason == reason
    assert response.calls[0].error is not None


def test_what_the_service_keeps_elsewhere_is_not_sent_back() -> None:
    response, _ = collect(done(0, type="reasoning", id="rs_1", summary=[]), done(1, type="web_search_call"), ended())
    assert response.thinking == ()


def test_usage() -> None:
    usage = {
        "input_tokens": 100,
        "output_tokens": 50,
        "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 8},
        "output_tokens_details": {"reasoning_tokens": 40},
    }
    response, _ = collect(ended(usage=usage))
    assert response.usage == Usage(100, 50, 64, 8)


# ------------------------------------------------------------------ with a server


async def test_a_conversation_with_reasoning_and_calls() -> None:
    pieces: list[StreamPiece | None] = []
    async with (
        open_provider(sequence([THOUGHTFUL, ProviderAnswer("Done.", reasoning="Good.")])) as server,
        served(server) as model,
    ):
        first = await model.generate(ModelRequest("sys", (ASK,), (REPLY,), on_pieces=pieces.extend))
        assert first.reasoning == "I need the clock."
        assert first.calls[0].arguments == {"text": "It is noon."}
        spoken = "".join(piece.text for piece in pieces if isinstance(piece, CallPiece))
        assert json.loads(spoken) == {"text": "It is noon."}
        turn = turn_of(first)
        second = await model.generate(ModelRequest("sys", (ASK, turn, results_of(turn)), (REPLY,)))
        assert (second.text, second.reasoning, second.stop_reason) == ("Done.", "Good.", "end")
        kinds = [item.get("type", "message") for item in server.requests[1].raw["input"]]
        assert kinds == ["message", "reasoning", "function_call", "function_call_output"]
        assert server.requests[0].path == "/v1/responses"


@pytest.mark.parametrize("after", range(1, 8))
async def test_a_stream_that_breaks_off_is_asked_for_again(after: int, fast_clock: object) -> None:
    async with (
        open_provider(sequence([cut(THOUGHTFUL, after)], lambda _: THOUGHTFUL)) as server,
        served(server) as model,
    ):
        response = await model.generate(ModelRequest("", (ASK,), (REPLY,)))
        assert response.calls[0].arguments == {"text": "It is noon."}
        assert server.count == 2


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (failing("invalid_prompt", "your prompt was flagged"), "request"),
        (refuse(400, "no"), "request"),
        (refuse(401, "bad key"), "auth"),
    ],
)
async def test_failures_have_their_kind(answer: ProviderAnswer, kind: str) -> None:
    async with open_provider(lambda _: answer) as server, served(server) as model:
        with pytest.raises(ModelError) as caught:
            await model.generate(ModelRequest("", (ASK,), (REPLY,)))
        assert caught.value.kind == kind


async def test_a_server_that_does_not_stream() -> None:
    def script(request: ProviderRequest) -> ProviderAnswer:
        output = [{"type": "message", "content": [{"type": "output_text", "text": "Noon."}]}]
        whole = {"object": "response", "status": "completed", "output": output}
        return ProviderAnswer(body=json.dumps(whole).encode(), content_type="application/json")

    async with open_provider(script) as server, served(server) as model:
        assert (await model.generate(ModelRequest("", (ASK,)))).text == "Noon."


# ------------------------------------------------------------------ the service's own client


def test_requests_have_the_types_of_the_official_client() -> None:
    layout = (RS, {"type": "function_call", "id": "c1"})
    turn = AssistantTurn("", (ToolCall("c1", "reply", {}),), layout, "responses")
    sent = body(ASK, turn, results_of(turn, "thanks"), options=CallOptions(effort="low", temperature=0.5))
    TypeAdapter(params.ResponseCreateParamsStreaming).validate_python(sent, strict=False, extra="forbid")


async def test_the_official_client_reads_our_server() -> None:
    async with open_provider(lambda _: THOUGHTFUL) as server:
        client = openai.AsyncOpenAI(api_key=KEY, base_url=server.openai_url, max_retries=0)
        stream = await client.responses.create(**body(), timeout=5)
        events = [event async for event in stream]
        final = events[-1]
        assert final.type == "response.completed"
        assert [item.type for item in final.response.output] == ["reasoning", "function_call"]
        deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
        assert json.loads("".join(deltas)) == {"text": "It is noon."}
        await client.close()


# ------------------------------------------------------------------ when it is used


@pytest.mark.parametrize(
    "model", ["gpt-5", "gpt-5.6-terra", "gpt-6.1-sol", "o3", "o4-mini", "openai/gpt-5", "openai.gpt-6-sol"]
)
def test_models_that_reason(model: str) -> None:
    assert is_reasoning_model(model)


@pytest.mark.parametrize("model", ["gpt-4.1", "gpt-4o", "gpt-5-chat-latest", "gpt-oss-120b", "llama", "claude-opus-5"])
def test_models_that_do_not(model: str) -> None:
    assert not is_reasoning_model(model)


@pytest.mark.parametrize(
    ("settings", "model", "used"),
    [
        (ProviderSettings("openai"), "gpt-6-sol", True),
        (ProviderSettings("openai"), "gpt-4.1", False),
        (ProviderSettings("openai", wire="chat"), "gpt-6-sol", False),
        (ProviderSettings("openai", wire="responses"), "gpt-4.1", True),
        (ProviderSettings("openai", base_url="http://10.0.0.1/v1"), "gpt-6-sol", False),
        (ProviderSettings("openai", base_url="http://10.0.0.1/v1", wire="responses"), "any", True),
        (ProviderSettings("gemini"), "gpt-6-sol", False),
    ],
)
def test_the_format_is_chosen_by_the_settings_or_the_model(settings: ProviderSettings, model: str, used: bool) -> None:
    assert find_providers({"mine": settings})["mine"].uses_responses(model) is used
