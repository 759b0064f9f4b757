"""The task of a supervisor: it hears of exits and requests, and does to the children what the table decides.

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
from typing import TYPE_CHECKING

import trio

from actors._children import Children
from actors._errors import GaveUp
from actors._events import Restarting
from actors._exits import Normal, Stopped
from actors._life import Life, how, why_crashed
from actors._requests import Request
from actors._table import Replace, Table, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from actors._cell import System
    from actors._spec import Subtree
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
        self.shape = shape
        self.table = Table(shape.strategy, shape.intensity, shape.auto_shutdown, random)
        self.children = Children(system, path, self.table, self._hear_of, parallel=parallel)
        self.settled = trio.Event()
        self.finished = trio.Event()
        self.ending = False
        self.failure: BaseException | None = None
        self.on_own_end: Callable[[], object] = lambda: None
        self._inputs: deque[Life | Request | str] = deque()  # str: the child whose start is to be tried again
        self._news = trio.Event()
        self._idle = self._held = False
        self._work = trio.CancelScope()

    # ------------------------------------------------------------ the task

    async def run(self, up: Callable[[], object]) -> None:
        """Start the children, serve until the end, stop them. Raises GaveUp, or what must end the whole program."""
        try:
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as self.children.nursery:
                    with self._work:
                        await self._start_first()
                        self.settled.set()
                        up()
                        await self._serve()
                    await self._stop_all()
        finally:
            self.ending = True
            self.children.put_all_down()
            self.settled.set()
            self.finished.set()
        if self.failure is not None:
            raise self.failure

    async def _start_first(self) -> None:
        for child in self.shape.children:
            self.children.add(child)
        for child in self.shape.children:
            life = await self.children.start(child.name)
            if not life.up:
                self._give_up(f"{child.name!r} did not start: {how(life)}", why_crashed(life))
                await trio.lowlevel.checkpoint()  # where the task is interrupted

    async def _serve(self) -> None:
        while not self.ending:
            if self._held:
                await self._wait_for_news(math.inf)
            elif self._inputs:
                await self._take_up(self._inputs.popleft())  # in no variable, which would keep it
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
        await self.children.stop_all()
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
        if self.children.put_down_aborted(life) or not self.children.is_last(life):
            return
        abnormal = not isinstance(life.exit, Normal | Stopped)
        await self._act(self.table.exited(life.child.name, life.attempt, abnormal, trio.current_time()), life)

    async def _try_again(self, name: str) -> None:
        decision = self.table.try_again(name, trio.current_time())
        if decision is not Verdict.ABSORBED and (life := self.children.cells[name].life) is not None:
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
            self.children.close(life.child.name, f"the actor has ended: {how(life)}")
            if decision is Verdict.SHUT_DOWN:
                self._end(None)

    async def _replace(self, replace: Replace, life: Life) -> None:
        now = trio.current_time()
        if life.up or replace.delay > 0:  # else it has been said when its start failed
            self._announce(life, replace.delay)
        for name in replace.stop:
            await self.children.stop_to_restart(name)
        self.table.schedule(replace.leader, now + replace.delay)
        if replace.delay == 0:
            await self._start_group(self.table.take(replace.leader, trio.current_time()))

    def _announce(self, life: Life, delay: float) -> None:
        life.publish(Restarting(delay, path=life.cell.path, time=trio.current_time(), attempt=life.attempt))

    async def _start_group(self, names: Iterable[str]) -> None:
        for name in names:
            life = await self.children.start(name)
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

    # ------------------------------------------------------------ what passes the queue, and what enters it

    def stop(self) -> None:
        """Stop everything, in order, and end, whatever is going on."""
        self.ending = True
        self._work.cancel(reason="the supervisor is told to stop")
        if self._held:  # then nobody is awaited but by the one who holds it
            self.children.wait_no_more()

    def kill(self, reason: str) -> None:
        """Time is up: cancel every child at once, and end."""
        self.stop()
        self.children.kill(reason)

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

    def _hear_of(self, life: Life) -> None:
        """A child has ended: that comes in its turn, unless the whole program has to end for it."""
        if life.fatal is not None:
            self._end(life.fatal)
        else:
            self.put(life)

    def put(self, item: Life | Request) -> None:
        self._inputs.append(item)
        self._news.set()

    def withdraw(self, request: Request) -> bool:
        """Take a request back; False if it has begun."""
        if request not in self._inputs:
            return False
        self._inputs.remove(request)
        return True
