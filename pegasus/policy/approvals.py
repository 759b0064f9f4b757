"""Approvals: tool calls that wait for an owner, and the messages to the actor that keeps them (`keeper`).

A call that the policy decides to ask about makes an approval. It is bound to exactly these arguments of exactly this call, so that a
yes never serves for another one; "always" makes it serve for each later call of the same tool with the same arguments, for work
with the same rights. The first answer counts. Without one the approval expires after `policy.timeout`, and that is a no.

A request without a task is a question of the program itself: may the text of a file that has changed be part of the prompt? Its key
names the file, and a new text takes the place of the question before.

A call that was begun can raise a question as well: an MCP server asks the person something before it goes on. That is an approval with
a `question`, whose yes may carry the values of a form. They are passed on and kept nowhere. Such a call does not outlive the process,
so its open question is withdrawn at a start.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Final, TypeAlias

import attrs

from actors import Reply
from pegasus.messages import ChannelInfo, Json, Metadata, OwnerQuestion
from pegasus.policy.principal import Role
from pegasus.wire import encode_json

PROMPT_FILE: Final = "prompt_file"
"""In the place of a tool: the text of a file is to be part of the prompt."""


class ApprovalState(StrEnum):
    """State of an approval. Stored, so the values must not change.

    Example: `approval.state is ApprovalState.EXPIRED` means that nobody has answered, which counts as a no.
    """

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
    """Channel on which the work was asked for, with the person."""
    task_id: str
    """The task that waits; "" if the program itself asks."""
    question: OwnerQuestion | None = None
    """Question that a call asks which was begun; None: the question is whether it may be made."""

    @property
    def digest(self) -> str:
        """Hash of everything that a yes for ever is bound to: tool, arguments, rights. A question is never answered for ever."""
        # Keys are sorted, because the same call may come with its arguments in another order.
        text = encode_json([self.tool, _sorted(self.arguments), self.who.value])
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


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
        (await approvals.ask(AwaitApproval, approval.id)).refusal  # "" for a yes
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
    scope: str = "once"
    """"always": a yes that serves for the same call at any time."""
    by: str = ""
    """Author of the answer, such as "cli:main"."""
    reason: str = ""
    """Words that came with a no."""
    is_carried_out: bool = False
    """True if the task behind it was told."""
    values: Metadata = attrs.field(factory=dict, repr=False)
    """The form of its question as it was filled in. It is in memory only."""

    @property
    def is_open(self) -> bool:
        """True if it waits for an answer."""
        return self.state is ApprovalState.OPEN

    @property
    def is_allowed(self) -> bool:
        """True if an owner has said yes."""
        return self.state is ApprovalState.ALLOWED

    @property
    def serves_always(self) -> bool:
        """True for a yes that serves for later calls too."""
        return self.is_allowed and self.scope == "always"

    @property
    def is_asked_again(self) -> bool:
        """True if the next request makes a new one: nobody waits for this one, or it has expired and nobody was told."""
        has_expired = self.state is ApprovalState.EXPIRED
        return self.state is ApprovalState.WITHDRAWN or (has_expired and not self.request.task_id)

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


@attrs.frozen(eq=False, repr=False)
class SeekApproval:
    """Return the approval of a call: the one that it has, a yes for ever that fits it, or a new one, which is on disk then.

    Fails with ApprovalError if too many wait already, and with StorageError.

    Example: `approval = await approvals.ask(SeekApproval, request)`; an open one is waited for with `AwaitApproval`.
    """

    reply: Reply[Approval]
    """Gets the approval, which may be open, or over already."""
    request: ApprovalRequest
    """The call, with a key that is the same if it is made again."""


@attrs.frozen(eq=False, repr=False)
class AnswerApproval:
    """Say yes or no. Answered with the approval when that is on disk.

    Fails with ApprovalError if there is no such approval, it was answered before (the first answer counts), or the values do not fit
    its form.

    Example: `await approvals.ask(AnswerApproval, "a-7f3k", False, "cli:main", False, "not today")`.
    """

    reply: Reply[Approval]
    """Gets the approval in its last state."""
    id: str
    """Id of an open approval. Whoever sends the message has made sure that the answer is an owner's."""
    is_allowed: bool
    """True for a yes."""
    by: str
    """Author of the answer, for the record."""
    is_for_ever: bool = False
    """A yes serves for each later call with these arguments."""
    reason: str = ""
    """To a no, for the model."""
    values: Metadata = attrs.field(factory=dict, repr=False)
    """Values of the form of a question, which may be texts as a person has typed them."""


@attrs.frozen(eq=False, repr=False)
class AwaitApproval:
    """Return an approval as soon as it is not open any more. Fails with ApprovalError if there is none of this id.

    The wait ends by itself at the time of expiry. A caller that is cancelled meanwhile leaves the approval open.

    Example: `approval = await approvals.ask(AwaitApproval, "a-7f3k")`.
    """

    reply: Reply[Approval]
    """Gets the approval in its last state."""
    id: str
    """Id of the approval."""


@attrs.frozen(eq=False, repr=False)
class FindApproval:
    """Return the newest approval of a call, None if there is none.

    Example: `await approvals.ask(FindApproval, "t1/c7")` tells a call that is made again whether it was asked about before.
    """

    reply: Reply[Approval | None]
    """Gets the approval in its present state."""
    key: str
    """`ApprovalRequest.key` of the call."""


@attrs.frozen(eq=False, repr=False)
class ListApprovals:
    """Return the approvals that wait, oldest first.

    Example: `[approval.id for approval in await approvals.ask(ListApprovals)]`.
    """

    reply: Reply[tuple[Approval, ...]]
    """Gets the open approvals."""


@attrs.frozen(eq=False, repr=False)
class WithdrawApprovals:
    """Withdraw the open approvals of tasks, since nothing waits for them any more. It has no answer.

    A failure is logged: the approvals then expire by themselves.

    Example: `approvals.tell_nowait(WithdrawApprovals(("t1",)))` when the task t1 has been cancelled.
    """

    task_ids: tuple[str, ...]
    """Ids of the tasks that waited for them."""
    id: str = ""
    """Only this one."""


ApprovalMessage: TypeAlias = (
    SeekApproval | AnswerApproval | AwaitApproval | FindApproval | ListApprovals | WithdrawApprovals
)
"""Everything that the actor accepts."""
