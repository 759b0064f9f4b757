"""Why answers end, in both wire formats: our words for it, and no half-written call is ever run."""

from __future__ import annotations

import attrs
import pytest

from pegasus.models import AssistantTurn, ModelError, ModelResponse, TextPiece, ToolCall, ToolResult, Usage, UserTurn
from pegasus.models.formats.anthropic import AnthropicWire
from pegasus.models.formats.wire_format import stop_reason, unfinished
from pegasus.testing.provider import ProviderServer
from pegasus.testing.provider.answers import Call, ProviderAnswer, sequence
from tests.pegasus.models.conftest import Ask, request

WORDS = {
    "anthropic": {"length": "max_tokens", "refusal": "refusal"},
    "openai": {"length": "length", "refusal": "content_filter"},
}


def answers(server: ProviderServer, *script: ProviderAnswer) -> None:
    server.script = sequence(script)


@pytest.mark.parametrize("raw", ["", '{"text":"lo'])
async def test_half_a_call_is_an_error_for_the_model_and_the_calls_before_it_stand(
    ask: Ask, server: ProviderServer, form: str, raw: str
) -> None:
    whole, half = Call("reply", {"text": "one"}), Call("reply", raw)
    answers(server, ProviderAnswer("So: ", (whole, half), stop_reason=WORDS[form]["length"]))
    response = await ask()
    assert (response.text, response.stop_reason) == ("So: ", "length")
    assert (response.calls[0].arguments, response.calls[0].error) == ({"text": "one"}, None)
    assert "cut off at the token limit" in str(response.calls[1].error)


async def test_a_call_without_arguments_in_a_whole_answer_is_a_call(ask: Ask, server: ProviderServer) -> None:
    answers(server, ProviderAnswer("", (Call("current_time", ""),)))
    assert (await ask()).calls[0].error is None


async def test_a_refusal_keeps_what_was_said_and_runs_no_half_call(ask: Ask, server: ProviderServer, form: str) -> None:
    answers(server, ProviderAnswer("I was about to", (Call("reply", '{"te'),), stop_reason=WORDS[form]["refusal"]))
    response = await ask()
    assert (response.text, response.stop_reason) == ("I was about to", "refusal")
    assert "filter" in str(response.calls[0].error)


async def test_an_empty_answer_is_silence(ask: Ask, server: ProviderServer) -> None:
    answers(server, ProviderAnswer(""), ProviderAnswer(""))
    response = await ask()
    assert (response.text, response.calls, response.stop_reason) == ("", (), "end")
    assert response.usage.prompt_tokens == 200, "both calls have to be paid"
    assert len(server.requests) == 2


async def test_an_empty_answer_is_asked_for_once_more(ask: Ask, server: ProviderServer) -> None:
    answers(server, ProviderAnswer(""), ProviderAnswer("Here."))
    heard: list[object] = []
    assert (await ask(on_pieces=heard.extend)).text == "Here."
    assert "".join(piece.text for piece in heard if isinstance(piece, TextPiece)) == "Here."


@pytest.mark.parametrize(("tokens", "requests"), [(0, 2), (3, 1)])
async def test_silence_behind_results_is_usual_if_the_model_has_said_so(
    ask: Ask, server: ProviderServer, tokens: int, requests: int
) -> None:
    answers(server, ProviderAnswer("", usage=Usage(50, tokens)), ProviderAnswer("", usage=Usage(50, tokens)))
    turns = UserTurn(text="hi"), AssistantTurn("", (ToolCall("a", "reply", {"text": "x"}),))
    await ask(*turns, UserTurn((ToolResult("a", "reply", "ok"),)))
    assert len(server.requests) == requests


async def test_a_word_that_nobody_knows_is_kept(ask: Ask, server: ProviderServer) -> None:
    answers(server, ProviderAnswer("text", stop_reason="Tea_Break"))
    assert (await ask()).stop_reason == "Tea_Break"


async def test_an_answer_that_the_provider_gave_up_on_is_asked_for_again(
    ask: Ask, server: ProviderServer, fast_clock: object
) -> None:
    """Gemini ends so when it has written a call that it cannot read itself."""
    answers(
        server,
        ProviderAnswer("", stop_reason="function_call_filter: MALFORMED_FUNCTION_CALL"),
        ProviderAnswer("at last"),
    )
    assert (await ask()).text == "at last"


async def test_giving_up_every_time_is_an_error(ask: Ask, server: ProviderServer, fast_clock: object) -> None:
    server.script = lambda _: ProviderAnswer("", stop_reason="error")
    with pytest.raises(ModelError) as caught:
        await ask()
    assert (caught.value.kind, server.count) == ("protocol", 5)


async def test_what_came_before_the_provider_gave_up_is_kept(ask: Ask, server: ProviderServer) -> None:
    answers(server, ProviderAnswer("half a thou", stop_reason="error"))
    response = await ask()
    assert (response.text, response.stop_reason, server.count) == ("half a thou", "error", 1)


def test_calls_make_an_end_a_call_for_tools_and_no_calls_the_reverse() -> None:
    assert stop_reason("stop", has_calls=True) == stop_reason("", has_calls=True) == "tool_calls"
    assert stop_reason("tool_use", has_calls=False) == stop_reason("", has_calls=False) == "end"
    assert stop_reason("max_tokens", has_calls=True) == "length"


def test_the_model_is_told_to_go_on_only_where_nothing_else_makes_it() -> None:
    cut = ModelResponse("I will", (), Usage(), "length")
    assert "smaller steps" in str(unfinished(cut))
    assert "Go on" in str(unfinished(attrs.evolve(cut, stop_reason="pause")))
    assert unfinished(attrs.evolve(cut, calls=(ToolCall("1", "reply", {}),))) is None
    assert [unfinished(attrs.evolve(cut, stop_reason=word)) for word in ("end", "refusal", "odd")] == [None] * 3


@pytest.mark.parametrize(
    ("details", "word"),
    [
        ({"type": "refusal", "category": "bio", "explanation": "because"}, "because"),
        ({"category": "bio", "explanation": None}, "bio"),
        (None, ""),
        ({}, ""),
        ("x", ""),
    ],
)
def test_a_refusal_is_explained_where_the_provider_explains_it(details: object, word: str) -> None:
    assembler = AnthropicWire("m").assembler(request())
    assembler.feed_whole({"content": [], "stop_reason": "refusal", "stop_details": details})
    text = assembler.response().text
    assert word in text
    assert bool(text) == bool(word)
