"""How a fault gets into a task. The rule: only what may happen there in earnest.

A crash is raised where Cancelled could be raised as well, and in the same way: the task is taken out of whatever queue
it waits in. It never replaces what the task was woken with, or a message would be lost that no real crash loses; so a
task that has been woken is let be (the next checkpoint will do), as is one inside a shield of its own.

A cancel is the real one: an actor is killed as its supervisor would, for any other task the nursery is cancelled that
it lives in, and for `main` all of it.
"""

from __future__ import annotations

import trio
from trio.lowlevel import Task

from actors._cell import CURRENT
from actors.testing import _trio
from actors.testing._errors import InjectedCrash
from actors.testing._plan import Kind, Perturbation


def strike(task: Task, perturbation: Perturbation, main: trio.CancelScope | None) -> bool:
    """Crash or cancel the task; whether that was possible. main: the scope of the program, if it is its main task."""
    if perturbation.kind is Kind.CRASH:
        return _trio.raise_in(task, InjectedCrash(f"{perturbation.task} at its checkpoint {perturbation.step}"))
    life = task.context.get(CURRENT)
    if main is not None:
        main.cancel(reason="a simulated cancel")
    elif life is not None:
        if life.done:
            return False
        life.kill("a simulated cancel")
    elif task.parent_nursery is not None:
        task.parent_nursery.cancel_scope.cancel(reason="a simulated cancel")
    return True
