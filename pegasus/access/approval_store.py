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

A yes that serves for later calls makes grants (`grant_book`), which are written in the same step as the answer. What they cover gets
an approval without an id, which stands nowhere. A call of a plan is noted under its key before it is made: the same call made again
after a crash is allowed again, and another one is not.

There are three ways to hear of the end: `on_change`, for channels and suspended tasks; `AwaitApproval`, for a call under way that
waits; and `SeekApproval` or `FindApproval` with the same key, for a call that is made again.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final, TypeAlias

import attrs
import trio

from actors import ActorError, Inbox, Ref, Reply, Signal
from pegasus.access.approvals import (
    AnswerApproval,
    Approval,
    ApprovalError,
    ApprovalMessage,
    ApprovalRequest,
    ApprovalState,
    AskedCall,
    AwaitApproval,
    FindApproval,
    ListApprovals,
    ListGrants,
    RevokeGrant,
    SeekApproval,
    WithdrawApprovals,
)
from pegasus.access.approvals_file import (
    ApprovalsContent,
    carried_out_line,
    closing_line,
    opening_line,
    revoked_line,
    rewrite_lines,
    used_line,
)
from pegasus.access.grant_book import GrantBook, ServerTools, check_scope, no_server_tools
from pegasus.access.grants import CallGrant
from pegasus.access.plans import PlanBook
from pegasus.access.principal import Role
from pegasus.formatting import quote, truncate, typed_id
from pegasus.messages import Metadata
from pegasus.observe import get_logger
from pegasus.policy import FormError, fill_form
from pegasus.retry import retry
from pegasus.settings import LiveValue
from pegasus.storage import Changed, JournalMessage, LineStore, NextChange, StorageError
from pegasus.wire import encode_json, to_wire

MOST_OPEN: Final = 100
"""Approvals that may wait at a time. More would not be read by anybody."""
MOST_FOR_GUESTS: Final = 20
"""Number of them that may be for the work of guests, so that they cannot keep the owner's from being asked."""
MOST_CALLS: Final = 20
"""Calls that one approval may ask about. A person reads each of them."""
MOST_BYTES: Final = 1 << 20
"""Characters that the arguments of further calls may have in an approval, as JSON."""
MOST_KEPT: Final = 1000
"""Lines of the file above which a start writes it anew, with what still matters."""
MOST_OLD: Final = 200
"""Approvals that are over and carried out, of which this many are remembered: the call behind one may not have been made yet."""
LONGEST_PAUSE: Final = 60.0
"""Seconds between two looks at the wall clock while something waits: it may be set, and the machine may sleep."""

OnChange: TypeAlias = Callable[[Approval], Awaitable[object]]
"""Called when an approval is new, and when it is not open any more. Called again after a failure (ActorError, StorageError), and after
False, which means that another node is to carry it out and may not have done so yet."""

_log = get_logger("approvals")


async def serve_approvals(
    inbox: Inbox[ApprovalMessage],
    journal: Ref[JournalMessage],
    clock: Callable[[], int],
    random: Random,
    timeout: LiveValue[float],
    on_change: OnChange,
    server_tools: ServerTools = no_server_tools,
    *,
    is_shared: bool = False,
) -> None:
    """Keep the approvals. It is up when the file is read. Raises StorageError if it cannot be.

    clock: wall clock, ms. timeout: the setting `policy.timeout`, for each new approval. server_tools: returns the tools of an MCP
    server, for grants. is_shared: other nodes make and answer approvals, too, and what they do is followed.
    Cancelled: what was answered is on disk, and carried out at the next start.
    """
    # The nursery runs `expire` and one task for each change that is being told.
    async with trio.open_nursery() as nursery:
        keeper = _ApprovalStore(
            LineStore("approvals", journal), clock, random, timeout, on_change, nursery, server_tools, is_shared
        )
        await keeper.load()
        inbox.started()
        if is_shared:
            nursery.start_soon(keeper.follow, journal)
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


@attrs.define(eq=False, repr=False)
class _ApprovalStore:
    """The approvals in memory, and their file."""

    _store: LineStore
    """The file."""
    _clock: Callable[[], int]
    """Wall clock, ms."""
    _random: Random
    """Makes the ids."""
    _timeout: LiveValue[float]
    """The setting `policy.timeout`; an approval that waits already keeps the time that it was given."""
    _on_change: OnChange
    """Shows approvals to people, and lets tasks go on."""
    _nursery: trio.Nursery
    """Runs the tasks that call `on_change`."""
    _server_tools: ServerTools
    """Returns the tools of an MCP server as they are now."""
    _is_shared: bool
    """True if other nodes append lines."""
    _approvals: dict[str, Approval] = attrs.field(init=False, factory=dict)
    """By id, oldest first."""
    _by_key: dict[str, str] = attrs.field(init=False, factory=dict)
    """Id of the newest approval of each call."""
    _plans: PlanBook = attrs.field(init=False, factory=PlanBook)
    """Calls that tasks may make, since an owner was asked beforehand, and calls that an owner has denied them."""
    _grants: GrantBook = attrs.field(init=False, factory=GrantBook)
    """Yeses that serve for later calls."""
    _seen: tuple[int, float] = attrs.field(init=False, factory=lambda: (0, trio.current_time()))
    """Newest time that the wall clock has shown, ms, and Trio's clock then: a clock that is set back must not lengthen a grant."""
    _waiting: dict[str, list[Reply[Approval]]] = attrs.field(init=False, factory=dict)
    """Requests to answer when an approval is over, by its id."""
    _changed: Signal = attrs.field(init=False, factory=Signal)
    """Set when the next time of expiry may have changed."""
    _lock: trio.Lock = attrs.field(init=False, factory=trio.Lock)
    """Held from the look at an approval's state until its next state is on disk, so that it ends once: answered or expired."""

    async def handle(self, message: ApprovalMessage) -> None:
        """Carry out a request and answer it. Raises ApprovalError, StorageError, ActorError."""
        async with self._lock:
            # Written down, so that a clock that is set back before a start brings none of them back.
            if past := self._grants.take_past(self._now()):
                with suppress(StorageError, ActorError):
                    await self._append_facts(
                        *(revoked_line(grant, "the end of its time", self._clock()) for grant in past)
                    )
            while True:
                try:
                    await self._handle(message)
                    break
                except Changed:  # it was decided by what is not the state any more
                    await self._catch_up()

    async def _handle(self, message: ApprovalMessage) -> None:
        """Carry out a request. Each case has answered, or has kept the reply for later (`AwaitApproval`), when it returns."""
        match message:
            case SeekApproval(reply, request, key, may_ask):
                reply.send(await self._seek(request, key or request.first.key, may_ask=may_ask))
            case AnswerApproval(reply, id):
                if self._is_shared and id not in self._approvals:
                    await self._catch_up()  # another node may have asked a moment ago
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
                if not id:
                    for grant in self._grants.of_tasks(task_ids):
                        await self._revoke(grant, "the end of its task")
            case ListGrants(reply):
                reply.send(self._grants.view(self._now()))
            case RevokeGrant(reply, id, by):
                found = next((each for each in self._grants.view(self._now()) if each.id == id), None)
                if found is None:
                    raise ApprovalError(f"There is no grant {quote(id, 20)}.")
                await self._revoke(found, by)
                reply.send(found)

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
        request, values = approval.request, dict(answer.values)
        if not answer.is_allowed:
            if answer.calls is not None:
                raise ApprovalError("calls: only a yes can be for some of them; the others get a no")
            reason = truncate(answer.reason, 500)
            denied = attrs.evolve(approval, state=ApprovalState.DENIED, by=answer.by, reason=reason)
            return await self._close(denied)
        if request.question is None and values:
            raise ApprovalError(f"{approval.id} asks for a yes or no, and has no form.")
        places = request.places(answer.calls)
        calls = [request.calls[place] for place in places]
        check_scope(answer.scope, request, calls, is_own_door=answer.is_own_door)
        if request.question is not None:
            try:
                values = fill_form(request.question.fields, values)
            except FormError as error:
                raise ApprovalError(f"{approval.id}: {error}.") from None
        now, tools = self._now(), self._server_tools
        grants = self._grants.make(answer.scope, request, calls, answer.by, now, self._random, tools)
        allowed = attrs.evolve(
            approval,
            state=ApprovalState.ALLOWED,
            scope=answer.scope,
            by=answer.by,
            values=values,
            allowed=None if len(places) == len(request.calls) else places,
        )
        return await self._close(allowed, grants)

    async def _revoke(self, grant: CallGrant, by: str) -> None:
        """End a grant; it is on disk when this returns. Raises StorageError, ActorError, and the grant stays then."""
        await self._append(revoked_line(grant, by, self._clock()))
        self._grants.remove(grant.id)

    def _now(self) -> int:
        """Return the wall clock for what ends by itself, ms. It never goes back, and goes on where the clock stands still."""
        latest, then = self._seen
        now = trio.current_time()
        self._seen = max(self._clock(), latest + math.floor((now - then) * 1000)), now
        return self._seen[0]

    async def _seek(self, request: ApprovalRequest, key: str, *, may_ask: bool) -> Approval:
        """Return the approval of a call, which may be new. Raises ApprovalError if too many wait.

        The same call with the same arguments gets the approval that it has, also one that is over: that is how a call that is made
        again after a restart finds its answer. A question of the program itself takes the place of the one before with the same key.
        So does a call whose arguments have changed, such as those of a file that a command names.
        """
        call = request.calls[request.index_of(key) or 0]
        known = self._approvals.get(self._by_key.get(key, ""))
        if known is not None and not known.is_asked_again and self._is_about(known, key, call, request):
            return known
        now = self._clock()
        found = Approval("", request, now, now + round(self._timeout.now * 1000))
        if request.question is None and not request.is_plan:
            if grant := self._grants.find(call, request.who, request.task_id, self._now()):
                return attrs.evolve(found, state=ApprovalState.ALLOWED, scope=grant.scope)
            if planned := await self._use_plan(call, request):
                return planned
            if denial := self._plans.denial(request.task_id, call.digest(request.who)):
                return attrs.evolve(found, state=ApprovalState.DENIED, by=denial.by, reason=denial.reason)
        if not may_ask:
            return attrs.evolve(found, state=ApprovalState.WITHDRAWN)
        if known is not None and known.is_open:
            await self._close(attrs.evolve(known, state=ApprovalState.WITHDRAWN))
        waiting = [approval.request.who for approval in self._open()]
        if len(waiting) >= MOST_OPEN or (
            request.who is not Role.OWNER and waiting.count(request.who) >= MOST_FOR_GUESTS
        ):
            raise ApprovalError("too many calls wait for the owner's approval already")
        asked = attrs.evolve(request, calls=self._without_answered(request, call))
        if known is not None and (changed := _changed_files(known, key, call)):
            why = f"{call.why}; changed since you were asked: {changed}"
            again = attrs.evolve(call, why=why)
            asked = attrs.evolve(asked, calls=tuple(again if each is call else each for each in asked.calls))
        approval = attrs.evolve(found, id=typed_id("a-", 4, self._random, self._approvals), request=asked)
        # On disk first: an approval that people can see is one that a restart knows.
        await self._append(opening_line(approval))
        self._add(approval)
        self._changed.notify()
        self._report_change(approval)
        return approval

    @staticmethod
    def _is_about(known: Approval, key: str, call: AskedCall, request: ApprovalRequest) -> bool:
        """Return whether an approval is about exactly this call. key: by which it was found."""
        place = known.used.get(key, known.request.index_of(key))
        if place is None or known.request.is_plan != (request.is_plan or key in known.used):
            return False
        return known.request.calls[place].digest(known.request.who) == call.digest(request.who)

    async def _use_plan(self, call: AskedCall, request: ApprovalRequest) -> Approval | None:
        """Return the allowed plan of a task that has this call and has not used it yet. From now on it is used, on disk too."""
        found = self._plans.find(request.task_id, call.digest(request.who))
        if found is None:
            return None
        plan, place = found
        await self._append(used_line(plan, {call.key: place}))
        plan = attrs.evolve(plan, used={**plan.used, call.key: place})
        self._add(plan)
        return plan

    def _without_answered(self, request: ApprovalRequest, call: AskedCall) -> tuple[AskedCall, ...]:
        """Return the calls to ask about: this one, and those of the others that have no answer, as far as a person will read them."""
        if request.is_plan or request.question is not None:
            return self._plans.mark_denied(request)
        planned, room, asked = self._plans.unused(request.task_id), MOST_BYTES, list[AskedCall]()
        for each in request.calls:
            if each is not call:
                digest, size = each.digest(request.who), len(encode_json(each.arguments))
                known = self._approvals.get(self._by_key.get(each.key, ""))
                has_answer = (known is not None and not known.is_asked_again) or planned[digest] > 0
                has_answer = has_answer or self._plans.denial(request.task_id, digest) is not None
                planned[digest] -= 1
                if has_answer or size > room or len(asked) >= MOST_CALLS - (call not in asked):
                    continue
                if self._grants.find(each, request.who, request.task_id, self._now()):
                    continue
                room -= size
            asked.append(each)
        return tuple(asked)

    def _add(self, approval: Approval) -> None:
        """Keep an approval in its present state."""
        # Between starts the memory is bounded here; the file only grows, and is written anew at the next start.
        if len(self._approvals) > 2 * MOST_KEPT:
            self._forget_old()
        if approval.id not in self._approvals:  # a later step may be about one that another has replaced
            self._by_key |= dict.fromkeys((call.key for call in approval.request.calls), approval.id)
        self._by_key |= dict.fromkeys(approval.used, approval.id)
        self._approvals[approval.id] = approval
        self._plans.add(approval)

    async def _close(self, closed: Approval, grants: Sequence[CallGrant] = ()) -> Approval:
        """Write the end of an approval, and then let those who wait for it, and its task, know.

        closed: in its last state. grants: those that the answer makes, which are written in the same step.
        """
        # On disk first, then in memory: if the disk refuses, the approval is still open, and the person can answer again.
        await self._append(closing_line(closed, self._clock()), *map(to_wire, grants))
        self._add(closed)
        for grant in grants:
            self._grants.add(grant)
        self._changed.notify()
        self._report_end(closed)
        return closed

    def _report_end(self, closed: Approval) -> None:
        for reply in self._waiting.pop(closed.id, ()):
            reply.send(closed)
        self._report_change(closed)

    def _report_change(self, approval: Approval) -> None:
        """Call `on_change` in a task of its own, again and again until it has not failed."""

        async def tell() -> None:
            """Call `on_change`; then record that the end was carried out."""
            is_here = await self._on_change(approval) is not False
            known = self._approvals.get(approval.id)
            if approval.is_open or (known is not None and known.is_carried_out):
                return
            if not is_here:
                raise _ElsewhereError(approval.id)
            # A crash before this line means that `on_change` is called once more at the next start.
            async with self._lock:
                await self._append_facts(carried_out_line(approval))
                # It may have taken another step meanwhile: a call of a plan.
                if now := self._approvals.get(approval.id):
                    self._add(attrs.evolve(now, is_carried_out=True))

        def log(error: Exception, seconds: float) -> None:
            if not isinstance(error, _ElsewhereError):
                _log.warning(
                    "an approval could not be carried out yet", id=approval.id, error=str(error), seconds=seconds
                )

        self._nursery.start_soon(retry, tell, (ActorError, StorageError, _ElsewhereError), log)

    async def expire(self) -> None:
        """Close approvals whose time is over, until cancelled. A disk that refuses is asked again."""
        while True:
            seen = self._changed.count
            now = self._clock()
            waiting = self._open()
            pause = min((approval.expires - now for approval in waiting), default=math.inf) / 1000
            if waiting:
                pause = min(pause, LONGEST_PAUSE)
            with trio.move_on_after(max(0.0, pause)):
                await self._changed.wait(seen)
                continue
            try:
                for approval in waiting:
                    async with self._lock:
                        # Looked at again under the lock: an answer may have come while it was waited for, or the clock was set
                        # back.
                        if approval.expires <= self._clock() and self._approvals[approval.id].is_open:
                            await self._close(attrs.evolve(approval, state=ApprovalState.EXPIRED))
            except Changed:
                async with self._lock:
                    await self._catch_up()
            except (StorageError, ActorError) as error:
                _log.warning("an approval has expired, which is not on disk", error=str(error))
            await trio.sleep(0.01)  # the wall clock may be behind Trio's by a fraction

    # ---------------------------------------------------------------- the file

    async def load(self) -> None:
        """Read the file. Open questions are withdrawn; most of what is over and carried out is forgotten, but no grant.

        Lines that cannot be understood are set aside. Where there are other nodes, a question may be one of a call that is under way
        there, and the file is not written anew, since they append to it. Raises StorageError.
        """
        kept = await self._read()
        if self._store.lines > MOST_KEPT and not self._is_shared:
            # Before anything is told: what is told appends lines, and they must not be replaced.
            await self._store.rewrite(rewrite_lines(kept, self._grants.view(self._now())))
        for approval in kept:
            if approval.is_open and approval.request.question is not None and not self._is_shared:
                await self._close(attrs.evolve(approval, state=ApprovalState.WITHDRAWN))
            elif not approval.is_carried_out:
                self._report_change(approval)

    async def _read(self) -> list[Approval]:
        """Begin anew with what the file says, and return the approvals that are remembered. Raises StorageError."""
        found = ApprovalsContent()
        await self._store.read(found.apply)
        self._approvals, self._by_key, self._plans, self._grants = {}, {}, PlanBook(), GrantBook()
        for approval in found.approvals.values():
            self._add(approval)
        self._seen = max(found.latest, self._seen[0]), trio.current_time()
        for grant in found.grants.values():
            # By a clock that shows an earlier time than the yes nobody can tell when an hour is over.
            if not grant.until or grant.at <= self._clock():
                self._grants.add(grant)
        self._grants.take_past(self._now())
        return self._forget_old()

    async def _catch_up(self) -> None:
        """Take over the lines that others have appended, and let those know who wait for what is over by them. Raises StorageError."""
        before = dict(self._approvals)
        await self._read()
        self._changed.notify()
        for approval in tuple(self._approvals.values()):
            known = before.get(approval.id)
            if known is None and approval.is_open:
                self._report_change(approval)
            elif not approval.is_open and (known is None or known.is_open):
                self._report_end(approval)

    async def follow(self, journal: Ref[JournalMessage]) -> None:
        """Take over what other nodes append, until cancelled."""
        while True:
            seek = partial(journal.ask, NextChange, "approvals", "", self._store.length)
            if await retry(seek, StorageError) != self._store.length:  # after a failover there may be fewer
                async with self._lock:
                    await retry(self._catch_up, StorageError)

    async def _append_facts(self, *records: Metadata) -> None:
        """Append lines that are true whatever others have appended meanwhile. Raises StorageError and ActorError."""
        while True:
            try:
                await self._append(*records)
                return
            except Changed:
                await self._catch_up()

    async def _append(self, *records: Metadata) -> None:
        """Append lines that were decided by the state in memory. Raises Changed, StorageError and ActorError."""
        await self._store.append(*records, after=self._store.length)

    def _forget_old(self) -> list[Approval]:
        """Forget what is over and carried out, except for the newest, and return the rest."""
        old = [approval for approval in self._approvals.values() if approval.is_carried_out]
        for approval in old[:-MOST_OLD]:
            del self._approvals[approval.id]
            for key in (*(call.key for call in approval.request.calls), *approval.used):
                if self._by_key.get(key) == approval.id:
                    del self._by_key[key]
            self._plans.forget(approval)
        return list(self._approvals.values())


class _ElsewhereError(Exception):
    """The task of an approval is another node's, which has not carried the answer out yet."""


def _changed_files(known: Approval, key: str, call: AskedCall) -> str:
    """Return the names of the files for which a call does not fit its approval any more; "" if something else has changed."""
    place = known.request.index_of(key)
    before = known.request.calls[place] if place is not None else None
    if before is None or (before.tool, before.arguments) != (call.tool, call.arguments):
        return ""
    # A model has chosen the names, and whoever decides must see them for what they are.
    names = [
        quote(name) for name in sorted({*before.files, *call.files}) if before.files.get(name) != call.files.get(name)
    ]
    return truncate(", ".join(names), 200)
