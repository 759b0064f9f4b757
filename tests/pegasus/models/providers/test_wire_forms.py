"""What servers of OpenAI's format really send, over real HTTP: strange but legal streams, decorated names, a surplus of arguments."""

from __future__ import annotations

import codecs
import json
from typing import Any

import pytest

from pegasus.models import ModelError, ModelResponse, TextPiece, ToolCall, ToolSpec
from pegasus.testing.provider import ProviderServer
from pegasus.testing.provider.answers import ProviderAnswer, sequence
from tests.pegasus.models.conftest import REPLY, opened, request

HI = ToolCall("c1", "reply", {"text": "hi"})


def chunk(delta: Any = None, finish: str | None = None, **choice: Any) -> bytes:
    """The JSON of a chunk."""
    fields = {"index": 0, "finish_reason": finish, **choice}
    return json.dumps({"choices": [fields if delta is None else {**fields, "delta": delta}]}).encode()


def call(arguments: str = '{"text": "hi"}', name: str = "reply") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}


def events(*data: bytes, end: bytes = b"\n") -> bytes:
    return b"".join(b"data: " + part + end + end for part in data)


async def answer_to(server: ProviderServer, *parts: bytes, **fields: Any) -> ModelResponse:
    """The answer that this stream becomes, for a request with `reply`. Only one request is made."""
    server.script = sequence([ProviderAnswer(stream=parts)])
    async with opened("openai", server) as model:
        response = await model.generate(request(**fields))
    assert len(server.requests) == 1
    return response


# ------------------------------------------------------------------ streams

HEL, LO = chunk({"content": "Hel"}), chunk({"content": "lo"}, "stop")
DONE = b"[DONE]"
STREAMS = [
    pytest.param(
        b"data:\n\n" + events(HEL, LO, DONE), marks=pytest.mark.tried("models", "event without data", "skipped")
    ),
    pytest.param(events(b"null", HEL, b"null", LO, DONE), marks=pytest.mark.tried("models", "event `null`", "skipped")),
    pytest.param(
        events(HEL, b"ping", b'"keep-alive"', b"0", LO, DONE),
        marks=pytest.mark.tried("models", "event that is a word, a number or a string", "skipped"),
    ),
    pytest.param(
        codecs.BOM_UTF8 + events(HEL, LO, DONE),
        marks=pytest.mark.tried("models", "byte order mark first", "understood"),
    ),
    pytest.param(
        events(HEL, LO, DONE, end=b"\r\n"), marks=pytest.mark.tried("models", "lines end in CRLF", "understood")
    ),
    pytest.param(events(HEL, LO, DONE, end=b"\r"), marks=pytest.mark.tried("models", "lines end in CR", "understood")),
    pytest.param(
        b": OPENROUTER PROCESSING\n\n" + events(HEL) + b":\n\n: \n\n" + events(LO, DONE),
        marks=pytest.mark.tried("models", "comments between the events", "skipped"),
    ),
    pytest.param(
        b"id: 1\nevent: message\nretry: 10\ndata:" + HEL.replace(b", ", b",\ndata:") + b"\n\n" + events(LO, DONE),
        marks=pytest.mark.tried(
            "models", "one object in several lines of data, with id, event and retry", "understood"
        ),
    ),
    pytest.param(
        b"event: ping\ndata: {}\n\n" + events(HEL, b"[]", LO) + b"data\n\n",
        marks=pytest.mark.tried("models", "empty objects as a ping, and no `[DONE]`", "understood"),
    ),
    pytest.param(
        events(HEL) + b"data: " + LO,
        marks=pytest.mark.tried("models", "last event without its empty line", "understood"),
    ),
]


@pytest.mark.parametrize("stream", STREAMS)
async def test_a_stream_is_read_as_the_standard_says(server: ProviderServer, stream: bytes) -> None:
    assert (await answer_to(server, stream)).text == "Hello"
    assert (await answer_to_next(server, *(stream[at : at + 1] for at in range(len(stream))))).text == "Hello"


async def answer_to_next(server: ProviderServer, *parts: bytes) -> ModelResponse:
    server.requests.clear()
    return await answer_to(server, *parts)


async def test_a_stream_of_words_alone_is_no_answer(server: ProviderServer) -> None:
    server.script = lambda _: ProviderAnswer(stream=(events(b"Internal Server Error"),))
    async with opened("openai", server, timeout=0.5) as model:
        with pytest.raises(ModelError, match="Internal Server Error"):
            await model.generate(request())


# ------------------------------------------------------------------ a whole message in a stream

MESSAGES = [
    pytest.param(
        (HEL, chunk({"content": "lo"}), chunk(message={"content": "Hello"}, finish="stop")),
        marks=pytest.mark.tried(
            "models", "last chunk with the whole message instead of a delta", "replaces, nothing twice"
        ),
    ),
    pytest.param((HEL, chunk(message={"content": "Hello"}, finish="stop"))),
    pytest.param((chunk({"content": "Wrong"}), chunk(message={"content": "Hello"}, finish="stop"))),
    pytest.param((HEL, LO, chunk({}, "stop", message={"role": "assistant", "content": ""}))),
    pytest.param((HEL, LO, chunk({}, "stop", message={"role": "assistant", "content": None}))),
    pytest.param(
        (chunk(message={"content": "Hel"}), chunk(message={"content": "Hello"}, finish="stop")),
        marks=pytest.mark.tried("models", "each chunk holds the message so far", "replaces"),
    ),
    pytest.param(
        (chunk(message={"content": "Hel"}), chunk(message={"content": "lo"}, finish="stop")),
        marks=pytest.mark.tried("models", "pieces that are called message", "added"),
    ),
]


@pytest.mark.parametrize("parts", MESSAGES)
async def test_a_whole_message_replaces_and_a_delta_adds(server: ProviderServer, parts: tuple[bytes, ...]) -> None:
    heard: list[Any] = []
    response = await answer_to(server, events(*parts, DONE), on_pieces=heard.extend)
    assert response.text == "Hello"
    after = heard[len(heard) - heard[::-1].index(None) :] if None in heard else heard
    assert "".join(piece.text for piece in after if isinstance(piece, TextPiece)) == "Hello"


@pytest.mark.parametrize("between", [(), (chunk({"content": "Well: "}),)])
async def test_a_whole_message_does_not_double_a_call(server: ProviderServer, between: tuple[bytes, ...]) -> None:
    halves = [chunk(call('{"text": ')), chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"hi"}'}}]})]
    whole = chunk(message={"role": "assistant", "content": None, **call()}, finish="tool_calls")
    response = await answer_to(server, events(*between, *halves, whole, DONE))
    assert response.calls == (HI,)
    assert response.text == ("Well: " if between else "")


async def test_a_whole_message_with_the_text_alone_leaves_the_call(server: ProviderServer) -> None:
    whole = chunk(message={"role": "assistant", "content": "Well: "}, finish="tool_calls")
    response = await answer_to(server, events(chunk({"content": "Well"}), chunk(call()), whole, DONE))
    assert (response.text, response.calls) == ("Well: ", (HI,))


# ------------------------------------------------------------------ names of tools

OTHERS = tuple(ToolSpec(name, "…", {"type": "object"}) for name in ("web_search", "memory_search", "mcp.read-file"))
DECORATED = [
    pytest.param("functions.reply", marks=pytest.mark.tried("models", "tool name `functions.reply`", "called")),
    pytest.param("functions.reply:0", marks=pytest.mark.tried("models", "tool name `functions.reply:0`", "called")),
    pytest.param(
        "reply<|channel|>commentary",
        marks=pytest.mark.tried("models", "tool name `reply<\\|channel\\|>commentary`", "called"),
    ),
    pytest.param(" reply\n", marks=pytest.mark.tried("models", "tool name with blanks around it", "called")),
    pytest.param("default_api:reply", marks=pytest.mark.tried("models", "tool name `default_api:reply`", "called")),
    pytest.param("Reply", marks=pytest.mark.tried("models", "tool name in another case", "called")),
    "default_api.reply",
    "assistant<|channel|>commentary to=functions.reply",
    "reply[ARGS]",
    "functions.reply:call_7f3a",
    "reply-1",
    "reply json",
    "tools/reply",
    "functions_reply",
    "reply:12",
    "reply_0",
    "REPLY",
    "reply()",
    '"reply"',
    "`reply`",
    "reply<|constrain|>json",
    "reply</tool_call>",
    "<|channel|>commentary to=functions.reply",
    "assistant to=functions.reply<|message|>",
    "reply\u200b",
    "mcp__pegasus__reply",
    "namespace::reply",
    "multi_tool_use.reply",
    "pegasus.reply",
    "call_reply",
]


@pytest.mark.parametrize("name", DECORATED)
async def test_a_decorated_name_of_a_tool_counts(server: ProviderServer, name: str) -> None:
    response = await answer_to(server, events(chunk(call(name=name), "tool_calls"), DONE), tools=(REPLY, *OTHERS))
    assert response.calls == (HI,)


@pytest.mark.parametrize(("name", "own"), [("webSearch", "web_search"), ("functions.mcp.read-file:3", "mcp.read-file")])
async def test_a_name_with_other_separators_counts(server: ProviderServer, name: str, own: str) -> None:
    response = await answer_to(server, events(chunk(call(name=name), "tool_calls"), DONE), tools=(REPLY, *OTHERS))
    assert [made.name for made in response.calls] == [own]


@pytest.mark.parametrize(
    "name", ["github.search", "search", "functions.web_search:memory_search", "functions", "", "reply.web_search"]
)
async def test_a_name_that_is_not_that_of_exactly_one_tool_is_unknown(server: ProviderServer, name: str) -> None:
    response = await answer_to(server, events(chunk(call(name=name), "tool_calls"), DONE), tools=(REPLY, *OTHERS))
    assert [made.name for made in response.calls] == [name]


async def test_two_tools_that_differ_in_case_are_told_apart(server: ProviderServer) -> None:
    tools = (ToolSpec("Read", "…", {"type": "object"}), ToolSpec("read", "…", {"type": "object"}))
    for name, own in (("Read", "Read"), ("read", "read"), ("functions.READ", "functions.READ")):
        server.requests.clear()
        response = await answer_to(server, events(chunk(call(name=name), "tool_calls"), DONE), tools=tools)
        assert [made.name for made in response.calls] == [own]


# ------------------------------------------------------------------ arguments

SURPLUS = [
    pytest.param(
        '{"text": "hi"}{"text": "hi"}',
        marks=pytest.mark.tried("models", "arguments: the same object twice", "repaired"),
    ),
    pytest.param(
        '```json\n{"text": "hi"}\n```',
        marks=pytest.mark.tried("models", "arguments: a code block around them", "repaired"),
    ),
    pytest.param('{"text": "hi"}}', marks=pytest.mark.tried("models", "arguments: a bracket too many", "repaired")),
    pytest.param(
        '{"text": "hi"}<|im_end|>',
        marks=pytest.mark.tried("models", "arguments: a special token behind them", "repaired"),
    ),
    pytest.param('{}{"text": "hi"}', marks=pytest.mark.tried("models", "arguments: `{}` before them", "repaired")),
]


@pytest.mark.parametrize("arguments", SURPLUS)
async def test_arguments_with_a_surplus_are_repaired(server: ProviderServer, arguments: str) -> None:
    assert (await answer_to(server, events(chunk(call(arguments), "tool_calls"), DONE))).calls == (HI,)


WRAPPED = [
    '{"arguments": {"text": "hi"}}',
    '{"name": "reply", "parameters": {"text": "hi"}}',
    '{"type": "function", "function": "reply", "input": {"text": "hi"}}',
    '{"properties": {"text": "hi"}}',
]


@pytest.mark.parametrize("arguments", WRAPPED)
async def test_arguments_that_are_a_whole_call_are_unwrapped(server: ProviderServer, arguments: str) -> None:
    assert (await answer_to(server, events(chunk(call(arguments), "tool_calls"), DONE))).calls == (HI,)


async def test_a_tool_of_which_input_is_an_argument_gets_it(server: ProviderServer) -> None:
    schema = {"type": "object", "properties": {"input": {"type": "object"}}}
    tools = (ToolSpec("reply", "…", schema),)
    response = await answer_to(
        server, events(chunk(call('{"input": {"text": "hi"}}'), "tool_calls"), DONE), tools=tools
    )
    assert response.calls[0].arguments == {"input": {"text": "hi"}}


async def test_different_objects_are_left_to_the_model(server: ProviderServer) -> None:
    both = '{"text": "hi"}{"text": "ho"}'
    (made,) = (await answer_to(server, events(chunk(call(both), "tool_calls"), DONE))).calls
    assert (made.arguments, bool(made.error)) == ({}, True)


# ------------------------------------------------------------------ calls written as text

WRITTEN = {
    "Kimi": (
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.reply:0<|tool_call_argument_begin|>{"text": "hi"}'
        "<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "MiniMax": (
        '<minimax:tool_call>\n<invoke name="reply">\n<parameter name="text">hi</parameter>\n</invoke>\n</minimax:tool_call>'
    ),
    "DeepSeek 3.2": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="reply">\n<｜DSML｜parameter name="text" string="true">hi'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"
    ),
}


@pytest.mark.parametrize("family", WRITTEN)
async def test_a_call_written_as_text_is_made_and_nothing_of_it_is_shown(server: ProviderServer, family: str) -> None:
    heard: list[Any] = []
    text = f"Let me answer.\n\n{WRITTEN[family]}"
    parts = [chunk({"content": text[at : at + 5]}) for at in range(0, len(text), 5)]
    response = await answer_to(server, events(*parts, chunk({}, "stop"), DONE), on_pieces=heard.extend)
    assert [(made.name, made.arguments, made.error) for made in response.calls] == [("reply", {"text": "hi"}, None)]
    assert response.text.strip() == "Let me answer."
    assert None not in heard
    assert "".join(piece.text for piece in heard if isinstance(piece, TextPiece)).strip() == "Let me answer."
