"""The task systems of two nodes over one database, in virtual time: seen, stopped and answered anywhere, and taken over."""

from contextlib import asynccontextmanager

import pytest
import trio

from actors import Child, Mailbox, Restart, open_supervisor
from pegasus.storage.database import NodeFacts, run_database_journal
from pegasus.tasks import (
    Cancel,
    CancelAll,
    Continue,
    GetTask,
    LatestTasks,
    ListTasks,
    Resume,
    Suspend,
    TaskError,
    TaskLimits,
    TaskState,
)
from pegasus.testing.memory_database import MemoryDatabase
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, say
from tests.pegasus.tasks.world import Listener, clock, open_desk

LIMITS = TaskLimits(recovery="resume", timeout=3600)


@asynccontextmanager
async def node(database, name, model, **more):
    """The task system of a node."""
    link = database.link(name)

    async def journal(inbox):
        await run_database_journal(inbox, link, facts=NodeFacts(name), clock=clock, report=lambda *_, **__: None)

    child = Child("journal", journal, restart=Restart.TEMPORARY, mailbox=Mailbox(1024))
    async with (
        open_supervisor([child]) as root,
        open_desk(model, journal=root.ref("journal"), owner=name, limits=LIMITS, **more) as desk,
    ):
        yield desk


def words(desk, task_id):
    """What a tool was called with for a task."""
    return [word for id, _, word, _ in desk.calls if id == task_id]


async def test_tasks_are_seen_from_any_node_and_have_numbers_of_their_own(autojump_clock):
    database = MemoryDatabase()
    hanging, quick = ScriptedModel(lambda _: Hang()), ScriptedModel(lambda _: "done")
    async with node(database, "a", hanging) as a, node(database, "b", quick) as b:
        first = await a.submit("on a")
        second = await b.submit("on b")
        assert (await b.outcome(second)).result == "done"
        await trio.sleep(3)
        for desk in (a, b):
            assert {view.task_id for view in await desk.agent.ask(ListTasks)} == {first, second}
            found = {view.task_id: view for view in await desk.agent.ask(LatestTasks, 10)}
            assert [(view.number, view.input_text) for view in found.values()] == [(1, "on a"), (2, "on b")]
            assert found[second].result == "done"
        assert (await b.agent.ask(GetTask, "1")).task_id == first


async def test_a_task_is_stopped_and_paused_and_resumed_from_any_node(autojump_clock):
    database = MemoryDatabase()
    model = ScriptedModel(lambda _: After(5, say("", call("slow", "c1", x=30))))
    async with node(database, "a", model) as a, node(database, "b", ScriptedModel([])) as b:
        task_id = await a.submit("job")
        paused = await b.agent.ask(Suspend, task_id)
        assert (paused.state, paused.number) == (TaskState.SUSPENDED, 1)
        assert (await a.agent.ask(GetTask, task_id)).state is TaskState.SUSPENDED
        await b.agent.ask(Continue, "1")
        await trio.sleep(2)
        with pytest.raises(TaskError, match="is acting"):
            await b.agent.ask(Resume, task_id, "more")
        stopped = await b.agent.ask(Cancel, "1", "the owner")
        assert (stopped.task_id, stopped.number) == (task_id, 1)
        assert (await a.agent.ask(GetTask, task_id)).error == "stopped by the owner"
        with pytest.raises(TaskError, match="not running"):
            await b.agent.ask(Cancel, "1", "the owner")
        channel = {"channel": {"type": "web", "channelId": "c1"}}
        for metadata in (channel, {}):
            await a.submit("job", metadata=metadata)
        await trio.sleep(1)
        assert [each.number for each in await b.agent.ask(CancelAll, "the owner", ("web", "c1"))] == [2]
        assert database.tables.read_rows("task-requests", "").rows == {}


async def test_a_task_that_is_over_is_resumed_on_the_node_that_is_asked(autojump_clock):
    database = MemoryDatabase()
    models = [ScriptedModel(lambda _, text=text: text) for text in ("first", "second")]
    async with node(database, "a", models[0]) as a, node(database, "b", models[1]) as b:
        task_id = await a.submit("job")
        assert (await a.outcome(task_id)).result == "first"
        await b.agent.ask(Resume, task_id, "and then?")
        assert (await b.outcome(task_id)).result == "second"
        assert (await a.agent.ask(GetTask, task_id)).result == "second"


async def test_the_tasks_of_a_node_that_dies_go_on_elsewhere_and_it_can_write_nothing_more(autojump_clock):
    database = MemoryDatabase()
    told = Listener()
    asking = ScriptedModel(lambda request: say("", call("slow", f"c{len(request.turns)}", x=20)))
    ending = ScriptedModel(lambda request: "finished by b")
    async with node(database, "a", asking) as a, node(database, "b", ending, listener=told) as b:
        task_id = await a.submit("job")
        await trio.sleep(10)
        database.cut("a")
        began = trio.current_time()
        assert (await b.outcome(task_id)).result == "finished by b"
        assert trio.current_time() - began < 5 + 1
        await trio.sleep(30)
        database.mend("a")
        await trio.sleep(30)
        assert words(a, task_id) == ["begin"]  # its call was cancelled with the lease
        events = [event.type.name for event in await b.shelf.read_events(task_id)]
        assert events.count("TASK_CREATED") == events.count("TASK_COMPLETED") == 1
        assert [(each.type, each.n) for each in told.heard] == [("completed", 1)]
        # It lives again, and works.
        assert (await b.agent.ask(GetTask, task_id)).result == "finished by b"
        other = await a.submit("another")
        assert {view.task_id for view in await b.agent.ask(ListTasks)} == {task_id, other}


async def test_a_stop_hands_tasks_over_at_once(autojump_clock):
    database = MemoryDatabase()
    async with node(database, "b", ScriptedModel(lambda _: "finished by b")) as b:
        async with node(database, "a", ScriptedModel(lambda _: Hang())) as a:
            task_id = await a.submit("job")
            await trio.sleep(1)
        began = trio.current_time()
        assert (await b.outcome(task_id)).result == "finished by b"
        assert trio.current_time() - began <= 1


async def test_a_node_that_is_drained_gives_its_tasks_away_and_takes_none(autojump_clock):
    database = MemoryDatabase()
    hanging, quick = ScriptedModel(lambda _: Hang()), ScriptedModel(lambda _: "finished by b")
    async with node(database, "a", hanging) as a, node(database, "b", quick) as b:
        task_id = await a.submit("job")
        await trio.sleep(1)
        database.tables.drain("a")
        with trio.fail_after(120):
            assert (await b.outcome(task_id)).result == "finished by b"
        other = await b.submit("another")
        assert (await b.outcome(other)).result == "finished by b"
        await trio.sleep(120)  # it waits, and does not end
        events = [event.type.name for event in await b.shelf.read_events(task_id)]
        assert events.count("TASK_COMPLETED") == 1
