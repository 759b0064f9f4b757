"""What the task system says is open, when a session is compacted."""

from functools import partial

from pegasus.main_agent.compaction import find_open_tasks
from pegasus.messages import Address
from pegasus.testing.scripted import Hang, ScriptedModel, say
from pegasus.testing.world import FakeChannel, open_world
from tests.pegasus.main_agent.voices import agent_of, delegate


async def test_tasks_that_are_not_done_are_told_with_where_they_were_asked_for(autojump_clock):
    cli = FakeChannel("cli")
    thinks = ScriptedModel(lambda request: say("done") if "short" in request.turns[0].text else Hang())
    async with open_world(ScriptedModel(delegate), channels=(cli,), task_model=thinks) as world:
        await world.say("short")
        while "done" not in " ".join(cli.texts):
            await world.next_reply()
        await world.say("long")
        await world.idle()
        finder = partial(find_open_tasks, agent_of(world))
        [task] = await finder()
        assert (task.kind, task.state, task.description, task.address) == (
            "general",
            "reasoning",
            "long",
            Address("cli", "main"),
        )
        await world.root.stop()
        assert await finder() is None
