"""Addresses of actors (`Ref`), and what others do with them: send, ask, watch.

**Deadlines.** The deadline of a question is the smaller of its own timeout and the deadline of the question that the
asking task works on, as long as that one is open. So a chain of questions ends when its first asker gives up, and nobody
works for longer than somebody waits.

**Leaving.** However a wait for an answer ends, `ask` leaves the question behind it closed: answered, or left. The callee
then skips it if it has not begun, and stops work inside `reply.scope()` if it has. `request` returns an Answer instead,
which may be waited for several times; dropping it is how its holder leaves.

**Order of an ask.** What can refuse it comes before anything is sent: a cancel, a deadline that is over, an actor that
cannot be restarted while its supervisor waits for the asker, a cycle of waits. Then the wait is recorded (`waits_for`),
and only then the message goes into the mailbox, so that a cycle which another task closes meanwhile finds the record.

**Checkpoints.** `tell` and `request` are checkpoints before they send. After a checkpoint that is cancelled nothing was
sent, and there is none after the message is in the mailbox. An ask always waits for its answer, which is the checkpoint.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, Never, TypeVar, TypeVarTuple, cast

import attrs
import trio
from trio.lowlevel import checkpoint, checkpoint_if_cancelled, current_task

from actors._cell import HANDLING, UNREACHABLE, current_actor, until
from actors._events import ActorDied, AskTimeout, Exit, Killed
from actors._reply import Exchange, Reply, exchange_of, find_cycle

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors._cell import ActorCell

M = TypeVar("M", contravariant=True)
R = TypeVar("R")
AnswerT = TypeVar("AnswerT", covariant=True)
Args = TypeVarTuple("Args")


class Ref(Generic[M]):
    """Logical address of an actor that takes messages of type M.

    ::

        ref: Ref[Add | Total] = supervisor.ref("counter")
        await ref.tell(Add(2))
        total = await ref.ask(Total, timeout=1)

    It stays the same over restarts, and may be taken before the actor exists. Two refs are equal when they are the same
    address of the same tree.
    """

    __slots__ = ("_cell",)

    def __init__(self, cell: ActorCell) -> None:
        self._cell = cell

    def __repr__(self) -> str:
        return f"<Ref {self._cell.path}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other._cell is self._cell

    def __hash__(self) -> int:
        return hash(id(self._cell))

    @property
    def path(self) -> str:
        """Names from the root's child down, joined by "/"."""
        return self._cell.path

    @property
    def alive(self) -> bool:
        """True while the actor is up and was not asked to stop."""
        return self._cell.alive

    async def tell(self, message: M) -> None:
        """Send a message. If the mailbox is full, wait for room, or raise MailboxFull, as its policy says.

        Sending to an actor that is down is not an error; a DeadLetter event is published. Only after the whole tree has
        ended, when nobody could see that event, ActorDied is raised. On cancel nothing was sent.
        """
        await checkpoint()
        if not self._cell.offer(message):
            await self._cell.wait_for_room(message)

    def tell_nowait(self, message: M) -> None:
        """Send a message without waiting. Raises MailboxFull when there is no room. Otherwise as `tell`.

        For code that is not async, in Trio's thread. Senders that already wait for room come first: a message only fits
        if nobody waits, since a mailbox with room lets them move up at once.
        """
        if not self._cell.offer(message):
            raise self._cell.full_error(message)

    async def ask(self, make: Callable[[Reply[R], *Args], M], *args: *Args, timeout: float | None = None) -> R:
        """Send the question `make(reply, *args)` and return its answer, waiting for at most `timeout` seconds.

        Raises AskTimeout at the deadline, its own or an inherited one; ActorDied as soon as no answer can come; AskCycle
        if the callee waits for the asker; MailboxFull; or the error that the callee gave to `reply.fail`. After an error
        or a cancel, the asker has left.
        """
        await checkpoint_if_cancelled()
        cell = self._cell
        exchange, message = _make_question(cell, make, args, timeout)
        if cell.is_unreachable():
            exchange.leave()
            raise exchange.make_error(ActorDied, UNREACHABLE)
        _begin_wait(exchange)
        try:
            with until(exchange.deadline):
                if not cell.offer(message):
                    await cell.wait_for_room(message)
                # This frame must not keep the Reply alive, or nobody would notice that the callee has dropped it.
                del message
                return cast("R", await exchange.wait())
            raise _timeout_error(exchange)
        finally:
            exchange.leave()
            _end_wait(exchange)

    async def request(self, make: Callable[[Reply[R], *Args], M], *args: *Args) -> Answer[R]:
        """Send the question `make(reply, *args)` without waiting for its answer.

        Waits for room in the mailbox at most until the inherited deadline, then raises AskTimeout. Otherwise as `tell`.
        On cancel nothing was sent.
        """
        await checkpoint()
        cell = self._cell
        exchange, message = _make_question(cell, make, args, None)
        if not cell.offer(message):
            _check_cycle(current_actor(), exchange)
            with trio.move_on_at(exchange.deadline) as scope:
                await cell.wait_for_room(message)
            if scope.cancelled_caught:
                raise _timeout_error(exchange)
        return Answer(exchange)

    async def wait_alive(self) -> None:
        """Wait until the actor is up: it has started, or has started again. Without an end if it never does. Always a checkpoint."""
        await self._cell.wait_alive()

    async def wait_stopped(self) -> Exit | None:
        """Wait until the actor neither runs nor will run again. Return the end of its last run, None if it never ran.

        An actor that waits for its restart is waited for. One that was never started has stopped in this sense, so this
        returns at once, although a child of that name may be started later. Always a checkpoint.
        """
        await self._cell.wait_gone()
        return self._cell.exit


class Answer(Generic[AnswerT]):
    """The asker's half of a question that was sent with `request`. Dropping it means leaving.

    ::

        answers = [await ref.request(Price, item) for item in items]
        prices = [await answer.get(timeout=1) for answer in answers]
    """

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def get(self, timeout: float | None = None) -> AnswerT:
        """Return the answer, waiting for at most `timeout` seconds, and not beyond a deadline inherited when asking.

        Raises what the callee gave to `reply.fail`, ActorDied, AskCycle, or AskTimeout, after which the asker has left.
        On cancel it has not: `get` may be called again. So it may after an answer, which is given again.
        """
        exchange = self._exchange
        if exchange in exchange.waits:
            raise trio.BusyResourceError("another task waits for this answer already")
        if exchange.open:
            exchange.target.fail_if_unreachable(exchange)
        if timeout is not None:
            exchange.deadline = min(exchange.deadline, _deadline_after(timeout))
        _begin_wait(exchange)
        try:
            with until(exchange.deadline):
                return cast("AnswerT", await exchange.wait())
        finally:
            _end_wait(exchange)
        exchange.leave()
        raise _timeout_error(exchange)

    def __del__(self) -> None:
        if self._exchange.open:
            self._exchange.target.run_in_trio(Exchange.leave, self._exchange)


@attrs.frozen(eq=False)
class Down:
    """Result of `watch`: the actor's run has ended.

    Example::

        down = await watch(ref)
        if isinstance(down.exit, Crashed):
            print(f"{down.ref.path}: {down.exit.error!r}")
    """

    ref: Ref[Never]
    """The address that was watched. A successor may run behind it already."""
    exit: Exit
    """Way in which the run ended."""


async def watch(ref: Ref[M]) -> Down:
    """Wait until the actor's present run ends, however it ends and whatever comes after it.

    ::

        down = await watch(ref)
        if isinstance(down.exit, Crashed): ...

    Returns at once if the actor is down. An actor that never ran counts as Killed("it never ran").
    """
    await checkpoint()
    incarnation = ref._cell.incarnation
    if incarnation is not None:
        await incarnation.ended.wait()
    exit = None if incarnation is None else incarnation.exit
    return Down(cast("Ref[Never]", ref), Killed("it never ran") if exit is None else exit)


# ------------------------------------------------------------ questions


def _make_question(
    cell: ActorCell, make: Callable[..., object], args: tuple[object, ...], timeout: float | None
) -> tuple[Exchange, object]:
    """Return the exchange and the message of a new question.

    Raises TypeError if the message does not carry its Reply as its first field, AskTimeout if its deadline is over.
    """
    deadline = math.inf if timeout is None else _deadline_after(timeout)
    handled = HANDLING.get()
    if handled is not None and handled.open:
        deadline = min(deadline, handled.deadline)
    exchange = Exchange(cell, deadline)
    message = make(Reply(exchange), *args)
    exchange.message_type = type(message)
    if exchange_of(message) is not exchange:
        raise TypeError(f"{type(message).__name__}: a message that is asked must have its Reply as its first field")
    if deadline <= trio.current_time():
        raise _timeout_error(exchange)
    return exchange, message


def _deadline_after(timeout: float) -> float:
    """Return the Trio time in so many seconds. Raises ValueError for NaN, which no time ever reaches."""
    if math.isnan(timeout):
        raise ValueError("timeout is nan; it must be a number of seconds, or None")
    return trio.current_time() + timeout


def _timeout_error(exchange: Exchange) -> AskTimeout:
    return cast("AskTimeout", exchange.make_error(AskTimeout, "no answer before the deadline"))


def _begin_wait(exchange: Exchange) -> None:
    """Record that the current task waits for the answer. Raises AskCycle if its actor would wait for itself."""
    asker = current_actor()
    if asker is not None and exchange.open:
        _check_cycle(asker, exchange)
        asker.waits_for, exchange.asker = exchange, asker
    exchange.waits[exchange] = current_task()


def _end_wait(exchange: Exchange) -> None:
    del exchange.waits[exchange]
    if exchange.asker is not None:
        exchange.asker.waits_for = None
        exchange.asker = None


def _check_cycle(asker: ActorCell | None, exchange: Exchange) -> None:
    """Raise AskCycle if the asker would wait for itself."""
    cycle = None if asker is None else find_cycle(asker, exchange.target)
    if cycle is not None:
        raise exchange.cycle_error(cycle)
