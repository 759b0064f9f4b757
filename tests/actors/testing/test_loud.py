"""A simulation that cannot find anything says so, and its line repeats what it found."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import trio
import trio.lowlevel

from actors import Child, Inbox, open_supervisor
from actors.testing import (
    Deadlock,
    Faults,
    Simulation,
    SimulationFailed,
    StaleReplay,
    all_tasks,
    cancel_at_every_checkpoint,
    crash_at_every_checkpoint,
    simulate,
)
from tests.actors.kit import Add, counter

# ------------------------------------------------------------ faults that hit nobody


async def plain() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 1)


@pytest.mark.parametrize("at_every", [crash_at_every_checkpoint, cancel_at_every_checkpoint])
def test_faults_at_every_checkpoint_of_no_task_are_refused(at_every: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=r"no checkpoint .* hits=all_tasks"):
        at_every(plain)
    at_every(plain, hits=all_tasks)


@pytest.mark.parametrize("faults", [Faults(crash=2), Faults(cancel=2), Faults(delay=2)])
def test_random_faults_that_may_hit_no_task_are_refused(faults: Faults) -> None:
    with pytest.raises(ValueError, match=r"no task .* hits=all_tasks"):
        simulate(plain, seeds=range(5), faults=faults)
    simulate(plain, seeds=range(5))


async def counts() -> None:
    async with open_supervisor([Child("counter", counter)]) as supervisor:
        await supervisor.ref("counter").tell(Add(1))
        await trio.sleep(1)


@pytest.mark.parametrize("kind", ["crash", "cancel", "delay"])
def test_faults_so_rare_that_none_took_effect_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=rf"{kind}=1000000000: one in so many checkpoints; .* none took effect"):
        simulate(counts, seeds=range(2), faults=Faults(**{kind: 10**9}))


def test_a_report_says_how_many_faults_took_effect() -> None:
    report = simulate(counts, seeds=range(100), faults=Faults(crash=9, cancel=20, delay=9, max_strikes=1), twice=0)
    assert report.crashes > report.cancels > 0 < report.delays
    report = crash_at_every_checkpoint(counts)
    assert (report.crashes, report.cancels) == (report.places, 0)


# ------------------------------------------------------------ what is no program


def test_what_is_no_program_is_told_in_plain_words() -> None:
    def ordinary() -> None:
        pass

    async def wants_two(_: object, other: object) -> None:
        pass

    async def never_awaited(_: Simulation) -> None:
        pass

    running = plain()
    for main, why in ((ordinary, "None and is no async"), (running, "itself"), (wants_two, "wants _, other")):
        for tried in (simulate, crash_at_every_checkpoint):
            with pytest.raises(TypeError, match=why):
                tried(main)  # type: ignore[operator]
    running.close()
    with pytest.raises(TypeError, match=r"seeds=5: .* range\(5\)"):
        simulate(plain, seeds=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="check is an async function"), warnings.catch_warnings(action="ignore"):
        simulate(plain, check=never_awaited)


# ------------------------------------------------------------ all failures


def test_all_seeds_that_fail_are_reported_if_it_shall_keep_going() -> None:
    async def main(simulation: Simulation) -> None:
        assert simulation.seed % 3, f"{simulation.seed} is a multiple"

    with pytest.raises(SimulationFailed, match="seed 0, the 1st") as raised:
        simulate(main, seeds=range(8))
    assert "2 of" not in str(raised.value)
    with pytest.raises(SimulationFailed, match="3 of 8 seeds fail") as raised:
        simulate(main, seeds=range(8), keep_going=True)
    assert raised.value.replay == "0"
    for seed in (0, 3, 6):
        assert f"{seed} is a multiple" in str(raised.value)
        assert f"simulate(main, replay='{seed}')" in str(raised.value)


# ------------------------------------------------------------ replays


def test_a_line_that_does_not_fit_the_program_any_more_is_stale() -> None:
    with pytest.raises(SimulationFailed, match="task that is gone at its checkpoint 7") as raised:
        simulate(plain, replay="3 lag:task%20that%20is%20gone@7*2")
    assert isinstance(raised.value.__cause__, StaleReplay)
    assert "search again with seeds" in str(raised.value)
    assert "Run it again" not in str(raised.value)
    assert "It takes no" not in str(raised.value)


def test_a_line_of_which_a_part_is_stale_but_that_fails_all_the_same_says_how_it_fails() -> None:
    async def fails() -> None:
        raise KeyError("found")

    with pytest.raises(SimulationFailed, match="KeyError: 'found'"):
        simulate(fails, replay="3 lag:gone@1*2")


balance = {"mine": 0, "yours": 0}


async def main() -> None:
    async def bank(inbox: Inbox[int]) -> None:
        async for amount in inbox:
            balance["mine"] -= amount
            await trio.sleep(0.1)
            balance["yours"] += amount

    balance.update(mine=10, yours=0)
    async with open_supervisor([Child("bank", bank)]) as supervisor:
        await supervisor.ref("bank").tell(3)
        await trio.sleep(1)


def nothing_is_lost(_: Simulation) -> None:
    assert sum(balance.values()) == 10, balance


def test_the_printed_call_fails_in_the_same_way_when_it_is_pasted() -> None:
    with pytest.raises(SimulationFailed) as raised:
        crash_at_every_checkpoint(main, check=nothing_is_lost, allowed=[KeyError], max_steps=5000)
    line = next(line for line in str(raised.value).splitlines() if line.startswith("Run it again: "))
    call = line.removeprefix("Run it again: ")
    assert (
        call
        == f"simulate(main, check=nothing_is_lost, allowed=[KeyError], replay={raised.value.replay!r}, max_steps=5000)"
    )
    with pytest.raises(SimulationFailed, match="AssertionError"):
        eval(call)


# ------------------------------------------------------------ shrinking


def test_a_crash_is_shrunk_to_a_lag_where_that_is_enough() -> None:
    async def race() -> None:
        done = trio.Event()

        async def first(inbox: Inbox[int]) -> None:
            inbox.started()
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            done.set()
            await trio.sleep_forever()

        async with open_supervisor() as supervisor:
            await supervisor.start_child(Child("first", first))
            for _ in range(4):
                await trio.lowlevel.checkpoint()
            assert done.is_set(), "too late"

    with pytest.raises(SimulationFailed, match="too late") as raised:
        simulate(race, seeds=range(300), faults=Faults(lag=0, crash=3))
    assert "crash" not in raised.value.replay
    assert " late:" in raised.value.replay or " lag:" in raised.value.replay


# ------------------------------------------------------------ deadlocks


def test_a_deadlock_names_what_each_task_waits_for_and_who_holds_it() -> None:
    async def deadlock() -> None:
        forks = {"left": trio.Lock(), "right": trio.Lock()}
        limiter = trio.CapacityLimiter(1)
        bell = trio.Event()

        async def ann() -> None:
            left, right = forks["left"], forks["right"]
            async with left:
                await trio.sleep(1)
                async with right:
                    pass

        async def bob() -> None:
            left, right = forks["left"], forks["right"]
            async with right:
                await trio.sleep(1)
                async with left:
                    pass

        async def holder() -> None:
            async with limiter:
                await bell.wait()

        async def guest() -> None:
            await trio.sleep(1)
            async with limiter:
                pass

        async with trio.open_nursery() as nursery:
            for work in (ann, bob, holder, guest):
                nursery.start_soon(work)

    with pytest.raises(SimulationFailed) as raised:
        simulate(deadlock, seeds=range(1))
    error = raised.value.__cause__
    assert isinstance(error, Deadlock)
    assert error.stacks["ann"][-1] == "waits in Lock.acquire for 'right', held by bob"
    assert error.stacks["bob"][-1] == "waits in Lock.acquire for 'left', held by ann"
    assert error.stacks["guest"][-1] == "waits in CapacityLimiter.acquire for 'limiter', held by holder"
    assert error.stacks["holder"][-1] == "waits in Event.wait for 'bell'"
