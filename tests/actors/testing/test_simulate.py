"""The simulator finds faults that need a rare schedule, makes them small, and replays them from one line."""

from __future__ import annotations

from functools import partial

import attrs
import pytest
import trio

from actors.testing import Deadlock, SimulationFailed, simulate

SEEDS = 50
"""Within so many seeds each of these faults is found."""

checkpoint = trio.lowlevel.checkpoint


# ------------------------------------------------------------ four programs, each with a fault and without it


async def lost_update(*, faulty: bool) -> None:
    """Two tasks read, wait and write. Wrong if the second one reads before the first one writes."""
    total, lock = 0, trio.Lock()

    async def add() -> None:
        nonlocal total
        seen = total
        await checkpoint()
        total = seen + 1

    async def add_after(rounds: int) -> None:
        for _ in range(rounds):
            await checkpoint()
        if faulty:
            await add()
        else:
            async with lock:
                await add()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(add_after, 0, name="first")
        nursery.start_soon(add_after, 4, name="second")
    assert total == 2


async def lag_of_six(*, faulty: bool) -> None:
    """`quick` takes it that `slow` is never six rounds behind."""
    written = trio.Event()

    async def slow() -> None:
        await checkpoint()
        written.set()

    async def quick() -> None:
        for _ in range(6):
            await checkpoint()
        if not faulty:
            await written.wait()
        assert written.is_set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow)
        nursery.start_soon(quick)


async def stale_restart(*, faulty: bool) -> None:
    """A toy supervisor that looks whether it was stopped, gets ready, and then starts its child again."""
    stopped, started = False, []

    async def toy() -> None:
        while True:
            started.append(stopped)
            await trio.sleep(1)  # the child runs, and crashes
            await trio.sleep(1)
            if stopped:
                return
            await checkpoint()
            if not faulty and stopped:
                return

    async with trio.open_nursery() as nursery:
        nursery.start_soon(toy)
        await trio.sleep(4)
        stopped = True
    assert started in ([False, False], [False, False, False])


@attrs.frozen
class Question:
    answer: trio.MemorySendChannel[str]
    needs_the_other: bool


async def ask(server: trio.MemorySendChannel[Question], needs_the_other: bool = False) -> str:
    send, receive = trio.open_memory_channel[str](1)
    await server.send(Question(send, needs_the_other))
    return await receive.receive()


async def ask_cycle(*, faulty: bool) -> None:
    """Two servers that may ask each other. Wrong if both do at the same time, and answer nobody meanwhile."""
    to_a, at_a = trio.open_memory_channel[Question](9)
    to_b, at_b = trio.open_memory_channel[Question](9)

    async def serve(mine: trio.MemoryReceiveChannel[Question], other: trio.MemorySendChannel[Question]) -> None:
        async with trio.open_nursery() as nursery:
            async for question in mine:
                if faulty:
                    await handle(question, other)
                else:
                    nursery.start_soon(handle, question, other)

    async def handle(question: Question, other: trio.MemorySendChannel[Question]) -> None:
        await question.answer.send(await ask(other) if question.needs_the_other else "pong")

    async def client(server: trio.MemorySendChannel[Question], rounds: int) -> None:
        for _ in range(rounds):
            await checkpoint()
        assert await ask(server, needs_the_other=True) == "pong"

    async with trio.open_nursery() as servers:
        servers.start_soon(serve, at_a, to_b, name="a")
        servers.start_soon(serve, at_b, to_a, name="b")
        async with trio.open_nursery() as clients:
            clients.start_soon(client, to_a, 0)
            clients.start_soon(client, to_b, 8)
        servers.cancel_scope.cancel()


PROGRAMS = {program.__name__: program for program in (lost_update, lag_of_six, stale_restart, ask_cycle)}


def find(name: str) -> SimulationFailed:
    with pytest.raises(SimulationFailed) as found:
        simulate(partial(PROGRAMS[name], faulty=True), seeds=range(SEEDS))
    return found.value


# ------------------------------------------------------------ found, shrunk, replayed


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_a_perturbation_the_fault_does_not_show(name: str) -> None:
    assert simulate(partial(PROGRAMS[name], faulty=True), replay="0").schedules == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_fault_is_found_and_shrunk_to_one_perturbation_or_two(name: str) -> None:
    error = find(name)
    assert isinstance(error.__cause__, Deadlock if name == "ask_cycle" else AssertionError | ExceptionGroup)
    seed, *perturbations = error.replay.split()
    assert len(perturbations) <= 2
    assert int(seed) < SEEDS


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_printed_line_replays_it(name: str) -> None:
    error = find(name)
    line = next(line for line in str(error).splitlines() if line.startswith("Run it again: "))
    with pytest.raises(SimulationFailed) as again:
        eval(line.removeprefix("Run it again: "), {"simulate": simulate, "main": partial(PROGRAMS[name], faulty=True)})
    assert again.value.replay == error.replay
    assert again.value.lines == error.lines


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_without_the_fault_passes_all_seeds_and_the_replay(name: str) -> None:
    main = partial(PROGRAMS[name], faulty=False)
    assert simulate(main, seeds=range(4 * SEEDS)).schedules == 4 * SEEDS
    simulate(main, replay=find(name).replay)


def test_a_lag_is_shrunk_to_the_rounds_that_it_takes() -> None:
    assert find("lag_of_six").replay.split()[1] == "lag:slow@1*6"


def test_the_error_says_what_when_where_and_how_to_run_it_again() -> None:
    text = str(find("lost_update"))
    assert "AssertionError: assert 1 == 2" in text
    assert "It takes 1 perturbation:" in text
    assert "test_simulate.py:" in text
    assert "simulate(main, replay='" in text
    assert "t=0.000 second @" in text
