"""Whatever was said and done, both wire formats make a payload of it that a strict provider takes."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pegasus.models import AssistantTurn, ModelRequest, ToolCall, ToolResult, ToolSpec, Turn, UserTurn
from pegasus.models.formats.anthropic import AnthropicWire
from pegasus.models.formats.chat import ChatWire
from pegasus.models.formats.chat_dialects import GEMINI, OPENAI
from pegasus.models.formats.wire_format import wire_id, wire_name
from pegasus.testing.provider.formats import parse
from pegasus.testing.provider.requests import ProviderRequest
from tests.pegasus.models.formats.pictures import KINDS, image

TEXT = st.text(st.characters(), max_size=20) | st.sampled_from(["", " \n", "\ud83d", "\u2028", "\x00", "a b", "ok"])
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
JSON: Any = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)
THINKING = st.lists(
    st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "s"}, TEXT)
    | st.just({"type": "redacted_thinking", "data": "xyz"}),
    max_size=2,
)
IMAGES = st.lists(st.sampled_from([image(mime) for mime in KINDS]), max_size=2).map(tuple)
HEADERS = {"content-type": "application/json"}


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Turn, ...]:
    turns: list[Turn] = [UserTurn(text=draw(TEXT), images=draw(IMAGES))]
    used: set[str] = set()
    for _ in range(draw(st.integers(0, 4))):
        ids = [word for word in draw(st.lists(TEXT, max_size=3, unique=True)) if word not in used]
        used |= set(ids)
        calls = tuple(ToolCall(word, draw(TEXT), draw(st.dictionaries(TEXT, JSON, max_size=2))) for word in ids)
        thinking = tuple(draw(THINKING))
        turns.append(AssistantTurn(draw(TEXT), calls, thinking, draw(st.sampled_from(["anthropic", "gemini", None]))))
        results = tuple(ToolResult(call.id, call.name, draw(TEXT), draw(st.booleans())) for call in calls)
        turns.append(UserTurn(results, draw(TEXT), draw(IMAGES)))
    return tuple(turns)


@st.composite
def requests(draw: st.DrawFn) -> ModelRequest:
    names = draw(st.lists(TEXT, max_size=3, unique_by=wire_name))
    tools = tuple(ToolSpec(name, draw(TEXT), {"type": "object", "properties": {}}) for name in names)
    choice = draw(st.sampled_from(["auto", "none", "required", *names])) if names else "auto"
    return ModelRequest(draw(TEXT), draw(conversations()), tools, choice, draw(st.integers(1, 9999)))


MANY = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@MANY
@given(requests())
def test_anthropic_takes_it(request: ModelRequest) -> None:
    same_conversation(request, parse("/v1/messages", HEADERS, AnthropicWire("m").body(request)))


@MANY
@given(requests(), st.sampled_from(["openai", "gemini"]))
def test_openai_takes_it(request: ModelRequest, kind: str) -> None:
    same_conversation(
        request,
        parse("/v1/chat/completions", HEADERS, ChatWire("m", GEMINI if kind == "gemini" else OPENAI).body(request)),
    )


@MANY
@given(requests())
def test_a_payload_made_again_is_the_same(request: ModelRequest) -> None:
    """Also when its turns are other objects."""
    fresh = attrs.evolve(request, turns=tuple(attrs.evolve(turn) for turn in request.turns))
    for wire in (AnthropicWire("m"), ChatWire("m")):
        assert wire.body(request) == wire.body(request) == wire.body(fresh)


@MANY
@given(requests(), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=4))
def test_what_was_sent_before_does_not_change_a_payload(request: ModelRequest, before: list[tuple[int, bool]]) -> None:
    """It may have been shorter, or have other turns in the middle, as without calls."""
    for wire, fresh in ((AnthropicWire("m"), AnthropicWire("m")), (ChatWire("m"), ChatWire("m"))):
        for cut, is_other in before:
            turns = request.turns[: max(1, cut - cut % 2 + 1)]
            if is_other and len(turns) > 1:
                turns = (turns[0], AssistantTurn("another"), *turns[2:])
            wire.body(attrs.evolve(request, turns=turns))
        assert wire.body(request) == fresh.body(request)


def same_conversation(sent: ModelRequest, read: ProviderRequest) -> None:
    """Nothing is lost or moved on the way."""
    assert len(read.turns) == len(sent.turns)
    for ours, theirs in zip(sent.turns, read.turns, strict=True):
        if ours.text.strip():
            assert theirs.text == ours.text.encode("utf-8", "replace").decode()
        if isinstance(ours, AssistantTurn) and isinstance(theirs, AssistantTurn):
            assert [call.id for call in theirs.calls] == [wire_id(call.id) for call in ours.calls]
            assert [call.name for call in theirs.calls] == [wire_name(call.name) for call in ours.calls]
        if isinstance(ours, UserTurn) and isinstance(theirs, UserTurn):
            assert [result.call_id for result in theirs.results] == [wire_id(r.call_id) for r in ours.results]
            assert [shown.data for shown in theirs.images] == [shown.data for shown in ours.images]
