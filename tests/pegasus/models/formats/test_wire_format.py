from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegasus.models import AssistantTurn, ModelRequest, ToolSpec, Turn, Usage, UserTurn
from pegasus.models.formats.anthropic import AnthropicWire
from pegasus.models.formats.chat import ChatWire
from pegasus.models.formats.ollama import OllamaWire
from pegasus.models.formats.responses import ResponsesWire
from pegasus.models.formats.wire_format import WireFormat, encode_json, wire_id, wire_name
from pegasus.models.json_text import join_surrogates, parse_arguments
from tests.pegasus.models.conftest import request

ANY_TEXT = st.text(st.characters())


@given(ANY_TEXT)
def test_any_text_becomes_valid_utf8_json(text: str) -> None:
    assert json.loads(encode_json({"text": text}).decode()) == {"text": text.encode("utf-8", "replace").decode()}


def test_numbers_that_json_does_not_know_become_null() -> None:
    assert encode_json({"a": [float("nan"), float("inf"), 1.5]}) == b'{"a":[null,null,1.5]}'


@given(ANY_TEXT)
def test_names_and_ids_always_fit_the_wire(word: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", wire_name(word))
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", wire_id(word))


def test_what_fits_is_left_alone_and_what_does_not_stays_distinct() -> None:
    assert wire_name("server__tool") == "server__tool"
    assert wire_id("toolu_01A-b") == "toolu_01A-b"
    assert wire_id("?") != wire_id("\ud800")
    assert len({wire_name(name) for name in ("a.b", "a b", "a_b", "a:b", "a" * 65, "a" * 66, "")}) == 7


def test_a_call_names_the_tool_as_the_program_does_whatever_its_name_on_the_wire() -> None:
    """Names of MCP tools may have characters, or a length, that no provider takes."""
    long_name = "server__" + "x" * 80
    tools = tuple(ToolSpec(name, "", {"type": "object"}) for name in ("a b", long_name, "c"))
    wire = ChatWire("m")
    sent = json.loads(wire.body(request(tools=tools)))
    assembler = wire.assembler(request(tools=tools))
    names = [tool["function"]["name"] for tool in sent["tools"]]
    calls = [{"index": n, "id": f"c{n}", "function": {"name": name}} for n, name in enumerate([*names, "invented"])]
    assembler.feed({"choices": [{"delta": {"tool_calls": calls}}]})
    assert [call.name for call in assembler.response().calls] == ["a b", long_name, "c", "invented"]


@pytest.mark.parametrize("make_wire", [ChatWire, AnthropicWire, ResponsesWire, OllamaWire])
def test_each_request_has_the_prompt_and_tools_of_its_own(make_wire: Callable[[str], WireFormat]) -> None:
    def make(system: str, *names: str) -> ModelRequest:
        return request(system=system, tools=tuple(ToolSpec(name, "", {"type": "object"}) for name in names))

    requests = [make("One.", "a"), make("One.", "a"), make("Two.", "a"), make("Two.", "a", "b"), make("One.", "a")]
    wire = make_wire("m")
    assert [wire.body(each) for each in requests] == [make_wire("m").body(each) for each in requests]


@pytest.mark.parametrize("make_wire", [ChatWire, AnthropicWire, ResponsesWire, OllamaWire])
def test_a_long_conversation_is_not_copied_for_each_request(make_wire: Callable[[str], WireFormat]) -> None:
    """The pieces that are sent are those of one body, and the largest is the same object as for the request before."""
    wire, before, kept = make_wire("m"), b"", 0
    turns: list[Turn] = [UserTurn(text="one")]
    for n in range(120):
        asked = request(*turns, system=f"Prompt {n // 40}.")
        pieces = wire.pieces(asked)
        assert b"".join(pieces) == make_wire("m").body(asked)
        largest = max(pieces, key=len)
        kept += largest is before
        before = largest
        turns += [AssistantTurn(f"{n}: " + "answer " * 500), UserTurn(text=f"question {n}")]
    assert sum(map(len, pieces)) > 400_000
    assert kept > 60
    assert len(make_wire("m").pieces(request(*turns[:9]))) == 1


@pytest.mark.parametrize(
    ("raw", "arguments", "error"),
    [
        ('{"a":1}', {"a": 1}, None),
        ("", {}, None),
        ("  ", {}, None),
        ("null", {}, None),
        (None, {}, None),
        ({"a": 1}, {"a": 1}, None),
        ('{"a":', {}, "not valid JSON"),
        ('{"a":NaN}', {}, "NaN is not JSON"),
        ("[1]", {}, "must be a JSON object, not a list"),
        ('"text"', {}, "must be a JSON object, not a string"),
        ("[" * 100_000, {}, "nested too deeply"),
        ('{"a":' * 500 + "1" + "}" * 500, {}, "nested too deeply"),
    ],
)
def test_arguments_are_an_object_or_an_explanation(raw: object, arguments: object, error: str | None) -> None:
    found, why = parse_arguments(raw)
    assert found == arguments
    assert (error or "") in (why or "")
    assert (error is None) == (why is None)


def test_arguments_cut_at_the_token_limit_say_so() -> None:
    assert "cut off at the token limit" in str(parse_arguments('{"text":"lo', cut="cut off at the token limit")[1])


def test_half_characters_in_arguments_are_mended() -> None:
    assert parse_arguments('{"a":"\\ud83d\\ude00 \\ud83d"}')[0] == {"a": "😀 \N{REPLACEMENT CHARACTER}"}


def test_surrogates_from_two_pieces_of_a_stream_meet() -> None:
    assert join_surrogates("a\ud83d" + "\ude00b") == "a😀b"
    assert join_surrogates("a\ud83db") == "a\N{REPLACEMENT CHARACTER}b"
    assert join_surrogates("äß😀") == "äß😀"


@pytest.mark.parametrize("count", [-5, 10**400, True, 1.5, "7", None, [1]], ids=lambda count: repr(count)[:9])
def test_counts_that_cannot_be_are_no_usage(count: object) -> None:
    """A negative one would give a budget its money back, and a huge one cannot be multiplied by a price."""
    chat = ChatWire("m").assembler(request())
    chat.feed({"choices": [], "usage": {"prompt_tokens": count, "completion_tokens": 3}})
    assert chat.response().usage == Usage(0, 3)
    messages = AnthropicWire("m").assembler(request())
    messages.feed_whole(
        {"content": [], "usage": {"input_tokens": count, "cache_read_input_tokens": 2, "output_tokens": 3}}
    )
    assert messages.response().usage == Usage(2, 3, 2)
