"""What memory is to a running task: an index when it begins, and a look back when it is done."""

import json
from types import SimpleNamespace

import pytest
import trio

from pegasus.events import EventType
from pegasus.models.base import ModelError, ToolSpec
from pegasus.tasks import Cancel, CancelAll, GetContext, GetTask, Resume, TaskError, TaskState
from pegasus.tasks.agent.agent import OUTSIDE_EVENTS
from pegasus.tasks.run.deps import REFLECT_AFTER, TaskLimits
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, say
from pegasus.tools import Effect, Tool
from tests.pegasus.tasks.world import StubMemory, open_desk

LONG = "found it " * 50
"""A result that is worth looking back on."""
NAMES = ("memory_read", "memory_write", "memory_patch", "memory_append", "memory_list")


class Shelves:
    """A memory. looked: how often the index was asked for; made: calls of its tools."""

    def __init__(self, index="# Memory\nfacts/user.md: likes tea"):
        self.index_text = index
        self.looked = 0
        self.made = []

    @property
    def port(self):
        async def index():
            self.looked += 1
            return self.index_text

        async def digest():
            return "FACTS IN FULL"

        return StubMemory(index, digest)

    @property
    def tools(self):
        def tool(name):
            async def run(arguments, context):
                self.made.append(name)
                return {}

            return Tool(ToolSpec(name, name, {"type": "object", "properties": {}}), run, "memory", Effect.IDEMPOTENT)

        return [tool(name) for name in NAMES]


def looks_back(request):
    return "Look back" in request.system


async def test_the_index_is_told_once_and_stays_in_the_conversation(autojump_clock):
    """Read in iteration 1 only, a message of its own, never in the prompt; also after a resume."""
    memory = Shelves()
    steps = iter([say("", call("echo", "a")), say("", call("echo", "b")), "done", "more"])
    model = ScriptedModel(lambda request: "nothing" if looks_back(request) else next(steps))
    async with open_desk(model, memory=memory.port, tools=memory.tools) as desk:
        task = await desk.run("job")
        await trio.sleep(1)
        await desk.agent.ask(Resume, task.task_id, "go on")
        await trio.sleep(1)
        context = await desk.agent.ask(GetContext, task.task_id)
    assert memory.looked == 1
    assert sum("likes tea" in entry.content for entry in context.messages) == 1
    thoughts = [request for request in model.requests if not looks_back(request)]
    assert len(thoughts) == 4
    assert all("likes tea" in request.turns[0].text for request in thoughts)
    assert not any("likes tea" in request.system for request in model.requests)


async def test_a_finished_task_is_told_of_first_and_looked_back_on_then(autojump_clock):
    """Result and notification do not wait; what is found is a line of the log; the result stays."""
    memory = Shelves()
    after = iter([After(100, say("", call("memory_append", "m"))), "Kept it."])
    model = ScriptedModel(lambda request: next(after) if looks_back(request) else LONG)
    async with open_desk(model, memory=memory.port, tools=memory.tools) as desk:
        task = await desk.run("job")
        assert (await desk.listener.next(1)).text == LONG
        assert trio.current_time() < 1
        assert (await desk.agent.ask(GetTask, task.task_id)).doing == ""
        await trio.sleep(REFLECT_AFTER + 0.1)
        assert (await desk.agent.ask(GetTask, task.task_id)).doing == "reflecting"
        await trio.sleep(200)
        assert (await desk.agent.ask(GetTask, task.task_id)).doing == ""
        context = await desk.agent.ask(GetContext, task.task_id)
        assert desk.shelf.events(task.task_id)[-2:] == ["TASK_COMPLETED", "REFLECTION_COMPLETE"]
    assert context.final_result["response"] == LONG
    assert (context.post_reflection.assessment, context.post_reflection.tool_calls_count) == ("Kept it.", 1)
    assert memory.made == ["memory_append"]
    request = next(request for request in model.requests if looks_back(request))
    assert {tool.name for tool in request.tools} == set(NAMES) - {"memory_list"}
    assert "FACTS IN FULL" in request.turns[0].text
    assert len(desk.listener.heard) == 1
    assert EventType.REFLECTION_COMPLETE not in OUTSIDE_EVENTS


async def test_a_task_that_goes_on_instead_of_looking_back_has_its_time_anew(autojump_clock):
    memory = Shelves()
    steps = iter([say("", call("echo", "a")), After(20, "done"), After(20, "more")])
    model = ScriptedModel(lambda request: Hang() if looks_back(request) else next(steps))
    limits = TaskLimits(timeout=30.0)
    async with open_desk(model, memory=memory.port, tools=memory.tools, limits=limits) as desk:
        task = await desk.run("job")
        await desk.agent.ask(Resume, task.task_id, "go on")
        assert (await desk.outcome(task.task_id)).result == "more"


async def test_the_call_that_answers_a_result_does_not_wait_behind_a_reflection(autojump_clock):
    """A server on the own machine makes one call after the other."""
    memory, server = Shelves(), trio.Lock()

    class OneAtATime(ScriptedModel):
        async def generate(self, request):
            async with server:
                return await super().generate(request)

    model = OneAtATime(lambda request: After(30, "Kept it." if looks_back(request) else LONG))
    async with open_desk(model, memory=memory.port, tools=memory.tools) as desk:
        task = await desk.run("job")
        await desk.listener.next(1)
        await trio.sleep(1)  # the Main Agent takes the notification, and asks its model
        before = trio.current_time()
        async with server:
            assert trio.current_time() == before
        await trio.sleep(100)
        assert desk.shelf.events(task.task_id)[-1] == "REFLECTION_COMPLETE"


async def test_a_reflection_that_fails_changes_nothing(autojump_clock):
    for problem in (ModelError("no route", kind="network"), RuntimeError("a defect")):
        memory = Shelves()
        model = ScriptedModel(lambda request, problem=problem: problem if looks_back(request) else LONG)
        async with open_desk(model, memory=memory.port, tools=memory.tools) as desk:
            task = await desk.run("job")
            await trio.sleep(10)
            assert task.state is TaskState.COMPLETED
            assert [told.type for told in desk.listener.heard] == ["completed"]
            assert desk.shelf.events(task.task_id)[-1] == "TASK_COMPLETED"


async def test_why_there_is_no_reflection_is_logged(autojump_clock, monkeypatch):
    logged = []

    def note(what, **more):
        logged.append(str(more["error"]))

    monkeypatch.setattr("pegasus.tasks.run.task._log", SimpleNamespace(warning=note, exception=note))
    for problem in (ModelError("no route", kind="network"), RuntimeError("a defect")):
        memory = Shelves()
        model = ScriptedModel(lambda request, problem=problem: problem if looks_back(request) else LONG)
        async with open_desk(model, memory=memory.port, tools=memory.tools) as desk:
            await desk.run("job")
            await trio.sleep(10)
    assert logged == ["no route", "a defect"]


async def test_a_reflection_has_no_other_tools(autojump_clock):
    """Also if it calls one that it was not shown."""
    memory = Shelves()
    after = iter([say("", call("memory_list", "a"), call("echo", "b")), "nothing"])
    model = ScriptedModel(lambda request: next(after) if looks_back(request) else LONG)
    async with open_desk(model, memory=memory.port, tools=memory.tools) as desk:
        await desk.run("job")
        await trio.sleep(10)
    assert (memory.made, desk.calls) == ([], [])
    results = [result.content for result in model.requests[-1].turns[-1].results]
    assert all("there are only memory_read" in content for content in results)
    assert len(results) == 2


async def test_what_comes_of_a_reflection_is_only_recorded(autojump_clock):
    """It is a line of the log, and no notification."""
    memory = Shelves()
    model = ScriptedModel(lambda request: "Kept it." if looks_back(request) else LONG)
    async with open_desk(model, memory=memory.port, tools=memory.tools) as desk:
        task = await desk.run("job")
        await trio.sleep(10)
        assert desk.shelf.events(task.task_id)[-1] == "REFLECTION_COMPLETE"
    assert [told.type for told in desk.listener.heard] == ["completed"]


async def test_a_trivial_task_costs_no_second_call(autojump_clock):
    memory, model = Shelves(), ScriptedModel(["42"])
    async with open_desk(model, memory=memory.port, tools=memory.tools) as desk:
        await desk.run("job")
        await trio.sleep(10)
    assert len(model.requests) == 1


async def test_a_cancel_ends_a_reflection_and_the_task_stays_completed(autojump_clock):
    memory = Shelves()
    model = ScriptedModel(lambda request: Hang() if looks_back(request) else LONG)
    async with open_desk(model, memory=memory.port, tools=memory.tools) as desk:
        task = await desk.run("job")
        await trio.sleep(10)
        assert (await desk.agent.ask(Cancel, task.task_id, "x")).doing == "reflecting"
        await trio.sleep(1)
        assert model.cancelled == 1
        assert (await desk.agent.ask(GetTask, task.task_id)).state is TaskState.COMPLETED
        assert desk.shelf.events(task.task_id)[-1] == "TASK_COMPLETED"
        line = json.loads(desk.shelf.logs[task.task_id].splitlines()[-1])
        assert line["data"]["finalResult"]["response"] == LONG


@pytest.mark.parametrize("after", [1, REFLECT_AFTER + 1], ids=["due", "running"])
async def test_no_reflection_goes_on_or_begins_after_a_stop_which_names_its_task(after, autojump_clock):
    memory = Shelves()
    model = ScriptedModel(lambda request: Hang() if looks_back(request) else LONG)
    async with open_desk(model, memory=memory.port, tools=memory.tools) as desk:
        task = await desk.run("job")
        await trio.sleep(after)
        [stopped] = await desk.agent.ask(CancelAll, "the owner")
        assert (stopped.task_id, stopped.doing) == (task.task_id, "reflecting")
        calls = len(model.requests)
        await trio.sleep(100)
        assert len(model.requests) == calls
        assert (await desk.agent.ask(GetTask, task.task_id)).state is TaskState.COMPLETED
        assert await desk.agent.ask(CancelAll, "the owner") == ()


async def test_a_cancel_that_ends_a_reflection_which_is_due_says_so(autojump_clock):
    memory = Shelves()
    model = ScriptedModel(lambda request: "Kept it." if looks_back(request) else LONG)
    async with open_desk(model, memory=memory.port, tools=memory.tools) as desk:
        task = await desk.run("job")
        await trio.sleep(1)
        assert (await desk.agent.ask(Cancel, task.task_id, "x")).doing == "reflecting"
        with pytest.raises(TaskError, match="is not running"):
            await desk.agent.ask(Cancel, task.task_id, "x")
        await trio.sleep(10)
        assert desk.shelf.events(task.task_id)[-1] == "TASK_COMPLETED"


async def test_the_approvals_of_a_task_are_withdrawn_once_though_it_reflects(autojump_clock):
    memory, over = Shelves(), []
    model = ScriptedModel(lambda request: "Kept it." if looks_back(request) else LONG)
    async with open_desk(model, memory=memory.port, tools=memory.tools, over=over.append) as desk:
        task = await desk.run("job")
        await trio.sleep(60)
        assert desk.shelf.events(task.task_id)[-1] == "REFLECTION_COMPLETE"
    assert [list(task_ids) for task_ids in over] == [[task.task_id]]
