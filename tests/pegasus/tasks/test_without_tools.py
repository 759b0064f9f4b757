"""Tasks with a model whose server refuses tools: they work with text alone."""

import pytest
import trio

from pegasus.models import ModelError, TraitStore
from pegasus.tasks import TaskState
from pegasus.testing.scripted import ScriptedModel, call, say
from tests.pegasus.tasks.world import StubMemory, open_desk


def refusal():
    return ModelError("scripted/test: the provider does not take tools with this model (400)", kind="tools", status=400)


async def test_a_model_that_refuses_tools_is_asked_without_them_and_its_text_is_the_result(autojump_clock):
    model, traits = ScriptedModel([refusal(), "It is ten.", "It is eleven."]), TraitStore()
    async with open_desk(model, traits=traits) as desk:
        assert (await desk.run("count to ten")).result == "It is ten."
        assert (await desk.run("count to eleven")).result == "It is eleven."
    assert [bool(request.tools) for request in model.requests] == [True, False, False]
    assert traits.get(model.name).refuses_tools
    assert "no tools" in model.requests[1].system
    assert "no tools" not in model.requests[0].system


async def test_what_the_task_did_with_tools_before_becomes_text(autojump_clock):
    """The model was changed while the task was at work."""
    model = ScriptedModel([say("I look.", call("echo", "a", x="found it")), refusal(), "It is found."])
    async with open_desk(model) as desk:
        assert (await desk.run("find it")).result == "It is found."
    turns = model.requests[2].turns
    assert not any(turn.calls for turn in turns if hasattr(turn, "calls"))
    assert not any(turn.results for turn in turns if hasattr(turn, "results"))
    assert "found it" in "".join(turn.text for turn in turns)


async def test_a_call_of_a_model_without_tools_is_not_carried_out(autojump_clock):
    async with open_desk(ScriptedModel([refusal(), say("I would look.", call("echo", "a", x="1"))])) as desk:
        assert (await desk.run("find it")).result == "I would look."
        assert desk.calls == []


async def test_a_model_that_answers_nothing_without_tools_either_fails_with_the_reason(autojump_clock):
    async with open_desk(ScriptedModel([refusal(), refusal()])) as desk:
        task = await desk.run("find it")
    assert task.state is TaskState.FAILED
    assert "does not take tools" in task.error


@pytest.mark.parametrize("known", [True, False])
async def test_a_model_without_tools_does_not_reflect(autojump_clock, known):
    """A reflection consists of calls of the memory tools."""

    async def nothing():
        return ""

    traits = TraitStore()
    model = ScriptedModel([*([] if known else [refusal()]), "x" * 300])
    if known:
        await traits.learn(model.name, refuses_tools=True)
    async with open_desk(model, traits=traits, memory=StubMemory(nothing, nothing)) as desk:
        assert (await desk.run("tell me a story")).state is TaskState.COMPLETED
        await trio.sleep(1)
    assert not model.requests[-1].tools
