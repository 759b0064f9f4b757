"""Tasks are moved by what they hear on the bus: their own events when these are on disk, and events that others publish."""

import pytest
import trio

from actors import Child, Mailbox
from pegasus.events import Emit, Event, EventType, Subscribe
from pegasus.tasks import FOR_PERSON, Continue, GetContext, GetTask, Resume, Suspend, TaskLimits, TaskState
from pegasus.tasks.log.replay import replay
from pegasus.testing.scripted import After, Hang, ScriptedModel, call, say
from tests.pegasus.tasks.world import MemoryFolder, clock, open_desk

WORK = say("", call("slow", "a", x=5))
LOOK = say("", call("look", "a", x=5))
SUSPENDED, RESUMED, CANCELLED = EventType.TASK_SUSPENDED, EventType.TASK_RESUMED, EventType.TASK_CANCELLED


async def emit(desk, type, task_id, payload=None):
    event = Event(type, clock(), "somebody", task_id, payload or {})
    await desk.bus.tell(Emit((event,)))
    return event


async def view(desk, task_id):
    return await desk.agent.ask(GetTask, task_id)


async def test_a_published_suspension_stops_a_task_before_its_next_step(autojump_clock):
    model = ScriptedModel([WORK, "done"])
    async with open_desk(model) as desk:
        task_id = await desk.submit()
        await trio.sleep(1)
        asked = await emit(desk, SUSPENDED, task_id, {"suspendReason": "until tomorrow"})
        await trio.sleep(1000)
        task = await view(desk, task_id)
        assert (task.state, task.waits_for) == (TaskState.SUSPENDED, "until tomorrow")
        assert [what for _, _, what, _ in desk.calls] == [
            "begin",
            "end",
        ]  # what ran was not cut, and its result is kept
        assert desk.shelf.events(task_id) == ["TASK_CREATED", "REASON_DONE", "TOOL_CALL_COMPLETED", "TASK_SUSPENDED"]
        [written] = [event for event in desk.watcher.events if event.type is SUSPENDED and event.line]
        assert written.parent_id == asked.id
        await emit(desk, RESUMED, task_id)
        assert (await desk.outcome(task_id)).result == "done"
        await trio.sleep(1)
        assert desk.shelf.events(task_id).count("TASK_RESUMED") == 1
    assert replay(desk.shelf.logs[task_id], task_id).problems == ()


async def test_a_published_suspension_holds_a_task_that_waits_for_its_turn(autojump_clock):
    async with open_desk(ScriptedModel([After(5, "done"), "done too"]), limits=TaskLimits(max_active=1)) as desk:
        first, second = await desk.submit("one"), await desk.submit("two")
        await emit(desk, SUSPENDED, second)
        await desk.outcome(first)
        await trio.sleep(100)
        assert (await view(desk, second)).state is TaskState.SUSPENDED
        await emit(desk, RESUMED, second, {"newInput": "now"})
        assert (await desk.outcome(second)).result == "done too"
        assert [entry.content for entry in (await desk.agent.ask(GetContext, second)).messages] == [
            "two",
            "now",
            "done too",
        ]


@pytest.mark.parametrize("at", ["thinking", "slow", "waiting", "suspended"])
async def test_a_published_cancel_ends_a_task_wherever_it_is(at, autojump_clock):
    model = ScriptedModel([Hang() if at in ("thinking", "waiting") else say("", call("slow", "a", x=1000)), Hang()])
    async with open_desk(model, limits=TaskLimits(max_active=1)) as desk:
        task_id = await desk.submit()
        if at == "waiting":
            task_id = await desk.submit("another")
        if at == "suspended":
            await emit(desk, SUSPENDED, task_id)
        await trio.sleep(1 if at != "suspended" else 1001)
        asked = await emit(desk, CANCELLED, task_id)
        task = await desk.outcome(task_id)
        assert (task.state, task.error, task.reason) == (TaskState.FAILED, "stopped by somebody", "stopped")
        await desk.listener.next(1)
        assert [(told.type, told.n) for told in desk.listener.heard] == [("stopped", 1)]
        [failed] = [event for event in desk.watcher.events if event.type is EventType.TASK_FAILED]
        assert failed.parent_id == asked.id


@pytest.mark.parametrize("type", [SUSPENDED, RESUMED, CANCELLED, EventType.TASK_COMPLETED, EventType.REASON_DONE])
@pytest.mark.parametrize("whose", ["completed", "unknown"])
async def test_what_the_state_machine_does_not_allow_changes_nothing(type, whose, autojump_clock):
    async with open_desk(ScriptedModel(["done"])) as desk:
        task = await desk.run()
        await trio.sleep(20)
        before = dict(desk.shelf.logs)
        await emit(desk, type, task.task_id if whose == "completed" else "nobody")
        await trio.sleep(20)
        assert desk.shelf.logs == before
        assert (await view(desk, task.task_id)).result == "done"


@pytest.mark.parametrize("type", [EventType.TASK_COMPLETED, EventType.TOOL_CALL_COMPLETED, EventType.TASK_NOTIFY])
async def test_nobody_claims_a_step_of_a_task_that_it_has_not_taken(type, autojump_clock):
    async with open_desk(ScriptedModel([WORK, "done"])) as desk:
        task_id = await desk.submit()
        await trio.sleep(1)
        await emit(desk, type, task_id, {"message": "I am done", "finalResult": {"response": "42"}})
        assert (await desk.outcome(task_id)).result == "done"
        assert [told.type for told in desk.listener.heard] in ([], ["completed"])


async def test_no_event_lets_a_task_go_on_that_a_person_has_paused(autojump_clock):
    async with open_desk(ScriptedModel([WORK, "done"])) as desk:
        task_id = await desk.submit()
        await trio.sleep(1)
        await desk.agent.ask(Suspend, task_id)
        await emit(desk, RESUMED, task_id)
        await trio.sleep(100)
        assert (await view(desk, task_id)).waits_for == FOR_PERSON
        await desk.agent.ask(Continue, task_id)
        assert (await desk.outcome(task_id)).result == "done"


async def test_a_person_resumes_what_an_event_has_suspended(autojump_clock):
    async with open_desk(ScriptedModel([WORK, "done"])) as desk:
        task_id = await desk.submit()
        await emit(desk, SUSPENDED, task_id)
        await trio.sleep(100)
        await desk.agent.ask(Resume, task_id, "go on")
        assert (await desk.outcome(task_id)).result == "done"


async def test_a_task_moves_when_it_hears_its_event_and_not_before(autojump_clock):
    """A step follows the publication of the one before: the bus alone moves a task."""
    model = ScriptedModel([say("", call("echo", "a", x=1)), "done"])
    order = []
    async with open_desk(model) as desk:

        async def hear(inbox):
            async for message in inbox:
                order.extend(event.type.name for event in message.events if event.line)
                order.append(len(model.requests))

        ear = await desk.root.start_child(Child("ear", hear, mailbox=Mailbox(100)))
        await desk.bus.ask(Subscribe, ear, frozenset({EventType.REASON_DONE, EventType.TOOL_CALL_COMPLETED}), True)
        await desk.run()
    assert order == ["REASON_DONE", 1, "TOOL_CALL_COMPLETED", 1, "REASON_DONE", 2]


@pytest.mark.parametrize("who", ["bus", "gate", "agent"])
@pytest.mark.parametrize("seconds", [0, 1, 3, 5, 5.001, 8])
async def test_a_crash_of_any_of_them_loses_no_move(who, seconds, autojump_clock):
    """Whoever stands behind the one that crashes is restarted with it, and the logs move the tasks."""
    shelf = MemoryFolder()
    model = ScriptedModel(
        lambda request: "done" if any(getattr(turn, "results", ()) for turn in request.turns) else LOOK
    )
    async with open_desk(model, shelf=shelf, limits=TaskLimits(recovery="resume")) as desk:
        task_id = await desk.submit(key="k")
        await trio.sleep(seconds)
        desk.root.ref(who)._cell.incarnation.kill("a test")
        await trio.sleep(100)
        assert (await view(desk, task_id)).result == "done"
        assert shelf.events(task_id)[-1] == "TASK_COMPLETED"
        assert shelf.events(task_id).count("TASK_COMPLETED") == 1
        assert {(told.type, told.n) for told in desk.listener.heard} == {("completed", 1)}


async def test_a_slow_observer_holds_no_task_up(autojump_clock):
    async with open_desk(ScriptedModel(lambda request: "done")) as desk:

        async def never(inbox):
            inbox.started()
            await trio.sleep_forever()

        slow = await desk.root.start_child(Child("slow", never, mailbox=Mailbox(1)))
        for essential in (False, True):
            await desk.bus.ask(Subscribe, slow, None, essential)
            begun = trio.current_time()
            for _ in range(50):
                assert (await desk.run()).result == "done"
            assert trio.current_time() - begun < 1
