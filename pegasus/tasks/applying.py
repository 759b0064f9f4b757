"""The one place where what a task knows changes: by an event, live and in a replay alike.

`apply` is for whoever has a context; a `Draft` is the same for many events in a row, which costs no copy of all messages each.
An event that does not fit raises `Unfit` before anything has changed. Which events fit which state is `fsm.TRANSITIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import attrs

from pegasus.conversation import BadEntry, Entry, decode, open_calls
from pegasus.events import Event, EventType
from pegasus.messages import Json
from pegasus.tasks.context import ActionResult, Plan, PlanStep, PostReflection, Reasoning, TaskContext, TaskState
from pegasus.tasks.reading import Unfit, count_in, object_in, plan_in, reasoning_in, text_in

__all__ = ["MEMORY_INDEX", "RESTARTED", "Draft", "Unfit", "apply"]

MEMORY_INDEX: Final = "memory_index"
"""metadata "type" of the user message that holds the memory index (trap T3)."""
RESTARTED: Final = "process restarted, task cancelled"
"""Error of a task that a restart interrupted: the only failed tasks that may be resumed (X8)."""
NOT_FINISHED: Final = '{"cancelled":true,"reason":"the task was ended before this call was finished"}'


@attrs.define(eq=False)
class Draft:
    """A context that grows: `messages` and `actions_done` are lists here."""

    base: TaskContext
    input_text: str
    reasoning: Reasoning | None
    plan: Plan | None
    post_reflection: PostReflection | None
    iteration: int
    final_result: Mapping[str, Json] | None
    error: str | None
    suspended_state: TaskState | None
    suspend_reason: str | None
    question: str | None
    memory_injected: bool
    notified: int
    actions_done: list[ActionResult]
    messages: list[Entry]

    @classmethod
    def of(cls, context: TaskContext) -> Draft:
        """A draft that begins as this context."""
        return cls(
            context,
            context.input_text,
            context.reasoning,
            context.plan,
            context.post_reflection,
            context.iteration,
            context.final_result,
            context.error,
            context.suspended_state,
            context.suspend_reason,
            context.question,
            context.memory_injected,
            context.notified,
            list(context.actions_done),
            list(context.messages),
        )

    def context(self, more: Sequence[Entry] = ()) -> TaskContext:
        """What it is now. more: messages that it will have."""
        given = self.base
        return TaskContext(
            given.id,
            given.description,
            self.input_text,
            given.input_metadata,
            given.source,
            given.task_type,
            self.reasoning,
            self.plan,
            tuple(self.actions_done),
            self.post_reflection,
            self.iteration,
            self.final_result,
            self.error,
            self.suspended_state,
            self.suspend_reason,
            self.question,
            (*self.messages, *more),
            self.memory_injected,
            self.notified,
        )

    def apply(self, event: Event, state: TaskState) -> None:
        """Take up what the event says. state: before the event. Raises Unfit, with nothing changed."""
        change = _CHANGES.get(event.type)
        if change is None:
            raise Unfit(f"{event.type.name} says nothing about a task")
        change(self, event, state)


def apply(context: TaskContext, event: Event, state: TaskState) -> TaskContext:
    """The context after the event. state: the task's before it. Raises Unfit if the event does not fit the context."""
    draft = Draft.of(context)
    draft.apply(event, state)
    return draft.context()


# ------------------------------------------------------------------ one function for each event


def _created(draft: Draft, event: Event, state: TaskState) -> None:
    if draft.messages:
        return  # a task takes it up when it is made, and leaves IDLE by it when there is a place for it
    data = event.payload
    text = text_in(data, "inputText")
    metadata = object_in(data, "inputMetadata")
    description = text_in(data, "description")
    source, task_type = text_in(data, "source") or "user", text_in(data, "taskType") or "general"
    draft.base = TaskContext(draft.base.id, description, "", metadata, source, task_type)
    draft.input_text = text
    draft.messages = [Entry(event.timestamp, "user", text)]


def _reason_done(draft: Draft, event: Event, state: TaskState) -> None:
    reasoning, plan = reasoning_in(event.payload), plan_in(event.payload)
    messages = _new_messages(event)
    if not plan.steps:
        raise Unfit("a plan without steps")
    _check_thinking(draft, state)
    draft.reasoning, draft.plan = reasoning, plan
    draft.iteration += 1
    draft.messages += messages
    for entry in messages:
        if entry.metadata and entry.metadata.get("type") == MEMORY_INDEX:
            draft.memory_injected = True
    _stay_suspended(draft, state, TaskState.ACTING)


def _need_more_info(draft: Draft, event: Event, state: TaskState) -> None:
    reasoning, question = reasoning_in(event.payload), text_in(event.payload, "question")
    _check_thinking(draft, state)
    asked = "\n\n".join(part for part in (reasoning.response.strip(), question.strip()) if part)
    draft.reasoning, draft.plan = reasoning, None
    draft.question = question
    draft.iteration += 1
    draft.notified += 1
    draft.messages.append(Entry(event.timestamp, "assistant", asked))
    draft.suspended_state = TaskState.REASONING
    if state is not TaskState.SUSPENDED:
        draft.suspend_reason = "needs information"


def _check_thinking(draft: Draft, state: TaskState) -> None:
    """Of a suspended task, only the thought that was under way may still arrive."""
    if state is TaskState.SUSPENDED and (
        draft.suspended_state is not TaskState.REASONING or draft.question is not None
    ):
        raise Unfit("no thought was under way when the task was suspended")


def _tool_done(draft: Draft, event: Event, state: TaskState) -> None:
    messages = _new_messages(event)
    tool_name, duration = text_in(event.payload, "toolName"), count_in(event.payload, "durationMs")
    result = next((entry for entry in messages if entry.role == "tool"), None)
    if result is None or draft.plan is None:
        raise Unfit("no tool message, or no plan that asked for it")
    for step in draft.plan.steps:
        if not step.completed and step.call is not None and step.call.id == result.call_id:
            break
    else:
        raise Unfit(f"no open step waits for call {result.call_id!r}")
    success, now = event.type is EventType.TOOL_CALL_COMPLETED, event.timestamp
    action = ActionResult(step.index, "tool_call", tool_name, result.content, success, now - duration, now)
    draft.messages += messages
    _complete(draft, draft.plan, step, action, state)


def _step_completed(draft: Draft, event: Event, state: TaskState) -> None:
    messages = _new_messages(event)
    steps = draft.plan.steps if draft.plan else ()
    step = next((s for s in steps if not s.call and not s.completed), None)
    if step is None or draft.plan is None:
        raise Unfit("no open step that is not a tool call")
    said = messages[-1].content if messages else ""
    action = ActionResult(step.index, step.action_type, None, said, True, event.timestamp, event.timestamp)
    draft.messages += messages
    _complete(draft, draft.plan, step, action, state)


def _complete(draft: Draft, plan: Plan, step: PlanStep, action: ActionResult, state: TaskState) -> None:
    done = PlanStep(step.index, step.description, step.action_type, step.call, completed=True)
    draft.plan = Plan(plan.goal, tuple([done if s is step else s for s in plan.steps]), plan.reasoning)
    draft.actions_done.append(action)
    _stay_suspended(draft, state, after_step(draft))


def _notify(draft: Draft, event: Event, state: TaskState) -> None:
    text_in(event.payload, "message")
    draft.notified += 1


def _suspended(draft: Draft, event: Event, state: TaskState) -> None:
    reason = text_in(event.payload, "suspendReason")
    messages = _new_messages(event)
    draft.suspend_reason = reason
    draft.messages += messages
    draft.suspended_state = state


def _resumed(draft: Draft, event: Event, state: TaskState) -> None:
    messages = _new_messages(event)
    if state is not TaskState.SUSPENDED:
        _prepare_for_resume(draft, event, text_in(event.payload, "newInput"))
    _go_on(draft, messages)


def _message_received(draft: Draft, event: Event, state: TaskState) -> None:
    _go_on(draft, [Entry(event.timestamp, "user", text_in(event.payload, "text"))])


def _go_on(draft: Draft, messages: list[Entry]) -> None:
    draft.suspended_state = draft.suspend_reason = draft.question = None
    draft.iteration = 0
    draft.messages += messages


def _prepare_for_resume(draft: Draft, event: Event, new_input: str) -> None:
    """A finished task begins anew with all it knows: messages and actions stay, the rest is for the new input."""
    for made in open_calls(draft.messages):
        error: dict[str, Json] = {"error": True}
        draft.messages.append(Entry(event.timestamp, "tool", NOT_FINISHED, call_id=made.call.id, metadata=error))
    draft.reasoning = draft.plan = draft.post_reflection = draft.final_result = draft.error = None
    draft.input_text = new_input


def _reflected(draft: Draft, event: Event, state: TaskState) -> None:
    data = event.payload
    draft.post_reflection = PostReflection(text_in(data, "assessment"), count_in(data, "toolCallsCount"))


def _completed(draft: Draft, event: Event, state: TaskState) -> None:
    if draft.final_result is not None:
        raise Unfit("the task has its result already")
    result = object_in(event.payload, "finalResult")
    messages = _new_messages(event)
    draft.final_result = result
    draft.messages += messages
    draft.notified += 1


def _failed(draft: Draft, event: Event, state: TaskState) -> None:
    draft.error = text_in(event.payload, "error")
    draft.suspended_state = draft.suspend_reason = draft.question = None
    draft.notified += 1


_CHANGES: Final[Mapping[EventType, Callable[[Draft, Event, TaskState], None]]] = MappingProxyType(
    {
        EventType.TASK_CREATED: _created,
        EventType.REASON_DONE: _reason_done,
        EventType.NEED_MORE_INFO: _need_more_info,
        EventType.TOOL_CALL_COMPLETED: _tool_done,
        EventType.TOOL_CALL_FAILED: _tool_done,
        EventType.STEP_COMPLETED: _step_completed,
        EventType.TASK_NOTIFY: _notify,
        EventType.TASK_SUSPENDED: _suspended,
        EventType.TASK_RESUMED: _resumed,
        EventType.MESSAGE_RECEIVED: _message_received,
        EventType.REFLECTION_COMPLETE: _reflected,
        EventType.TASK_COMPLETED: _completed,
        EventType.TASK_FAILED: _failed,
    }
)


# ------------------------------------------------------------------ where it leads


def after_step(draft: Draft) -> TaskState:
    """The dynamic part of the table: more to do, a look at what tools gave, or done."""
    called = False
    for step in draft.plan.steps if draft.plan is not None else ():
        if not step.completed:
            return TaskState.ACTING
        called = called or step.call is not None
    return TaskState.REASONING if called else TaskState.COMPLETED


def _stay_suspended(draft: Draft, state: TaskState, next_state: TaskState) -> None:
    """What was under way when the task was suspended has arrived: it goes on from there (trap T7)."""
    if state is TaskState.SUSPENDED:
        draft.suspended_state = next_state


def _new_messages(event: Event) -> list[Entry]:
    found = event.payload.get("newMessages", [])
    if not isinstance(found, (list, tuple)):
        raise Unfit("newMessages must be a list")
    try:
        return [decode(entry) for entry in found]
    except BadEntry as error:
        raise Unfit(f"newMessages: {error}") from None
