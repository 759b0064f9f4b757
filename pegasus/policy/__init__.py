"""Decisions about what may be done, and for whom. They are made by code, never by a model.

`principal` has the person that work is done for, `rules` what a tool call may do, `approvals` the calls that wait for an owner's
answer, with the actor that keeps them, and `wording` the question as people read it. `pegasus.tools` asks before each call (`gate`).
`tokens` has the rights of the programs that connect.
"""

from pegasus.policy.approvals import (
    AnswerApproval,
    Approval,
    ApprovalError,
    ApprovalMessage,
    ApprovalRequest,
    ApprovalState,
    ListApprovals,
    SeekApproval,
    WithdrawApprovals,
    approvals_keeper,
)
from pegasus.policy.principal import NOBODY, ROLE, Principal, Role, is_owner, principal_of, sender_of, with_role
from pegasus.policy.rules import CallRequest, Confinement, Decision, Policy, PolicyRule, Ruling, parse_rules
from pegasus.policy.tokens import (
    CONTROL,
    MESSAGE,
    OWNER_GRANT,
    READ,
    SCOPES,
    TokenBook,
    TokenGrant,
    TokenRefused,
    parse_tokens,
    tokens_view,
)
from pegasus.policy.wording import APPROVE, DENY, end_text, question_text, shown_arguments

__all__ = [
    "APPROVE",
    "CONTROL",
    "DENY",
    "MESSAGE",
    "NOBODY",
    "OWNER_GRANT",
    "READ",
    "ROLE",
    "SCOPES",
    "AnswerApproval",
    "Approval",
    "ApprovalError",
    "ApprovalMessage",
    "ApprovalRequest",
    "ApprovalState",
    "CallRequest",
    "Confinement",
    "Decision",
    "ListApprovals",
    "Policy",
    "PolicyRule",
    "Principal",
    "Role",
    "Ruling",
    "SeekApproval",
    "TokenBook",
    "TokenGrant",
    "TokenRefused",
    "WithdrawApprovals",
    "approvals_keeper",
    "end_text",
    "is_owner",
    "parse_rules",
    "parse_tokens",
    "principal_of",
    "question_text",
    "sender_of",
    "shown_arguments",
    "tokens_view",
    "with_role",
]
