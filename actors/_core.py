"""The effects of a supervisor: one task that hears of exits and requests, and does what the table decides.

Exits are messages: a child's task never raises into the nursery, it leaves its Life in `_inputs`. Requests of others
stand in the same queue, so a restart and a request to stop a child are never under way at the same time. Two things
pass the queue: `stop`, which interrupts whatever the task waits for (a start, a stop, a backoff), and `kill`. So every
await of the task may be the last one, and leaves the table in a state from which `_stop_all` goes on.

While the task has nothing to do, whoever asks for a start may do it in its own task, which saves two switches of
tasks: it holds the queue up meanwhile, so that still one thing is done after another.
"""

from __future__ import annotations

import math
from collections import deque
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Never

import trio

from actors._context import CURRENT
from actors._errors import GaveUp
from actors._events import Restarting
from actors._exits import Normal, Stopped
from actors._ladder import longest_stop, see_end, tell_to_stop
from actors._life import Life, how, why_crashed
from actors._requests import Request
from actors._spec import Restart
from actors._table import Replace, State, Table, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from trio.lowlevel import Task

    from actors._cell import Cell, System
    from actors._spec import Child, Subtree
    from actors._table import Decision


class Core:
    """A supervisor at work.

    path: "" for the root. attempt: of the actor that it is, or that has opened it. parallel: a pool. settled: it is up,
    or has ended before that. ending: nothing new begins. failure: what `run` raises at the end.
    """

    def __init__(
        self,
        system: System,
        path: str,
        name: str,
        shape: Subtree,
        random: Random,
        attempt: int,
        *,
        parallel: bool = False,
    ) -> None:
        self.system = system
        self.path = path
        self.name = name
        self.attempt = attempt
        self.parallel = parallel
        self.shape = shape
        self.table = Table(shape.strategy, shape.intensity, shape.auto_shutdown, random)
        self.cells: dict[str, Cell] = {}
        self.settled = trio.Event()
        self.finished = trio.Event()
        self.ending = False
        self.failure: BaseException | None = None
        self.on_own_end: Callable[[], object] = lambda: None
        self._inputs: deque[Life | Request | str] = deque()  # str: the child whose start is to be tried again
        self._news = trio.Event()
        self._idle = self._held = False
        self._awaited: list[Life] = []  # whose start or end it waits for
        self._down_now: dict[Cell, None] = {}  # children whose run has ended, and that may come back
        self._context = copy_context()
        self._work = trio.CancelScope()
        self._aborted: dict[Life, bool] = {}  # starts whose caller left, and whether to forget the child
        self._nursery: trio.Nursery

    # ------------------------------------------------------------ the task

    async def run(self, up: Callable[[], object]) -> None:
        """Start the children, serve until the end, stop them. Raises GaveUp, or what must end the whole program."""
        try:
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as self._nursery:
                    with self._work:
                        await self._start_first()
                        self.settled.set()
                        up()
                        await self._serve()
                    await self._stop_all()
        finally:
            self.ending = True
            for name in tuple(self.table.entries):
                self._down(name)
            self.settled.set()
            self.finished.set()
        if self.failure is not None:
            raise self.failure

    async def _start_first(self) -> None:
        for child in self.shape.children:
            self.add(child)
        for child in self.shape.children:
            life = await self._start(child.name)
            if not life.up:
                self._give_up(f"{child.name!r} did not start: {how(life)}", why_crashed(life))
                await trio.lowlevel.checkpoint()  # where the task is interrupted

    async def _serve(self) -> None:
        while not self.ending:
            if self._held:
                await self._wait_for_news(math.inf)
            elif self._inputs:
                item = self._inputs.popleft()
                await self._take_up(item)
            elif self.table.next_due() <= trio.current_time():
                await self._start_group(self.table.take_due(trio.current_time()))
            else:
                await self._wait_for_news(self.table.next_due())

    async def _wait_for_news(self, until: float) -> None:
        self._news = trio.Event()
        self._idle = True
        if until == math.inf:
            await self._news.wait()
        else:
            with trio.move_on_at(until):
                await self._news.wait()
        self._idle = False

    async def _stop_all(self) -> None:
        self.ending = True
        names = self.table.running()
        for some in [names] if self.parallel else [(name,) for name in names]:
            await self.stop_children(some, patient=False)
        for cell in self.cells.values():
            cell.close("its supervisor has stopped")
        for item in self._inputs:
            if isinstance(item, Request):
                item.done.set()

    # ------------------------------------------------------------ exits

    async def _take_up(self, item: Life | Request | str) -> None:
        if isinstance(item, Life):
            await self._hear(item)
        elif isinstance(item, str):
            await self._try_again(item)
        else:
            await item.run()

    async def _hear(self, life: Life) -> None:
        """A child has ended. One whose place has been taken, or that was stopped, has been dealt with."""
        name = life.child.name
        if name not in self.cells or self.cells[name].life is not life:
            return
        if life in self._aborted:
            self._down(name, forget=self._aborted.pop(life))
            return
        abnormal = not isinstance(life.exit, Normal | Stopped)
        await self._act(self.table.exited(name, life.attempt, abnormal, trio.current_time()), life)

    async def _try_again(self, name: str) -> None:
        decision = self.table.try_again(name, trio.current_time())
        if decision is not Verdict.ABSORBED and (life := self.cells[name].life) is not None:
            await self._act(decision, life)

    async def _act(self, decision: Decision, life: Life) -> None:
        if isinstance(decision, Replace):
            await self._replace(decision, life)
        elif decision is Verdict.TRY_AGAIN:
            self._announce(life, 0.0)
            self._inputs.append(life.child.name)
        elif decision is Verdict.GIVE_UP:
            intensity = self.shape.intensity
            most = f"{intensity.restarts} restarts in {intensity.period:g} s"
            self._give_up(f"more than {most}; the last was {life.child.name!r}, {how(life)}", why_crashed(life))
        elif decision is not Verdict.ABSORBED:
            self.close(life.child.name, f"the actor has ended: {how(life)}")
            if decision is Verdict.SHUT_DOWN:
                self._end(None)

    async def _replace(self, replace: Replace, life: Life) -> None:
        now = trio.current_time()
        if life.up or replace.delay > 0:  # else it has been said when its start failed
            self._announce(life, replace.delay)
        for name in replace.stop:
            await self._stop_to_restart(name)
        self.table.schedule(replace.leader, now + replace.delay)
        if replace.delay == 0:
            await self._start_group(self.table.take(replace.leader, trio.current_time()))

    def _announce(self, life: Life, delay: float) -> None:
        life.publish(Restarting(delay, path=life.cell.path, time=trio.current_time(), attempt=life.attempt))

    async def _start_group(self, names: Iterable[str]) -> None:
        for name in names:
            life = await self._start(name)
            if not life.up:
                await self._act(self.table.start_failed(name, trio.current_time()), life)
                return

    def _give_up(self, why: str, error: BaseException | None) -> None:
        if self.ending:
            return
        failure = GaveUp(why, name=self.name, path=self.path, time=trio.current_time(), attempt=self.attempt)
        failure.__cause__ = error
        self.system.hub.publish(failure)
        self._end(failure)

    def _end(self, failure: BaseException | None) -> None:
        """It ends by itself."""
        if self.failure is None:
            self.failure = failure
        self.on_own_end()
        self.stop()

    # ------------------------------------------------------------ children

    def cell_of(self, name: str) -> Cell:
        """The address of a child, whether there is one or not."""
        return self.system.cell(f"{self.path}/{name}" if self.path else name)

    def add(self, child: Child[Never]) -> Cell:
        """Put a new child at the end of the list; it is not started."""
        cell = self.cell_of(child.name)
        if cell.expected:
            raise ValueError(f"there is an actor {cell.path!r} already, under another supervisor")
        self.table.add(child)
        self.cells[child.name] = cell
        return cell

    def spawn(self, name: str) -> Life:
        """Start a child, without waiting until it is up."""
        cell = self.cells[name]
        self._down_now.pop(cell, None)
        child = self.table.entries[name].child
        cell.attempt = self.table.starting(name)
        cell.expect(child.mailbox)
        cell.life = life = Life(cell, child, cell.attempt, self)
        life.take_arguments()
        if self.parallel:
            self._nursery.start_soon(life.run, name=cell.path)
        else:  # whoever's task this is, the child inherits from its supervisor
            self._context.run(partial(self._nursery.start_soon, life.run, name=cell.path))
        return life

    async def _start(self, name: str) -> Life:
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

    async def _see_end(self, life: Life, *, patient: bool) -> None:
        self._awaited.append(life)
        try:
            for cell in self._down_now:
                cell.strand(self)
            await see_end(life, patient=patient)
        finally:
            self._awaited.remove(life)

    def held_up_by(self, task: Task | None) -> bool:
        """Whether it waits for a child to start or end that waits for this task: that must not wait for another child.

        A start waits for the actor's own task only, an end for all of them.
        """
        life = None if task is None or not self._awaited else task.context.get(CURRENT)
        return life is not None and any(
            (life is awaited or life.cell.path.startswith(f"{awaited.cell.path}/"))
            and (awaited.stopping or (life.task is task and not life.up))
            for awaited in self._awaited
        )

    def is_up(self, life: Life, now: float) -> None:
        if not life.stopping:
            self.table.up(life.child.name, now)

    def is_over(self, life: Life) -> None:
        if life.cell.open:
            self._down_now[life.cell] = None
            if self._awaited:
                life.cell.strand(self)
        if life.fatal is not None:
            self._end(life.fatal)
        elif life.up or life in self._aborted:  # whoever waits for a start sees for himself that it failed
            self.put(life)

    async def stop_children(self, names: Sequence[str], *, patient: bool) -> None:
        """Stop children together, for good: they take no more messages from now on."""
        lives = [life for name in names if (life := self.cells[name].life) is not None]
        for life in lives:
            self._tell_to_stop(life)
            life.cell.refuse("the actor is stopping")
        for life in sorted(lives, key=lambda life: life.stop_deadline):
            await self._see_end(life, patient=patient)
            if life.done:
                self._down(life.child.name)

    async def _stop_to_restart(self, name: str) -> None:
        """Stop a child that will be started again: its messages wait, unless it is TEMPORARY and so forgotten."""
        life = self.cells[name].life
        if life is None or life.child.restart is Restart.TEMPORARY:
            await self.stop_children((name,), patient=True)
            return
        self._tell_to_stop(life)
        await self._see_end(life, patient=True)
        if life in self._aborted:
            self._down(name, forget=self._aborted.pop(life))
        else:
            self.table.down(name)

    def _tell_to_stop(self, life: Life) -> None:
        name = life.child.name
        if self.table.entries[name].state is not State.STOPPING:
            self.table.stopping(name)
        tell_to_stop(life)

    def may_abort(self, life: Life) -> bool:
        """Whether it is starting, or has come up and ended since and will be heard of."""
        cell = self.cells.get(life.child.name)
        if cell is None or cell.life is not life:
            return False
        state = self.table.entries[life.child.name].state
        return state is State.STARTING or (state is State.UP and life.done)

    def abort_start(self, life: Life, *, forget: bool) -> None:
        """Nobody waits for this start any more."""
        self._aborted[life] = forget
        self.table.stopping(life.child.name)
        life.stop()
        life.kill("its start was cancelled")

    def start_failed(self, life: Life, *, forget: bool) -> None:
        """A start that somebody asked for has failed."""
        self._down(life.child.name, forget=forget)

    def _down(self, name: str, *, forget: bool = False) -> None:
        self.table.down(name)
        if forget and name in self.table.entries:
            self.table.remove(name)
        self.close(name, "the actor was stopped")

    def close(self, name: str, why: str) -> None:
        """A child is down and will not come back by itself."""
        self.cells[name].close(why)
        self._down_now.pop(self.cells[name], None)
        if name not in self.table.entries:
            del self.cells[name]

    def call_off(self, name: str) -> None:
        """A child that waits for its restart shall not come back; and so nobody does who would come back with it only."""
        self._down(name)
        for other in self.table.entries:
            if self.cells[other].expected and not self.table.comes_back(other):
                self.close(other, f"its restart was called off, as {name!r} was stopped")

    # ------------------------------------------------------------ what passes the queue, and what enters it

    def stop(self) -> None:
        """Stop everything, in order, and end, whatever is going on."""
        self.ending = True
        self._work.cancel(reason="the supervisor is told to stop")
        if self._held:  # then nobody is awaited but by the one who holds it
            for life in self._awaited:
                life.settle()

    def kill(self, reason: str) -> None:
        """Time is up: cancel every child at once, and end."""
        self.stop()
        for cell in self.cells.values():
            if cell.life is not None:
                cell.life.kill(reason)

    @property
    def is_idle(self) -> bool:
        """Its task waits, and nothing waits for it."""
        return self._idle and not (self._held or self._inputs or self.ending)

    def hold(self) -> None:
        """What comes from now on waits until `release`, but for `stop` and `kill`. For one that is idle."""
        self._held = True

    def release(self) -> None:
        self._held = False
        if self._inputs or self.table.pending:
            self._news.set()

    def put(self, item: Life | Request) -> None:
        self._inputs.append(item)
        self._news.set()

    def withdraw(self, request: Request) -> bool:
        """Take a request back; False if it has begun."""
        if request not in self._inputs:
            return False
        self._inputs.remove(request)
        return True

    def longest_stop(self) -> float:
        """The longest that `stop` can take, in seconds."""
        each = [self.longest_stop_of(entry.child) for entry in self.table.entries.values()]
        return max(each, default=0.0) if self.parallel else math.fsum(each)

    def longest_stop_of(self, child: Child[Never]) -> float:
        """The longest that stopping this child of its can take, in seconds."""
        life = self.cells[child.name].life
        if life is not None and not life.done and life.is_supervisor and child.shutdown == math.inf:
            return math.fsum(core.longest_stop() for core in life.nested)
        return longest_stop(child)
