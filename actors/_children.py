"""Effects of a supervisor on its children: starting, waiting for, stopping and forgetting them.

The table (_table.py) decides, this file acts, and the supervisor's task (_loop.py) connects the two. Each effect enters
the new state into the table, so the table and the tasks agree whenever the supervisor's task awaits something.

**The stop ladder.** A child that is to stop climbs these rungs, one after the other, until it has ended:

1. its mailbox takes no more messages, and those that wait become dead letters (unless it is to be restarted);
2. its inbox ends, so that it can finish the message in hand and tidy up (see _incarnation.py);
3. after `shutdown` seconds it is cancelled. With shutdown=0 this is the first rung;
4. `UNWIND` seconds later a `Stuck` event says where it still waits. A supervisor that stops goes on to the next child and
   waits for the stuck one at the very end, when its nursery closes. A supervisor that wants to start a successor waits
   here, because two runs of one actor must never be at work side by side.

**Blocked children.** While the supervisor waits for a child, it restarts nobody. So if that child waits for a sibling
that is down, neither would go on. `blocked_by` finds that out, and the cell of the sibling turns such messages into dead
letters (see _cell.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Final, Never

import trio
from trio.lowlevel import Task

from actors._cell import CURRENT, ActorCell, ActorSystem
from actors._events import Stuck
from actors._incarnation import Incarnation, stack_of
from actors._spec import Restart
from actors._table import State, Table

if TYPE_CHECKING:
    from actors._spec import Child

UNWIND: Final = 1.0
"""Seconds that a cancelled actor has to unwind before it is reported as Stuck."""
START_CANCELLED: Final = "its start was cancelled"


class Children:
    """Children of one supervisor, with their addresses and runs.

    The methods that await (`start`, `stop`, `stop_for_restart`) are called by whoever has the supervisor's turn (see
    _loop.py). At most one of them is under way, except for starts in a pool. `kill` may be called at any moment.

    Example::

        children.add(child)
        incarnation = await children.start("counter")  # it is up, or has ended before that
        await children.stop(["counter"], wait_until_dead=True)
    """

    nursery: trio.Nursery
    """In which the children run. It is set before the first start."""
    context: Context
    """Context variables of the supervisor's task. Set with `nursery`.

    Every run of a child starts with a copy of them, whoever asks for the start, so that a restart finds the same values.
    In a pool a child starts with those of its caller.
    """

    def __init__(
        self, system: ActorSystem, path: str, table: Table, report: Callable[[Incarnation], None], *, parallel: bool
    ) -> None:
        self.parallel = parallel
        """True if this is a pool, whose children are started independently of each other and stopped together."""
        self.cells: dict[str, ActorCell] = {}
        """By name, of the children in the table."""
        self._system = system
        self._path = path
        self._table = table
        self._report = report
        """Called with each run that has ended, unless whoever waits for its start sees the end anyway."""
        self._awaited: list[Incarnation] = []
        """Runs whose start or end is waited for. While there are any, the supervisor restarts nobody (see the module)."""
        self._down: dict[ActorCell, None] = {}
        """Children whose run has ended and who may be restarted."""
        self._aborted: dict[Incarnation, bool] = {}
        """Starts whose caller was cancelled, and that are being undone; and whether to forget the child after that."""

    def cell_of(self, name: str) -> ActorCell:
        """Return the address of a child, whether there is one of that name or not."""
        return self._system.cell(f"{self._path}/{name}" if self._path else name)

    def add(self, child: Child[Never]) -> ActorCell:
        """Append a child to the list, without starting it. Raises ValueError if another supervisor has its address."""
        cell = self.cell_of(child.name)
        if cell.expected:
            raise ValueError(f"there is an actor {cell.path!r} already, under another supervisor")
        self._table.add(child)
        self.cells[child.name] = cell
        return cell

    def is_latest(self, incarnation: Incarnation) -> bool:
        """Return whether this is the present or the last run of a child, so that nothing has taken its place."""
        cell = self.cells.get(incarnation.child.name)
        return cell is not None and cell.incarnation is incarnation

    # ------------------------------------------------------------ starts

    def spawn(self, name: str) -> Incarnation:
        """Start a child, without waiting until it is up.

        Its task has not run when this returns. The address takes messages already; they wait for the first receive.
        """
        cell = self.cells[name]
        self._down.pop(cell, None)
        child = self._table.entries[name].child
        cell.attempt = self._table.starting(name)
        cell.expect(child.mailbox)
        cell.incarnation = incarnation = Incarnation(cell, child, cell.attempt, self)
        incarnation.take_arguments()
        spawn = partial(self.nursery.start_soon, incarnation.run, name=cell.path)
        if self.parallel:
            spawn()
        else:
            self.context.run(spawn)
        return incarnation

    async def start(self, name: str) -> Incarnation:
        """Start a child, and wait until it is up or has ended before that."""
        incarnation = self.spawn(name)
        await self.wait_settled(incarnation)
        return incarnation

    async def wait_settled(self, incarnation: Incarnation) -> None:
        """Wait until the run is up or has ended before that, or the supervisor stops. Nothing else is begun meanwhile."""
        self._awaited.append(incarnation)
        try:
            await incarnation.settled.wait()
        finally:
            self._awaited.remove(incarnation)

    def end_waits_for_starts(self) -> None:
        """Let the tasks in `wait_settled` go on, because the supervisor stops. Their runs are neither up nor ended then."""
        for incarnation in self._awaited:
            incarnation.settled.set()

    def can_abort(self, incarnation: Incarnation) -> bool:
        """Return whether a start can be undone by `abort`.

        The child must be starting, or have come up and ended since, so that its end will be reported.
        """
        if not self.is_latest(incarnation):
            return False
        state = self._table.entries[incarnation.child.name].state
        return state is State.STARTING or (state is State.UP and incarnation.done)

    def abort(self, incarnation: Incarnation, *, forget: bool) -> None:
        """Cancel a start that nobody waits for any more. Its end will be reported.

        Nobody waits for the end: the caller has left, and the supervisor's task has other things to do. Until then the
        child is in the table as stopping, and its name is taken.
        """
        self._aborted[incarnation] = forget
        self._table.stopping(incarnation.child.name)
        incarnation.stop()
        incarnation.kill(START_CANCELLED)

    def mark_aborted_down(self, incarnation: Incarnation) -> bool:
        """Mark the child as down whose aborted start has ended now. Return whether this start was aborted."""
        forget = self._aborted.pop(incarnation, None)
        if forget is None:
            return False
        if self.is_latest(incarnation):  # else it was stopped as well, and forgotten
            self.mark_down(incarnation.child.name, forget=forget)
        return True

    # ------------------------------------------------------------ reports of the runs

    def child_is_up(self, incarnation: Incarnation) -> None:
        """Enter that a run is up. One that is being stopped stays so."""
        if not incarnation.stopping:
            self._table.up(incarnation.child.name, trio.current_time())

    def child_ended(self, incarnation: Incarnation) -> None:
        """Report the end of a run to the supervisor's task, unless somebody waits for its start and sees the failure."""
        if incarnation.cell.open:
            self._down[incarnation.cell] = None
            if self._awaited:
                incarnation.cell.fail_waiters(self)
        if incarnation.fatal is not None or incarnation.up or incarnation in self._aborted:
            self._report(incarnation)

    def blocked_by(self, task: Task | None) -> bool:
        """Return whether the supervisor waits for a child that waits for this task.

        A start waits for the child's own task only, an end for all tasks of the child and of everybody below it. A child that
        starts may be stopping others below it, since one of them did not start: then it waits for all of their tasks.
        """
        incarnation = None if task is None or not self._awaited else task.context.get(CURRENT)
        return incarnation is not None and any(
            (incarnation is awaited or incarnation.cell.path.startswith(f"{awaited.cell.path}/"))
            and (awaited.stopping or incarnation.stopping or (incarnation.task is task and not incarnation.up))
            for awaited in self._awaited
        )

    # ------------------------------------------------------------ ends

    async def stop(self, names: Sequence[str], *, wait_until_dead: bool) -> None:
        """Stop children together, for good. They take no more messages from now on.

        wait_until_dead: wait for those that are stuck, too. Otherwise they stay in the table as stopping.
        """
        incarnations = [run for name in names if (run := self.cells[name].incarnation) is not None]
        for incarnation in incarnations:
            self._begin_stop(incarnation)
            incarnation.cell.close_mailbox("the actor is stopping")
        for incarnation in sorted(incarnations, key=lambda run: run.stop_deadline):
            await self._wait_stopped(incarnation, wait_until_dead=wait_until_dead)
            if incarnation.done:
                self.mark_down(incarnation.child.name)

    async def stop_all(self) -> None:
        """Stop all children in reverse start order, or in a pool together. None will run again.

        Last come the addresses of those that did not run, such as a child that waits for its restart, and of those that are
        stuck: nobody may wait for them any longer.
        """
        names = self._table.running()
        for group in [names] if self.parallel else [(name,) for name in names]:
            await self.stop(group, wait_until_dead=False)
        for cell in self.cells.values():
            cell.close("its supervisor has stopped")

    async def stop_for_restart(self, name: str) -> None:
        """Stop a child that will be started again: its messages wait. A TEMPORARY one is forgotten instead."""
        incarnation = self.cells[name].incarnation
        if incarnation is None or self._table.entries[name].child.restart is Restart.TEMPORARY:
            await self.stop((name,), wait_until_dead=True)
            return
        self._begin_stop(incarnation)
        await self._wait_stopped(incarnation, wait_until_dead=True)
        if not self.mark_aborted_down(incarnation):
            self._table.down(name)

    def kill(self, reason: str) -> None:
        """Cancel all children at once."""
        for cell in self.cells.values():
            if cell.incarnation is not None:
                cell.incarnation.kill(reason)

    def _begin_stop(self, incarnation: Incarnation) -> None:
        """Put a child on the first rung of the ladder. One that is on it already stays where it is."""
        name = incarnation.child.name
        if self._table.entries[name].state is not State.STOPPING:
            self._table.stopping(name)
        if incarnation.child.shutdown > 0:
            incarnation.stop()
        elif not incarnation.stopping:
            incarnation.stopping = True
            incarnation.stop_deadline = trio.current_time()
            incarnation.kill("shutdown=0")

    async def _wait_stopped(self, incarnation: Incarnation, *, wait_until_dead: bool) -> None:
        """Wait for the end of a run. Siblings that are down are unreachable for it and all below it meanwhile."""
        self._awaited.append(incarnation)
        try:
            self._fail_waiters()
            await self._climb_ladder(incarnation, wait_until_dead=wait_until_dead)
        finally:
            self._awaited.remove(incarnation)

    def _fail_waiters(self) -> None:
        """End the waits for actors that are down of tasks that now hold up this supervisor, or one of those above it."""
        for cell in self._down:
            cell.fail_waiters(self)
        above = self.context.get(CURRENT)
        if above is not None:
            above.siblings._fail_waiters()

    async def _climb_ladder(self, incarnation: Incarnation, *, wait_until_dead: bool) -> None:
        """Wait until the run has ended, with rungs 3 and 4 of the stop ladder."""
        if await incarnation.ends_by(incarnation.stop_deadline):
            return
        incarnation.kill(f"did not stop within {incarnation.child.shutdown:g} s")
        if await incarnation.ends_by(incarnation.stop_deadline + UNWIND):
            return
        if not incarnation.stuck:
            incarnation.stuck = True
            incarnation.cell.publish(Stuck, stack_of(incarnation.task))
        if wait_until_dead:
            await incarnation.ended.wait()

    # ------------------------------------------------------------ down for good

    def mark_down(self, name: str, *, forget: bool = False) -> None:
        """Enter that a child is down because it was stopped, or will not be started after all.

        forget: also remove it from the table.
        """
        self._table.down(name)
        if forget and name in self._table.entries:
            self._table.remove(name)
        self.close(name, "the actor was stopped")

    def mark_all_down(self) -> None:
        """Enter that all children are down, for the end of the supervisor."""
        for name in tuple(self._table.entries):
            self.mark_down(name)

    def call_off_restart(self, name: str) -> None:
        """Mark a child as down that waits for its restart, and those as closed that would have come back only with it."""
        self.mark_down(name)
        for other in self._table.entries:
            if self.cells[other].expected and not self._table.comes_back(other):
                self.close(other, f"its restart was called off, as {name!r} was stopped")

    def close(self, name: str, why: str) -> None:
        """Close the address of a child that is down and will not be restarted by itself."""
        self.cells[name].close(why)
        self._down.pop(self.cells[name], None)
        if name not in self._table.entries:
            del self.cells[name]

    # ------------------------------------------------------------ shutdown budget

    def shutdown_budget(self) -> float:
        """Return the longest that stopping all children can take, in seconds."""
        budgets = [self.shutdown_budget_of(entry.child) for entry in self._table.entries.values()]
        return max(budgets, default=0.0) if self.parallel else math.fsum(budgets)

    def shutdown_budget_of(self, child: Child[Never]) -> float:
        """Return the longest that stopping one child can take, in seconds.

        Of a nested supervisor that runs and waits for its children (shutdown=math.inf), that is what it says itself.
        """
        incarnation = self.cells[child.name].incarnation
        if (
            child.subtree is not None
            and child.shutdown == math.inf
            and incarnation is not None
            and not incarnation.done
        ):
            return math.fsum(supervisor.children.shutdown_budget() for supervisor in incarnation.nested)
        return _planned_budget(child)


def _planned_budget(child: Child[Never]) -> float:
    """Return the longest that stopping a child can take by its specification, in seconds."""
    if child.subtree is not None and child.shutdown == math.inf:
        return math.fsum(_planned_budget(below) for below in child.subtree.children)
    return child.shutdown + UNWIND
