"""The next thought begins while what it is about is being written, and nothing follows from it before that is on disk."""

import pytest
import trio

from pegasus.events import Emit, EventType
from pegasus.models.base import ModelError
from pegasus.tasks import Cancel, GetContext, GetTask, Resume, Suspend, TaskState, payloads
from pegasus.tasks.ports import Limits
from pegasus.tasks.replay import replay
from pegasus.testing.scripted import After, ScriptedModel, call, say
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
    async with open_desk(model, shelf=SlowShelf(5), limits=Limits(max_iterations=3)) as desk:
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
    async with open_desk(model, shelf=SlowShelf(500), limits=Limits(timeout=60)) as desk:
        assert (await desk.run()).result == "done"
