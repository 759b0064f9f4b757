"""Questions to an owner from a call that runs: an MCP server asks the person something before it goes on.

Each question is an approval (`pegasus.policy`) with a key of its own behind the key of the call. While it is open the task of the call
is suspended: the tool returns `AwaitsOwner`, and is called again with the same key when the question is over. The tool keeps what it
has begun until then.
"""

from __future__ import annotations

from contextlib import suppress

import attrs

from actors import ActorError, Ref
from pegasus.messages import Metadata, OwnerQuestion
from pegasus.policy import (
    Approval,
    ApprovalMessage,
    ApprovalRequest,
    AwaitApproval,
    FindApproval,
    Principal,
    SeekApproval,
    WithdrawApprovals,
)


@attrs.frozen(eq=False, repr=False)
class AwaitsOwner:
    """Return value of a tool whose call waits for the answer to a question: `return AwaitsOwner("a-7f3k")`."""

    approval: str
    """Id of the approval."""


@attrs.frozen(eq=False, repr=False)
class CallQuestions:
    """Asks owners on behalf of one call of a task.

    Example: `id = await context.questions.ask(question, 1); approval = await context.questions.wait(id)`.
    """

    approvals: Ref[ApprovalMessage]
    """The keeper of approvals."""
    tool: str
    """Name of the tool."""
    arguments: Metadata
    """Arguments of the call."""
    key: str
    """Key of the call."""
    task_id: str
    """The task that makes it."""
    principal: Principal
    """The person that it is made for."""

    async def ask(self, question: OwnerQuestion, number: int) -> str:
        """Ask, and return the id of the approval, which is on disk. number: 1 for the first question of the call.

        Raises ApprovalError if too many wait already, StorageError and ActorError.
        """
        request = ApprovalRequest(
            key=self._key(number),
            tool=self.tool,
            arguments=self.arguments,
            why=f"the {question.source} asks before it goes on",
            who=self.principal.role,
            channel=self.principal.channel,
            task_id=self.task_id,
            question=question,
        )
        return (await self.approvals.ask(SeekApproval, request)).id

    async def wait(self, id: str) -> Approval:
        """Return the approval when it is not open any more. Raises ApprovalError, ActorError."""
        return await self.approvals.ask(AwaitApproval, id)

    async def were_asked(self) -> bool:
        """Return whether the call has asked before, in this run of the program or an earlier one. Raises ActorError."""
        return await self.approvals.ask(FindApproval, self._key(1)) is not None

    def withdraw(self, id: str) -> None:
        """Withdraw a question that nobody waits for any more."""
        with suppress(ActorError):  # the keeper withdraws it when it starts again
            self.approvals.tell_nowait(WithdrawApprovals(self.task_id, id))

    def _key(self, number: int) -> str:
        return f"{self.key}/question-{number}"
