"""Text is told as it comes, in both wire formats, and taken back where it did not hold."""

from __future__ import annotations

import json

import pytest
import trio

from pegasus.models import LanguageModel, ModelError
from pegasus.models.client import TextRelay
from pegasus.models.stand_in import StandIn
from pegasus.testing.provider import ProviderServer
from pegasus.testing.provider_answer import Call, ProviderAnswer, cut, failing, hang, sequence
from pegasus.testing.scripted import ScriptedModel, Streamed
from tests.pegasus.models.conftest import Ask, opened, request

LONG = ProviderAnswer("The quick brown fox, 世界 😀.", (Call("reply", {"text": "x"}),), pieces=6)


class Listener:
    """heard: the pieces since the last None. all: everything."""

    def __init__(self) -> None:
        self.all: list[str | None] = []

    def __call__(self, piece: str | None) -> None:
        self.all.append(piece)

    @property
    def heard(self) -> list[str]:
        start = max((n + 1 for n, piece in enumerate(self.all) if piece is None), default=0)
        return [piece for piece in self.all[start:] if piece is not None]


@pytest.fixture
def listener() -> Listener:
    return Listener()


async def test_the_pieces_are_the_text(ask: Ask, server: ProviderServer, listener: Listener) -> None:
    server.script = lambda _: LONG
    response = await ask(on_text=listener)
    assert len(listener.heard) > 1
    assert "".join(listener.heard) == response.text == LONG.text
    assert None not in listener.all


async def test_pieces_are_told_before_the_answer_is_whole(model: LanguageModel, server: ProviderServer) -> None:
    server.script = lambda _: ProviderAnswer("never ending", hang_after=3)
    heard = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(model.generate, request(on_text=lambda piece: heard.set()))
        await heard.wait()
        nursery.cancel_scope.cancel()


async def test_an_answer_that_broke_off_is_taken_back(
    ask: Ask, server: ProviderServer, listener: Listener, fast_clock: object
) -> None:
    server.script = sequence([cut(LONG, 5), failing("overloaded_error"), LONG])
    await ask(on_text=listener)
    assert "".join(listener.heard) == LONG.text
    assert listener.all.count(None) == 2


async def test_an_attempt_that_said_nothing_takes_nothing_back(
    ask: Ask, server: ProviderServer, listener: Listener, fast_clock: object
) -> None:
    server.script = sequence([cut(LONG, 0), LONG])
    await ask(on_text=listener)
    assert None not in listener.all


async def test_a_call_that_fails_takes_back_what_it_said(ask: Ask, server: ProviderServer, listener: Listener) -> None:
    """So that a fallback model that is asked next begins on a clean page."""
    server.script = lambda _: failing("invalid_request_error")
    with pytest.raises(ModelError):
        await ask(on_text=listener)
    assert listener.all == ["Well, ", None]


async def test_a_call_that_takes_too_long_takes_back_what_it_said(
    form: str, server: ProviderServer, listener: Listener
) -> None:
    server.script = lambda _: hang(3)
    async with opened(form, server, timeout=0.3) as model:
        with pytest.raises(ModelError):
            await model.generate(request(on_text=listener))
    assert listener.all == ["never ending", None]


async def test_a_listener_that_fails_harms_nobody(ask: Ask, server: ProviderServer) -> None:
    heard: list[object] = []

    def fail(piece: str | None) -> None:
        heard.append(piece)
        raise RuntimeError("no ears")

    server.script = lambda _: LONG
    assert (await ask(on_text=fail)).text == LONG.text
    assert len(heard) == 1


async def test_an_answer_in_one_piece_is_told_too(
    ask: Ask, server: ProviderServer, listener: Listener, form: str
) -> None:
    if form == "anthropic":
        whole: object = {"type": "message", "content": [{"type": "text", "text": "all"}], "stop_reason": "end_turn"}
    else:
        whole = {"choices": [{"message": {"content": "all"}, "finish_reason": "stop"}]}
    server.script = lambda _: ProviderAnswer(body=json.dumps(whole).encode(), content_type="application/json")
    await ask(on_text=listener)
    assert listener.all == ["all"]


async def test_a_refused_text_is_told_like_any_other(server: ProviderServer, listener: Listener) -> None:
    chunk = {"choices": [{"delta": {"refusal": "I will not."}, "finish_reason": "stop"}]}
    server.script = lambda _: ProviderAnswer(body=b"data: %s\n\n" % json.dumps(chunk).encode())
    async with opened("openai", server) as model:
        response = await model.generate(request(on_text=listener))
    assert (response.stop_reason, listener.all) == ("refusal", ["I will not."])


@pytest.mark.parametrize("other", [StandIn(), ScriptedModel(["all"])])
async def test_models_without_a_network_tell_their_text_too(other: LanguageModel, listener: Listener) -> None:
    response = await other.generate(request(on_text=listener))
    assert listener.all == [response.text]
    assert response.text


async def test_a_scripted_model_tells_and_takes_back_as_the_script_says(
    listener: Listener, autojump_clock: object
) -> None:
    model = ScriptedModel([Streamed(("a", None, "al", "l"), "all", pause=1.0)])
    assert (await model.generate(request(on_text=listener))).text == "all"
    assert listener.all == ["a", None, "al", "l"]


def test_halves_of_a_character_are_sent_as_one(listener: Listener) -> None:
    relay = TextRelay(listener)
    for piece in ("a\ud83d", "\ude00", "", "b\ud83d"):
        relay(piece)
    relay.finish()
    assert listener.all == ["a", "😀", "b", "\N{REPLACEMENT CHARACTER}"]


def test_half_a_character_of_a_broken_answer_is_forgotten(listener: Listener) -> None:
    relay = TextRelay(listener)
    for piece in ("a\ud83d", None, None, "b"):
        relay(piece)
    relay.finish()
    assert listener.all == ["a", None, "b"]
