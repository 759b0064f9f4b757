"""The children of a supervisor: their addresses and runs; how they are started, waited for, stopped and put down.

What becomes of each is entered in the table. What an end means is not decided here: it is reported to the supervisor's
task, which does what the table answers (actors/_core.py).

While the supervisor waits for a child to be up or to end, it brings back nobody who is down. So whoever that child would
wait for in vain refuses it: its messages there become dead letters (`held_up_by`, `Cell.strand`).
"""

from __future__ import annotations

import math
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Never

from actors._context import CURRENT
from actors._ladder import longest_stop, see_end, tell_to_stop
from actors._life import Life
from actors._spec import Restart
from actors._table import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import trio
    from trio.lowlevel import Task

    from actors._cell import Cell, System
    from actors._spec import Child
    from actors._table import Table


class Children:
    """The children of one supervisor.

    path: of the supervisor. parallel: a pool. cells: by name, of those in the table. nursery: where they run; it is
    there before the first start. report: takes each end that the supervisor's task has to hear of.
    """

    def __init__(
        self, system: System, path: str, table: Table, report: Callable[[Life], None], *, parallel: bool
    ) -> None:
        self.parallel = parallel
        self.cells: dict[str, Cell] = {}
        self.nursery: trio.Nursery
        self._system = system
        self._path = path
        self._table = table
        self._report = report
        self._awaited: list[Life] = []  # whose start or end is waited for
        self._down_now: dict[Cell, None] = {}  # children whose run has ended, and that may come back
        self._aborted: dict[Life, bool] = {}  # starts whose caller left, and whether to forget the child
        self._context = copy_context()

    def cell_of(self, name: str) -> Cell:
        """The address of a child, whether there is one or not."""
        return self._system.cell(f"{self._path}/{name}" if self._path else name)

    def add(self, child: Child[Never]) -> Cell:
        """Put a new child at the end of the list; it is not started."""
        cell = self.cell_of(child.name)
        if cell.expected:
            raise ValueError(f"there is an actor {cell.path!r} already, under another supervisor")
        self._table.add(child)
        self.cells[child.name] = cell
        return cell

    def is_last(self, life: Life) -> bool:
        """Whether it is the present or the last run of a child, so that nothing has taken its place."""
        cell = self.cells.get(life.child.name)
        return cell is not None and cell.life is life

    # ------------------------------------------------------------ starts

    def spawn(self, name: str) -> Life:
        """Start a child, without waiting until it is up."""
        cell = self.cells[name]
        self._down_now.pop(cell, None)
        child = self._table.entries[name].child
        cell.attempt = self._table.starting(name)
        cell.expect(child.mailbox)
        cell.life = life = Life(cell, child, cell.attempt, self)
        life.take_arguments()
        if self.parallel:
            self.nursery.start_soon(life.run, name=cell.path)
        else:  # whoever's task this is, the child inherits from its supervisor
            self._context.run(partial(self.nursery.start_soon, life.run, name=cell.path))
        return life

    async def start(self, name: str) -> Life:
        """Start a child and wait until it is up, or has ended before that."""
        life = self.spawn(name)
        await self.see_settled(life)
        return life

    async def see_settled(self, life: Life) -> None:
        """Wait until it is up, or has ended before that. For the supervisor's task, or one that holds it."""
        self._awaited.append(life)
        try:
            await life.wait_settled()
        finally:
            self._awaited.remove(life)

    def wait_no_more(self) -> None:
        """Let whoever waits in `see_settled` go on."""
        for life in self._awaited:
            life.settle()

    def may_abort(self, life: Life) -> bool:
        """Whether it is starting, or has come up and ended since and will be heard of."""
        if not self.is_last(life):
            return False
        state = self._table.entries[life.child.name].state
        return state is State.STARTING or (state is State.UP and life.done)

    def abort(self, life: Life, *, forget: bool) -> None:
        """Nobody waits for this start any more."""
        self._aborted[life] = forget
        self._table.stopping(life.child.name)
        life.stop()
        life.kill("its start was cancelled")

    def put_down_aborted(self, life: Life) -> bool:
        """Put a child down whose start was aborted, now that it has ended; False if this one's was not."""
        forget = self._aborted.pop(life, None)
        if forget is not None and self.is_last(life):  # else it was stopped as well, and forgotten
            self.put_down(life.child.name, forget=forget)
        return forget is not None

    # ------------------------------------------------------------ what their runs say, and ask

    def is_up(self, life: Life, now: float) -> None:
        if not life.stopping:
            self._table.up(life.child.name, now)

    def is_over(self, life: Life) -> None:
        if life.cell.open:
            self._down_now[life.cell] = None
            if self._awaited:
                life.cell.strand(self)
        if life.fatal is not None or life.up or life in self._aborted:
            self._report(life)  # of any other one, whoever waits for the start sees for himself that it failed

    def held_up_by(self, task: Task | None) -> bool:
        """Whether a child is waited for that waits for this task: that must not wait for another child.

        A start waits for the actor's own task only, an end for all of them.
        """
        life = None if task is None or not self._awaited else task.context.get(CURRENT)
        return life is not None and any(
            (life is awaited or life.cell.path.startswith(f"{awaited.cell.path}/"))
            and (awaited.stopping or (life.task is task and not life.up))
            for awaited in self._awaited
        )

    # ------------------------------------------------------------ ends

    async def stop(self, names: Sequence[str], *, patient: bool) -> None:
        """Stop children together, for good: they take no more messages from now on."""
        lives = [life for name in names if (life := self.cells[name].life) is not None]
        for life in lives:
            self._tell_to_stop(life)
            life.cell.refuse("the actor is stopping")
        for life in sorted(lives, key=lambda life: life.stop_deadline):
            await self._see_end(life, patient=patient)
            if life.done:
                self.put_down(life.child.name)

    async def stop_all(self) -> None:
        """Stop them in reverse start order, or in a pool together; none will run again."""
        names = self._table.running()
        for some in [names] if self.parallel else [(name,) for name in names]:
            await self.stop(some, patient=False)
        for cell in self.cells.values():
            cell.close("its supervisor has stopped")

    async def stop_to_restart(self, name: str) -> None:
        """Stop a child that will be started again: its messages wait, unless it is TEMPORARY and so forgotten."""
        life = self.cells[name].life
        if life is None or life.child.restart is Restart.TEMPORARY:
            await self.stop((name,), patient=True)
            return
        self._tell_to_stop(life)
        await self._see_end(life, patient=True)
        if not self.put_down_aborted(life):
            self._table.down(name)

    def kill(self, reason: str) -> None:
        """Cancel every child at once."""
        for cell in self.cells.values():
            if cell.life is not None:
                cell.life.kill(reason)

    def _tell_to_stop(self, life: Life) -> None:
        name = life.child.name
        if self._table.entries[name].state is not State.STOPPING:
            self._table.stopping(name)
        tell_to_stop(life)

    async def _see_end(self, life: Life, *, patient: bool) -> None:
        self._awaited.append(life)
        try:
            for cell in self._down_now:
                cell.strand(self)
            await see_end(life, patient=patient)
        finally:
            self._awaited.remove(life)

    # ------------------------------------------------------------ down for good

    def put_down(self, name: str, *, forget: bool = False) -> None:
        """A child has ended because it was told to, or shall not be started after all."""
        self._table.down(name)
        if forget and name in self._table.entries:
            self._table.remove(name)
        self.close(name, "the actor was stopped")

    def put_all_down(self) -> None:
        for name in tuple(self._table.entries):
            self.put_down(name)

    def call_off(self, name: str) -> None:
        """A child that waits for its restart shall not come back; and so nobody does who would come back with it only."""
        self.put_down(name)
        for other in self._table.entries:
            if self.cells[other].expected and not self._table.comes_back(other):
                self.close(other, f"its restart was called off, as {name!r} was stopped")

    def close(self, name: str, why: str) -> None:
        """A child is down and will not come back by itself."""
        self.cells[name].close(why)
        self._down_now.pop(self.cells[name], None)
        if name not in self._table.entries:
            del self.cells[name]

    # ------------------------------------------------------------ how long it takes

    def longest_stop(self) -> float:
        """The longest that stopping them all can take, in seconds."""
        each = [self.longest_stop_of(entry.child) for entry in self._table.entries.values()]
        return max(each, default=0.0) if self.parallel else math.fsum(each)

    def longest_stop_of(self, child: Child[Never]) -> float:
        """The longest that stopping this one can take, in seconds."""
        life = self.cells[child.name].life
        if life is not None and not life.done and life.is_supervisor and child.shutdown == math.inf:
            return math.fsum(core.children.longest_stop() for core in life.nested)
        return longest_stop(child)
