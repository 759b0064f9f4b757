"""Tasks whose conversation a provider finds too long: it is shortened, and the model is asked again."""

import pytest

from pegasus.models import ModelError, TraitStore
from pegasus.tasks import TaskState
from pegasus.testing.scripted import ScriptedModel, call, say
from tests.pegasus.tasks.world import open_desk

LONG = "word " * 2_000


def refusal(kind="overflow", may_be_length=False, window=0):
    error = ModelError("scripted/test: refused", kind=kind, status=400, context_window=window)
    error.may_be_length = may_be_length
    return error


def wordless():
    return refusal("request", may_be_length=True)


def sizes(model):
    """Characters of each request."""
    return [sum(len(str(turn)) for turn in request.turns) for request in model.requests]


@pytest.mark.parametrize("error", [refusal(window=8_192), wordless()])
async def test_the_conversation_is_shortened_and_the_model_asked_again(autojump_clock, error):
    first, second = say("I look.", call("echo", "a", x=LONG)), say("Again.", call("echo", "b", x="short"))
    model, traits = ScriptedModel([first, error, second, "It is found."]), TraitStore()
    async with open_desk(model, traits=traits) as desk:
        assert (await desk.run("find it")).result == "It is found."
        assert len(desk.calls) == 2, "no call is made again"
    _, refused, shortened, later = sizes(model)
    assert shortened < refused / 1.5
    assert later < refused / 1.5, "it stays so"
    results = [result for turn in model.requests[3].turns for result in getattr(turn, "results", ())]
    assert len(results) == 2
    assert "characters left out" in results[0].content
    assert "short" in results[1].content
    assert traits.get(model.name).context_window == error.context_window


async def test_where_only_the_circumstances_say_so_it_is_shortened_once(autojump_clock):
    model = ScriptedModel([say("", call("echo", "a", x=LONG)), wordless(), wordless(), "never asked for"])
    async with open_desk(model) as desk:
        task = await desk.run("find it")
    assert (task.state, task.error) == (TaskState.FAILED, "scripted/test: refused")
    assert len(model.requests) == 3


async def test_where_it_is_said_it_is_shortened_until_nothing_is_left_to_shorten(autojump_clock):
    model = ScriptedModel([say("", call("echo", "a", x=LONG)), *[refusal() for _ in range(30)]])
    async with open_desk(model) as desk:
        task = await desk.run("find it")
    assert task.state is TaskState.FAILED
    assert 4 < len(model.requests) < 15
    assert sizes(model)[1:] == sorted(sizes(model)[1:], reverse=True)


async def test_what_cannot_be_shortened_fails_with_the_providers_reason(autojump_clock):
    model = ScriptedModel([refusal(), "never asked for"])
    async with open_desk(model) as desk:
        task = await desk.run("find it")
    assert (task.state, task.error) == (TaskState.FAILED, "scripted/test: refused")
