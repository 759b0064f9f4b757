"""What joins asker and callee (`Exchange`), and the callee's half of it (`Reply`)."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import outcome
import trio
from trio.lowlevel import Abort, Task, current_task, reschedule, wait_task_rescheduled

from actors._errors import ActorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors._cell import Cell
    from actors._life import Life

Q = TypeVar("Q", contravariant=True)


class Exchange:
    """What happens between one asker and whoever holds the Reply. Settled or left at most once, whichever is first.

    deadline: trio time after which nobody waits. holder: the run of an actor that has taken the question.
    """

    __slots__ = ("_outcome", "_scopes", "_task", "deadline", "holder", "kind", "left", "target")

    def __init__(self, target: Cell, deadline: float) -> None:
        self.target = target
        self.kind: type = object  # of the message
        self.deadline = deadline
        self.holder: Life | None = None
        self.left = False
        self._outcome: outcome.Outcome[object] | None = None
        self._task: Task | None = None
        self._scopes: list[trio.CancelScope] | None = None

    @property
    def open(self) -> bool:
        """Somebody waits, and there is no answer yet."""
        return self._outcome is None and not self.left

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

    def settle(self, result: outcome.Outcome[object]) -> None:
        self._outcome = result
        self._let_go()
        if self._task is not None:
            task, self._task = self._task, None
            reschedule(task, result)

    def fail(self, kind: type[ActorError], why: str, cause: BaseException | None = None) -> None:
        """The answer will never come: tell the asker, if it still waits."""
        if self.open:
            self.settle(outcome.Error(self.error(kind, why, cause)))

    def error(self, kind: type[ActorError], why: str, cause: BaseException | None = None) -> ActorError:
        error = kind(why, target=self.target.path, message_type=self.kind.__name__, time=trio.current_time())
        error.__cause__ = cause
        return error

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

    async def wait(self) -> object:
        """The answer. On cancel, the asker has not left."""
        if self._outcome is not None:
            await trio.lowlevel.checkpoint()
            return self._unwrap(self._outcome)
        if self._task is not None:
            raise trio.BusyResourceError("another task waits for this answer already")
        self._task = current_task()
        return await wait_task_rescheduled(self._stop_waiting)

    def _unwrap(self, result: outcome.Outcome[object]) -> object:
        if isinstance(result, outcome.Error):
            raise result.error
        return cast("outcome.Value[object]", result).value

    def _stop_waiting(self, _: Callable[[], object]) -> Abort:
        self._task = None
        return Abort.SUCCEEDED

    def leave(self) -> None:
        """Nobody waits any more: work for it may stop."""
        if not self.open:
            return
        self.left = True
        self._let_go()
        for scope in self._scopes or ():
            scope.cancel(reason="the asker has left")


class Reply(Generic[Q]):
    """The callee's half of a question: answer now, keep it and answer later, or hand it on in another message.

    A Reply that can no longer be answered, since nobody holds it or its actor has ended, fails the asker at once.
    """

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def send(self, value: Q) -> None:
        """Answer. Without effect when the asker has left; ActorError when it was answered before."""
        self._settle(outcome.Value(value))

    def fail(self, error: Exception) -> None:
        """Answer with an error, which is raised where the asker waits. Otherwise as `send`."""
        self._settle(outcome.Error(error))

    def _settle(self, result: outcome.Outcome[object]) -> None:
        exchange = self._exchange
        if exchange.left:
            return
        if exchange._outcome is not None:
            raise exchange.error(ActorError, "was answered already")
        exchange.settle(result)

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
