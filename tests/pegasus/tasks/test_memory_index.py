"""When a task is told what memory holds: at its first thought, and never again."""

import trio

from pegasus.tasks import GetContext, Resume, TaskLimits, TaskState
from pegasus.tasks.run.deps import REFLECT_AFTER
from pegasus.testing.scripted import Hang, ScriptedModel, call, say
from tests.pegasus.tasks.world import MemoryFolder, StubMemory, open_desk


async def likes_tea():
    return "# Memory\nfacts/user.md: likes tea"


async def nothing():
    return ""


class Remembers:
    """Memory that has something to tell only after the first look."""

    def __init__(self):
        self.looks = 0

    async def index(self):
        self.looks += 1
        return "" if self.looks == 1 else "# Memory\nfacts/user.md"

    async def digest(self):
        return ""


def texts(request):
    return [turn.text for turn in request.turns if hasattr(turn, "results")]


async def test_what_memory_holds_is_read_for_the_first_thought_only(autojump_clock):
    memory = Remembers()
    model = ScriptedModel([say("", call("echo", "a")), say("", call("echo", "b")), "done", "nothing to keep"])
    async with open_desk(model, memory=StubMemory(memory.index, memory.digest)) as desk:
        task = await desk.run("the job")
        assert (task.state, memory.looks) == (TaskState.COMPLETED, 1)
        assert texts(model.requests[2]) == ["the job", "", ""]


async def test_memory_that_cannot_be_read_costs_nobody_a_task(autojump_clock):
    async def away():
        raise OSError("away")

    model = ScriptedModel([say("", call("echo", "a")), "done", "nothing to keep"])
    async with open_desk(model, memory=StubMemory(away, away)) as desk:
        assert (await desk.run("the job")).result == "done"
        await trio.sleep(REFLECT_AFTER + 1)
        assert desk.shelf.logs
    assert len(model.requests) == 3


async def test_after_a_restart_a_task_is_not_told_again_what_memory_holds(autojump_clock):
    """The index stands in the conversation, which the log has."""
    shelf, limits = MemoryFolder(), TaskLimits(recovery="resume")
    with trio.move_on_after(5):
        model = ScriptedModel([say("", call("echo", "a")), Hang()])
        async with open_desk(model, shelf=shelf, memory=StubMemory(likes_tea, nothing), limits=limits) as desk:
            task_id = await desk.submit("the job")
            await trio.sleep_forever()
    again = ScriptedModel(["done", "nothing to keep"])
    async with open_desk(again, shelf=shelf, memory=StubMemory(likes_tea, nothing), limits=limits) as desk:
        await desk.outcome(task_id)
        context = await desk.agent.ask(GetContext, task_id)
    assert sum("likes tea" in entry.content for entry in context.messages) == 1
    assert "".join(texts(again.requests[0])).count("likes tea") == 1


async def test_a_task_that_is_taken_up_again_is_not_told_again_what_memory_holds(autojump_clock):
    model = ScriptedModel([say("", call("echo", "a")), "first answer", "nothing to keep", "second answer"])
    async with open_desk(model, memory=StubMemory(likes_tea, nothing)) as desk:
        first = await desk.run("question one")
        await trio.sleep(REFLECT_AFTER + 1)  # it looks back
        await desk.agent.ask(Resume, first.task_id, "question two")
        assert (await desk.outcome(first.task_id)).result == "second answer"
    assert "".join(texts(model.requests[-1])).count("likes tea") == 1
