"""One run of an actor, from its start to its end: what it has in hand, whether it was told to stop, how it ended."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Never

import trio
from trio.lowlevel import Abort, Task, current_task, reschedule, wait_task_rescheduled

from actors._cell import exchange_of
from actors._context import CURRENT, HANDLING
from actors._errors import ActorDied
from actors._events import Exited, Started
from actors._exits import (
    Crashed,
    Exit,
    Killed,
    Normal,
    Stopped,
    cause_of,
    describe,
    ends_program,
    is_end_of_inbox,
    passes_through,
)
from actors._inbox import NOTHING, Inbox
from actors._reply import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors._cell import Cell
    from actors._children import Children
    from actors._core import Core
    from actors._events import Event
    from actors._reply import Exchange
    from actors._spec import Child


class Life:
    """One run. held: the open questions it has taken. stopping: it was told to stop. done: it has ended.

    siblings: all children of its supervisor, itself included.
    """

    __slots__ = (
        "_ended",
        "_starter",
        "attempt",
        "cell",
        "child",
        "current",
        "done",
        "exit",
        "fatal",
        "held",
        "kill_reason",
        "nested",
        "reads",
        "scope",
        "siblings",
        "since",
        "stop_deadline",
        "stopping",
        "stuck",
        "task",
        "up",
    )

    def __init__(self, cell: Cell, child: Child[Never], attempt: int, siblings: Children) -> None:
        self.cell = cell
        self.child = child
        self.attempt = attempt
        self.siblings = siblings
        self.scope = trio.CancelScope()
        self._starter: Task | None = None
        self.task: Task | None = None
        self.held: dict[Exchange, None] = {}
        self.current: object = NOTHING
        self.since = 0.0
        self.reads = False
        self.up = False
        self.stopping = False
        self.stuck = False
        self.stop_deadline = math.inf
        self.nested: tuple[Core, ...] = ()  # the supervisors that this run has opened
        self.kill_reason: str | None = None
        self.done = False
        self.exit: Exit | None = None
        self.fatal: BaseException | None = None
        self._ended: trio.Event | None = None

    # ------------------------------------------------------------ what the supervisor does with it

    def take_arguments(self) -> None:
        """Questions among the arguments are in its hands from now on: they end with it."""
        for given in self.child.args:
            exchange = given._exchange if isinstance(given, Reply) else exchange_of(given)
            if exchange is not None and exchange.open:
                exchange.move_to(self.cell)
                exchange.take(self)

    async def run(self) -> None:
        """The actor's task. Never raises but for what is Trio's own."""
        CURRENT.set(self)
        if HANDLING.get() is not None:
            HANDLING.set(None)
        self.task = current_task()
        error: BaseException | None = None
        try:
            with self.scope:
                await self.child.run(Inbox(self), *self.child.args)
        except BaseException as raised:
            if passes_through(raised):
                raise
            error = cause_of(raised)
        self._finish(self._exit(error))

    def _exit(self, error: BaseException | None) -> Exit:
        if error is None or (self.stopping and is_end_of_inbox(error)):
            if self.kill_reason is not None:
                return Killed(self.kill_reason)
            return Stopped() if self.stopping else Normal()
        if ends_program(error):
            self.fatal = error
        return Crashed(error)

    def _finish(self, exit: Exit) -> None:
        if not self.up and isinstance(exit, Normal):
            self.come_up()
        self.exit = self.cell.exit = exit
        self.done = True
        self._let_go(exit)
        self.cell.receiver = None
        now = trio.current_time()
        self.publish(Exited(exit, path=self.cell.path, time=now, attempt=self.attempt))
        self.settle()
        if self._ended is not None:
            self._ended.set()
        self.cell.check_gone()
        self.siblings.is_over(self)

    def _let_go(self, exit: Exit) -> None:
        """What is in hand dies with the actor if it did not end in peace; whoever waits for an answer hears of it."""
        error = exit.error if isinstance(exit, Crashed) else None
        why = f"the actor ended before it answered: {describe(exit)}"
        message, self.current = self.current, NOTHING
        if message is not NOTHING and isinstance(exit, Crashed | Killed):
            self.cell.handled -= 1
            self.cell.bury(message, f"the actor ended while it handled this: {describe(exit)}", by=self, cause=error)
        for exchange in tuple(self.held):
            exchange.fail(ActorDied, why, error)
        self.held.clear()

    def stop(self) -> None:
        """Tell it to stop: it receives nothing more. One that does not read its inbox cannot hear that: cancelled."""
        if self.stopping or self.done:
            return
        self.stopping = True
        self.stop_deadline = trio.current_time() + self.child.shutdown
        if self.is_supervisor:
            for core in self.nested:
                core.stop()
        elif not self.reads:
            self.scope.cancel(reason="told to stop")
        elif self.cell.receiver is not None:
            task, self.cell.receiver = self.cell.receiver, None
            reschedule(task)

    def kill(self, reason: str) -> None:
        """Cancel it. Without effect if it has ended; the first reason is the one that is told."""
        if self.done:
            return
        if self.kill_reason is None:
            self.kill_reason = reason
        self.scope.cancel(reason=reason)
        for core in self.nested:
            core.kill(reason)

    @property
    def is_supervisor(self) -> bool:
        """It is a supervisor and nothing else, so that it is told to stop in its own way."""
        return self.child.subtree is not None

    async def wait_settled(self) -> None:
        """Wait until it is up, or has ended before that; for the one who starts it."""
        if not self.up and not self.done:
            self._starter = current_task()
            await wait_task_rescheduled(self._stop_waiting)

    def _stop_waiting(self, _: Callable[[], object]) -> Abort:
        self._starter = None
        return Abort.SUCCEEDED

    async def ends_by(self, deadline: float) -> bool:
        """Whether it has ended by then, in trio time."""
        if self.done:
            return True
        with trio.move_on_at(deadline):
            await self.wait_ended()
        return self.done

    async def wait_ended(self) -> None:
        if self.done:
            return
        if self._ended is None:
            self._ended = trio.Event()
        await self._ended.wait()

    # ------------------------------------------------------------ what its inbox does with it

    def come_up(self) -> None:
        """It is up."""
        if self.up or self.done:
            return
        self.up = True
        now = trio.current_time()
        if self.cell.system.hub.heard:
            self.publish(Started(path=self.cell.path, time=now, attempt=self.attempt))
        self.siblings.is_up(self, now)
        self.settle()

    def settle(self) -> None:
        """Whoever starts it need not wait any longer."""
        if self._starter is not None:
            starter, self._starter = self._starter, None
            reschedule(starter)

    def publish(self, event: Event) -> None:
        self.cell.system.hub.publish(event)


def how(life: Life) -> str:
    """How it ended, in words for people."""
    return "it still runs" if life.exit is None else describe(life.exit)


def why_crashed(life: Life) -> BaseException | None:
    """What it crashed with."""
    return life.exit.error if isinstance(life.exit, Crashed) else None
