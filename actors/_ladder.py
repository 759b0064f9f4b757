"""The stop ladder of one actor: told to stop, cancelled when its time is up, reported if even that does not end it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Never

import trio

from actors._events import Stuck
from actors._stack import stack_of

if TYPE_CHECKING:
    from actors._life import Life
    from actors._spec import Child

UNWIND = 1.0
"""Seconds that a cancelled actor has to unwind before it is reported as Stuck, and not waited for when all stops."""


def tell_to_stop(life: Life) -> None:
    """First rung; with shutdown=0 the second one at once."""
    if life.child.shutdown > 0:
        life.stop()
    elif not life.stopping:
        life.stopping = True
        life.stop_deadline = trio.current_time()
        life.kill("shutdown=0")


async def see_end(life: Life, *, patient: bool) -> None:
    """Wait, climbing the rungs, until it has ended or, if not `patient`, has been reported as stuck.

    An actor whose successor is to be started must be waited for patiently: the two must not run side by side.
    """
    if await life.ends_by(life.stop_deadline):
        return
    life.kill(f"did not stop within {life.child.shutdown:g} s")
    if await life.ends_by(life.stop_deadline + UNWIND):
        return
    _report(life)
    if patient:
        await life.wait_ended()


def _report(life: Life) -> None:
    if not life.stuck:
        life.stuck = True
        now = trio.current_time()
        life.publish(Stuck(stack_of(life.task), path=life.cell.path, time=now, attempt=life.attempt))


def longest_stop(child: Child[Never]) -> float:
    """The longest that the ladder of this child can take, in seconds."""
    below = child.subtree
    if below is not None and child.shutdown == math.inf:
        return math.fsum(longest_stop(one) for one in below.children)
    return child.shutdown + UNWIND
