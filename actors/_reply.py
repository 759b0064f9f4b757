"""What joins asker and callee (`Exchange`), and the callee's half of it (`Reply`)."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import trio
from trio.lowlevel import Abort, Task, checkpoint, current_task, reschedule, wait_task_rescheduled

from actors._errors import ActorError, AskCycle

if TYPE_CHECKING:
    from collections.abc import Callable

    import outcome

    from actors._cell import Cell
    from actors._life import Life

Q = TypeVar("Q", contravariant=True)


class Exchange:
    """What happens between one asker and whoever holds the Reply. Settled or left at most once, whichever is first.

    deadline: trio time after which nobody waits. holder: the run of an actor that has taken the question. open:
    somebody waits, and there is no answer yet. left: nobody waits any more, so it need not be answered. asker: the
    actor whose own task waits for the answer. task: waits now.
    """

    __slots__ = (
        "_error",
        "_scopes",
        "_value",
        "asker",
        "deadline",
        "holder",
        "kind",
        "left",
        "open",
        "target",
        "task",
    )

    def __init__(self, target: Cell, deadline: float) -> None:
        self.target = target
        self.kind: type = object  # of the message
        self.deadline = deadline
        self.holder: Life | None = None
        self.asker: Cell | None = None
        self.open = True
        self.left = False
        self._value: object = None
        self._error: BaseException | None = None
        self.task: Task | None = None
        self._scopes: list[trio.CancelScope] | None = None

    # ------------------------------------------------------------ the callee's half

    def move_to(self, target: Cell) -> None:
        """The question goes into this mailbox: whoever held it has no part in it any more."""
        self.target = target
        self._let_go()

    def move_back(self, target: Cell, holder: Life | None) -> None:
        """There was no room: it stays where it was."""
        self.target = target
        if holder is not None:
            self.take(holder)

    def take(self, holder: Life) -> None:
        if self.open:
            self.holder = holder
            holder.held[self] = None

    def _let_go(self) -> None:
        if self.holder is not None:
            self.holder.held.pop(self, None)
            self.holder = None

    def settle(self, value: object, error: BaseException | None = None) -> None:
        """This is the answer. For one that is open."""
        self.open = False
        self._value = value
        self._error = error
        holder = self.holder
        if holder is not None:
            self.holder = None
            holder.held.pop(self, None)
        if self.task is not None:
            task, self.task = self.task, None
            reschedule(task, cast("outcome.Outcome[object]", self))

    def fail(self, kind: type[ActorError], why: str, cause: BaseException | None = None) -> None:
        """The answer will never come: tell the asker, if it still waits."""
        if self.open:
            self.settle(None, self.error(kind, why, cause))

    def error(self, kind: type[ActorError], why: str, cause: BaseException | None = None) -> ActorError:
        error = kind(why, target=self.target.path, message_type=self.kind.__name__, time=trio.current_time())
        error.__cause__ = cause
        return error

    def refuse(self, path: tuple[str, ...]) -> None:
        """Whoever waits for it would wait for itself: it waits no more. For one that is open."""
        self.settle(None, AskCycle(path, message_type=self.kind.__name__, time=trio.current_time()))
        self._abandon()

    def scope(self) -> trio.CancelScope:
        scope = trio.CancelScope()
        if self.left:
            scope.cancel(reason="the asker has left")
        elif self._scopes is None:
            self._scopes = [scope]
        else:
            self._scopes.append(scope)
        return scope

    # ------------------------------------------------------------ the asker's half

    @property
    def settled(self) -> bool:
        """There is an answer, or it is known that none will come."""
        return not self.open and (self._error is not None or not self.left)

    async def wait(self) -> object:
        """The answer. On cancel, the asker has not left."""
        if self.settled:
            await checkpoint()
            return self.unwrap()
        if self.task is not None:
            raise trio.BusyResourceError("another task waits for this answer already")
        self.task = current_task()
        return await wait_task_rescheduled(self._stop_waiting)

    def unwrap(self) -> object:
        """The answer. Trio calls this when it wakes the asker: an Exchange is all that it wants of an Outcome."""
        if self._error is None:
            return self._value
        try:
            raise self._error
        finally:
            del self  # or the error's traceback would keep what keeps the error

    def _stop_waiting(self, _: Callable[[], object]) -> Abort:
        self.task = None
        return Abort.SUCCEEDED

    def leave(self) -> None:
        """Nobody waits any more: work for it may stop."""
        if not self.open:
            return
        self.open = False
        self._let_go()
        self._abandon()

    def _abandon(self) -> None:
        self.left = True
        for scope in self._scopes or ():
            scope.cancel(reason="the asker has left")


class Reply(Generic[Q]):
    """The callee's half of a question: answer now, keep it and answer later, or hand it on.

    It is handed on by a message that has it as its first field, or to a new Child among whose `args` it or such a
    message is.

    A Reply that can no longer be answered, since nobody holds it or its actor has ended, fails the asker at once.
    """

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def send(self, value: Q) -> None:
        """Answer. Without effect when the asker has left; ActorError when it was answered before."""
        exchange = self._exchange
        if exchange.open:
            exchange.settle(value)
        elif not exchange.left:
            raise exchange.error(ActorError, "was answered already")

    def fail(self, error: Exception) -> None:
        """Answer with an error, which is raised where the asker waits. Otherwise as `send`."""
        if not isinstance(error, BaseException):
            raise TypeError(f"Reply.fail got {error!r}; it must be an exception")
        exchange = self._exchange
        if exchange.open:
            exchange.settle(None, error)
        elif not exchange.left:
            raise exchange.error(ActorError, "was answered already")

    @property
    def abandoned(self) -> bool:
        """The asker has left: it timed out, was cancelled, or dropped its Answer."""
        return self._exchange.left

    def scope(self) -> trio.CancelScope:
        """A new cancel scope that is cancelled when the asker leaves, for work that is of use to it alone."""
        return self._exchange.scope()

    def __del__(self) -> None:
        if self._exchange.open:
            in_trio(self._exchange, _dropped)


def _dropped(exchange: Exchange) -> None:
    exchange.fail(ActorError, "the question was dropped without an answer")


def in_trio(exchange: Exchange, what: Callable[[Exchange], None]) -> None:
    """Call `what` in Trio's thread: the garbage collector may run in any."""
    system = exchange.target.system
    if get_ident() == system.thread:
        if trio.lowlevel.in_trio_run():
            what(exchange)
        return
    try:
        system.token.run_sync_soon(what, exchange)
    except trio.RunFinishedError:
        return
