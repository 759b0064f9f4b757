"""The other half of a supervisor: one task that hears of exits and requests, and does what the table decides.

Exits are messages: a child's task never raises into the nursery, it leaves its Life in `_inputs`. Requests of others
stand in the same queue, so a restart and a request to stop a child are never done at the same time. Only two things
pass the queue: `stop`, which interrupts whatever the task waits for (the start of a child, a stop, a backoff), and
`kill`. Everything the task awaits may therefore be interrupted, and leaves the table in a state from which
`_shut_down` can go on.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Never

import outcome
import trio

from actors._errors import ActorDied, ActorError, GaveUp
from actors._events import Restarting, Stuck
from actors._exits import Crashed, Normal, Stopped
from actors._life import Life, describe
from actors._spec import check_child, check_children
from actors._stack import stack_of
from actors._table import RUNNING, GiveUp, Replace, ShutDown, State, Table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from random import Random

    from actors._cell import Cell, System
    from actors._spec import AutoShutdown, Child, Intensity, Strategy
    from actors._table import Decision, Entry

UNWIND = 1.0
"""Seconds that a cancelled child has to unwind before it is reported as Stuck and the others are stopped without it."""


class Request:
    """Work that somebody else wants done by the supervisor's task."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self.done = trio.Event()
        self.scope = trio.CancelScope()
        self.result: outcome.Outcome[None] | None = None
        self._work = work

    async def run(self) -> None:
        try:
            with self.scope:
                await self._work()
                self.result = outcome.Value(None)
        except Exception as error:
            self.result = outcome.Error(error)
        finally:
            self.done.set()


class Core:
    """A supervisor at work. parallel: a pool, whose children start on demand and stop together."""

    def __init__(
        self,
        system: System,
        path: str,
        name: str,
        *,
        strategy: Strategy,
        intensity: Intensity,
        auto_shutdown: AutoShutdown,
        random: Random,
        attempt: int = 1,
        parallel: bool = False,
    ) -> None:
        self.system = system
        self.path = path
        self.name = name
        self.random = random
        self.attempt = attempt
        self.parallel = parallel
        self.intensity = intensity
        self.auto_shutdown = auto_shutdown
        self.table = Table(strategy, intensity, auto_shutdown, random)
        self.cells: dict[str, Cell] = {}
        self.ready = trio.Event()
        self.finished = trio.Event()
        self.ending = False
        self.on_own_end: Callable[[], object] = lambda: None  # called when it ends by itself
        self.failure: BaseException | None = None
        self._inputs: deque[Life | Request] = deque()
        self._news = trio.Event()
        self._work = trio.CancelScope()
        self._nursery: trio.Nursery

    # ------------------------------------------------------------ the task

    async def run(self, children: Sequence[Child[Never]], up: Callable[[], object]) -> None:
        """Start the children, serve until the end, stop them. Raises GaveUp, or what must end the program."""
        check_children(children, self.intensity, self.auto_shutdown)
        try:
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as self._nursery:
                    with self._work:
                        if await self._start_first(children):
                            self.ready.set()
                            up()
                            await self._serve()
                    self.ending = True
                    await self._shut_down()
        finally:
            self.ending = True
            self.finished.set()
        if self.failure is not None:
            raise self.failure

    async def _start_first(self, children: Sequence[Child[Never]]) -> bool:
        for child in children:
            self._add(child)
        for child in children:
            life = await self._start(child.name)
            if not life.up:
                self._fail(f"{child.name!r} did not start, {_how(life)}", _error(life))
                return False
        return True

    async def _serve(self) -> None:
        while not self.ending:
            if self._inputs:
                item = self._inputs.popleft()
                await (self._hear(item) if isinstance(item, Life) else item.run())
            elif self.table.next_due() <= trio.current_time():
                await self._start_group(self.table.take_due(trio.current_time()))
            else:
                self._news = trio.Event()
                with trio.move_on_at(self.table.next_due()):
                    await self._news.wait()

    def _put(self, item: Life | Request) -> None:
        self._inputs.append(item)
        self._news.set()

    async def _shut_down(self) -> None:
        names = self.table.running()
        if self.parallel:
            await self._stop(names, final=True)
        else:
            for name in names:
                await self._stop((name,), final=True)
        for cell in self.cells.values():
            cell.close("its supervisor has stopped")
        while self._inputs:
            item = self._inputs.popleft()
            if isinstance(item, Request):
                item.done.set()

    # ------------------------------------------------------------ exits

    async def _hear(self, life: Life) -> None:
        name = life.child.name
        entry = self.table.entries.get(name)
        if entry is not None and entry.attempt == life.attempt and entry.state is State.STOPPING:
            self._forget(name)  # a start in a pool whose caller left
            return
        abnormal = not isinstance(life.exit, Normal | Stopped)
        decision = self.table.exited(name, life.attempt, abnormal, trio.current_time())
        await self._act(decision, life)
        entry = self.table.entries.get(name)
        if entry is None or (entry.state is State.DOWN and not self.ending):
            self._close(name, f"the actor has ended: {_how(life)}")

    async def _act(self, decision: Decision, life: Life) -> None:
        match decision:
            case GiveUp(name):
                self._fail(f"more than {self._credits()}; the last was {name!r}, {_how(life)}", _error(life))
            case ShutDown():
                self._end()
            case Replace(leader, stop, delay):
                await self._replace(leader, stop, delay, at_once=life.up)

    async def _replace(self, leader: str, stop: tuple[str, ...], delay: float, at_once: bool) -> None:
        cell = self.cells[leader]
        now = trio.current_time()
        self.system.hub.publish(Restarting(delay, path=cell.path, time=now, attempt=cell.attempt))
        for name in stop:
            await self._stop((name,), final=False)
        self.table.schedule(leader, now + delay)
        if at_once and delay == 0:  # a start that failed stands behind what has happened meanwhile, as in OTP
            await self._start_group(self.table.take_due(trio.current_time()))

    async def _start_group(self, names: Iterable[str]) -> None:
        for name in names:
            life = await self._start(name)
            if not life.up:
                await self._act(self.table.start_failed(name, trio.current_time()), life)
                return

    def _credits(self) -> str:
        return f"{self.intensity.restarts} restarts in {self.intensity.period:g} s"

    def _fail(self, why: str, error: BaseException | None) -> None:
        gave_up = GaveUp(why, name=self.name, path=self.path, time=trio.current_time(), attempt=self.attempt)
        gave_up.__cause__ = error
        self.system.hub.publish(gave_up)
        self._end(gave_up)

    def _end(self, failure: BaseException | None = None) -> None:
        if self.failure is None:
            self.failure = failure
        self.ending = True
        self._work.cancel()
        self.on_own_end()

    # ------------------------------------------------------------ one child

    def _add(self, child: Child[Never]) -> None:
        cell = self.system.cell(f"{self.path}/{child.name}" if self.path else child.name)
        if cell.life is not None and not cell.life.done:
            raise ValueError(f"an actor {cell.path!r} is there already")
        self.table.add(child)
        self.cells[child.name] = cell

    def _spawn(self, name: str) -> Life:
        cell = self.cells[name]
        child = self.table.entries[name].child
        cell.attempt = self.table.starting(name)
        cell.reopen(child.mailbox)
        cell.life = life = Life(cell, child, cell.attempt, self._is_up, self._is_over)
        self._nursery.start_soon(life.run, name=cell.path)
        return life

    async def _start(self, name: str) -> Life:
        """Start a child and wait until it is up, or has ended before that."""
        life = self._spawn(name)
        await life.settled.wait()
        return life

    def _is_up(self, life: Life) -> None:
        if self.table.entries[life.child.name].state is State.STARTING:
            self.table.up(life.child.name, trio.current_time())

    def _is_over(self, life: Life) -> None:
        if life.fatal is not None:
            self._end(life.fatal)
        if life.up or life.stopping:
            self._put(life)

    async def _stop(self, names: Sequence[str], final: bool) -> None:
        """The stop ladder for children that are stopped together."""
        lives = [life for name in names if (life := self.cells[name].life) is not None]
        for life in lives:
            self._tell_to_stop(life)
        for life in sorted(lives, key=lambda life: life.stop_deadline):
            await self._see_end(life, final)
        for life in lives:
            if life.done:
                self._is_down(life.child.name)

    def _tell_to_stop(self, life: Life) -> None:
        name = life.child.name
        if self.table.entries[name].state is not State.STOPPING:
            self.table.stopping(name)
        if life.child.shutdown == 0:
            life.stopping = True
            life.stop_deadline = trio.current_time()
            life.kill("shutdown=0")
        else:
            life.stop()

    async def _see_end(self, life: Life, final: bool) -> None:
        with trio.move_on_at(life.stop_deadline):
            await life.wait_ended()
        if life.done:
            return
        life.kill(f"did not stop within {life.child.shutdown:g} s")
        with trio.move_on_at(life.stop_deadline + UNWIND):
            await life.wait_ended()
        if not life.done:
            self._report_stuck(life)
            if not final:  # its successor must not run beside it
                await life.wait_ended()

    def _report_stuck(self, life: Life) -> None:
        if life.stuck:
            return
        life.stuck = True
        stack = stack_of(life.task)
        self.system.hub.publish(Stuck(stack, path=life.cell.path, time=trio.current_time(), attempt=life.attempt))

    def _is_down(self, name: str) -> None:
        self.table.down(name)
        if name not in self.table.entries:
            self._close(name, "the actor was stopped")

    def _close(self, name: str, why: str) -> None:
        self.cells[name].close(why)
        if name not in self.table.entries:
            del self.cells[name]

    def _forget(self, name: str) -> None:
        self.table.down(name)
        if name in self.table.entries:
            self.table.remove(name)
        self._close(name, "the actor was stopped")

    # ------------------------------------------------------------ what others want

    def stop(self) -> None:
        """Stop everything and end, whatever is going on."""
        self.ending = True
        self._work.cancel()

    def kill(self, reason: str) -> None:
        """Time is up: cancel every child at once."""
        self.stop()
        for name in self.table.running():
            life = self.cells[name].life
            if life is not None:
                life.kill(reason)

    async def perform(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have it done by the task, in turn. On cancel it is not done, or undone."""
        if self.ending:
            raise self.error("the supervisor is stopping")
        request = Request(work)
        self._put(request)
        try:
            await request.done.wait()
        except trio.Cancelled:
            request.scope.cancel()
            raise
        if request.result is None:
            raise self.error("the supervisor is stopping")
        request.result.unwrap()

    async def start_child(self, child: Child[Never]) -> Cell:
        if self.ending:
            raise self.error("the supervisor is stopping")
        check_child(child, self.intensity, self.auto_shutdown)
        if self.parallel:
            await self._start_new(child)
        else:
            await self.perform(partial(self._start_new, child))
        return self.system.cell(f"{self.path}/{child.name}" if self.path else child.name)

    async def _start_new(self, child: Child[Never]) -> None:
        name = child.name
        if name in self.table.entries:
            raise self.error(f"a child {name!r} is there already ({self.table.entries[name].state.value})")
        self._add(child)
        life = self._spawn(name)
        await self._finish_start(life)
        if not life.up:
            self._forget(name)

            raise self._did_not_start(life)

    async def _finish_start(self, life: Life) -> None:
        try:
            await life.settled.wait()
        except trio.Cancelled:
            if not life.done and not life.up:
                self.table.stopping(life.child.name)
                life.stop()
                life.kill("its start was cancelled")
            raise

    def _did_not_start(self, life: Life) -> ActorDied:
        error = ActorDied(f"did not start, {_how(life)}", target=life.cell.path, time=trio.current_time())
        error.__cause__ = _error(life)
        return error

    async def stop_child(self, name: str) -> None:
        entry = self._entry(name)
        if entry.state in RUNNING:
            await self._stop((name,), final=False)
        elif entry.state is State.WAITING:
            self.table.down(name)
        if name in self.cells:
            self._close(name, "the actor was stopped")

    async def restart_child(self, name: str) -> None:
        entry = self._entry(name)
        if entry.state is not State.DOWN:
            raise self.error(f"{name!r} is not stopped, but {entry.state.value}")
        life = self._spawn(name)
        await self._finish_start(life)
        if not life.up:
            self.table.down(name)
            self._close(name, "the actor did not start")
            raise self._did_not_start(life)

    async def delete_child(self, name: str) -> None:
        entry = self._entry(name)
        if entry.state is not State.DOWN:
            raise self.error(f"{name!r} is {entry.state.value}; stop it before you delete it")
        self.table.remove(name)
        self._close(name, "the actor was deleted")

    def _entry(self, name: str) -> Entry:
        try:
            return self.table.entries[name]
        except KeyError:
            known = ", ".join(self.table.entries) or "none"
            raise self.error(f"there is no child {name!r}; there are: {known}") from None

    def error(self, why: str) -> ActorError:
        return ActorError(why, target=self.path or self.name, time=trio.current_time())

    def budget(self) -> float:
        """The longest that stopping can take, in seconds."""
        each = [self._child_budget(entry.child) for entry in self.table.entries.values()]
        return max(each, default=0.0) if self.parallel else math.fsum(each)

    def _child_budget(self, child: Child[Never]) -> float:
        cell = self.cells.get(child.name)
        life = cell.life if cell is not None else None
        if child.shutdown == math.inf and life is not None and not life.done and life.is_supervisor:
            return math.fsum(core.budget() for core in life.nested)
        return child_budget(child)


def child_budget(child: Child[Never]) -> float:
    """The longest that stopping this child can take, in seconds."""
    nested: Callable[[], float] | None = getattr(child.run, "budget", None)
    if child.shutdown == math.inf and nested is not None:
        return nested()
    return child.shutdown + UNWIND


def _how(life: Life) -> str:
    return "still running" if life.exit is None else describe(life.exit)


def _error(life: Life) -> BaseException | None:
    return life.exit.error if isinstance(life.exit, Crashed) else None
