"""Rules that send some calls to another model."""

from __future__ import annotations

import random

import pytest

from pegasus.messages import ChannelInfo
from pegasus.models import (
    AssistantTurn,
    Image,
    Label,
    LanguageModel,
    ModelClient,
    ModelConfigError,
    ModelService,
    UserTurn,
)
from pegasus.models.client import Routing, matches
from pegasus.settings import ModelSettings, RouteSettings
from pegasus.testing.scripted import ScriptedModel
from tests.pegasus.models.conftest import client, request, target

SLACK = ChannelInfo("slack", "C:1")
PICTURE = UserTurn(text="look", images=(Image("image/png", "AAAA"),))


def route(**conditions: object) -> RouteSettings:
    return RouteSettings(model="lab/x", **conditions)


@pytest.mark.parametrize(
    ("conditions", "facts", "fits"),
    [
        ({}, {}, True),
        ({"role": "subagent"}, {"role": "subagent"}, True),
        ({"role": "subagent"}, {"role": "default"}, False),
        ({"channel": "slack"}, {"channel": SLACK}, True),
        ({"channel": "slack:C:1"}, {"channel": SLACK}, True),
        ({"channel": "slack:C"}, {"channel": SLACK}, False),
        ({"channel": "sms"}, {"channel": SLACK}, False),
        ({"channel": "slack"}, {}, False),
        ({"media": "image"}, {"has_image": True}, True),
        ({"media": "image"}, {}, False),
        ({"min_tokens": 100}, {"tokens": 100}, True),
        ({"min_tokens": 100}, {"tokens": 99}, False),
        ({"max_tokens": 100}, {"tokens": 100}, True),
        ({"max_tokens": 100}, {"tokens": 101}, False),
        ({"role": "compact", "min_tokens": 5}, {"role": "compact", "tokens": 4}, False),
        ({"role": "compact", "min_tokens": 5}, {"role": "compact", "tokens": 5}, True),
    ],
)
def test_all_conditions_must_hold(conditions, facts, fits) -> None:
    call = {"role": "default", "channel": None, "has_image": False, "tokens": 0, **facts}
    assert matches(route(**conditions), **call) is fits


async def test_the_first_rule_that_fits_counts() -> None:
    rules = [RouteSettings("lab/never", role="compact"), RouteSettings("lab/first"), RouteSettings("lab/second")]
    model, others = routed(*rules)
    assert await ask(model) == "other"
    assert [name for name, other in others.items() if other.requests] == ["lab/first"]


# ------------------------------------------------------------------ the wrapper


def routed(*rules: RouteSettings, role: str = "default") -> tuple[ModelClient, dict[str, ScriptedModel]]:
    others = {rule.model: ScriptedModel(lambda asked: "other", name=rule.model) for rule in rules}
    own = ScriptedModel(lambda asked: "own", name="lab/own")
    return client(own, Routing([(rule, target(others[rule.model])) for rule in rules]), role=role), others


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


async def test_the_size_is_that_of_the_prompt(autojump_clock) -> None:
    model, _ = routed(RouteSettings("lab/x", min_tokens=1000))
    assert await ask(model, text="word " * 100) == "own"
    assert await ask(model, text="word " * 1000) == "other"


async def test_rules_hold_for_roles_and_not_for_models_that_were_named() -> None:
    assert await ask(routed(RouteSettings("lab/x"), role="compact")[0]) == "other"
    assert await ask(routed(RouteSettings("lab/x"), role="lab/own")[0]) == "own"


def models(**settings: object) -> ModelService:
    return ModelService(ModelSettings(default="ollama/own", **settings), {}, rng=random.Random(1))


async def test_the_rules_of_the_settings_are_in_force() -> None:
    made = models(routes={"all": RouteSettings("offline/stand-in")}, fallback=("ollama/own",))
    assert "stand-in" in (await made.client().generate(request())).text


def test_a_rule_with_a_model_that_cannot_be_used_is_reported_before_any_call() -> None:
    with pytest.raises(ModelConfigError, match=r"models\.routes\.eyes\.model.*ANTHROPIC_API_KEY"):
        models(routes={"eyes": RouteSettings("anthropic/x")})
