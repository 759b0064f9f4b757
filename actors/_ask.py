"""Asking. A question asked while another one is worked on inherits its deadline, as long as that one is unanswered."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import trio
from trio.lowlevel import checkpoint, checkpoint_if_cancelled

from actors._cell import HOPELESS, exchange_of
from actors._circle import busy_actor, circle, names
from actors._context import HANDLING
from actors._errors import ActorDied, AskCycle, AskTimeout
from actors._reply import Exchange, Reply, in_trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors._cell import Cell

R = TypeVar("R", covariant=True)


async def ask(cell: Cell, make: Callable[..., object], args: tuple[object, ...], timeout: float | None) -> object:
    """Send a question and wait for its answer; the asker leaves however that ends."""
    await checkpoint_if_cancelled()
    exchange, message = _question(cell, make, args, timeout)
    if cell.is_hopeless():
        exchange.leave()
        raise exchange.error(ActorDied, HOPELESS)
    me = busy_actor()
    if me is not None:
        _refuse_circle(me, exchange)
        me.waits_for, exchange.asker = exchange, me
    try:
        if exchange.deadline == math.inf:
            if not cell.put(message):
                await cell.wait_for_room(message)
            del message  # or the asker itself would keep the Reply alive
            return await exchange.wait()
        taken = cell.put(message)
        with trio.move_on_at(exchange.deadline):
            if not taken:
                await cell.wait_for_room(message)
            del message
            return await exchange.wait()
        raise timed_out(exchange)
    finally:
        if exchange.open:
            exchange.leave()
        if me is not None:
            me.waits_for = exchange.asker = None


async def request(cell: Cell, make: Callable[..., object], args: tuple[object, ...]) -> Exchange:
    """Send a question, waiting for room at most until the inherited deadline."""
    await checkpoint()
    exchange, message = _question(cell, make, args, None)
    if not cell.put(message):
        me = busy_actor()
        if me is not None:
            _refuse_circle(me, exchange)
        with trio.move_on_at(exchange.deadline) as scope:
            await cell.wait_for_room(message)
        if scope.cancelled_caught:
            raise timed_out(exchange)
    return exchange


class Answer(Generic[R]):
    """The asker's half of a question that was sent with `request`. Dropping it means leaving."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def get(self, timeout: float | None = None) -> R:
        """Wait for the answer, at most `timeout` seconds and not beyond a deadline inherited when asking.

        Raises what Reply.fail was given, ActorDied, AskCycle, or AskTimeout, after which the asker has left. On
        cancel it has not: `get` may be called again.
        """
        return cast("R", await _get(self._exchange, timeout))

    def __del__(self) -> None:
        if self._exchange.open:
            in_trio(self._exchange, Exchange.leave)


async def _get(exchange: Exchange, timeout: float | None) -> object:
    me = busy_actor()
    life = exchange.target.life
    if exchange.open and life is not None and exchange.target.is_hopeless():
        exchange.target.strand(life.siblings, exchange)
    if me is not None and exchange.open:
        _refuse_circle(me, exchange)
        me.waits_for, exchange.asker = exchange, me
    if timeout is not None:
        exchange.deadline = min(exchange.deadline, _deadline(timeout))
    try:
        if exchange.deadline == math.inf:
            return await exchange.wait()
        with trio.move_on_at(exchange.deadline):
            return await exchange.wait()
    finally:
        if me is not None:
            me.waits_for = exchange.asker = None
    try:
        raise timed_out(
            exchange
        )  # in no variable, or its traceback would keep itself, and the frames of all who called
    finally:
        exchange.leave()


# ------------------------------------------------------------ questions, deadlines, circles


def _question(
    cell: Cell, make: Callable[..., object], args: tuple[object, ...], timeout: float | None
) -> tuple[Exchange, object]:
    deadline = math.inf if timeout is None else _deadline(timeout)
    asked = HANDLING.get()
    if asked is not None and asked.deadline < deadline and asked.open:
        deadline = asked.deadline
    exchange = Exchange(cell, deadline)
    message = make(Reply(exchange), *args)
    exchange.kind = type(message)
    if exchange_of(message) is not exchange:
        raise TypeError(f"{type(message).__name__}: a message that is asked must have its Reply as its first field")
    if deadline != math.inf and deadline <= trio.current_time():
        raise timed_out(exchange)
    return exchange, message


def _deadline(timeout: float) -> float:
    if math.isnan(timeout):
        raise ValueError("timeout is nan; it must be a number of seconds, or None")
    return trio.current_time() + timeout


def timed_out(exchange: Exchange) -> AskTimeout:
    return cast("AskTimeout", exchange.error(AskTimeout, "no answer before the deadline"))


def _refuse_circle(me: Cell, exchange: Exchange) -> None:
    path = circle(me, exchange.target)
    if path is not None:
        raise AskCycle(names(path), message_type=exchange.kind.__name__, time=trio.current_time())
