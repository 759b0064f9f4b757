"""The test provider's script `steps`, and answers that take their time."""

import json

import pytest
import trio

from pegasus.models import AssistantTurn, ModelRequest, ToolCall, ToolResult, ToolSpec, UserTurn
from pegasus.models.formats.chat import ChatWire
from pegasus.testing.provider import late
from pegasus.testing.provider.answers import steps
from pegasus.testing.provider.formats import parse

STEP = ToolSpec("step", "Take one step.", {"type": "object"})


def asked(*turns, tools=(STEP,)):
    body = ChatWire("m").body(ModelRequest("sys", turns, tools))
    return parse("/v1/chat/completions", {"content-type": "application/json"}, body)


def after(left):
    call = ToolCall("a", "step", {"left": left + 1})
    return (
        UserTurn(text="Take 2 steps."),
        AssistantTurn("", (call,)),
        UserTurn((ToolResult("a", "step", json.dumps({"left": left})),)),
    )


@pytest.mark.parametrize(("turns", "left"), [((UserTurn(text="Take 2 steps."),), 2), (after(1), 1)])
def test_a_step_is_taken_with_what_is_left(turns, left):
    [call] = steps(asked(*turns)).calls
    assert (call.name, call.arguments) == ("step", {"left": left})


def test_with_nothing_left_it_says_so():
    answer = steps(asked(*after(0)))
    assert (answer.calls, answer.text) == ((), "All steps are done, and this is what came of them.")


def test_without_the_tool_there_is_nothing_to_do():
    assert steps(asked(UserTurn(text="Take 2 steps."), tools=())).calls == ()


async def test_a_late_answer_is_the_same_answer_later(autojump_clock):
    request = asked(UserTurn(text="Take 2 steps."))
    began = trio.current_time()
    assert await late(steps, 0.2)(request) == steps(request)
    assert trio.current_time() - began == pytest.approx(0.2)
