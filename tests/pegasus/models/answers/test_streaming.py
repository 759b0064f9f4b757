"""An answer is streamed piece by piece, in both wire formats, and retracted where it does not hold."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import trio

from pegasus.models import (
    CallBegun,
    CallPiece,
    LanguageModel,
    ModelError,
    ReasoningPiece,
    StreamPiece,
    TextPiece,
    ToolSpec,
)
from pegasus.models.answers import AnswerFilter, PieceRelay
from pegasus.models.stand_in import StandIn
from pegasus.testing.provider import ProviderServer
from pegasus.testing.provider.answers import Call, ProviderAnswer, cut, failing, hang, sequence
from pegasus.testing.scripted import ScriptedModel, Streamed
from tests.pegasus.models.conftest import Ask, client, opened, request

LONG = ProviderAnswer("The quick brown fox, 世界 😀.", (Call("reply", {"text": "x"}),), pieces=6)


class Listener:
    """Listener that keeps everything in `all`."""

    def __init__(self) -> None:
        self.all: list[StreamPiece | None] = []

    def __call__(self, pieces: Sequence[StreamPiece | None]) -> None:
        self.all.extend(pieces)

    @property
    def last(self) -> list[StreamPiece]:
        """The pieces since the last None."""
        start = max((n + 1 for n, piece in enumerate(self.all) if piece is None), default=0)
        return [piece for piece in self.all[start:] if piece is not None]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.last if isinstance(piece, TextPiece))

    @property
    def reasoning(self) -> str:
        return "".join(piece.text for piece in self.last if isinstance(piece, ReasoningPiece))

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Names and arguments of the calls, by their numbers."""
        names = [piece.name for piece in self.last if isinstance(piece, CallBegun)]
        arguments = [""] * len(names)
        for piece in self.last:
            if isinstance(piece, CallPiece):
                arguments[piece.number] += piece.text
        return list(zip(names, arguments, strict=True))


@pytest.fixture
def listener() -> Listener:
    return Listener()


async def test_the_pieces_are_the_text(ask: Ask, server: ProviderServer, listener: Listener) -> None:
    server.script = lambda _: LONG
    response = await ask(on_pieces=listener)
    assert len([piece for piece in listener.all if isinstance(piece, TextPiece)]) > 1
    assert listener.text == response.text == LONG.text
    assert None not in listener.all


async def test_pieces_are_told_before_the_answer_is_whole(model: LanguageModel, server: ProviderServer) -> None:
    server.script = lambda _: ProviderAnswer("never ending", hang_after=3)
    heard = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(model.generate, request(on_pieces=lambda pieces: heard.set()))
        await heard.wait()
        nursery.cancel_scope.cancel()


async def test_an_answer_that_broke_off_is_taken_back(
    ask: Ask, server: ProviderServer, listener: Listener, fast_clock: object
) -> None:
    server.script = sequence([cut(LONG, 5), failing("overloaded_error"), LONG])
    await ask(on_pieces=listener)
    assert listener.text == LONG.text
    assert listener.all.count(None) == 2


async def test_an_attempt_that_said_nothing_takes_nothing_back(
    ask: Ask, server: ProviderServer, listener: Listener, fast_clock: object
) -> None:
    server.script = sequence([cut(LONG, 0), LONG])
    await ask(on_pieces=listener)
    assert None not in listener.all


async def test_a_call_that_fails_takes_back_what_it_said(ask: Ask, server: ProviderServer, listener: Listener) -> None:
    """So that a fallback model that is asked next begins on a clean page."""
    server.script = lambda _: failing("invalid_request_error")
    with pytest.raises(ModelError):
        await ask(on_pieces=listener)
    assert listener.all == [TextPiece("Well, "), None]


async def test_a_call_that_takes_too_long_takes_back_what_it_said(
    form: str, server: ProviderServer, listener: Listener
) -> None:
    server.script = lambda _: hang(3 if form == "anthropic" else 2)
    async with opened(form, server, silence_timeout=0.3) as model:
        with pytest.raises(ModelError):
            await model.generate(request(on_pieces=listener))
    assert listener.all == [TextPiece("never ending"), None]


async def test_a_listener_that_fails_harms_nobody(ask: Ask, server: ProviderServer) -> None:
    heard: list[object] = []

    def fail(pieces: Sequence[StreamPiece | None]) -> None:
        heard.append(pieces)
        raise RuntimeError("no ears")

    server.script = lambda _: LONG
    assert (await ask(on_pieces=fail)).text == LONG.text
    assert len(heard) == 1


async def test_an_answer_in_one_piece_is_told_too(
    ask: Ask, server: ProviderServer, listener: Listener, form: str
) -> None:
    if form == "anthropic":
        whole: object = {"type": "message", "content": [{"type": "text", "text": "all"}], "stop_reason": "end_turn"}
    else:
        whole = {"choices": [{"message": {"content": "all"}, "finish_reason": "stop"}]}
    server.script = lambda _: ProviderAnswer(body=json.dumps(whole).encode(), content_type="application/json")
    await ask(on_pieces=listener)
    assert listener.all == [TextPiece("all")]


async def test_a_refused_text_is_told_like_any_other(server: ProviderServer, listener: Listener) -> None:
    chunk = {"choices": [{"delta": {"refusal": "I will not."}, "finish_reason": "stop"}]}
    server.script = lambda _: ProviderAnswer(body=b"data: %s\n\n" % json.dumps(chunk).encode())
    async with opened("openai", server) as model:
        response = await model.generate(request(on_pieces=listener))
    assert (response.stop_reason, listener.all) == ("refusal", [TextPiece("I will not.")])


@pytest.mark.parametrize("other", [StandIn(), ScriptedModel(["all"])])
async def test_models_without_a_network_tell_their_text_too(other: LanguageModel, listener: Listener) -> None:
    response = await other.generate(request(on_pieces=listener))
    assert "".join(piece.text for piece in listener.all if isinstance(piece, TextPiece)) == response.text
    assert all(isinstance(piece, TextPiece) for piece in listener.all)
    assert response.text


async def test_a_scripted_model_tells_and_takes_back_as_the_script_says(
    listener: Listener, autojump_clock: object
) -> None:
    model = ScriptedModel([Streamed(("a", None, "al", "l"), "all", pause=1.0)])
    assert (await model.generate(request(on_pieces=listener))).text == "all"
    assert listener.all == [TextPiece("a"), None, TextPiece("al"), TextPiece("l")]


async def test_an_answer_that_cannot_be_read_to_its_end_is_taken_back(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("unreadable")

    monkeypatch.setattr(AnswerFilter, "finish", fail)
    model = client(ScriptedModel([Streamed(("al", "l"), "all")]))
    with pytest.raises(ValueError, match="unreadable"):
        await model.generate(request(on_pieces=listener))
    assert (listener.text, listener.all[-1]) == ("", None)


# ------------------------------------------------------------------ reasoning and calls


def sse(*events: object) -> bytes:
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)


def chat_chunks(*deltas: object) -> ProviderAnswer:
    """An OpenAI-compatible answer of these deltas."""
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return ProviderAnswer(body=sse(*chunks, {"choices": [{"delta": {}, "finish_reason": "stop"}]}))


def message_of(*blocks: tuple[dict[str, object], list[dict[str, object]]]) -> ProviderAnswer:
    """A message of these blocks: what each begins with, and its deltas."""
    events: list[object] = [{"type": "message_start", "message": {"usage": {}}}]
    for index, (start, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}})
    return ProviderAnswer(body=sse(*events, {"type": "message_stop"}))


async def test_calls_are_streamed_with_their_arguments(ask: Ask, server: ProviderServer, listener: Listener) -> None:
    calls = (Call("reply", {"text": "one 😀"}), Call("reply", {"text": "two"}))
    server.script = lambda _: ProviderAnswer("", calls, pieces=4)
    await ask(on_pieces=listener)
    assert [(name, json.loads(text)) for name, text in listener.calls] == [(c.name, c.arguments) for c in calls]
    assert len([piece for piece in listener.all if isinstance(piece, CallPiece)]) > 2


async def test_a_call_has_the_tools_own_name(ask: Ask, server: ProviderServer, listener: Listener) -> None:
    tool = ToolSpec("weather.of the day", "", {"type": "object", "properties": {}})
    server.script = lambda request: ProviderAnswer("", (Call(request.tools[0], {}),))
    await ask(on_pieces=listener, tools=(tool,))
    assert CallBegun(0, "weather.of the day") in listener.all


async def test_a_whole_answer_streams_whole_calls(
    ask: Ask, server: ProviderServer, listener: Listener, form: str
) -> None:
    if form == "anthropic":
        block = {"type": "tool_use", "id": "a", "name": "reply", "input": {"text": "hi"}}
        whole: object = {"type": "message", "content": [block], "stop_reason": "tool_use"}
    else:
        call = {"id": "a", "function": {"name": "reply", "arguments": {"text": "hi"}}}
        whole = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    server.script = lambda _: ProviderAnswer(body=json.dumps(whole).encode(), content_type="application/json")
    await ask(on_pieces=listener)
    assert listener.all == [CallBegun(0, "reply"), CallPiece(0, '{"text":"hi"}')]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_of_a_compatible_server_is_not_text(
    server: ProviderServer, listener: Listener, field: str
) -> None:
    server.script = lambda _: chat_chunks({field: "Let me "}, {field: "see."}, {"content": "It is 4."})
    async with opened("openai", server) as model:
        response = await model.generate(request(on_pieces=listener))
    assert (listener.reasoning, listener.text, response.text) == ("Let me see.", "It is 4.", "It is 4.")


async def test_arguments_wait_for_the_name_of_their_call(server: ProviderServer, listener: Listener) -> None:
    early = {"tool_calls": [{"index": 0, "id": "a", "function": {"arguments": '{"text"'}}]}
    late = {"tool_calls": [{"index": 0, "function": {"name": "reply", "arguments": ': "hi"}'}}]}
    server.script = lambda _: chat_chunks(early, late)
    async with opened("openai", server) as model:
        await model.generate(request(on_pieces=listener))
    assert listener.all == [CallBegun(0, "reply"), CallPiece(0, '{"text"'), CallPiece(0, ': "hi"}')]


async def test_thinking_is_streamed_as_reasoning(server: ProviderServer, listener: Listener) -> None:
    thinking = [
        {"type": "thinking_delta", "thinking": "Let me "},
        {"type": "thinking_delta", "thinking": "see."},
        {"type": "signature_delta", "signature": "c2ln"},
    ]
    server.script = lambda _: message_of(
        ({"type": "redacted_thinking", "data": "eA=="}, []),
        ({"type": "thinking", "thinking": ""}, thinking),
        ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "It is 4."}]),
    )
    async with opened("anthropic", server) as model:
        response = await model.generate(request(on_pieces=listener))
    assert (listener.reasoning, listener.text, response.text) == ("Let me see.", "It is 4.", "It is 4.")


# ------------------------------------------------------------------ the relay


def relayed(*pieces: StreamPiece | None) -> list[StreamPiece | None]:
    """What a listener hears of these pieces."""
    heard: list[StreamPiece | None] = []
    relay = PieceRelay(heard.extend)
    for piece in pieces:
        relay([piece])
    relay.finish()
    together: list[StreamPiece | None] = []
    relay = PieceRelay(together.extend)
    relay(pieces)
    relay.finish()
    assert together == heard
    return heard


def test_halves_of_a_character_are_sent_as_one() -> None:
    pieces = [TextPiece(text) for text in ("a\ud83d", "\ude00", "", "b\ud83d")]
    assert relayed(*pieces) == [TextPiece(text) for text in ("a", "😀", "b", "\N{REPLACEMENT CHARACTER}")]


def test_halves_of_different_kinds_and_calls_are_kept_apart() -> None:
    first, second = "\ud83d", "\ude00"
    assert relayed(
        CallBegun(0, "a"),
        CallBegun(1, "b"),
        *(kind(first) for kind in (TextPiece, ReasoningPiece)),
        *(CallPiece(number, first) for number in (0, 1)),
        *(CallPiece(number, second) for number in (1, 0)),
        *(kind(second) for kind in (ReasoningPiece, TextPiece)),
    ) == [
        CallBegun(0, "a"),
        CallBegun(1, "b"),
        CallPiece(1, "😀"),
        CallPiece(0, "😀"),
        ReasoningPiece("😀"),
        TextPiece("😀"),
    ]


def test_half_a_character_of_a_broken_answer_is_forgotten() -> None:
    broken, whole = TextPiece("a\ud83d"), TextPiece("b")
    assert relayed(broken, None, None, whole) == [TextPiece("a"), None, whole]


def test_a_begun_call_is_retracted_too() -> None:
    assert relayed(CallBegun(0, "reply"), None, TextPiece("a")) == [CallBegun(0, "reply"), None, TextPiece("a")]


def test_empty_pieces_are_not_forwarded() -> None:
    assert relayed(ReasoningPiece(""), TextPiece(""), None, TextPiece("a")) == [TextPiece("a")]


def test_the_relay_counts_everything_that_has_to_be_paid() -> None:
    relay = PieceRelay()
    for piece in (ReasoningPiece("12"), None, CallBegun(0, "reply"), CallPiece(0, "345"), TextPiece("6789")):
        relay([piece])
    assert relay.characters == 9


def test_the_longest_text_is_that_of_one_attempt() -> None:
    relay = PieceRelay()
    for piece in (TextPiece("long"), TextPiece("er"), ReasoningPiece("a very long thought"), None, TextPiece("last")):
        relay([piece])
    assert relay.longest_text == "longer"
