"""Calls under way at one server, and the questions that the server asks meanwhile.

A call runs in the nursery of the connection, and its caller waits for it. Normally that makes no difference: whoever cancels the
caller cancels the call. But a server may ask the person something before it goes on (`questions`), and a person takes minutes or
hours. Then the caller leaves with `AwaitsOwner`, so its task is suspended and holds no slot, while the call waits on at the server.
When the question is over, the task makes the same call again, and finds this one by its key.

* Which call a question belongs to: with the newest protocol the question is an answer to the call itself. With older ones it is a
  request that names no call; it counts for the newest call under way, and for one by a guest's work before any by an owner's.
* Only a task can wait. Questions during a call of the Main Agent are answered with "cancel", and the result says so.
* A call asks at most MOST_QUESTIONS times, one after the other.
* When the task is ended its question is withdrawn, and with it the call. A call whose question was answered has the time of the
  server's `timeout` from then on, since its task may have been ended in that moment.
* When the connection ends, or this process, the call is lost. Its task is told so and does not make it a second time: nobody knows
  what it did before it asked.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Final, Protocol, TypeAlias

import attrs
import trio

from actors import ActorError, Signal
from pegasus.access import Approval, ApprovalError, ApprovalState
from pegasus.mcp.listing import clean
from pegasus.mcp.questions import BadQuestion, ServerAnswer, ServerQuestion, read_question
from pegasus.messages import OwnerQuestion
from pegasus.observe import get_logger
from pegasus.storage import StorageError
from pegasus.tools import AwaitsOwner, CallQuestions, ResultWithImages, ToolContext, ToolError

MOST_QUESTIONS: Final = 5
"""Questions of one call that a person is shown."""
TO_TELL: Final = 0.05
"""Seconds before the deadline of a call at which it is ended, so that its last report can be told."""
LONGEST_REPORT: Final = 200
"""Characters of the words of such a report."""
MOST_LEFT: Final = 16
"""Results that are kept for tasks that have not come back yet."""

LOST: Final = "it ended during the call, so it is unknown whether the call had an effect. Look before you make it again"
"""Error of a call whose server has ended."""
LOST_WITH_PROCESS: Final = (
    "it had asked the owner something, and the agent was restarted before the call came to its end, so it is unknown whether the call "
    "had an effect. Look before you make it again"
)
"""Error of a call that an earlier process has begun."""


class ReportProgress(Protocol):
    """Takes the progress of a call as the server tells it. The names are those of the SDK.

    Example::

        async def work(report: ReportProgress) -> Illustrated:
            await report(3, 10, "pages")
            return Illustrated({"pages": 10}, ())
    """

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Take what is done, the total if it is known, and the server's words.

        A report becomes part of the error of a call that is ended at its deadline. It neither ends a call nor gives it more time.
        """


Work: TypeAlias = Callable[[ReportProgress], Awaitable[ResultWithImages]]
"""Makes a call on a connection and returns its result. Raises ToolError."""

_NOTHING: Final = ResultWithImages(None, ())
_CANCEL: Final = ServerAnswer("cancel")
_log = get_logger("mcp")


@attrs.define(eq=False, repr=False)
class CallUnderWay:
    """A call that was begun. `ServerCalls` makes it; the work of the call and the questions of the server change it.

    Example::

        call = CallUnderWay(context.key, context)
        await call.report(3, 10, "pages")   # call.last_report is "3 of 10, pages"
        call.refuse("its form is none")     # becomes a note in the result
    """

    key: object
    """Key of the call, if its task can come back to it."""
    context: ToolContext
    """Of the task or the agent that has made it."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancels it."""
    changed: Signal = attrs.field(factory=Signal)
    """Given when anything below has changed."""
    over: trio.Event = attrs.field(factory=trio.Event)
    """Set when it has ended."""
    result: ResultWithImages = _NOTHING
    """Result of the work. It counts only where `over` is set and `error` is None."""
    error: Exception | None = None
    """Reason for having no result."""
    approval: str = ""
    """Id of the question that is open, "" if none is."""
    questions: int = 0
    """Questions so far."""
    turn: trio.Lock = attrs.field(factory=trio.Lock)
    """Held by the question that is shown; further ones wait."""
    last_report: str = ""
    """Progress as the server has last reported it."""
    refusals: list[str] = attrs.field(factory=list)
    """Reason why the person was not shown some of them."""

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Take a report of progress."""
        words = f", {clean(message, LONGEST_REPORT)}" if message else ""
        self.last_report = f"{progress:g}" + (f" of {total:g}" if total is not None else "") + words

    def refuse(self, why: str) -> None:
        """Remember why a question was not shown, for the model. Of a thousand reasons the first ones will do."""
        if why not in self.refusals and len(self.refusals) < MOST_QUESTIONS:
            self.refusals.append(why)


_current: ContextVar[CallUnderWay | None] = ContextVar("pegasus_mcp_call", default=None)
"""The call that a task of the SDK works on; None in tasks that work on whatever the server sends by itself."""


class ServerCalls:
    """The calls of one server. It outlives the connections, so a task may come back after one has ended and is told so.

    Example::

        calls = ServerCalls("hotel", 60.0)
        made = await calls.make("hotel__book", context, lambda: (nursery, work))
        if isinstance(made, AwaitsOwner): ...   # the task is suspended until this approval is over: made.approval
    """

    def __init__(self, server: str, timeout: float) -> None:
        """Begin without calls. timeout: seconds that a call may take after a question, until its task has come back."""
        self._server = server
        self._timeout = timeout
        self._calls: dict[object, CallUnderWay] = {}
        """By key. Those that are over are here until their task has come back."""

    async def finish(self, seconds: float) -> None:
        """Wait until no call is under way, for so many seconds at most."""
        with trio.move_on_after(seconds):
            for call in [call for call in self._calls.values() if not call.over.is_set()]:
                await call.over.wait()

    async def make(
        self, tool: str, context: ToolContext, begin: Callable[[], tuple[trio.Nursery, Work]]
    ) -> ResultWithImages | AwaitsOwner:
        """Return the result of a call, or that it waits for an owner. A task that comes back waits for the call that it has begun.

        tool: its name. begin: returns the nursery of the connection and the work; raises ToolError where there is no connection.

        Raises ToolError: that of the work, or when the caller's time is nearly over, with the last report of the call's progress.
        Cancelled: so is the call, and it has ended when this returns.
        """
        left = trio.current_effective_deadline() - trio.current_time()
        deadline = trio.current_time() + max(0.0, left - TO_TELL)
        if context.questions is None:  # nobody leaves this call, so it needs no task of its own
            _, work = begin()
            call = self._add(context)
            call.scope.deadline = deadline
            await self._run(call, work)
            is_late = call.scope.cancelled_caught
        else:
            # A task that comes back has the same key as before, so the call is found and not made a second time.
            call = self._calls.get(context.key) or await self._begin(context, context.questions, begin)
            with trio.CancelScope(deadline=deadline) as scope:
                await self._wait(call)
            is_late = scope.cancelled_caught
        if is_late:
            report = f"; its last report: {call.last_report}" if call.last_report else ""
            raise ToolError(f"{tool} was ended: it took longer than {left:.3g} s{report}")
        return _result_of(call) if call.over.is_set() else AwaitsOwner(call.approval)

    async def _begin(
        self, context: ToolContext, questions: CallQuestions, begin: Callable[[], tuple[trio.Nursery, Work]]
    ) -> CallUnderWay:
        """Begin a call in the nursery of the connection. Raises ToolError, also if it was begun by an earlier process."""
        # Asked first: nothing may be begun for a call that an earlier process had begun and lost.
        if await _were_asked(questions):
            raise ToolError(f"the MCP server {self._server}: {LOST_WITH_PROCESS}")
        nursery, work = begin()
        call = self._add(context)
        nursery.start_soon(self._run, call, work)
        return call

    def _add(self, context: ToolContext) -> CallUnderWay:
        """Return a new call, kept under its key until its task has come back."""
        # A call that nobody comes back to needs no key that can be found again, only one of its own.
        key: object = context.key if context.questions is not None else object()
        call = self._calls[key] = CallUnderWay(key, context)
        return call

    async def _wait(self, call: CallUnderWay) -> None:
        """Wait until a call is over, or asks. Cancelled: it is cancelled, too, and has ended when this returns."""
        # The caller is here, and its own deadline counts. That of the time after a question is for calls that nobody
        # waits for.
        call.scope.deadline = math.inf
        try:
            while not call.over.is_set() and not call.approval:
                await call.changed.wait()
        except BaseException:
            call.scope.cancel()
            with trio.CancelScope(shield=True):
                await call.over.wait()
            raise
        finally:
            if call.over.is_set():
                self._calls.pop(call.key, None)

    async def _run(self, call: CallUnderWay, work: Work) -> None:
        """Do the work of a call, and keep what comes of it."""
        call.error = ToolError(f"the MCP server {self._server}: {LOST}")  # unless the work comes to an end
        token = _current.set(call)
        try:
            with call.scope:
                call.result = await work(call.report)
                call.error = None
            if call.scope.cancelled_caught:  # whoever has cancelled it does not read this
                call.error = ToolError(f"the MCP server {self._server}: it took longer than {self._timeout:g} s")
        except Exception as error:  # it is raised where the result is waited for
            call.error = error
        finally:
            _current.reset(token)
            call.over.set()
            call.changed.notify()
            if call.context.questions is None:
                del self._calls[call.key]
            elif call.approval:  # the server has not waited for its own question
                call.context.questions.withdraw(call.approval)
            self._forget()

    def _forget(self) -> None:
        """Drop the oldest results that nobody has come back for."""
        left = [key for key, call in self._calls.items() if call.over.is_set()]
        for key in left[:-MOST_LEFT]:
            del self._calls[key]

    # ------------------------------------------------------------------ questions

    async def ask(self, asked: ServerQuestion) -> ServerAnswer:
        """Return the answer to a question of the server. Raises BadQuestion for one that nobody is shown.

        Cancelled: the question is withdrawn.
        """
        call = _current.get() or self._likely_asker()
        if call is None:  # nobody has called anything
            return _CANCEL
        if call.context.questions is None:
            call.refuse("only a task can wait for an answer: delegate the work")
            return _CANCEL
        if call.questions >= MOST_QUESTIONS:
            call.refuse(f"{MOST_QUESTIONS} questions are the most of one call")
            return _CANCEL
        try:
            question = read_question(self._server, asked)
        except BadQuestion as error:
            call.refuse(str(error))
            raise
        call.questions += 1
        number = call.questions
        async with call.turn:
            if call.scope.cancel_called:  # it was ended while this question waited for its turn
                return _CANCEL
            try:
                approval = await self._ask_owner(call, question, number)
            except (ApprovalError, StorageError, ActorError) as error:
                call.refuse(str(error))
                return _CANCEL
            if approval.state is ApprovalState.WITHDRAWN:  # its task was ended
                call.scope.cancel()
                await trio.lowlevel.checkpoint()  # ends here if the question is part of the call
        match approval.state:
            case ApprovalState.ALLOWED:
                return ServerAnswer("accept", None if question.url else dict(approval.values))
            case ApprovalState.DENIED:
                return ServerAnswer("decline")
        return _CANCEL

    async def _ask_owner(self, call: CallUnderWay, question: OwnerQuestion, number: int) -> Approval:
        """Ask an owner, and return the approval when it is over. Raises ApprovalError, StorageError, ActorError.

        Meanwhile the caller leaves. Cancelled: the question is withdrawn.
        """
        questions = call.context.questions
        assert questions is not None  # noqa: S101
        id = await questions.ask(question, number)
        _log.info("MCP server asks", server=self._server, approval=id)
        call.approval = id
        call.changed.notify()
        if call.over.is_set():  # it has ended while the question was written
            questions.withdraw(id)
        try:
            return await questions.wait(id)
        except BaseException:
            questions.withdraw(id)
            raise
        finally:
            call.approval = ""
            call.scope.deadline = trio.current_time() + self._timeout
            call.changed.notify()

    def _likely_asker(self) -> CallUnderWay | None:
        """Return the call that a question without one counts for."""
        newest_first = [call for call in reversed(self._calls.values()) if not call.over.is_set()]
        # False sorts before True: work of guests comes first, so a doubtful question never counts as one of an owner's
        # call.
        return min(newest_first, key=lambda call: call.context.principal.is_owner, default=None)


def _result_of(call: CallUnderWay) -> ResultWithImages:
    """Return the result of a call that is over, with a note about questions that nobody was shown. Raises what the call has raised."""
    note = f"The server wanted to ask the owner, but {'; '.join(call.refusals)}." if call.refusals else ""
    if isinstance(call.error, ToolError) and note:
        raise ToolError(f"{call.error}. {note}")
    if call.error is not None:
        raise call.error
    if not note or not isinstance(call.result.result, dict):
        return call.result
    return attrs.evolve(call.result, result={**call.result.result, "note": note})


async def _were_asked(questions: CallQuestions) -> bool:
    """Return whether a call has asked before. Raises ToolError if that cannot be known now: it might be made a second time."""
    try:
        return await questions.were_asked()
    except ActorError:
        raise ToolError("the approvals cannot be reached at the moment, so no tool of a server can be called") from None
