"""Anthropic's wire format: bodies and answers as plain values, without a server."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from pegasus.models import AssistantTurn, ModelRequest, ToolCall, ToolResult, ToolSpec, Usage, UserTurn
from pegasus.models.formats.anthropic import AnthropicWire
from pegasus.testing.provider.answers import Call, ProviderAnswer
from pegasus.testing.provider.formats import events
from tests.pegasus.models.conftest import REPLY, request

MARK = {"type": "ephemeral"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "sig"}
REDACTED = {"type": "redacted_thinking", "data": "xyz"}


def body(*turns: Any, **fields: Any) -> Any:
    return json.loads(AnthropicWire("m").body(request(*turns, **fields)))


def content(turn: AssistantTurn) -> Any:
    after = UserTurn(tuple(ToolResult(call.id, call.name, "ok") for call in turn.calls), "and now?")
    return body(UserTurn(text="hi"), turn, after)["messages"][1]["content"]


def answered(answer: ProviderAnswer, tools: tuple[ToolSpec, ...] = (REPLY,)) -> Any:
    assembler = AnthropicWire("m").assembler(request(tools=tools))
    for event in events(answer, "anthropic", lambda: "1"):
        assert assembler.feed(json.loads(event.partition(b"data: ")[2])) is None
    assert assembler.complete
    return assembler.response()


def test_a_body_has_the_whole_request() -> None:
    assert body(text="hello", max_tokens=77) == {
        "model": "m",
        "max_tokens": 77,
        "stream": True,
        "tools": [{"name": "reply", "description": "Speak.", "input_schema": REPLY.parameters, "cache_control": MARK}],
        "system": [{"type": "text", "text": "You are a test.", "cache_control": MARK}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": MARK}]}],
    }


def test_results_come_before_text_and_the_marker_is_on_the_last_block_only() -> None:
    calls = (ToolCall("a", "reply", {"text": "x"}), ToolCall("b", "reply", {}, error="broken"))
    results = (ToolResult("a", "reply", "done"), ToolResult("b", "reply", "no", is_error=True))
    messages = body(UserTurn(text="hi"), AssistantTurn("I think", calls), UserTurn(results, "next"))["messages"]
    assert messages == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I think"},
                {"type": "tool_use", "id": "a", "name": "reply", "input": {"text": "x"}},
                {"type": "tool_use", "id": "b", "name": "reply", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "done"},
                {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True},
                {"type": "text", "text": "next", "cache_control": MARK},
            ],
        },
    ]


def test_a_result_that_is_last_carries_the_marker() -> None:
    turns = (UserTurn(text="hi"), AssistantTurn("", (ToolCall("a", "t", {}),)), UserTurn((ToolResult("a", "t", ""),)))
    last = body(*turns)["messages"][-1]["content"]
    assert last == [{"type": "tool_result", "tool_use_id": "a", "content": "(no output)", "cache_control": MARK}]


def test_nothing_blank_is_sent() -> None:
    raw = body(UserTurn(text=" \n"), AssistantTurn("\n"), UserTurn(text="x"), system=" ", tools=())
    assert raw["messages"][0]["content"] == [{"type": "text", "text": "(empty message)"}]
    assert raw["messages"][1]["content"] == [{"type": "text", "text": "(silence)"}]
    assert "system" not in raw
    assert "tools" not in raw


def test_own_thinking_goes_back_first_and_unchanged() -> None:
    turn = AssistantTurn("text", (), (THOUGHT, REDACTED), "anthropic")
    assert content(turn) == [THOUGHT, REDACTED, {"type": "text", "text": "text"}]


def test_thinking_of_others_is_left_out() -> None:
    turn = AssistantTurn("text", (), ({"id": "1", "extra_content": {}},), "gemini")
    assert content(turn) == [{"type": "text", "text": "text"}]


def test_a_turn_never_ends_in_thinking() -> None:
    assert content(AssistantTurn("", (), (THOUGHT,), "anthropic")) == [THOUGHT, {"type": "text", "text": "(silence)"}]


def test_thinking_between_other_blocks_keeps_its_place() -> None:
    """Interleaved thinking must come back in the model's own order, text and calls included."""
    first = AnthropicWire("m").assembler(request())
    blocks: list[Any] = [
        THOUGHT,
        {"type": "text", "text": "one"},
        {"type": "tool_use", "id": "a", "name": "reply", "input": {"text": "x"}},
        REDACTED,
        {"type": "text", "text": "two"},
        {"type": "tool_use", "id": "b", "name": "reply", "input": {}},
    ]
    assert first.feed_whole({"type": "message", "content": blocks, "stop_reason": "tool_use"}) is None
    response = first.response()
    assert response.text == "onetwo"
    assert content(AssistantTurn(response.text, response.calls, response.thinking, response.thinking_of)) == blocks


def test_a_recorded_order_that_no_longer_fits_gives_thinking_text_calls() -> None:
    layout = (THOUGHT, {"type": "text", "text": "old"}, REDACTED, {"type": "tool_use", "id": "a"})
    turn = AssistantTurn("joined with old", (ToolCall("a", "reply", {}),), layout, "anthropic")
    kinds = [block["type"] for block in content(turn)]
    assert kinds == ["thinking", "redacted_thinking", "text", "tool_use"]


def test_thinking_that_is_refused_is_left_out_from_then_on() -> None:
    """So that a conversation of another model, or another account, does not fail for ever."""
    wire = AnthropicWire("m")
    asked = request(UserTurn(text="hi"), AssistantTurn("text", (), (THOUGHT,), "anthropic"), UserTurn(text="x"))
    assert b"sig" in wire.body(asked)
    refusal = {"error": {"message": "messages.1.content.0: Invalid `signature` in `thinking` block"}}
    assert wire.adapt(400, refusal, asked)
    assert b"sig" not in wire.body(asked)
    assert not wire.adapt(400, refusal, asked)
    assert not AnthropicWire("m").adapt(400, {"error": {"message": "prompt is too long"}}, asked)


def test_tool_names_are_made_fit_and_come_back_as_they_were() -> None:
    odd = ToolSpec("my server.tool", "", {"type": "object"})
    wire = body(tools=(odd,))["tools"][0]["name"]
    assert wire != odd.name
    assert answered(ProviderAnswer(calls=(Call(wire),)), (odd,)).calls[0].name == odd.name


def test_tools_of_the_history_are_declared_where_the_request_offers_none() -> None:
    turns = (
        UserTurn(text="hi"),
        AssistantTurn("", (ToolCall("a", "gone", {}),)),
        UserTurn((ToolResult("a", "gone", "x"),)),
    )
    raw = body(*turns, tools=())
    assert [tool["name"] for tool in raw["tools"]] == ["gone"]
    assert raw["tool_choice"] == {"type": "none"}


def test_tool_choice_is_translated() -> None:
    def choice(word: str) -> object:
        return body(tool_choice=word).get("tool_choice")

    assert [choice(word) for word in ("auto", "none", "required", "reply")] == [
        None, {"type": "none"}, {"type": "any"}, {"type": "tool", "name": "reply"},
    ]  # fmt: skip


def test_an_answer_is_put_together_from_its_pieces() -> None:
    answer = ProviderAnswer(
        text="Grüße, 世界",
        calls=(Call("reply", {"text": "a longer text"}, "id1"), Call("unknown", {}, "id2")),
        thinking=(THOUGHT, REDACTED),
        usage=Usage(100, 7, 60, 30),
        pieces=5,
    )
    response = answered(answer)
    assert response.text == "Grüße, 世界"
    assert response.calls == (ToolCall("id1", "reply", {"text": "a longer text"}), ToolCall("id2", "unknown", {}))
    assert response.thinking == (THOUGHT, REDACTED)
    assert response.thinking_of == "anthropic"
    assert response.usage == Usage(100, 7, 60, 30)
    assert response.stop_reason == "tool_calls"


def test_stop_reasons_have_our_words() -> None:
    words = {
        "end_turn": "end",
        "stop_sequence": "end",
        "max_tokens": "length",
        "refusal": "refusal",
        "pause_turn": "pause",
        "model_context_window_exceeded": "length",
        "tool_use": "end",
        "never heard of": "never heard of",
    }
    assert {word: answered(ProviderAnswer("x", stop_reason=word)).stop_reason for word in words} == words


def test_silence_is_an_answer() -> None:
    response = answered(ProviderAnswer())
    assert (response.text, response.calls, response.stop_reason) == ("", (), "end")


def test_broken_arguments_are_an_error_for_the_model() -> None:
    call = answered(ProviderAnswer(calls=(Call("reply", '{"text": "a'),))).calls[0]
    assert call.arguments == {}
    assert "not valid JSON" in str(call.error)


def test_a_changed_prompt_or_other_tools_are_sent_at_once() -> None:
    wire = AnthropicWire("m")
    first, other = request(), request(system="Another.", tools=(), max_tokens=5)
    bodies = [json.loads(wire.body(asked)) for asked in (first, other, first)]
    assert bodies[0] == bodies[2]
    assert (bodies[1]["system"][0]["text"], bodies[1]["max_tokens"]) == ("Another.", 5)
    assert "tools" not in bodies[1]


def test_a_body_begins_with_the_bytes_of_the_one_before() -> None:
    """What was sent is sent again byte for byte; only the cache marker moves."""
    wire = AnthropicWire("m")
    turns: list[Any] = [UserTurn(text="one")]
    bodies = []
    for n in range(4):
        bodies.append(wire.body(ModelRequest("sys", tuple(turns), (REPLY,))))
        turns += [AssistantTurn(f"answer {n}"), UserTurn(text=f"question {n}")]
    bodies.append(wire.body(ModelRequest("sys", tuple(turns), (REPLY,))))
    marker = b',"cache_control":{"type":"ephemeral"}}]}]}'
    assert all(body.endswith(marker) for body in bodies)
    stems = [body.removesuffix(marker) for body in bodies]
    assert all(later.startswith(earlier) for earlier, later in pairwise(stems))
