"""Approvals: tool calls that wait for an owner, and the messages to the actor that keeps them (`approval_store`).

A call that the policy decides to ask about makes an approval, together with the other calls of the same answer of the model that
need a yes, so that a person is asked once for all of them. A yes is bound to exactly these arguments of exactly these calls, so that
it never serves for another one, and may leave some of them out, which is a no for those. A wider yes makes a grant (`grants`), which
serves for later calls too. The first answer counts. Without one the approval expires after `policy.timeout`, and that is a no.

A task may also ask beforehand, with a plan: calls that it has not made yet. A yes then serves for each of them once, for the first
call of the task with the same tool and arguments. The key of that call is written down before it is made, so the same call made again
finds its yes, and no other call does.

A request without a task is a question of the program itself: may the text of a file that has changed be part of the prompt? Its key
names the file, and a new text takes the place of the question before.

A call that was begun can raise a question as well: an MCP server asks the person something before it goes on. That is an approval with
a `question`, whose yes may carry the values of a form. They are passed on and kept nowhere. Such a call does not outlive the process,
so its open question is withdrawn at a start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Final, Protocol, TypeAlias

import attrs

from actors import Reply
from pegasus.access.grants import AnswerScope, CallGrant
from pegasus.access.principal import Role
from pegasus.messages import ChannelInfo, Json, Metadata, OwnerQuestion
from pegasus.wire import encode_json

PROMPT_FILE: Final = "prompt_file"
"""In the place of a tool: the text of a file is to be part of the prompt."""


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
    """Nothing waits for it any more: its task was ended, or the call that has asked."""


class ApprovalError(Exception):
    """The request cannot be carried out. The text says why, for the person who has made it.

    The keeper answers requests with it, and a caller shows the text to whoever has answered or called.

    Example::

        try:
            await approvals.ask(AnswerApproval, "a-7f3k", True, "cli:main")
        except ApprovalError as error:
            print(error)  # a-7f3k is denied already by web:page. The first answer counts.
    """


class RequestRefused(Exception):
    """A request to the owner cannot be made, or not be decided in this way. Nothing has changed.

    str() says why, as a part of a sentence.

    Example: `/pair ABCD2345` of an owner is answered with its text if no such code is open.
    """

    @property
    def sentence(self) -> str:
        """The text as a sentence."""
        return f"{str(self)[:1].upper()}{str(self)[1:]}."


@attrs.frozen
class OwnerRequest:
    """A request to the owner that is no approval of a call or a text. It waits, or was answered now."""

    id: str
    """The id by which it is answered: "p-" and the number of a proposal, or the code of a person."""
    kind: str
    """The kind of request: "persona" or "pairing"."""
    text: str
    """One line for people: what is asked or, of an answered one, what became of it."""


class RequestBook(Protocol):
    """The requests of a kind. They are answered with a yes or a no alone, and as with an approval the first answer counts.

    Each kind keeps what it knows beyond what waits (who was let in, what was decided before), and has commands of its own for that.
    `waiting` and `answer` raise StorageError and ActorError. Callers have checked that an owner asks.
    """

    async def waiting(self) -> Sequence[OwnerRequest]:
        """Return what waits, oldest first."""

    def has_request(self, id: str) -> bool:
        """Return whether this is the id of a request of the kind, whether there is one or not."""

    async def answer(self, id: str, *, is_allowed: bool, by: str) -> OwnerRequest:
        """Answer a request and return it as it is then. Raises RequestRefused for one that does not wait."""


@attrs.frozen
class AskedCall:
    """A call that an owner is asked about."""

    key: str
    """Identifier of the call: the same when it is made again."""
    tool: str
    """Name of the tool."""
    arguments: Metadata
    """Arguments exactly as the call has them."""
    why: str
    """Reason for asking, one line."""
    server: str = ""
    """MCP server that has the tool, "" for a tool of this program."""
    fingerprint: str = ""
    """`Tool.fingerprint` of the tool when it was asked about."""
    is_destructive: bool = False
    """The call cannot be taken back, so no grant but one for exactly these arguments serves for it."""
    files: Metadata = attrs.field(factory=dict)
    """Hashes of the files that a command names, by their paths: another content makes another call."""

    def digest(self, who: Role) -> str:
        """Return the hash of what a yes is bound to: tool, arguments, rights, named files, and the tool of a server as it was."""
        # Keys are sorted, because the same call may come with its arguments in another order.
        bound: list[Json] = [self.tool, _sorted(self.arguments), who.value]
        # Left out where there is nothing: digests are stored, so what they are made of must not change.
        if self.files or self.server:
            bound += [_sorted(self.files), self.fingerprint if self.server else ""]
        return blake2b(encode_json(bound).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@attrs.frozen
class ApprovalRequest:
    """Calls that an owner is to be asked about at once.

    Example::

        call = AskedCall("t1/c7", "shell_exec", {"command": "git push"}, "rule 1 of policy.rules")
        ApprovalRequest((call,), Role.OWNER, channel, "t1")
    """

    calls: tuple[AskedCall, ...]
    """The calls, in the order in which they are made; one at least."""
    who: Role
    """Rights of the person that the work is done for."""
    channel: ChannelInfo | None
    """Channel on which the work was asked for, with the person."""
    task_id: str
    """The task that waits; "" if the program itself asks."""
    question: OwnerQuestion | None = None
    """Question that a call asks which was begun; None: the question is whether the calls may be made."""
    is_plan: bool = False
    """The calls are a plan: they are made later, and their keys are not theirs."""
    words: str = ""
    """Words of the agent about its plan. They are no facts."""
    read: tuple[str, ...] = ()
    """Kinds of sources from outside that the task has read, such as "web"."""

    @property
    def first(self) -> AskedCall:
        """The first of the calls, by which the request is named."""
        return self.calls[0]

    def index_of(self, key: str) -> int | None:
        """Return the place of the call with this key, None if there is none."""
        return next((n for n, call in enumerate(self.calls) if call.key == key), None)

    def places(self, chosen: Sequence[int] | None) -> tuple[int, ...]:
        """Return the places of calls that a person has chosen, in order. chosen: None = all. Raises ApprovalError for others."""
        if chosen is None:
            return tuple(range(len(self.calls)))
        if not chosen:
            raise ApprovalError("calls: found none; a no is an answer of its own")
        if wrong := [place for place in chosen if not 0 <= place < len(self.calls)]:
            raise ApprovalError(
                f"calls: found the number {wrong[0] + 1}; the calls have the numbers 1 to {len(self.calls)}"
            )
        return tuple(sorted(set(chosen)))


def _sorted(value: Json) -> Json:
    """Return a JSON value with the keys of its objects in order."""
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    return {key: _sorted(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


@attrs.frozen
class Approval:
    """An approval, as it is now.

    Example::

        approval = await approvals.ask(SeekApproval, request)
        approval.id, approval.is_open  # ("a-7f3k", True)
        (await approvals.ask(AwaitApproval, approval.id)).allows("t1/c7")
    """

    id: str
    """Short name by which people answer, such as "a-7f3k"."""
    request: ApprovalRequest
    """The call that waits for it."""
    created: int
    """Wall clock, ms."""
    expires: int
    """Wall clock after which it is a no, ms."""
    state: ApprovalState = ApprovalState.OPEN
    """Only OPEN ever changes: each other state is an end."""
    scope: AnswerScope = AnswerScope.ONCE
    """Reach of a yes."""
    by: str = ""
    """Author of the answer, such as "cli:main"."""
    reason: str = ""
    """Words that came with a no."""
    is_carried_out: bool = False
    """True if the task behind it was told."""
    values: Metadata = attrs.field(factory=dict, repr=False)
    """The form of its question as it was filled in. It is in memory only."""
    allowed: tuple[int, ...] | None = None
    """Places of the calls that a yes is for; None: all."""
    used: Mapping[str, int] = attrs.field(factory=dict)
    """Of a plan: places of the calls that were made, by the keys with which they were made."""

    @property
    def is_open(self) -> bool:
        """True if it waits for an answer."""
        return self.state is ApprovalState.OPEN

    @property
    def is_allowed(self) -> bool:
        """True if an owner has said yes."""
        return self.state is ApprovalState.ALLOWED

    @property
    def is_answered(self) -> bool:
        """True if an owner has said yes or no."""
        return self.state in (ApprovalState.ALLOWED, ApprovalState.DENIED)

    @property
    def is_asked_again(self) -> bool:
        """True if the next request makes a new one: nobody waits for this one, or it has expired and nobody was told."""
        has_expired = self.state is ApprovalState.EXPIRED
        return self.state is ApprovalState.WITHDRAWN or (has_expired and not self.request.task_id)

    def allows(self, key: str) -> bool:
        """Return whether a yes is for the call with this key."""
        index = self.used.get(key) if self.request.is_plan else self.request.index_of(key)
        return index is not None and self.is_chosen(index)

    def unused(self) -> Iterator[tuple[int, AskedCall]]:
        """Yield the calls of an allowed plan that were not made yet, with their places."""
        if self.request.is_plan and self.is_allowed:
            made = set(self.used.values())
            yield from (
                each for each in enumerate(self.request.calls) if each[0] not in made and self.is_chosen(each[0])
            )

    def is_chosen(self, place: int) -> bool:
        """Return whether a yes is for the call at this place."""
        return self.is_allowed and (self.allowed is None or place in self.allowed)

    @property
    def refusal(self) -> str:
        """Return the sentence for the model about a call that is not allowed, "" while it is open."""
        if self.is_answered and not self.id:
            why = f" ({self.reason})" if self.reason else ""
            return (
                f"the owner denied this{why}, so they were not asked again. Go on without it. Only if something has changed "
                "that they do not know, ask for it with ask_permission"
            )
        match self.state:
            case ApprovalState.ALLOWED:
                return "an owner was asked about several calls and has said no to this one"
            case ApprovalState.DENIED:
                return "an owner was asked and has said no" + (f": {self.reason}" if self.reason else "")
            case ApprovalState.EXPIRED:
                return "an owner was asked, and nobody has answered in time; this counts as a no"
            case ApprovalState.WITHDRAWN:
                return "an owner was asked, and the request was withdrawn before an answer came"
        return ""


# ------------------------------------------------------------------ messages


@attrs.frozen(eq=False, repr=False)
class SeekApproval:
    """Return the approval of a call: the one that it has, a grant or a plan that fits it, or a new one, which is on disk then.

    A new one asks about all calls of the request that have no answer yet. Fails with ApprovalError if too many wait already, and with
    StorageError.
    """

    reply: Reply[Approval]
    """Gets the approval, which may be open, or over already."""
    request: ApprovalRequest
    """The call, with a key that is the same if it is made again, and those that are asked about with it."""
    key: str = ""
    """Key of the call that is about to be made; "" = the first."""
    may_ask: bool = True
    """False: no new approval is made, and one with the state WITHDRAWN says that nothing allows the call."""


@attrs.frozen(eq=False, repr=False)
class AnswerApproval:
    """Say yes or no. Answered with the approval when that is on disk.

    Fails with ApprovalError if there is no such approval, it was answered before (the first answer counts), the values do not fit
    its form, or the scope or the places do not fit its calls. It is still open then, unless it was answered before.
    """

    reply: Reply[Approval]
    """Gets the approval in its last state."""
    id: str
    """Id of an open approval. Whoever sends the message has made sure that the answer is an owner's."""
    is_allowed: bool
    """True for a yes."""
    by: str
    """Author of the answer, for the record."""
    scope: AnswerScope = AnswerScope.ONCE
    """Reach of a yes."""
    reason: str = ""
    """To a no, for the model."""
    values: Metadata = attrs.field(factory=dict, repr=False)
    """Values of the form of a question, which may be texts as a person has typed them."""
    calls: tuple[int, ...] | None = None
    """Places of the calls that a yes is for, from 0; the others get a no. None: all."""
    is_own_door: bool = False
    """The owner has answered on a door of their own, not through somebody's bridge: without it a yes counts once."""


@attrs.frozen(eq=False, repr=False)
class AwaitApproval:
    """Return an approval as soon as it is not open any more. Fails with ApprovalError if there is none of this id.

    The wait ends by itself at the time of expiry. A caller that is cancelled meanwhile leaves the approval open.
    """

    reply: Reply[Approval]
    """Gets the approval in its last state."""
    id: str
    """Id of the approval."""


@attrs.frozen(eq=False, repr=False)
class FindApproval:
    """Return the newest approval of a call, None if there is none."""

    reply: Reply[Approval | None]
    """Gets the approval in its present state."""
    key: str
    """`ApprovalRequest.key` of the call."""


@attrs.frozen(eq=False, repr=False)
class ListApprovals:
    """Return the approvals that wait, oldest first."""

    reply: Reply[tuple[Approval, ...]]
    """Gets the open approvals."""


@attrs.frozen(eq=False, repr=False)
class WithdrawApprovals:
    """Withdraw the open approvals of tasks, since nothing waits for them any more. It has no answer.

    Without an id the tasks are over, and what was granted to them ends, too. A failure is logged: the approvals then expire by
    themselves.
    """

    task_ids: tuple[str, ...]
    """Ids of the tasks that waited for them."""
    id: str = ""
    """Only this one."""


@attrs.frozen(eq=False, repr=False)
class ListGrants:
    """Return the grants in force, oldest first."""

    reply: Reply[tuple[CallGrant, ...]]
    """Gets the grants."""


@attrs.frozen(eq=False, repr=False)
class RevokeGrant:
    """End a grant. Answered with it when that is on disk. Fails with ApprovalError if there is none of this id."""

    reply: Reply[CallGrant]
    """Gets the grant as it was."""
    id: str
    """Id of the grant. Whoever sends the message has made sure that an owner asks."""
    by: str
    """Author, for the record."""


ApprovalMessage: TypeAlias = (
    SeekApproval
    | AnswerApproval
    | AwaitApproval
    | FindApproval
    | ListApprovals
    | WithdrawApprovals
    | ListGrants
    | RevokeGrant
)
"""Everything that the actor accepts."""
