"""How a task system stops in order: what runs may finish for a while, nothing is begun, nothing is called failed."""

import pytest
import trio

from pegasus.events import EventType
from pegasus.tasks import Cancel, GetContext, GetTask, Resume, Suspend, TaskState
from pegasus.tasks.agent.scheduler import DRAIN
from pegasus.tasks.run.deps import REFLECT_AFTER, TaskLimits
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, say
from tests.pegasus.tasks.world import MemoryFolder, StubMemory, open_desk

RESUME = TaskLimits(recovery="resume")


async def stopped_during(model, *, seconds=2, limits=RESUME):
    """The shelf and the desk of a task system that was stopped while its one task was at something."""
    shelf = MemoryFolder()
    async with open_desk(model, shelf=shelf, limits=limits) as desk:
        task_id = await desk.submit("the job")
        await trio.sleep(seconds)
    return shelf, desk, task_id


async def test_a_call_that_runs_may_finish_and_its_result_is_kept(autojump_clock):
    model = ScriptedModel([say("", call("slow", "a", x=4))])
    shelf, desk, task_id = await stopped_during(model)
    assert [what for _, _, what, _ in desk.calls] == ["begin", "end"]
    assert shelf.events(task_id) == ["TASK_CREATED", "REASON_DONE", "TOOL_CALL_COMPLETED"]
    assert len(model.requests) == 1  # nothing new was begun
    again = ScriptedModel(["done"])
    async with open_desk(again, shelf=shelf, limits=RESUME) as desk:
        assert (await desk.outcome(task_id)).result == "done"
        assert desk.calls == []


async def test_what_takes_longer_than_a_stop_may_is_ended(autojump_clock):
    model = ScriptedModel([say("", call("slow", "a", x=1000))])
    shelf, desk, task_id = await stopped_during(model)
    assert trio.current_time() < 15
    assert [what for _, _, what, _ in desk.calls] == ["begin"]
    assert shelf.events(task_id) == ["TASK_CREATED", "REASON_DONE"]


@pytest.mark.parametrize("at", ["a tool", "a thought", "the disk"])
async def test_a_stop_waits_for_its_deadline_and_no_longer(at, autojump_clock):
    """Neither a call, nor the model, nor a disk that refuses keeps the process from stopping."""
    steps = {"a tool": say("", call("slow", "a", x=1000)), "a thought": Hang(), "the disk": After(1, "the answer")}
    shelf = MemoryFolder()
    async with open_desk(ScriptedModel([steps[at]]), shelf=shelf, limits=RESUME) as desk:
        task_id = await desk.submit("the job")
        if at == "the disk":
            shelf.refusing = trio.Event()
        await trio.sleep(2)
        begun = trio.current_time()
        await desk.root.stop_child("agent")
        assert DRAIN <= trio.current_time() - begun < DRAIN + 1
        if at == "the disk":
            shelf.refusing.set()
    assert desk.listener.heard == []
    assert "TASK_FAILED" not in shelf.events(task_id)


async def test_a_task_that_a_stop_interrupted_goes_on_at_the_next_start(autojump_clock):
    """As after Ctrl-D or SIGTERM, with the settings as they are when nobody has changed them."""
    shelf, _, task_id = await stopped_during(ScriptedModel([Hang()]), limits=TaskLimits())
    async with open_desk(ScriptedModel(["done"]), shelf=shelf, limits=TaskLimits()) as desk:
        assert (await desk.outcome(task_id)).result == "done"
        await desk.listener.next(1)
        assert [told.type for told in desk.listener.heard] == ["completed"]


async def test_that_a_task_was_stopped_is_recorded_before_the_process_ends(autojump_clock):
    """A cancel is answered before it is on disk; the stop of the process waits for it."""
    shelf = MemoryFolder()
    async with open_desk(ScriptedModel([Hang()]), shelf=shelf, limits=RESUME) as desk:
        task_id = await desk.submit("the job")
        await trio.sleep(1)
        shelf.refusing = refused = trio.Event()
        await desk.agent.ask(Cancel, task_id, "x")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.root.stop_child, "agent")
            await trio.sleep(1)
            shelf.refusing = None
            refused.set()
    assert shelf.events(task_id) == ["TASK_CREATED", "TASK_FAILED"]


async def test_a_thought_may_finish_too(autojump_clock):
    model = ScriptedModel([After(4, say("", call("echo", "a")))])
    shelf, desk, task_id = await stopped_during(model)
    assert shelf.events(task_id) == ["TASK_CREATED", "REASON_DONE"]
    assert desk.calls == []


async def test_a_reflection_may_finish_too(autojump_clock):

    async def nothing():
        return ""

    model = ScriptedModel(lambda request: After(4, "Kept it.") if "Look back" in request.system else "long " * 50)
    shelf = MemoryFolder()
    async with open_desk(model, shelf=shelf, memory=StubMemory(nothing, nothing)) as desk:
        task = await desk.run("the job")
        await trio.sleep(REFLECT_AFTER + 1)
    assert shelf.events(task.task_id)[-1] == "REFLECTION_COMPLETE"


async def test_a_stop_does_not_wait_for_a_reflection_that_has_not_begun(autojump_clock):

    async def nothing():
        return ""

    model = ScriptedModel(["long " * 50])
    async with open_desk(model, memory=StubMemory(nothing, nothing)) as desk:
        await desk.run("the job")
        await trio.sleep(1)
        stopped = trio.current_time()
    assert trio.current_time() - stopped < 1
    assert len(model.requests) == 1


async def test_start_and_stop_are_events(autojump_clock):
    _, desk, _ = await stopped_during(ScriptedModel([Hang()]))
    types = [event.type for event in desk.watcher.events if event.task_id is None]
    assert (types[0], types[-1]) == (EventType.SYSTEM_STARTED, EventType.SYSTEM_SHUTTING_DOWN)


async def test_nobody_is_told_that_a_task_failed_because_of_a_stop(autojump_clock):
    _, desk, _ = await stopped_during(ScriptedModel([say("", call("slow", "a", x=4))]))
    assert desk.listener.heard == []


async def test_a_task_suspended_while_it_thinks_keeps_the_thought(autojump_clock):
    """At any time; the context is saved, and it goes on from there."""
    model = ScriptedModel([After(10, say("", call("echo", "a", x=1))), "done"])
    async with open_desk(model) as desk:
        task_id = await desk.submit("the job")
        await trio.sleep(2)
        await desk.agent.ask(Suspend, task_id)
        await trio.sleep(20)
        assert (await desk.agent.ask(GetTask, task_id)).state is TaskState.SUSPENDED
        assert desk.calls == []
        context = await desk.agent.ask(GetContext, task_id)
        assert (context.suspend_reason, context.suspended_state) == ("person", TaskState.ACTING)  # the thought is in
        await desk.agent.ask(Resume, task_id, "")
        assert (await desk.outcome(task_id)).result == "done"
        assert len(desk.calls) == 1
    assert len(model.requests) == 2
