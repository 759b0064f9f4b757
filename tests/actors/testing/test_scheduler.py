"""Where a fault may be put in, and where not: nothing happens to a program that could not happen in earnest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from actors import Child, DeadLetter, Exited, Inbox, Killed, open_supervisor
from actors.testing import (
    Faults,
    InjectedCrash,
    Simulation,
    SimulationFailed,
    StaleReplay,
    all_tasks,
    crash_at_every_checkpoint,
    simulate,
)

Run = Callable[[], Awaitable[object]]


def crashed_at(run: Run, place: str) -> list[str]:
    """Run it as a task "task" beside nothing, with a crash at that place; what took effect."""
    runs: list[Simulation] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, name="task")

    stale = ""
    try:
        simulate(main, replay=f"0 crash:task@{place}*0", check=runs.append, allowed=[Exception])
    except SimulationFailed as failed:
        if not isinstance(failed.__cause__, StaleReplay):
            raise
        stale = str(failed.__cause__)
    struck = [str(perturbation) for perturbation in runs[0].perturbations]
    assert bool(stale) is (struck == [])
    return struck


def places_of(run: Run) -> int:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, name="task")

    try:
        return crash_at_every_checkpoint(main, hits=lambda task: task.name == "task", allowed=[Exception]).places
    except ValueError:
        return 0


async def shielded() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(1)


async def shielded_checkpoint() -> None:
    await trio.lowlevel.cancel_shielded_checkpoint()


async def done_already() -> None:
    """The lock is taken when this waits: to raise there would leave it locked."""
    lock = trio.Lock()
    async with lock:
        pass


async def sends_to_a_buffer() -> None:
    """What was sent is in the buffer when this waits."""
    send, _receive = trio.open_memory_channel[int](1)
    await send.send(1)


async def waits_for_its_children() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 1, name="child")


async def plain_checkpoint() -> None:
    await trio.lowlevel.checkpoint()


async def sleeps() -> None:
    await trio.sleep(1)


async def shielded_by_somebody_else() -> None:
    """As all actors are, by their supervisor."""

    async def child() -> None:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 1, name="task")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)


@pytest.mark.parametrize(
    "run", [shielded, shielded_checkpoint, done_already, sends_to_a_buffer, waits_for_its_children]
)
def test_no_crash_where_nothing_could_raise(run: Run) -> None:
    assert places_of(run) == 0
    assert crashed_at(run, "1") == []


@pytest.mark.parametrize("run", [plain_checkpoint, sleeps])
def test_a_crash_where_a_cancel_could_be(run: Run) -> None:
    assert places_of(run) == 1
    assert crashed_at(run, "1") == ["crash:task@1*0"]


def test_a_shield_of_somebody_else_is_none() -> None:
    assert (
        crash_at_every_checkpoint(
            shielded_by_somebody_else, hits=lambda task: task.name == "task", allowed=[InjectedCrash]
        ).places
        == 1
    )


def test_a_value_on_its_way_is_not_lost() -> None:
    """Whoever has been woken with a message gets it, whatever the faults; the crash comes later or not at all."""
    got: list[int] = []

    async def main() -> None:
        got.clear()
        send, receive = trio.open_memory_channel[int](0)

        async def take() -> None:
            while True:
                try:
                    got.append(await receive.receive())
                except InjectedCrash:
                    continue
                except trio.EndOfChannel:
                    return

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            async with send:
                for number in range(20):
                    await send.send(number)

    def check(_: Simulation) -> None:
        assert got == list(range(20))

    faults = Faults(crash=3, delay=5, max_strikes=50, hits=lambda task: task.name.endswith("take"))
    simulate(main, seeds=range(100), faults=faults, check=check)


def test_a_task_that_crashes_leaves_the_queue_it_stood_in() -> None:
    """Else the lock would be handed to it, and nobody else would ever get it."""
    took = []

    async def main() -> None:
        lock = trio.Lock()

        async def take(name: str) -> None:
            try:
                async with lock:
                    took.append(name)
                    await trio.sleep(1)
            except InjectedCrash:
                return

        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(take, name, name=name)
        assert not lock.locked()

    assert crash_at_every_checkpoint(main, hits=all_tasks).places >= 4


def test_a_cancelled_actor_is_killed_as_its_supervisor_would() -> None:
    exits = []

    async def idle(inbox: Inbox[int]) -> None:
        async for _ in inbox:
            await trio.sleep(1)

    async def main() -> None:
        exits.clear()
        async with open_supervisor([Child("idle", idle)]) as supervisor:
            events = supervisor.events()
            await supervisor.ref("idle").tell(1)
            await trio.sleep(5)
            while True:
                try:
                    exits.append(events.receive_nowait())
                except trio.WouldBlock:
                    break

    simulate(main, replay="0 cancel:idle@2*0")
    letter, exited = exits[:2]
    assert isinstance(letter, DeadLetter)
    assert isinstance(exited, Exited)
    assert exited.exit == Killed("a simulated cancel")


def test_a_crash_may_come_some_rounds_after_the_task_began_to_wait() -> None:
    times = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waits, name="task")
            for _ in range(10):
                times.append("round")
                await trio.lowlevel.checkpoint()

    async def waits() -> None:
        try:
            await trio.sleep(5)
        except InjectedCrash:
            times.append("crash")

    simulate(main, replay="0 crash:task@1*4")
    assert times.index("crash") == 2 + 4


def test_a_crash_of_a_task_that_waits_alone_comes_at_once() -> None:
    async def main() -> None:
        with pytest.raises(InjectedCrash):
            await trio.sleep(5)
        assert trio.current_time() == 0

    simulate(main, replay="0 crash:main@1*4")


def test_a_delay_passes_in_virtual_time() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.lowlevel.checkpoint, name="task")
            await trio.sleep(1)
        assert trio.current_time() == 2.5

    simulate(main, replay="0 delay:task@1*2.5")


def test_tasks_of_a_paused_process_go_on_later_and_find_their_deadlines_passed() -> None:
    async def main(simulation: Simulation) -> None:
        times: dict[str, float] = {}

        async def wait(name: str, deadline: float) -> None:
            with trio.move_on_after(deadline) as scope:
                await trio.sleep(2)
            times[name] = trio.current_time()
            assert scope.cancelled_caught == (deadline < 2)

        simulation.pause(lambda task: task.name.startswith("paused"), 5)
        async with trio.open_nursery() as nursery:
            for name, deadline in (("paused 1", 1), ("paused 2", 9), ("other 1", 1), ("other 2", 9)):
                nursery.start_soon(wait, name, deadline, name=name)
        # What had not begun to run when the pause came begins afterwards.
        assert times == {"other 1": 1, "other 2": 2, "paused 1": 6, "paused 2": 7}

    simulate(main, seeds=range(20))


def test_a_lag_of_a_task_that_is_alone_takes_no_time() -> None:
    async def main() -> None:
        await trio.lowlevel.checkpoint()
        assert trio.current_time() == 0

    simulate(main, replay="0 lag:main@1*50")


def test_idleness_is_not_seen_while_a_task_lags() -> None:
    """Or a program that lets all others settle first would go on too early."""
    settled = []

    async def main() -> None:
        settled.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(slow)
            await trio.testing.wait_all_tasks_blocked()
            assert settled

    async def slow() -> None:
        await trio.lowlevel.checkpoint()
        settled.append(1)

    simulate(main, replay="0 lag:slow@1*50")
    simulate(main, seeds=range(50))


def test_a_fault_of_the_predicate_is_not_swallowed() -> None:
    def hits(task: object) -> bool:
        raise LookupError("a mistake in the predicate")

    with pytest.raises(AssertionError, match="a mistake in the predicate"):
        simulate(sleeps, faults=Faults(crash=1, hits=hits))


@pytest.mark.parametrize("name", ["lag", "crash", "cancel", "delay", "max_strikes"])
def test_a_negative_number_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=-1"):
        Faults(**{name: -1})
