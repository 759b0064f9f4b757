"""What can be seen from outside: events and the tree."""

from __future__ import annotations

import gc
import json
import math
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from actors import (
    ActorInfo,
    Backoff,
    Child,
    DeadLetter,
    Exited,
    GaveUp,
    Inbox,
    Intensity,
    Mailbox,
    Restart,
    Started,
    Stopped,
    Strategy,
    open_supervisor,
    supervisor,
)
from tests.actors.kit import Add, Boom, Crash, Probe, Total, Work, counter, happened, idle, never_reads, settle, tree


def named(info: ActorInfo, path: str) -> ActorInfo:
    for name in path.split("/"):
        info = next(child for child in info.children if child.name == name)
    return info


async def test_the_tree_shows_every_actor_below() -> None:
    nested = supervisor([Child("x", idle), Child("y", supervisor([Child("z", idle)]))])
    async with open_supervisor([Child("a", idle), Child("s", nested)], name="shop") as root:
        info = root.tree()
        assert (info.name, info.path, info.state) == ("shop", "", "up")
        assert [child.path for child in info.children] == ["a", "s"]
        assert named(info, "s/y/z").path == "s/y/z"
        assert {child.state for child in info.children} == {"up"}


async def test_it_shows_what_an_actor_has_in_hand_and_since_when_and_for_whom() -> None:
    async with open_supervisor([Child("a", counter, mailbox=Mailbox(9))]) as root, trio.open_nursery() as nursery:
        ref = root.ref("a")
        nursery.start_soon(lambda: ref.ask(Work, 10.0, timeout=30))
        await settle()
        for _ in range(3):
            await ref.tell(Add(1))
        await trio.sleep(4)
        info = named(root.tree(), "a")
        assert (info.message, info.message_age, info.deadline) == ("Work", 4, 26)
        assert (info.depth, info.capacity, info.high_water) == (3, 9, 3)
        assert info.waiting_at is not None
        assert "kit.py" in info.waiting_at
        assert info.waiting_at.endswith("in counter")
        await trio.sleep(10)
        info = named(root.tree(), "a")
        assert (info.message, info.message_age, info.deadline, info.waiting_at) == (None, None, None, None)
        assert (info.depth, info.high_water, info.sent, info.handled) == (0, 3, 4, 4)


async def test_it_shows_the_nearest_deadline_of_several_askers() -> None:
    async with open_supervisor([Child("keeper", Probe().run)]) as root, trio.open_nursery() as nursery:
        ref = root.ref("keeper")
        for timeout in (50, 20, 80):
            nursery.start_soon(partial(ref.ask, Total, timeout=timeout))
            await settle()
        await trio.sleep(5)
        assert named(root.tree(), "keeper").deadline == 15
        nursery.cancel_scope.cancel()


async def test_it_shows_restarts() -> None:
    async with open_supervisor([Child("a", counter)], intensity=Intensity(9)) as root:
        for _ in range(3):
            await root.ref("a").tell(Crash())
            await settle()
        info = named(root.tree(), "a")
        assert (info.restarts, info.attempt, info.dead) == (3, 4, 3)


async def test_it_shows_the_states_of_a_life() -> None:
    async def slow(inbox: Inbox[Any]) -> None:
        await trio.sleep(1)
        await idle(inbox)
        await trio.sleep(1)

    async with open_supervisor() as root, trio.open_nursery() as nursery:
        nursery.start_soon(root.start_child, Child("a", slow))
        await settle()
        seen = [named(root.tree(), "a").state]
        await trio.sleep(2)
        seen.append(named(root.tree(), "a").state)
        nursery.start_soon(root.stop_child, "a")
        await settle()
        seen.append(named(root.tree(), "a").state)
        await trio.sleep(2)
        seen.append(named(root.tree(), "a").state)
    assert seen == ["starting", "up", "stopping", "down"]
    assert root.tree().state == "down"


async def test_it_shows_when_something_happens_by_itself() -> None:
    async def lingers(inbox: Inbox[Any]) -> None:
        await idle(inbox)
        await trio.sleep(9)

    waiting, stopping = Child("a", counter, backoff=Backoff(4, 4, jitter=0)), Child("b", lingers, shutdown=7)
    async with open_supervisor([waiting, stopping]) as root, trio.open_nursery() as nursery:
        await settle()
        assert [info.due for info in root.children()] == [None, None]
        await root.ref("a").tell(Crash())
        await settle()
        nursery.start_soon(root.stop_child, "b")
        await trio.sleep(1)
        assert [(info.state, info.due) for info in root.children()] == [("waiting", 3), ("stopping", 6)]
        await trio.sleep(8)
        assert [(info.state, info.due) for info in root.children()] == [("up", None), ("down", None)]


async def test_who_has_ended_is_down_though_its_supervisor_has_no_time_to_hear_of_it() -> None:
    async def lingers(inbox: Inbox[Any]) -> None:
        await idle(inbox)
        await trio.sleep(4)

    async with open_supervisor([Child("a", counter), Child("b", lingers)]) as root, trio.open_nursery() as nursery:
        await settle()
        nursery.start_soon(root.stop_child, "b")
        await settle()
        await root.ref("a").tell(Crash())
        await trio.sleep(1)
        assert [info.state for info in root.children()] == ["down", "stopping"]
        await trio.sleep(4)
        assert [info.state for info in root.children()] == ["up", "down"]


@pytest.mark.parametrize("how", ["backoff", "group", "stuck", "temporary"])
async def test_after_the_end_nobody_waits_for_anything(how: str) -> None:
    """Also of children whose restart was due, or that outlived their stop for a while."""

    async def resists(inbox: Inbox[Any]) -> None:
        await idle(inbox)
        with trio.CancelScope(shield=True):
            await trio.sleep(60)

    async def starts_once(inbox: Inbox[Any]) -> None:
        if inbox.attempt > 1:
            await trio.sleep_forever()
        await counter(inbox)

    children = {
        "backoff": [Child("a", counter, backoff=Backoff(9, 9))],
        "group": [Child("a", starts_once), Child("b", idle)],
        "stuck": [Child("a", resists, shutdown=1)],
        "temporary": [Child("a", resists, shutdown=1, restart=Restart.TEMPORARY)],
    }[how]
    async with open_supervisor(children, strategy=Strategy.ONE_FOR_ALL, intensity=Intensity(1, 60)) as root:
        await settle()
        if how in ("backoff", "group"):
            await root.ref("a").tell(Crash())
            await trio.sleep(1)
    infos = root.children()
    assert [(info.name, info.state, info.due) for info in infos] == [
        (child.name, "down", None) for child in children if how != "temporary"
    ]


async def test_it_shows_how_long_a_stop_may_take_and_who_has_no_mailbox() -> None:
    nested = supervisor([Child("x", idle, shutdown=2), Child("y", idle, shutdown=3)])
    children = [Child("a", idle, shutdown=4), Child("s", nested), Child("p", supervisor([]), shutdown=1)]
    async with open_supervisor(children) as root:
        info = root.tree()
        assert info.shutdown_budget == root.shutdown_budget() == 14
        assert [child.shutdown_budget for child in info.children] == [5, 7, 2]
        assert [child.capacity for child in info.children] == [64, 0, 0]
        await root.start_child(Child("for ever", idle, shutdown=math.inf))
        assert root.tree().shutdown_budget is None
        assert root.children()[-1].shutdown_budget is None


async def test_it_can_be_written_as_json() -> None:
    async with open_supervisor([Child("s", supervisor([Child("a", counter)]))]) as root:
        answer = await root.ref("s/a").request(Work, 1.0)
        await settle()
        text = json.dumps(attrs.asdict(root.tree()))
        assert json.loads(text)["children"][0]["children"][0]["message"] == "Work"
        del answer


async def test_looking_needs_no_help_from_an_actor_that_does_not_read() -> None:
    async with open_supervisor([Child("a", never_reads)]) as root:
        assert named(root.tree(), "a").state == "up"


# ------------------------------------------------------------ events


async def test_events_tell_path_time_and_attempt() -> None:
    async with tree(Child("s", supervisor([Child("a", counter)]))) as (root, events):
        await trio.sleep(2)
        await root.ref("s/a").tell(Crash())
        await settle()
        seen = [(type(e).__name__, e.path, e.time, e.attempt) for e in happened(events, Started, Exited)]
    assert seen == [
        ("Started", "s/a", 0, 1),
        ("Started", "s", 0, 1),
        ("Exited", "s/a", 2, 1),
        ("Started", "s/a", 2, 2),
    ]


async def test_the_stream_ends_after_the_tree() -> None:
    async with open_supervisor([Child("a", idle)]) as root:
        events = root.events()
    assert [event.exit async for event in events] == [Stopped()]
    assert [event async for event in root.events()] == []


async def test_the_stream_ends_after_the_tree_also_when_the_block_was_cancelled() -> None:
    async def tidies(inbox: Inbox[Any]) -> None:
        await idle(inbox)
        await trio.sleep(3)

    begun = trio.current_time()
    with trio.move_on_after(1):
        async with open_supervisor([Child("a", tidies)]) as root:
            events = root.events()
            await trio.sleep_forever()
    assert [(event.exit, event.time - begun) async for event in events] == [(Stopped(), 4)]


async def test_everybody_gets_every_event() -> None:
    async with open_supervisor() as root:
        streams = [root.events() for _ in range(3)]
        await root.start_child(Child("a", idle))
        assert [len(happened(stream)) for stream in streams] == [1, 1, 1]


async def test_a_reader_waits_for_the_next_event() -> None:
    async with open_supervisor() as root, trio.open_nursery() as nursery:
        seen = []

        async def read() -> None:
            event = await anext(root.events())
            seen.append((type(event), trio.current_time()))

        nursery.start_soon(read)
        await trio.sleep(3)
        await root.start_child(Child("a", idle))
        await settle()
        assert seen == [(Started, 3)]


async def test_a_slow_reader_loses_the_oldest_and_knows_how_many() -> None:
    async with open_supervisor() as root:
        events = root.events(capacity=3)
        for n in range(5):
            await root.ref("nobody").tell(n)
        assert [event.message for event in happened(events)] == [2, 3, 4]
        assert events.missed == 2


async def test_a_closed_stream_takes_nothing_more() -> None:
    async with open_supervisor() as root:
        with root.events() as events:
            await root.ref("nobody").tell(1)
        await root.ref("nobody").tell(2)
        assert [event.message async for event in events] == [1]


async def test_the_last_events_of_a_tree_that_gives_up() -> None:
    nested = supervisor([Child("a", counter)], intensity=Intensity(0))
    streams = []

    async def shop() -> None:
        async with open_supervisor([Child("s", nested), Child("b", idle)], intensity=Intensity(0)) as root:
            await settle()
            streams.append(root.events())
            await root.ref("s/a").tell(Crash())
            await trio.sleep_forever()

    with pytest.raises(GaveUp):
        await shop()
    why = "more than 0 restarts in 5 s; the last was"
    seen = [(type(event), event.path, getattr(event, "why", "")) async for event in streams[0]]
    assert seen == [
        (DeadLetter, "s/a", "the actor ended while it handled this: crashed with Boom: boom"),
        (Exited, "s/a", ""),
        (GaveUp, "s", f"{why} 'a', crashed with Boom: boom"),
        (Exited, "s", ""),
        (GaveUp, "", f"{why} 's', crashed with GaveUp: 's': {why} 'a', crashed with Boom: boom"),
        (Exited, "b", ""),
    ]


async def test_a_forgotten_stream_costs_nothing() -> None:
    async with open_supervisor() as root:
        for _ in range(10):
            root.events()
        gc.collect()
        root.events()
        assert len(root._loop.system.hub._streams) == 1


async def test_refs_that_nobody_holds_cost_nothing() -> None:
    async with open_supervisor() as root:
        for n in range(100):
            await root.ref(f"nobody-{n}").tell(1)
        gc.collect()
        assert len(root._loop.system.cells) == 0


@pytest.mark.parametrize("how", ["crash", "ask"])
async def test_a_crashed_run_does_not_keep_growing_memory(how: str) -> None:
    """What a crash leaves behind (traceback, frames) is that of the last crash only."""
    alive: list[Any] = []

    class Big:
        pass

    async def crashes(inbox: Inbox[Any]) -> None:
        big = Big()
        alive.append(id(big))
        async for _ in inbox:
            raise Boom(big)

    async with open_supervisor([Child("a", crashes)], intensity=Intensity(99)) as root:
        for _ in range(10):
            if how == "crash":
                await root.ref("a").tell("go")
            else:
                with pytest.raises(Exception, match="crashed with Boom"):
                    await root.ref("a").ask(Total)
            await settle()
        gc.collect()
        assert sum(isinstance(thing, Big) for thing in gc.get_objects()) <= 2
