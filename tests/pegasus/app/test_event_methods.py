"""`events.subscribe`: which events come, from which number on, and what is refused."""

from types import SimpleNamespace

import pytest
import trio
import trio.testing

from pegasus.app.control_plane import EventMethods
from pegasus.events import Event, EventType, RecentEvents
from pegasus.gateway import BadParams, Caller
from pegasus.testing.scripted import ScriptedModel
from tests.pegasus.main_agent.test_task_command import begin
from tests.pegasus.main_agent.voices import delegate

CALLER = Caller("cli", "events")


async def find(params):
    if params["taskId"] == 9:
        raise BadParams("there is no task 9; the newest is 2")
    return SimpleNamespace(task_id=f"t{params['taskId']}")


def make_methods(count=0):
    recent = RecentEvents(first=1)
    for _ in range(count):
        recent.add(Event(EventType.TASK_NOTIFY, 1000, "task", "t1"))
    return EventMethods(recent, SimpleNamespace(find=find))


async def collect(methods, params, *later):
    """Subscribe, then let these events happen; the frames that came."""
    got = []

    async def push(n, event):
        got.append((n, event["type"]))
        await trio.lowlevel.checkpoint()

    stream = await methods.subscribe(CALLER, params)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run, push)
        await trio.testing.wait_all_tasks_blocked()
        for kind, task_id in later:
            methods.recent.add(Event(kind, 1000, "task", task_id))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return stream.result, got


async def test_events_from_now_on(autojump_clock):
    later = [(EventType.TASK_NOTIFY, "t1"), (EventType.SYSTEM_STARTED, None)]
    result, got = await collect(make_methods(2), {}, *later)
    assert result == {"n": 2, "oldest": 1}
    assert got == [(3, "TASK_NOTIFY"), (4, "SYSTEM_STARTED")]


async def test_events_after_a_number_follow_without_a_gap(autojump_clock):
    _, got = await collect(make_methods(3), {"after": 1}, (EventType.TASK_FAILED, "t1"))
    assert got == [(2, "TASK_NOTIFY"), (3, "TASK_NOTIFY"), (4, "TASK_FAILED")]


async def test_what_is_not_kept_any_more_is_a_gap(autojump_clock):
    methods = make_methods(1010)
    _, got = await collect(methods, {"after": 3})
    assert got[0] == (10, "gap")
    assert [n for n, _ in got[1:]] == list(range(11, 1011))


async def test_events_of_one_task_or_of_some_types(autojump_clock):
    later = [(EventType.TASK_NOTIFY, "t1"), (EventType.TASK_NOTIFY, "t2"), (EventType.TASK_FAILED, "t2")]
    assert (await collect(make_methods(), {"taskId": 2}, *later))[1] == [(2, "TASK_NOTIFY"), (3, "TASK_FAILED")]
    assert (await collect(make_methods(), {"types": ["TASK_FAILED"]}, *later))[1] == [(3, "TASK_FAILED")]


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"taskId": 9}, "there is no task 9"),
        ({"types": ["NO_SUCH"]}, "types: found"),
        ({"types": "TASK_FAILED"}, "types: found"),
        ({"types": [["TASK_FAILED"]]}, "types: found"),
        ({"after": -1}, "after: found -1"),
        ({"after": "x"}, 'after: found "x"'),
    ],
)
async def test_what_makes_no_sense_is_refused(params, said):
    with pytest.raises(BadParams, match=said):
        await make_methods().subscribe(CALLER, params)


async def test_the_tree_keeps_the_events_of_its_tasks(autojump_clock):
    from pegasus.testing.world import open_world

    async with open_world(ScriptedModel(delegate), task_model=ScriptedModel(["42"])) as world:
        await begin(world, "work it out")
        await world.idle()
        kept, _ = world.tree.services.environment.recent.after(0)
    types = [each.event["type"] for each in kept if each.event.get("taskId")]
    assert types[0] == "TASK_CREATED"
    assert [type for type in types if type != "TASK_STATE_CHANGED"][-1] == "TASK_COMPLETED"
    assert "TASK_UPDATED" not in types  # it says again what others have said
