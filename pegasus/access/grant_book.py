"""The grants in force, in memory: which call one covers, which scopes an answer may have, and the grants that an answer makes.

The keeper of the approvals writes them down and reads them again. Nothing here decides whether a call needs a yes: a grant is looked
for only where the policy asks, so it never stands above a denial.

Never covered, whatever was granted: work for a guest, and, but for exactly the same arguments, what cannot be taken back.

A grant for an hour ends by the wall clock. That can be set back, so the caller passes a time that never goes back while the program
runs, and that begins at a start with the newest time in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from random import Random
from typing import Final, TypeAlias

import attrs

from pegasus.access.approvals import PROMPT_FILE, ApprovalError, ApprovalRequest, AskedCall
from pegasus.access.grants import HOUR, IN_TASK, AnswerScope, CallGrant
from pegasus.access.principal import Role
from pegasus.access.question_texts import shown_arguments
from pegasus.formatting import typed_id
from pegasus.wire import encode_json

MOST_GRANTS: Final = 1000
"""Grants that may be in force. More would not be looked through by anybody."""
SHOWN: Final = 300
"""Characters of the arguments that a grant shows."""

ServerTools: TypeAlias = Callable[[str], Mapping[str, str]]
"""Returns the fingerprints of the tools of a server as they are now, by their names, without those whose calls destroy."""


def no_server_tools(server: str) -> Mapping[str, str]:
    """Return no tools: there are no servers."""
    return {}


def allowed_scopes(request: ApprovalRequest, calls: Sequence[AskedCall] = ()) -> tuple[AnswerScope, ...]:
    """Return the scopes that a yes to these calls may have. calls: () = all of the request."""
    calls = calls or request.calls
    if request.question is not None or request.is_plan or request.who is not Role.OWNER:
        return (AnswerScope.ONCE,)
    scopes = [AnswerScope.ONCE, AnswerScope.ARGUMENTS]
    if not request.task_id or any(call.is_destructive or call.tool == PROMPT_FILE for call in calls):
        return tuple(scopes)
    scopes.append(AnswerScope.TOOL)
    if all(call.server for call in calls):
        scopes.append(AnswerScope.SERVER)
    if len({call.tool for call in calls}) == 1:
        scopes += [AnswerScope.HOUR, AnswerScope.FOREVER]
    return tuple(scopes)


def check_scope(scope: AnswerScope, request: ApprovalRequest, calls: Sequence[AskedCall], *, is_own_door: bool) -> None:
    """Raise ApprovalError unless a yes to these calls may have this scope."""
    allowed = allowed_scopes(request, calls) if is_own_door else (AnswerScope.ONCE,)
    if scope in allowed:
        return
    match request:
        case _ if not is_own_door:
            why = "an answer that comes through a bridge counts once; the terminal and the page of the owner have more"
        case ApprovalRequest(question=None, who=Role.GUEST):
            why = "it is work for a guest"
        case ApprovalRequest(is_plan=True):
            why = "a plan is allowed once"
        case ApprovalRequest(question=None) if any(call.is_destructive for call in calls):
            why = "it cannot be taken back"
        case ApprovalRequest(question=None) if scope is AnswerScope.SERVER:
            why = "it is no tool of a server"
        case ApprovalRequest(question=None) if request.task_id:
            why = "these are calls of several tools"
        case _:
            why = "it is a question, which can only be answered once"
    raise ApprovalError(f'Found the scope "{scope.value}", allowed here: {", ".join(allowed)}. Reason: {why}.')


class GrantBook:
    """The grants in force, by their ids.

    Example::

        book = GrantBook()
        for grant in book.make(AnswerScope.TOOL, request, request.calls, "cli:main", now, random, no_server_tools):
            book.add(grant)
        book.find(call, Role.OWNER, "t1", now)  # the grant that covers a call, None if there is none
    """

    def __init__(self) -> None:
        self._grants: dict[str, CallGrant] = {}
        """Oldest first."""

    def add(self, grant: CallGrant) -> None:
        """Take a grant into force, in place of one with the same id."""
        self._grants[grant.id] = grant

    def remove(self, id: str) -> CallGrant | None:
        """Put a grant out of force, and return it; None if it is not in force."""
        return self._grants.pop(id, None)

    def view(self, now: int) -> tuple[CallGrant, ...]:
        """Return the grants in force, oldest first."""
        return tuple(grant for grant in self._grants.values() if _is_in_time(grant, now))

    def take_past(self, now: int) -> tuple[CallGrant, ...]:
        """Put the grants out of force whose time is over, and return them."""
        past = tuple(grant for grant in self._grants.values() if not _is_in_time(grant, now))
        for grant in past:
            del self._grants[grant.id]
        return past

    def of_tasks(self, task_ids: Collection[str]) -> tuple[CallGrant, ...]:
        """Return the grants that serve in these tasks only."""
        return tuple(grant for grant in self._grants.values() if grant.task_id and grant.task_id in task_ids)

    def find(self, call: AskedCall, who: Role, task_id: str, now: int) -> CallGrant | None:
        """Return a grant that covers this call of a task ("" = of no task), None if there is none."""
        if who is not Role.OWNER:
            return None
        digest = call.digest(who)
        return next((grant for grant in self._grants.values() if _covers(grant, call, digest, task_id, now)), None)

    def make(
        self,
        scope: AnswerScope,
        request: ApprovalRequest,
        calls: Iterable[AskedCall],
        by: str,
        now: int,
        random: Random,
        server_tools: ServerTools,
    ) -> tuple[CallGrant, ...]:
        """Return the grants that a yes to these calls makes: one for each call, tool or server; () for a yes that counts once.

        They are not in force yet. random: makes their ids. Raises ApprovalError if too many are in force already.
        """
        if scope is AnswerScope.ONCE:
            return ()
        if len(self.view(now)) >= MOST_GRANTS:
            raise ApprovalError(f"{MOST_GRANTS} grants are in force already; revoke some of them, or allow it once")
        made: dict[tuple[str, str], CallGrant] = {}
        for call in calls:
            id = typed_id("g-", 4, random, [*self._grants, *(grant.id for grant in made.values())])
            grant = CallGrant(id, scope, call.tool, call.server, call.fingerprint, by, now)
            match scope:
                case AnswerScope.ARGUMENTS:
                    shown = shown_arguments(call.arguments)[:SHOWN]
                    grant = attrs.evolve(grant, hash=call.digest(request.who), shown=shown)
                case AnswerScope.SERVER:
                    # What was asked about counts as the owner has seen it, the other tools as they are now.
                    before = made.get((call.server, ""))
                    others = before.tools if before else server_tools(call.server)
                    tools = {**others, call.tool: call.fingerprint}
                    grant = attrs.evolve(grant, tool="", tools=tools, hash=_hash_of(tools), task_id=request.task_id)
                case AnswerScope.TOOL:
                    grant = attrs.evolve(grant, task_id=request.task_id)
                case AnswerScope.HOUR:
                    grant = attrs.evolve(grant, until=now + HOUR)
            made[call.server if scope is AnswerScope.SERVER else grant.hash, grant.tool] = grant
        return tuple(made.values())


def _is_in_time(grant: CallGrant, now: int) -> bool:
    return not grant.until or now < grant.until


def _covers(grant: CallGrant, call: AskedCall, digest: str, task_id: str, now: int) -> bool:
    """Return whether a grant covers a call. digest: the call's, for an owner's work."""
    if not _is_in_time(grant, now) or (grant.scope in IN_TASK and grant.task_id != task_id):
        return False
    if grant.server != call.server:
        return False
    if grant.scope is AnswerScope.ARGUMENTS:
        return grant.tool == call.tool and grant.hash == digest
    if call.is_destructive or not call.fingerprint:
        return False
    if grant.scope is AnswerScope.SERVER:
        return grant.tools.get(call.tool) == call.fingerprint
    return grant.tool == call.tool and grant.hash == call.fingerprint


def _hash_of(tools: Mapping[str, object]) -> str:
    """Return the hash of the fingerprints of a server's tools."""
    text = encode_json([[name, str(tools[name])] for name in sorted(tools)])
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
