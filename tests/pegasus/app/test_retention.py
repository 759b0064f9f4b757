"""Old archives and logs of tasks go if the settings say so: through the whole tree, in virtual time."""

import pytest
import trio

from pegasus.settings import RetentionSettings, Settings, TaskSettings
from pegasus.tasks import Suspend, TaskState, Wait
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import Hang, ScriptedModel, call, say
from pegasus.testing.world import START, open_world, wall_clock
from tests.pegasus.app.test_settings_of_tasks import submit

DAY = 86_400_000


def logs(world):
    return [path for path in world.disk.paths() if path.startswith("tasks/2") and path.endswith(".jsonl")]


def age(world, days):
    """Make everything on the disk look as if it was last written so many days ago."""
    for node in world.disk.files.names.values():
        node.written = START - days * DAY


def answering(request):
    last = request.turns[-1].text
    return say("", call("reply", "r", text="ok", channelId="main")) if last else say()


@pytest.mark.parametrize(("days", "is_kept"), [(0, True), (30, False), (101, True)])
async def test_tasks_that_are_over_go_and_their_numbers_are_not_given_again(autojump_clock, days, is_kept):
    settings = Settings(retention=RetentionSettings(task_days=days), tasks=TaskSettings(max_active=1))
    model = ScriptedModel(lambda request: Hang() if "hang" in str(request.turns[0].text) else say("done"))
    quiet, disk = ScriptedModel(lambda request: say()), MemoryDisk()
    past = open_world(quiet, task_model=model, disk=disk, settings=settings, clock=lambda: wall_clock() - 100 * DAY)
    async with past as world:
        done = await submit(world)
        assert (await world.root.ref("tasks/agent").ask(Wait, done)).state is TaskState.COMPLETED
        await submit(world, "hang")
        waiting = await submit(world, "wait for the one before")
        await world.root.ref("tasks/agent").ask(Suspend, waiting)
        await trio.sleep(60)
        assert len(logs(world)) == 3
        age(world, 100)
    async with open_world(quiet, task_model=model, disk=disk, settings=settings) as world:
        await trio.sleep(1.5 * 3600)
        assert [path for path in logs(world) if waiting in path]
        assert bool([path for path in logs(world) if done in path]) is is_kept
        last = await world.root.ref("tasks/agent").ask(Wait, await submit(world))
        assert last.number == 4


@pytest.mark.parametrize(("days", "left"), [(0, 3), (30, 1)])
async def test_archives_go_and_what_the_conversation_goes_on_from_stays(autojump_clock, days, left):
    settings = Settings(retention=RetentionSettings(archive_days=days))
    disk = MemoryDisk()
    async with open_world(ScriptedModel(answering), disk=disk, settings=settings) as world:
        for number in range(3):
            await world.say(f"message {number}")
            await world.say("/new")
            await trio.sleep(2)
        await world.idle()
        archives = sorted(path for path in disk.paths() if path.startswith("main/2"))
        assert len(archives) == 3
        age(world, 100)
        await trio.sleep(2 * 3600)
        assert sorted(path for path in disk.paths() if path.startswith("main/2")) == archives[3 - left :]
        await world.say("and on")
        await world.idle()
