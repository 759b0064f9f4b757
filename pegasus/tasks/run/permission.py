"""The tool `ask_permission`: a task asks beforehand for the calls that it plans, in one question instead of one for each.

A plan is calls in full: there are no patterns, since nobody can say yes to what is not there yet. Its arguments are checked as those
of a call are, so that an owner is not asked about what cannot run. Everything else is the gate's part: what the policy denies cannot
be in a plan, and what needs no yes is not asked about.

The plan of a model that was talked into something is a question like any other. Each allowed call may be made once, by this task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pegasus.access import MOST_BYTES, MOST_CALLS
from pegasus.formatting import quote
from pegasus.messages import Metadata
from pegasus.models import ToolCall, ToolSpec
from pegasus.tasks.core.task_types import TaskType
from pegasus.tools import PlannedCall, Tool, ToolContext, ToolExecutor, ToolOutcome, prepare_arguments
from pegasus.wire import encode_json

ASK_PERMISSION: Final = ToolSpec(
    "ask_permission",
    "Ask the owner beforehand for calls that may need a yes: commands, tools of servers, messages, purchases. It is one question in "
    "place of one for each call, so use it as soon as you know two or more of them, best before you read text from outside. Give each "
    f"call with all its arguments in full, {MOST_CALLS} at most. Each call that is allowed may then be made once, with exactly these "
    "arguments. The task waits for the answer, which may take long.",
    {
        "type": "object",
        "properties": {
            "calls": {
                "type": "array",
                "description": f"The calls, in the order in which you will make them; {MOST_CALLS} at most",
                "items": {
                    "type": "object",
                    "properties": {"tool": {"type": "string"}, "arguments": {"type": "object"}},
                    "required": ["tool", "arguments"],
                },
            },
            "why": {"type": "string", "description": "What they are for, in a sentence"},
        },
        "required": ["calls", "why"],
    },
)


class BadPlan(Exception):
    """A plan cannot be asked about. str() says why, for the model. Example: "call 2: there is no tool mail__sned"."""


async def ask_permission(
    call: ToolCall, toolbox: ToolExecutor, task_type: TaskType, context_of: Callable[[str, str], ToolContext]
) -> ToolOutcome:
    """Return what became of the calls that a task asks for beforehand, or the approval that the plan waits for.

    context_of: returns the context of a call by its id and its tool. Raises nothing but Cancelled.
    """

    def find_tool(name: str) -> Tool | None:
        """Return a tool that the task may use."""
        return toolbox.get(name) if task_type.allows(name) else None

    try:
        # The keys of planned calls are not those with which they are made later.
        planned = read_plan(
            call.arguments, find_tool, lambda number, name: context_of(f"{call.id}/plan-{number}", name)
        )
    except BadPlan as error:
        return ToolOutcome.failure(str(error))
    return await toolbox.ask_beforehand(planned, str(call.arguments["why"]))


def read_plan(
    arguments: Metadata, find_tool: Callable[[str], Tool | None], context_of: Callable[[int, str], ToolContext]
) -> list[PlannedCall]:
    """Return the calls of a plan. Raises BadPlan for one that cannot be asked about as it is; nothing of it counts then.

    find_tool: returns a tool that the task may use. context_of: returns the context of a call by its number, from 1, and its tool.
    """
    calls, why = arguments.get("calls"), arguments.get("why")
    if not isinstance(calls, list | tuple) or not calls:
        raise BadPlan('calls is required: a list of {"tool", "arguments"}')
    if not isinstance(why, str) or not why.strip():
        raise BadPlan("why is required: what the calls are for, as a text")
    if len(calls) > MOST_CALLS:
        raise BadPlan(
            f"found {len(calls):,} calls, allowed: {MOST_CALLS}. Ask for the first ones, and for others when these are made"
        )
    planned: list[PlannedCall] = []
    problems: list[str] = []
    for number, call in enumerate(calls, 1):
        name, given = (call.get("tool"), call.get("arguments")) if isinstance(call, Mapping) else (None, None)
        tool = find_tool(name) if isinstance(name, str) else None
        if tool is None:
            problems.append(f"call {number}: there is no tool {quote(str(name), 80)}")
        elif not isinstance(given, Mapping):
            problems.append(f"call {number}: arguments is required: an object with all arguments of {tool.name}")
        else:
            prepared, problem = prepare_arguments(tool.spec.parameters, given)
            if problem is not None:
                problems.append(f"call {number} ({tool.name}): {problem}")
            planned.append(PlannedCall(tool, prepared, context_of(number, tool.name)))
    if problems:
        raise BadPlan(f"nobody was asked. {'; '.join(problems)}")
    size = sum(len(encode_json(call.arguments)) for call in planned)
    if size > MOST_BYTES:
        raise BadPlan(
            f"found arguments of {size:,} characters, allowed: {MOST_BYTES:,}, since a person is to read them"
        )
    return planned
