"""Plans of tasks and their calls, as plain code: the steps of a thought, and those of them that are carried out together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pegasus.tasks.core.task_events import PlanStep, Reasoning, TaskPlan
from pegasus.tasks.run.thinker import OWN_TOOLS
from pegasus.tools import Effect, ToolExecutor
from pegasus.wire import encode_json


def make_plan(reasoning: Reasoning, goal: str) -> TaskPlan:
    """Return one step for each tool call, in the order of the calls; without any, one step that responds.

    Planning is plain code: the model decides by its calls, so it costs no model call of its own.
    """
    if not reasoning.tool_calls:
        return TaskPlan(goal, (PlanStep(0, "respond", "respond"),))
    steps = [PlanStep(n, f"call {call.name}", "tool_call", call) for n, call in enumerate(reasoning.tool_calls)]
    return TaskPlan(goal, tuple(steps))


def next_steps(steps: Sequence[PlanStep], effect_of: Callable[[str], Effect | None]) -> tuple[PlanStep, ...]:
    """Return the steps to carry out now: the first open one and, if it only looks, its neighbours that only look too.

    steps: the whole plan, completed steps included. effect_of: effect of a tool by its name, None if it is unknown; such a call
    runs alone.

    Example: of the calls `read_file, grep, write_file, grep`, the first two are returned, then the third, then the last.
    """
    group: list[PlanStep] = []
    for step in steps:
        if step.completed:
            continue
        looks = step.call is not None and effect_of(step.call.name) is Effect.PURE
        if group and not looks:
            break
        group.append(step)
        if not looks:
            break
    return tuple(group)


def find_effect(toolbox: ToolExecutor, name: str) -> Effect | None:
    """Return the effect of running this tool again, None if it is unknown or the order of its calls matters."""
    if name in (tool.name for tool in OWN_TOOLS):
        return None  # messages to people keep the order of the calls
    tool = toolbox.get(name)
    return tool.effect if tool else None


def call_key(task_id: str, call_id: str) -> str:
    """Return the key of a call: the same when it is made again after a crash."""
    return f"{task_id}/{call_id}"


def notify_result(message: str, task_id: str) -> str:
    """Return the result of a `notify` call that was made."""
    return encode_json({"action": "notify", "message": message, "taskId": task_id})
