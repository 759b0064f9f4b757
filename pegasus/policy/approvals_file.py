"""Lines of the file of all approvals, FILE below data/.

Each step of an approval is a line, on disk before anybody is told:

    {"id":"a-7f3k","key":"<task>/<call>","tool":"shell_exec","arguments":{…},"why":"…","who":"owner",…,"expires":1767225600000}
    {"id":"a-7f3k","state":"allowed","scope":"once","by":"cli:main","at":…}
    {"id":"a-7f3k","carriedOut":true}

The last line says that the task behind it goes on.

The file is appended to, and never changed in place: a torn line at its end, which a crash may leave, costs that step and no
other. An approval in its present state is what all lines of its id amount to. Values of forms are in no line, because a person
may have typed something private; so a question that was open at a crash cannot be answered from the file, and is withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from pegasus.json_lines import BadLine, scan_lines
from pegasus.messages import Json, Metadata
from pegasus.policy.approvals import Approval, ApprovalRequest, ApprovalState
from pegasus.policy.principal import Role
from pegasus.wire import encode_line, from_wire, require_number, to_wire

FILE: Final = "approvals.jsonl"
"""File of all approvals, below data/."""


def opening_line(approval: Approval) -> bytes:
    """Return the line of a new approval."""
    request = to_wire(approval.request)
    return encode_line({"id": approval.id, **request, "created": approval.created, "expires": approval.expires})


def closing_line(approval: Approval, at: int | None = None) -> bytes:
    """Return the line of an approval's end. at: wall clock, ms; None if it is not known any more."""
    record: dict[str, Json] = {
        "id": approval.id,
        "state": approval.state.value,
        "scope": approval.scope,
        "by": approval.by,
        "reason": approval.reason,
    }
    return encode_line(record if at is None else {**record, "at": at})


def carried_out_line(approval: Approval) -> bytes:
    """Return the line which says that the task of a closed approval knows."""
    return encode_line({"id": approval.id, "carriedOut": True})


def rewrite_lines(approvals: Iterable[Approval]) -> bytes:
    """Return the content of a new file with these approvals as they are now."""
    return b"".join(line for approval in approvals for line in _lines_of(approval))


def _lines_of(approval: Approval) -> Iterator[bytes]:
    """Yield the lines that lead to the present state of an approval. The time of its end is not known any more, and is left out."""
    yield opening_line(approval)
    if not approval.is_open:
        yield closing_line(approval)
    if approval.is_carried_out:
        yield carried_out_line(approval)


@attrs.frozen(eq=False, repr=False)
class ApprovalsContent:
    """Content of a file.

    Example::

        found = read_approvals(content)
        [approval.id for approval in found.approvals if approval.is_open]
    """

    approvals: tuple[Approval, ...]
    """In their present state, oldest first."""
    lines: int
    """Number of its lines."""
    problems: tuple[str, ...]
    """Lines that cannot be understood, each with its number and the reason."""


def read_approvals(content: bytes) -> ApprovalsContent:
    """Return what a file holds. Lines that cannot be understood hide nothing of the others."""
    approvals: dict[str, Approval] = {}
    problems: list[str] = []
    number = 0
    for number, line in enumerate(scan_lines(content), 1):
        try:
            if isinstance(line, BadLine):
                raise ValueError(line.problem)
            approval = _read_line(line.value, approvals)
        except (ValueError, KeyError, TypeError) as error:
            problems.append(f"line {number}: {error}")
        else:
            approvals[approval.id] = approval
    return ApprovalsContent(tuple(approvals.values()), number, tuple(problems))


def _read_line(record: Metadata, approvals: dict[str, Approval]) -> Approval:
    """Return the approval after this step. Raises ValueError, KeyError, TypeError."""
    # The opening line is known by what it holds, so that lines need no field for their kind.
    if "tool" in record:
        request = from_wire(record, ApprovalRequest)
        request = attrs.evolve(request, who=Role(request.who))
        return Approval(
            str(record["id"]), request, require_number(record["created"]), require_number(record["expires"])
        )
    # A step without its opening line is a KeyError, and so one of the problems.
    approval = approvals[str(record["id"])]
    if record.get("carriedOut"):
        return attrs.evolve(approval, is_carried_out=True)
    return attrs.evolve(
        approval,
        state=ApprovalState(str(record["state"])),
        scope=str(record.get("scope") or "once"),
        by=str(record.get("by") or ""),
        reason=str(record.get("reason") or ""),
    )
