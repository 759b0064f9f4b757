"""The plans that owners have allowed, and the calls that they have denied, by the task that has asked.

A call of an allowed plan may be made once. A call that an owner has denied is not asked about again when the same task makes it once
more: the answer is known. Asking for it with a plan is the way to ask again, for a task that has met what the owner wanted first.
"""

from __future__ import annotations

from collections import Counter

import attrs

from pegasus.access.approvals import Approval, ApprovalRequest, AskedCall


class PlanBook:
    """Allowed plans and denied calls by their task. The keeper tells it of each step of an approval, and writes down what is used.

    Example::

        plans.add(approval)
        plans.find("t1", call.digest(Role.OWNER))  # the plan and the place of a call in it that was not made yet, or None
    """

    def __init__(self) -> None:
        self._plans: dict[str, dict[str, Approval]] = {}
        """By task, then by id, oldest first."""
        self._denied: dict[str, dict[str, Approval]] = {}
        """By task, then by the digest of the call: the approval with which an owner has denied it."""

    def add(self, approval: Approval) -> None:
        """Take over the present state of an approval, whatever it is."""
        if approval.request.is_plan and approval.is_allowed:
            self._plans.setdefault(approval.request.task_id, {})[approval.id] = approval
        request = approval.request
        if request.question is not None or not request.task_id or not approval.is_answered:
            return
        denied = self._denied.setdefault(request.task_id, {})
        for place, call in enumerate(request.calls):
            digest = call.digest(request.who)
            if not approval.is_chosen(place):
                denied[digest] = approval
            elif place not in approval.used.values():  # a step of a plan that is being used up is no new answer
                denied.pop(digest, None)
        if not denied:
            del self._denied[request.task_id]

    def forget(self, approval: Approval) -> None:
        """Forget an approval. What was not used of it does not serve any more, and what it denied is asked about again."""
        denied = self._denied.get(approval.request.task_id, {})
        for digest in [digest for digest, other in denied.items() if other.id == approval.id]:
            del denied[digest]
        if not denied:
            self._denied.pop(approval.request.task_id, None)
        plans = self._plans.get(approval.request.task_id, {})
        plans.pop(approval.id, None)
        if not plans:
            self._plans.pop(approval.request.task_id, None)

    def find(self, task_id: str, digest: str) -> tuple[Approval, int] | None:
        """Return a plan of a task that allows a call which was not made yet, and the place of the call in it; None if none does."""
        for plan in self._plans.get(task_id, {}).values():
            for place, call in plan.unused():
                if call.digest(plan.request.who) == digest:
                    return plan, place
        return None

    def denial(self, task_id: str, digest: str) -> Approval | None:
        """Return the approval with which an owner has denied this call of a task, None if none has."""
        return self._denied.get(task_id, {}).get(digest)

    def mark_denied(self, request: ApprovalRequest) -> tuple[AskedCall, ...]:
        """Return the calls of a request; of those that an owner has denied this task before, the reason for asking says so."""
        return tuple(
            attrs.evolve(call, why=f"{call.why}; you have denied it in this task before")
            if self.denial(request.task_id, call.digest(request.who))
            else call
            for call in request.calls
        )

    def unused(self, task_id: str) -> Counter[str]:
        """Return the digests of the calls that plans of a task still allow, with how often they do."""
        plans = self._plans.get(task_id, {}).values()
        return Counter(call.digest(plan.request.who) for plan in plans for _, call in plan.unused())
