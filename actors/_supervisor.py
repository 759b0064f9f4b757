"""Supervision trees: how to open one, how to nest one, and what can be done with one that runs."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Never, TypeVar, cast

import trio

from actors._cell import System
from actors._context import CURRENT
from actors._core import Core
from actors._exits import cause_of, ends_program, passes_through
from actors._ref import Ref
from actors._requests import delete_child, restart_child, start_child, stop_child
from actors._spec import AutoShutdown, Child, Intensity, Strategy, Subtree
from actors._tree import ActorInfo, children_of, info_of_core

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from random import Random

    from actors._events import Events
    from actors._inbox import Inbox
    from actors._life import Life

M = TypeVar("M")


class Supervisor:
    """A running supervisor. Names are those of its own children; paths may go further down ("channels/cli")."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def path(self) -> str:
        """Where it stands in its tree; "" for the root."""
        return self._core.path

    def ref(self, path: str) -> Ref[M]:
        """The address of an actor below, whether it exists yet or not."""
        return Ref(self._core.children.cell_of(path))

    async def start_child(self, child: Child[M]) -> Ref[M]:
        """Start one more child, the last in start order, and wait until it is up.

        Raises ActorDied if it does not come up (it is then forgotten), ActorError if its name is taken or the
        supervisor is stopping, ValueError if it does not fit here. On cancel the child is not there.
        """
        return Ref(await start_child(self._core, cast("Child[Never]", child)))

    async def stop_child(self, name: str) -> None:
        """Stop a child and keep its spec, but for a TEMPORARY one, which is forgotten. No effect if it is down."""
        await stop_child(self._core, name)

    async def restart_child(self, name: str) -> None:
        """Start a child that is down again. ActorError if it is not down; ActorDied if it does not come up."""
        await restart_child(self._core, name)

    async def delete_child(self, name: str) -> None:
        """Forget the spec of a child that is down. ActorError if it is not down."""
        await delete_child(self._core, name)

    def children(self) -> tuple[ActorInfo, ...]:
        """Its children in start order, as they are now."""
        return children_of(self._core)

    def tree(self) -> ActorInfo:
        """Everything below, as it is now, without any actor's help."""
        return info_of_core(self._core)

    def events(self, capacity: int = 1000) -> Events:
        """What happens from now on in the whole tree that this supervisor belongs to."""
        return self._core.system.hub.subscribe(capacity)

    def shutdown_budget(self) -> float:
        """The longest that `stop` can take, in seconds, as long as nobody resists being cancelled for good."""
        return self._core.children.longest_stop()

    async def stop(self) -> None:
        """Stop all children, the last started first, and wait for it; called from below, only ask for it.

        On cancel they are stopped all the same.
        """
        self._core.stop()
        if self._is_below():
            await trio.lowlevel.checkpoint()
        else:
            await self._core.finished.wait()

    def kill(self, reason: str) -> None:
        """Cancel all children at once, whatever is left of their shutdown times, and end. OTP: `exit(Pid, kill)`.

        Returns immediately; `wait_stopped` and the end of the block wait until everything below has unwound. Use it when
        a deadline of the whole program is near. No effect on children that have ended. reason: a part of their exits.
        """
        self._core.kill(reason)

    async def wait_stopped(self) -> None:
        """Wait until all has been stopped, for whatever reason."""
        await self._core.finished.wait()

    def _is_below(self) -> bool:
        life = CURRENT.get()
        if life is None or life.cell.system is not self._core.system:
            return False
        return not self._core.path or life.cell.path.startswith(f"{self._core.path}/")


def open_supervisor(
    children: Sequence[Child[Never]] = (),
    *,
    strategy: Strategy = Strategy.ONE_FOR_ONE,
    intensity: Intensity = Intensity(),
    auto_shutdown: AutoShutdown = AutoShutdown.NEVER,
    name: str | None = None,
    random: Random | None = None,
) -> AbstractAsyncContextManager[Supervisor]:
    """Start the children in order, each when the one before is up; stop them in reverse when the block is left.

    Inside an actor the children stand below that actor in its tree (below `name`, if given). random: for the jitter of
    backoffs; the same one always, if none is given. GaveUp, also when a first start fails: the block is cancelled, and
    the last failure is the cause. When significant children end the supervisor, the block is cancelled and left. On
    cancel, too, the children are stopped in order, within shutdown_budget() seconds.
    """
    return _host(Subtree(children, strategy, intensity, auto_shutdown), name, random, parallel=False)


def open_pool(
    *,
    intensity: Intensity = Intensity(),
    auto_shutdown: AutoShutdown = AutoShutdown.NEVER,
    name: str | None = None,
    random: Random | None = None,
) -> AbstractAsyncContextManager[Supervisor]:
    """A supervisor (one for one) whose children are started on demand, independently, and are stopped all at once."""
    return _host(Subtree((), Strategy.ONE_FOR_ONE, intensity, auto_shutdown), name, random, parallel=True)


@asynccontextmanager
async def _host(
    shape: Subtree, name: str | None, random: Random | None, *, parallel: bool
) -> AsyncGenerator[Supervisor, None]:
    """Run a supervisor in a task beside the block."""
    if name is not None and (not isinstance(name, str) or not name or "/" in name):
        raise ValueError(f'name is {name!r}; it must be a non-empty string without "/", or None')
    above = CURRENT.get()
    if above is not None and above.done:  # a task that has outlived the actor it came from
        above = None
    core = _make_core(shape, above, name, random, parallel)
    block = trio.CancelScope()
    core.on_own_end = lambda: block.cancel(reason="the supervisor has ended")
    error: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_run, core, name=f"supervisor {core.path or core.name}")
        try:
            await core.settled.wait()
            if core.failure is None:
                with block:
                    yield Supervisor(core)
        except BaseException as raised:
            error = raised
        core.stop()
        with trio.CancelScope(shield=True):
            await core.finished.wait()
    if above is None:
        core.system.hub.close()
    else:
        above.nested = tuple(other for other in above.nested if other is not core)
    _raise(core.failure, error)


def _make_core(shape: Subtree, above: Life | None, name: str | None, random: Random | None, parallel: bool) -> Core:
    if above is None:
        system = System(trio.lowlevel.current_trio_token(), random)
        return Core(system, "", name or "root", shape, random or system.random_for(""), 1, parallel=parallel)
    system, path = above.cell.system, f"{above.cell.path}/{name}" if name else above.cell.path
    random = random or system.random_for(path)
    core = Core(system, path, name or above.child.name, shape, random, above.attempt, parallel=parallel)
    above.nested += (core,)
    return core


async def _run(core: Core) -> None:
    try:
        await core.run(up=lambda: None)
    except BaseException as error:
        if passes_through(error):
            raise
        core.failure = cause_of(error)
        core.on_own_end()


def _raise(failure: BaseException | None, error: BaseException | None) -> None:
    """Raise what matters more: the supervisor's own failure says more than what the block made of it."""
    if error is not None and (failure is None or ends_program(cause_of(error))):
        raise error
    if failure is None:
        return
    if error is not None and not isinstance(error, trio.Cancelled):
        failure.add_note(f"Meanwhile the block under the supervisor raised {error!r}.")
    raise failure


class supervisor(Subtree):
    """A supervisor as the `run` of a Child, so that trees nest: `Child("channels", supervisor([...]))`.

    It is up when its children are. If it gives up, it crashes with GaveUp, and its own supervisor decides. random: as
    in open_supervisor; if none is given, one that depends on the tree's and on the path only.
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
        life = inbox._life
        cell = life.cell
        random = self._random or cell.system.random_for(cell.path)
        core = Core(cell.system, cell.path, life.child.name, self, random, life.attempt)
        cell.refuse("a supervisor takes no messages")
        life.nested += (core,)
        if life.stopping:
            core.stop()
        await core.run(up=inbox.started)
