"""Settings that are replaced while the whole agent runs, in virtual time: each takes effect, and nothing is lost meanwhile."""

from __future__ import annotations

from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from pegasus.access import AccessDenied, ListApprovals
from pegasus.app import open_intake
from pegasus.identity import HEARTBEAT_FILE, WorkspaceFiles
from pegasus.intake import TooManyMessages
from pegasus.messages import ChannelInfo, InboundMessage
from pegasus.models.base import ToolSpec
from pegasus.settings import (
    AgentSettings,
    ChannelSettings,
    LimitSettings,
    PolicySettings,
    ScheduleSettings,
    SessionSettings,
    Settings,
    TaskSettings,
    ToolSettings,
)
from pegasus.settings.sections import MediaSettings
from pegasus.tasks import ListTasks, Submit, TaskState, Wait, wait_until_running
from pegasus.testing.scripted import Hang, ScriptedModel, call, reply, say
from pegasus.testing.world import FakeChannel, open_world
from pegasus.tools import Effect, Tool

EVE = ChannelInfo("slack", "#general", "eve")


@asynccontextmanager
async def running(model=None, **more):
    """A world, and the function that puts other settings in force."""
    async with open_world(model or ScriptedModel(lambda request: say()), **more) as world:
        in_force = world.tree.services.environment.in_force

        async def replace(**sections):
            return await in_force.replace(attrs.evolve(in_force.now, **sections))

        yield world, replace


async def submit(world, text="job"):
    agent = world.root.ref("tasks/agent")
    assert await wait_until_running(agent)
    return await agent.ask(Submit, text, "user", "general", "", {"channel": {"type": "cli", "channelId": "main"}})


VALUES = [
    ("agent", AgentSettings, "speech", "direct", lambda s: s.main_agent.config.now.speech),
    ("agent", AgentSettings, "show_reasoning", True, lambda s: s.main_agent.config.now.show_reasoning),
    ("agent", AgentSettings, "max_active_chats", 7, lambda s: s.main_agent.config.now.max_active_chats),
    ("agent", AgentSettings, "max_thoughts", 7, lambda s: s.main_agent.config.now.max_thoughts),
    ("agent", AgentSettings, "max_replies", 7, lambda s: s.main_agent.config.now.max_replies),
    ("agent", AgentSettings, "when_busy", "steer", lambda s: s.main_agent.config.now.when_busy),
    ("agent", AgentSettings, "steer_cap", 7, lambda s: s.main_agent.config.now.steer_cap),
    ("agent", AgentSettings, "burst_cap", 7, lambda s: s.main_agent.config.now.burst_cap),
    ("agent", AgentSettings, "owners", ("sms:+1",), lambda s: s.tasks.owners.now),
    ("agent", AgentSettings, "owners", ("sms:+1",), lambda s: s.approvals.owners.now),
    ("tasks", TaskSettings, "max_active", 7, lambda s: s.tasks.limits.now.max_active),
    ("tasks", TaskSettings, "max_queued", 7, lambda s: s.tasks.limits.now.max_queued),
    ("tasks", TaskSettings, "max_concurrent_tools", 7, lambda s: s.tasks.limits.now.max_tools),
    ("tasks", TaskSettings, "max_iterations", 7, lambda s: s.tasks.limits.now.max_iterations),
    ("tasks", TaskSettings, "timeout", 7.0, lambda s: s.tasks.limits.now.timeout),
    ("limits", LimitSettings, "guest_tasks", 7, lambda s: s.tasks.limits.now.guest_tasks),
    (
        "session",
        SessionSettings,
        "compact_threshold",
        0.5,
        lambda s: s.main_agent.compactor().settings.now.compact_threshold,
    ),
    ("media", MediaSettings, "max_bytes", 7, lambda s: s.main_agent.files.now.max_bytes),
    ("policy", PolicySettings, "owner_channel", "sms:+1", lambda s: s.approvals.policy.now.owner_channel),
]


@pytest.mark.parametrize(
    ("section", "cls", "key", "value", "look"), VALUES, ids=[f"{one[0]}.{one[2]}" for one in VALUES]
)
async def test_a_key_takes_effect_at_once(section, cls, key, value, look, autojump_clock):
    async with running() as (world, replace):
        services = world.tree.services
        assert look(services) != value
        taken_up = await replace(**{section: cls(**{key: value})})
        assert taken_up.changed == (f"{section}.{key}",)
        assert taken_up.after_restart == ()
        assert look(services) == value


async def test_tools_of_the_agent_follow_its_setting_and_its_prompt_says_so(autojump_clock):
    async with running() as (world, replace):
        toolset = world.tree.services.main_agent.toolset
        assert "cron" in [spec.name for spec in toolset.now.profile().specs]
        await replace(agent=AgentSettings(tools=("memory_*",)))
        names = [spec.name for spec in toolset.now.profile().specs]
        assert "memory_read" in names
        assert "cron" not in names
        assert "cron" not in toolset.now.profile().system_prompt


async def test_a_reload_that_does_not_concern_the_prompt_leaves_it_byte_for_byte(autojump_clock):
    async with running() as (world, replace):
        toolset = world.tree.services.main_agent.toolset
        before = toolset.now.profile()
        await replace(limits=LimitSettings(guest_tasks=3), agent=AgentSettings(max_replies=7))
        assert toolset.now.profile() is before


async def test_the_folders_that_tools_may_touch_follow(autojump_clock, tmp_path):
    async with running() as (world, replace):
        await replace(tools=ToolSettings(allowed_paths=(str(tmp_path),)))
        assert world.tree.services.tasks.context.now.allowed_paths == (tmp_path.resolve(),)
        assert world.tree.services.main_agent.files.now.context.allowed_paths == (tmp_path.resolve(),)


async def test_the_time_of_a_tool_follows(autojump_clock):
    async def hang(arguments, context):
        await trio.sleep_forever()

    tool = Tool(ToolSpec("hang", "hang", {"type": "object", "properties": {}}), hang, "custom", Effect.PURE)
    results = []

    def worker(request):
        if request.turns[-1].text:
            return say("", call("hang", "h1"))
        results.append(request.turns[-1].results[0].content)
        return say("done")

    async with running(task_model=ScriptedModel(worker), tools=[tool]) as (world, replace):
        await replace(tools=ToolSettings(timeout=7.0))
        await world.root.ref("tasks/agent").ask(Wait, await submit(world))
    assert "longer than 7 s" in results[0]


async def test_a_higher_limit_lets_a_task_begin_that_waits_and_a_lower_one_ends_none(autojump_clock):
    settings = Settings(tasks=TaskSettings(max_active=1))
    async with running(task_model=ScriptedModel([Hang(), Hang()]), settings=settings) as (world, replace):
        await submit(world)
        await submit(world)

        async def states():
            await trio.sleep(0.1)
            return [task.state for task in await world.root.ref("tasks/agent").ask(ListTasks)]

        assert await states() == [TaskState.REASONING, TaskState.IDLE]
        await replace(tasks=TaskSettings(max_active=2))
        assert await states() == [TaskState.REASONING, TaskState.REASONING]
        await replace(tasks=TaskSettings(max_active=1))
        assert await states() == [TaskState.REASONING, TaskState.REASONING]


async def test_who_may_write_and_how_much_follows(autojump_clock):
    async with running() as (world, replace):
        await world.root.stop_child("intake")
        await world.root.delete_child("intake")
        intake = await open_intake(world.tree, world.tree.services.environment)
        message = InboundMessage("hello", EVE, id="m-1")
        await intake.check_write(EVE, {})
        closed = {"cli": ChannelSettings(enabled=True), "slack": ChannelSettings(access="allow_list")}
        await replace(channels=closed)
        with pytest.raises(AccessDenied):
            await intake.check_write(EVE, {})
        await replace(
            channels={"cli": ChannelSettings(enabled=True)}, limits=LimitSettings(guest_messages_per_minute=1)
        )
        await intake.send(message)
        with pytest.raises(TooManyMessages):
            await intake.send(attrs.evolve(message, id="m-2"))


async def test_a_heartbeat_that_is_switched_on_beats_and_one_that_is_switched_off_does_not(autojump_clock, tmp_path):
    (tmp_path / HEARTBEAT_FILE).write_text("look after the roses\n")
    files = WorkspaceFiles(tmp_path, in_thread=False)
    model = ScriptedModel(lambda request: say("", reply("r1", "watered", "main")) if request.turns[-1].text else say())
    async with running(model, files=files, channels=(FakeChannel("cli"),)) as (world, replace):
        await trio.sleep(7200)
        assert model.requests == []
        await replace(schedule=ScheduleSettings(heartbeat=600.0))
        assert (await world.next_reply()).text == "watered"
        await replace(limits=LimitSettings(guest_tasks=3))  # something else does not begin the interval anew
        await replace(schedule=ScheduleSettings(heartbeat=0.0))
        seen = len(model.requests)
        await trio.sleep(7200)
        assert len(model.requests) == seen


async def test_an_open_approval_keeps_its_end_and_a_new_one_has_that_of_the_new_settings(autojump_clock):
    async def nothing(arguments, context):
        await trio.lowlevel.checkpoint()

    tool = Tool(ToolSpec("risky", "risky", {"type": "object", "properties": {}}), nothing, "custom", Effect.ONCE)
    ask = PolicySettings(default="ask", timeout=1000.0)

    def worker(request):
        return say("", call("risky", f"r{len(request.turns)}")) if request.turns[-1].text else say("done")

    settings = Settings(policy=ask)
    async with running(task_model=ScriptedModel(worker), tools=[tool], settings=settings) as (world, replace):
        await submit(world, "one")
        await trio.sleep(1)
        keeper = world.root.ref("approvals/keeper")
        [first] = await keeper.ask(ListApprovals)
        await replace(policy=attrs.evolve(ask, timeout=50.0))
        await submit(world, "two")
        await trio.sleep(1)
        [still, second] = await keeper.ask(ListApprovals)
        assert still.expires == first.expires
        assert second.expires < first.expires


async def test_messages_that_are_worked_on_survive_a_reload(autojump_clock):
    model = ScriptedModel(lambda request: say("", reply("r1", "here", "main")) if request.turns[-1].text else say())
    async with running(model, channels=(FakeChannel("cli"),)) as (world, replace):
        for number in range(20):
            await world.say(f"message {number}")
            await replace(agent=AgentSettings(max_replies=10 + number, tools=(f"memory_{number}*",)))
        for _ in range(20):
            assert (await world.next_reply()).text == "here"
