"""Task of a supervisor: takes up exits and requests, one after the other, and carries out what the table decides.

**Exits are messages.** A child's task never raises into the supervisor's nursery. Its end is put into the same queue as
the requests of others (start this child, stop that one). The supervisor's task takes up one item after the other, so a
restart and a stop of the same child are never under way at the same time, and the order in which things happened is the
order in which they are answered. A restart that waits for its backoff is not an item: the task sleeps until the item or
the time that comes first.

**Two things do not wait in the queue**: `stop`, which interrupts whatever the task waits for (a start, a stop, a
backoff), and `kill`. So every await of the task may be its last one. `_stop_all` goes on from any state that the table
can be in at such a moment.

**Requests outlive their callers.** A caller that is cancelled leaves a request behind. If the task has not begun with it,
it is withdrawn. A start that has begun is undone, since nobody would know of the child. A stop or delete that has begun
goes on, since half of it could not be taken back.

**A start that finds nothing else under way** is carried out in its caller's task, without the queue. It holds the turn
(`_busy`), as an item does that the supervisor's task has taken up: what arrives meanwhile waits in the queue until the
child is up, so the order of events is the same. Two switches between the tasks are saved, which take longer than all the
rest of a start (the line "start of a child" in docs/performance.md). Only starts are carried out in this way: on cancel
they are undone, and a caller can begin with that itself, while a stop has to go on without its caller.

**In a pool** the starts are independent of each other, so each caller starts its child in its own task, whatever else is
under way, and waits for nothing but that. Everything else in a pool works as above.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextvars import copy_context
from functools import partial
from random import Random
from typing import Final, Never, TypeAlias

import outcome
import trio

from actors._cell import ActorCell, ActorSystem, until
from actors._children import START_CANCELLED, Children
from actors._events import ActorDied, ActorError, Crashed, GaveUp, Killed, Restarting
from actors._incarnation import Incarnation
from actors._signal import Signal
from actors._spec import Child, Subtree
from actors._table import RUNNING, ChildEntry, Decision, Replace, State, Table, Verdict

Work: TypeAlias = Callable[[], Awaitable[Incarnation | None]]
"""Body of a request. Returns the run that it has started, if it is a start."""
Undo: TypeAlias = Callable[[Incarnation], Awaitable[None]]
"""Takes back a start that has succeeded for a caller who has left."""
STOPPING: Final = "the supervisor is stopping"


class Request:
    """Work that the supervisor's task is asked to do, and that a caller waits for.

    Three things can become of it: it is done (`result` is a value), it is refused or fails (an error), or the supervisor
    ends before it is carried out (None). `done` is set in each case, so no caller waits for ever.

    Example::

        request = Request(partial(loop._stop, "counter"))
        loop._put(request)
        await request.done.wait()
    """

    def __init__(self, work: Work, undo: Undo | None = None) -> None:
        self.scope = trio.CancelScope()
        """Around the work. Cancelled when the caller has left and the work can be left undone."""
        self.done = trio.Event()
        self.result: outcome.Outcome[Incarnation | None] | None = None
        """None when the supervisor has ended before it began."""
        self._work = work
        self._undo = undo
        """Takes back what a start has started."""

    async def run(self) -> None:
        """Do the work in the supervisor's task, and keep its result. Raises nothing but Cancelled, when the supervisor is to stop."""
        try:
            with self.scope:
                if not self.scope.cancel_called:
                    self.result = outcome.Value(await self._work())
            if self.scope.cancel_called:
                await self.undo()
        except Exception as error:
            self.result = outcome.Error(error)
        finally:
            self.done.set()

    async def undo(self) -> None:
        """Take back what was started, because its caller has left. In the supervisor's task."""
        if self._undo is not None and isinstance(self.result, outcome.Value) and self.result.value is not None:
            await self._undo(self.result.value)


class SupervisorLoop:
    """A running supervisor: its table, its children and its queue.

    Example::

        loop = SupervisorLoop(system, "", "root", Subtree(...), random, attempt=1)
        nursery.start_soon(supervisor_task, loop)
        cell = await loop.start_child(Child("counter", counter))
        loop.stop()

    `Supervisor` is the handle that programs get; nothing outside the package sees the loop.
    """

    def __init__(
        self,
        system: ActorSystem,
        path: str,
        name: str,
        spec: Subtree,
        random: Random,
        attempt: int,
        *,
        parallel: bool = False,
    ) -> None:
        self.system = system
        self.path = path
        """Path of the actor that it is or that has opened it; "" for the root."""
        self.name = name
        self.attempt = attempt
        """Number of the run of that actor."""
        self.spec = spec
        self.table = Table(spec.strategy, spec.intensity, spec.auto_shutdown, random)
        self.children = Children(system, path, self.table, self._child_ended, parallel=parallel)
        self.settled = trio.Event()
        """Set when all first children are up, or when it has ended before that."""
        self.finished = trio.Event()
        """Set when all children have ended and nothing below runs any more."""
        self.ending = False
        """True if it stops; nothing new begins any more."""
        self.failure: BaseException | None = None
        """Error that `run` raises at the end."""
        self.on_own_end: Callable[[], object] = lambda: None
        """Called when it ends by itself: it has given up, or significant children have ended."""
        self.queue: deque[Incarnation | Request | str] = deque()
        """Runs that have ended, requests, and names of children whose start has to be tried again."""
        self._busy = True
        """True if something is being carried out: the first starts, an item, a restart, or a start in its caller's task."""
        self._wakeup = Signal()
        """Given when there may be something to take up."""
        self._work = trio.CancelScope()
        """Around everything that the task does before it stops its children. `stop` cancels it."""

    # ------------------------------------------------------------ the task

    async def run(self, up: Callable[[], object]) -> None:
        """Start the children, call `up`, serve until the end, and stop the children.

        Raises GaveUp, or an error of a child that has to end the whole program. The task is shielded: cancelling it from
        outside has no effect, so that the children are always stopped in order. Its owner calls `stop` instead.
        """
        try:
            with trio.CancelScope(shield=True):
                self.children.context = copy_context()
                async with trio.open_nursery() as self.children.nursery:
                    with self._work:
                        await self._start_first()
                        self.settled.set()
                        up()
                        await self._serve()
                    await self._stop_all()
        finally:
            self.ending = True
            self.children.mark_all_down()
            self.settled.set()
            self.finished.set()
        if self.failure is not None:
            raise self.failure

    async def _start_first(self) -> None:
        """Start the children of the specification in order. Give up at the first that does not come up."""
        for child in self.spec.children:
            self.children.add(child)
        for child in self.spec.children:
            incarnation = await self.children.start(child.name)
            if not incarnation.up:
                self._give_up(f"{child.name!r} did not start: {incarnation.describe_end()}", incarnation.crash)
                await trio.lowlevel.checkpoint()  # giving up has cancelled this scope, so this raises Cancelled

    async def _serve(self) -> None:
        """Take up items of the queue and restarts that are due, until the supervisor ends."""
        self._busy = False
        while not self.ending:
            # Not busy: a start in its caller's task may be under way, and nothing else is taken up beside it.
            if not self._busy and (self.queue or self.table.next_due() <= trio.current_time()):
                self._busy = True
                await self._take_next()
                self._busy = False
            else:
                with until(math.inf if self._busy else self.table.next_due()):
                    await self._wakeup.wait()

    async def _take_next(self) -> None:
        """Take up the oldest item, or else the restart that is due."""
        # Exits before restarts that are due: an exit may change which restarts are still to come.
        if self.queue:
            await self._take_up(self.queue.popleft())  # passed on directly: a variable would keep it alive
        else:
            await self._start_group(self.table.take_due(trio.current_time()))

    async def _stop_all(self) -> None:
        """Stop the children, and refuse the requests that still wait."""
        self.ending = True
        await self.children.stop_all()
        for item in self.queue:
            if isinstance(item, Request):
                item.done.set()

    def _put(self, item: Incarnation | Request) -> None:
        self.queue.append(item)
        self._wakeup.notify()

    async def _take_up(self, item: Incarnation | Request | str) -> None:
        if isinstance(item, Incarnation):
            await self._handle_exit(item)
        elif isinstance(item, Request):
            await item.run()
        else:
            await self._retry_start(item)

    # ------------------------------------------------------------ exits

    def _child_ended(self, incarnation: Incarnation) -> None:
        """Queue the end of a child, or end at once if the whole program has to end because of it."""
        if incarnation.fatal is not None:
            self._end(incarnation.fatal)
        else:
            self._put(incarnation)

    async def _handle_exit(self, incarnation: Incarnation) -> None:
        """Carry out what the end of a child means. A child that was stopped, or whose place is taken, is settled."""
        if self.children.mark_aborted_down(incarnation) or not self.children.is_latest(incarnation):
            return
        name = incarnation.child.name
        decision = self.table.exited(name, incarnation.attempt, _is_abnormal(incarnation), trio.current_time())
        await self._carry_out(decision, incarnation)

    async def _retry_start(self, name: str) -> None:
        """Carry out another attempt of a start that has failed in a restart, unless the child was stopped meanwhile."""
        decision = self.table.try_again(name, trio.current_time())
        if decision is not Verdict.ABSORBED and (incarnation := self.children.cells[name].incarnation) is not None:
            await self._carry_out(decision, incarnation)

    async def _carry_out(self, decision: Decision, incarnation: Incarnation) -> None:
        """Do what the table has decided about the end of this run."""
        name = incarnation.child.name
        if isinstance(decision, Replace):
            await self._replace(decision, incarnation)
        elif decision is Verdict.TRY_AGAIN:
            incarnation.cell.publish(Restarting, 0.0)
            # Behind what waits already, so requests get a turn between the attempts of a start that fails again and
            # again.
            self.queue.append(name)
        elif decision is Verdict.GIVE_UP:
            limit = f"{self.spec.intensity.restarts} restarts in {self.spec.intensity.period:g} s"
            self._give_up(f"more than {limit}; the last was {name!r}, {incarnation.describe_end()}", incarnation.crash)
        elif decision is not Verdict.ABSORBED:
            self.children.close(name, f"the actor has ended: {incarnation.describe_end()}")
            if decision is Verdict.SHUT_DOWN:
                self._end(None)

    async def _replace(self, replace: Replace, incarnation: Incarnation) -> None:
        """Stop the group of a child that has ended, and start it, at once or when its backoff is over.

        The restart is entered into the table before the group is started, so that a stop in between finds it there.
        """
        now = trio.current_time()
        if incarnation.up or replace.delay > 0:  # else the event was published when its start had failed
            incarnation.cell.publish(Restarting, replace.delay)
        for name in replace.stop:
            await self.children.stop_for_restart(name)
        self.table.schedule(replace.leader, now + replace.delay)
        if replace.delay == 0:
            await self._start_group(self.table.take(replace.leader, trio.current_time()))

    async def _start_group(self, names: Iterable[str]) -> None:
        """Start children in order. The first that does not come up ends the restart; the table says what follows."""
        for name in names:
            incarnation = await self.children.start(name)
            if not incarnation.up:
                await self._carry_out(self.table.start_failed(name, trio.current_time()), incarnation)
                return

    # ------------------------------------------------------------ ends

    def _give_up(self, why: str, error: BaseException | None) -> None:
        if self.ending:
            return
        failure = GaveUp(why, name=self.name, path=self.path, attempt=self.attempt)
        failure.__cause__ = error
        self.system.hub.publish(failure)
        self._end(failure)

    def _end(self, failure: BaseException | None) -> None:
        """End by itself. Of several failures, the first is raised."""
        if self.failure is None:
            self.failure = failure
        self.on_own_end()
        self.stop()

    def stop(self) -> None:
        """Stop all children in order, and end, whatever is going on.

        A start in its caller's task is not inside the scope that is cancelled. Its caller is woken, and gets ActorError.
        """
        self.ending = True
        self._work.cancel(reason="the supervisor is asked to stop")
        self.children.end_waits_for_starts()

    def kill(self, reason: str) -> None:
        """Cancel all children at once, and end."""
        self.stop()
        self.children.kill(reason)

    # ------------------------------------------------------------ requests, in the callers' tasks

    async def start_child(self, child: Child[Never]) -> ActorCell:
        """Add a child and start it. Return its address. On cancel the child is not there."""
        self.spec.check_also(child)
        self._refuse_if_ending()
        if self.children.parallel:
            return (await self._start_new(child)).cell
        # Nothing waits, so the caller may have the turn: a start costs no switch to the supervisor's task and back.
        if not self._busy and not self.queue:
            return (await self._start_at_once(child)).cell
        await self._perform(partial(self._start_new, child), partial(self._take_back, forget=True))
        return self.children.cell_of(child.name)

    async def _start_at_once(self, child: Child[Never]) -> Incarnation:
        """Start a new child in the caller's task, while the supervisor's task takes up nothing else.

        A caller that is cancelled already starts nothing. After that check there is no await before the turn is taken, so
        nothing can have begun in between. When the start is over, the supervisor's task is woken only if there is something
        for it to take up: an item that has come meanwhile, or a restart that may have fallen due.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._busy = True
        try:
            return await self._start_new(child)
        finally:
            self._busy = False
            if self.queue or self.table.pending:
                self._wakeup.notify()

    async def stop_child(self, name: str) -> None:
        """Stop a child. On cancel, a stop that has begun goes on."""
        await self._perform(partial(self._stop, name))

    async def restart_child(self, name: str) -> None:
        """Start a child that is down. On cancel it is down."""
        await self._perform(partial(self._restart, name), partial(self._take_back, forget=False))

    async def delete_child(self, name: str) -> None:
        """Forget a child that is down."""
        await self._perform(partial(self._delete, name))

    async def _perform(self, work: Work, undo: Undo | None = None) -> None:
        """Queue a request and wait until it is done. On cancel, see the module: withdraw it, undo it, or let it go on."""
        self._refuse_if_ending()
        request = Request(work, undo)
        self._put(request)
        try:
            await request.done.wait()
        except trio.Cancelled:
            if request.done.is_set():  # it was done at the very moment of the cancel
                self._put(Request(request.undo))
            elif undo is not None or self._withdraw(request):
                request.scope.cancel(reason="nobody waits for it")
            raise
        if request.result is None:
            raise self._error(STOPPING)
        request.result.unwrap()

    def _withdraw(self, request: Request) -> bool:
        """Remove a request from the queue. Return False if the task has begun with it."""
        if request not in self.queue:
            return False
        self.queue.remove(request)
        return True

    # ------------------------------------------------------------ requests, in the supervisor's task

    async def _start_new(self, child: Child[Never]) -> Incarnation:
        entry = self.table.entries.get(child.name)
        if entry is not None:
            raise self._error(f"a child {child.name!r} is there already ({entry.state.value})")
        self.children.add(child)
        return await self._start(child.name, new=True)

    async def _restart(self, name: str) -> Incarnation:
        """Start a child again that is down."""
        entry = self._entry(name)
        if entry.state is not State.DOWN:
            raise self._error(f"{name!r} is {entry.state.value}; only a child that is down can be restarted")
        return await self._start(name, new=False)

    async def _start(self, name: str, *, new: bool) -> Incarnation:
        """Start a child and wait until it is up. Raises ActorDied if it does not come up; a new one is then forgotten.

        In a pool this runs in the caller's task.
        """
        incarnation = self.children.spawn(name)
        try:
            if self.children.parallel:
                await incarnation.settled.wait()
            else:
                await self.children.wait_settled(incarnation)
        except trio.Cancelled:
            if not self.ending:
                self._abandon_start(incarnation, forget=new)
            raise
        if incarnation.up:
            return incarnation
        if self.ending and not incarnation.done:
            raise self._error(STOPPING)
        if not self.ending:
            self.children.mark_down(name, forget=new)
        error = ActorDied(f"did not start, {incarnation.describe_end()}", target=incarnation.cell.path)
        error.__cause__ = incarnation.crash
        raise error

    def _abandon_start(self, incarnation: Incarnation, *, forget: bool) -> None:
        """Undo a start whose caller has left. Meanwhile the child may have come up, failed, or been stopped."""
        if incarnation.done and not incarnation.up:
            self.children.mark_down(incarnation.child.name, forget=forget)
        elif self.children.can_abort(incarnation):
            self.children.abort(incarnation, forget=forget)
        else:
            self._put(Request(partial(self._take_back, incarnation, forget=forget)))

    async def _take_back(self, incarnation: Incarnation, *, forget: bool) -> None:
        """Stop a child at once whose starter has left, or the run that has taken its place since."""
        name = incarnation.child.name
        entry = self.table.entries.get(name)
        if entry is None or entry.child is not incarnation.child:
            return
        latest = self.children.cells[name].incarnation
        if entry.state in RUNNING and latest is not None:
            latest.stop()
            latest.kill(START_CANCELLED)
            await self.children.stop((name,), wait_until_dead=True)
        if name in self.table.entries:
            self.children.mark_down(name, forget=forget)

    async def _stop(self, name: str) -> None:
        if self._entry(name).state in RUNNING:
            await self.children.stop((name,), wait_until_dead=True)
        else:
            self.children.call_off_restart(name)

    async def _delete(self, name: str) -> None:
        entry = self._entry(name)
        if entry.state is not State.DOWN:
            raise self._error(f"{name!r} is {entry.state.value}; stop it before you delete it")
        self.table.remove(name)
        self.children.close(name, "the actor was deleted")

    # ------------------------------------------------------------ refusals

    def _refuse_if_ending(self) -> None:
        if self.ending:
            raise self._error(STOPPING)

    def _entry(self, name: str) -> ChildEntry:
        try:
            return self.table.entries[name]
        except KeyError:
            known = ", ".join(self.table.entries) or "none"
            raise self._error(f"there is no child {name!r}; there are: {known}") from None

    def _error(self, why: str) -> ActorError:
        return ActorError(why, target=self.path or self.name)


def _is_abnormal(incarnation: Incarnation) -> bool:
    """Return whether a TRANSIENT child is restarted after this end.

    A nested supervisor that has given up is not: it has ended with the reason `shutdown`, as OTP says, because what it
    could do about its children was done. A supervisor that crashes otherwise is.
    """
    if incarnation.is_supervisor and isinstance(incarnation.crash, GaveUp):
        return False
    return isinstance(incarnation.exit, Crashed | Killed)
