"""Ollama's own format: bodies and answers as plain values, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pegasus.models import AssistantTurn, Image, ModelResponse, ToolCall, ToolResult, ToolSpec, Usage, UserTurn
from pegasus.models.base import CallBegun, CallOptions, CallPiece, ReasoningPiece, StreamPiece, TextPiece
from pegasus.models.formats.ollama import OllamaWire, usual_window
from tests.pegasus.models.conftest import REPLY, request

CALLS = (ToolCall("a", "reply", {"text": "x"}), ToolCall("b", "reply", {}))
RESULTS = (ToolResult("a", "reply", "done"), ToolResult("b", "reply", "no", is_error=True))
TALK = (UserTurn(text="hi"), AssistantTurn("I think", CALLS), UserTurn(RESULTS, "next"))


def body(*turns: Any, wire: OllamaWire | None = None, **fields: Any) -> Any:
    return json.loads((wire or OllamaWire("m")).body(request(*turns, **fields)))


def answer(*lines: Any, stop: str = "stop") -> ModelResponse:
    return collect(*lines, stop=stop)[0]


def collect(*lines: Any, stop: str = "stop") -> tuple[ModelResponse, list[StreamPiece]]:
    assembler = OllamaWire("m").assembler(request())
    for message in lines:
        assert assembler.feed({"message": {"role": "assistant", **message}, "done": False}) is None
    end = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": stop}
    assert assembler.feed({**end, "prompt_eval_count": 120, "eval_count": 9}) is None
    assert assembler.complete
    return assembler.response(), assembler.pieces


def test_a_body_has_the_whole_request() -> None:
    assert body(text="hello", max_tokens=77, options=CallOptions(context_window=4096)) == {
        "model": "m",
        "stream": True,
        "truncate": False,
        "options": {"num_ctx": 4096, "num_predict": 77},
        "tools": [
            {"type": "function", "function": {"name": "reply", "description": "Speak.", "parameters": REPLY.parameters}}
        ],
        "messages": [{"role": "system", "content": "You are a test."}, {"role": "user", "content": "hello"}],
    }


def test_an_answer_gets_at_most_half_of_the_window() -> None:
    assert body(max_tokens=8192, options=CallOptions(context_window=4096))["options"]["num_predict"] == 2048
    assert body(max_tokens=8192, options=CallOptions(context_window=300))["options"]["num_predict"] == 256


def test_arguments_are_objects_and_results_name_their_tool() -> None:
    assert body(*TALK)["messages"][2:] == [
        {
            "role": "assistant",
            "content": "I think",
            "tool_calls": [
                {"id": "a", "function": {"index": 0, "name": "reply", "arguments": {"text": "x"}}},
                {"id": "b", "function": {"index": 1, "name": "reply", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "done", "tool_name": "reply", "tool_call_id": "a"},
        {"role": "tool", "content": "Error: no", "tool_name": "reply", "tool_call_id": "b"},
        {"role": "user", "content": "next"},
    ]


def test_nothing_blank_is_sent() -> None:
    raw = body(UserTurn(text=" "), AssistantTurn(""), UserTurn(text="x"), system="", tools=())
    assert [message["content"] for message in raw["messages"]] == ["(empty message)", "(silence)", "x"]
    assert "tools" not in raw


def test_pictures_are_base64_alone() -> None:
    picture = Image("image/png", "iVBORw0KGgo=", "a.png")
    raw = body(UserTurn(text="look", images=(picture,)))
    assert raw["messages"][-1] == {"role": "user", "content": "look", "images": ["iVBORw0KGgo="]}
    assert body(UserTurn(images=(picture,)))["messages"][-1]["content"] == ""


def test_a_choice_of_tools_is_made_by_what_is_offered() -> None:
    other = ToolSpec("other", "", {"type": "object"})
    assert "tools" not in body(tool_choice="none")
    assert [tool["function"]["name"] for tool in body(tools=(REPLY, other), tool_choice="other")["tools"]] == ["other"]
    assert len(body(tools=(REPLY, other), tool_choice="required")["tools"]) == 2


@pytest.mark.parametrize(
    ("effort", "by_degree", "by_yes"), [("low", "low", False), ("medium", "medium", True), ("high", "high", True)]
)
def test_effort_is_a_word_for_gpt_oss_and_yes_or_no_for_others(effort: str, by_degree: str, by_yes: bool) -> None:
    options = CallOptions(effort=effort)
    assert body(options=options, wire=OllamaWire("gpt-oss:20b"))["think"] == by_degree
    assert body(options=options, wire=OllamaWire("qwen3:8b"))["think"] is by_yes
    assert "think" not in body(wire=OllamaWire("qwen3:8b"))


def test_a_model_that_cannot_think_is_asked_without() -> None:
    wire, asked = OllamaWire("gpt-oss-small"), request(options=CallOptions(effort="low"))
    assert wire.adapt(400, {"error": 'think value "low" is not supported for this model'}, asked)
    assert json.loads(wire.body(asked))["think"] is False
    assert wire.adapt(400, {"error": '"gpt-oss-small" does not support thinking'}, asked)
    assert "think" not in json.loads(wire.body(asked))
    assert not wire.adapt(400, {"error": '"gpt-oss-small" does not support thinking'}, asked)


def test_options_of_the_settings_are_merged() -> None:
    extra = {"keep_alive": "1h", "options": {"top_k": 3, "num_ctx": 9000}}
    raw = body(options=CallOptions(temperature=0.5, context_window=4096, extra_body=extra))
    assert raw["options"] == {"num_ctx": 9000, "num_predict": 2048, "temperature": 0.5, "top_k": 3}
    assert raw["keep_alive"] == "1h"
    assert list(raw)[-1] == "messages"


def test_an_answer_is_put_together() -> None:
    response, pieces = collect(
        {"content": "", "thinking": "Hm"},
        {"content": "", "thinking": "m."},
        {"content": "Hel"},
        {"content": "lo"},
        {"content": "", "tool_calls": [{"function": {"name": "reply", "arguments": {"text": "hé"}}}]},
    )
    (call,) = response.calls
    assert (response.text, response.reasoning, call.name, call.arguments) == ("Hello", "Hmm.", "reply", {"text": "hé"})
    assert call.id
    assert (response.stop_reason, response.usage) == ("tool_calls", Usage(120, 9))
    assert pieces == [
        ReasoningPiece("Hm"),
        ReasoningPiece("m."),
        TextPiece("Hel"),
        TextPiece("lo"),
        CallBegun(0, "reply"),
        CallPiece(0, '{"text":"hé"}'),
    ]


def test_thoughts_before_a_call_go_back_and_others_do_not() -> None:
    thinking = ({"thinking": "Hmm."},)
    calling = AssistantTurn("", CALLS[:1], thinking, "ollama")
    raw = body(UserTurn(text="a"), calling, UserTurn((RESULTS[0],)))
    assert raw["messages"][2]["thinking"] == "Hmm."
    raw = body(UserTurn(text="a"), AssistantTurn("b", (), thinking, "ollama"), UserTurn(text="c"))
    assert "thinking" not in raw["messages"][2]
    raw = body(UserTurn(text="a"), AssistantTurn("", CALLS[:1], thinking, "anthropic"), UserTurn((RESULTS[0],)))
    assert "thinking" not in raw["messages"][2]


def test_several_calls_without_ids_get_different_ones() -> None:
    call = {"function": {"name": "reply", "arguments": {"text": "x"}}}
    response = answer({"content": "", "tool_calls": [call, call]}, {"content": "", "tool_calls": [call]})
    assert len({call.id for call in response.calls}) == 3


def test_an_answer_at_the_limit_says_so() -> None:
    assert answer({"content": "so long"}, stop="length").stop_reason == "length"


def test_an_error_in_the_stream_is_returned() -> None:
    assembler = OllamaWire("m").assembler(request())
    assert assembler.feed({"error": "an error was encountered while running the model"}) == {
        "message": "an error was encountered while running the model"
    }
    assert not assembler.complete


def test_an_answer_in_one_piece_is_read() -> None:
    assembler = OllamaWire("m").assembler(request())
    assembler.feed_whole({"message": {"role": "assistant", "content": "Hello"}, "done": True, "done_reason": "stop"})
    assert assembler.complete
    assert assembler.response().text == "Hello"


@pytest.mark.parametrize(
    ("limit", "chosen", "window"), [(131_072, 0, 32_768), (8192, 0, 8192), (131_072, 65_536, 65_536), (0, 0, 0)]
)
def test_the_window_is_the_models_own_within_bounds(limit: int, chosen: int, window: int) -> None:
    assert usual_window(limit, chosen) == window
