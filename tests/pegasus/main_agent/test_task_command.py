"""/tasks: what a person sees of background tasks, and how they end one, before any model is asked."""

import trio

from pegasus.messages import ChannelInfo
from pegasus.settings import AgentSettings, Settings
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, say
from pegasus.testing.world import FakeChannel, open_world
from pegasus.tools import Effect
from tests.pegasus.tasks.world import make_tool

from .voices import delegate

STRANGER = ChannelInfo("slack", "#general", "joe")


async def ask(world, text, channel=ChannelInfo("cli", "main", "me")):
    """Return the answer to a command; what a task reports meanwhile is passed over."""
    await world.say(text, channel)
    while (answer := (await world.next_reply(channel.type)).text).startswith("[Task"):
        pass
    return answer


async def begin(world, text, channel=ChannelInfo("cli", "main")):
    await world.say(text, channel)
    await world.next_reply(channel.type)
    await trio.sleep(1)


async def test_without_tasks_it_says_so(autojump_clock):
    async with open_world(model := ScriptedModel([])) as world:
        assert await ask(world, "/tasks") == "No task is at work."
        assert await ask(world, "/tasks show 7") == "There is no task 7; there are no tasks yet."
        assert await ask(world, "/tasks show x") == 'There is no task "x"; /tasks lists them.'
        for text in ("/tasks show", "/tasks cancel", "/tasks stop", "/tasks show 1 2"):
            answer = await ask(world, text)
            assert answer == "Write /tasks, /tasks show N, or /tasks cancel N, where N is the number of a task."
        assert "/tasks" in await ask(world, "/help")
    assert model.requests == []


async def test_a_running_task_is_listed_shown_and_cancelled_by_its_number(autojump_clock):
    async def slow(arguments, context):
        await trio.sleep_forever()

    works = ScriptedModel([say("", call("slow", "s1"))])
    tools = [make_tool("slow", slow, Effect.ONCE)]
    async with open_world(ScriptedModel(delegate), task_model=works, tools=tools) as world:
        await begin(world, "count the stars")
        assert "1  slow, step 1, 1.0 s: count the stars" in (await ask(world, "/tasks")).splitlines()
        shown = await ask(world, "/tasks show 1")
        assert shown.startswith("Task 1  slow, step 1, ")
        assert "Work: count the stars" in shown
        assert "Task 1  slow, step 1" in await ask(world, "/status")
        assert "I am idle" not in await ask(world, "/status")
        stopped = await ask(world, "/tasks cancel #1")
        assert stopped.startswith("Stopped task 1 (count the stars) (ran ")
        assert stopped.endswith("; it was at slow.")
        await trio.sleep(1)
        assert "1  stopped by the user (cli) 1.0 s ago: count the stars" in (await ask(world, "/tasks"))
        assert await ask(world, "/tasks cancel 1") == "Task 1 (count the stars) was stopped already."
        assert await ask(world, "/tasks cancel 9") == "There is no task 9; the newest is 1."


async def test_a_task_that_ended_before_a_restart_is_listed_for_a_day(autojump_clock):
    now = 0
    disk = MemoryDisk()

    def clock():
        return 1_772_020_800_000 + now + int(trio.current_time() * 1000)

    async with open_world(ScriptedModel(delegate), task_model=ScriptedModel(["42"]), disk=disk, clock=clock) as world:
        await begin(world, "work it out")
        await world.idle()
    async with open_world(ScriptedModel([]), disk=disk, clock=clock) as world:
        assert "1  completed" in await ask(world, "/tasks")
        assert "Result: 42" in await ask(world, "/tasks show 1")
        now = 24 * 3600 * 1000
        assert await ask(world, "/tasks") == "No task is at work."


async def test_the_time_of_a_task_counts_from_its_creation_also_after_a_restart(autojump_clock):
    disk = MemoryDisk()

    def clock():
        return 1_772_020_800_000 + int(trio.current_time() * 1000)

    works = ScriptedModel(lambda request: Hang())
    async with open_world(ScriptedModel(delegate), task_model=works, disk=disk, clock=clock) as world:
        await begin(world, "count the stars")
        await trio.sleep(250)
    async with open_world(ScriptedModel([]), task_model=works, disk=disk, clock=clock) as world:
        await trio.sleep(1)
        assert (await ask(world, "/tasks show 1")).startswith("Task 1  thinking, step 1, 4.3 min: count the stars")


async def test_strangers_see_and_end_the_tasks_of_their_own_conversation_only(autojump_clock, threads_in_place):
    settings = Settings(agent=AgentSettings(owners=("cli",)))
    slack = FakeChannel("slack")
    works = ScriptedModel(lambda request: Hang())
    async with open_world(
        ScriptedModel(delegate), task_model=works, channels=(FakeChannel("cli"), slack), settings=settings
    ) as world:
        await begin(world, "mine")
        await begin(world, "theirs", STRANGER)
        listed = await ask(world, "/tasks", STRANGER)
        assert "theirs" in listed
        assert "mine" not in listed
        assert await ask(world, "/tasks show 1", STRANGER) == "Task 1 belongs to another conversation."
        assert await ask(world, "/tasks cancel 1", STRANGER) == "Task 1 belongs to another conversation."
        assert (await ask(world, "/tasks cancel 2", STRANGER)).startswith("Stopped task 2 (theirs)")
        assert "mine" in await ask(world, "/tasks")


async def test_a_task_that_does_not_end_holds_up_nobody(autojump_clock):
    async def stubborn(arguments, context):
        with trio.CancelScope(shield=True):
            await trio.sleep(60)

    works = ScriptedModel([say("", call("stubborn", "s1"))])
    tools = [make_tool("stubborn", stubborn)]
    async with open_world(ScriptedModel(delegate), task_model=works, tools=tools) as world:
        await begin(world, "dig")
        before = trio.current_time()
        assert (await ask(world, "/tasks cancel 1")).startswith("Still ending: task 1 (dig), at stubborn.")
        assert trio.current_time() - before < 6
        await trio.sleep(60)
        assert "1  stopped by" in await ask(world, "/tasks")


async def test_stop_names_the_number_of_the_task_that_it_ended(autojump_clock):
    works = ScriptedModel(lambda request: Hang())
    async with open_world(ScriptedModel(delegate), task_model=works) as world:
        await begin(world, "count the stars")
        assert "- task 1: count the stars (ran" in await ask(world, "/stop")


async def test_queued_tasks_are_work_too(autojump_clock):
    """Nothing is idle while a task waits for its turn."""
    works = ScriptedModel(lambda request: After(1000, "done"))
    settings = Settings()
    async with open_world(ScriptedModel(delegate), task_model=works, settings=settings) as world:
        for n in range(6):
            await begin(world, f"job {n}")
        status = await ask(world, "/status")
        assert "I am waiting for 6 background tasks." in status
        assert "Task 6  waiting for its turn: job 5" in status
