"""What a memory tool is told about its caller: which task, in which role, and whether it has read from outside."""

import trio

from pegasus.models.base import ToolSpec
from pegasus.outside import Untrusted
from pegasus.testing.scripted import ScriptedModel, call, say
from pegasus.tools import Effect, Tool
from tests.pegasus.tasks.world import StubMemory, open_desk

ANY = {"type": "object", "properties": {}}


async def test_a_memory_tool_is_told_who_calls_it_and_what_was_read_before(autojump_clock):
    told = []

    async def remember(arguments, context):
        told.append((context.role, context.task_id, context.outside))
        return {}

    async def nothing():
        return ""

    tools = [
        Tool(ToolSpec("memory_append", "", ANY), remember, "memory", Effect.ONCE),
        Tool(ToolSpec("http_get", "", ANY), remember_nothing, "network", Effect.PURE, source=Untrusted.WEB),
    ]
    steps = iter(
        [
            say("", call("memory_append", "a")),
            say("", call("http_get", "b")),
            say("", call("memory_append", "c")),
            "x" * 500,
        ]
    )
    after = iter([say("", call("memory_append", "d")), "kept"])
    model = ScriptedModel(lambda request: next(after if "Look back" in request.system else steps))
    async with open_desk(model, memory=StubMemory(nothing, nothing), tools=tools) as desk:
        task = await desk.run("job")
        await trio.sleep(10)
    assert told == [("", task.task_id, ()), ("", task.task_id, ("web",)), ("reflection", task.task_id, ("web",))]


async def remember_nothing(arguments, context):
    return {}
