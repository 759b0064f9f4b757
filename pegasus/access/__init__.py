"""Access: who may do what. Whatever is decided about a person, a program or a call is decided here, by code and never by a model.

Who somebody is:

* `principal` has the person that work is done for, and their role, which is made once for each message; who may write, by the
  settings; and the rights of the program that brings a message. `pairing` has the people whom the owner has let in besides.
* `tokens` has the tokens of the programs that connect, `browser_sessions` the people who are signed in at the page.

What they may have done:

* `rules` says what a tool call may do: allow, ask or deny. It is pure, as is all of `pegasus.policy` beneath it, which knows calls and
  texts but no people. `pegasus.tools` asks before each call (`gate`).
* For "ask" the call is put to an owner as an `ApprovalRequest` (`approvals`). The actor in `approval_store` writes it down
  (`approvals_file`), the channels show it (`question_texts`), and the first answer counts (`answer_words`). Meanwhile a task is
  suspended, so that an answer may come after a restart. People who want to write and changes of the persona wait for an owner as
  well; each is a `RequestBook`, listed and answered with the approvals.
* `grants` has what a yes allows beyond its calls, `grant_book` those in force, and `plans` the calls that were allowed beforehand or
  denied.

The package stands below the doors (gateway, web, channels, intake), which ask it, and above storage. Checks of the transport stay with
their door: `pegasus.web.visitors` looks at the page that a request comes from, and finds the rights of its sender here.

Example::

    ruling = Policy(parse_rules(settings.rules)).decide(call, SandboxState(stands=True))
    if ruling.decision is Decision.ASK:
        asked = AskedCall("t1/c7", call.tool, arguments, ruling.why)
        request = ApprovalRequest((asked,), call.principal.role, channel, "t1")
        approval = await approvals.ask(SeekApproval, request)
        approval = await approvals.ask(AwaitApproval, approval.id)
        approval.allows("t1/c7")
"""

from pegasus.access.answer_words import SCOPE_WORDS, read_answer, read_numbers
from pegasus.access.approval_store import MOST_BYTES, MOST_CALLS, serve_approvals
from pegasus.access.approvals import (
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
    OwnerRequest,
    RequestBook,
    RequestRefused,
    RevokeGrant,
    SeekApproval,
    WithdrawApprovals,
)
from pegasus.access.browser_sessions import SESSION_DAYS, WebSessions
from pegasus.access.grant_book import allowed_scopes
from pegasus.access.grants import AnswerScope, CallGrant, describe_grant, describe_revoked, parse_scope
from pegasus.access.pairing import (
    PAIRING,
    PairingBook,
    PeopleUnreadable,
    access_text,
    access_view,
)
from pegasus.access.principal import (
    CONTROL,
    DOOR,
    GROUP,
    MENTIONED,
    MESSAGE,
    NOBODY,
    OWN_TYPES,
    OWNER_GRANT,
    READ,
    ROLE,
    SCOPES,
    Access,
    AccessDenied,
    ChannelRules,
    NotListed,
    PairingRequired,
    Principal,
    Role,
    TokenGrant,
    folder_of,
    is_group,
    is_owner,
    principal_of,
    rules_of,
    sender_of,
    with_role,
)
from pegasus.access.question_texts import (
    APPROVALS,
    APPROVE,
    DENY,
    end_text,
    question_text,
    shown_arguments,
    shown_subject,
)
from pegasus.access.rules import NO_WALLS, CallRequest, Decision, Policy, Ruling, SandboxState, parse_rules
from pegasus.access.tokens import Credentials, TokenBook, TokenRefused, hash_token, stored_tokens, tokens_view

__all__ = [
    "APPROVALS",
    "APPROVE",
    "CONTROL",
    "DENY",
    "DOOR",
    "GROUP",
    "MENTIONED",
    "MESSAGE",
    "MOST_BYTES",
    "MOST_CALLS",
    "NOBODY",
    "NO_WALLS",
    "OWNER_GRANT",
    "OWN_TYPES",
    "PAIRING",
    "PROMPT_FILE",
    "READ",
    "ROLE",
    "SCOPES",
    "SCOPE_WORDS",
    "SESSION_DAYS",
    "Access",
    "AccessDenied",
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
    "ChannelRules",
    "Credentials",
    "Decision",
    "FindApproval",
    "ListApprovals",
    "ListGrants",
    "NotListed",
    "OwnerRequest",
    "PairingBook",
    "PairingRequired",
    "PeopleUnreadable",
    "Policy",
    "Principal",
    "RequestBook",
    "RequestRefused",
    "RevokeGrant",
    "Role",
    "Ruling",
    "SandboxState",
    "SeekApproval",
    "TokenBook",
    "TokenGrant",
    "TokenRefused",
    "WebSessions",
    "WithdrawApprovals",
    "access_text",
    "access_view",
    "allowed_scopes",
    "describe_grant",
    "describe_revoked",
    "end_text",
    "folder_of",
    "hash_token",
    "is_group",
    "is_owner",
    "parse_rules",
    "parse_scope",
    "principal_of",
    "question_text",
    "read_answer",
    "read_numbers",
    "rules_of",
    "sender_of",
    "serve_approvals",
    "shown_arguments",
    "shown_subject",
    "stored_tokens",
    "tokens_view",
    "with_role",
]
