"""Decisions about what may be done, and for whom. They are made by code, never by a model.

`principal` has the person that work is done for, and `rules` what a tool call may do; `bare_commands` tells which command lines a
rule may allow by their text. `approvals` has the calls that wait for an owner's answer, `keeper` the actor that keeps them,
`approvals_file` their file, `forms` the forms of their questions, and `question_texts` the question as people read it, with
`shown_text` for what must not be hidden in it and `answer_words` for the words of an answer. `grants` has what a yes allows beyond
its calls, `grant_book` those in force, and `plans` the calls that were allowed beforehand or denied. `tool_kinds` has the kinds of
tools of other programs, `value_rules` the calls of such tools that need no question, and `owner_values` the arguments that an owner
has typed. `tokens` has the rights of the programs that connect. `pegasus.tools` asks before each call (`gate`).

A tool call takes this way: `pegasus.tools` describes it as a `CallRequest`, and `Policy.decide` says allow, ask or deny. For
"ask" the call is put to an owner as an `ApprovalRequest`; the keeper writes it down, the channels show it, and the first answer
counts. Meanwhile a task is suspended, so that an answer may come after a restart.

Example::

    ruling = Policy(parse_rules(settings.rules)).decide(call, Confinement(stands=True))
    if ruling.decision is Decision.ASK:
        asked = AskedCall("t1/c7", call.tool, arguments, ruling.why)
        request = ApprovalRequest((asked,), call.principal.role, channel, "t1")
        approval = await approvals.ask(SeekApproval, request)
        approval = await approvals.ask(AwaitApproval, approval.id)
        approval.allows("t1/c7")
"""

from pegasus.policy.answer_words import SCOPE_WORDS, read_answer, read_numbers
from pegasus.policy.approvals import (
    PROMPT_FILE,
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
from pegasus.policy.bare_commands import is_bare_code, is_bare_line
from pegasus.policy.forms import FormError, fill_form, parse_answer
from pegasus.policy.grant_book import ServerTools, allowed_scopes, no_server_tools
from pegasus.policy.grants import AnswerScope, CallGrant, describe_grant, describe_revoked, parse_scope
from pegasus.policy.keeper import MOST_BYTES, MOST_CALLS, approvals_keeper
from pegasus.policy.owner_values import (
    MOST_MESSAGES,
    OWNER_MESSAGES,
    OwnerMessage,
    owner_metadata,
    parse_owner_messages,
)
from pegasus.policy.principal import (
    DOOR,
    NOBODY,
    OWN_TYPES,
    ROLE,
    Principal,
    Role,
    is_owner,
    principal_of,
    sender_of,
    with_role,
)
from pegasus.policy.question_texts import (
    APPROVALS,
    APPROVE,
    DENY,
    end_text,
    question_text,
    shown_arguments,
    shown_subject,
)
from pegasus.policy.rules import CallRequest, Confinement, Decision, Policy, Ruling, parse_rules
from pegasus.policy.shown_text import host_notes, make_visible, texts_of
from pegasus.policy.tokens import (
    CONTROL,
    MESSAGE,
    OWNER_GRANT,
    READ,
    SCOPES,
    TokenBook,
    TokenGrant,
    TokenRefused,
    hash_token,
    stored_tokens,
    tokens_view,
)
from pegasus.policy.tool_kinds import ToolKind
from pegasus.policy.value_rules import MOST_OPEN, REACHES_OUT, ValueCall, doubt_about, passes_by_values

__all__ = [
    "APPROVALS",
    "APPROVE",
    "CONTROL",
    "DENY",
    "DOOR",
    "MESSAGE",
    "MOST_BYTES",
    "MOST_CALLS",
    "MOST_MESSAGES",
    "MOST_OPEN",
    "NOBODY",
    "OWNER_GRANT",
    "OWNER_MESSAGES",
    "OWN_TYPES",
    "PROMPT_FILE",
    "REACHES_OUT",
    "READ",
    "ROLE",
    "SCOPES",
    "SCOPE_WORDS",
    "AnswerApproval",
    "AnswerScope",
    "Approval",
    "ApprovalError",
    "ApprovalMessage",
    "ApprovalRequest",
    "ApprovalState",
    "AskedCall",
    "AwaitApproval",
    "CallGrant",
    "CallRequest",
    "Confinement",
    "Decision",
    "FindApproval",
    "FormError",
    "ListApprovals",
    "ListGrants",
    "OwnerMessage",
    "Policy",
    "Principal",
    "RevokeGrant",
    "Role",
    "Ruling",
    "SeekApproval",
    "ServerTools",
    "TokenBook",
    "TokenGrant",
    "TokenRefused",
    "ToolKind",
    "ValueCall",
    "WithdrawApprovals",
    "allowed_scopes",
    "approvals_keeper",
    "describe_grant",
    "describe_revoked",
    "doubt_about",
    "end_text",
    "fill_form",
    "hash_token",
    "host_notes",
    "is_bare_code",
    "is_bare_line",
    "is_owner",
    "make_visible",
    "no_server_tools",
    "owner_metadata",
    "parse_answer",
    "parse_owner_messages",
    "parse_rules",
    "parse_scope",
    "passes_by_values",
    "principal_of",
    "question_text",
    "read_answer",
    "read_numbers",
    "sender_of",
    "shown_arguments",
    "shown_subject",
    "stored_tokens",
    "texts_of",
    "tokens_view",
    "with_role",
]
