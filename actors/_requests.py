"""What others may ask a supervisor to do to its children. All but starts in a pool are done by its own task, in turn."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Never, TypeAlias

import outcome
import trio

from actors._errors import ActorDied, ActorError
from actors._life import how, why_crashed
from actors._table import RUNNING, State

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors._cell import Cell
    from actors._core import Core
    from actors._life import Life
    from actors._spec import Child
    from actors._table import Entry

Work: TypeAlias = "Callable[[], Awaitable[Life | None]]"
Undo: TypeAlias = "Callable[[Life], Awaitable[None]]"
STOPPING = "the supervisor is stopping"


class Request:
    """Work that somebody waits for; its result is the run that it has started, if it is a start.

    scope: cancelled when nobody waits any more, if the work may be left undone. undo: for a start that nobody wants.
    """

    __slots__ = ("_undo", "_work", "done", "result", "scope")

    def __init__(self, work: Work, undo: Undo | None = None) -> None:
        self._work = work
        self._undo = undo
        self.scope = trio.CancelScope()
        self.done = trio.Event()
        self.result: outcome.Outcome[Life | None] | None = None

    async def run(self) -> None:
        """For the supervisor's task. Never raises but Cancelled, when the supervisor is to stop."""
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
        """For the supervisor's task, when nobody wants any more what has been started."""
        if self._undo is not None and isinstance(self.result, outcome.Value) and self.result.value is not None:
            await self._undo(self.result.value)


async def start_child(core: Core, child: Child[Never]) -> Cell:
    core.shape.check_also(child)
    _refuse_if_ending(core)
    if core.children.parallel:
        await _start_new(core, child)
    elif core.is_idle:
        await trio.lowlevel.checkpoint_if_cancelled()
        core.hold()
        try:
            await _start_new(core, child)
        finally:
            core.release()
    else:
        await _perform(core, partial(_start_new, core, child), partial(_take_back, core, forget=True))
    return core.children.cell_of(child.name)


async def stop_child(core: Core, name: str) -> None:
    await _perform(core, partial(_stop, core, name))


async def restart_child(core: Core, name: str) -> None:
    await _perform(core, partial(_restart, core, name), partial(_take_back, core, forget=False))


async def delete_child(core: Core, name: str) -> None:
    await _perform(core, partial(_delete, core, name))


async def _perform(core: Core, work: Work, undo: Undo | None = None) -> None:
    """Have it done. On cancel, what has not begun is not done; what has begun is undone or, without `undo`, goes on."""
    _refuse_if_ending(core)
    request = Request(work, undo)
    core.put(request)
    try:
        await request.done.wait()
    except trio.Cancelled:
        if request.done.is_set():
            core.put(Request(request.undo))
        elif undo is not None or core.withdraw(request):
            request.scope.cancel(reason="nobody waits for it")
        raise
    if request.result is None:
        raise _error(core, STOPPING)
    request.result.unwrap()


# ------------------------------------------------------------ the work


async def _start_new(core: Core, child: Child[Never]) -> Life:
    _add_new(core, child)
    return await _come_up(core, child.name, new=True)


def _add_new(core: Core, child: Child[Never]) -> Cell:
    entry = core.table.entries.get(child.name)
    if entry is not None:
        raise _error(core, f"a child {child.name!r} is there already ({entry.state.value})")
    return core.children.add(child)


async def _restart(core: Core, name: str) -> Life:
    entry = _entry(core, name)
    if entry.state is not State.DOWN:
        raise _error(core, f"{name!r} is {entry.state.value}; only a child that is down can be restarted")
    return await _come_up(core, name, new=False)


async def _come_up(core: Core, name: str, *, new: bool) -> Life:
    life = core.children.spawn(name)
    try:
        await (life.wait_settled() if core.children.parallel else core.children.see_settled(life))
    except trio.Cancelled:
        if not core.ending:
            _leave_start(core, life, forget=new)
        raise
    if life.up:
        return life
    if core.ending and not life.done:
        raise _error(core, STOPPING)
    if not core.ending:
        core.children.put_down(name, forget=new)
    raise _did_not_start(life)


def _leave_start(core: Core, life: Life, *, forget: bool) -> None:
    """Nobody waits for it any more; meanwhile it may have come up, failed, or been stopped by somebody else."""
    if life.done and not life.up:
        core.children.put_down(life.child.name, forget=forget)
    elif core.children.may_abort(life):
        core.children.abort(life, forget=forget)
    else:
        core.put(Request(partial(_take_back, core, life, forget=forget)))


async def _take_back(core: Core, life: Life, *, forget: bool) -> None:
    """Stop at once what was started for somebody who has left, and what may have taken its place by now."""
    name = life.child.name
    entry = core.table.entries.get(name)
    if entry is None or entry.child is not life.child:
        return
    now = core.children.cells[name].life
    if entry.state in RUNNING and now is not None:
        now.stop()
        now.kill("its start was cancelled")
        await core.children.stop((name,), patient=True)
    if name in core.table.entries:
        core.children.put_down(name, forget=forget)


async def _stop(core: Core, name: str) -> None:
    if _entry(core, name).state in RUNNING:
        await core.children.stop((name,), patient=True)
    else:
        core.children.call_off(name)


async def _delete(core: Core, name: str) -> None:
    entry = _entry(core, name)
    if entry.state is not State.DOWN:
        raise _error(core, f"{name!r} is {entry.state.value}; stop it before you delete it")
    core.table.remove(name)
    core.children.close(name, "the actor was deleted")


# ------------------------------------------------------------ refusals


def _refuse_if_ending(core: Core) -> None:
    if core.ending:
        raise _error(core, STOPPING)


def _entry(core: Core, name: str) -> Entry:
    try:
        return core.table.entries[name]
    except KeyError:
        known = ", ".join(core.table.entries) or "none"
        raise _error(core, f"there is no child {name!r}; there are: {known}") from None


def _error(core: Core, why: str) -> ActorError:
    return ActorError(why, target=core.path or core.name, time=trio.current_time())


def _did_not_start(life: Life) -> ActorDied:
    error = ActorDied(f"did not start, {how(life)}", target=life.cell.path, time=trio.current_time())
    error.__cause__ = why_crashed(life)
    return error
