"""A crash or a cancel at every checkpoint, one run each, and what is looked at afterwards."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from actors import ActorDied, Child, GaveUp, Inbox, Intensity, Mailbox, Overflow, Strategy, open_supervisor, supervisor
from actors.testing import (
    InjectedCrash,
    Nondeterminism,
    Simulation,
    SimulationFailed,
    all_tasks,
    cancel_at_every_checkpoint,
    crash_at_every_checkpoint,
    simulate,
)
from tests.actors.kit import Add, Total, Work, counter

EVERYWHERE = {"crash": crash_at_every_checkpoint, "cancel": cancel_at_every_checkpoint}
everywhere = pytest.mark.parametrize("at_every_checkpoint", EVERYWHERE.values(), ids=EVERYWHERE)


async def two_counters(strategy: Strategy = Strategy.ONE_FOR_ONE) -> None:
    """A tree with a nested supervisor, a full mailbox, a question that takes a while, and an ordinary stop."""
    small = Mailbox(2, Overflow.DROP_OLDEST)
    below = supervisor([Child("inner", counter, mailbox=small)], intensity=Intensity(3, 60))
    tree = [Child("outer", counter), Child("below", below)]
    async with open_supervisor(tree, strategy=strategy, intensity=Intensity(3, 60)) as root:
        for path in ("outer", "below/inner"):
            for number in range(4):
                root.ref(path).tell_nowait(Add(number))
            for make, *args in ((Work, 1.0), (Total, "x")):
                try:
                    await root.ref(path).ask(make, *args, timeout=5)
                except ActorDied:
                    continue


@everywhere
@pytest.mark.parametrize("strategy", Strategy)
def test_a_tree_stays_sound_whatever_dies_when(at_every_checkpoint, strategy: Strategy) -> None:
    report = at_every_checkpoint(partial(two_counters, strategy), allowed=[GaveUp])
    assert report.places >= 8
    assert report.runs == report.places + 1


@everywhere
def test_plain_tasks_and_main_can_be_hit_too(at_every_checkpoint) -> None:
    ends: list[str] = []

    async def child() -> None:
        await trio.lowlevel.checkpoint()
        await trio.sleep(1)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
            nursery.start_soon(child)
            await trio.sleep(5)

    def check(simulation: Simulation) -> None:
        ends.append(" ".join(str(perturbation) for perturbation in simulation.perturbations))

    kind = "crash" if at_every_checkpoint is crash_at_every_checkpoint else "cancel"
    at_every_checkpoint(main, hits=all_tasks, check=check)
    places = ["child@1", "child@2", "child#2@1", "child#2@2", "main@1"]
    if kind == "cancel":
        places.append("main@2")  # the end of the nursery
    assert sorted(ends) == sorted(["", *(f"{kind}:{place}*0" for place in places)])


def test_every_kind_of_task_may_be_chosen_by_its_name() -> None:
    report = crash_at_every_checkpoint(two_counters, hits=lambda task: task.name == "outer", allowed=[GaveUp])
    assert 0 < report.places < crash_at_every_checkpoint(two_counters, allowed=[GaveUp]).places


def test_too_many_places_are_walked_in_strides() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeps, 40)

    async def sleeps(times: int) -> None:
        for _ in range(times):
            await trio.sleep(1)

    hits = partial(crash_at_every_checkpoint, main, hits=lambda task: task.name.endswith("sleeps"))
    assert hits().places == 40
    assert hits(max_places=30).places == 20
    assert hits(max_places=40).places == 40


@pytest.mark.parametrize("faulty", [True, False])
def test_state_that_a_crash_leaves_half_done_is_found_and_replayed(faulty: bool) -> None:
    """An actor moves money in two steps, the second after a checkpoint; a crash between them loses it."""
    accounts = {}

    async def bank(inbox: Inbox[Add]) -> None:
        async for message in inbox:
            if faulty:
                accounts["from"] -= message.amount
            await trio.lowlevel.checkpoint()
            if not faulty:
                accounts["from"] -= message.amount
            accounts["to"] += message.amount

    async def main() -> None:
        accounts.update({"from": 10, "to": 0})
        async with open_supervisor([Child("bank", bank)]) as root:
            await root.ref("bank").tell(Add(3))
            await trio.sleep(1)

    def check(_: Simulation) -> None:
        assert sum(accounts.values()) == 10, accounts

    if not faulty:
        crash_at_every_checkpoint(main, check=check)
        return
    with pytest.raises(SimulationFailed, match="bank at its checkpoint 2 crashes") as found:
        crash_at_every_checkpoint(main, check=check)
    assert found.value.replay == "0 crash:bank@2*0"
    with pytest.raises(SimulationFailed, match=r"\{'from': 7, 'to': 0\}"):
        simulate(main, check=check, replay=found.value.replay)


def test_a_program_that_does_not_get_along_without_any_fault_is_refused() -> None:
    async def main() -> None:
        raise KeyError("always")

    with pytest.raises(SimulationFailed, match="without any fault fails: KeyError"):
        crash_at_every_checkpoint(main)


def test_a_program_that_does_something_else_each_time_is_refused() -> None:
    runs = []

    async def main() -> None:
        runs.append(1)
        if len(runs) % 2:
            await trio.lowlevel.checkpoint()

    with pytest.raises(SimulationFailed) as refused:
        crash_at_every_checkpoint(main, hits=all_tasks)
    assert isinstance(refused.value.__cause__, Nondeterminism)


def test_the_error_that_main_ends_with_is_there_for_the_check() -> None:
    errors: list[BaseException | None] = []

    async def main() -> None:
        await trio.sleep(1)

    crash_at_every_checkpoint(main, hits=all_tasks, check=lambda simulation: errors.append(simulation.error))
    assert [type(error) for error in errors] == [type(None), InjectedCrash]


def test_an_error_that_is_not_expected_fails() -> None:
    async def main() -> None:
        try:
            await trio.sleep(1)
        except InjectedCrash:
            raise LookupError("in the clean-up") from None

    with pytest.raises(SimulationFailed, match="LookupError: in the clean-up"):
        crash_at_every_checkpoint(main, hits=all_tasks)
    crash_at_every_checkpoint(main, hits=all_tasks, allowed=[LookupError])


def test_a_seed_may_be_disturbed_everywhere_too() -> None:
    for seed in range(5):
        assert crash_at_every_checkpoint(two_counters, seed=seed, allowed=[GaveUp]).places > 8
