"""A task that makes the same call again and again."""

import trio

from pegasus.tasks.run.deps import TaskLimits
from pegasus.testing.scripted import Hang, ScriptedModel, call, say
from tests.pegasus.tasks.world import open_desk


def results_of(request):
    return [result.content for turn in request.turns for result in getattr(turn, "results", ())]


async def test_the_same_call_is_made_three_times_and_the_task_is_ended_at_the_fifth(autojump_clock):
    model = ScriptedModel(lambda _: say("", call("echo", "c", x=1)))
    async with open_desk(model, limits=TaskLimits(max_iterations=20)) as desk:
        task = await desk.run()
    assert len(desk.calls) == 3
    assert len(model.requests) == 5
    assert "the tool echo was called 5 times in a row" in task.error
    assert "not carried out again" not in model.requests[2].turns[-1].text
    assert "not carried out again" in model.requests[3].turns[-1].text
    assert results_of(model.requests[4])[3].startswith("Error: not carried out")


async def test_a_task_that_does_something_else_then_goes_on(autojump_clock):
    same = say("", call("echo", "c", x=1))
    model = ScriptedModel([same, same, same, same, say("", call("echo", "c", x=2)), say("done")])
    async with open_desk(model) as desk:
        task = await desk.run()
    assert task.state == "completed"
    assert [made[2] for made in desk.calls] == [1, 1, 1, 2]


async def test_same_calls_of_one_answer_are_made_but_not_once_more(autojump_clock):
    model = ScriptedModel(
        [say("", *(call("look", f"c{n}", x=1) for n in range(6))), say("", call("look", "d", x=1)), "done"]
    )
    async with open_desk(model) as desk:
        task = await desk.run()
    assert task.state == "completed"
    assert len([made for made in desk.calls if made[2] == "begin"]) == 6
    assert model.requests[1].turns[-1].text.count("not carried out again") == 1
    assert results_of(model.requests[2])[-1].startswith("Error: not carried out")


async def test_of_a_hundred_calls_of_one_answer_64_are_made(autojump_clock):
    model = ScriptedModel([say("", *(call("echo", f"c{n}", x=n) for n in range(100))), "done"])
    async with open_desk(model) as desk:
        task = await desk.run()
    assert task.state == "completed"
    assert [made[2] for made in desk.calls] == list(range(64))
    assert "36 further calls of this answer were not carried out" in model.requests[1].turns[-1].text


async def test_the_guard_goes_on_where_it_was_after_a_crash(autojump_clock):
    """The log alone tells what was called: a task that is replayed makes no more calls than one that was not."""
    model = ScriptedModel([*[say("", call("echo", f"c{n}", x=1)) for n in range(3)], Hang()])
    async with open_desk(model) as desk:
        task_id = await desk.submit()
        await trio.sleep(100)
        shelf, made = desk.shelf, len(desk.calls)
    again = ScriptedModel(lambda _: say("", call("echo", "again", x=1)))
    async with open_desk(again, shelf=shelf, limits=TaskLimits(recovery="resume", max_iterations=20)) as desk:
        task = await desk.outcome(task_id)
        assert desk.calls == []
    assert made == 3
    assert "went in circles" in task.error
