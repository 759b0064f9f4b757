"""The actor that keeps the approvals: it makes them, takes the answers, lets them expire, and calls `on_change` for each change.

Each step is in the file (`approvals_file`) before anybody is told. The last line of an approval says that its task goes on. Without
it a crash may have come between the answer and the resume of the task, which is then made again: `on_change` is called until it has
returned. At a start the file is read, and written anew when it holds much that is over.

The actor decides nothing and knows no channel: `on_change` of the composition root shows approvals to people and lets tasks go on.

A crash leaves one of three states in the file:

    the opening line only          the approval waits; `on_change` shows it again. A question of a call is withdrawn: its call is gone
    an end, no `carriedOut`        `on_change` is called again for the end, since nobody knows whether its task goes on
    `carriedOut`                   nothing is done; the approval is kept for a while, for a call that asks again by its key

So `on_change` must bear to be called twice for the same state. Each change is told by a task of its own, so that a channel that
hangs holds up no answer. For this reason the end of an approval may be told before its opening, if telling that has failed once.

Requests are handled one after the other, and the journal is waited for in between. So of two answers the first is written, and the
second is refused. An approval that is over by the clock is refused as well, even if `expire` has not come to it yet.

There are three ways to hear of the end: `on_change`, for channels and suspended tasks; `AwaitApproval`, for a call under way that
waits; and `SeekApproval` or `FindApproval` with the same key, for a call that is made again.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, TypeAlias

import attrs
import trio

from actors import ActorError, Inbox, Ref, Reply
from pegasus.formatting import quote, truncate, typed_id
from pegasus.observe import get_logger
from pegasus.policy.approvals import (
    AnswerApproval,
    Approval,
    ApprovalError,
    ApprovalMessage,
    ApprovalRequest,
    ApprovalState,
    AwaitApproval,
    FindApproval,
    ListApprovals,
    SeekApproval,
    WithdrawApprovals,
)
from pegasus.policy.approvals_file import (
    FILE,
    carried_out_line,
    closing_line,
    opening_line,
    read_approvals,
    rewrite_lines,
)
from pegasus.policy.forms import FormError, fill_form
from pegasus.policy.principal import Role
from pegasus.settings import InForce
from pegasus.storage import Commit, JournalMessage, ReadFile, ReplaceFile, StorageError

MOST_OPEN: Final = 100
"""Approvals that may wait at a time. More would not be read by anybody."""
MOST_FOR_GUESTS: Final = 20
"""Number of them that may be for the work of guests, so that they cannot keep the owner's from being asked."""
MOST_KEPT: Final = 1000
"""Lines of the file above which a start writes it anew, with what still matters."""
MOST_OLD: Final = 200
"""Approvals that are over and carried out, of which this many are remembered: the call behind one may not have been made yet."""
RETRY: Final = 5.0
"""Seconds until `on_change` is called again after it has failed."""
LONGEST_PAUSE: Final = 60.0
"""Seconds between two looks at the wall clock while something waits: it may be set, and the machine may sleep."""

OnChange: TypeAlias = Callable[[Approval], Awaitable[None]]
"""Called when an approval is new, and when it is not open any more. Called again after a failure (ActorError, StorageError)."""

_log = get_logger("approvals")


async def approvals_keeper(
    inbox: Inbox[ApprovalMessage],
    journal: Ref[JournalMessage],
    clock: Callable[[], int],
    random: Random,
    timeout: InForce[float],
    on_change: OnChange,
) -> None:
    """Keep the approvals. It is up when the file is read. Raises StorageError if it cannot be.

    clock: wall clock, ms. timeout: the setting `policy.timeout`, for each new approval.
    Cancelled: what was answered is on disk, and carried out at the next start.

    Example: `Child("approvals", approvals_keeper, journal, clock, random, InForce(3600.0), desk.changed)`.
    """
    # The nursery runs `expire` and one task for each change that is being told.
    async with trio.open_nursery() as nursery:
        keeper = _Keeper(journal, clock, random, timeout, on_change, nursery)
        await keeper.load()
        inbox.started()
        nursery.start_soon(keeper.expire)
        async for message in inbox:
            try:
                await keeper.handle(message)
            except (ApprovalError, StorageError, ActorError) as error:
                # It is the only request without a reply.
                if isinstance(message, WithdrawApprovals):
                    tasks = ", ".join(message.task_ids)
                    _log.warning("the approvals of tasks could not be withdrawn", tasks=tasks, error=str(error))
                else:
                    message.reply.fail(error)
        nursery.cancel_scope.cancel()


class _Keeper:
    """The approvals in memory, and their file."""

    def __init__(
        self,
        journal: Ref[JournalMessage],
        clock: Callable[[], int],
        random: Random,
        timeout: InForce[float],
        on_change: OnChange,
        nursery: trio.Nursery,
    ) -> None:
        self._journal = journal
        """Keeps the file of the approvals."""
        self._clock = clock
        """Wall clock, ms."""
        self._random = random
        """Makes the ids."""
        self._timeout = timeout
        """The setting `policy.timeout`; an approval that waits already keeps the time that it was given."""
        self._on_change = on_change
        """Shows approvals to people, and lets tasks go on."""
        self._nursery = nursery
        """Runs the tasks that call `on_change`."""
        self._approvals: dict[str, Approval] = {}
        """By id, oldest first."""
        self._by_key: dict[str, str] = {}
        """Id of the newest approval of each call."""
        self._always: set[str] = set()
        """Digests of the calls that were allowed for ever."""
        self._waiting: dict[str, list[Reply[Approval]]] = {}
        """Requests to answer when an approval is over, by its id."""
        self._changed = trio.Event()
        """Set when the next time of expiry may have changed."""
        self._lock = trio.Lock()
        """Held from the look at an approval's state until its next state is on disk, so that it ends once: answered or expired."""

    async def handle(self, message: ApprovalMessage) -> None:
        """Carry out a request and answer it. Raises ApprovalError, StorageError, ActorError."""
        async with self._lock:
            await self._handle(message)

    async def _handle(self, message: ApprovalMessage) -> None:
        """Carry out a request. Each case has answered, or has kept the reply for later (`AwaitApproval`), when it returns."""
        match message:
            case SeekApproval(reply, request):
                reply.send(await self._seek(request))
            case AnswerApproval(reply, id):
                reply.send(await self._answer(self._get(id), message))
            case AwaitApproval(reply, id):
                approval = self._approvals.get(id)
                if approval is None:
                    raise ApprovalError(f"There is no approval {quote(id, 20)}.")
                if approval.is_open:
                    self._waiting.setdefault(id, []).append(reply)
                else:
                    reply.send(approval)
            case FindApproval(reply, key):
                reply.send(self._approvals.get(self._by_key.get(key, "")))
            case ListApprovals(reply):
                reply.send(tuple(self._open()))
            case WithdrawApprovals(task_ids, id):
                for approval in self._open():
                    if approval.request.task_id in task_ids and id in ("", approval.id):
                        await self._close(attrs.evolve(approval, state=ApprovalState.WITHDRAWN))

    def _open(self) -> list[Approval]:
        """Return the approvals that wait, oldest first."""
        return [approval for approval in self._approvals.values() if approval.is_open]

    def _get(self, id: str) -> Approval:
        """Return an open approval. Raises ApprovalError."""
        approval = self._approvals.get(id)
        if approval is None:
            waiting = ", ".join(other.id for other in self._open())
            raise ApprovalError(f"There is no approval {quote(id, 20)}. Waiting: {waiting or 'none'}.")
        if not approval.is_open or approval.expires <= self._clock():
            state = ApprovalState.EXPIRED if approval.is_open else approval.state
            by = f" by {approval.by}" if approval.by else ""
            raise ApprovalError(f"{id} is {state.value} already{by}. The first answer counts.")
        return approval

    async def _answer(self, approval: Approval, answer: AnswerApproval) -> Approval:
        """Return the approval with this answer, which is on disk. Raises ApprovalError for one that does not fit."""
        question, values = approval.request.question, dict(answer.values)
        if not answer.is_allowed:
            reason = truncate(answer.reason, 500)
            denied = attrs.evolve(approval, state=ApprovalState.DENIED, by=answer.by, reason=reason)
            return await self._close(denied)
        if question is None and values:
            raise ApprovalError(f"{approval.id} asks for a yes or no, and has no form.")
        if question is not None:
            if answer.is_for_ever:
                # A yes for ever is bound to tool and arguments; the values of a form are none of these.
                raise ApprovalError(f"{approval.id} is a question, which can only be answered once.")
            try:
                values = fill_form(question.fields, values)
            except FormError as error:
                raise ApprovalError(f"{approval.id}: {error}.") from None
        scope = "always" if answer.is_for_ever else "once"
        allowed = attrs.evolve(approval, state=ApprovalState.ALLOWED, scope=scope, by=answer.by, values=values)
        return await self._close(allowed)

    async def _seek(self, request: ApprovalRequest) -> Approval:
        """Return the approval of a call, which may be new. Raises ApprovalError if too many wait.

        The same call with the same arguments gets the approval that it has, also one that is over: that is how a call that is made
        again after a restart finds its answer. A question of the program itself takes the place of the one before with the same key.
        A call that was allowed for ever gets an approval without an id, which stands nowhere.
        """
        known = self._approvals.get(self._by_key.get(request.key, ""))
        if known is not None and known.request.digest == request.digest and not known.is_asked_again:
            return known
        if known is not None and known.is_open and not request.task_id:
            await self._close(attrs.evolve(known, state=ApprovalState.WITHDRAWN))
        now = self._clock()
        expires = now + round(self._timeout.now * 1000)
        if request.question is None and request.digest in self._always:
            return Approval("", request, now, expires, ApprovalState.ALLOWED, "always")
        waiting = [approval.request.who for approval in self._open()]
        if len(waiting) >= MOST_OPEN or (
            request.who is not Role.OWNER and waiting.count(request.who) >= MOST_FOR_GUESTS
        ):
            raise ApprovalError("too many calls wait for the owner's approval already")
        approval = Approval(typed_id("a-", 4, self._random, self._approvals), request, now, expires)
        # On disk first: an approval that people can see is one that a restart knows.
        await self._write(opening_line(approval))
        self._add(approval)
        self._changed.set()
        self._report_change(approval)
        return approval

    def _add(self, approval: Approval) -> None:
        """Keep an approval in its present state."""
        # Between starts the memory is bounded here; the file only grows, and is written anew at the next start.
        if len(self._approvals) > 2 * MOST_KEPT:
            self._forget_old()
        if approval.id not in self._approvals:  # a later step may be about one that another has replaced
            self._by_key[approval.request.key] = approval.id
        self._approvals[approval.id] = approval
        if approval.serves_always:
            self._always.add(approval.request.digest)

    async def _close(self, closed: Approval) -> Approval:
        """Write the end of an approval, and then let those who wait for it, and its task, know. closed: in its last state."""
        # On disk first, then in memory: if the disk refuses, the approval is still open, and the person can answer again.
        await self._write(closing_line(closed, self._clock()))
        self._add(closed)
        self._changed.set()
        for reply in self._waiting.pop(closed.id, ()):
            reply.send(closed)
        self._report_change(closed)
        return closed

    def _report_change(self, approval: Approval) -> None:
        """Call `on_change` in a task of its own, again and again until it has not failed."""

        async def tell() -> None:
            """Call `on_change` until it returns; then record that the end was carried out."""
            while True:
                try:
                    await self._on_change(approval)
                    # A crash before this line means that `on_change` is called once more at the next start.
                    if not approval.is_open:
                        await self._write(carried_out_line(approval))
                        self._add(attrs.evolve(approval, is_carried_out=True))
                except (ActorError, StorageError) as error:
                    _log.warning("an approval could not be carried out yet", id=approval.id, error=str(error))
                    await trio.sleep(RETRY)
                else:
                    return

        self._nursery.start_soon(tell)

    async def expire(self) -> None:
        """Close approvals whose time is over, until cancelled. A disk that refuses is asked again.

        The event is replaced before the approvals are looked at, so that a change in between ends the wait that follows.
        """
        while True:
            self._changed = trio.Event()
            now = self._clock()
            waiting = self._open()
            pause = min((approval.expires - now for approval in waiting), default=math.inf) / 1000
            if waiting:
                pause = min(pause, LONGEST_PAUSE)
            with trio.move_on_after(max(0.0, pause)):
                await self._changed.wait()
                continue
            try:
                for approval in waiting:
                    async with self._lock:
                        # Looked at again under the lock: an answer may have come while it was waited for, or the clock was set
                        # back.
                        if approval.expires <= self._clock() and self._approvals[approval.id].is_open:
                            await self._close(attrs.evolve(approval, state=ApprovalState.EXPIRED))
            except (StorageError, ActorError) as error:
                _log.warning("an approval has expired, which is not on disk", error=str(error))
            await trio.sleep(0.01)  # the wall clock may be behind Trio's by a fraction

    # ---------------------------------------------------------------- the file

    async def load(self) -> None:
        """Read the file. Open questions are withdrawn; what is over and carried out is forgotten, unless it was allowed for ever.

        Lines that cannot be understood are logged and left out; the file is then kept beside its place. Raises StorageError.
        """
        content = await self._journal.ask(ReadFile, FILE)
        found = read_approvals(content)
        for problem in found.problems:
            _log.warning("a line of the approvals cannot be read", problem=problem)
        for approval in found.approvals:
            self._add(approval)
        if found.problems:
            # The copy comes first, so that a crash in between loses no line.
            await self._journal.ask(ReplaceFile, f"{FILE}.bad-{self._clock()}", content)
        kept = self._forget_old()
        if found.problems or found.lines > MOST_KEPT:
            # Before anything is told: what is told appends lines, and they must not be replaced.
            await self._journal.ask(ReplaceFile, FILE, rewrite_lines(kept))
        for approval in kept:
            if approval.is_open and approval.request.question is not None:
                await self._close(attrs.evolve(approval, state=ApprovalState.WITHDRAWN))
            elif not approval.is_carried_out:
                self._report_change(approval)

    def _forget_old(self) -> list[Approval]:
        """Forget what is over and carried out, except for the newest, and return the rest. What is allowed for ever stays so."""
        old = [
            approval for approval in self._approvals.values() if approval.is_carried_out and not approval.serves_always
        ]
        for approval in old[:-MOST_OLD]:
            del self._approvals[approval.id]
            if self._by_key.get(approval.request.key) == approval.id:
                del self._by_key[approval.request.key]
        return list(self._approvals.values())

    async def _write(self, line: bytes) -> None:
        """Append a line; it is on disk when this returns. Raises StorageError, ActorError."""
        await self._journal.ask(Commit, ((FILE, line),))
