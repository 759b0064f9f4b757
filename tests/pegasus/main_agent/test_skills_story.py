"""Skills through the whole tree in virtual time: what people call, what the model calls, and the limits it meets."""

import json
from contextlib import suppress

import pytest
import trio

from actors import ActorError, GaveUp
from pegasus.messages import ChannelInfo
from pegasus.settings import AgentSettings, Settings
from pegasus.skills.catalog import REFRESH_INTERVAL
from pegasus.storage import StorageError
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, reply, say
from pegasus.testing.world import FakeChannel, kill, open_world
from tests.pegasus.main_agent.voices import RESUME, delegate, notices, result_of, spawn, tasks_of


def use(name, call_id="u", **more):
    return call("use_skill", call_id, skill=name, **more)


async def test_a_person_calls_an_inline_skill(write, tmp_path, autojump_clock):
    write("fix", "Mend $1.")
    model = ScriptedModel([say("", reply("r", "mended"))])
    async with open_world(model, skills=[tmp_path]) as world:
        await world.say("/fix doors now")
        assert (await world.next_reply()).text == "mended"
        await world.idle()
        [user] = [line for line in world.session() if "item" in line.get("metadata", {})]
    assert user["content"] == (
        "[channel: cli | id: main]\n/fix doors now\n\n(The skill fix is in force. It says:)\n\nMend doors."
    )
    assert user["metadata"]["skill"] == "fix"


async def test_skills_are_in_the_prompt_and_one_that_comes_later_from_the_next_message_on(
    write, tmp_path, autojump_clock
):
    write("fix", description="Mends things.")
    model = ScriptedModel(
        [
            say("", reply("r0", "hello")),
            say("", use("late", args="x")),
            say("", reply("r", "a")),
            say("", reply("r2", "b")),
        ]
    )
    async with open_world(model, skills=[tmp_path]) as world:
        await world.say("hello")
        await world.next_reply()
        await trio.sleep(REFRESH_INTERVAL)
        write("late")
        await world.say("hi")
        await world.next_reply()
        await world.say("/late y")
        await world.next_reply()
        await world.idle()
        assert result_of(world.session(), "use_skill") == ['"Do x."']
    assert "## Available Skills\n\n" in model.requests[0].system
    assert "- fix: Mends things." in model.requests[0].system
    assert "- commit [repository or hint]: " in model.requests[0].system
    assert "- late" not in model.requests[0].system
    assert "- late" in model.requests[1].system
    assert len({repr((request.system, request.tools)) for request in model.requests[1:]}) == 1


async def test_what_an_inline_skill_does_not_allow_is_refused_until_the_message_is_done(
    write, tmp_path, autojump_clock
):
    write("fix", allowed_tools="current_time")
    model = ScriptedModel(
        [
            say("", spawn("x", "s1"), call("current_time", "t1")),
            say("", reply("r1", "done")),
            say("", spawn("y", "s2"), reply("r2", "on it")),
        ]
    )
    async with open_world(model, task_model=ScriptedModel([Hang()]), skills=[tmp_path]) as world:
        await world.say("/fix it")
        assert (await world.next_reply()).text == "done"
        await world.say("and now something else")
        assert (await world.next_reply()).text == "on it"
        await world.idle()
        refused, spawned = result_of(world.session(), "spawn_subagent")
        [clock] = result_of(world.session(), "current_time")
        assert len(await tasks_of(world)) == 1
    assert refused.startswith("Error: spawn_subagent: not allowed while the skill fix is in force")
    assert json.loads(spawned)["status"] == "spawned"
    assert "iso" in json.loads(clock)


async def test_a_skill_that_the_model_calls_has_its_limits_from_then_on(write, tmp_path, autojump_clock):
    write("fix", allowed_tools="current_time")
    model = ScriptedModel([say("", use("fix")), say("", spawn("x")), say("", reply("r", "no"))])
    async with open_world(model, skills=[tmp_path]) as world:
        await world.say("fix it, will you")
        await world.next_reply()
        await world.idle()
        [refused] = result_of(world.session(), "spawn_subagent")
    assert "not allowed while the skill fix is in force" in refused


async def test_a_crash_does_not_lift_the_limits(write, tmp_path, autojump_clock):
    write("fix", allowed_tools="current_time")
    first = ScriptedModel([say("", use("fix")), say("", call("current_time", "t")), Hang()])
    cli = FakeChannel("cli")
    async with open_world(first, skills=[tmp_path], channels=(cli,)) as world:
        await world.say("fix it")
        await trio.sleep(5)
        await kill(world)
    second = ScriptedModel([say("", spawn("x")), say("", reply("r", "no"))])
    async with open_world(second, skills=[tmp_path], channels=(cli,), disk=world.disk) as again:
        assert (await again.next_reply()).text == "no"
        await again.idle()
        [refused] = result_of(again.session(), "spawn_subagent")
    assert "not allowed while the skill fix is in force" in refused


async def test_the_model_of_a_skill_thinks_while_it_is_in_force(write, tmp_path, autojump_clock):
    write("fix", model="compact")
    model, other = (
        ScriptedModel([say("", reply("r2", "as ever"))]),
        ScriptedModel([say("", reply("r", "by the other"))]),
    )
    async with open_world(model, task_model=other, skills=[tmp_path]) as world:
        await world.say("/fix it")
        assert (await world.next_reply()).text == "by the other"
        await world.say("thanks")
        assert (await world.next_reply()).text == "as ever"


async def test_a_person_calls_a_forked_skill_and_hears_what_comes_of_it(write, tmp_path, autojump_clock):
    write("fix", "Mend $1.", context="fork", allowed_tools="current_time")
    model, task_model = ScriptedModel(delegate), ScriptedModel([After(10, "It is mended.")])
    async with open_world(model, task_model=task_model, skills=[tmp_path]) as world:
        await world.say("/fix doors")
        told = (await world.next_reply()).text
        assert "It is mended." in (await world.next_reply()).text
        await world.idle()
        [task] = await tasks_of(world)
        assert len(notices(world.session())) == 1
        assert world.channels["cli"].texts[0] == told
    assert told == f"/fix runs as task {task.number}. You will hear what comes of it."
    assert task.input_text == "Mend doors."
    offered = {tool.name for tool in task_model.requests[0].tools}
    assert offered == {"current_time", "notify", "ask_user", "ask_permission"}
    assert len(model.requests) == 1  # none for the call itself


@pytest.mark.parametrize("operation", range(1, 14))
async def test_a_forked_skill_is_begun_and_told_once_also_if_the_machine_dies_over_it(
    write, tmp_path, autojump_clock, operation
):
    write("fix", "Mend $1.", context="fork")
    cli, model = FakeChannel("cli"), ScriptedModel(delegate)
    with suppress(GaveUp):
        async with open_world(
            model, task_model=ScriptedModel(lambda _: Hang()), skills=[tmp_path], channels=(cli,), settings=RESUME
        ) as world:
            await world.say("/fix doors")
            world.disk.lose_power(operation)
            with suppress(ActorError):
                await world.idle()
            await kill(world)
    world.disk.crash()
    for _ in range(2):
        async with open_world(
            model,
            task_model=ScriptedModel(lambda _: Hang()),
            skills=[tmp_path],
            channels=(cli,),
            settings=RESUME,
            disk=world.disk,
        ) as again:
            await again.idle()
            [task] = await tasks_of(again)
    assert cli.texts == [f"/fix runs as task {task.number}. You will hear what comes of it."]
    assert model.requests == []


async def test_the_model_forks_a_skill_and_thinks_no_further(write, tmp_path, autojump_clock):
    write("fix", "Mend $1.", context="fork")
    model = ScriptedModel([say("", use("fix", args="doors"))])
    async with open_world(model, task_model=ScriptedModel([Hang()]), skills=[tmp_path]) as world:
        await world.say("mend the doors")
        await world.idle()
        [task] = await tasks_of(world)
        assert json.loads(result_of(world.session(), "use_skill")[0])["taskId"] == task.task_id
    assert len(model.requests) == 1


async def test_what_people_may_not_call_is_answered_like_a_command_that_does_not_exist(write, tmp_path, autojump_clock):
    write("hidden", user_invocable="false")
    model = ScriptedModel([])
    async with open_world(model, skills=[tmp_path]) as world:
        await world.say("/hidden x")
        assert (await world.next_reply()).text.startswith("There is no command /hidden.")
        await world.idle()
    assert model.requests == []


async def test_the_help_lists_skills(write, tmp_path, autojump_clock):
    write("fix", argument_hint="<what>", description="Mends things.")
    async with open_world(ScriptedModel([]), skills=[tmp_path]) as world:
        await world.say("/help")
        text = (await world.next_reply()).text
    assert "\n/fix <what> — Mends things." in text
    assert "\n/commit [repository or hint] — " in text


async def test_a_skill_that_is_called_while_another_message_is_thought_about_does_not_join_it(
    write, tmp_path, autojump_clock
):
    write("fix", allowed_tools="reply")
    model = ScriptedModel([After(10, say("", reply("r", "first"))), say("", reply("r2", "second"))])
    settings = Settings(agent=AgentSettings(when_busy="steer"))
    async with open_world(model, skills=[tmp_path], settings=settings) as world:
        await world.say("a long thing")
        await trio.sleep(1)
        await world.say("/fix it")
        assert (await world.next_reply()).text == "first"
        assert (await world.next_reply()).text == "second"


async def test_other_chats_are_not_held_by_the_limits(write, tmp_path, autojump_clock):
    write("fix", allowed_tools="reply")
    model = ScriptedModel(
        [say("", reply("r", "a")), say("", call("current_time", "t")), say("", reply("r2", "b", "D-x"))]
    )
    slack = ChannelInfo("slack", "D-x", "u")
    channels = (FakeChannel("cli"), FakeChannel("slack"))
    async with open_world(model, skills=[tmp_path], channels=channels) as world:
        await world.say("/fix it")
        await world.say("what time is it?", slack)
        assert (await world.next_reply("slack")).text == "b"
        await world.idle()
        assert "Error" not in result_of(world.session(), "current_time")[0]


@pytest.mark.parametrize("operation", range(1, 7))
async def test_a_call_that_the_disk_refuses_begins_no_task(write, tmp_path, autojump_clock, operation):
    write("dig", context="fork")
    task_model = ScriptedModel(lambda request: say("dug"))
    disk = MemoryDisk(delay=0.1)
    async with open_world(
        ScriptedModel(lambda request: say("")), disk=disk, task_model=task_model, skills=[tmp_path]
    ) as world:
        await world.idle()
        disk.fail(operation)
        refused = 0
        while True:
            try:
                await world.say("/dig here", message_id=f"m-{refused}")
                break
            except StorageError:
                refused += 1
        await world.next_reply()
        await trio.sleep(10)
        assert len(await tasks_of(world)) == 1
        assert sum("runs as task" in text for text in world.channels["cli"].texts) == 1
