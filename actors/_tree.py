"""What a tree looks like at one moment, as plain values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs
import trio

from actors._inbox import NOTHING
from actors._stack import location_of
from actors._table import State

if TYPE_CHECKING:
    from actors._core import Core
    from actors._life import Life
    from actors._table import Entry


@attrs.frozen(eq=False)
class ActorInfo:
    """One actor or supervisor; every field can be written as JSON.

    state: "starting", "up", "stopping", "stuck", "waiting" (for its restart) or "down". due: seconds until a waiting one
    is started again, or a stopping one is cancelled. depth, capacity, high_water: messages in the mailbox now, at most
    (0: it has none), and at most so far. sent = handled + depth + dropped + dead. message: class name of the one in
    hand; message_age: for how many seconds. deadline: seconds until nobody waits for its answer. waiting_at: "file:line
    in function" where it waits, if it has something in hand or does not stop. shutdown_budget: the longest that
    stopping it can take, in seconds; None if there is no limit.
    """

    name: str
    path: str
    state: str
    attempt: int = 0
    restarts: int = 0
    due: float | None = None
    depth: int = 0
    capacity: int = 0
    high_water: int = 0
    sent: int = 0
    handled: int = 0
    dropped: int = 0
    dead: int = 0
    message: str | None = None
    message_age: float | None = None
    deadline: float | None = None
    waiting_at: str | None = None
    shutdown_budget: float | None = None
    children: tuple[ActorInfo, ...] = ()


def info_of_core(core: Core) -> ActorInfo:
    """A supervisor that is nobody's child, with everything below it."""
    state = (
        "down"
        if core.finished.is_set()
        else "stopping"
        if core.ending
        else "up"
        if core.settled.is_set()
        else "starting"
    )
    return ActorInfo(
        core.name,
        core.path,
        state,
        attempt=core.attempt,
        shutdown_budget=_finite(core.children.longest_stop()),
        children=children_of(core),
    )


def children_of(core: Core) -> tuple[ActorInfo, ...]:
    """In start order."""
    return tuple(_info(core, entry) for entry in core.table.entries.values())


def _info(core: Core, entry: Entry) -> ActorInfo:
    cell = core.children.cells[entry.child.name]
    life = cell.life
    running = life if life is not None and not life.done else None
    now = trio.current_time()
    in_hand = running is not None and running.current is not NOTHING
    deadline = min((exchange.deadline for exchange in running.held), default=math.inf) if running else math.inf
    return ActorInfo(
        name=entry.child.name,
        path=cell.path,
        state=_state(entry, running),
        attempt=cell.attempt,
        restarts=max(0, cell.attempt - 1),
        due=_finite(max(0.0, _due(core, entry, running) - now)),
        depth=len(cell.queue),
        capacity=0 if entry.child.subtree is not None else cell.mailbox.capacity,
        high_water=cell.high_water,
        sent=cell.sent,
        handled=cell.handled,
        dropped=cell.dropped,
        dead=cell.dead,
        message=type(running.current).__name__ if running is not None and in_hand else None,
        message_age=now - running.since if running is not None and in_hand else None,
        deadline=_finite(deadline - now),
        waiting_at=location_of(running.task) if running is not None and (in_hand or running.stopping) else None,
        shutdown_budget=_finite(core.children.longest_stop_of(entry.child)),
        children=_nested(running),
    )


def _state(entry: Entry, running: Life | None) -> str:
    if running is None and entry.state is State.UP:
        return State.DOWN.value  # its supervisor has not heard of its end yet
    return "stuck" if running is not None and running.stuck else entry.state.value


def _due(core: Core, entry: Entry, running: Life | None) -> float:
    """When something happens to it by itself, in trio time."""
    if running is not None:
        return running.stop_deadline if running.kill_reason is None else math.inf
    return min((one.due for one in core.table.pending if entry.child.name in one.members), default=math.inf)


def _finite(seconds: float) -> float | None:
    return None if seconds == math.inf else seconds


def _nested(life: Life | None) -> tuple[ActorInfo, ...]:
    if life is None:
        return ()
    return tuple(
        info
        for core in life.nested
        for info in (children_of(core) if core.path == life.cell.path else (info_of_core(core),))
    )
