"""The plans that owners have allowed: calls that a task has asked for beforehand, each of which may be made once."""

from __future__ import annotations

from collections import Counter

from pegasus.policy.approvals import Approval


class AllowedPlans:
    """Allowed plans by their task. The keeper tells it of each step of an approval, and writes down what is used.

    Example::

        plans.add(approval)
        plans.find("t1", call.digest(Role.OWNER))  # the plan and the place of a call in it that was not made yet, or None
    """

    def __init__(self) -> None:
        self._plans: dict[str, dict[str, Approval]] = {}
        """By task, then by id, oldest first."""

    def add(self, approval: Approval) -> None:
        """Take over the present state of an approval, whatever it is."""
        if approval.request.is_plan and approval.is_allowed:
            self._plans.setdefault(approval.request.task_id, {})[approval.id] = approval

    def forget(self, approval: Approval) -> None:
        """Forget an approval. What was not used of it does not serve any more."""
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

    def unused(self, task_id: str) -> Counter[str]:
        """Return the digests of the calls that plans of a task still allow, with how often they do."""
        plans = self._plans.get(task_id, {}).values()
        return Counter(call.digest(plan.request.who) for plan in plans for _, call in plan.unused())
