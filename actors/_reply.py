"""One question and its answer: the callee's half (`Reply`), the asker's half (`Answer`), and what joins them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import outcome
import trio
from trio.lowlevel import Abort, Task, current_task, reschedule, wait_task_rescheduled

from actors._errors import ActorDied, ActorError, AskTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors._cell import Cell
    from actors._life import Life

R = TypeVar("R", covariant=True)
Q = TypeVar("Q", contravariant=True)


class Exchange:
    """What happens between one asker and whoever holds the Reply. Settled or left at most once, whichever is first.

    deadline: trio time after which nobody waits. holder: the run of an actor that has taken the question.
    """

    __slots__ = ("_outcome", "_scopes", "_task", "deadline", "holder", "left", "message_type", "target")

    def __init__(self, target: Cell, deadline: float) -> None:
        self.target = target
        self.message_type = ""
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

    def settle(self, result: outcome.Outcome[object]) -> None:
        self._outcome = result
        if self.holder is not None:
            self.holder.held.discard(self)
            self.holder = None
        if self._task is not None:
            task, self._task = self._task, None
            reschedule(task, result)

    def fail(self, why: str, cause: BaseException | None = None) -> None:
        """The answer will never come: tell the asker, if it still waits."""
        if self.open:
            self.settle(outcome.Error(self.error(ActorDied, why, cause)))

    def error(self, kind: type[ActorError], why: str, cause: BaseException | None = None) -> ActorError:
        error = kind(why, target=self.target.path, message_type=self.message_type, time=trio.current_time())
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
        if self.holder is not None:
            self.holder.held.discard(self)
            self.holder = None
        for scope in self._scopes or ():
            scope.cancel(reason="the asker has left")

    def timed_out(self) -> AskTimeout:
        waited = "its deadline passed before there was an answer"
        return AskTimeout(waited, target=self.target.path, message_type=self.message_type, time=trio.current_time())


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
            _in_trio(self._exchange, _dropped)


class Answer(Generic[R]):
    """The asker's half of a question that was asked with `request`. Dropping it means leaving."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def get(self, timeout: float | None = None) -> R:
        """Wait for the answer, at most `timeout` seconds and not beyond a deadline inherited when asking.

        Raises what Reply.fail was given, ActorDied, AskCycle, or AskTimeout, after which the asker has left. On
        cancel it has not: `get` may be called again.
        """
        from actors._ask import wait_for_answer

        return cast("R", await wait_for_answer(self._exchange, timeout))

    def __del__(self) -> None:
        if self._exchange.open:
            _in_trio(self._exchange, Exchange.leave)


def _dropped(exchange: Exchange) -> None:
    exchange.fail("the question was dropped without an answer")


def _in_trio(exchange: Exchange, what: Callable[[Exchange], None]) -> None:
    """Call `what` in Trio's thread: the garbage collector may run in any."""
    system = exchange.target.system
    if threading.get_ident() == system.thread:
        if trio.lowlevel.in_trio_run():
            what(exchange)
        return
    try:
        system.token.run_sync_soon(what, exchange)
    except trio.RunFinishedError:
        return
