"""Approvals: tool calls that wait for an owner's yes or no, and the actor that keeps them.

A call that the policy decides to ask about makes an approval. It is bound to exactly these arguments of exactly this call, so that a
yes never serves for another one; "always" makes it serve for each later call of the same tool with the same arguments, for work
with the same rights. The first answer counts. Without one the approval expires after `policy.timeout`, and that is a no.

The file FILE below data/ has one line for each step, each on disk before anybody is told:

    {"id":"a-7f3k","key":"<task>/<call>","tool":"shell_exec","arguments":{…},"why":"…","who":"owner",…,"expires":1767225600000}
    {"id":"a-7f3k","state":"allowed","scope":"once","by":"cli:main","at":…}
    {"id":"a-7f3k","carriedOut":true}

The last line says that the task behind it goes on. Without it a crash may have come between the answer and the resume of the task,
which is then made again (`on_change` is called until it has returned). At a start the file is read, and written anew when it holds
much that is over.

The actor decides nothing and knows no channel: `on_change` of the composition root shows approvals to people and lets tasks go on.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from hashlib import blake2b
from random import Random
from typing import Final, TypeAlias

import attrs
import trio

from actors import ActorError, Inbox, Ref, Reply
from pegasus.formatting import truncate
from pegasus.messages import ChannelInfo, Json, Metadata
from pegasus.observe import get_logger
from pegasus.policy.principal import Role
from pegasus.storage import Commit, JournalMessage, ReadFile, ReplaceFile, StorageError
from pegasus.wire import BadLine, WireError, encode_json, encode_line, from_wire, scan_lines, to_wire

FILE: Final = "approvals.jsonl"
"""File of all approvals, below data/."""
MOST_OPEN: Final = 100
"""Approvals that may wait at a time. More would not be read by anybody."""
MOST_FOR_GUESTS: Final = 20
"""How many of them may be for the work of guests, so that they cannot keep the owner's from being asked."""
MOST_KEPT: Final = 1000
"""Lines of the file above which a start writes it anew, with what still matters."""
MOST_OLD: Final = 200
"""Approvals that are over and carried out, of which this many are remembered: the call behind one may not have been made yet."""
RETRY: Final = 5.0
"""Seconds until `on_change` is called again after it has failed."""

LONGEST_PAUSE: Final = 60.0
"""Seconds between two looks at the wall clock while something waits: it may be set, and the machine may sleep."""

_LETTERS: Final = "23456789abcdefghjkmnpqrstuvwxyz"
"""Characters of ids, without those that look alike."""

_log = get_logger("approvals")


class ApprovalState(StrEnum):
    """State of an approval. Stored, so the values must not change."""

    OPEN = "open"
    """Nobody has answered."""
    ALLOWED = "allowed"
    """The call may be made."""
    DENIED = "denied"
    """An owner has said no."""
    EXPIRED = "expired"
    """Nobody has answered in time."""
    WITHDRAWN = "withdrawn"
    """Nothing waits for it any more: its task was ended."""


class ApprovalError(Exception):
    """The request cannot be carried out. The text says why, for the person who has made it."""


@attrs.frozen
class ApprovalRequest:
    """A call that an owner is to be asked about.

    Example: `ApprovalRequest("t1/c7", "shell_exec", {"command": "git push"}, "rule 1 of policy.rules", Role.OWNER, channel, "t1")`.
    """

    key: str
    """Identifier of the call: the same when it is made again."""
    tool: str
    """Name of the tool."""
    arguments: Metadata
    """Arguments exactly as the call has them."""
    why: str
    """Reason for asking, one line."""
    who: Role
    """Rights of the person that the work is done for."""
    channel: ChannelInfo | None
    """Channel and person that the work was asked for by."""
    task_id: str
    """The task that waits."""

    @property
    def digest(self) -> str:
        """Hash of everything that a yes for ever is bound to: tool, arguments, rights."""
        text = encode_json([self.tool, _sorted(self.arguments), self.who.value])
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _sorted(value: Json) -> Json:
    """Return a JSON value with the keys of its objects in order."""
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    return {key: _sorted(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


@attrs.frozen
class Approval:
    """An approval, as it is now."""

    id: str
    """Short name by which people answer, such as "a-7f3k"."""
    request: ApprovalRequest
    """The call that waits for it."""
    created: int
    """Wall clock, ms."""
    expires: int
    """Wall clock after which it is a no, ms."""
    state: ApprovalState = ApprovalState.OPEN
    scope: str = "once"
    """"always": a yes that serves for the same call at any time."""
    by: str = ""
    """Who has answered, such as "cli:main"."""
    reason: str = ""
    """What they have said to a no."""
    is_carried_out: bool = False
    """Whether the task behind it was told."""

    @property
    def is_open(self) -> bool:
        """True if it waits for an answer."""
        return self.state is ApprovalState.OPEN

    @property
    def refusal(self) -> str:
        """Return the sentence for the model, "" for a yes or while it is open."""
        match self.state:
            case ApprovalState.DENIED:
                return "an owner was asked and has said no" + (f": {self.reason}" if self.reason else "")
            case ApprovalState.EXPIRED:
                return "an owner was asked, and nobody has answered in time; this counts as a no"
            case ApprovalState.WITHDRAWN:
                return "an owner was asked, and the request was withdrawn before an answer came"
        return ""


# ------------------------------------------------------------------ messages


@attrs.frozen(eq=False)
class SeekApproval:
    """Return the approval of a call: the one that it has, a yes for ever that fits it, or a new one, which is on disk then.

    Fails with ApprovalError if too many wait already, and with StorageError.
    """

    reply: Reply[Approval]
    request: ApprovalRequest


@attrs.frozen(eq=False)
class AnswerApproval:
    """Say yes or no. Answered with the approval when that is on disk.

    Fails with ApprovalError if there is no such approval or it was answered before; the first answer counts.
    """

    reply: Reply[Approval]
    id: str
    is_allowed: bool
    by: str
    """Who answers, for the record."""
    is_for_ever: bool = False
    """A yes serves for each later call with these arguments."""
    reason: str = ""
    """To a no, for the model."""


@attrs.frozen(eq=False)
class ListApprovals:
    """Return the approvals that wait, oldest first."""

    reply: Reply[tuple[Approval, ...]]


@attrs.frozen(eq=False)
class WithdrawApprovals:
    """Withdraw the open approvals of a task that has ended. It has no answer."""

    task_id: str


ApprovalMessage: TypeAlias = SeekApproval | AnswerApproval | ListApprovals | WithdrawApprovals
"""Everything that the actor accepts."""
OnChange: TypeAlias = Callable[[Approval], Awaitable[None]]
"""Called when an approval is new, and when it is not open any more. Called again after a failure (ActorError, StorageError)."""


# ------------------------------------------------------------------ the actor


async def approvals_keeper(
    inbox: Inbox[ApprovalMessage],
    journal: Ref[JournalMessage],
    clock: Callable[[], int],
    random: Random,
    timeout: float,
    on_change: OnChange,
) -> None:
    """Keep the approvals. It is up when the file is read. Raises StorageError if it cannot be.

    clock: wall clock, ms. timeout: `policy.timeout`. Cancelled: what was answered is on disk, and carried out at the next start.

    Example: `Child("approvals", approvals_keeper, journal, clock, random, 3600.0, desk.changed)`.
    """
    async with trio.open_nursery() as nursery:
        keeper = _Keeper(journal, clock, random, timeout, on_change, nursery)
        await keeper.load()
        inbox.started()
        nursery.start_soon(keeper.expire)
        async for message in inbox:
            try:
                await keeper.handle(message)
            except (ApprovalError, StorageError, ActorError) as error:
                if isinstance(message, WithdrawApprovals):
                    _log.warning(
                        "the approvals of a task could not be withdrawn", task=message.task_id, error=str(error)
                    )
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
        timeout: float,
        on_change: OnChange,
        nursery: trio.Nursery,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._random = random
        self._timeout = timeout
        self._on_change = on_change
        self._nursery = nursery
        self._approvals: dict[str, Approval] = {}
        """By id, oldest first."""
        self._by_key: dict[str, str] = {}
        """Id of the newest approval of each call."""
        self._always: set[str] = set()
        """Digests of the calls that were allowed for ever."""
        self._changed = trio.Event()
        """Set when the next time of expiry may have changed."""

    async def handle(self, message: ApprovalMessage) -> None:
        """Carry out a request and answer it. Raises ApprovalError, StorageError, ActorError."""
        match message:
            case SeekApproval(reply, request):
                reply.send(await self._seek(request))
            case AnswerApproval(reply, id):
                approval = self._get(id)
                state = ApprovalState.ALLOWED if message.is_allowed else ApprovalState.DENIED
                scope = "always" if message.is_allowed and message.is_for_ever else "once"
                reply.send(await self._close(approval, state, scope, message.by, truncate(message.reason, 500)))
            case ListApprovals(reply):
                reply.send(tuple(approval for approval in self._approvals.values() if approval.is_open))
            case WithdrawApprovals(task_id):
                for approval in list(self._approvals.values()):
                    if approval.is_open and approval.request.task_id == task_id:
                        await self._close(approval, ApprovalState.WITHDRAWN)

    def _get(self, id: str) -> Approval:
        """Return an open approval. Raises ApprovalError."""
        approval = self._approvals.get(id)
        if approval is None:
            waiting = ", ".join(each.id for each in self._approvals.values() if each.is_open)
            raise ApprovalError(f"There is no approval {truncate(id, 20)!r}. Waiting: {waiting or 'none'}.")
        if not approval.is_open or approval.expires <= self._clock():
            state = ApprovalState.EXPIRED if approval.is_open else approval.state
            by = f" by {approval.by}" if approval.by else ""
            raise ApprovalError(f"{id} is {state.value} already{by}. The first answer counts.")
        return approval

    async def _seek(self, request: ApprovalRequest) -> Approval:
        """Return the approval of a call, which may be new."""
        known = self._approvals.get(self._by_key.get(request.key, ""))
        if known is not None and known.request.digest == request.digest and known.state is not ApprovalState.WITHDRAWN:
            return known
        now = self._clock()
        expires = now + round(self._timeout * 1000)
        if request.digest in self._always:
            return Approval("", request, now, expires, ApprovalState.ALLOWED, "always")
        waiting = [approval.request.who for approval in self._approvals.values() if approval.is_open]
        if len(waiting) >= MOST_OPEN or (
            request.who is not Role.OWNER and waiting.count(request.who) >= MOST_FOR_GUESTS
        ):
            raise ApprovalError("too many calls wait for the owner's approval already")
        approval = Approval(self._new_id(), request, now, expires)
        await self._write(_opening(approval))
        self._add(approval)
        self._changed.set()
        self._tell(approval)
        return approval

    def _new_id(self) -> str:
        """Return an id that no approval in memory has."""
        while (id := "a-" + "".join(self._random.choices(_LETTERS, k=4))) in self._approvals:
            pass
        return id

    def _add(self, approval: Approval) -> None:
        """Keep an approval in its present state."""
        if len(self._approvals) > 2 * MOST_KEPT:
            self._forget_old()
        self._approvals[approval.id] = approval
        self._by_key[approval.request.key] = approval.id
        if _is_for_ever(approval):
            self._always.add(approval.request.digest)

    async def _close(
        self, approval: Approval, state: ApprovalState, scope: str = "once", by: str = "", reason: str = ""
    ) -> Approval:
        """Write the end of an open approval, and then let its task know."""
        record = {"id": approval.id, "state": state.value, "scope": scope, "by": by, "reason": reason}
        await self._write({**record, "at": self._clock()})
        closed = attrs.evolve(approval, state=state, scope=scope, by=by, reason=reason)
        self._add(closed)
        self._changed.set()
        self._tell(closed)
        return closed

    def _tell(self, approval: Approval) -> None:
        """Call `on_change` in a task of its own, again and again until it has not failed."""

        async def tell() -> None:
            while True:
                try:
                    await self._on_change(approval)
                    if not approval.is_open:
                        await self._write({"id": approval.id, "carriedOut": True})
                        self._add(attrs.evolve(approval, is_carried_out=True))
                except (ActorError, StorageError) as error:
                    _log.warning("an approval could not be carried out yet", id=approval.id, error=str(error))
                    await trio.sleep(RETRY)
                else:
                    return

        self._nursery.start_soon(tell)

    async def expire(self) -> None:
        """Close approvals whose time is over, until cancelled. A disk that refuses is asked again."""
        while True:
            self._changed = trio.Event()
            now = self._clock()
            waiting = [approval for approval in self._approvals.values() if approval.is_open]
            pause = min((approval.expires - now for approval in waiting), default=math.inf) / 1000
            if waiting:
                pause = min(pause, LONGEST_PAUSE)
            with trio.move_on_after(max(0.0, pause)):
                await self._changed.wait()
                continue
            try:
                for approval in waiting:
                    if approval.expires <= self._clock() and self._approvals[approval.id].is_open:
                        await self._close(approval, ApprovalState.EXPIRED)
            except (StorageError, ActorError) as error:
                _log.warning("an approval has expired, which is not on disk", error=str(error))
            await trio.sleep(0.01)  # the wall clock may be behind Trio's by a fraction

    # ---------------------------------------------------------------- the file

    async def load(self) -> None:
        """Read the file. What is over and carried out is forgotten, except for what was allowed for ever.

        Lines that cannot be understood are logged and left out; the file is then kept beside its place. Raises StorageError.
        """
        content = await self._journal.ask(ReadFile, FILE)
        problems, count = 0, 0
        for line in scan_lines(content):
            count += 1
            try:
                if isinstance(line, BadLine):
                    raise ValueError(line.problem)
                self._read(line.value)
            except (ValueError, KeyError, TypeError, WireError) as error:
                problems += 1
                _log.warning("a line of the approvals cannot be read", line=count, error=str(error))
        if problems:
            await self._journal.ask(ReplaceFile, f"{FILE}.bad-{self._clock()}", content)
        kept = self._forget_old()
        if problems or count > MOST_KEPT:
            lines = b"".join(encode_line(record) for approval in kept for record in _records(approval))
            await self._journal.ask(ReplaceFile, FILE, lines)
        for approval in kept:
            if not approval.is_carried_out:
                self._tell(approval)

    def _forget_old(self) -> list[Approval]:
        """Forget what is over and carried out, except for the newest, and return the rest. What is allowed for ever stays so."""
        old = [
            approval for approval in self._approvals.values() if approval.is_carried_out and not _is_for_ever(approval)
        ]
        for approval in old[:-MOST_OLD]:
            del self._approvals[approval.id]
            if self._by_key.get(approval.request.key) == approval.id:
                del self._by_key[approval.request.key]
        return list(self._approvals.values())

    def _read(self, record: Metadata) -> None:
        """Take over a line. Raises ValueError, KeyError, TypeError, WireError."""
        if "tool" in record:
            request = from_wire(record, ApprovalRequest)
            request = attrs.evolve(request, who=Role(request.who))
            self._add(Approval(str(record["id"]), request, _number(record, "created"), _number(record, "expires")))
            return
        approval = self._approvals[str(record["id"])]
        if record.get("carriedOut"):
            self._add(attrs.evolve(approval, is_carried_out=True))
        else:
            by, reason = str(record.get("by") or ""), str(record.get("reason") or "")
            state, scope = ApprovalState(str(record["state"])), str(record.get("scope") or "once")
            self._add(attrs.evolve(approval, state=state, scope=scope, by=by, reason=reason))

    async def _write(self, record: dict[str, Json]) -> None:
        """Append a line; it is on disk when this returns. Raises StorageError, ActorError."""
        await self._journal.ask(Commit, ((FILE, encode_line(record)),))


def _number(record: Metadata, key: str) -> int:
    """Return a whole number of a line. Raises TypeError."""
    value = record[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{key} is no number")
    return value


def _opening(approval: Approval) -> dict[str, Json]:
    """Return the line that begins an approval."""
    return {
        "id": approval.id,
        **to_wire(approval.request),
        "created": approval.created,
        "expires": approval.expires,
    }


def _records(approval: Approval) -> Iterable[dict[str, Json]]:
    """Yield the lines of an approval, as they are written anew."""
    yield _opening(approval)
    if not approval.is_open:
        closing = {"state": approval.state.value, "scope": approval.scope, "by": approval.by, "reason": approval.reason}
        yield {"id": approval.id, **closing}
    if approval.is_carried_out:
        yield {"id": approval.id, "carriedOut": True}


def _is_for_ever(approval: Approval) -> bool:
    """Return whether an approval serves for later calls too."""
    return approval.state is ApprovalState.ALLOWED and approval.scope == "always"
