"""The next thought begins while what it is about is being written, and nothing follows from it before that is on disk."""

from functools import partial

import pytest
import trio

from pegasus.events import Emit, EventType
from pegasus.models.base import ModelError
from pegasus.tasks import (
    Cancel,
    CancelAll,
    GetContext,
    GetTask,
    Resume,
    Suspend,
    TaskError,
    TaskState,
    payloads,
    task_id_of,
)
from pegasus.tasks.ports import TaskLimits
from pegasus.tasks.replay import replay
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, say
from tests.pegasus.tasks.world import Shelf, open_desk

WORK = say("", call("slow", "a", x=5))
THEN = say("then", call("echo", "b", x=1))


class SlowShelf(Shelf):
    """A disk that takes its time for results, and for nothing else."""

    def __init__(self, seconds):
        super().__init__()
        self._seconds = seconds

    async def gate(self, inbox):
        await super().gate(self._delayed(inbox))

    async def _delayed(self, inbox):
        async for message in inbox:
            if any(event.type.name.startswith("TOOL_CALL") for event in message.events):
                await trio.sleep(self._seconds)
            yield message


def shown(request):
    """The results that a request shows the model."""
    return [result.content for turn in request.turns for result in getattr(turn, "results", ())]


async def test_the_model_is_asked_while_the_result_is_being_written_and_nothing_is_done_before(autojump_clock):
    model = ScriptedModel([WORK, THEN, "done"])
    shelf = SlowShelf(30)
    async with open_desk(model, shelf=shelf) as desk:
        task_id = await desk.submit()
        await trio.sleep(20)
        assert shelf.events(task_id) == ["TASK_CREATED", "REASON_DONE"]
        assert shown(model.requests[1]) == ['"slept"']
        assert [made[1:3] for made in desk.calls] == [(f"{task_id}/a", "begin"), (f"{task_id}/a", "end")]
        task = await desk.outcome(task_id)
        assert (task.result, task.iteration) == ("done", 3)
        live = await desk.agent.ask(GetContext, task_id)
    assert len(model.requests) == 3
    assert shelf.events(task_id) == [
        "TASK_CREATED",
        *["REASON_DONE", "TOOL_CALL_COMPLETED"] * 2,
        *["REASON_DONE", "STEP_COMPLETED", "TASK_COMPLETED"],
    ]
    assert replay(shelf.logs[task_id], task_id).task.context == live


async def test_a_thought_that_takes_longer_than_the_disk_is_had_once(autojump_clock):
    model = ScriptedModel([WORK, After(30, THEN), After(30, "done")])
    async with open_desk(model, shelf=SlowShelf(3)) as desk:
        task_id = await desk.submit()
        await trio.sleep(6)
        assert (await desk.agent.ask(GetTask, task_id)).state is TaskState.ACTING
        await trio.sleep(6)
        task = await desk.agent.ask(GetTask, task_id)
        assert (task.state, task.doing) == (TaskState.REASONING, "thinking")
        assert (await desk.outcome(task_id)).result == "done"
    assert len(model.requests) == 3


async def test_it_is_had_once_for_all_the_calls_of_a_plan(autojump_clock):
    calls = [call("echo", "a", x=1), call("look", "b", x=2), call("look", "c", x=3), call("broken", "d")]
    model = ScriptedModel([say("", *calls), "done"])
    async with open_desk(model, shelf=SlowShelf(5)) as desk:
        assert (await desk.run()).result == "done"
    assert len(model.requests) == 2
    assert [text.startswith("Error") for text in shown(model.requests[1])] == [False, False, False, True]


async def test_it_is_not_had_beyond_the_limit(autojump_clock):
    model = ScriptedModel(lambda request: say("", call("echo", f"c{len(request.turns)}", x=1)))
    async with open_desk(model, shelf=SlowShelf(5), limits=TaskLimits(max_iterations=3)) as desk:
        task = await desk.run()
    assert task.error == "the task did not come to an end within 3 rounds of thinking"
    assert len(model.requests) == 3


async def test_one_that_fails_fails_the_task_behind_the_result(autojump_clock):
    model = ScriptedModel([WORK, ModelError("no more credit", kind="budget")])
    async with open_desk(model) as desk:
        task_id = await desk.submit()
        await trio.sleep(2)
        desk.shelf.refusing = written = trio.Event()
        said = desk.events.create(EventType.TASK_NOTIFY, "x", payloads.notify("hm"), task_id=task_id)
        await desk.bus.tell(Emit(said))
        await trio.sleep(10)  # behind that, the result and the failure wait together
        assert len(model.requests) == 2
        desk.shelf.refusing = None
        written.set()
        task = await desk.outcome(task_id)
    assert (task.state, task.error) == (TaskState.FAILED, "no more credit")
    assert desk.shelf.events(task_id)[2:] == ["TASK_NOTIFY", "TOOL_CALL_COMPLETED", "TASK_FAILED"]
    assert replay(desk.shelf.logs[task_id], task_id).task.context.actions_done[0].result == '"slept"'


async def test_cancel_ends_it(autojump_clock):
    model = ScriptedModel([WORK, After(100, THEN)])
    async with open_desk(model, shelf=SlowShelf(3)) as desk:
        task_id = await desk.submit()
        await trio.sleep(6)
        stopped = await desk.agent.ask(Cancel, task_id, "x")
        assert stopped.doing == "thinking"
        assert (await desk.outcome(task_id)).error == "stopped by x"
    assert model.cancelled == 1


@pytest.mark.parametrize("at", [6, 12], ids=["before the result is written", "after it"])
async def test_a_task_that_is_suspended_meanwhile_goes_on_where_it_was(at, autojump_clock):
    model = ScriptedModel([WORK, After(30, THEN), "done"])
    async with open_desk(model, shelf=SlowShelf(5)) as desk:
        task_id = await desk.submit()
        await trio.sleep(at)
        await desk.agent.ask(Suspend, task_id, "wait")
        await trio.sleep(100)
        assert (await desk.agent.ask(GetTask, task_id)).state is TaskState.SUSPENDED
        assert len(desk.calls) == 2  # the next call is not made
        await desk.agent.ask(Resume, task_id, "")
        assert (await desk.outcome(task_id)).result == "done"
    assert len(desk.calls) == 3
    assert len(model.requests) == 3  # the thought that was under way was kept (trap T7)


async def test_a_task_that_is_told_something_meanwhile_thinks_again_with_it(autojump_clock):
    model = ScriptedModel([WORK, After(30, "done, it seems"), "done, with that"])
    async with open_desk(model, shelf=SlowShelf(1)) as desk:
        task_id = await desk.submit()
        await trio.sleep(10)
        await desk.agent.ask(Suspend, task_id, "wait")
        await trio.sleep(1)
        await desk.agent.ask(Resume, task_id, "and one thing more")
        assert (await desk.outcome(task_id)).result == "done, with that"
        live = await desk.agent.ask(GetContext, task_id)
    assert model.requests[-1].turns[-1].text == "and one thing more"
    assert len(model.requests) == 3
    assert replay(desk.shelf.logs[task_id], task_id).task.context == live


async def test_a_suspended_task_thinks_of_nothing(autojump_clock):
    model = ScriptedModel([WORK, "done"])
    async with open_desk(model, shelf=SlowShelf(3)) as desk:
        task_id = await desk.submit()
        await trio.sleep(2)
        await desk.agent.ask(Suspend, task_id, "wait")
        await trio.sleep(60)
        assert len(model.requests) == 1
        await desk.agent.ask(Resume, task_id, "")
        assert (await desk.outcome(task_id)).result == "done"


async def test_the_time_that_the_disk_takes_is_not_the_tasks(autojump_clock):
    model = ScriptedModel([WORK, THEN, "done"])
    async with open_desk(model, shelf=SlowShelf(500), limits=TaskLimits(timeout=60)) as desk:
        assert (await desk.run()).result == "done"


# ------------------------------------------------------------------ a new task


class SlowToBegin(Shelf):
    """A disk that takes its time for new tasks, and for nothing else."""

    async def gate(self, inbox):
        await super().gate(self._delayed(inbox))

    async def _delayed(self, inbox):
        async for message in inbox:
            if any(event.type is EventType.TASK_CREATED for event in message.events):
                await trio.sleep(30)
            yield message


async def test_a_new_task_thinks_while_it_is_being_written_and_says_nothing_before(autojump_clock):
    model = ScriptedModel([THEN, "done"])
    async with open_desk(model, shelf=SlowToBegin()) as desk, trio.open_nursery() as nursery:
        nursery.start_soon(partial(desk.submit, key="k"))
        await trio.sleep(20)
        assert len(model.requests) == 1
        assert (desk.calls, desk.shelf.logs) == ([], {})
        assert (await desk.agent.ask(GetTask, task_id_of("k"))).state is TaskState.IDLE
        task = await desk.outcome(task_id_of("k"))
        assert (task.result, task.iteration) == ("done", 2)
        live = await desk.agent.ask(GetContext, task.task_id)
    assert len(model.requests) == 2
    assert desk.shelf.events(task.task_id)[:3] == ["TASK_CREATED", "REASON_DONE", "TOOL_CALL_COMPLETED"]
    assert replay(desk.shelf.logs[task.task_id], task.task_id).task.context == live


async def test_it_is_stopped_while_it_is_being_written(autojump_clock):
    model = ScriptedModel([Hang()])
    async with open_desk(model, shelf=SlowToBegin()) as desk, trio.open_nursery() as nursery:
        nursery.start_soon(partial(desk.submit, key="k"))
        await trio.sleep(20)
        [stopped] = await desk.agent.ask(CancelAll, "x")
        assert (stopped.doing, model.cancelled) == ("thinking", 1)
        assert (await desk.outcome(task_id_of("k"))).error == "stopped by x"
    assert desk.shelf.events(task_id_of("k")) == ["TASK_CREATED", "TASK_FAILED"]


@pytest.mark.parametrize("passes", range(40))
async def test_whenever_it_is_stopped_it_does_not_go_on(passes, autojump_clock):
    """Also while its actor is being started."""
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


BROKE = ModelError("no more credit", kind="budget")


@pytest.mark.parametrize(
    ("thought", "lines"), [(BROKE, ["TASK_FAILED"]), ("done", ["REASON_DONE", "STEP_COMPLETED", "TASK_COMPLETED"])]
)
async def test_what_comes_of_it_is_said_behind_its_beginning(thought, lines, autojump_clock):
    """Also where its beginning is the least urgent of all events."""
    model = ScriptedModel(lambda request: Hang() if request.turns[0].text == "other" else thought)
    async with open_desk(model) as desk, trio.open_nursery() as nursery:
        other = await desk.submit("other")
        desk.shelf.refusing = written = trio.Event()
        await desk.bus.tell(Emit(desk.events.create(EventType.TASK_NOTIFY, "x", payloads.notify("hm"), task_id=other)))
        nursery.start_soon(partial(desk.submit, key="k", priority=900))
        await trio.sleep(5)  # behind that, both wait together
        desk.shelf.refusing = None
        written.set()
        task = await desk.outcome(task_id_of("k"))
        assert (task.result, task.error) == (("done", None) if thought == "done" else (None, "no more credit"))
    assert desk.shelf.events(task.task_id) == ["TASK_CREATED", *lines]


async def test_one_that_there_is_no_place_for_waits(autojump_clock):
    model = ScriptedModel([After(100, "first"), "second"])
    async with open_desk(model, shelf=SlowToBegin(), limits=TaskLimits(max_active=1)) as desk:
        first = await desk.submit("first")
        second = await desk.submit("second")
        assert len(model.requests) == 1
        assert (await desk.outcome(first)).result == "first"
        assert (await desk.outcome(second)).result == "second"


async def test_it_cannot_be_suspended_before_it_is_written(autojump_clock):
    async with open_desk(ScriptedModel(["done"]), shelf=SlowToBegin()) as desk, trio.open_nursery() as nursery:
        nursery.start_soon(partial(desk.submit, key="k"))
        await trio.sleep(20)
        with pytest.raises(TaskError, match="not at work"):
            await desk.agent.ask(Suspend, task_id_of("k"), "wait")
        assert (await desk.outcome(task_id_of("k"))).result == "done"
