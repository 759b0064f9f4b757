"""Settings reach the tasks: through the whole tree, as a file would set them."""

import json
from pathlib import Path

import attrs
import pytest
import trio

from pegasus.models.base import ToolSpec
from pegasus.settings import Settings, TaskSettings, ToolSettings
from pegasus.tasks import ListTasks, Submit, TaskError, TaskState, Wait, wait_until_running
from pegasus.testing.scripted import Hang, ScriptedModel, call, say
from pegasus.testing.world import open_world
from pegasus.tools import Effect, Tool


def opened(task_model, **more):
    """A world whose Main Agent keeps silent."""
    return open_world(ScriptedModel(lambda request: say()), task_model=task_model, **more)


def make_tool(name, run):
    return Tool(ToolSpec(name, name, {"type": "object", "properties": {}}), run, "custom", Effect.PURE)


async def submit(world, text="job"):
    agent = world.root.ref("tasks/agent")
    assert await wait_until_running(agent)
    return await agent.ask(Submit, text, "user", "general", "", {"channel": {"type": "cli", "channelId": "main"}})


async def outcome(world, task_id):
    return await world.root.ref("tasks/agent").ask(Wait, task_id)


async def test_max_iterations(autojump_clock):
    model = ScriptedModel(lambda request: say("", call("current_time", "t")))
    async with opened(model, settings=Settings(tasks=TaskSettings(max_iterations=4))) as world:
        task = await outcome(world, await submit(world))
    assert task.error == "the task did not come to an end within 4 rounds of thinking"
    assert len(model.requests) == 4


async def test_timeout(autojump_clock):
    async with opened(ScriptedModel([Hang()]), settings=Settings(tasks=TaskSettings(timeout=7.0))) as world:
        assert (await outcome(world, await submit(world))).error == "the task took longer than 7 s"


async def test_max_active_and_max_queued(autojump_clock):
    settings = Settings(tasks=TaskSettings(max_active=1, max_queued=1))
    async with opened(ScriptedModel([Hang()]), settings=settings) as world:
        await submit(world)
        await submit(world)
        with pytest.raises(TaskError, match=r"tasks\.max_queued"):
            await submit(world)
        states = [task.state for task in await world.root.ref("tasks/agent").ask(ListTasks)]
    assert states == [TaskState.REASONING, TaskState.IDLE]


@attrs.define(eq=False)
class Together:
    """Counts how many do something at the same time."""

    now: int = 0
    most: int = 0

    async def __call__(self, *args):
        self.now += 1
        self.most = max(self.most, self.now)
        await trio.sleep(5)
        self.now -= 1
        return "done"


@pytest.mark.parametrize("limit", [1, 2])
async def test_max_concurrent_tools(autojump_clock, limit):
    together = Together()
    calls = say("", *(call("look", f"c{n}") for n in range(4)))
    model = ScriptedModel(lambda request: "ok" if len(request.turns) > 1 else calls)
    settings = Settings(tasks=TaskSettings(max_concurrent_tools=limit))
    async with opened(model, settings=settings, tools=[make_tool("look", together)]) as world:
        await outcome(world, await submit(world))
    assert together.most == limit


async def test_the_timeout_of_tools_and_of_one_tool(autojump_clock):
    async def hang(arguments, context):
        await trio.sleep_forever()

    both = say("", call("slow", "a"), call("slower", "b"))
    model = ScriptedModel([both, "ok"])
    settings = Settings(tools=ToolSettings(timeout=3.0, timeouts={"slower": 8.0}))
    tools = [make_tool("slow", hang), make_tool("slower", hang)]
    async with opened(model, settings=settings, tools=tools) as world:
        await outcome(world, await submit(world))
    first, second = (result.content for result in model.requests[1].turns[-1].results)
    assert "3 s" in first
    assert "8 s" in second


@pytest.mark.parametrize("setting", [[], ["pictures"], ["/"]])
async def test_allowed_paths(autojump_clock, tmp_path, setting):
    """They reach the context of every call."""
    seen = []

    async def look(arguments, context):
        seen.append(context.allowed_paths)
        return {}

    paths = tuple(path if path == "/" else str(tmp_path / path) for path in setting)
    model = ScriptedModel([say("", call("look", "a")), "ok"])
    async with opened(
        model, settings=Settings(tools=ToolSettings(allowed_paths=paths)), tools=[make_tool("look", look)]
    ) as world:
        await outcome(world, await submit(world))
    [allowed] = seen
    assert [str(path) for path in allowed] == (list(paths) or [str(Path.cwd())])


@pytest.mark.parametrize(("mode", "ends"), [("fail", TaskState.FAILED), ("resume", TaskState.COMPLETED)])
async def test_recovery(autojump_clock, mode, ends):
    settings = Settings(tasks=TaskSettings(recovery=mode))
    async with opened(ScriptedModel([Hang()]), settings=settings) as world:
        task_id = await submit(world)
    async with opened(ScriptedModel(lambda request: "ok"), settings=settings, disk=world.disk) as again:
        assert await wait_until_running(again.root.ref("tasks/agent"))
        assert (await outcome(again, task_id)).state is ends


async def test_where_things_are(autojump_clock):
    """Logs of tasks under data/tasks, the session under data/main."""
    async with opened(ScriptedModel(["ok"])) as world:
        task_id = await submit(world)
        await outcome(world, task_id)
        await world.say("hello")
        await world.idle()
        paths = world.disk.paths()
        session = world.disk.content("main/current.jsonl")
        log = [json.loads(line) for line in world.disk.content(f"tasks/2026-02-25/{task_id}.jsonl").splitlines()]
    assert {"tasks/index.jsonl", "tasks/pending.json", f"tasks/2026-02-25/{task_id}.jsonl"} <= set(paths)
    assert b"hello" in session
    assert [line["event"] for line in log] == ["TASK_CREATED", "REASON_DONE", "STEP_COMPLETED", "TASK_COMPLETED"]
