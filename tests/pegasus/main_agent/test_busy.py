"""What a message does that arrives while its chat is being thought about (`agent.when_busy`)."""

import pytest
import trio

from pegasus.main_agent import OWN_TURN
from pegasus.messages import InboundMessage
from pegasus.outside import without_fences
from pegasus.settings import AgentSettings, Settings
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, reply, say
from pegasus.testing.world import CLI, FakeChannel, kill, open_world
from tests.pegasus.conversation.test_projection import is_valid
from tests.pegasus.main_agent.voices import SLACK, add_tool, spawn

LOOK = say("", call("current_time", "t"))


def busy(mode, **more):
    return Settings(agent=AgentSettings(when_busy=mode, **more))


def texts(request):
    """What people said since the agent last thought."""
    lines = without_fences(request.turns[-1].text).splitlines()
    return [line for line in lines if line and not line.startswith("[channel")]


async def test_a_follow_up_waits_for_its_turn(autojump_clock):
    model = ScriptedModel([After(5, LOOK), say("", reply("r1", "one")), say("", reply("r2", "two"))])
    async with open_world(model) as world:
        await world.say("first")
        await trio.sleep(1)
        await world.say("second")
        await world.idle()
        assert world.channels["cli"].texts == ["one", "two"]
    assert [texts(request) for request in model.requests] == [["first"], [], ["second"]]


async def test_steering_joins_the_thought_between_two_model_calls(autojump_clock):
    model = ScriptedModel([After(5, LOOK), say("", reply("r1", "both"))])
    async with open_world(model, settings=busy("steer")) as world:
        await world.say("first", message_id="a")
        await trio.sleep(1)
        await world.say("second", message_id="b")
        await world.say("third", message_id="c")
        await world.idle()
        [answer] = world.channels["cli"].replies
        assert (await world.status()).turns == 3
    assert texts(model.requests[1]) == ["second", "third"]
    assert answer.metadata["inReplyTo"] == "c"
    assert is_valid(model.requests[1].turns)


async def test_what_has_joined_a_thought_does_not_wait_any_more(autojump_clock):
    model = ScriptedModel([After(5, LOOK), After(5, say("", reply("r1", "all")))])
    async with open_world(model, settings=busy("steer")) as world:
        for text in ("first", "second", "third"):
            await world.say(text)
        await trio.sleep(7)
        await world.say("fourth")
        await world.say("/status")
        assert "Waiting: 1 message" in (await world.next_reply()).text


async def test_steering_leaves_other_chats_and_commands_in_the_queue(autojump_clock):
    slack = FakeChannel("slack")
    script = [After(5, LOOK), say("", reply("r1", "one")), say("", reply("r2", "two", "#general", channelType="slack"))]
    model = ScriptedModel(script)
    async with open_world(model, settings=busy("steer"), channels=(FakeChannel("cli"), slack)) as world:
        await world.say("first")
        await trio.sleep(1)
        await world.say("other", SLACK)
        await world.say("/new")
        await world.idle()
        assert slack.texts == ["two"]
    assert [texts(request) for request in model.requests] == [["first"], [], ["other"]]


async def test_no_more_than_the_cap_join_one_thought(autojump_clock):
    script = [After(5, LOOK), After(5, LOOK), say("", reply("r1", "some")), say("", reply("r2", "the rest"))]
    model = ScriptedModel(script)
    async with open_world(model, settings=busy("steer", steer_cap=2)) as world:
        await world.say("first")
        await trio.sleep(1)
        for word in ("a", "b", "c"):
            await world.say(word)
        await world.idle()
    assert [texts(request) for request in model.requests] == [["first"], ["a", "b"], [], ["c"]]


async def test_an_interruption_ends_the_model_call_and_both_are_thought_about(autojump_clock):
    model = ScriptedModel([Hang(), say("", reply("r1", "both"))])
    async with open_world(model, settings=busy("interrupt")) as world:
        await world.say("first")
        await trio.sleep(1)
        await world.say("no, second", message_id="b")
        await world.idle()
        [answer] = world.channels["cli"].replies
    assert answer.metadata["inReplyTo"] == "b"
    assert texts(model.requests[1]) == ["first", "no, second"]
    assert model.cancelled == 1


async def test_an_interruption_does_not_cut_a_tool(autojump_clock):
    model = ScriptedModel([say("", call("sleepy", "s")), say("", reply("r1", "both"))])
    done = []

    async with open_world(model, settings=busy("interrupt")) as world:

        async def run(arguments, context):
            await trio.sleep(5)
            done.append(True)
            return "slept"

        add_tool(world, "sleepy", run)
        await world.say("first")
        await trio.sleep(1)
        await world.say("second")
        await world.idle()
    assert done == [True]
    assert texts(model.requests[1]) == ["second"]


async def test_a_burst_that_waited_is_taken_up_as_one(autojump_clock):
    model = ScriptedModel([After(5, say("", reply("r1", "one"))), say("", reply("r2", "the burst"))])
    async with open_world(model, settings=busy("followup", burst_cap=5)) as world:
        await world.say("first")
        await trio.sleep(1)
        for word in ("a", "b", "c"):
            await world.say(word, message_id=word)
        await world.idle()
        answers = world.channels["cli"].replies
    assert texts(model.requests[1]) == ["a", "b", "c"]
    assert [answer.metadata["inReplyTo"] for answer in answers][1:] == ["c"]


@pytest.mark.parametrize("mode", ["steer", "interrupt"])
@pytest.mark.parametrize("own", [{"a"}, {"b"}, {"a", "b", "c"}])
async def test_a_message_that_has_to_have_a_turn_of_its_own_is_joined_with_no_other(autojump_clock, mode, own):
    def voice(request):
        text = texts(request)[-1:]
        return After(5, say("", reply(f"r-{text}", f"to {text[0]}"))) if text else say()

    model = ScriptedModel(voice)
    async with open_world(model, settings=busy(mode, burst_cap=5)) as world:
        for word in ("a", "b", "c"):
            metadata = {OWN_TURN: True} if word in own else {}
            await world.intake.submit(InboundMessage(word, CLI, word, metadata))
        await world.idle()
        answers = world.channels["cli"].replies
    found = {answer.metadata["inReplyTo"]: answer.text for answer in answers}
    assert found.items() >= {word: f"to {word}" for word in own}.items()


async def test_stop_ends_what_joined_as_well_and_loses_nothing_that_waits(autojump_clock):
    model = ScriptedModel([After(5, LOOK), Hang(), say("", reply("r1", "next"))])
    slack = FakeChannel("slack")
    async with open_world(model, settings=busy("steer"), channels=(FakeChannel("cli"), slack)) as world:
        await world.say("first")
        await trio.sleep(1)
        await world.say("second")
        await world.say("other", SLACK)
        await trio.sleep(10)
        await world.say("/stop")
        await world.idle()
        assert any("thought: second" in text for text in world.channels["cli"].texts)
    assert texts(model.requests[-1])[-2:] == [
        "[note] (Work on the message above was stopped by the user (cli).)",
        "other",
    ]


@pytest.mark.parametrize("mode", ["steer", "interrupt"])
@pytest.mark.parametrize("moment", [0.5, 1.001, 1.5, 4.999, 5.001, 5.5, 6.0, 9.0, 10.5])
async def test_whatever_the_moment_of_a_power_failure_each_message_is_dealt_with_once(autojump_clock, mode, moment):
    """All three are in one session, in order, and the last thing said answers the last of them."""

    def think(request):
        if request.turns[-1].results:
            return After(5, say("", reply("r", " ".join(heard(request)))))
        return After(5, LOOK)

    def heard(request):
        lines = [line for turn in request.turns[::2] for line in turn.text.splitlines()]
        return [line for line in lines if line in ("first", "second", "third")]

    cli, model = FakeChannel("cli"), ScriptedModel(think)
    async with open_world(model, settings=busy(mode), channels=(cli,)) as world:
        with trio.CancelScope() as scope:
            for at, word in ((0, "first"), (1, "second"), (1, "third")):
                if at:
                    await trio.sleep(min(1, max(0, moment - 0.0005)))
                await world.say(word, CLI, message_id=word)
            await trio.sleep(max(0, moment - 2))
            await kill(world)
            scope.cancel()
    async with open_world(model, disk=world.disk, settings=busy(mode), channels=(cli,)) as again:
        await again.idle()
        await trio.sleep(1)
        said = [line["content"].partition("\n")[2] for line in again.session() if line["role"] == "user"]
    assert [text for text in said if text in ("first", "second", "third")] == ["first", "second", "third"]
    assert len(said) == len(set(said))
    assert cli.texts[-1].endswith("third")
    assert cli.replies[-1].metadata["inReplyTo"] == "third"


async def test_who_is_stopped_from_another_chat_is_told(autojump_clock):
    slack = FakeChannel("slack")
    async with open_world(ScriptedModel([Hang()]), channels=(FakeChannel("cli"), slack)) as world:
        await world.say("think", SLACK, message_id="m1")
        await trio.sleep(1)
        await world.say("/stop")
        assert "thought: think" in (await world.next_reply()).text
        told = await world.next_reply("slack")
        await world.idle()
    assert told.text.startswith("I was stopped from another chat")
    assert told.metadata["inReplyTo"] == "m1"
    assert len(slack.texts) == 1


async def test_a_tasks_result_that_is_stopped_from_another_chat_is_told_all_the_same(autojump_clock):
    def think(request):
        text = request.turns[-1].text
        if "[Task" in text:
            return (
                Hang()
                if len(seen) == 0 and not seen.append(1)
                else say("", reply("r2", "the result", "#general", channelType="slack"))
            )
        return say("", spawn("count")) if "count" in text else say()

    seen, slack = [], FakeChannel("slack")
    tasks = ScriptedModel(lambda request: say("ten"))
    async with open_world(ScriptedModel(think), channels=(FakeChannel("cli"), slack), task_model=tasks) as world:
        await world.say("count", SLACK)
        await trio.sleep(20)
        assert (await world.status()).thinking_about
        await world.say("/stop")
        assert "Stopped" in (await world.next_reply()).text
        assert (await world.next_reply("slack")).text == "the result"
        await world.idle()
        assert (await world.status()).thinking_about is None
