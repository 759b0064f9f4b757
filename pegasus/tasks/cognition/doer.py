"""Doing: one step of a plan (the seeds' Actor). Which steps may run side by side is said here too."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import attrs
import trio

from pegasus.conversation import Entry
from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.tasks.cognition.thinker import ASK_USER, NOTIFY
from pegasus.tasks.context import PlannedCall, PlanStep
from pegasus.tasks.types import TaskType
from pegasus.tools import Effect, Tool, ToolContext, ToolOutcome


class Toolbox(Protocol):
    """All the tools there are, and the one way they are run."""

    def get(self, name: str) -> Tool | None:
        """The tool of this name."""

    def all(self) -> Iterable[Tool]:
        """Every tool."""

    async def run(self, tool: Tool, arguments: Metadata, context: ToolContext) -> ToolOutcome:
        """Run it under its deadline. Raises nothing but Cancelled."""


@attrs.frozen
class Done:
    """What came of a call. result: the tool message. duration: ms. told: what it said to the submitter by notify()."""

    result: Entry
    success: bool
    duration: int
    told: str = ""


_NO_QUESTION: Final = "question is required: one clear question, as a text"


def visible(toolbox: Toolbox, task_type: TaskType) -> tuple[ToolSpec, ...]:
    """What the model is shown: the tools that a task of this type may use."""
    return tuple(tool.spec for tool in toolbox.all() if task_type.allows(tool.name))


def next_steps(steps: Sequence[PlanStep], effect_of: Callable[[str], Effect | None]) -> tuple[PlanStep, ...]:
    """What is to be done now: the first open step, and with it those behind it that only look, if it only looks (trap T31)."""
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


class Doer:
    """Stateless: one serves all tasks. clock: wall clock, ms."""

    def __init__(self, toolbox: Toolbox, clock: Callable[[], int]) -> None:
        self._toolbox = toolbox
        self._clock = clock

    def effect_of(self, name: str) -> Effect | None:
        """What running this tool again does; None if there is no such tool."""
        if name in (NOTIFY.name, ASK_USER.name):
            return None  # its words must come in the order of the calls
        tool = self._toolbox.get(name)
        return tool.effect if tool else None

    async def do(self, call: PlannedCall, task_type: TaskType, context: ToolContext) -> Done:
        """Carry out one call; whatever goes wrong is its result. Cancelled: the call has ended, with what it had started."""
        begun = trio.current_time()
        outcome, told = await self._outcome(call, task_type, context)
        metadata: dict[str, Json] = {} if not outcome.failed else {"error": True}
        result = Entry(self._clock(), "tool", outcome.content, call_id=call.id, metadata=metadata)
        return Done(result, not outcome.failed, round((trio.current_time() - begun) * 1000), told)

    async def _outcome(self, call: PlannedCall, task_type: TaskType, context: ToolContext) -> tuple[ToolOutcome, str]:
        if call.error is not None:
            return _failed(call.error), ""
        if call.name == NOTIFY.name:
            return _notify(call, context.task_id)
        if call.name == ASK_USER.name:
            return _failed(_NO_QUESTION), ""
        tool = self._toolbox.get(call.name)
        if tool is None or not task_type.allows(call.name):
            names = ", ".join(spec.name for spec in (*visible(self._toolbox, task_type), NOTIFY, ASK_USER))
            why = "there is no such tool" if tool is None else _forbidden(task_type)
            return _failed(f"{call.name}: {why}. There are: {names}"), ""
        return await self._toolbox.run(tool, call.arguments, context), ""


def _notify(call: PlannedCall, task_id: str) -> tuple[ToolOutcome, str]:
    message = call.arguments.get("message")
    if not isinstance(message, str) or not message.strip():
        return _failed("message is required: what they should know, as a text"), ""
    return ToolOutcome(notified(message, task_id), failed=False), message


def notified(message: str, task_id: str) -> str:
    """The result of a notify() that was said."""
    return json.dumps({"action": "notify", "message": message, "taskId": task_id}, ensure_ascii=False)


def _forbidden(task_type: TaskType) -> str:
    limited = " with the limits that this one has" if task_type.within is not None else ""
    return f"it is not available to tasks of type {task_type.name}{limited}"


def _failed(why: str) -> ToolOutcome:
    return ToolOutcome(f"Error: {why}", failed=True)
