"""The events that change a task: one attrs class for the payload of each type.

A payload is exactly the `data` of the event's line in the task's log (docs/task-persistence.md). In memory an event carries it as
a JSON object, for subscribers of the bus and for the log; `to_payload` and `parse_payload` convert. A running task parses
the same JSON as a replay does, so both refuse and accept the same events.

All keys of a type are always written. Missing keys read as their defaults, so that logs of earlier versions, which had
fewer keys, can be replayed. Unknown keys are ignored, so that logs of newer versions can be read as far as they are understood.

Each line holds only the messages that its event adds, never the whole conversation. A log therefore grows in proportion to the work,
and the conversation of a task is the concatenation of its `newMessages`.

Adding a key: give it a default here, and update docs/task-persistence.md. Adding an event type: add a class here, rows in
`fsm.TRANSITIONS`, and a case in `changes.apply_event`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import attrs

from pegasus.conversation import BadEntry, Entry, decode, to_json
from pegasus.events import Event, EventType
from pegasus.messages import Json, Metadata
from pegasus.tasks.core.context import PlanStep, Reasoning, TaskContext, TaskPlan, TaskState
from pegasus.wire import DEEPEST, WireError, camel, from_wire, to_wire

Payload: TypeAlias = dict[str, Json]
"""Payload of an event as a JSON object, keys in camelCase."""
NewMessages: TypeAlias = tuple[Metadata, ...]
"""Messages that an event adds to the conversation, as JSON objects: only what was added since the line before."""


class PayloadError(ValueError):
    """The payload does not fit its event type, or the event does not fit what the task knows. Nothing has changed."""


@attrs.frozen
class TaskCreated:
    """TASK_CREATED: a task was accepted. It is on disk before its submitter receives the id."""

    description: str = ""
    """A few words for people."""
    input_text: str = ""
    """The work to do."""
    source: str = "user"
    """Submitter."""
    input_metadata: Metadata = attrs.field(factory=dict)
    """Metadata of the submitter, and overrides of the type."""
    task_type: str = "general"
    """Name of the type; logs of the first version have none."""


@attrs.frozen
class ReasonDone:
    """REASON_DONE: a model call ended with an answer or with tool calls."""

    reasoning: Reasoning
    """Text and calls of the model."""
    plan: TaskPlan
    """Steps to carry out; at least one, else the event is refused."""
    new_messages: NewMessages = ()
    """The memory index if it was given, then the assistant's turn if it calls tools. A direct answer follows in STEP_COMPLETED."""


@attrs.frozen
class ToolCallDone:
    """TOOL_CALL_COMPLETED and TOOL_CALL_FAILED: a call has its result. A failed call completes its step too; the model decides."""

    tool_name: str = ""
    """Tool that was called."""
    duration_ms: float = 0
    """Time that the call took, ms; written without a fraction, read with one too."""
    new_messages: NewMessages = ()
    """The tool message. Its toolCallId names the step that it completes."""


@attrs.frozen
class StepCompleted:
    """STEP_COMPLETED: the step that answers was carried out."""

    new_messages: NewMessages = ()
    """The assistant's turn, which is the response of the task."""


@attrs.frozen
class NeedMoreInfo:
    """NEED_MORE_INFO: the model asks its submitter a question. The task is suspended until it is resumed with the answer."""

    reasoning: Reasoning
    """The thought; its other calls are not made."""
    question: str = ""
    """The question."""


@attrs.frozen
class TaskNotified:
    """TASK_NOTIFY: a `notify` call. It comes before the result of the call, so that recovery knows that it was made."""

    message: str = ""
    """Message for the submitter."""


@attrs.frozen
class TaskSuspended:
    """TASK_SUSPENDED: a task was suspended on request. A question of the model is NEED_MORE_INFO instead."""

    suspended_state: str = ""
    """State before the suspension. For readers of the log; a replay takes it from the task."""
    suspend_reason: str = ""
    """Reason, for people."""
    reasoning: Reasoning | None = None
    """Last thought, for readers of the log; a replay knows it already."""
    plan: TaskPlan | None = None
    """Plan with the steps completed so far, for readers of the log."""
    new_messages: NewMessages = ()
    """Always empty as written today; logs of earlier versions may have messages."""


@attrs.frozen
class TaskResumed:
    """TASK_RESUMED: a suspended, completed or interrupted task goes on."""

    new_input: str = ""
    """New text for the task; "" = go on as before. It becomes the input of a task that was finished."""
    previous_state: str = ""
    """State before the resume, for readers of the log."""
    new_messages: NewMessages = ()
    """The new text as a user message, with the key of the `Resume` in its metadata; empty without a text."""


@attrs.frozen
class MessageForTask:
    """MESSAGE_RECEIVED with a task id. The agent records TASK_RESUMED instead; only old logs have this line."""

    text: str = ""
    """Text of the message, the answer to the question of a suspended task."""


@attrs.frozen
class ReflectionDone:
    """REFLECTION_COMPLETE: the reflection on a completed task has ended. It is for readers of the log only."""

    tool_calls_count: int = 0
    """Calls of memory tools."""
    assessment: str = ""
    """One sentence on what was kept, and why."""


@attrs.frozen
class TaskCompleted:
    """TASK_COMPLETED: the result is recorded. From this line on the task cannot fail any more."""

    final_result: Metadata = attrs.field(factory=dict)
    """{taskId, input, response, iterations}, as the submitter receives it."""
    iterations: int = 0
    """Model calls since the start or the last resume."""
    new_messages: NewMessages = ()
    """Always empty as written today; the answer is in STEP_COMPLETED."""


@attrs.frozen
class TaskFailed:
    """TASK_FAILED: the task ended without an answer. The error of a task that a restart interrupted is `changes.RESTARTED`."""

    error: str = ""
    """Reason, for people."""


TaskEventData: TypeAlias = (
    TaskCreated
    | ReasonDone
    | ToolCallDone
    | StepCompleted
    | NeedMoreInfo
    | TaskNotified
    | TaskSuspended
    | TaskResumed
    | MessageForTask
    | ReflectionDone
    | TaskCompleted
    | TaskFailed
)
"""Payload of any event that changes a task."""

_RECORDED_DATA: Final[Mapping[EventType, type[TaskEventData]]] = {
    EventType.TASK_CREATED: TaskCreated,
    EventType.REASON_DONE: ReasonDone,
    EventType.TOOL_CALL_COMPLETED: ToolCallDone,
    EventType.TOOL_CALL_FAILED: ToolCallDone,
    EventType.STEP_COMPLETED: StepCompleted,
    EventType.NEED_MORE_INFO: NeedMoreInfo,
    EventType.TASK_NOTIFY: TaskNotified,
    EventType.TASK_SUSPENDED: TaskSuspended,
    EventType.TASK_RESUMED: TaskResumed,
    EventType.REFLECTION_COMPLETE: ReflectionDone,
    EventType.TASK_COMPLETED: TaskCompleted,
    EventType.TASK_FAILED: TaskFailed,
}
# Types that are read but never written are only in this table.
_ALL_DATA: Final = {**_RECORDED_DATA, EventType.MESSAGE_RECEIVED: MessageForTask}

RECORDED_KEYS: Final[Mapping[EventType, tuple[str, ...]]] = MappingProxyType(
    {kind: tuple(camel(field.name) for field in attrs.fields(data)) for kind, data in _RECORDED_DATA.items()}
)
"""The events that are lines of a task's log, with the keys of their data. No other event changes a task."""
END_EVENTS: Final = frozenset({EventType.TASK_COMPLETED, EventType.TASK_FAILED})
"""After one of these the task is over, until it is resumed."""


def to_payload(data: TaskEventData) -> Payload:
    """Return the payload as JSON that can be written and read back, with every key of its class.

    `to_wire` leaves out fields that have their default; they are added again here, so that a reader of a log sees every key.
    """
    wire = to_wire(data)
    keys = {camel(field.name): getattr(data, field.name) for field in attrs.fields(type(data))}
    return {key: json_safe(wire.get(key, default)) for key, default in keys.items()}


def parse_payload(event: Event) -> TaskEventData:
    """Return the payload of a task event. Raises PayloadError: the type changes no task, or a key has a wrong value."""
    data = _ALL_DATA.get(event.type)
    if data is None:
        raise PayloadError(f"{event.type.name} does not change a task")
    try:
        return from_wire({key: value for key, value in event.payload.items() if value is not None}, data)
    except WireError as error:
        raise PayloadError(str(error)) from None


def parse_messages(messages: NewMessages) -> tuple[Entry, ...]:
    """Return the messages of a payload as entries of a conversation. Raises PayloadError."""
    try:
        return tuple(decode(message) for message in messages)
    except BadEntry as error:
        raise PayloadError(f"newMessages: {error}") from None


def messages_json(entries: Sequence[Entry]) -> NewMessages:
    """Return entries of a conversation as messages of a payload, in the same order. The inverse of `parse_messages`."""
    return tuple(to_json(entry) for entry in entries)


def make_plan(reasoning: Reasoning, goal: str) -> TaskPlan:
    """Return one step for each tool call, in the order of the calls; without any, one step that responds.

    Planning is plain code: the model decides by its calls, so it costs no model call of its own.
    """
    if not reasoning.tool_calls:
        return TaskPlan(goal, (PlanStep(0, "respond", "respond"),))
    steps = [PlanStep(n, f"call {call.name}", "tool_call", call) for n, call in enumerate(reasoning.tool_calls)]
    return TaskPlan(goal, tuple(steps))


# ------------------------------------------------------------------ payloads that need more than their fields


def task_suspended(context: TaskContext, state: TaskState, reason: str) -> Payload:
    """Return the payload of TASK_SUSPENDED for a task that is in this state now."""
    return to_payload(TaskSuspended(str(state), reason, context.reasoning, context.plan))


def task_resumed(new_input: str, previous_state: TaskState, at: int, key: str = "") -> Payload:
    """Return the payload of TASK_RESUMED. at: wall clock, ms. key: stands with the input in the messages, as in `Resume`."""
    metadata: Payload = {"key": key} if key else {}
    entries = (Entry(at, "user", new_input, metadata=metadata),) if new_input else ()
    return to_payload(TaskResumed(new_input, str(previous_state), messages_json(entries)))


def task_completed(context: TaskContext) -> Payload:
    """Return the payload of TASK_COMPLETED for a task that has given its answer.

    The result is the last response, or null if there is none. Raw tool outputs are left out on purpose: they may be large
    and are in the log already.
    """
    responses = (done.result for done in reversed(context.actions_done) if done.action_type == "respond")
    result: Payload = {
        "taskId": context.id,
        "input": context.input_text,
        "response": next(responses, None),
        "iterations": context.iteration,
    }
    return to_payload(TaskCompleted(result, context.iteration))


def json_safe(value: object, levels: int = DEEPEST) -> Json:
    """Return the value as JSON that can be written and read back.

    Models send values that JSON does not have, since providers' parsers accept NaN. Such a number becomes null, nesting beyond
    `levels` a note, anything else text. A line that cannot be written would stop its task for good.
    """
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, list | tuple):
        return [json_safe(item, levels - 1) for item in value] if levels else _TOO_DEEP
    if isinstance(value, Mapping):
        return {str(key): json_safe(item, levels - 1) for key, item in value.items()} if levels else _TOO_DEEP
    return str(value)


_TOO_DEEP: Final = "(nested too deep)"
"""Replacement of a list or an object that is nested deeper than the readers of lines accept."""
