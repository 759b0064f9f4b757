"""OpenAI's wire format and its relatives: bodies and answers as plain values, without a server."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from pegasus.models import AssistantTurn, ModelRequest, ModelResponse, ToolCall, ToolResult, Usage, UserTurn
from pegasus.models.formats.chat import ChatWire
from pegasus.models.formats.chat_dialects import GEMINI, OPENAI
from pegasus.models.providers.accounts import ProviderAccount
from pegasus.testing.provider.answers import Call, ProviderAnswer
from pegasus.testing.provider.formats import events
from tests.pegasus.models.conftest import REPLY, request

CALLS = (ToolCall("a", "reply", {"text": "x"}), ToolCall("b", "reply", {}))
RESULTS = (ToolResult("a", "reply", "done"), ToolResult("b", "reply", "no", is_error=True))
TALK = (UserTurn(text="hi"), AssistantTurn("I think", CALLS), UserTurn(RESULTS, "next"))


DIALECTS = {"openai": OPENAI, "gemini": GEMINI}


def body(*turns: Any, wire: ChatWire | None = None, **fields: Any) -> Any:
    return json.loads((wire or ChatWire("m")).body(request(*turns, **fields)))


def chunks(*deltas: Any, finish: str | None = "stop", form: str = "openai", **more: Any) -> ModelResponse:
    assembler = ChatWire("m", DIALECTS[form]).assembler(request())
    for delta in deltas:
        assembler.feed({"choices": [{"delta": delta}]})
    if finish:
        assembler.feed({"choices": [{"delta": {}, "finish_reason": finish}], **more})
    assembler.finish()
    assert assembler.complete
    return assembler.response()


def test_a_body_has_the_whole_request() -> None:
    assert body(text="hello", max_tokens=77) == {
        "model": "m",
        "stream": True,
        "max_tokens": 77,
        "stream_options": {"include_usage": True},
        "tools": [
            {"type": "function", "function": {"name": "reply", "description": "Speak.", "parameters": REPLY.parameters}}
        ],
        "messages": [{"role": "system", "content": "You are a test."}, {"role": "user", "content": "hello"}],
    }


def test_each_result_is_a_message_before_the_text() -> None:
    assert body(*TALK)["messages"][2:] == [
        {
            "role": "assistant",
            "content": "I think",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "reply", "arguments": '{"text":"x"}'}},
                {"id": "b", "type": "function", "function": {"name": "reply", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "done"},
        {"role": "tool", "tool_call_id": "b", "content": "Error: no"},
        {"role": "user", "content": "next"},
    ]


def test_nothing_blank_is_sent() -> None:
    raw = body(UserTurn(text=" "), AssistantTurn(""), UserTurn(text="x"), system="", tools=())
    assert [message["content"] for message in raw["messages"]] == ["(empty message)", "(silence)", "x"]
    assert "tools" not in raw


def test_openai_itself_gets_the_newer_name_of_the_limit() -> None:
    assert "max_completion_tokens" in body(wire=ChatWire("m", is_own=True))
    assert ProviderAccount("x", "openai", base_url="https://api.openai.com/v1/").is_own_service
    assert ProviderAccount("x", "ollama").is_own_service
    assert not ProviderAccount("x", "openai", base_url="http://localhost:1234/v1").is_own_service


def test_tool_choice_is_translated() -> None:
    choices = [body(tool_choice=word).get("tool_choice") for word in ("auto", "none", "required", "reply")]
    assert choices == [None, "none", "required", {"type": "function", "function": {"name": "reply"}}]


def test_an_answer_is_put_together_from_its_pieces() -> None:
    answer = ProviderAnswer(
        "Grüße, 世界", (Call("reply", {"text": "long"}, "id1"),), usage=Usage(100, 7, 60, 5), pieces=4
    )
    assembler = ChatWire("m").assembler(request())
    for event in events(answer, "openai", lambda: "1"):
        data = event.removeprefix(b"data: ").strip()
        assert data == b"[DONE]" or assembler.feed(json.loads(data)) is None
    assert assembler.response() == ModelResponse(
        "Grüße, 世界", (ToolCall("id1", "reply", {"text": "long"}),), Usage(100, 7, 60, 5), "tool_calls"
    )


# ------------------------------------------------------------------ what other servers do


def call(**parts: Any) -> dict[str, Any]:
    function = {key: parts.pop(key) for key in ("name", "arguments") if key in parts}
    return {"tool_calls": [{**parts, "function": function}]}


def test_calls_without_index_or_id_get_ids() -> None:
    response = chunks({"tool_calls": [{"function": {"name": "reply", "arguments": "{}"}} for _ in range(2)]})
    assert len({call.id for call in response.calls}) == 2
    assert response.stop_reason == "tool_calls"


def test_pieces_without_index_belong_to_the_call_begun_last() -> None:
    response = chunks(
        call(id="1", name="reply", arguments='{"te'),
        call(arguments='xt":"a"}'),
        call(id="2", name="reply", arguments="{}"),
    )
    assert [call.arguments for call in response.calls] == [{"text": "a"}, {}]


def test_parallel_calls_that_all_have_index_0_are_told_apart_by_id() -> None:
    response = chunks(
        call(index=0, id="1", name="reply", arguments="{}"), call(index=0, id="2", name="reply", arguments="{}")
    )
    assert [call.id for call in response.calls] == ["1", "2"]


def test_an_id_repeated_in_every_piece_is_one_call() -> None:
    response = chunks(call(index=0, id="1", name="reply", arguments='{"a"'), call(index=0, id="1", arguments=":1}"))
    assert response.calls == (ToolCall("1", "reply", {"a": 1}),)


def test_arguments_may_come_as_an_object() -> None:
    assert chunks(call(id="1", name="reply", arguments={"a": 1})).calls[0].arguments == {"a": 1}


def test_missing_usage_is_zero() -> None:
    assert chunks({"content": "x"}).usage == Usage()
    assert chunks({"content": "x"}, usage={"prompt_tokens": 3, "completion_tokens": None}).usage == Usage(3)
    assert chunks({"content": "x"}, usage={"prompt_tokens": 3, "prompt_tokens_details": "none"}).usage == Usage(3)


def test_usage_may_come_in_the_last_chunk_with_choices() -> None:
    assert chunks({"content": "x"}, usage={"prompt_tokens": 3, "completion_tokens": 2}).usage == Usage(3, 2)


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end"),
        (None, "end"),
        ("length", "length"),
        ("content_filter", "refusal"),
        ("EOS", "end"),
        ("odd", "odd"),
        ("Odd Case", "Odd Case"),
        ("model_length", "length"),
        ("content_filter: PROHIBITED_CONTENT", "refusal"),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", "error"),
        ("abort", "error"),
        ("tool_calls", "end"),
    ],
)
def test_finish_reasons_have_our_words(finish: str | None, reason: str) -> None:
    assert chunks({"content": "x"}, finish=finish).stop_reason == reason


def test_a_refusal_is_text_and_stop_reason() -> None:
    response = chunks({"refusal": "I will not."})
    assert (response.text, response.stop_reason) == ("I will not.", "refusal")


def test_text_may_come_as_a_list_of_parts() -> None:
    assert chunks({"content": [{"type": "text", "text": "a"}, {"type": "thinking"}]}).text == "a"


def test_done_without_anything_is_not_an_answer() -> None:
    assembler = ChatWire("m").assembler(request())
    assembler.finish()
    assert not assembler.complete


# ------------------------------------------------------------------ Gemini's signatures


def test_gemini_gets_its_signatures_back_and_others_do_not() -> None:
    extra = {"google": {"thought_signature": "s1"}}
    response = chunks(call(id="1", name="reply", arguments="{}", extra_content=extra), form="gemini")
    turn = AssistantTurn(response.text, response.calls, response.thinking, response.thinking_of)
    talk = (UserTurn(text="hi"), turn, UserTurn((ToolResult("1", "reply", "ok"),)))
    assert body(*talk, wire=ChatWire("m", GEMINI))["messages"][2]["tool_calls"][0]["extra_content"] == extra
    assert "extra_content" not in body(*talk)["messages"][2]["tool_calls"][0]


def test_gemini_is_told_to_skip_the_signature_of_another_models_call() -> None:
    calls = body(*TALK, wire=ChatWire("m", GEMINI))["messages"][2]["tool_calls"]
    assert calls[0]["extra_content"]["google"]["thought_signature"] == "skip_thought_signature_validator"
    assert "extra_content" not in calls[1]


# ------------------------------------------------------------------ learning from refusals


def refused(wire: ChatWire, message: str, param: str | None = None, status: int = 400) -> bool:
    return wire.adapt(status, {"message": message, "param": param}, request())


def test_the_other_name_of_the_limit_is_tried_once() -> None:
    wire = ChatWire("m")
    assert refused(
        wire, "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens'.", "max_tokens"
    )
    assert "max_completion_tokens" in body(wire=wire)
    assert "max_tokens" not in body(wire=wire)
    assert not refused(wire, "max_completion_tokens is unknown", "max_completion_tokens")


def test_tools_without_reasoning_where_the_model_wants_it_so() -> None:
    wire = ChatWire("gpt-6-sol", is_own=True)
    message = "Function tools with reasoning_effort are not supported for gpt-6-sol in /v1/chat/completions."
    assert "reasoning_effort" not in body(wire=wire)
    assert refused(wire, message, "reasoning_effort")
    assert body(wire=wire)["reasoning_effort"] == "none"
    assert "reasoning_effort" not in body(wire=wire, tools=())
    assert not refused(wire, message, "reasoning_effort")


def test_servers_that_do_not_know_stream_options_are_spared_them() -> None:
    wire = ChatWire("m")
    assert refused(wire, "unexpected keyword argument 'stream_options'", status=422)
    assert "stream_options" not in body(wire=wire)


def test_other_refusals_teach_nothing() -> None:
    assert not refused(ChatWire("m"), "bad model")
    assert not refused(ChatWire("m"), "max_tokens", "max_tokens", status=500)


def test_a_changed_prompt_or_other_tools_are_sent_at_once() -> None:
    wire = ChatWire("m")
    first, other = request(), request(system="Another.", tools=(), max_tokens=5)
    bodies = [json.loads(wire.body(asked)) for asked in (first, other, first)]
    assert bodies[0] == bodies[2]
    assert (bodies[1]["messages"][0]["content"], bodies[1]["max_tokens"]) == ("Another.", 5)
    assert "tools" not in bodies[1]


def test_a_body_begins_with_the_bytes_of_the_one_before() -> None:
    wire = ChatWire("m")
    turns: list[Any] = [UserTurn(text="one")]
    stems = []
    for n in range(4):
        stems.append(wire.body(ModelRequest("sys", tuple(turns), (REPLY,))).removesuffix(b"]}"))
        turns += [AssistantTurn(f"answer {n}"), UserTurn(text=f"question {n}")]
    wire.body(ModelRequest("sys", tuple(turns), (REPLY,)))
    assert all(later.startswith(earlier) for earlier, later in pairwise(stems))
