"""Planning: what a model's answer leads to. Pure code, no model call, no state of its own (seed 001)."""

from __future__ import annotations

from pegasus.tasks.context import Plan, PlannedCall, PlanStep, Reasoning


def plan(reasoning: Reasoning, goal: str) -> Plan:
    """One step for each tool call, in the order of the calls; without any, one step that responds. goal: what it is for."""
    if not reasoning.tool_calls:
        return Plan(goal, (PlanStep(0, "respond", "respond"),))
    return Plan(goal, tuple(_step(index, call) for index, call in enumerate(reasoning.tool_calls)))


def _step(index: int, call: PlannedCall) -> PlanStep:
    return PlanStep(index, f"call {call.name}", "tool_call", call)


def call_key(task_id: str, call_id: str) -> str:
    """`ToolContext.key` of a call: the same when it is run again after a crash."""
    return f"{task_id}/{call_id}"
