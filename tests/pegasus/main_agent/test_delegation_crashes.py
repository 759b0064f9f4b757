"""Delegated work when something dies: the Main Agent, the task system, whatever is between them, or the machine.

A job is spawned once, ends once, and is told of once, at whatever moment that happens.
"""

import itertools
import json
from collections import Counter
from contextlib import suppress
from types import SimpleNamespace

import attrs
import pytest
import trio

from actors import Child, GaveUp, Restarting, open_supervisor
from pegasus.conversation import OpenCall
from pegasus.main_agent.delegation import TaskDelegation
from pegasus.models.base import ToolCall, ToolSpec, UserTurn
from pegasus.tasks import ListTasks, TaskState
from pegasus.tasks.agent.messages import StoppedTask
from pegasus.testing.memory_disk import MemoryDisk
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, say
from pegasus.testing.world import FakeChannel, kill, open_world
from pegasus.tools import Effect, Tool
from tests.pegasus.main_agent.voices import (
    FAIL,
    RESUME,
    SLACK,
    agent_of,
    both,
    crash,
    delegate,
    notices,
    result_of,
    spawn,
    tasks_of,
)


def cut_off_behind_the_spawn(disk):
    """As if the machine had died before any result of that turn was written."""
    lines = disk.content("main/current.jsonl").splitlines(keepends=True)
    [turn] = [n for n, line in enumerate(lines) if b"spawn_subagent" in line]
    disk.put("main/current.jsonl", b"".join(lines[: turn + 1]))
    accepted = disk.content("inbox/inbox.jsonl").splitlines(keepends=True)
    disk.put("inbox/inbox.jsonl", b"".join(line for line in accepted if b'"done"' not in line))


async def test_a_spawn_whose_result_was_lost_gets_its_true_result_and_is_not_made_again(autojump_clock):
    """Interfaces 8.5: the task was begun, its result did not reach the session."""
    cli, model = FakeChannel("cli"), ScriptedModel(delegate)
    async with open_world(model, task_model=ScriptedModel([Hang()]), channels=(cli,)) as world:
        await world.say("x")
        await world.next_reply()
        await world.idle()
        [task] = await tasks_of(world)
        await kill(world)
    cut_off_behind_the_spawn(world.disk)
    async with open_world(
        model, task_model=ScriptedModel(["done"]), channels=(cli,), disk=world.disk, settings=RESUME
    ) as again:
        assert "done" in (await again.next_reply()).text
        await again.idle()
        assert len(await tasks_of(again)) == 1
        assert [json.loads(one)["taskId"] for one in result_of(again.session(), "spawn_subagent")] == [task.task_id]
    assert len(model.requests) == 2


async def test_a_spawn_that_never_was_is_marked_and_thought_about_again(autojump_clock):
    cli, model = FakeChannel("cli"), ScriptedModel(delegate)
    async with open_world(model, task_model=ScriptedModel([Hang()]), channels=(cli,)) as world:
        await world.say("x")
        await world.next_reply()
        await world.idle()
        await kill(world)
    cut_off_behind_the_spawn(world.disk)
    disk = MemoryDisk()
    for path in world.disk.paths():
        if not path.startswith("tasks/"):
            disk.put(path, world.disk.content(path))

    def voice(request):
        last = request.turns[-1]
        if last.results and last.results[-1].is_error and not last.text:
            return say("", spawn("x", "t"))
        return delegate(request)

    async with open_world(
        ScriptedModel(voice), task_model=ScriptedModel(["done"]), channels=(cli,), disk=disk
    ) as again:
        assert "done" in (await again.next_reply()).text
        await again.idle()
        assert "process restarted" in result_of(again.session(), "spawn_subagent")[0]
        assert len(await tasks_of(again)) == 1


async def test_a_task_system_that_comes_late_still_says_that_a_call_has_begun_a_task(autojump_clock):
    task = SimpleNamespace(task_id="t", task_type="general", description="x", number=1, metadata={})

    async def tasks(inbox):
        await trio.sleep(30)  # as on a node that takes the tasks of a lost one over while the database was down
        async for message in inbox:
            if inbox.attempt == 1:
                raise OSError("once more")
            message.reply.send(task)

    opened = OpenCall(ToolCall("c", "spawn_subagent", {"description": "x", "input": "t"}), 1)
    async with open_supervisor([Child("tasks", tasks)]) as root:
        found = await TaskDelegation(root.ref("tasks")).result_of(opened, "main/1/c")
    assert json.loads(found)["taskId"] == "t"


@attrs.define(eq=False)
class Life:
    """What must hold of one delegated job, whatever fails meanwhile. work: for the task's model; done: calls it made."""

    cli: FakeChannel = attrs.field(factory=lambda: FakeChannel("cli"))
    disk: MemoryDisk = attrs.field(factory=lambda: MemoryDisk(0.05))
    done: list = attrs.field(factory=list)

    def open(self, settings=None):
        def work(request):
            if any(turn.results for turn in request.turns if isinstance(turn, UserTurn)):
                return After(0.5, "the result")
            return After(0.5, say("", call("mark", "m")))

        async def mark(arguments, context):
            self.done.append(context.key)
            return "marked"

        tool = Tool(ToolSpec("mark", "mark", {"type": "object", "properties": {}}), mark, "custom", Effect.ONCE)
        return open_world(
            ScriptedModel(self.voice),
            task_model=ScriptedModel(work),
            channels=(self.cli,),
            disk=self.disk,
            settings=settings,
            tools=[tool],
        )

    def voice(self, request):
        """As `delegate`; calls that a crash has marked as cancelled are made again, as other calls."""
        last = request.turns[-1]
        failed = {one.call_id for one in last.results if one.is_error}
        if last.text or not failed:
            return After(0.2, delegate(request))
        made = [one for one in request.turns[-2].calls if one.id in failed]
        return After(0.2, say("", *(attrs.evolve(one, id=f"{one.id}+") for one in made)))

    async def check(self, world, mode):
        await world.idle()
        await trio.sleep(30)
        await world.idle()
        tasks = await agent_of(world).ask(ListTasks, "2026-02-25")
        told = Counter(line["content"] for line in notices(world.session()))
        headings = [text.split("\n")[1] for text in told]
        assert set(told.values()) == {1}, told
        assert Counter(self.cli.texts)["on it"] == 1
        assert len(tasks) == 1, tasks
        [task] = tasks
        word = "completed" if task.state is TaskState.COMPLETED else "failed"
        assert headings == [f"[Task {task.task_id} {word}]"]
        assert [text for text in self.cli.texts if text.startswith(headings[0])] == [
            text for text in self.cli.texts if text != "on it"
        ]
        assert len(self.cli.texts) == 2
        assert len(set(self.done)) == len(self.done) <= 1
        assert mode == "fail" or word == "completed"


MOMENTS = [round(0.05 + 0.15 * n, 2) for n in range(15)]
"""Seconds after the job was asked for. Its thought ends at 0.25, the task exists from 0.6 on, its result is told at 1.85."""


def alternating(values):
    """Each with one of the two modes in turn."""
    return list(zip(values, itertools.cycle(["fail", "resume"]), strict=False))


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_crash_of_the_main_agent_costs_no_task_and_no_word(autojump_clock, moment):
    life = Life()
    async with life.open() as world:
        await world.say("job")
        await trio.sleep(moment)
        crash(world, "main-agent/global")
        await life.check(world, "resume")


@pytest.mark.parametrize(("moment", "mode"), alternating(MOMENTS))
async def test_a_crash_of_the_task_agent_is_told_once_and_costs_the_main_agent_nothing(autojump_clock, moment, mode):
    life = Life()
    async with life.open(RESUME if mode == "resume" else FAIL) as world:
        with world.root.events() as events:
            await world.say("job")
            await trio.sleep(moment)
            crash(world, "tasks/agent")
            await life.check(world, mode)
            restarted = set()
            with suppress(trio.WouldBlock):
                while True:
                    if isinstance(event := events.receive_nowait(), Restarting):
                        restarted.add(event.path)
    assert restarted == {"tasks/agent"}


@pytest.mark.parametrize(("mode", "ends"), [("fail", "failed"), ("resume", "completed")])
async def test_after_a_power_failure_the_rest_is_told_where_the_work_was_asked_for(autojump_clock, mode, ends):
    """What was said before it and the outcome after it reach the same thread."""
    settings, (cli, slack) = RESUME if mode == "resume" else FAIL, both()
    steps = [say("", call("notify", "n", message="half way")), Hang(), "the result"]
    life = {"task_model": ScriptedModel(steps), "channels": (cli, slack), "settings": settings}
    async with open_world(ScriptedModel(delegate), **life) as world:
        with trio.CancelScope() as scope:
            await world.say("job", SLACK)
            await trio.sleep(10)
            await kill(world)
            scope.cancel()
    async with open_world(ScriptedModel(delegate), disk=world.disk, **life) as again:
        await trio.sleep(10)
        await again.idle()
        headings = [line["content"].split("\n")[:2] for line in notices(again.session())]
    assert [where for where, _ in headings] == ["[channel: slack | id: D-general | thread: thread:1]"] * 2
    assert [what.split()[-1] for _, what in headings] == ["update]", f"{ends}]"]
    assert cli.texts == []
    assert ["half way" in text for text in slack.texts] == [False, True, False]
    assert f" {ends}]" in slack.texts[-1]


@pytest.mark.parametrize("path", ["tasks/bus", "tasks/persister", "main-agent/notifications"])
@pytest.mark.parametrize(("moment", "mode"), alternating([0.4, 0.75, 1.2, 1.8]))
async def test_a_crash_of_any_part_between_them_is_told_once(autojump_clock, path, moment, mode):
    life = Life()
    async with life.open(RESUME if mode == "resume" else FAIL) as world:
        await world.say("job")
        await trio.sleep(moment)
        crash(world, path)
        await life.check(world, mode)


@pytest.mark.parametrize(("operation", "mode"), alternating(range(1, 50, 2)))
async def test_a_power_failure_at_any_write_is_told_once_and_nothing_is_spawned_twice(autojump_clock, operation, mode):
    life = Life()
    settings = RESUME if mode == "resume" else FAIL
    with suppress(GaveUp):
        async with life.open(settings) as world:
            await world.say("job")
            life.disk.lose_power(operation)
            await trio.sleep(20)
            await kill(world)
    life.disk.crash()
    async with life.open(settings) as again:
        await life.check(again, mode)


async def test_stop_ends_tasks_also_while_their_system_starts_again(autojump_clock):
    cli = FakeChannel("cli")
    async with open_world(
        ScriptedModel(delegate),
        task_model=ScriptedModel(lambda request: Hang()),
        channels=(cli,),
        disk=MemoryDisk(0.05),
        settings=RESUME,
    ) as world:
        await world.say("x")
        await world.next_reply()
        await world.idle()
        await trio.sleep(1)
        crash(world, "tasks/agent")
        await trio.lowlevel.checkpoint()
        await world.say("/stop")
        assert "- task 1: x" in (await world.next_reply()).text
        await world.idle()
        await trio.sleep(20)
        [task] = await tasks_of(world)
        assert task.error == "stopped by the user (cli)"


async def test_stop_right_after_a_start_ends_the_tasks_of_the_run_before(autojump_clock):
    cli = FakeChannel("cli")
    model, hang = ScriptedModel(delegate), ScriptedModel(lambda request: Hang())
    async with open_world(model, task_model=hang, channels=(cli,), settings=RESUME) as world:
        await world.say("x")
        await world.next_reply()
        await world.idle()
        await kill(world)
    world.disk.delay = 0.05
    async with open_world(model, task_model=hang, channels=(cli,), settings=RESUME, disk=world.disk) as again:
        await again.say("/stop")
        assert "- task 1: x" in (await again.next_reply()).text
        await again.idle()
        await trio.sleep(20)
        [task] = await tasks_of(again)
        assert task.error == "stopped by the user (cli)"


async def test_a_stop_that_was_accepted_before_the_end_comes_before_what_the_tasks_would_do_next(autojump_clock):
    """The machine died between the acceptance of /stop and its work; after the start, the task has no time to end by itself."""
    cli, model = FakeChannel("cli"), ScriptedModel(delegate)
    async with open_world(model, task_model=ScriptedModel([Hang()]), channels=(cli,), settings=RESUME) as world:
        await world.say("x")
        await world.next_reply()
        await world.idle()
        await world.say("/stop")
        await kill(world)
    quick = ScriptedModel(["done"])
    async with open_world(model, task_model=quick, channels=(cli,), settings=RESUME, disk=world.disk) as again:
        assert "- task 1: x" in (await again.next_reply()).text
        await again.idle()
        await trio.sleep(20)
        [task] = await tasks_of(again)
        assert (task.state, task.error) == (TaskState.FAILED, "stopped by the user (cli)")
    assert quick.requests == []


async def test_a_stop_waits_for_a_task_system_that_has_not_begun(autojump_clock):
    """It would take up tasks of the run before, which nobody has stopped then."""

    async def answering(inbox):
        async for message in inbox:
            message.reply.send((StoppedTask("0123456789abcdef", "x", "thinking", 1.0),))

    async with open_supervisor() as root, trio.open_nursery() as nursery:
        ended = []

        async def stop():
            ended.extend(await TaskDelegation(root.ref("agent")).stop("a test", None))

        nursery.start_soon(stop)
        await trio.sleep(1)
        await root.start_child(Child("agent", answering))
        await trio.sleep(1)
        assert [one.what for one in ended] == ["x"]
