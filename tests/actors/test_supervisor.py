"""What a supervisor does beyond the recorded traces: nesting, backoff, requests, and what comes in between."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
import trio

from actors import (
    ActorDied,
    ActorError,
    AutoShutdown,
    Backoff,
    Child,
    Crashed,
    DeadLetter,
    Events,
    Exited,
    GaveUp,
    Inbox,
    Intensity,
    Normal,
    Restart,
    Restarting,
    Started,
    Strategy,
    open_supervisor,
    supervisor,
)
from tests.actors.kit import (
    Add,
    Boom,
    Crash,
    Probe,
    Total,
    counter,
    fails_to_start,
    happened,
    idle,
    never_reads,
    serve,
    settle,
    tree,
)

TEMPORARY, TRANSIENT = Restart.TEMPORARY, Restart.TRANSIENT


async def returns(inbox: Inbox[Any]) -> None:
    await trio.lowlevel.checkpoint()


def states(supervisor: Any) -> dict[str, str]:
    return {info.name: info.state for info in supervisor.children()}


# ------------------------------------------------------------ starting


async def test_children_start_one_after_the_other() -> None:
    order = []

    async def slow(inbox: Inbox[Any], name: str) -> None:
        order.append(f"{name} begins")
        await trio.sleep(1)
        order.append(f"{name} is up")
        await idle(inbox)

    async with open_supervisor([Child(name, slow, name) for name in "ab"]):
        assert order == ["a begins", "a is up", "b begins", "b is up"]


async def test_started_ends_the_wait_before_the_first_receive() -> None:
    async def early(inbox: Inbox[Any]) -> None:
        await trio.sleep(1)
        inbox.started()
        await trio.sleep(100)

    begun = trio.current_time()
    async with open_supervisor([Child("early", early)]):
        assert trio.current_time() == begun + 1


async def test_a_child_that_returns_at_once_was_up() -> None:
    async with tree() as (root, events):
        await root.start_child(Child("once", returns, restart=TEMPORARY))
        await settle()
        assert [type(event) for event in happened(events)] == [Started, Exited]
        assert root.children() == ()


async def test_opening_fails_with_the_cause_when_a_child_cannot_start() -> None:
    probe = Probe()
    with pytest.raises(GaveUp, match="'bad' did not start: crashed with Boom: no start") as raised:
        async with open_supervisor([Child("good", probe.run), Child("bad", fails_to_start)]):
            pytest.fail("opened")
    assert isinstance(raised.value.__cause__, Boom)
    assert raised.value.__cause__.__traceback__ is not None


async def test_cancelling_while_the_first_children_start_unwinds_them() -> None:
    async with tree() as (_, _):

        async def forever(inbox: Inbox[Any]) -> None:
            await trio.sleep_forever()

        probe = Probe()
        with trio.move_on_after(1) as scope:
            async with open_supervisor([Child("good", probe.run), Child("slow", forever)]):
                pytest.fail("opened")
        assert scope.cancelled_caught


# ------------------------------------------------------------ ending


async def test_leaving_the_block_stops_the_children_in_reverse() -> None:
    order = []

    async def tells(inbox: Inbox[Any], name: str) -> None:
        await idle(inbox)
        order.append(name)

    async with open_supervisor([Child(name, tells, name) for name in "abc"]):
        pass
    assert order == ["c", "b", "a"]


async def test_cancelling_the_block_stops_the_children_in_reverse_too() -> None:
    order = []

    async def tells(inbox: Inbox[Any], name: str) -> None:
        await idle(inbox)
        await trio.sleep(1)  # nothing of it is cancelled
        order.append((name, trio.current_time()))

    begun = trio.current_time()
    with trio.move_on_after(10) as scope:
        async with open_supervisor([Child(name, tells, name) for name in "abc"]) as root:
            assert root.shutdown_budget() >= 3
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert order == [("c", begun + 11), ("b", begun + 12), ("a", begun + 13)]


async def test_an_error_in_the_block_passes_as_it_is_after_the_children_have_stopped() -> None:
    probe = Probe()
    ended = []

    async def tells(inbox: Inbox[Any]) -> None:
        await probe.run(inbox)
        ended.append(True)

    with pytest.raises(Boom, match=r"^in the block$"):
        async with open_supervisor([Child("a", tells)]):
            raise Boom("in the block")
    assert ended == [True]


async def test_giving_up_cancels_the_block_and_raises_with_the_cause() -> None:
    why = "'shop': more than 0 restarts in 5 s; the last was 'a', crashed with Boom: b"
    with pytest.raises(GaveUp, match=why) as raised:
        await serve([Child("a", counter)], ("a", Crash("b")), intensity=Intensity(0), name="shop")
    assert isinstance(raised.value.__cause__, Boom)
    assert raised.value.__cause__.__traceback__ is not None
    assert (raised.value.path, raised.value.attempt) == ("", 1)


async def test_what_the_block_raised_meanwhile_is_noted_on_the_error() -> None:
    async def loses() -> None:
        async with open_supervisor([Child("a", counter)], intensity=Intensity(0)) as root:
            root.ref("a").tell_nowait(Crash("b"))
            try:
                await trio.sleep_forever()
            finally:
                raise KeyError("lost")

    with pytest.raises(GaveUp) as raised:
        await loses()
    assert "KeyError('lost')" in raised.value.__notes__[0]


async def test_auto_shutdown_leaves_the_block_without_an_error() -> None:
    child = Child("job", returns, restart=TRANSIENT, significant=True)
    async with open_supervisor([child], auto_shutdown=AutoShutdown.ANY_SIGNIFICANT):
        await trio.sleep_forever()


async def test_all_significant_waits_for_the_last_of_them() -> None:
    async def job(inbox: Inbox[Any], seconds: float) -> None:
        inbox.started()
        await trio.sleep(seconds)

    children = [Child(f"{n}", job, n, restart=TEMPORARY, significant=True) for n in (1, 3, 2)]
    begun = trio.current_time()
    async with open_supervisor([Child("helper", idle), *children], auto_shutdown=AutoShutdown.ALL_SIGNIFICANT) as root:
        await root.wait_stopped()
    assert trio.current_time() == begun + 3


async def test_all_significant_waits_for_one_that_waits_for_its_restart() -> None:
    async def crashes_once(inbox: Inbox[Any]) -> None:
        inbox.started()
        await trio.sleep(1)
        if inbox.attempt == 1:
            raise Boom

    async def job(inbox: Inbox[Any]) -> None:
        inbox.started()
        await trio.sleep(2)

    backoff = Backoff(5, 5, jitter=0)
    children = [
        Child("crashes", crashes_once, restart=TRANSIENT, significant=True, backoff=backoff),
        Child("job", job, restart=TRANSIENT, significant=True),
    ]
    begun = trio.current_time()
    async with open_supervisor(
        children, auto_shutdown=AutoShutdown.ALL_SIGNIFICANT, intensity=Intensity(1, 60)
    ) as root:
        await root.wait_stopped()
    assert trio.current_time() == begun + 1 + 5 + 1


async def test_stop_stops_all_and_leaves_the_block_alone() -> None:
    async with open_supervisor([Child("a", idle)]) as root:
        await root.stop()
        assert not root.ref("a").alive
        assert root.tree().state == "down"
        with pytest.raises(ActorError, match="the supervisor is stopping"):
            await root.start_child(Child("b", idle))
        await trio.sleep(1)


async def test_a_child_may_ask_for_the_stop_of_all() -> None:
    async def ends_it(inbox: Inbox[Any], root: Any) -> None:
        async for _ in inbox:
            await root().stop()

    async with open_supervisor() as root:
        ref = await root.start_child(Child("a", ends_it, lambda: root))
        begun = trio.current_time()
        await ref.tell(Add(1))
        await root.wait_stopped()
        assert trio.current_time() == begun


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_what_ends_the_program_passes_through_once_all_has_stopped(error: type[BaseException]) -> None:
    ended = []

    async def interrupted(inbox: Inbox[Any]) -> None:
        async for _ in inbox:
            raise error

    async def tells(inbox: Inbox[Any]) -> None:
        await idle(inbox)
        ended.append("stopped")

    with pytest.raises(error):
        await serve([Child("b", tells), Child("s", supervisor([Child("a", interrupted)]))], ("s/a", "go"))
    assert ended == ["stopped"]


async def test_what_ends_the_program_passes_through_a_group_too() -> None:
    async def interrupted(inbox: Inbox[Any]) -> None:
        async with trio.open_nursery():
            await inbox.receive()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await serve([Child("a", interrupted)], ("a", "go"))


async def test_an_interrupt_in_the_block_wins_over_giving_up() -> None:
    async def main() -> None:
        async with open_supervisor([Child("a", counter)], intensity=Intensity(0)) as root:
            root.ref("a").tell_nowait(Crash("b"))
            try:
                await trio.sleep_forever()
            finally:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await main()


async def test_an_interrupt_while_a_child_starts_is_no_giving_up() -> None:
    async def interrupted(inbox: Inbox[Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await serve([Child("good", idle), Child("a", interrupted)])


async def test_a_group_with_one_real_error_is_told_as_that_error() -> None:
    async def fails(after: float, also_in_cleanup: bool) -> None:
        try:
            await trio.sleep(after)
        except trio.Cancelled:
            if not also_in_cleanup:
                raise
        raise Boom(f"after {after}")

    async def has_tasks(inbox: Inbox[Any], also_in_cleanup: bool) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails, 1, also_in_cleanup)
            nursery.start_soon(fails, 2, also_in_cleanup)
            await idle(inbox)

    children = [Child("one", has_tasks, False, restart=TEMPORARY), Child("two", has_tasks, True, restart=TEMPORARY)]
    async with tree(*children) as (_, events):
        await trio.sleep(5)
        errors = {event.path: event.exit.error for event in happened(events, Exited)}
        assert isinstance(errors["one"], Boom)
        assert errors["one"].__traceback__ is not None
        assert isinstance(errors["two"], ExceptionGroup)


# ------------------------------------------------------------ backoff


def crash_at(seconds: float) -> Any:
    async def run(inbox: Inbox[Any]) -> None:
        inbox.started()
        await trio.sleep(seconds)
        raise Boom

    return run


async def starts_of(child: Child, until: float, **options: Any) -> list[float]:
    begun = trio.current_time()
    async with tree(child, **options) as (_, events):
        await trio.sleep(until)
        return [event.time - begun for event in happened(events, Started)]


async def test_restarts_wait_longer_and_longer() -> None:
    child = Child("a", crash_at(0), backoff=Backoff(1, 8, jitter=0))
    assert await starts_of(child, 30, intensity=Intensity(9, 90)) == [0, 1, 3, 7, 15, 23]


async def test_a_child_that_was_healthy_long_enough_begins_again_with_the_shortest_wait() -> None:
    child = Child("a", crash_at(5), backoff=Backoff(1, 8, jitter=0, reset_after=5))
    assert await starts_of(child, 20, intensity=Intensity(9, 90)) == [0, 6, 12, 18]


async def test_failed_starts_wait_longer_and_longer_too() -> None:
    tried = []

    async def fails_after_first(inbox: Inbox[Any]) -> None:
        tried.append(trio.current_time())
        if inbox.attempt == 1:
            await inbox.receive()
        raise Boom

    child = Child("a", fails_after_first, backoff=Backoff(1, 100, jitter=0))
    begun = trio.current_time()
    async with open_supervisor([child], intensity=Intensity(9, 999)) as root:
        await root.ref("a").tell("go")
        await trio.sleep(20)
    assert [time - begun for time in tried] == [0, 1, 3, 7, 15]


async def test_jitter_comes_from_the_supervisors_own_seed() -> None:
    child = Child("a", crash_at(0), backoff=Backoff(1, 8))
    many = Intensity(9, 90)
    first = await starts_of(child, 30, intensity=many, random=Random(1))
    assert first != await starts_of(child, 30, intensity=many, random=Random(2))
    assert first == pytest.approx(await starts_of(child, 30, intensity=many, random=Random(1)))


async def test_the_delay_is_told() -> None:
    child = Child("a", counter, backoff=Backoff(2, 8, jitter=0))
    async with tree(child) as (root, events):
        await root.ref("a").tell(Crash())
        await settle()
        [restarting] = happened(events, Restarting)
        assert (restarting.path, restarting.delay, restarting.attempt) == ("a", 2, 1)


async def test_the_delay_is_told_after_each_failed_start_too() -> None:
    async def fails_after_first(inbox: Inbox[Any]) -> None:
        if inbox.attempt == 1:
            await inbox.receive()
        raise Boom

    child = Child("a", fails_after_first, backoff=Backoff(1, 100, jitter=0))
    async with tree(child, intensity=Intensity(9, 999)) as (root, events):
        await root.ref("a").tell("go")
        await trio.sleep(5)
        assert [event.delay for event in happened(events, Restarting)] == [1, 2, 4]


async def test_a_restart_that_waits_can_be_called_off() -> None:
    async with tree(Child("a", counter, backoff=Backoff(2, 8))) as (root, events):
        await root.ref("a").tell(Crash())
        await settle()
        assert states(root) == {"a": "waiting"}
        await root.stop_child("a")
        assert states(root) == {"a": "down"}
        await trio.sleep(60)
        assert len(happened(events, Started)) == 1
        await root.delete_child("a")


async def test_stopping_does_not_wait_for_a_restart_that_waits() -> None:
    async with open_supervisor([Child("a", counter, backoff=Backoff(4, 8))]) as root:
        await root.ref("a").tell(Crash())
        await settle()
        begun = trio.current_time()
    assert trio.current_time() == begun


async def test_stopping_interrupts_a_slow_start() -> None:
    async def slow_again(inbox: Inbox[Any]) -> None:
        if inbox.attempt > 1:
            await trio.sleep(1000)
        await idle_until_crash(inbox)

    async def idle_until_crash(inbox: Inbox[Any]) -> None:
        async for _ in inbox:
            raise Boom

    async with open_supervisor([Child("a", slow_again)]) as root:
        await root.ref("a").tell(Crash())
        await settle()
        assert states(root) == {"a": "starting"}
        begun = trio.current_time()
    assert trio.current_time() == begun


async def test_a_group_waits_for_the_backoff_of_its_leader() -> None:
    """The siblings are stopped at once, as in OTP, and come back together with the one that crashed."""
    children = [Child("a", idle), Child("b", counter, backoff=Backoff(3, 8, jitter=0)), Child("c", idle)]
    async with tree(*children, strategy=Strategy.REST_FOR_ONE) as (root, events):
        await root.ref("b").tell(Crash())
        await settle()
        assert states(root) == {"a": "up", "b": "waiting", "c": "waiting"}
        happened(events)
        await trio.sleep(5)
        assert [(event.path, event.time) for event in happened(events)] == [("b", 3), ("c", 3)]


async def test_a_wider_group_takes_over_a_restart_that_waits() -> None:
    children = [
        Child("a", counter, backoff=Backoff(1, 8, jitter=0)),
        Child("b", counter, backoff=Backoff(4, 8, jitter=0)),
    ]
    async with tree(*children, strategy=Strategy.REST_FOR_ONE, intensity=Intensity(3, 60)) as (root, events):
        await root.ref("b").tell(Crash())
        await trio.sleep(1)
        await root.ref("a").tell(Crash())
        await settle()
        happened(events)
        await trio.sleep(20)
        assert [(event.path, event.time) for event in happened(events)] == [("a", 4), ("b", 4)]


async def test_a_member_of_a_waiting_group_that_is_stopped_stays_down() -> None:
    children = [Child("a", idle), Child("b", counter, backoff=Backoff(3, 8, jitter=0)), Child("c", idle)]
    async with open_supervisor(children, strategy=Strategy.ONE_FOR_ALL) as root:
        await root.ref("b").tell(Crash())
        await settle()
        await root.stop_child("a")
        await root.stop_child("b")
        await trio.sleep(10)
        assert states(root) == {"a": "down", "b": "down", "c": "up"}


# ------------------------------------------------------------ simultaneous crashes


@pytest.mark.parametrize(("strategy", "credits"), [(Strategy.ONE_FOR_ALL, 1), (Strategy.ONE_FOR_ONE, 2)])
async def test_two_crashes_at_once_cost_as_many_credits_as_in_otp(strategy: Strategy, credits: int) -> None:
    children = [Child(name, counter) for name in "abc"]

    async def crash_two(restarts: int) -> None:
        async with open_supervisor(children, strategy=strategy, intensity=Intensity(restarts)) as root:
            root.ref("a").tell_nowait(Crash())
            root.ref("c").tell_nowait(Crash())
            await settle()
            assert states(root) == {"a": "up", "b": "up", "c": "up"}

    await crash_two(credits)
    with pytest.raises(GaveUp):
        await crash_two(credits - 1)


async def test_credits_come_back_after_the_period() -> None:
    async def crash(times: int, every: float) -> None:
        async with open_supervisor([Child("a", counter)], intensity=Intensity(1, 5)) as root:
            for _ in range(times):
                await root.ref("a").tell(Crash())
                await trio.sleep(every)

    await crash(4, every=5.1)
    with pytest.raises(GaveUp):
        await crash(2, every=5)  # exactly the period still counts


# ------------------------------------------------------------ nesting


async def test_paths_lead_through_nested_supervisors_and_may_be_taken_before() -> None:
    async with open_supervisor() as root:
        ref = root.ref("shop/till/counter")
        assert not ref.alive
        assert ref.path == "shop/till/counter"
        till = supervisor([Child("counter", counter, 3)])
        await root.start_child(Child("shop", supervisor([Child("till", till)])))
        assert ref.alive
        assert await ref.ask(Total) == 3
        assert ref == root.ref("shop/till/counter")
        assert len({ref, root.ref("shop/till/counter")}) == 1


async def test_a_nested_supervisor_that_gives_up_is_its_parents_problem() -> None:
    nested = supervisor([Child("a", counter)], intensity=Intensity(0))
    async with tree(Child("nested", nested)) as (root, events):
        ref = root.ref("nested/a")
        await ref.tell(Crash("first"))
        await settle()
        assert await ref.ask(Total) == 0
        [gave_up] = happened(events, GaveUp)
        assert gave_up.path == "nested"
        assert isinstance(gave_up.__cause__, Boom)


async def test_giving_up_goes_up_level_by_level() -> None:
    none = Intensity(0)
    inner = supervisor([Child("a", counter)], intensity=none)
    outer = supervisor([Child("inner", inner)], intensity=none)
    stream: list[Events] = []

    async def main() -> None:
        async with open_supervisor([Child("outer", outer)], intensity=none) as root:
            stream.append(root.events())
            await root.ref("outer/inner/a").tell(Crash("deep"))
            await trio.sleep_forever()

    with pytest.raises(GaveUp) as raised:
        await main()
    assert [event.path for event in happened(stream[0], GaveUp)] == ["outer/inner", "outer", ""]
    causes = []
    error: BaseException | None = raised.value
    while error is not None:
        causes.append(type(error).__name__)
        error = error.__cause__
    assert causes == ["GaveUp", "GaveUp", "GaveUp", "Boom"]


async def test_a_temporary_nested_supervisor_that_gives_up_is_parked_and_the_rest_goes_on() -> None:
    parked = supervisor([Child("a", counter)], intensity=Intensity(0))
    async with tree(Child("parked", parked, restart=TEMPORARY), Child("other", counter)) as (root, events):
        await root.ref("parked/a").tell(Crash())
        await settle()
        assert states(root) == {"other": "up"}
        [exited] = [event for event in happened(events, Exited) if event.path == "parked"]
        assert isinstance(exited.exit, Crashed)
        assert isinstance(exited.exit.error, GaveUp)


@pytest.mark.parametrize(("restart", "starts"), [(Restart.PERMANENT, 2), (TRANSIENT, 1), (TEMPORARY, 1)])
async def test_a_nested_supervisor_that_gives_up_is_restarted_only_if_it_is_permanent(
    restart: Restart, starts: int
) -> None:
    """In OTP it ends with the reason `shutdown`, which is a normal end for a transient child."""
    probe = Probe()
    below = supervisor([Child("probe", probe.run)], intensity=Intensity(0))
    async with open_supervisor([Child("nested", below, restart=restart), Child("helper", idle)]) as root:
        await root.ref("nested/probe").tell(Crash())
        await settle()
        assert probe.lives == starts
        states = {info.name: info.state for info in root.children()}
        assert states.get("nested", "down") == ("up" if starts == 2 else "down")
        assert states["helper"] == "up"


async def test_a_significant_nested_supervisor_that_gives_up_ends_its_parent() -> None:
    below = supervisor([Child("counter", counter)], intensity=Intensity(0))
    nested = Child("nested", below, restart=TRANSIENT, significant=True)
    async with open_supervisor([nested], auto_shutdown=AutoShutdown.ANY_SIGNIFICANT) as root:
        await root.ref("nested/counter").tell(Crash())
        await root.wait_stopped()


async def test_a_transient_actor_that_gets_gave_up_from_a_tree_of_its_own_has_crashed() -> None:
    runs = []

    async def opens(inbox: Inbox[Any]) -> None:
        runs.append(inbox.attempt)
        inbox.started()
        if inbox.attempt == 1:
            async with open_supervisor([Child("fails", fails_to_start)]):
                pass
        await idle(inbox)

    async with open_supervisor([Child("opens", opens, restart=TRANSIENT)]):
        await settle()
        assert runs == [1, 2]


async def test_a_transient_child_that_was_killed_is_restarted() -> None:
    async with open_supervisor([Child("a", counter, restart=TRANSIENT)]) as root:
        await settle()
        root.ref("a")._cell.incarnation.kill("a test")
        await settle()
        [info] = root.children()
        assert (info.state, info.attempt) == ("up", 2)


async def test_a_nested_supervisor_whose_child_cannot_start_does_not_start() -> None:
    with pytest.raises(GaveUp, match="'nested' did not start") as raised:
        async with open_supervisor([Child("nested", supervisor([Child("bad", fails_to_start)]))]):
            pytest.fail("opened")
    assert isinstance(raised.value.__cause__, GaveUp)


async def test_a_supervisor_may_be_opened_inside_an_actor() -> None:
    async def manager(inbox: Inbox[Any]) -> None:
        async with open_supervisor([Child("worker", counter, 5)]):
            await idle(inbox)

    async with tree(Child("manager", manager)) as (root, events):
        assert await root.ref("manager/worker").ask(Total) == 5
        assert root.tree().children[0].children[0].path == "manager/worker"
    paths = [event.path for event in happened(events, Exited)]
    assert paths == ["manager/worker", "manager"]


# ------------------------------------------------------------ requests


async def test_a_child_that_is_added_is_the_last_in_start_order() -> None:
    async with tree(Child("a", counter), Child("b", idle), strategy=Strategy.REST_FOR_ONE) as (root, events):
        await root.start_child(Child("c", idle))
        happened(events)
        await root.ref("a").tell(Crash())
        await settle()
        assert [e.path for e in happened(events, Exited)] == ["a", "c", "b"]
        assert list(states(root)) == ["a", "b", "c"]


async def test_a_child_that_does_not_start_is_not_added() -> None:
    async with open_supervisor() as root:
        with pytest.raises(ActorDied, match="'bad': did not start, crashed with Boom: no start") as raised:
            await root.start_child(Child("bad", fails_to_start))
        assert isinstance(raised.value.__cause__, Boom)
        assert root.children() == ()
        await root.start_child(Child("bad", idle))


async def test_names_are_unique() -> None:
    async with open_supervisor([Child("a", idle)]) as root:
        with pytest.raises(ActorError, match=r"a child 'a' is there already \(up\)"):
            await root.start_child(Child("a", idle))
        await root.stop_child("a")
        with pytest.raises(ActorError, match=r"a child 'a' is there already \(down\)"):
            await root.start_child(Child("a", idle))


async def test_a_start_that_is_cancelled_leaves_no_child() -> None:
    async def slow(inbox: Inbox[Any]) -> None:
        await trio.sleep(100)

    async with open_supervisor() as root:
        with trio.move_on_after(1):
            await root.start_child(Child("slow", slow))
        await settle()
        assert root.children() == ()
        await root.start_child(Child("slow", idle))


async def test_a_restart_that_is_cancelled_leaves_the_child_down() -> None:
    async def slow_again(inbox: Inbox[Any]) -> None:
        if inbox.attempt > 1:
            await trio.sleep(100)
        await idle(inbox)

    async with open_supervisor([Child("slow", slow_again)]) as root:
        await root.stop_child("slow")
        with trio.move_on_after(1):
            await root.restart_child("slow")
        await settle()
        assert states(root) == {"slow": "down"}


@pytest.mark.parametrize("strategy", [Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE])
async def test_a_start_that_was_cancelled_is_not_taken_up_again_by_a_restart_of_the_group(strategy: Strategy) -> None:
    """The crash of a sibling is in the queue already when the caller leaves."""
    starts = []

    async def never_up(inbox: Inbox[Any]) -> None:
        starts.append(inbox.attempt)
        await trio.sleep_forever()

    async with open_supervisor([Child("a", counter)], strategy=strategy, intensity=Intensity(3)) as root:
        with trio.move_on_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(root.start_child, Child("new", never_up))
                await settle()
                root.ref("a").tell_nowait(Crash())
                await trio.sleep_forever()
        await settle()
        assert states(root) == {"a": "up"}
        assert starts == [1]


async def test_messages_for_a_child_whose_restart_is_called_off_are_dead_letters() -> None:
    """The restart of `b` fails, so `c` waits for another attempt; but `b` is stopped before its turn."""

    async def fails_again(inbox: Inbox[Any]) -> None:
        if inbox.attempt > 1:
            raise Boom("not again")
        await counter(inbox)

    async def slow_to_stop(inbox: Inbox[Any]) -> None:
        await idle(inbox)
        await trio.sleep(1)

    async with open_supervisor(
        [Child("b", fails_again), Child("c", slow_to_stop)], strategy=Strategy.ONE_FOR_ALL, intensity=Intensity(3)
    ) as root:
        events = root.events()
        root.ref("b").tell_nowait(Crash())
        await settle()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(root.stop_child, "b")
            root.ref("c").tell_nowait(Add(1))
        await settle()
        assert states(root) == {"b": "down", "c": "down"}
        assert await root.ref("c").wait_stopped() is not None
        [letter] = [event for event in happened(events, DeadLetter) if event.path == "c"]
        assert letter.why == "its restart was called off, as 'b' was stopped"


async def test_the_end_of_a_child_says_nothing_of_another_child_that_has_its_name_now() -> None:
    """The old one crashes while it is being stopped; before its end is heard of, a new one has taken its place."""

    async def crashes_in_the_end(inbox: Inbox[Any]) -> None:
        await idle(inbox)
        await trio.sleep(1)
        raise Boom("too late")

    new = Probe()
    async with open_supervisor([Child("a", crashes_in_the_end)]) as root, trio.open_nursery() as nursery:
        for request in (root.stop_child, root.delete_child):
            nursery.start_soon(request, "a")
            await settle()
        nursery.start_soon(root.start_child, Child("a", new.run))
        await trio.sleep(2)
        assert new.lives == 1
        assert states(root) == {"a": "up"}


async def test_a_request_whose_caller_left_before_its_turn_is_not_done() -> None:
    async def slow(inbox: Inbox[Any]) -> None:
        await trio.sleep(10)
        await idle(inbox)

    async with open_supervisor([Child("a", idle)]) as root, trio.open_nursery() as nursery:
        nursery.start_soon(root.start_child, Child("slow", slow))
        await settle()
        with trio.move_on_after(1):
            await root.stop_child("a")
        await trio.sleep(20)
        assert states(root) == {"a": "up", "slow": "up"}


async def test_stop_restart_delete() -> None:
    async with open_supervisor([Child("a", counter, 1), Child("b", idle)]) as root:
        with pytest.raises(ActorError, match="'a' is up; only a child that is down can be restarted"):
            await root.restart_child("a")
        with pytest.raises(ActorError, match="'a' is up; stop it before you delete it"):
            await root.delete_child("a")
        await root.stop_child("a")
        await root.stop_child("a")
        await root.restart_child("a")
        assert await root.ref("a").ask(Total) == 1
        await root.stop_child("a")
        await root.delete_child("a")
        with pytest.raises(ActorError, match="there is no child 'a'; there are: b"):
            await root.stop_child("a")
        assert list(states(root)) == ["b"]


async def test_a_temporary_child_that_is_stopped_is_forgotten() -> None:
    async with open_supervisor([Child("a", idle, restart=TEMPORARY)]) as root:
        await root.stop_child("a")
        assert root.children() == ()


async def test_a_crash_before_a_request_is_dealt_with_first() -> None:
    """A name that is used again at once is not taken for the one that has just ended."""
    async with tree(Child("a", counter)) as (root, events):
        async with trio.open_nursery() as nursery:
            for request in (root.stop_child, root.delete_child):
                nursery.start_soon(request, "a")
                await trio.testing.wait_all_tasks_blocked(0)
            await root.start_child(Child("a", counter, 9))
        await settle()
        assert await root.ref("a").ask(Total) == 9
        assert len(happened(events, Started)) == 2


async def test_requests_that_wait_when_all_stops_are_refused() -> None:
    async def slow(inbox: Inbox[Any]) -> None:
        await trio.sleep(10)

    refused = []

    async def refused_request(root: Any) -> None:
        with pytest.raises((ActorError, ActorDied)) as raised:
            await root.start_child(Child("slow", slow))
        refused.append(type(raised.value))

    async with trio.open_nursery() as nursery:
        async with open_supervisor() as root:
            for _ in range(3):
                nursery.start_soon(refused_request, root)
            await settle()
        await settle()
        assert len(refused) == 3


async def test_temporary_and_normal_ends_say_so() -> None:
    async with tree(Child("t", returns, restart=TRANSIENT), Child("p", never_reads)) as (root, events):
        await settle()
        [exited] = happened(events, Exited)
        assert exited.exit == Normal()
        assert states(root) == {"t": "down", "p": "up"}
        await root.ref("t").tell("too late")
        assert len(happened(events, DeadLetter)) == 1


async def test_inbox_says_which_run_it_is_and_whose() -> None:
    seen = []

    async def curious(inbox: Inbox[Any]) -> None:
        seen.append((inbox.attempt, inbox.ref.path))
        async for _ in inbox:
            raise Boom

    async with open_supervisor([Child("a", curious)], intensity=Intensity(5)) as root:
        for _ in range(2):
            await root.ref("a").tell("go")
            await settle()
    assert seen == [(1, "a"), (2, "a"), (3, "a")]


async def test_a_budget_is_the_worst_case() -> None:
    nested = supervisor([Child("x", idle, shutdown=2), Child("y", idle, shutdown=0)])
    async with open_supervisor([Child("a", idle, shutdown=3), Child("n", nested)]) as root:
        assert root.shutdown_budget() == (2 + 1) + (0 + 1) + (3 + 1)
        await root.start_child(Child("b", idle, shutdown=math.inf))
        assert root.shutdown_budget() == math.inf
