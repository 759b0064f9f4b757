"""Two runs of one seed do the same; a program of which that is not true is refused."""

from __future__ import annotations

import gc
import threading
from functools import partial

import pytest
import trio

from actors import Child, Inbox, open_supervisor
from actors.testing import Faults, Nondeterminism, Simulation, SimulationFailed, simulate
from tests.actors.kit import Add, Total, counter


async def crowd(simulation: Simulation) -> None:
    """Everything in Trio whose order depends on addresses: events, deadlines, nurseries, channels that close."""
    event = trio.Event()

    async def wait(name: int) -> None:
        with trio.move_on_after(1 + name % 3):
            await event.wait()
        simulation.note(f"{name} is back")
        await trio.sleep(simulation.random.random())
        simulation.note(f"{name} has slept")

    async with trio.open_nursery() as nursery:
        for name in range(20):
            nursery.start_soon(wait, name)
        await trio.sleep(1.5)
        event.set()


def lines_of(main, seed: int, **options) -> tuple[str, ...]:
    runs: list[Simulation] = []
    simulate(main, seeds=[seed], check=runs.append, **options)
    return runs[0].lines


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_gives_the_same_trace_each_time(seed: int) -> None:
    assert lines_of(crowd, seed) == lines_of(crowd, seed)


def test_other_seeds_give_other_traces() -> None:
    assert len({lines_of(crowd, seed) for seed in range(10)}) == 10


def test_a_seed_with_faults_gives_the_same_trace_each_time() -> None:
    async def main(simulation: Simulation) -> None:
        async with open_supervisor([Child(name, counter) for name in "abc"], random=simulation.random) as supervisor:
            for name in "abcabc":
                await supervisor.ref(name).tell(Add(1))
                await trio.sleep(0.1)

    faults = Faults(crash=20, delay=10)
    traces = [lines_of(main, seed, faults=faults, allowed=[Exception]) for seed in (3, 4, 3, 4)]
    assert traces[:2] == traces[2:]


def test_a_program_that_remembers_its_last_run_is_refused_with_the_first_line_that_differs() -> None:
    runs = []

    async def main(simulation: Simulation) -> None:
        runs.append(simulation)
        simulation.note("the same")
        simulation.note(f"run {len(runs)}")

    with pytest.raises(SimulationFailed, match="two runs of the same schedule differ") as refused:
        simulate(main)
    assert isinstance(refused.value.__cause__, Nondeterminism)
    assert "both:  t=0.000 the same" in str(refused.value)
    assert "once:  t=0.000 run 3" in str(refused.value)
    assert "again: t=0.000 run 4" in str(refused.value)


def test_a_failure_that_does_not_come_again_is_told_as_such() -> None:
    runs = []

    async def main() -> None:
        runs.append(1)
        await trio.lowlevel.checkpoint()
        if len(runs) == 3:
            raise OSError("once only")

    with pytest.raises(
        SimulationFailed, match=r"failed once \(OSError: once only\) and not again under the same schedule"
    ):
        simulate(main)


def test_a_seed_is_not_run_twice_if_so_wanted() -> None:
    assert simulate(trio.lowlevel.checkpoint, seeds=range(120), twice=0).runs == 120
    assert simulate(trio.lowlevel.checkpoint, seeds=range(120), twice=1).runs == 240
    assert simulate(trio.lowlevel.checkpoint, seeds=range(120), twice=100).runs == 221


def test_garbage_is_not_collected_at_some_moment_of_a_run() -> None:
    """Or the finalizers of a program would run now in one place and now in another."""
    enabled = []

    async def main() -> None:
        enabled.append(gc.isenabled())

    assert gc.isenabled()
    simulate(main, seeds=range(2))
    assert not any(enabled)
    assert gc.isenabled()


def test_a_question_lost_in_garbage_fails_its_asker_as_it_would_in_earnest() -> None:
    """Nothing would ever wake the asker but the collector."""

    async def loses(inbox: Inbox[Total]) -> None:
        async for message in inbox:
            loop: list = [message]
            loop.append(loop)
            del message, loop

    async def main() -> None:
        async with open_supervisor([Child("loses", loses, shutdown=0)]) as supervisor:
            with pytest.raises(Exception, match="dropped without an answer"):
                await supervisor.ref("loses").ask(Total)

    simulate(main, seeds=range(3))


def test_seeds_are_the_programs_randomness_too() -> None:
    drawn = {}

    async def main(simulation: Simulation) -> None:
        drawn.setdefault(simulation.seed, set()).add(simulation.random.random())

    simulate(main, seeds=[1, 2])
    assert len(drawn[1]) == len(drawn[2]) == 1
    assert drawn[1] != drawn[2]


def test_an_address_in_a_note_makes_no_difference() -> None:
    async def main(simulation: Simulation) -> None:
        simulation.note(f"here is {object()!r}")

    assert simulate(main, seeds=range(5)).schedules == 5


def test_tasks_are_told_apart_whatever_their_names() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for name in ("a", "a#2", "a", "a", "a#2#2", "x y"):
                nursery.start_soon(trio.lowlevel.checkpoint, name=name)

    runs: list[Simulation] = []
    simulate(main, seeds=[0], twice=0, check=runs.append)
    names = {line for line in runs[0].lines if line != "main"}
    assert len(names) == 6
    assert {"a", "a#2", "x y"} < names


def test_threads_take_turns() -> None:
    seen = []

    def simulate_crowd() -> None:
        seen.append(lines_of(crowd, 3))

    threads = [threading.Thread(target=simulate_crowd) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 3
    assert len(set(seen)) == 1


def test_hypothesis_in_pytest_trio_does_not_change_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes Trio sort the tasks of each round by their number, and shuffle them with its own random source."""
    before = lines_of(crowd, 7)
    monkeypatch.setattr("trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING", True)
    assert lines_of(crowd, 7) == before


async def asks(label: str) -> None:
    async with open_supervisor([Child("counter", counter)]) as supervisor:
        assert await supervisor.ref("counter").ask(Total, label) == 0


def test_a_partial_and_a_function_without_parameters_are_programs_too() -> None:
    assert simulate(partial(asks, "x"), seeds=range(3)).schedules == 3
    assert simulate(lambda: asks("x"), seeds=range(3)).schedules == 3
