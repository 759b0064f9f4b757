"""Texts about approvals, and what an owner has written about one.

`notice_of` is what all channels show. The others are what a chat command understands and answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pegasus.access import (
    APPROVALS,
    PROMPT_FILE,
    AnswerScope,
    Approval,
    ApprovalState,
    CallGrant,
    allowed_scopes,
    describe_grant,
    shown_arguments,
)
from pegasus.formatting import plural, quote, truncate
from pegasus.gateway import BadParams
from pegasus.messages import ApprovalNotice, Json, NoticeCall
from pegasus.policy import host_notes, texts_of

OWNERS_ONLY: Final = "Only my owner may decide about that."
"""Answer to a command of somebody else."""
UNREACHABLE: Final = "The approvals cannot be reached at the moment. Send it again in a few seconds."
"""Answer while the keeper of the approvals does not run."""


def notice_of(approval: Approval) -> ApprovalNotice:
    """Return an approval as the gateway shows it.

    It is the same object for the terminal, the page, chat services and `approvals.list`, so that all show the same facts.
    """
    request = approval.request
    first = request.first
    return ApprovalNotice(
        id=approval.id,
        tool=first.tool,
        arguments=first.arguments,
        why=first.why,
        who=request.who.value,
        expires=approval.expires,
        state=approval.state.value,
        task_id=request.task_id or None,
        channel=request.channel,
        by=approval.by,
        question=request.question,
        files=first.files,
        server=first.server,
        # A single call is not written twice: its arguments may be long.
        calls=tuple(
            NoticeCall(call.tool, call.arguments, call.why, call.files, call.server)
            for call in (request.calls if request.is_plan or len(request.calls) > 1 else ())
        ),
        scopes=tuple(scope.value for scope in allowed_scopes(request)),
        is_plan=request.is_plan,
        words=request.words,
        read=request.read,
        allowed=approval.allowed,
        notes=tuple(host_notes("\n".join(texts_of([call.arguments for call in request.calls])))),
    )


def places_of(calls: Json) -> tuple[int, ...] | None:
    """Return the param `calls`, None if it is missing. Raises BadParams."""
    if calls is None:
        return None
    places = [place for place in calls if type(place) is int] if isinstance(calls, list) else []
    if not isinstance(calls, list) or len(places) < len(calls):
        raise BadParams(f"calls: found {quote(calls, 40)}, allowed: a list of places, the first is 0")
    return tuple(places)


def full_id(id: str) -> str:
    """Return an id as the keeper knows it; people may leave out its beginning.

    A person who types on a telephone gives `7kq2` for `a-7kq2`.
    """
    return id.lower() if id.lower().startswith("a-") else f"a-{id.lower()}"


def tools_of(approval: Approval) -> str:
    """Return the tools of the calls, each once: `mail__send, shell_exec`."""
    return ", ".join(dict.fromkeys(call.tool for call in approval.request.calls))


def subject_of(approval: Approval) -> str:
    """Return what a person is asked: the question, or the arguments of the calls."""
    request = approval.request
    if request.question is not None:
        return f"the {request.question.source} asks: {request.question.text}"
    return " · ".join(shown_arguments(call.arguments) for call in request.calls)


def waiting_line(approval: Approval) -> str:
    """Return an approval that waits in one line: `a-7f3k  plan of 2 calls (touch): what: x · what: y`."""
    request, tools = approval.request, tools_of(approval)
    if request.is_plan or len(request.calls) > 1:
        count = plural(len(request.calls), "call")
        tools = f"{f'plan of {count}' if request.is_plan else count} ({tools})"
    return f"{approval.id}  {tools}: {truncate(subject_of(approval), 200)}"


def grants_text(grants: Sequence[CallGrant]) -> str:
    """Return what was allowed for later calls, for a chat."""
    if not grants:
        return "Nothing was allowed beyond single calls."
    return "\n".join(["Allowed for later calls:", *map(describe_grant, grants), f"{APPROVALS} revoke ID ends one."])


def described_answer(approval: Approval) -> str:
    """Return the confirmation of an answer.

    It names what will happen, and not only the decision, since several calls may wait and the id says little.
    """
    request, question = approval.request, approval.request.question
    if request.first.tool == PROMPT_FILE:
        counts = "counts from the next message on" if approval.is_allowed else "does not count"
        return f"{approval.id} is {approval.state.value}: this text of {request.first.arguments.get('path')} {counts}."
    if question is not None:
        done = "was told no" if approval.state is ApprovalState.DENIED else "has your answer"
        return f"{approval.id}: the {question.source} {done}."
    tools = tools_of(approval)
    if not request.task_id:
        return f"{approval.id} is {approval.state.value}: it is {'not ' if not approval.is_allowed else ''}sent."
    happens = "may be made" if request.is_plan else "will be run"
    if approval.state is ApprovalState.DENIED:
        return f"{approval.id} is denied: {tools} {'may not be made' if request.is_plan else 'will not be run'}."
    denied = ""
    if approval.allowed is not None:
        tools = f"of {len(request.calls)} calls {_numbered(approval, approval.allowed)}"
        denied = f"; denied: {_numbered(approval, [n for n in range(len(request.calls)) if not approval.is_chosen(n)])}"
    return f"{approval.id} is allowed: {tools} {happens}{_BEYOND[approval.scope]}{denied}."


def _numbered(approval: Approval, places: Sequence[int]) -> str:
    """Return calls with their numbers: `1 (touch), 3 (touch)`."""
    return ", ".join(f"{place + 1} ({approval.request.calls[place].tool})" for place in places)


_BEYOND: Final[Mapping[AnswerScope, str]] = MappingProxyType(
    {
        AnswerScope.ONCE: "",
        AnswerScope.ARGUMENTS: ", and whenever it is called with exactly these arguments",
        AnswerScope.TOOL: ", and in this task whenever the tool is called, with any arguments",
        AnswerScope.SERVER: ", and in this task whenever a tool of the same server is called, with any arguments",
        AnswerScope.HOUR: ", and within an hour whenever the tool is called, with any arguments",
        AnswerScope.FOREVER: ", and whenever the tool is called, with any arguments",
    }
)
"""Words about what a yes allows beyond its calls."""
