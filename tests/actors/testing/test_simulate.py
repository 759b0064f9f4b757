"""The simulator finds faults that need a rare schedule, makes them small, and replays them from one line."""

from __future__ import annotations

import pytest
import trio

from actors.testing import Deadlock, Faults, Simulation, SimulationFailed, simulate

SEEDS = 50
"""Within so many seeds each of these faults is found."""


async def lost_update(*, guarded: bool) -> None:
    """Two tasks read, wait and write; the second reads before the first writes."""
    total, lock = 0, trio.Lock()

    async def add() -> None:
        nonlocal total
        seen = total
        await trio.lowlevel.checkpoint()
        total = seen + 1

    async def add_guarded() -> None:
        async with lock:
            await add()

    async def first() -> None:
        await (add_guarded() if guarded else add())

    async def second() -> None:
        for _ in range(4):
            await trio.lowlevel.checkpoint()
        await (add_guarded() if guarded else add())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        nursery.start_soon(second)
    assert total == 2


async def lag_of_six(*, right: bool) -> None:
    """Wrong only if `slow` falls six rounds behind `quick`."""
    value = None

    async def slow() -> None:
        nonlocal value
        await trio.lowlevel.checkpoint()
        value = 1

    async def quick() -> None:
        for _ in range(7):
            await trio.lowlevel.checkpoint()
        while right and value is None:
            await trio.lowlevel.checkpoint()
        assert value == 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow)
        nursery.start_soon(quick)


class Toy:
    """A supervisor of the simplest kind: restarts its one child after a second, until it is stopped."""

    def __init__(self, *, right: bool) -> None:
        self.right = right
        self.stopped = False
        self.running = 0

    async def child(self) -> None:
        self.running += 1
        await trio.sleep(1)
        self.running -= 1

    async def serve(self, stop: trio.Event) -> None:
        while not self.stopped:
            await self.child()
            with trio.move_on_after(1):
                await stop.wait()
            if self.right and self.stopped:
                return
            assert not self.stopped, "it is started again after the stop"


async def stale_restart(simulation: Simulation, *, right: bool) -> None:
    toy, stop = Toy(right=right), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(toy.serve, stop)
        await trio.sleep(simulation.random.choice([0.5, 2.5, 4.5]))
        toy.stopped = True
        stop.set()


async def ask_cycle(*, right: bool) -> None:
    """Two servers that each ask the other one, sometimes at the same time."""
    rooms = [trio.open_memory_channel[trio.MemorySendChannel[int]](0) for _ in range(2)]

    async def server(mine: int) -> None:
        async for answer in rooms[mine][1]:
            await answer.send(mine)

    async def both(mine: int) -> None:
        send, receive = trio.open_memory_channel[int](1)
        async with trio.open_nursery() as nursery:
            if right:
                nursery.start_soon(server, mine)
            await rooms[1 - mine][0].send(send)
            assert await receive.receive() == 1 - mine
            if not right:
                nursery.start_soon(server, mine)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(both, 0)
        nursery.start_soon(both, 1)


FAULTY = {
    "lost update": (lambda: lost_update(guarded=False), AssertionError),
    "lag of six": (lambda: lag_of_six(right=False), AssertionError),
    "stale restart": (lambda simulation: stale_restart(simulation, right=False), AssertionError),
    "ask cycle": (lambda: ask_cycle(right=False), Deadlock),
}
RIGHT = {
    "lost update": lambda: lost_update(guarded=True),
    "lag of six": lambda: lag_of_six(right=True),
    "stale restart": lambda simulation: stale_restart(simulation, right=True),
    "ask cycle": lambda: ask_cycle(right=True),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_found_shrunk_and_replayed(name: str) -> None:
    main, kind = FAULTY[name]
    with pytest.raises(SimulationFailed) as found:
        simulate(main, seeds=range(SEEDS))
    with pytest.raises(SimulationFailed) as again:
        simulate(main, replay=found.value.replay)
    assert again.value.replay == found.value.replay


@pytest.mark.parametrize("name", RIGHT)
def test_a_program_without_the_fault_passes(name: str) -> None:
    assert simulate(RIGHT[name], seeds=range(200)).schedules == 200
