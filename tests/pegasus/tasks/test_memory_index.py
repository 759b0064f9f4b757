"""When a task is told what memory holds: at its first thought, and never again (trap T3)."""

import trio

from pegasus.tasks.context import TaskState
from pegasus.tasks.ports import TaskMemory
from pegasus.testing.scripted import After, ScriptedModel, call, say
from tests.pegasus.tasks.world import open_desk


class Shelf:
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
    memory = Shelf()
    model = ScriptedModel([say("", call("echo", "a")), say("", call("echo", "b")), "done", "nothing to keep"])
    async with open_desk(model, memory=TaskMemory(memory.index, memory.digest)) as desk:
        task = await desk.run("the job")
        assert (task.state, memory.looks) == (TaskState.COMPLETED, 1)
        assert texts(model.requests[2]) == ["the job", "", ""]


async def test_memory_looks_while_a_task_is_being_made(autojump_clock):
    """Whoever wants the index then need not wait; an error in it is none of the agent's."""
    looked = []

    async def expect():
        looked.append(trio.current_time())
        raise OSError("the folder is away")

    memory = Shelf()
    async with open_desk(
        ScriptedModel([After(5, "done")]), memory=TaskMemory(memory.index, memory.digest, expect=expect)
    ) as desk:
        began = trio.current_time()
        task_id = await desk.submit()
        assert looked == [began]
        assert (await desk.outcome(task_id)).state is TaskState.COMPLETED
    assert (looked, memory.looks) == ([began], 1)
