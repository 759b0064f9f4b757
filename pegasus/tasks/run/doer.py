"""Running the tool calls of a plan, and the rule which of them may run at the same time.

Calls that change something run one after another, in the order of the model, because the model wrote them in that order for a
reason. Neighbouring calls that only look (`Effect.PURE`) run side by side. Recovery relies on the same rule (`next_steps`): the
calls that may have been running when the process died are exactly those that it returns for the plan in the log.

An unknown tool, a forbidden one and invalid arguments are results like any other. The model reads the reason and the names that it may
use, and usually corrects itself in its next call; failing the task would lose what it has done so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import attrs
import trio

from pegasus.conversation import Entry
from pegasus.messages import Json, Metadata
from pegasus.models import ToolSpec
from pegasus.tasks.core.context import PlannedCall, PlanStep
from pegasus.tasks.core.task_types import TaskType
from pegasus.tasks.run.thinker import ASK_USER, NOTIFY
from pegasus.tools import Effect, Tool, ToolContext, ToolOutcome
from pegasus.wire import encode_json


class Toolbox(Protocol):
    """All tools, and the one way to run them."""

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name, None if there is none."""

    def all(self) -> Iterable[Tool]:
        """Return every tool."""

    async def run(self, tool: Tool, arguments: Metadata, context: ToolContext) -> ToolOutcome:
        """Run a tool under its deadline. Raises nothing but Cancelled."""


@attrs.frozen
class CallResult:
    """The outcome of a tool call, as `Doer.do` returns it."""

    call: PlannedCall
    """The call."""
    result: Entry
    """The tool message for the conversation."""
    success: bool
    """False for an error; the model sees it and decides."""
    duration_ms: int
    """Time that the call took."""
    notification: str = ""
    """Message that a `notify` call has for the submitter."""


# Result of an `ask_user` call without a question. One with a question never reaches the doer: it suspends the task.
_NO_QUESTION: Final = "question is required: one clear question, as a text"


def allowed_tools(toolbox: Toolbox, task_type: TaskType) -> tuple[ToolSpec, ...]:
    """Return the tools that a task of this type may use, as the model is shown them."""
    return task_type.allowed_of([tool.spec for tool in toolbox.all()])


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


class Doer:
    """Carries out calls. It has no state of its own: one instance serves all tasks.

    Example: `done = await Doer(toolbox, clock).do(PlannedCall("c1", "read_file", {"path": "a"}), task_type, context)`.
    """

    def __init__(self, toolbox: Toolbox, clock: Callable[[], int]) -> None:
        """Prepare. clock: wall clock, ms."""
        self._toolbox = toolbox
        self._clock = clock

    def effect_of(self, name: str) -> Effect | None:
        """Return the effect of running this tool again, None if it is unknown or the order of its calls matters."""
        if name in (NOTIFY.name, ASK_USER.name):
            return None  # messages to the submitter keep the order of the calls
        tool = self._toolbox.get(name)
        return tool.effect if tool else None

    async def do(self, call: PlannedCall, task_type: TaskType, context: ToolContext) -> CallResult:
        """Carry out one call and return its result; errors are results. Cancelled: the call has ended with all it had started."""
        begun = trio.current_time()
        outcome, notification = await self._outcome(call, task_type, context)
        metadata: dict[str, Json] = {"error": True} if outcome.failed else {}
        result = Entry(self._clock(), "tool", outcome.content, call_id=call.id, metadata=metadata)
        duration = round((trio.current_time() - begun) * 1000)
        return CallResult(call, result, not outcome.failed, duration, notification)

    async def _outcome(self, call: PlannedCall, task_type: TaskType, context: ToolContext) -> tuple[ToolOutcome, str]:
        """Return the outcome of a call, and the notification that it has for the submitter, "" if none."""
        if call.error is not None:
            return _failed(call.error), ""
        if call.name == NOTIFY.name:
            return _notify(call, context.task_id)
        if call.name == ASK_USER.name:
            return _failed(_NO_QUESTION), ""
        tool = self._toolbox.get(call.name)
        if tool is None or not task_type.allows(call.name):
            names = ", ".join(spec.name for spec in (*allowed_tools(self._toolbox, task_type), NOTIFY, ASK_USER))
            why = "there is no such tool" if tool is None else _forbidden(task_type)
            return _failed(f"{call.name}: {why}. There are: {names}"), ""
        return await self._toolbox.run(tool, call.arguments, context), ""


def _notify(call: PlannedCall, task_id: str) -> tuple[ToolOutcome, str]:
    """Return the outcome of a `notify` call and its message; an error if there is none."""
    message = call.arguments.get("message")
    if not isinstance(message, str) or not message.strip():
        return _failed("message is required: what they should know, as a text"), ""
    return ToolOutcome(notify_result(message, task_id), failed=False), message


def notify_result(message: str, task_id: str) -> str:
    """Return the result of a `notify` call that was made."""
    return encode_json({"action": "notify", "message": message, "taskId": task_id})


def _forbidden(task_type: TaskType) -> str:
    """Return the reason why a task may not use a tool that exists."""
    limited = " with the limits that this one has" if task_type.within is not None else ""
    return f"it is not available to tasks of type {task_type.name}{limited}"


def _failed(why: str) -> ToolOutcome:
    """Return the outcome of a call that was not run."""
    return ToolOutcome(f"Error: {why}", failed=True)
