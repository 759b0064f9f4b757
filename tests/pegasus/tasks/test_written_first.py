"""A task takes each step after the one before it is on disk: nothing is thought, called or reported before."""

from functools import partial

import pytest
import trio

from pegasus.events import EventType
from pegasus.tasks import (
    FOR_PERSON,
    Cancel,
    CancelAll,
    Continue,
    GetContext,
    GetTask,
    Resume,
    Suspend,
    TaskError,
    TaskLimits,
    TaskState,
    task_id_of,
)
from pegasus.tasks.log.replay import replay
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, say
from tests.pegasus.tasks.world import MemoryFolder, open_desk

WORK = say("", call("slow", "a", x=5))
THEN = say("then", call("echo", "b", x=1))


class SlowShelf(MemoryFolder):
    """A disk that takes its time for some events, and for no others."""

    def __init__(self, seconds, *types):
        super().__init__()
        self._seconds = seconds
        self._types = types

    async def gate(self, inbox):
        await super().gate(self._delayed(inbox))

    async def _delayed(self, inbox):
        async for message in inbox:
            if any(event.type in self._types for event in message.events):
                await trio.sleep(self._seconds)
            yield message


def slow_results(seconds):
    return SlowShelf(seconds, EventType.TOOL_CALL_COMPLETED, EventType.TOOL_CALL_FAILED)


def slow_beginnings():
    return SlowShelf(30, EventType.TASK_CREATED)


async def test_the_model_is_asked_about_a_result_after_it_is_on_disk(autojump_clock):
    model = ScriptedModel([WORK, THEN, "done"])
    shelf = slow_results(30)
    async with open_desk(model, shelf=shelf) as desk:
        task_id = await desk.submit()
        await trio.sleep(20)
        assert len(model.requests) == 1
        assert shelf.events(task_id) == ["TASK_CREATED", "REASON_DONE"]
        task = await desk.outcome(task_id)
        assert (task.result, task.iteration) == ("done", 3)
        live = await desk.agent.ask(GetContext, task_id)
    assert replay(shelf.logs[task_id], task_id).task.context == live


async def test_a_new_task_thinks_after_it_is_on_disk(autojump_clock):
    model = ScriptedModel([THEN, "done"])
    async with open_desk(model, shelf=slow_beginnings()) as desk, trio.open_nursery() as nursery:
        nursery.start_soon(partial(desk.submit, key="k"))
        await trio.sleep(20)
        assert (len(model.requests), desk.calls, desk.shelf.logs) == (0, [], {})
        assert (await desk.agent.ask(GetTask, task_id_of("k"))).state is TaskState.IDLE
        assert (await desk.outcome(task_id_of("k"))).result == "done"


async def test_subscribers_see_an_event_after_it_is_on_disk(autojump_clock):
    model = ScriptedModel([WORK, "done"])
    async with open_desk(model, shelf=slow_results(30)) as desk:
        task_id = await desk.submit()
        await trio.sleep(20)
        seen = [event.type.name for event in desk.watcher.events if event.task_id == task_id]
        assert "TOOL_CALL_REQUESTED" in seen
        assert "TOOL_CALL_COMPLETED" not in seen
        await desk.outcome(task_id)
        await trio.sleep(1)
        recorded = [event.type.name for event in desk.watcher.events if event.task_id == task_id]
        assert [name for name in recorded if name in desk.shelf.events(task_id)] == desk.shelf.events(task_id)


async def test_the_time_that_the_disk_takes_is_not_the_tasks(autojump_clock):
    model = ScriptedModel([WORK, THEN, "done"])
    async with open_desk(model, shelf=slow_results(500), limits=TaskLimits(timeout=60)) as desk:
        assert (await desk.run()).result == "done"


async def test_a_task_is_stopped_while_it_is_being_written(autojump_clock):
    model = ScriptedModel([Hang()])
    async with open_desk(model, shelf=slow_beginnings()) as desk, trio.open_nursery() as nursery:
        nursery.start_soon(partial(desk.submit, key="k"))
        await trio.sleep(20)
        [stopped] = await desk.agent.ask(CancelAll, "x")
        assert stopped.doing == "waiting"
        assert (await desk.outcome(task_id_of("k"))).error == "stopped by x"
    assert model.requests == []
    assert desk.shelf.events(task_id_of("k")) == ["TASK_CREATED", "TASK_FAILED"]


@pytest.mark.parametrize("passes", range(60))
async def test_whenever_a_task_is_stopped_it_does_not_go_on(passes, autojump_clock):
    """Also while it is created, and while its actor is being started."""
    model = ScriptedModel([Hang()])
    async with open_desk(model) as desk, trio.open_nursery() as nursery:
        nursery.start_soon(partial(desk.submit, key="k"))
        for _ in range(passes):
            await trio.lowlevel.checkpoint()
        stopped = await desk.agent.ask(CancelAll, "x")
        if stopped:
            assert len(model.requests) == model.cancelled
        await trio.sleep(5)
        if stopped:
            assert len(model.requests) == model.cancelled
            assert (await desk.outcome(task_id_of("k"))).error == "stopped by x"
        else:  # it was not there yet
            assert len(model.requests) == 1
            await desk.agent.ask(CancelAll, "x")


async def test_a_cancel_while_a_result_is_being_written_ends_the_task_behind_it(autojump_clock):
    model = ScriptedModel([WORK, Hang()])
    async with open_desk(model, shelf=slow_results(30)) as desk:
        task_id = await desk.submit()
        await trio.sleep(20)
        await desk.agent.ask(Cancel, task_id, "x")
        assert (await desk.outcome(task_id)).error == "stopped by x"
        assert desk.shelf.events(task_id)[2:] == ["TOOL_CALL_COMPLETED", "TASK_FAILED"]
        live = await desk.agent.ask(GetContext, task_id)
    assert len(model.requests) == 1
    assert live.actions_done[0].result == '"slept"'


async def test_a_cancel_while_the_end_is_being_written_comes_too_late_and_says_so(autojump_clock):
    shelf = SlowShelf(30, EventType.TASK_COMPLETED)
    async with open_desk(ScriptedModel(["done", "more"]), shelf=shelf) as desk:
        task_id = await desk.submit()
        await trio.sleep(20)
        with pytest.raises(TaskError, match="is not running"):
            await desk.agent.ask(Cancel, task_id, "x")
        assert await desk.agent.ask(CancelAll, "x") == ()
        assert (await desk.outcome(task_id)).result == "done"
        await desk.agent.ask(Resume, task_id, "go on")
        assert (await desk.outcome(task_id)).result == "more"


@pytest.mark.parametrize("passes", range(0, 120, 2))
async def test_whenever_a_task_is_stopped_near_its_end_the_answer_is_what_becomes_of_it(passes, autojump_clock):
    async with open_desk(ScriptedModel(["done"])) as desk:
        task_id = await desk.submit()
        for _ in range(passes):
            await trio.lowlevel.checkpoint()
        stopped = await desk.agent.ask(CancelAll, "x")
        task = await desk.outcome(task_id)
        assert (task.error if stopped else task.result) == ("stopped by x" if stopped else "done")


async def test_the_answer_to_a_cancel_comes_when_the_failure_is_on_disk(autojump_clock):
    shelf = SlowShelf(0.4, EventType.TASK_FAILED)
    async with open_desk(ScriptedModel([Hang()]), shelf=shelf, limits=TaskLimits(max_active=1)) as desk:
        running, waiting = await desk.submit("first"), await desk.submit("second")
        await desk.agent.ask(CancelAll, "x")
        for task_id in (running, waiting):
            assert shelf.events(task_id)[-1] == "TASK_FAILED"


async def test_a_task_for_which_there_is_no_slot_waits(autojump_clock):
    model = ScriptedModel([After(100, "first"), "second"])
    async with open_desk(model, shelf=slow_beginnings(), limits=TaskLimits(max_active=1)) as desk:
        first = await desk.submit("first")
        second = await desk.submit("second")
        assert len(model.requests) == 1
        assert (await desk.outcome(first)).result == "first"
        assert (await desk.outcome(second)).result == "second"


async def test_a_task_is_paused_when_it_is_written(autojump_clock):
    async with open_desk(ScriptedModel(["done"]), shelf=slow_beginnings()) as desk, trio.open_nursery() as nursery:
        nursery.start_soon(partial(desk.submit, key="k"))
        await trio.sleep(20)
        view = await desk.agent.ask(Suspend, task_id_of("k"))
        assert (view.state, view.waits_for) == (TaskState.SUSPENDED, FOR_PERSON)
        await desk.agent.ask(Continue, task_id_of("k"))
        assert (await desk.outcome(task_id_of("k"))).result == "done"
