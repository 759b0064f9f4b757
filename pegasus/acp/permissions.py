"""Approvals as permission requests: what the editor is asked, and what its answer means.

A yes of the editor is the owner's. An option is offered for each scope that a yes may have here. An answer that is none (the editor
has cancelled, or failed) decides nothing: the approval stays open for the other places where an owner may answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pegasus.access import shown_subject
from pegasus.acp.content import code_block, text_block
from pegasus.acp.work import kind_of, locations_of, title_of
from pegasus.messages import ApprovalNotice, Json
from pegasus.policy import make_visible

DENY: Final = "deny"
"""Id of the option that refuses."""
SHOWN: Final = 20_000
"""Characters of the arguments that the editor is shown."""
_NAMES: Final[Mapping[str, str]] = {
    "once": "Allow once",
    "arguments": "Always allow exactly this",
    "tool": "Allow the tool in this task",
    "server": "Allow the server's tools in this task",
    "hour": "Allow the tool for an hour",
    "forever": "Always allow the tool",
}
"""Name of the option for each scope of a yes."""


def fits_options(notice: ApprovalNotice) -> bool:
    """Return whether a yes or no answers it. A question with a form, or with a page to open, is answered in words."""
    question = notice.question
    return question is None or (not question.url and not any(field.is_required for field in question.fields))


def permission_params(notice: ApprovalNotice, session_id: str, folder: str) -> dict[str, Json]:
    """Return the params of `session/request_permission`."""
    scopes = ("once",) if notice.question is not None else notice.scopes
    options: list[Json] = [
        {
            "optionId": scope,
            "name": _NAMES.get(scope, scope),
            "kind": "allow_once" if scope == "once" else "allow_always",
        }
        for scope in scopes
    ]
    options.append({"optionId": DENY, "name": "Deny", "kind": "reject_once"})
    calls = notice.all_calls
    more = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
    return {
        "sessionId": session_id,
        "toolCall": {
            "toolCallId": f"approval/{notice.id}",
            "title": make_visible(title_of(notice.tool, notice.arguments)) + more,
            "kind": kind_of(notice.tool),
            "status": "pending",
            "content": [{"type": "content", "content": text_block(_question(notice))}],
            "locations": [place for call in calls for place in locations_of(call.arguments, folder)],
            "rawInput": notice.arguments if len(calls) == 1 else {"calls": [_call(call) for call in calls]},
        },
        "options": options,
    }


def read_outcome(answer: Any, notice: ApprovalNotice) -> dict[str, Json] | None:
    """Return the params of `approvals.answer`, None if the editor has decided nothing."""
    outcome = answer.get("outcome") if isinstance(answer, Mapping) else None
    if not isinstance(outcome, Mapping) or outcome.get("outcome") != "selected":
        return None
    option = outcome.get("optionId")
    if option == DENY:
        return {"id": notice.id, "decision": "deny"}
    if option in notice.scopes:
        return {"id": notice.id, "decision": "allow", "scope": option}
    return None


def ended_update(notice: ApprovalNotice) -> dict[str, Json]:
    """Return the update that shows what became of an approval."""
    is_here = notice.channel is not None and notice.by == str(notice.channel.address)
    by = f" by {notice.by}" if notice.by and not is_here else ""
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": f"approval/{notice.id}",
        "status": "completed" if notice.state == "allowed" else "failed",
        "content": [{"type": "content", "content": text_block(f"{notice.state}{by}")}],
    }


def _question(notice: ApprovalNotice) -> str:
    """Return what is asked, why, and the notes about it."""
    subject = code_block(shown_subject(notice, longest=SHOWN))
    notes = "".join(f"\n\n{note}." for note in notice.notes)
    words = f"\n\nIn the agent's words:\n\n{code_block(make_visible(notice.words))}" if notice.words else ""
    return f"{subject}\n\nAsked because {notice.why}. ({notice.id}){notes}{words}"


def _call(call: Any) -> dict[str, Json]:
    return {"tool": call.tool, "arguments": call.arguments}
