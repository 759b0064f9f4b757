"""Lines of all approvals and grants, in `data/approvals.jsonl`.

Each step of an approval is a line, on disk before anybody is told:

    {"id":"a-7f3k","key":"<task>/<call>","tool":"shell_exec","arguments":{…},"why":"…","who":"owner",…,"expires":1767225600000}
    {"id":"a-7f3k","state":"allowed","scope":"once","by":"cli:main","at":…}
    {"id":"a-7f3k","carriedOut":true}

The last line says that the task behind it goes on. Several calls stand in `calls` of the first line, the first of them beside it as
well. `allowed` of the second line has the places of those that the yes is for, if it is not for all. Two further lines are about what
serves for later calls: a call of a plan that is made now, and a grant, which is written together with the answer that makes it:

    {"id":"a-7f3k","used":{"<task>/<call>":0}}
    {"id":"g-3m8p","scope":"hour","tool":"mail__list","server":"mail","hash":"…","until":…,"by":"cli:main","at":…}
    {"id":"g-3m8p","revoked":true,"by":"cli:main","at":…}

The file is appended to, and never changed in place: a torn line at its end, which a crash may leave, costs that step and no
other. An approval in its present state is what all lines of its id amount to. Values of forms are in no line, because a person
may have typed something private; so a question that was open at a crash cannot be answered from the file, and is withdrawn.

In files of earlier versions a yes for ever is a closing line with the scope "always" and no grant. Reading makes the grant, under the
id of the approval.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from pegasus.access.approvals import Approval, ApprovalRequest, ApprovalState
from pegasus.access.grants import ALWAYS, AnswerScope, CallGrant, parse_scope
from pegasus.access.principal import Role
from pegasus.messages import Json, Metadata
from pegasus.wire import from_wire, require_number, to_wire


def opening_line(approval: Approval) -> Metadata:
    """Return the line of a new approval."""
    request = to_wire(approval.request)
    calls = request.pop("calls")
    first = to_wire(approval.request.first)
    several = {"calls": calls} if len(approval.request.calls) > 1 else {}
    times = {"created": approval.created, "expires": approval.expires}
    return {"id": approval.id, **first, **request, **several, **times}


def closing_line(approval: Approval, at: int | None = None) -> Metadata:
    """Return the line of an approval's end. at: wall clock, ms; None if it is not known any more."""
    record: dict[str, Json] = {
        "id": approval.id,
        "state": approval.state.value,
        "scope": approval.scope.value,
        "by": approval.by,
        "reason": approval.reason,
    }
    if approval.allowed is not None:
        record["allowed"] = list(approval.allowed)
    return record if at is None else {**record, "at": at}


def used_line(approval: Approval, used: Mapping[str, int]) -> Metadata:
    """Return the line which says that calls of a plan are made now. used: their places by the keys with which they are made."""
    return {"id": approval.id, "used": dict(used)}


def revoked_line(grant: CallGrant, by: str, at: int) -> Metadata:
    """Return the line which says that a grant is over. at: wall clock, ms."""
    return {"id": grant.id, "revoked": True, "by": by, "at": at}


def carried_out_line(approval: Approval) -> Metadata:
    """Return the line which says that the task of a closed approval knows."""
    return {"id": approval.id, "carriedOut": True}


def rewrite_lines(approvals: Iterable[Approval], grants: Iterable[CallGrant] = ()) -> list[Metadata]:
    """Return lines that lead to these approvals as they are now, and these grants."""
    return [*(line for approval in approvals for line in _lines_of(approval)), *map(to_wire, grants)]


def _lines_of(approval: Approval) -> Iterator[Metadata]:
    """Yield the lines that lead to the present state of an approval. The time of its end is not known any more, and is left out."""
    yield opening_line(approval)
    if not approval.is_open:
        yield closing_line(approval)
    if approval.used:
        yield used_line(approval, approval.used)
    if approval.is_carried_out:
        yield carried_out_line(approval)


@attrs.define(eq=False, repr=False)
class ApprovalsContent:
    """Content of the lines.

    Example::

        found = ApprovalsContent()
        await LineStore("approvals", journal).read(found.apply)
        [approval.id for approval in found.approvals.values() if approval.is_open]
    """

    approvals: dict[str, Approval] = attrs.field(factory=dict)
    """In their present state, oldest first, by id."""
    grants: dict[str, CallGrant] = attrs.field(factory=dict)
    """Those that were not revoked, oldest first, by id."""
    latest: int = 0
    """Newest time that stands in it, wall clock, ms; 0 if none does."""

    def apply(self, record: Metadata) -> None:
        """Take over the step of a line. Raises ValueError, LookupError, TypeError, AttributeError, and changes nothing then."""
        id = str(record["id"])
        # Lines are known by what they hold, so that they need no field for their kind.
        if "hash" in record:
            grant = from_wire(record, CallGrant)
            scope = AnswerScope(grant.scope)
            if scope is AnswerScope.ONCE:
                raise ValueError("a grant that counts once")
            self.grants[id] = attrs.evolve(grant, scope=scope)
        elif record.get("revoked"):
            self.grants.pop(id, None)
        elif "tool" in record:
            request = from_wire({**record, "calls": record.get("calls") or [record]}, ApprovalRequest)
            request = attrs.evolve(request, who=Role(request.who))
            times = require_number(record["created"]), require_number(record["expires"])
            self.approvals[id] = Approval(id, request, *times)
        else:
            # A step without its opening line is a KeyError, and so one of the problems.
            self.approvals[id] = approval = _after_step(self.approvals[id], record)
            if record.get("scope") == ALWAYS and approval.is_allowed and approval.request.who is Role.OWNER:
                call, who = approval.request.first, approval.request.who
                self.grants[id] = CallGrant(
                    id, AnswerScope.ARGUMENTS, call.tool, "", call.digest(who), approval.by, approval.created
                )
        times_of_it = (record.get(name) for name in ("created", "at"))
        self.latest = max(self.latest, *(time if isinstance(time, int) else 0 for time in times_of_it))


def _after_step(approval: Approval, record: Metadata) -> Approval:
    """Return the approval after a step that is not its first. Raises ValueError, LookupError, TypeError, AttributeError."""
    if record.get("carriedOut"):
        return attrs.evolve(approval, is_carried_out=True)
    calls = range(len(approval.request.calls))
    if isinstance(used := record.get("used"), dict):
        places = {key: calls[require_number(place)] for key, place in used.items()}
        return attrs.evolve(approval, used={**approval.used, **places})
    allowed = record.get("allowed")
    if "allowed" in record and not isinstance(allowed, list):
        raise TypeError("allowed: no list")
    return attrs.evolve(
        approval,
        state=ApprovalState(str(record["state"])),
        scope=parse_scope(str(record.get("scope") or "")) or AnswerScope.ONCE,
        by=str(record.get("by") or ""),
        reason=str(record.get("reason") or ""),
        allowed=tuple(calls[require_number(place)] for place in allowed) if isinstance(allowed, list) else None,
    )
