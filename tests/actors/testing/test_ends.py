"""Programs that do not end are told apart, ended, and do not disturb the next run."""

from __future__ import annotations

import contextlib

import pytest
import trio

from actors import Child, Inbox, open_supervisor
from actors.testing import Deadlock, Endless, Simulation, SimulationFailed, _simulate, simulate
from tests.actors.kit import Boom, Total


def failure_of(main, **options) -> BaseException:
    with pytest.raises(SimulationFailed) as failed:
        simulate(main, seeds=[0], **options)
    assert failed.value.__cause__ is not None
    return failed.value.__cause__


async def waits_for_nobody() -> None:
    await trio.Event().wait()


async def waits_in_a_shield() -> None:
    with trio.CancelScope(shield=True):
        await trio.Event().wait()


async def waits_in_its_cleanup() -> None:
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()


async def an_actor_waits_in_a_shield() -> None:
    async def stubborn(inbox: Inbox[int]) -> None:
        async for _ in inbox:
            await waits_in_a_shield()

    async with open_supervisor([Child("stubborn", stubborn)]) as root:
        await root.ref("stubborn").tell(1)
        await trio.sleep(1)


async def asks_who_never_answers() -> None:
    async def keeps(inbox: Inbox[Total]) -> None:
        kept = [message async for message in inbox]
        kept.clear()

    async with open_supervisor([Child("keeps", keeps)]) as root:
        await root.ref("keeps").ask(Total)


DEADLOCKS = [
    waits_for_nobody,
    waits_in_a_shield,
    waits_in_its_cleanup,
    an_actor_waits_in_a_shield,
    asks_who_never_answers,
]


@pytest.mark.parametrize("main", DEADLOCKS)
def test_a_program_in_which_all_wait_for_ever_is_a_deadlock_and_no_hang(main) -> None:
    error = failure_of(main)
    assert isinstance(error, Deadlock)
    assert "main" in error.stacks
    assert any("test_ends.py" in line for lines in error.stacks.values() for line in lines)


def test_a_deadlock_says_who_waits_where() -> None:
    error = failure_of(asks_who_never_answers)
    assert error.stacks["main"][-1] == "waits in Ref.ask"
    assert error.stacks["keeps"][-1] == "waits in Inbox.__anext__"
    assert "every task waits, and nothing will ever wake one of them" in str(error)


def test_sleeping_for_a_year_is_no_deadlock() -> None:
    assert simulate(lambda: trio.sleep(365 * 86400), seeds=[0]).schedules == 1  # noqa: ASYNC105


async def spins() -> None:
    while True:
        await trio.lowlevel.checkpoint()


async def polls() -> None:
    while True:  # noqa: ASYNC110
        await trio.sleep(1)


@pytest.mark.parametrize("main", [spins, polls])
def test_a_program_that_never_ends_is_endless(main) -> None:
    error = failure_of(main, max_steps=500)
    assert isinstance(error, Endless)
    assert "more than 500 steps" in str(error)


def test_a_task_that_was_stopped_for_being_endless_may_clean_up() -> None:
    cleaned = []

    async def main() -> None:
        try:
            await spins()
        finally:
            cleaned.append(1)

    failure_of(main, max_steps=500)
    assert cleaned


async def spins_while_its_end_waits() -> None:
    """No time passes while a task can run, so the end that waits for a time does not come."""
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spins)
            await trio.sleep(3)
            nursery.cancel_scope.cancel()


async def catches_everything() -> None:
    for _ in range(10):
        with contextlib.suppress(BaseException):
            await spins()


@pytest.mark.parametrize("main", [*DEADLOCKS, polls, spins_while_its_end_waits, catches_everything])
def test_the_seeds_after_one_that_does_not_end_are_judged_by_themselves(main) -> None:
    async def main_of_seed(simulation: Simulation) -> None:
        if not simulation.seed:
            await main()
        await trio.sleep(1)

    with pytest.raises(SimulationFailed, match=r"^seed 0, .*(Endless|Deadlock)"):
        simulate(main_of_seed, seeds=range(3), keep_going=True, max_steps=500)


def test_the_search_for_the_fewest_perturbations_makes_few_runs_that_do_not_end(monkeypatch) -> None:
    monkeypatch.setattr(_simulate, "SHRINK_STEPS", 20_000)
    runs = []

    async def main() -> None:
        async def note(n: int) -> None:
            await trio.lowlevel.checkpoint()
            order.append(n)

        order: list[int] = []
        runs.append(order)
        async with trio.open_nursery() as nursery:
            for n in range(50):
                nursery.start_soon(note, n)
        if order != sorted(order):
            await spins()

    failure_of(main, max_steps=5_000)
    assert 3 < len(runs) <= 3 + 20_000 // 5_000


def test_a_task_that_was_forced_out_cleans_up_within_the_run() -> None:
    cleaned = []

    async def main() -> None:
        try:
            await spins_while_its_end_waits()
        finally:
            cleaned.append(trio.current_time())

    failure_of(main, max_steps=500, shrink=0)
    assert cleaned == [0, 0, 0]


def test_a_failure_in_a_check_is_a_failure() -> None:
    def check(_: object) -> None:
        raise Boom("not right")

    assert isinstance(failure_of(trio.lowlevel.checkpoint, check=check), Boom)


def test_what_pytest_raises_is_a_failure() -> None:
    def check(_: object) -> None:
        pytest.fail("no")

    assert "no" in str(failure_of(trio.lowlevel.checkpoint, check=check))


def test_an_error_that_is_allowed_is_no_failure() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raises)

    async def raises() -> None:
        raise Boom

    assert isinstance(failure_of(main), ExceptionGroup)
    seen = []
    simulate(main, seeds=[0], allowed=[Boom], check=lambda run: seen.append(type(run.error)))
    assert set(seen) == {ExceptionGroup}


def test_control_c_ends_the_simulation() -> None:
    async def main() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(main)


def test_no_seeds_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="no seeds"):
        simulate(spins, seeds=[])
