"""Asking: deadlines that are inherited, and waits that would never end.

A question asked while another one is being worked on inherits its deadline, as long as that one is unanswered. An
actor whose own task waits for an answer is busy until it comes, so a circle of such waits would never end; the wait
that would close the circle is refused.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio
from trio.lowlevel import checkpoint_if_cancelled, current_task

from actors._cell import exchange_of
from actors._errors import AskCycle, AskTimeout
from actors._life import CURRENT, HANDLING
from actors._reply import Exchange, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors._cell import Cell


def deadline_after(timeout: float | None) -> float:
    """The smaller of the own and the inherited deadline, in trio time; infinity if there is none."""
    deadline = math.inf if timeout is None else trio.current_time() + timeout
    asked = HANDLING.get()
    return min(deadline, asked.deadline) if asked is not None and asked.open else deadline


async def send_question(cell: Cell, make: Callable[..., object], args: tuple[object, ...], deadline: float) -> Exchange:
    """Build the message and put it in the mailbox, waiting for room until the deadline."""
    await checkpoint_if_cancelled()
    exchange = Exchange(cell, deadline)
    message = make(Reply(exchange), *args)
    exchange.message_type = type(message).__name__
    if exchange_of(message) is not exchange:
        raise TypeError(f"{exchange.message_type}: a message that is asked must carry its Reply as its first field")
    if deadline <= trio.current_time():
        raise exchange.timed_out()
    if not cell.offer(message):
        with trio.move_on_at(deadline) as scope:
            await cell.wait_for_room(message)
        if scope.cancelled_caught:
            raise exchange.timed_out()
    return exchange


async def wait_for_answer(exchange: Exchange, timeout: float | None) -> object:
    """The answer. AskTimeout at the deadline: the asker has then left. On cancel it has not."""
    me = _busy_actor()
    if me is not None and exchange.open:
        refuse_circle(me, exchange.target, exchange.message_type)
        me.waits_for = exchange.target
    if timeout is not None:
        exchange.deadline = min(exchange.deadline, trio.current_time() + timeout)
    try:
        if exchange.deadline == math.inf:
            return await exchange.wait()
        with trio.move_on_at(exchange.deadline):
            return await exchange.wait()
    finally:
        if me is not None:
            me.waits_for = None
    error: AskTimeout = exchange.timed_out()
    exchange.leave()
    raise error


async def ask(cell: Cell, make: Callable[..., object], args: tuple[object, ...], timeout: float | None) -> object:
    me = _busy_actor()
    if me is not None:
        refuse_circle(me, cell, getattr(make, "__name__", "question"))
        me.waits_for = cell
    try:
        exchange = await send_question(cell, make, args, deadline_after(timeout))
    finally:
        if me is not None:
            me.waits_for = None
    try:
        return await wait_for_answer(exchange, None)
    finally:
        exchange.leave()


def _busy_actor() -> Cell | None:
    """The actor whose own task this is: it handles nothing while this task waits."""
    life = CURRENT.get()
    return life.cell if life is not None and life.task is current_task() else None


def refuse_circle(me: Cell, target: Cell, message_type: str) -> None:
    path = [me.path, target.path]
    step: Cell | None = target
    while step is not None and step is not me:
        step = step.waits_for
        if step is not None:
            path.append(step.path)
    if step is me:
        raise AskCycle(tuple(path), message_type=message_type, time=trio.current_time())
