"""Pictures: what is recognised, how they are sent in both wire formats, and what happens where a model refuses them."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import attrs
import pytest

from pegasus.models import Image, ModelError, ModelRequest, ToolCall, ToolResult, UserTurn
from pegasus.models.base import AssistantTurn
from pegasus.models.formats.anthropic import AnthropicWire
from pegasus.models.formats.chat import ChatWire
from pegasus.models.formats.pictures import image_tokens, picture_problem, size_of
from pegasus.testing.provider import ProviderServer
from pegasus.testing.provider.answers import ProviderAnswer, refuse, sequence
from pegasus.testing.provider.formats import parse
from tests.pegasus.models.conftest import Ask, opened, request
from tests.pegasus.models.formats.pictures import KINDS, gif, image, jpeg, png, webp

LOOK = UserTurn(text="look", images=(image(), image("image/jpeg", "b.jpg")))
PATHS = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}


def base64(data: bytes) -> str:
    return b64encode(data).decode()


# ------------------------------------------------------------------ recognising


@pytest.mark.parametrize(
    "data",
    [png(640, 480), jpeg(640, 480), gif(640, 480), *(webp(form, 640, 480) for form in (b"VP8X", b"VP8L", b"VP8 "))],
)
def test_every_kind_tells_its_size(data: bytes) -> None:
    assert size_of(data) == (640, 480)


@pytest.mark.parametrize("data", KINDS.values())
def test_a_picture_cut_off_anywhere_harms_nobody(data: bytes) -> None:
    for end in range(len(data)):
        size_of(data[:end])
        for mime in KINDS:
            picture_problem(mime, base64(data[:end]))


@pytest.mark.parametrize("mime", KINDS)
def test_pictures_that_models_take_are_taken(mime: str) -> None:
    assert picture_problem(mime, base64(KINDS[mime])) is None


@pytest.mark.parametrize(
    ("mime", "data", "why"),
    [
        ("image/svg+xml", b"<svg/>", "not a picture that models read"),
        ("", png(), "not a picture that models read"),
        ("image/png", jpeg(), "is image/jpeg"),
        ("image/png", b"MZ\x90", "no such picture"),
        ("image/webp", b"RIFF\0\0\0\0WAVE", "no such picture"),
        ("image/png", b"", "no such picture"),
        ("image/png", png(8001, 10), "8001 x 10 pixels"),
        ("image/gif", gif(0, 0), "0 x 0 pixels"),
        ("image/png", png() + b"\0" * 4_000_000, "larger than 5 MB"),
    ],
)
def test_what_no_model_takes_is_known_before_it_is_sent(mime: str, data: bytes, why: str) -> None:
    assert why in str(picture_problem(mime, base64(data)))


def test_what_is_not_base64_is_damaged() -> None:
    assert picture_problem("image/png", "%%%%") == picture_problem("image/png", "é" * 8) == "it is damaged"


def test_large_pictures_cost_more_tokens_up_to_a_limit() -> None:
    sizes = [image_tokens(Image("image/png", base64(png(*size)))) for size in ((30, 30), (600, 500), (5000, 5000))]
    assert sizes == [1, 400, 1600]
    assert image_tokens(Image("image/png", "%%%")) > 500


# ------------------------------------------------------------------ sending


async def test_pictures_arrive(ask: Ask, server: ProviderServer) -> None:
    await ask(LOOK)
    assert server.invalid == []
    assert [seen.mime for seen in server.requests[-1].last.images] == ["image/png", "image/jpeg"]
    assert server.requests[-1].last.images[0].data == LOOK.images[0].data
    assert server.requests[-1].last.text == "look"


async def test_a_picture_without_words_and_one_behind_results_arrive(ask: Ask, server: ProviderServer) -> None:
    calls = (ToolCall("a", "reply", {}),)
    first = UserTurn(images=(image(),))
    await ask(first, AssistantTurn("", calls), UserTurn((ToolResult("a", "reply", "ok"),), images=(image(),)))
    assert server.invalid == []
    assert [len(turn.images) for turn in server.requests[-1].turns[::2]] == [1, 1]


def test_the_body_with_pictures_only_grows() -> None:
    wire = AnthropicWire("m")
    marker = b',"cache_control":{"type":"ephemeral"}}]}]}'
    turns = (UserTurn(images=(image(),)), AssistantTurn("yes"), UserTurn(text="x"))
    first, second = (wire.body(ModelRequest("s", turns[:n])) for n in (1, 3))
    assert first.endswith(marker)
    assert second.startswith(first.removesuffix(marker))


# ------------------------------------------------------------------ refusals

BLIND = [
    (400, "Invalid content type. image_url is only supported by certain models."),
    (400, "this model does not support image input"),
    (404, "No endpoints found that support image input"),
    (422, "messages[0]: unknown variant `image_url`, expected `text`"),
    (400, "m is not a multimodal model"),
    (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
]


@pytest.mark.parametrize(("status", "words"), BLIND)
@pytest.mark.parametrize("form", ["anthropic", "openai"])
def test_a_model_that_sees_nothing_gets_words_from_then_on(form: str, status: int, words: str) -> None:
    wire: Any = AnthropicWire("m") if form == "anthropic" else ChatWire("m")
    asked = request(LOOK)
    before = wire.body(asked)
    assert wire.adapt(status, {"error": {"message": words}}, asked)
    for turn in (LOOK, UserTurn(images=(image(name="new.png"),))):
        body = wire.body(request(turn))
        read = parse(PATHS[form], {"content-type": "application/json"}, body)
        assert read.last.images == ()
        assert "cannot see" in read.last.text
    assert "b.jpg" in wire.body(asked).decode()
    assert before != wire.body(asked) == wire.body(asked)
    assert not wire.adapt(status, {"error": {"message": words}}, asked)


async def test_the_call_goes_on_without_the_pictures(ask: Ask, server: ProviderServer) -> None:
    server.script = sequence(
        [refuse(400, "this model does not support image input"), ProviderAnswer("I cannot see it.")]
    )
    assert (await ask(LOOK)).text == "I cannot see it."
    assert server.count == 2
    assert "a.png" in server.requests[-1].last.text


async def test_one_bad_picture_does_not_make_a_model_blind(form: str, server: ProviderServer) -> None:
    server.script = sequence(
        [refuse(400, "messages.0.content.0.image.source: Could not process image")], lambda _: ProviderAnswer("x")
    )
    async with opened(form, server) as model:
        await model.generate(request(LOOK))
        assert server.requests[-1].last.images == ()
        await model.generate(request(LOOK, AssistantTurn("x"), UserTurn(images=(image(),))))
    assert [len(turn.images) for turn in server.requests[-1].turns[::2]] == [0, 1]


async def test_a_refusal_of_something_else_is_one(ask: Ask, server: ProviderServer) -> None:
    server.script = lambda _: refuse(400, "temperature is out of range")
    with pytest.raises(ModelError):
        await ask(LOOK)
    assert server.count == 1


def test_a_refusal_that_names_images_where_there_are_none_teaches_nothing() -> None:
    for wire in (AnthropicWire("m"), ChatWire("m")):
        assert not wire.adapt(400, {"error": {"message": "image input is not supported"}}, request())


def test_the_provider_of_the_tests_refuses_bad_pictures() -> None:
    for form, wire in (("anthropic", AnthropicWire("m")), ("openai", ChatWire("m"))):
        for bad in (attrs.evolve(image(), mime="image/gif"), attrs.evolve(image(), mime="image/tiff")):
            body = wire.body(request(UserTurn(text="x", images=(bad,))))
            assert json.loads(body)
            with pytest.raises(Exception, match=r"could not process image|data URL"):
                parse(PATHS[form], {"content-type": "application/json"}, body)
