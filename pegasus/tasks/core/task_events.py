"""The events that change a task: what each of them says, as a class.

What an event says is its *data* (`Event.data`), a value of a class below. The stages of a task make it, the state machine applies it
(`pegasus.tasks.core.fsm`), and nothing is converted in between. Its form in the log is in `pegasus.tasks.log.format`. For a replay to
give the same task, the data must hold nothing that JSON cannot: whoever makes data of what a model or another part of the program
has sent makes it so first (`json_object`).

All keys of a type are always written. Missing keys read as their defaults, so that logs of earlier versions, which had
fewer keys, can be replayed. Unknown keys are ignored, so that logs of newer versions can be read as far as they are understood.

Each event holds only the messages that it adds, never the whole conversation. A log therefore grows in proportion to the work,
and the conversation of a task is the concatenation of its `newMessages`.

Adding a key: give it a default here, and update docs/task-persistence.md. Adding an event type: add a class here and in `EVENT_DATA`,
rows in `fsm.TRANSITIONS`, and a case in `fsm.apply_event`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import attrs

from pegasus.conversation import Entry
from pegasus.events import EventType
from pegasus.messages import Json, Metadata
from pegasus.models import ToolCall
from pegasus.tasks.core.task_types import DEFAULT_TASK_TYPE
from pegasus.wire import DEEPEST, writable_object


@attrs.frozen
class Reasoning:
    """The outcome of one model call: text, and the calls that become the steps of the plan."""

    response: str
    """Text of the answer; may be empty if there are tool calls."""
    approach: str
    """"tool_use" or "direct"."""
    needs_clarification: bool = False
    """True if the model asks its submitter a question."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls in the order in which the model made them."""


@attrs.define
class PlanStep:
    """One step of a plan.

    Example: `PlanStep(0, "call read_file", "tool_call", call)`. It is mutable because a result completes it in its
    plan.
    """

    index: int
    """Position in the plan, from 0."""
    description: str
    """Short text for people."""
    action_type: str
    """"tool_call" (then `call` is set) or "respond"."""
    call: ToolCall | None = None
    """Tool call of this step."""
    completed: bool = False
    """True if the result is known; a call that failed is completed too."""


@attrs.frozen
class TaskPlan:
    """The steps that one model call leads to.

    A plan is replaced as a whole by the next model call. Completed steps stay in it, so that a replay knows how far the task is.

    Example: `make_plan(reasoning, "find papers").steps[0].description`.
    """

    goal: str
    """Input of the task."""
    steps: tuple[PlanStep, ...]
    """One step for each tool call, or a single one that responds."""


# ------------------------------------------------------------------ data


Payload: TypeAlias = dict[str, Json]
"""Data of an event as a JSON object, keys in camelCase."""


class PayloadError(ValueError):
    """The data does not fit its event type, or the event does not fit what the task knows. Nothing has changed.

    Example::

        try:
            apply_event(context, event, state)
        except PayloadError as error:   # e.g. no open step waits for the result
            raise BadTaskLine(f"TASK_FAILED: {error}") from None
    """


@attrs.frozen
class TaskEventData:
    """Data of an event that changes a task; each type of event has a class of its own below.

    Example: `create_event(TaskNotify("half done"), "t1", "task", clock())` makes the event of one.
    """


@attrs.frozen
class TaskCreated(TaskEventData):
    """TASK_CREATED: a task was accepted. It is on disk before its submitter receives the id."""

    description: str = ""
    """A few words for people."""
    input_text: str = ""
    """The work to do."""
    source: str = "user"
    """Submitter."""
    input_metadata: Metadata = attrs.field(factory=dict)
    """Metadata of the submitter, and overrides of the type."""
    task_type: str = DEFAULT_TASK_TYPE
    """Name of the type."""
    cause: str = ""
    """Message, job, hook or task that it comes of, as a kind and a name: "message telegram:42 17", "job a1b2"; "" if unknown."""


@attrs.frozen
class ReasonDone(TaskEventData):
    """REASON_DONE: a model call ended with an answer or with tool calls."""

    reasoning: Reasoning
    """Text and calls of the model."""
    plan: TaskPlan
    """Steps to carry out; at least one, else the event is refused. The task takes the plan over, and marks the steps in it."""
    new_messages: tuple[Entry, ...] = ()
    """The memory index if it was given, then the assistant's turn if it calls tools. A direct answer follows in STEP_COMPLETED."""


@attrs.frozen
class ToolCallDone(TaskEventData):
    """TOOL_CALL_COMPLETED: a call has its result.

    Example: `ToolCallDone("read_file", 12, (result,))`, where `result` is the entry of the tool message.
    """

    tool_name: str = ""
    """Tool that was called."""
    duration_ms: float = 0
    """Time that the call took, ms; written without a fraction, read with one too."""
    new_messages: tuple[Entry, ...] = ()
    """The tool message. Its toolCallId names the step that it completes."""


@attrs.frozen
class ToolCallFailed(ToolCallDone):
    """TOOL_CALL_FAILED: a call has failed. It completes its step too; the model decides what to do about it."""


@attrs.frozen
class StepCompleted(TaskEventData):
    """STEP_COMPLETED: the step that answers was carried out.

    Example: `StepCompleted((answer,))` of a task that answers without a tool.
    """

    new_messages: tuple[Entry, ...] = ()
    """The assistant's turn, which is the response of the task."""


@attrs.frozen
class NeedMoreInfo(TaskEventData):
    """NEED_MORE_INFO: the model asks its submitter a question. The task is suspended until it is resumed with the answer."""

    reasoning: Reasoning
    """The thought; its other calls are not made."""
    question: str = ""
    """The question."""


@attrs.frozen
class TaskNotify(TaskEventData):
    """TASK_NOTIFY: a `notify` call. It comes before the result of the call, so that recovery knows that it was made."""

    message: str = ""
    """Message for the submitter."""


@attrs.frozen
class TaskSuspended(TaskEventData):
    """TASK_SUSPENDED: a task was suspended on request. A question of the model is NEED_MORE_INFO instead."""

    suspended_state: str = ""
    """State before the suspension. For readers of the log; a replay takes it from the task."""
    suspend_reason: str = ""
    """Reason, for people."""
    reasoning: Reasoning | None = None
    """Last thought, for readers of the log; a replay knows it already."""
    plan: TaskPlan | None = None
    """Plan with the steps completed so far, for readers of the log."""
    new_messages: tuple[Entry, ...] = ()
    """Always empty; every log has the key."""


@attrs.frozen
class TaskResumed(TaskEventData):
    """TASK_RESUMED: a suspended, completed or interrupted task goes on.

    Example: `TaskResumed("The blue one.", "suspended", (message,))`; `TaskResumed(previous_state="acting")` without a
    text.
    """

    new_input: str = ""
    """New text for the task; "" = go on as before. It becomes the input of a task that was finished."""
    previous_state: str = ""
    """State before the resume, for readers of the log."""
    new_messages: tuple[Entry, ...] = ()
    """The new text as a user message, with the key of the `Resume` in its metadata; empty without a text."""


@attrs.frozen
class ReflectionDone(TaskEventData):
    """REFLECTION_COMPLETE: the reflection on a completed task has ended."""

    tool_calls_count: int = 0
    """Calls of memory tools."""
    assessment: str = ""
    """One sentence on what was kept, and why."""


@attrs.frozen
class TaskCompleted(TaskEventData):
    """TASK_COMPLETED: the result is recorded. From this line on the task cannot fail any more."""

    final_result: Metadata = attrs.field(factory=dict)
    """{taskId, input, response, iterations}, as the submitter receives it."""
    iterations: int = 0
    """Model calls since the start or the last resume."""
    new_messages: tuple[Entry, ...] = ()
    """Always empty as written today; the answer is in STEP_COMPLETED."""


@attrs.frozen
class TaskFailed(TaskEventData):
    """TASK_FAILED: the task ended without an answer. The error of a task that a restart interrupted is `fsm.RESTARTED`."""

    error: str = ""
    """Reason, for people."""
    reason: str = ""
    """STOPPED if a person has ended it, "" for any other end."""


EVENT_DATA: Final[Mapping[EventType, type[TaskEventData]]] = MappingProxyType(
    {
        EventType.TASK_CREATED: TaskCreated,
        EventType.REASON_DONE: ReasonDone,
        EventType.TOOL_CALL_COMPLETED: ToolCallDone,
        EventType.TOOL_CALL_FAILED: ToolCallFailed,
        EventType.STEP_COMPLETED: StepCompleted,
        EventType.NEED_MORE_INFO: NeedMoreInfo,
        EventType.TASK_NOTIFY: TaskNotify,
        EventType.TASK_SUSPENDED: TaskSuspended,
        EventType.TASK_RESUMED: TaskResumed,
        EventType.REFLECTION_COMPLETE: ReflectionDone,
        EventType.TASK_COMPLETED: TaskCompleted,
        EventType.TASK_FAILED: TaskFailed,
    }
)
"""The events that are lines of a task's log, with the class of their data. No other event changes a task."""


# ------------------------------------------------------------------ free-form values

_LEVELS_AROUND: Final = 8
"""Levels of the data of an event around a free-form object in it, at most."""


def json_object(value: Mapping[str, object]) -> Payload:
    """Return a free-form object, such as the arguments of a call, as it may stand anywhere in the data of an event."""
    return writable_object(value, DEEPEST - _LEVELS_AROUND)
