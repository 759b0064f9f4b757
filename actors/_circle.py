"""Waits that would never end.

An actor whose own task waits for an answer, or for room in a mailbox, handles nothing meanwhile. So a circle of such
waits would never end, unless one of them is an ask that ends without an answer. Three things can close one:

* an ask, or a request that has to wait for room: it is refused;
* a question that is handed on, to somebody who waits, through others or not, for the one who has asked it: the wait
  for its answer ends;
* a message that has to wait for room: the last ask of the circle ends.

A circle of nothing but full mailboxes is none of those: whoever lets actors of a circle wait for room must see to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio.lowlevel import current_task

from actors._context import CURRENT

if TYPE_CHECKING:
    from actors._cell import Cell
    from actors._reply import Exchange


def busy_actor() -> Cell | None:
    """The actor whose own task this is: it handles nothing while this task waits."""
    life = CURRENT.get()
    return life.cell if life is not None and life.task is current_task() else None


def circle(me: Cell, other: Cell) -> tuple[Cell, ...] | None:
    """The actors that wait for each other if one waits for another one; None if it may.

    Who has its answer waits no more, even if it has not run yet.
    """
    path = [me, other]
    while path[-1] is not me:
        then = _awaited_by(path[-1])
        if then is None or then in path[1:]:  # or it is one of full mailboxes
            return None
        path.append(then)
    return tuple(path)


def _awaited_by(cell: Cell) -> Cell | None:
    question = cell.waits_for
    return question.target if question is not None and question.open else cell.stands_at


def check_moved(exchange: Exchange) -> None:
    """A question has got to somebody else: the actor that waits for it must not wait for itself now."""
    me = exchange.asker
    path = None if me is None or not exchange.open else circle(me, exchange.target)
    if path is not None:
        exchange.refuse(names(path))


def check_line(me: Cell) -> None:
    """An actor stands in line: an ask of somebody who waits for it, through others or not, ends if it has to."""
    path = None if me.stands_at is None else circle(me, me.stands_at)
    for n in reversed(range(len(path or ()))):
        if path is not None and (question := path[n].waits_for) is not None and question.open:
            question.refuse(names((*path[n:-1], *path[: n + 1])))
            return


def names(path: tuple[Cell, ...]) -> tuple[str, ...]:
    return tuple(cell.path for cell in path)
