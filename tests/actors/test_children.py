"""Stopping one actor: told to, cancelled, reported."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio

from actors import (
    Child,
    Crashed,
    DeadLetter,
    Exited,
    Inbox,
    Killed,
    Normal,
    Restart,
    Started,
    Stopped,
    Strategy,
    Stuck,
    open_supervisor,
    supervisor,
    watch,
)
from tests.actors.kit import Add, Boom, Crash, Total, Work, counter, happened, idle, never_reads, settle, tree


async def shielded(inbox: Inbox[Any], seconds: float) -> None:
    """Does not let itself be cancelled for so long."""
    async for _ in inbox:
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)


def exits(events: Any) -> dict[str, Any]:
    return {event.path: event.exit for event in happened(events, Exited)}


async def stop_after_telling(child: Child, message: object) -> tuple[float, list[Any]]:
    """How long it took to stop the actor while it had this message in hand, and what happened."""
    async with tree(child) as (root, events):
        await root.ref(child.name).tell(message)
        await settle()
        begun = trio.current_time()
        await root.stop_child(child.name)
        return trio.current_time() - begun, happened(events)


async def test_an_actor_that_waits_for_messages_stops_at_once() -> None:
    async with tree(Child("a", idle)) as (root, events):
        begun = trio.current_time()
        await root.stop_child("a")
        assert trio.current_time() == begun
        assert exits(events) == {"a": Stopped()}


async def test_it_may_clean_up_after_its_loop() -> None:
    cleaned = []

    async def cleans_up(inbox: Inbox[Any]) -> None:
        await idle(inbox)
        await trio.sleep(2)
        cleaned.append(trio.current_time())

    async with tree(Child("a", cleans_up)) as (_, events):
        pass
    assert cleaned == [2]
    assert exits(events) == {"a": Stopped()}


async def test_receive_raises_end_of_channel_and_that_is_no_crash() -> None:
    async def endless(inbox: Inbox[Any]) -> None:
        while True:
            await inbox.receive()

    async def beside_a_task(inbox: Inbox[Any]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            while True:
                await inbox.receive()

    async with tree(Child("a", endless), Child("b", beside_a_task)) as (_, events):
        pass
    assert exits(events) == {"a": Stopped(), "b": Stopped()}


async def test_the_message_in_hand_is_finished_and_the_next_one_is_not_begun() -> None:
    async with tree(Child("a", counter)) as (root, events):
        ref = root.ref("a")
        in_hand = await ref.request(Work, 3.0)
        await settle()
        await ref.tell(Add(1))
        await root.stop_child("a")
        assert await in_hand.get() == "done"
        assert [letter.message for letter in happened(events, DeadLetter)] == [Add(1)]


async def test_new_messages_are_refused_from_the_moment_it_is_told_to_stop() -> None:
    async with tree(Child("a", counter)) as (root, events), trio.open_nursery() as nursery:
        ref = root.ref("a")
        in_hand = await ref.request(Work, 3.0)
        await settle()
        nursery.start_soon(root.stop_child, "a")
        await settle()
        assert not ref.alive
        await ref.tell(Add(1))
        assert len(happened(events, DeadLetter)) == 1
        assert await in_hand.get() == "done"


async def test_an_actor_that_is_too_slow_is_cancelled_with_the_reason() -> None:
    async def slow(inbox: Inbox[Any]) -> None:
        async for _ in inbox:
            await trio.sleep(100)

    took, events = await stop_after_telling(Child("a", slow, shutdown=3), Add(1))
    assert took == 3
    [exited] = [event for event in events if isinstance(event, Exited)]
    assert exited.exit == Killed("did not stop within 3 s")
    [letter] = [event for event in events if isinstance(event, DeadLetter)]
    assert letter.message == Add(1)


async def test_shutdown_0_cancels_at_once() -> None:
    async def slow(inbox: Inbox[Any]) -> None:
        async for _ in inbox:
            await trio.sleep(100)

    took, events = await stop_after_telling(Child("a", slow, shutdown=0), Add(1))
    assert took == 0
    assert [event.exit for event in events if isinstance(event, Exited)] == [Killed("shutdown=0")]


async def test_shutdown_inf_waits() -> None:
    took, events = await stop_after_telling(Child("a", shielded, 1000.0, shutdown=math.inf), Add(1))
    assert took == 1000
    assert [event.exit for event in events if isinstance(event, Exited)] == [Stopped()]


async def test_an_actor_that_never_reads_its_inbox_is_cancelled_at_once_and_may_still_clean_up() -> None:
    async def serves(inbox: Inbox[Any]) -> None:
        inbox.started()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)

    async with tree(Child("a", serves, shutdown=5), Child("b", never_reads)) as (_, events):
        begun = trio.current_time()
    assert trio.current_time() == begun + 2
    assert exits(events) == {"a": Stopped(), "b": Stopped()}


async def test_one_that_resists_is_reported_with_the_place_where_it_waits() -> None:
    took, events = await stop_after_telling(Child("a", shielded, 50.0, shutdown=3), Add(1))
    assert took == 50
    [stuck] = [event for event in events if isinstance(event, Stuck)]
    assert stuck.time == 3 + 1
    assert any("test_children.py" in line and "in shielded" in line for line in stuck.stack)
    assert any(line.endswith("in sleep") for line in stuck.stack)


async def test_one_that_unwinds_in_time_is_not_reported() -> None:
    _, events = await stop_after_telling(Child("a", shielded, 3.9, shutdown=3), Add(1))
    assert not [event for event in events if isinstance(event, Stuck)]
    assert Killed("did not stop within 3 s") in [event.exit for event in events if isinstance(event, Exited)]


async def test_where_it_is_stuck_is_found_in_its_own_tasks_too() -> None:
    async def resists() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(20)

    async def has_tasks(inbox: Inbox[Any]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(resists)
            await inbox.receive()

    async with tree(Child("a", has_tasks, shutdown=1)) as (root, events), trio.open_nursery() as nursery:
        nursery.start_soon(root.stop_child, "a")
        await trio.sleep(10)
        [info] = root.children()
        assert info.state == "stuck"
        assert info.waiting_at is not None
        assert info.waiting_at.endswith("resists")
        [stuck] = happened(events, Stuck)
        assert any(line.endswith("resists") for line in stuck.stack)


async def test_a_stuck_one_does_not_keep_the_others_from_stopping_within_the_budget() -> None:
    ended = []

    async def tells(inbox: Inbox[Any]) -> None:
        await idle(inbox)
        ended.append(trio.current_time())

    async with open_supervisor([Child("a", tells), Child("b", shielded, 100.0, shutdown=3)]) as root:
        await root.ref("b").tell(Add(1))
        await settle()
        budget = root.shutdown_budget()
    assert ended == [3 + 1]
    assert ended[0] <= budget


async def test_a_successor_never_runs_beside_a_stuck_predecessor() -> None:
    children = [Child("a", counter), Child("b", shielded, 100.0, shutdown=3)]
    async with tree(*children, strategy=Strategy.ONE_FOR_ALL) as (root, events):
        await root.ref("b").tell(Add(1))
        await settle()
        happened(events)
        await root.ref("a").tell(Crash())
        await trio.sleep(200)
        assert [(e.path, e.time) for e in happened(events, Started)] == [("a", 100), ("b", 100)]


async def test_stopping_all_interrupts_a_restart_that_is_stuck() -> None:
    ended = []

    async def tells(inbox: Inbox[Any]) -> None:
        await idle(inbox)
        ended.append(trio.current_time())

    children = [Child("first", tells), Child("a", counter), Child("b", shielded, 100.0, shutdown=3)]
    async with tree(*children, strategy=Strategy.REST_FOR_ONE) as (root, _):
        await root.ref("b").tell(Add(1))
        await settle()
        await root.ref("a").tell(Crash())
        await trio.sleep(20)
    assert ended == [20]
    assert trio.current_time() == 100


async def test_a_crash_while_being_stopped_is_absorbed() -> None:
    async def crashes_in_cleanup(inbox: Inbox[Any]) -> None:
        await idle(inbox)
        raise Boom("in cleanup")

    children = [Child("a", counter), Child("b", crashes_in_cleanup)]
    async with tree(*children, strategy=Strategy.ONE_FOR_ALL) as (root, events):
        await root.ref("a").tell(Crash())
        await settle()
        assert {info.name: info.state for info in root.children()} == {"a": "up", "b": "up"}
        assert isinstance(exits(events)["b"], Crashed)


async def test_siblings_that_are_restarted_keep_their_messages() -> None:
    async with tree(Child("a", counter), Child("b", counter), strategy=Strategy.ONE_FOR_ALL) as (root, _):
        root.ref("a").tell_nowait(Crash())
        root.ref("b").tell_nowait(Add(1))
        answer = await root.ref("b").request(Total)
        await settle()
        assert await answer.get() in (0, 1)


async def test_a_nested_supervisor_is_told_to_stop_in_its_own_way() -> None:
    order = []

    async def tells(inbox: Inbox[Any], name: str) -> None:
        await idle(inbox)
        await trio.sleep(10)
        order.append(name)

    nested = supervisor([Child(name, tells, name, shutdown=20) for name in "ab"])
    async with tree(Child("nested", nested)) as (_, events):
        pass
    assert order == ["b", "a"]
    assert trio.current_time() == 20
    assert list(exits(events).values()) == [Stopped(), Stopped(), Stopped()]


async def test_a_nested_supervisor_with_a_limit_is_cut_short() -> None:
    async def slow(inbox: Inbox[Any]) -> None:
        await idle(inbox)
        await trio.sleep(100)

    nested = supervisor([Child("a", slow, shutdown=50), Child("b", slow, shutdown=50)])
    async with tree(Child("nested", nested, shutdown=7)) as (_, events):
        pass
    assert trio.current_time() == 7
    assert exits(events) == {
        "nested/a": Killed("did not stop within 7 s"),
        "nested/b": Killed("did not stop within 7 s"),
        "nested": Killed("did not stop within 7 s"),
    }


# ------------------------------------------------------------ watch


async def test_watch_tells_how_an_actor_ended() -> None:
    async def watched_exit(root: Any, message: object) -> Any:
        ref = await root.start_child(Child("a", counter, restart=Restart.TEMPORARY))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.tell, message)
            down = await watch(ref)
        assert down.ref == ref
        return down.exit

    async with open_supervisor() as root:
        crashed = await watched_exit(root, Crash("why"))
        assert isinstance(crashed, Crashed)
        assert str(crashed.error) == "why"


async def test_watch_tells_of_one_that_is_down_already_or_never_was() -> None:
    async def returns(inbox: Inbox[Any]) -> None:
        inbox.started()

    async with open_supervisor() as root:
        ref = await root.start_child(Child("a", returns, restart=Restart.TEMPORARY))
        await settle()
        assert (await watch(ref)).exit == Normal()
        assert (await watch(root.ref("never"))).exit == Killed("it never ran")


async def test_watch_is_about_one_run_and_wait_stopped_about_all() -> None:
    async with open_supervisor([Child("a", counter)]) as root, trio.open_nursery() as nursery:
        ref = root.ref("a")
        stopped = []

        async def wait() -> None:
            stopped.append(await ref.wait_stopped())

        nursery.start_soon(wait)
        await settle()
        await ref.tell(Crash())
        assert isinstance((await watch(ref)).exit, Crashed)
        await settle()
        assert ref.alive
        assert stopped == []
        await root.stop_child("a")
        await settle()
        assert stopped == [Stopped()]
        assert await root.ref("never").wait_stopped() is None


@pytest.mark.parametrize("where", ["event", "cause"])
async def test_a_crash_keeps_its_traceback(where: str) -> None:
    async with tree(Child("a", counter)) as (root, events):
        await root.ref("a").tell(Crash())
        await settle()
        [exited] = happened(events, Exited)
        frames = []
        at = exited.exit.error.__traceback__
        while at is not None:
            frames.append(at.tb_frame.f_code.co_name)
            at = at.tb_next
        assert frames[-1] == "counter"


async def test_a_killed_tree_ends_at_once_however_deep_and_whatever_is_left_of_the_shutdown_times() -> None:
    async def busy(inbox: Inbox[Any]) -> None:
        inbox.started()
        await trio.sleep(100)

    inner = Child("s", supervisor([Child("b", busy, shutdown=50)]), shutdown=math.inf)
    async with tree(Child("a", busy, shutdown=50), inner) as (root, events):
        begun = trio.current_time()
        root.kill("no time")
        await root.wait_stopped()
        assert trio.current_time() == begun
        assert exits(events) == {name: Killed("no time") for name in ("a", "s", "s/b")}
