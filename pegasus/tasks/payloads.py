"""What a task event carries: exactly the `data` of its line in the task's log (interfaces section 5).

One function for each event; whatever they make can be written, read back, and applied with the same outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from pegasus.conversation import Entry, to_json
from pegasus.events import EventType
from pegasus.messages import Json, Metadata
from pegasus.tasks.context import Plan, PlannedCall, PostReflection, Reasoning, TaskContext, TaskState
from pegasus.wire import DEEPEST, to_wire

Payload: TypeAlias = dict[str, Json]

KEYS: Final[Mapping[EventType, tuple[str, ...]]] = MappingProxyType(
    {
        EventType.TASK_CREATED: ("description", "inputText", "source", "inputMetadata", "taskType"),
        EventType.REASON_DONE: ("reasoning", "plan", "newMessages"),
        EventType.TOOL_CALL_COMPLETED: ("toolName", "durationMs", "newMessages"),
        EventType.TOOL_CALL_FAILED: ("toolName", "durationMs", "newMessages"),
        EventType.STEP_COMPLETED: ("newMessages",),
        EventType.NEED_MORE_INFO: ("reasoning", "question"),
        EventType.TASK_NOTIFY: ("message",),
        EventType.TASK_SUSPENDED: ("suspendedState", "suspendReason", "reasoning", "plan", "newMessages"),
        EventType.TASK_RESUMED: ("newInput", "previousState", "newMessages"),
        EventType.REFLECTION_COMPLETE: ("toolCallsCount", "assessment"),
        EventType.TASK_COMPLETED: ("finalResult", "iterations", "newMessages"),
        EventType.TASK_FAILED: ("error",),
    }
)
"""The events that are lines of a task's log, and the keys of their data. No other event changes a task."""


def created(
    input_text: str,
    *,
    description: str = "",
    source: str = "user",
    metadata: Metadata | None = None,
    task_type: str = "general",
) -> Payload:
    """TASK_CREATED."""
    values = (description, input_text, source, metadata or {}, task_type)
    return _payload(EventType.TASK_CREATED, *values)


def reason_done(reasoning: Reasoning, plan: Plan, messages: Sequence[Entry]) -> Payload:
    """REASON_DONE. messages: the memory index, if it was given, then the assistant's turn if it calls tools."""
    calls = [_call(call) for call in reasoning.tool_calls]
    known = {id(call): made for call, made in zip(reasoning.tool_calls, calls, strict=True)}
    lines = writable(_lines(messages))
    return {"reasoning": _reasoning(reasoning, calls), "plan": _plan(plan, known), "newMessages": lines}


def tool_done(tool_name: str, duration_ms: int, result: Entry) -> Payload:
    """TOOL_CALL_COMPLETED and TOOL_CALL_FAILED. result: the tool message, whose call_id says which step it completes."""
    return _payload(EventType.TOOL_CALL_COMPLETED, tool_name, duration_ms, _lines((result,)))


def step_completed(answer: Entry) -> Payload:
    """STEP_COMPLETED. answer: the assistant's turn, which is the task's response (trap T4)."""
    return _payload(EventType.STEP_COMPLETED, _lines((answer,)))


def need_more_info(reasoning: Reasoning, question: str) -> Payload:
    """NEED_MORE_INFO."""
    return _payload(EventType.NEED_MORE_INFO, to_wire(reasoning), question)


def notify(message: str) -> Payload:
    """TASK_NOTIFY."""
    return _payload(EventType.TASK_NOTIFY, message)


def suspended(context: TaskContext, state: TaskState, reason: str) -> Payload:
    """TASK_SUSPENDED, of a task as it is now: reasoning and plan are for readers of the log, a replay has them already."""
    reasoning = to_wire(context.reasoning) if context.reasoning else None
    plan = to_wire(context.plan) if context.plan else None
    return _payload(EventType.TASK_SUSPENDED, str(state), reason, reasoning, plan, [])


def resumed(new_input: str, previous_state: TaskState, at: int, key: str = "") -> Payload:
    """TASK_RESUMED. new_input: what the task is told, "" = just go on. at: wall clock, ms. key: as in `Resume`."""
    metadata: Payload = {"key": key} if key else {}
    messages = (Entry(at, "user", new_input, metadata=metadata),) if new_input else ()
    return _payload(EventType.TASK_RESUMED, new_input, str(previous_state), _lines(messages))


def reflected(reflection: PostReflection) -> Payload:
    """REFLECTION_COMPLETE."""
    return _payload(EventType.REFLECTION_COMPLETE, reflection.tool_calls_count, reflection.assessment)


def completed(context: TaskContext) -> Payload:
    """TASK_COMPLETED, of a task that is in COMPLETED."""
    return _payload(EventType.TASK_COMPLETED, final_result(context), context.iteration, [])


def answered(context: TaskContext, response: str) -> Payload:
    """The same, of a task that has just thought of this answer, which makes it one iteration more."""
    iterations = context.iteration + 1
    return _payload(EventType.TASK_COMPLETED, _result(context, response, iterations), iterations, [])


def failed(error: str) -> Payload:
    """TASK_FAILED."""
    return _payload(EventType.TASK_FAILED, error)


def final_result(context: TaskContext) -> Payload:
    """{taskId, input, response, iterations}: the last response, or null; raw tool outputs are kept out on purpose."""
    responses = (done.result for done in reversed(context.actions_done) if done.action_type == "respond")
    return _result(context, next(responses, None), context.iteration)


def _result(context: TaskContext, response: str | None, iterations: int) -> Payload:
    return {"taskId": context.id, "input": context.input_text, "response": response, "iterations": iterations}


def _reasoning(reasoning: Reasoning, calls: Sequence[Payload]) -> Payload:
    """As `to_wire` has it, by hand: every step of every task waits for it."""
    made: Payload = {"response": reasoning.response, "approach": reasoning.approach}
    if reasoning.needs_clarification:
        made["needsClarification"] = True
    if calls:
        made["toolCalls"] = [*calls]
    return made


def _plan(plan: Plan, calls: Mapping[int, Payload]) -> Payload:
    """calls: what is known already, by identity."""
    steps: list[Json] = []
    for step in plan.steps:
        made: Payload = {"index": step.index, "description": step.description, "actionType": step.action_type}
        if step.call is not None:
            made["call"] = calls.get(id(step.call)) or _call(step.call)
        if step.completed:
            made["completed"] = True
        steps.append(made)
    return {"goal": plan.goal, "steps": steps, **({"reasoning": plan.reasoning} if plan.reasoning else {})}


def _call(call: PlannedCall) -> Payload:
    made: Payload = {"id": call.id, "name": call.name}
    if call.arguments:
        made["arguments"] = writable(call.arguments)
    if call.error is not None:
        made["error"] = call.error
    return made


def writable(value: object, levels: int = DEEPEST) -> Json:
    """The value as JSON that can be written and read back; what JSON cannot hold (NaN, endless nesting) becomes null or text.

    Models do send such things: a provider's JSON parser takes NaN.
    """
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, (list, tuple)):
        return [writable(item, levels - 1) for item in value] if levels else _TOO_DEEP
    if isinstance(value, (dict, Mapping)):  # in this order: asking the abstract class is slow
        return {str(key): writable(item, levels - 1) for key, item in value.items()} if levels else _TOO_DEEP
    return str(value)


_TOO_DEEP: Final = "(nested too deep)"


def _payload(type: EventType, *values: object) -> Payload:
    return {key: writable(value) for key, value in zip(KEYS[type], values, strict=True)}


def _lines(messages: Sequence[Entry]) -> list[Json]:
    return [to_json(entry) for entry in messages]
