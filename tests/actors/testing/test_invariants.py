"""A tree that contradicts itself is seen, whether or not somebody asks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from actors import Child, Supervisor, open_supervisor, supervisor
from actors._cell import ActorCell
from actors._table import State
from actors.testing import BrokenTree, SimulationFailed, check_tree, simulate
from tests.actors.kit import Add, Crash, Work, counter, idle


def cell_of(root: Supervisor, path: str) -> ActorCell:
    return root._loop.system.cell(path)


async def test_a_sound_tree_passes_at_every_moment() -> None:
    tree = [Child("counter", counter), Child("below", supervisor([Child("inner", idle)]))]
    async with open_supervisor(tree) as root:
        check_tree(root)
        await root.ref("counter").tell(Add(1))
        check_tree(root)
        answer = await root.ref("counter").request(Work, 5.0)
        await trio.sleep(1)
        check_tree(root)
        await root.ref("counter").tell(Crash())
        check_tree(root)
        await root.stop_child("below")
        check_tree(root)
        del answer
    check_tree(root)


def loses_a_message(root: Supervisor) -> None:
    cell_of(root, "counter").sent += 1


def counts_a_message_twice(root: Supervisor) -> None:
    cell_of(root, "below/inner").handled += 1


def keeps_a_message_of_a_closed_mailbox(root: Supervisor) -> None:
    cell = cell_of(root, "counter")
    cell.sending, cell.receiving = trio.open_memory_channel(1)
    cell.sending.send_nowait(Add(1))
    cell.sent, cell.open = 1, False


def thinks_it_is_down(root: Supervisor) -> None:
    root._loop.table.entries["counter"].state = State.DOWN


def misses_an_exit(root: Supervisor) -> None:
    cell_of(root, "counter").incarnation.done = True


def takes_messages_while_down(root: Supervisor) -> None:
    cell_of(root, "counter").expected = False


def forgets_an_address(root: Supervisor) -> None:
    del root._loop.children.cells["counter"]


BREAKS = {
    loses_a_message: r"counter: 1 messages sent, but 0 handled \+ 0 queued \+ 0 dropped \+ 0 dead = 0",
    counts_a_message_twice: "below/inner: 0 messages sent, but 1 handled",
    keeps_a_message_of_a_closed_mailbox: "counter: it takes no messages, and 1 are in its mailbox",
    thinks_it_is_down: "counter: it is down, and still runs",
    misses_an_exit: "counter: it counts as up, but its run has ended, and no exit is on its way to its supervisor",
    takes_messages_while_down: "counter: it is not expected to run again, and takes messages",
    forgets_an_address: r"root has children \['counter', 'below'\] and addresses \['below'\]",
}


@pytest.mark.parametrize("breaks", BREAKS)
def test_a_contradiction_is_named(breaks: Callable[[Supervisor], None]) -> None:
    found = []

    async def main() -> None:
        tree = [Child("counter", counter), Child("below", supervisor([Child("inner", idle)]))]
        async with open_supervisor(tree) as root:
            undo = snapshot(root)
            breaks(root)
            with pytest.raises(BrokenTree, match=BREAKS[breaks]):
                check_tree(root)
            found.append(breaks)
            undo()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert found


def snapshot(root: Supervisor) -> Callable[[], None]:
    """So that a tree that was broken can be stopped nevertheless."""
    counter, inner = cell_of(root, "counter"), cell_of(root, "below/inner")
    mailbox = counter.sending, counter.receiving

    def undo() -> None:
        root._loop.children.cells = {"counter": counter, "below": root._loop.children.cells["below"]}
        root._loop.table.entries["counter"].state = State.UP
        counter.sent = inner.handled = 0
        counter.sending, counter.receiving = mailbox
        counter.open = counter.expected = True
        counter.incarnation.done = False

    return undo


def test_a_simulation_looks_by_itself() -> None:
    async def main() -> None:
        async with open_supervisor([Child("counter", counter)]) as root:
            await root.ref("counter").tell(Add(1))
            cell_of(root, "counter").sent += 1

    with pytest.raises(SimulationFailed, match="BrokenTree: counter: 2 messages sent, but 1 handled"):
        simulate(main)


def test_a_simulation_looks_while_all_tasks_wait() -> None:
    """What is wrong only for a while is seen as well."""

    async def main() -> None:
        async with open_supervisor([Child("counter", counter)]) as root:
            cell_of(root, "counter").sent += 1
            await trio.sleep(1)
            cell_of(root, "counter").sent -= 1

    with pytest.raises(SimulationFailed, match="BrokenTree"):
        simulate(main)
