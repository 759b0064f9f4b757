"""Rules that send some calls to another model."""

from __future__ import annotations

import random

import pytest

from pegasus.messages import ChannelInfo
from pegasus.models import LanguageModel, ModelConfigError, Models, UserTurn
from pegasus.models.base import AssistantTurn, Image, Label, ToolCall, ToolResult
from pegasus.models.routing import Facts, RoutedModel, choose
from pegasus.models.sizing import Sizer, text_size
from pegasus.settings import ModelSettings, RouteSettings
from pegasus.testing.scripted import ScriptedModel
from tests.pegasus.models.conftest import REPLY, request

SLACK = ChannelInfo("slack", "C:1")
PICTURE = UserTurn(text="look", images=(Image("image/png", "AAAA"),))


def route(**conditions: object) -> RouteSettings:
    return RouteSettings(model="lab/x", **conditions)


@pytest.mark.parametrize(
    ("conditions", "facts", "fits"),
    [
        ({}, Facts(), True),
        ({"role": "subagent"}, Facts("subagent"), True),
        ({"role": "subagent"}, Facts("default"), False),
        ({"channel": "slack"}, Facts(channel=SLACK), True),
        ({"channel": "slack:C:1"}, Facts(channel=SLACK), True),
        ({"channel": "slack:C"}, Facts(channel=SLACK), False),
        ({"channel": "sms"}, Facts(channel=SLACK), False),
        ({"channel": "slack"}, Facts(), False),
        ({"media": "image"}, Facts(image=True), True),
        ({"media": "image"}, Facts(), False),
        ({"min_tokens": 100}, Facts(tokens=100), True),
        ({"min_tokens": 100}, Facts(tokens=99), False),
        ({"max_tokens": 100}, Facts(tokens=100), True),
        ({"max_tokens": 100}, Facts(tokens=101), False),
        ({"role": "compact", "min_tokens": 5}, Facts("compact", tokens=4), False),
        ({"role": "compact", "min_tokens": 5}, Facts("compact", tokens=5), True),
    ],
)
def test_all_conditions_must_hold(conditions, facts, fits) -> None:
    assert (choose([route(**conditions)], facts) == "lab/x") is fits


def test_the_first_rule_that_fits_counts() -> None:
    rules = [RouteSettings("lab/never", role="compact"), RouteSettings("lab/first"), RouteSettings("lab/second")]
    assert choose(rules, Facts()) == "lab/first"
    assert choose([], Facts()) is None


# ------------------------------------------------------------------ the wrapper


def routed(*rules: RouteSettings, role: str = "default", size=len) -> tuple[RoutedModel, dict[str, LanguageModel]]:
    others = {rule.model: ScriptedModel(lambda asked: "other", name=rule.model) for rule in rules}
    own = ScriptedModel(lambda asked: "own", name="lab/own")
    return RoutedModel(own, role, rules, others.__getitem__, size), others


async def ask(model: LanguageModel, *turns, **fields) -> str:
    return (await model.generate(request(*turns, **fields))).text


async def test_a_picture_goes_to_the_model_that_can_see() -> None:
    model, others = routed(RouteSettings("lab/eyes", media="image"))
    assert await ask(model) == "own"
    assert await ask(model, PICTURE) == "other"
    assert await ask(model, PICTURE, AssistantTurn("seen"), UserTurn(text="and now?")) == "other"
    assert model.name == "lab/own"
    assert others["lab/eyes"].requests[0].turns == (PICTURE,)


async def test_the_channel_is_that_of_the_label() -> None:
    model, _ = routed(RouteSettings("lab/x", channel="slack"))
    assert await ask(model, label=Label(channel=SLACK)) == "other"
    assert await ask(model, label=Label(channel=ChannelInfo("cli", "main"))) == "own"


async def test_size_is_only_measured_where_a_rule_asks_for_it() -> None:
    def never(asked):
        raise AssertionError

    assert await ask(routed(RouteSettings("lab/x", media="image"), size=never)[0]) == "own"
    assert await ask(routed(RouteSettings("lab/x", min_tokens=50), size=lambda asked: 50)[0]) == "other"


def models(**settings: object) -> Models:
    return Models(ModelSettings(default="ollama/own", **settings), {}, rng=random.Random(1))


def test_rules_hold_for_roles_and_not_for_models_that_were_named() -> None:
    made = models(routes={"all": RouteSettings("ollama/other")}, fallback=("ollama/own",))
    assert made.get().pick(request()).name == "ollama/other"
    assert made.get("compact").pick(request()).name == "ollama/other"
    assert made.get("ollama/own").name == "ollama/own"
    assert not isinstance(made.get("ollama/own"), RoutedModel)


def test_a_rule_with_a_model_that_cannot_be_used_is_told_before_any_call() -> None:
    with pytest.raises(ModelConfigError, match=r"models\.routes\.eyes\.model.*ANTHROPIC_API_KEY"):
        models(routes={"eyes": RouteSettings("anthropic/x")}).get()


# ------------------------------------------------------------------ sizes


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("The quick brown fox jumps over the lazy dog. " * 100, 800, 1400),
        ("def f(x):\n    return {k: v for k, v in x}\n" * 100, 900, 1600),
        ("今天天气很好,我们去公园吧。" * 100, 900, 1500),
        ("", 0, 2),
    ],
)
def test_a_size_is_about_right(text, least, most) -> None:
    assert least <= text_size(text) <= most


def test_everything_in_a_request_counts() -> None:
    sizer = Sizer()
    plain = sizer.size(request(tools=()))
    call = ToolCall("c", "reply", {"text": "word " * 100})
    turns = (UserTurn(text="hello"), AssistantTurn("", (call,)), UserTurn((ToolResult("c", "reply", "word " * 100),)))
    assert sizer.size(request(*turns, tools=())) > plain + 250
    assert sizer.size(request(PICTURE, tools=())) > plain + 1500
    assert sizer.size(request(tools=(REPLY,))) > plain + 20
    assert sizer.size(request(tools=(REPLY,))) == sizer.size(request(tools=(REPLY,)))


def test_the_upper_estimate_learns_from_what_is_reported() -> None:
    sizer = Sizer()
    assert sizer.at_most("m", 1000) > 1400
    for _ in range(20):
        sizer.learn("m", 1000, 800)
    assert 880 <= sizer.at_most("m", 1000) <= 900
    sizer.learn("m", 1000, 2000)
    assert sizer.at_most("m", 1000) >= 2200
    assert sizer.at_most("another", 1000) > 1400


def test_a_conversation_that_grows_is_measured_like_a_new_one() -> None:
    """Only what is new is looked at; but a last turn that was merged, and a compacted conversation, are noticed."""
    sizer = Sizer()
    turns = [UserTurn(text="hello " * 10)]
    for number in range(20):
        assert sizer.size(request(*turns)) == Sizer().size(request(*turns))
        turns += [AssistantTurn("word " * number), UserTurn(text="more " * number)]
    turns[-1] = UserTurn(text="merged " * 500)
    assert sizer.size(request(*turns)) == Sizer().size(request(*turns))
    compacted = [turns[0], *turns[-3:]]
    assert sizer.size(request(*compacted)) == Sizer().size(request(*compacted))
    assert sizer.size(request(*turns[:1])) == Sizer().size(request(*turns[:1]))


def test_measuring_keeps_no_conversation_alive() -> None:
    import gc
    import weakref

    sizer, turn = Sizer(), UserTurn(text="hello")
    gone = weakref.ref(turn)
    sizer.size(request(turn, AssistantTurn("a"), UserTurn(text="b")))
    del turn
    gc.collect()
    assert gone() is None
