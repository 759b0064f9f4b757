"""The scripted model, in virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from pegasus.models import ModelError
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, down, reply, say
from tests.pegasus.models.conftest import request


async def test_steps_come_in_order_and_requests_are_remembered() -> None:
    model = ScriptedModel([say("one", reply("r1", "hi", "c1", replyTo="t")), "two"])
    first, second = request(text="a"), request(text="b")
    assert (await model.generate(first)).calls[0].arguments == {"text": "hi", "channelId": "c1", "replyTo": "t"}
    assert (await model.generate(second)).text == "two"
    assert model.requests == [first, second]
    with pytest.raises(AssertionError, match="used up"):
        await model.generate(first)


async def test_a_callable_sees_the_request() -> None:
    model = ScriptedModel(lambda asked: say(asked.turns[-1].text, call("current_time", "t1", timezone="UTC")))
    response = await model.generate(request(text="hello"))
    assert (response.text, response.stop_reason) == ("hello", "tool_calls")


async def test_an_error_is_raised() -> None:
    with pytest.raises(ModelError) as caught:
        await ScriptedModel([down("overloaded")]).generate(request())
    assert caught.value.kind == "overloaded"


async def test_it_takes_its_time(autojump_clock: MockClock) -> None:
    model = ScriptedModel([After(30, "slow"), "quick"], delay=5)
    await model.generate(request())
    assert trio.current_time() == 35
    await model.generate(request())
    assert trio.current_time() == 40


async def test_a_call_that_hangs_ends_only_by_cancelling(autojump_clock: MockClock) -> None:
    model = ScriptedModel([Hang()])
    with trio.move_on_after(1000) as scope:
        await model.generate(request())
    assert scope.cancelled_caught
    assert model.cancelled == 1
