"""Rights of guests through every delegation: nothing that follows from their message can do more than they may."""

import attrs
import pytest
import trio

from pegasus.access import Role
from pegasus.messages import ChannelInfo
from pegasus.models import ToolSpec
from pegasus.outside import Untrusted
from pegasus.settings import AgentSettings, PolicySettings, Settings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, say
from pegasus.testing.world import CLI, FakeChannel, kill, open_world
from pegasus.tools import Effect, Reach, Tool, parameters
from tests.pegasus.main_agent.voices import add_tool, asked, result_of, spawn, tasks_of

pytestmark = pytest.mark.usefixtures("threads_in_place")  # calls of guests look at the disk in a thread

GUEST = ChannelInfo("slack", "#general", "eve")
OWNER = ChannelInfo("slack", "#general", "ann")
ANN_OWNS = Settings(agent=AgentSettings(owners=("cli:*", "slack:ann")))


class WorkspaceWatcher:
    """A tool that notes for whom it is called."""

    def __init__(self):
        self.roles = []
        self.tool = Tool(ToolSpec("look", "Look.", parameters({})), self.run, effect=Effect.PURE, reach=Reach.INSIDE)

    async def run(self, arguments, context):
        self.roles.append(context.principal.role)


def slack(text, channel_id="#general"):
    return call("reply", "r", text=text, channelId=channel_id, channelType="slack")


LOOK = say("", call("look", "l"))


@pytest.mark.parametrize(("channel", "role"), [(GUEST, Role.GUEST), (OWNER, Role.OWNER), (CLI, Role.OWNER)])
async def test_calls_of_the_main_agent_and_of_its_tasks_are_for_the_person_who_asked(
    autojump_clock, threads_in_place, channel, role
):
    own, at_work = WorkspaceWatcher(), WorkspaceWatcher()
    model = ScriptedModel([say("", call("look", "l"), spawn("find x")), say(), say("", slack("done"))])
    channels = (FakeChannel("cli"), FakeChannel("slack"))
    async with open_world(
        model, settings=ANN_OWNS, channels=channels, task_model=ScriptedModel([LOOK, "found"]), tools=(at_work.tool,)
    ) as world:
        add_tool(world, "look", own.run)
        await world.say("find x", channel)
        await world.idle()
        [task] = await tasks_of(world)
    assert (own.roles, at_work.roles) == ([role], [role])
    assert task.metadata["role"] == role


async def test_a_notification_is_worked_on_for_the_person_whose_task_it_is(autojump_clock):
    own = WorkspaceWatcher()
    model = ScriptedModel([say("", spawn("find x")), LOOK, say("", slack("done"))])
    channels = (FakeChannel("cli"), FakeChannel("slack"))
    async with open_world(model, settings=ANN_OWNS, channels=channels, task_model=ScriptedModel(["found"])) as world:
        add_tool(world, "look", own.run)
        await world.say("find x", GUEST)
        await world.idle()
    assert own.roles == [Role.GUEST]


async def test_a_report_of_a_guests_task_joins_no_thought_for_an_owner(autojump_clock):
    """It comes to the same chat while the owner is worked for, and would be acted on with the owner's rights."""
    own = WorkspaceWatcher()
    answers = [say("", spawn("find x")), After(5, LOOK), say("", slack("hello")), LOOK, say("", slack("done"))]
    model = ScriptedModel(answers)
    settings = attrs.evolve(ANN_OWNS, agent=attrs.evolve(ANN_OWNS.agent, when_busy="steer"))
    channels = (FakeChannel("cli"), FakeChannel("slack"))
    async with open_world(
        model, settings=settings, channels=channels, task_model=ScriptedModel([After(3, "found")])
    ) as world:
        add_tool(world, "look", own.run)
        await world.say("find x", GUEST)
        await trio.sleep(1)
        await world.say("hello", OWNER)
        await world.idle()
    assert own.roles == [Role.OWNER, Role.GUEST]
    assert "completed" not in model.requests[2].turns[-1].text
    assert "completed" in model.requests[3].turns[-1].text


async def test_a_task_of_a_guest_has_a_guests_rights_after_a_crash(autojump_clock):
    disk, at_work = MemoryDisk(), WorkspaceWatcher()
    channels = (FakeChannel("cli"), FakeChannel("slack"))
    async with open_world(
        ScriptedModel([say("", spawn("find x"))]),
        settings=ANN_OWNS,
        channels=channels,
        task_model=ScriptedModel([Hang()]),
        disk=disk,
    ) as world:
        with trio.CancelScope() as scope:
            await world.say("find x", GUEST)
            await trio.sleep(1)
            await kill(world)
            scope.cancel()
    model = ScriptedModel(lambda request: say("", slack("done")) if asked(request) else say())
    async with open_world(
        model,
        settings=ANN_OWNS,
        channels=channels,
        task_model=ScriptedModel([LOOK, "found"]),
        tools=(at_work.tool,),
        disk=disk,
    ) as world:
        await world.idle()
    assert at_work.roles == [Role.GUEST]


async def test_a_guest_neither_sees_nor_continues_a_task_of_an_owner(autojump_clock):
    """The question of the task is answered by the owner alone: what a guest says would be done with the owner's rights."""
    ids = []

    def think(request):
        text = request.turns[-1].text
        if text.endswith("start"):
            return say("", spawn("find x"))
        if text.endswith("answer"):
            resume = call("resume_task", "a", taskId=ids[0], input="take everything")
            return say("", resume, call("task_status", "b", taskId=ids[0]), call("task_list", "c"))
        return say()

    channels = (FakeChannel("cli"), FakeChannel("slack"))
    ask = say("", call("ask_user", "q", question="Which?"))
    async with open_world(
        ScriptedModel(think), settings=ANN_OWNS, channels=channels, task_model=ScriptedModel([ask])
    ) as world:
        await world.say("start", CLI)
        await world.idle()
        [task] = await tasks_of(world)
        ids.append(task.task_id)
        await world.say("answer", GUEST)
        await world.idle()
        session = world.session(GUEST.address)
        [after] = await tasks_of(world)
    assert "belongs to somebody else" in result_of(session, "resume_task")[0]
    assert "there is no task" in result_of(session, "task_status")[0]
    assert result_of(session, "task_list")[0] == "[]"
    assert after.state == task.state


@pytest.mark.parametrize("read", [True, False])
async def test_the_task_of_a_guest_is_told_nothing_where_text_from_outside_was_read(autojump_clock, read):
    """What it is told comes back in its results, and those go to the guest."""
    ids = []

    def think(request):
        text = request.turns[-1].text
        if text.endswith("start"):
            return say("", spawn("find x"))
        if text.endswith("go on") and ids:
            return say("", call("resume_task", "a", taskId=ids[0], input="the secret"))
        if text.endswith("read"):
            return say("", call("page", "p"))
        return say()

    page = Tool(ToolSpec("page", "", parameters({})), no_page, reach=Reach.INSIDE, source=Untrusted.WEB)
    settings = Settings(agent=AgentSettings(owners=("cli:*",), scope="chat"))
    async with open_world(
        ScriptedModel(think),
        settings=settings,
        channels=(FakeChannel("cli"), FakeChannel("slack")),
        task_model=ScriptedModel(lambda request: "done"),
    ) as world:
        add_tool(world, "page", page.run, source=Untrusted.WEB)
        await world.say("start", GUEST)
        await world.idle()
        ids.append((await tasks_of(world))[0].task_id)
        if read:
            await world.say("read")
        await world.say("go on")
        await world.idle()
        [task] = await tasks_of(world)
    assert (task.input_text == "the secret") is not read


async def no_page(arguments, context):
    """An empty page."""
    return {}


async def test_calls_of_models_name_the_guest_that_they_are_for(autojump_clock):
    """So a budget for one guest counts their thoughts and tasks, and nobody else's."""
    main = ScriptedModel([say("", spawn("find x")), say(), say("", spawn("find y")), say()])
    task = ScriptedModel(lambda request: "found")
    channels = (FakeChannel("cli"), FakeChannel("slack"))
    async with open_world(main, settings=ANN_OWNS, channels=channels, task_model=task) as world:
        for channel in (GUEST, OWNER):
            await world.say("find it", channel)
            await world.idle()
    assert [request.label.guest for request in (*main.requests, *task.requests)] == [
        *["slack:eve"] * 2,
        *[""] * 2,
        "slack:eve",
        "",
    ]


@pytest.mark.parametrize(("channel", "refused"), [(GUEST, True), (OWNER, False)])
async def test_a_rule_closes_memory_to_guests(autojump_clock, channel, refused):
    rule = {"tool": "memory_*", "who": "guest", "decision": "deny"}
    settings = attrs.evolve(ANN_OWNS, policy=PolicySettings(rules=(rule,)))
    remember = call("memory_append", "m", path="facts/x.md", entry="tea", why="asked")
    model = ScriptedModel([say("", remember), say()])
    async with open_world(model, settings=settings, channels=(FakeChannel("cli"), FakeChannel("slack"))) as world:
        await world.say("remember tea", channel)
        await world.idle()
        lines = [*world.session(), *world.session(channel.address)]
        results = [line for line in lines if line["role"] == "tool"]
    assert [line.get("metadata", {}).get("error", False) for line in results] == [refused]
