"""Public face of supervision: open a tree, nest supervisors, and use one that runs.

A supervisor's task runs in one of two places:

* `open_supervisor` and `open_pool` run it in a nursery of their own, beside the block. The block is cancelled when the
  supervisor ends by itself, and the supervisor is stopped when the block is left, for whatever reason;
* `supervisor(...)` is the function of an actor and runs it in the actor's own task.

**Leaving the block.** A supervisor's task is shielded, so a cancel from outside reaches the block and not the children. The
block ends first, unless the supervisor ends by itself; then the supervisor is stopped, and its end is waited for under a
shield. So the code in the block can use its actors up to its last line, and no task of an actor outlives it. The wait has a limit: the
shutdown times of the children (`shutdown_budget`), except for an actor that resists being cancelled.

**Which error is raised.** When a supervisor gives up, the block is cancelled, so that two errors arrive: GaveUp and the
block's own, which is mostly Cancelled or an ActorDied that follows from it. GaveUp is raised, with a note on the other.

**Pictures of a tree** (`ActorInfo`) are plain values, read from the outside, from the cells, runs and tables. No actor has
to answer anything, so a picture is also right for an actor that is stuck. All its values belong to the same moment,
because nothing is awaited while it is made. Times are given as seconds from that moment, so that a reader in another
process needs no clock of Trio's.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Never, TypeVar, cast

import attrs
import trio

from actors._cell import CURRENT, ActorSystem
from actors._events import Events, cause_of, ends_program, passes_through
from actors._incarnation import NOTHING, Incarnation, location_of
from actors._loop import SupervisorLoop
from actors._ref import Ref
from actors._spec import AutoShutdown, Child, Intensity, Strategy, Subtree
from actors._table import State

if TYPE_CHECKING:
    from actors._incarnation import Inbox
    from actors._table import ChildEntry

M = TypeVar("M")


class Supervisor:
    """A running supervisor, as the program sees it. Every method may be called from any task of the same Trio run.

    ::

        async with open_supervisor([Child("counter", counter)]) as supervisor:
            await supervisor.ref("counter").tell(Add(2))
            await supervisor.start_child(Child("logger", logger))

    Names are those of its own children. Paths may go further down ("lines/first"). Requests are carried out one after the
    other, in the order in which they came, and between them the exits of children.
    """

    def __init__(self, loop: SupervisorLoop) -> None:
        self._loop = loop

    @property
    def name(self) -> str:
        """Name for people: that of the child, or the one given to `open_supervisor`; "root" if there is none."""
        return self._loop.name

    @property
    def path(self) -> str:
        """Names from the root's child down, joined by "/"; "" for the root."""
        return self._loop.path

    def ref(self, path: str) -> Ref[M]:
        """Return the address of an actor below, whether it exists yet or not."""
        return Ref(self._loop.children.cell_of(path))

    async def start_child(self, child: Child[M]) -> Ref[M]:
        """Start one more child, as the last in start order. Wait until it is up, and return its address.

        Raises ActorDied if it does not come up (it is then forgotten), ActorError if its name is taken or the supervisor
        is stopping, ValueError if it does not fit under this supervisor. On cancel the child is not there.
        """
        return Ref(await self._loop.start_child(cast("Child[Never]", child)))

    async def stop_child(self, name: str) -> None:
        """Stop a child and keep its spec; a TEMPORARY one is forgotten. Without effect if it is down.

        Raises ActorError if there is no such child. On cancel, a stop that has begun goes on.
        """
        await self._loop.stop_child(name)

    async def restart_child(self, name: str) -> None:
        """Start a child that is down. Raises ActorError if it is not down, ActorDied if it does not come up.

        It keeps its address, its place in the start order, and the count of its runs. On cancel it is down.
        """
        await self._loop.restart_child(name)

    async def delete_child(self, name: str) -> None:
        """Forget the spec of a child that is down. Raises ActorError if it is not down.

        Its name is free then. Refs to it stay valid: a later child of that name has the same address.
        """
        await self._loop.delete_child(name)

    def children(self) -> tuple[ActorInfo, ...]:
        """Return the present states of its children, in start order."""
        return describe_children(self._loop)

    def tree(self) -> ActorInfo:
        """Return the present state of everything below, without the help of any actor."""
        return describe_supervisor(self._loop)

    def events(self, capacity: int = 1000) -> Events:
        """Return a stream of what happens from now on in the whole tree that this supervisor belongs to.

        capacity: events that the stream keeps for a slow reader.
        """
        return self._loop.system.hub.subscribe(Events(capacity))

    def shutdown_budget(self) -> float:
        """Return the longest that `stop` can take, in seconds, unless somebody resists being cancelled."""
        return self._loop.children.shutdown_budget()

    async def stop(self) -> None:
        """Stop all children, the last started first, and wait until they have ended.

        A task of an actor below only asks for it and does not wait, since it is waited for itself. On cancel the children
        are stopped all the same.
        """
        self._loop.stop()
        if self._is_called_from_below():
            await trio.lowlevel.checkpoint()
        else:
            await self._loop.finished.wait()

    def kill(self, reason: str) -> None:
        """Cancel all children at once, whatever is left of their shutdown times, and end.

        Returns immediately; `wait_stopped` and the end of the block wait until everything below has unwound. Use it when
        a deadline of the whole program is near. Without effect on children that have ended.

        reason: in words; it is a part of their exits.
        """
        self._loop.kill(reason)

    async def wait_stopped(self) -> None:
        """Wait until everything has been stopped, for whatever reason."""
        await self._loop.finished.wait()

    def _is_called_from_below(self) -> bool:
        """Return whether the current task belongs to an actor that this supervisor, or one below it, has to stop."""
        caller = CURRENT.get()
        if caller is None or caller.cell.system is not self._loop.system:
            return False
        return not self.path or caller.cell.path.startswith(f"{self.path}/")


def open_supervisor(
    children: Sequence[Child[Never]] = (),
    *,
    strategy: Strategy = Strategy.ONE_FOR_ONE,
    intensity: Intensity = Intensity(),
    auto_shutdown: AutoShutdown = AutoShutdown.NEVER,
    name: str | None = None,
    random: Random | None = None,
) -> AbstractAsyncContextManager[Supervisor]:
    """Start the children in order, each when the one before is up; stop them in reverse order when the block is left.

    Inside an actor the children stand below that actor in its tree (below `name`, if one is given); elsewhere this is the
    root of a new tree.

    random: source of the jitter of backoffs. If none is given, the same sequence is used in every run.

    Raises GaveUp when children fail too often or a first start fails: the block is cancelled, and the last failure is
    the cause. When significant children end the supervisor, the block is cancelled and left without an error. When the
    block is cancelled from outside, the children are still stopped in order, within `shutdown_budget()` seconds.
    """
    return _host(Subtree(children, strategy, intensity, auto_shutdown), name, random, parallel=False)


def open_pool(
    *,
    intensity: Intensity = Intensity(),
    auto_shutdown: AutoShutdown = AutoShutdown.NEVER,
    name: str | None = None,
    random: Random | None = None,
) -> AbstractAsyncContextManager[Supervisor]:
    """Open a supervisor (one for one) whose children are started on demand, independently, and stopped all at once.

    For many children that have nothing to do with each other, such as one for each connection or task. Otherwise as
    `open_supervisor`.
    """
    return _host(Subtree((), Strategy.ONE_FOR_ONE, intensity, auto_shutdown), name, random, parallel=True)


@asynccontextmanager
async def _host(
    spec: Subtree, name: str | None, random: Random | None, *, parallel: bool
) -> AsyncGenerator[Supervisor, None]:
    """Run a supervisor's task beside the block. See the module for the order in which the two end."""
    if name is not None and (not isinstance(name, str) or not name or "/" in name):
        raise ValueError(f'name is {name!r}; it must be a non-empty string without "/", or None')
    parent = CURRENT.get()
    if parent is not None and parent.done:  # this task has outlived the actor that started it
        parent = None
    loop = _make_loop(spec, parent, name, random, parallel)
    block = trio.CancelScope()
    loop.on_own_end = lambda: block.cancel(reason="the supervisor has ended")
    error: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor_task, loop, name=f"supervisor {loop.path or loop.name}")
        try:
            await loop.settled.wait()
            if loop.failure is None:
                with block:
                    yield Supervisor(loop)
        except BaseException as raised:
            error = raised
        loop.stop()
        with trio.CancelScope(shield=True):  # its time is limited by the shutdown of each child
            await loop.finished.wait()
    if parent is None:
        loop.system.hub.close()
    else:
        parent.nested = tuple(other for other in parent.nested if other is not loop)
    _raise_failure(loop.failure, error)


def _make_loop(
    spec: Subtree, parent: Incarnation | None, name: str | None, random: Random | None, parallel: bool
) -> SupervisorLoop:
    """Return a supervisor that has not begun: the root of a new tree, or one below the run of an actor.

    parent: that run. The new supervisor is among its `nested` ones from now on, so that stopping the actor reaches it.
    """
    if parent is None:
        system = ActorSystem(trio.lowlevel.current_trio_token(), random)
        return SupervisorLoop(system, "", name or "root", spec, random or system.random_for(""), 1, parallel=parallel)
    system, path = parent.cell.system, f"{parent.cell.path}/{name}" if name else parent.cell.path
    random = random or system.random_for(path)
    loop = SupervisorLoop(system, path, name or parent.child.name, spec, random, parent.attempt, parallel=parallel)
    parent.nested += (loop,)
    return loop


async def supervisor_task(loop: SupervisorLoop) -> None:
    """Run a supervisor, and keep its failure for `_host` to raise. The body of the task beside the block."""
    try:
        await loop.run(up=lambda: None)
    except BaseException as error:
        if passes_through(error):
            raise
        loop.failure = cause_of(error)
        loop.on_own_end()


def _raise_failure(failure: BaseException | None, error: BaseException | None) -> None:
    """Raise the supervisor's failure or the error of the block, if there is any.

    Of both, the supervisor's is raised, since the block's is a consequence as a rule; but not if the block was ended by
    Ctrl-C or sys.exit.
    """
    if error is not None and (failure is None or ends_program(cause_of(error))):
        raise error
    if failure is None:
        return
    if error is not None and not isinstance(error, trio.Cancelled):
        failure.add_note(f"Meanwhile the block under the supervisor raised {error!r}.")
    raise failure


class supervisor(Subtree):
    """A supervisor as the `run` of a Child, so that trees nest: `Child("lines", supervisor([...]))`.

    It is up when its children are. If it gives up, it ends with GaveUp, and its own supervisor decides: a PERMANENT one
    is restarted, a TRANSIENT or TEMPORARY one stays down.

    random: as in `open_supervisor`; if none is given, one that depends only on the tree's and on the path.

    Example::

        lines = supervisor([Child("first", line), Child("second", line)], strategy=Strategy.ONE_FOR_ALL)
        async with open_supervisor([Child("lines", lines)]) as root:
            await root.ref("lines/first").tell(Add(2))
    """

    def __init__(
        self,
        children: Sequence[Child[Never]],
        *,
        strategy: Strategy = Strategy.ONE_FOR_ONE,
        intensity: Intensity = Intensity(),
        auto_shutdown: AutoShutdown = AutoShutdown.NEVER,
        random: Random | None = None,
    ) -> None:
        super().__init__(children, strategy, intensity, auto_shutdown)
        self._random = random

    async def __call__(self, inbox: Inbox[Never]) -> None:
        """Run the supervisor in the task of the actor that it is.

        The actor may have been asked to stop before its task ran. There was no supervisor yet to pass that on to, so it is
        stopped here, before it starts anything.
        """
        incarnation = inbox._incarnation
        cell = incarnation.cell
        random = self._random or cell.system.random_for(cell.path)
        loop = SupervisorLoop(cell.system, cell.path, incarnation.child.name, self, random, incarnation.attempt)
        cell.close_mailbox("a supervisor takes no messages")
        incarnation.nested += (loop,)
        if incarnation.stopping:
            loop.stop()
        await loop.run(up=inbox.started)


# ------------------------------------------------------------ pictures of a tree


@attrs.frozen(eq=False)
class ActorInfo:
    """State of one actor or supervisor. Every field can be written as JSON.

    ::

        stuck = [info.path for info in supervisor.children() if info.state == "stuck"]
    """

    name: str
    """Last part of the path; the name of the program for the root."""
    path: str
    """Names from the root's child down, joined by "/"; "" for the root."""
    state: str
    """One of "starting", "up", "stopping", "stuck" (cancelled, and still running), "waiting" (for its restart), "down"."""
    attempt: int = 0
    """Number of the present or last run, from 1; 0 before the first."""
    restarts: int = 0
    """Starts after the first, those included that somebody has asked for with `restart_child`."""
    due: float | None = None
    """Seconds until an actor that waits is restarted, or one that stops is cancelled."""
    depth: int = 0
    """Messages in the mailbox now."""
    capacity: int = 0
    """Most messages that the mailbox takes; 0 for a supervisor, which has none."""
    high_water: int = 0
    """Most messages that were in the mailbox at the same time."""
    sent: int = 0
    """Messages sent so far. Always sent = handled + depth + dropped + dead."""
    handled: int = 0
    """Messages that were received, the one in hand included."""
    dropped: int = 0
    """Messages that the policy of the mailbox has dropped."""
    dead: int = 0
    """Messages that became dead letters."""
    message: str | None = None
    """Class name of the message in hand."""
    message_age: float | None = None
    """Seconds since that message was received."""
    deadline: float | None = None
    """Seconds until the first of the askers that wait for this actor stops waiting."""
    waiting_at: str | None = None
    """Place where it waits, as "file:line in function", if it has a message in hand or does not stop."""
    reason: str | None = None
    """Reason for its state, where the program that shows the tree knows more than its supervisors; they leave it None."""
    shutdown_budget: float | None = None
    """Longest that stopping it can take, in seconds; None if there is no limit."""
    children: tuple[ActorInfo, ...] = ()
    """Actors below it, in start order."""


def describe_supervisor(loop: SupervisorLoop) -> ActorInfo:
    """Return the state of a supervisor that is nobody's child, with everything below it."""
    if loop.finished.is_set():
        state = "down"
    elif loop.ending:
        state = "stopping"
    else:
        state = "up" if loop.settled.is_set() else "starting"
    return ActorInfo(
        loop.name,
        loop.path,
        state,
        attempt=loop.attempt,
        shutdown_budget=_finite(loop.children.shutdown_budget()),
        children=describe_children(loop),
    )


def describe_children(loop: SupervisorLoop) -> tuple[ActorInfo, ...]:
    """Return the states of a supervisor's children in start order, with everything below them."""
    return tuple(_describe_child(loop, entry) for entry in loop.table.entries.values())


def _describe_child(loop: SupervisorLoop, entry: ChildEntry) -> ActorInfo:
    cell = loop.children.cells[entry.child.name]
    incarnation = cell.incarnation
    running = incarnation if incarnation is not None and not incarnation.done else None
    now = trio.current_time()
    in_hand = running if running is not None and running.current is not NOTHING else None
    deadline = min((exchange.deadline for exchange in running.held), default=math.inf) if running else math.inf
    shows_place = running is not None and (in_hand is not None or running.stopping)
    return ActorInfo(
        name=entry.child.name,
        path=cell.path,
        state=_state_of(entry, running),
        attempt=cell.attempt,
        restarts=max(0, cell.attempt - 1),
        due=_finite(max(0.0, _due_time(loop, entry, running) - now)),
        depth=cell.depth,
        capacity=0 if entry.child.subtree is not None else cell.mailbox.capacity,
        high_water=cell.high_water,
        sent=cell.sent,
        handled=cell.handled,
        dropped=cell.dropped,
        dead=cell.dead,
        message=None if in_hand is None else type(in_hand.current).__name__,
        message_age=None if in_hand is None else now - in_hand.current_since,
        deadline=_finite(deadline - now),
        waiting_at=location_of(running.task) if running is not None and shows_place else None,
        shutdown_budget=_finite(loop.children.shutdown_budget_of(entry.child)),
        children=() if running is None else _describe_nested(running),
    )


def _state_of(entry: ChildEntry, running: Incarnation | None) -> str:
    """Return the state to show. The table's lags behind while an exit waits in the supervisor's queue."""
    if running is None and entry.state is State.UP:
        return State.DOWN.value  # its supervisor has not taken up its end yet
    return "stuck" if running is not None and running.stuck else entry.state.value


def _due_time(loop: SupervisorLoop, entry: ChildEntry, running: Incarnation | None) -> float:
    """Return the Trio time at which the child is restarted or cancelled; infinity if neither is to come."""
    if running is not None:
        return running.stop_deadline if running.kill_reason is None else math.inf
    return min((pending.due for pending in loop.table.pending if entry.child.name in pending.members), default=math.inf)


def _describe_nested(incarnation: Incarnation) -> tuple[ActorInfo, ...]:
    """Return what stands below a run: children of supervisors that it is or has opened, named supervisors as such."""
    below: list[ActorInfo] = []
    for loop in incarnation.nested:
        below += describe_children(loop) if loop.path == incarnation.cell.path else [describe_supervisor(loop)]
    return tuple(below)


def _finite(seconds: float) -> float | None:
    return None if seconds == math.inf else seconds
