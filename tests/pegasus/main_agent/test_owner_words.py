"""What an owner has typed goes with the work that comes of it, and nothing else does."""

from __future__ import annotations

import attrs
import pytest

from pegasus.intake import Intake
from pegasus.messages import RELAYED, ChannelInfo, InboundMessage
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted
from pegasus.policy import OwnerMessage, ToolKind, parse_owner_messages
from pegasus.settings import AgentSettings, Settings
from pegasus.tasks import GetContext
from pegasus.testing.scripted import ScriptedModel, call, say
from pegasus.testing.world import CLI, FakeChannel, open_world
from pegasus.tools import Reach, parameters
from tests.pegasus.main_agent.voices import add_tool, agent_of, result_of, spawn, tasks_of

GUEST = ChannelInfo("slack", "#general", "eve")
SETTINGS = Settings(agent=AgentSettings(owners=("cli:*",)))
TWO_CHANNELS = {"settings": SETTINGS, "channels": (FakeChannel("cli"), FakeChannel("slack"))}


async def words_of(world):
    """The owner's words that each task has, in the order of the tasks."""
    return [parse_owner_messages(task.metadata) for task in await tasks_of(world)]


@pytest.mark.parametrize(
    ("channel", "metadata", "is_kept"),
    [(CLI, {}, True), (CLI, {RELAYED: True}, False), (CLI, {"outside": []}, False), (GUEST, {}, False)],
)
async def test_only_what_an_owner_has_typed_is_kept_with_a_task(autojump_clock, channel, metadata, is_kept):
    async with open_world(
        ScriptedModel([say("", spawn("x")), say(), say()]),
        task_model=ScriptedModel(lambda request: "done"),
        **TWO_CHANNELS,
    ) as world:
        await Intake(world.journal).submit(InboundMessage("Pay bob@example.com", channel, "m-1", metadata))
        await world.idle()
        [words] = await words_of(world)
    assert words == ((OwnerMessage("cli:main/m-1", "Pay bob@example.com"),) if is_kept else ())


async def test_one_task_may_act_by_a_message_and_the_others_may_read_by_it(autojump_clock):
    both = say("", spawn("x"), call("spawn_subagent", "s2", description="y", input="y"))
    async with open_world(
        ScriptedModel([both, say(), say(), say()]), task_model=ScriptedModel(lambda request: "done"), **TWO_CHANNELS
    ) as world:
        await world.say("Pay bob@example.com")
        await world.idle()
        assert sorted(words.may_act for (words,) in await words_of(world)) == [False, True]


async def test_a_task_that_is_begun_because_of_another_one_has_no_words(autojump_clock):
    steps = [say("", spawn("x")), say("", call("spawn_subagent", "s2", description="y", input="y")), say()]
    async with open_world(
        ScriptedModel(steps), task_model=ScriptedModel(lambda request: "done"), **TWO_CHANNELS
    ) as world:
        await world.say("Pay bob@example.com")
        await world.idle()
        assert sorted(map(len, await words_of(world))) == [0, 1]


async def test_an_order_to_a_task_that_goes_on_adds_its_own_words(autojump_clock):
    ids = []

    def think(request):
        text = request.turns[-1].text
        if text.endswith("begin"):
            return say("", spawn("x"))
        if text.endswith("bob@example.com"):
            return say("", call("resume_task", "r", taskId=ids[0], input="go on"))
        return say()

    async with open_world(ScriptedModel(think), task_model=ScriptedModel(lambda request: "done")) as world:
        await world.say("begin", message_id="m-1")
        await world.idle()
        ids.append((await tasks_of(world))[0].task_id)
        await world.say("Pay bob@example.com", message_id="m-2")
        await world.idle()
        context = await agent_of(world).ask(GetContext, ids[0])
    assert context.owner_messages == (
        OwnerMessage("cli:main/m-1", "begin"),
        OwnerMessage("cli:main/m-2", "Pay bob@example.com"),
    )


async def test_what_the_agent_has_done_itself_no_task_does_again(autojump_clock):
    """It pays by the owner's words, once, and the task that is begun then may only read by them."""
    paid = []

    async def pay(arguments, context):
        paid.append(arguments)
        return {}

    async def page(arguments, context):
        return {}

    once = call("pay", "p1", to="bob@example.com")
    answer = say("", call("page", "w"), once, call("pay", "p2", to="bob@example.com"), spawn("x"))
    task = ScriptedModel(lambda request: "done")
    async with open_world(ScriptedModel([answer, say(), say(), say()]), task_model=task, **TWO_CHANNELS) as world:
        add_tool(world, "page", page, source=Untrusted.WEB)
        spec = ToolSpec("pay", "Pay.", parameters({"to": {"type": "string"}}))
        add_tool(world, "pay", pay, category="mcp", kind=ToolKind.ACT, reach=Reach.OUTSIDE)
        tools = world.tree.services.main_agent.toolset.now.executor._tools
        tools["pay"] = attrs.evolve(tools["pay"], spec=spec)
        await world.say("Pay bob@example.com")
        await world.idle()
        results = result_of(world.session(), "pay")
        [[words]] = await words_of(world)
    assert paid == [{"to": "bob@example.com"}]
    assert "needs a yes" in results[1]
    assert not words.may_act
