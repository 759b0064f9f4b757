"""Picture of a supervision tree at one moment, as plain values (`ActorInfo`).

The values are read from the outside, from the cells, runs and tables. No actor has to answer anything, so the picture is
also right for an actor that is stuck.

All values of one picture belong to the same moment, because nothing is awaited while it is made. Times are given as
seconds from that moment, so that a reader in another process needs no clock of Trio's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs
import trio

from actors._incarnation import NOTHING, Incarnation, location_of
from actors._loop import SupervisorLoop
from actors._table import State

if TYPE_CHECKING:
    from actors._table import ChildEntry


@attrs.frozen(eq=False)
class ActorInfo:
    """State of one actor or supervisor. Every field can be written as JSON.

    ::

        stuck = [info.path for info in supervisor.children() if info.state == "stuck"]
    """

    name: str
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
    shutdown_budget: float | None = None
    """Longest that stopping it can take, in seconds; None if there is no limit."""
    children: tuple[ActorInfo, ...] = ()
    """What stands below it, in start order."""


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
        shutdown_budget=_finite(loop.shutdown_budget()),
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
        depth=len(cell.queue),
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
        if isinstance(loop, SupervisorLoop):
            below += describe_children(loop) if loop.path == incarnation.cell.path else [describe_supervisor(loop)]
    return tuple(below)


def _finite(seconds: float) -> float | None:
    return None if seconds == math.inf else seconds
