"""The change that each event makes to the context of a task, in a running task and in a replay alike.

`apply_event` is the only place where contexts change. It takes a frozen context and returns another one; an event that does not
fit raises PayloadError, and the old context is still what it was. Which events are allowed in which state is decided
before, by `fsm.TRANSITIONS`.

The two checks are separate because they need different things. The table needs the state and the type of the event only, and can be
shown whole in the documentation. The functions below need the payload and the context: a result must belong to an open step, an
answer must follow a plan that answers.

Late results. A stage that was running when a task was suspended may end afterwards. Its events are accepted in SUSPENDED; they
set `suspended_state` to the state in which the task would be now without the suspension, so that a resume goes on there.

Notifications are counted here too. `notified` grows with each event that notifies the submitter, in a replay exactly as it did
before, so the number of a notification that is sent again is the number that it had.
"""

from __future__ import annotations

from typing import Final

import attrs

from pegasus.conversation import Entry, open_calls
from pegasus.events import Event, EventType
from pegasus.tasks.core.context import ActionResult, PlanStep, PostReflection, TaskContext, TaskPlan, TaskState
from pegasus.tasks.core.events import (
    MessageForTask,
    NeedMoreInfo,
    PayloadError,
    ReasonDone,
    ReflectionDone,
    StepCompleted,
    TaskCompleted,
    TaskCreated,
    TaskEventData,
    TaskFailed,
    TaskNotified,
    TaskResumed,
    TaskSuspended,
    ToolCallDone,
    parse_messages,
    parse_payload,
)

MEMORY_INDEX: Final = "memory_index"
"""metadata "type" of the user message that holds the index of memory."""
RESTARTED: Final = "process restarted, task cancelled"
"""Error of a task that a restart interrupted. Only such failed tasks may be resumed: nothing is wrong with their work."""
NOT_FINISHED: Final = '{"cancelled":true,"reason":"the task was ended before this call was finished"}'
"""Result of a call that a failed task left open: a provider refuses a conversation with a call that has no result."""


def apply_event(context: TaskContext, event: Event, state: TaskState) -> TaskContext:
    """Return the context after the event.

    context: the context before the event; it is not changed. state: the state before the event, which decides whether the result of
    a stage moves the task or only the state that a resume returns to. Raises PayloadError if the event does not fit the context.

    Example: `apply_event(TaskContext("t1"), created, TaskState.IDLE).input_text`.
    """
    data = parse_payload(event)
    match data:
        case TaskCreated():
            return _created(context, event, data)
        case ReasonDone():
            return _reason_done(context, data, state)
        case NeedMoreInfo():
            return _need_more_info(context, event, data, state)
        case ToolCallDone():
            return _tool_call_done(context, event, data, state)
        case StepCompleted():
            return _step_completed(context, event, data, state)
        case TaskResumed():
            return _resumed(context, event, data, state)
        case MessageForTask(text):
            return _go_on(context, (Entry(event.timestamp, "user", text),))
    return _settle(context, data, state)


def state_after_step(context: TaskContext) -> TaskState:
    """Return ACTING while a step is open, then REASONING if tools were called (the model sees the results), else COMPLETED."""
    if context.plan is None:
        return TaskState.COMPLETED
    if context.plan.open_steps:
        return TaskState.ACTING
    return TaskState.REASONING if context.plan.has_calls else TaskState.COMPLETED


def _settle(context: TaskContext, data: TaskEventData, state: TaskState) -> TaskContext:
    """Apply the events whose change is a few fields."""
    match data:
        case TaskNotified():
            return attrs.evolve(context, notified=context.notified + 1)
        case TaskSuspended():
            messages = context.messages.plus(*parse_messages(data.new_messages))
            reason = data.suspend_reason
            return attrs.evolve(context, suspend_reason=reason, suspended_state=state, messages=messages)
        case ReflectionDone():
            found = PostReflection(data.assessment, max(0, data.tool_calls_count))
            return attrs.evolve(context, post_reflection=found)
        case TaskCompleted():
            if context.final_result is not None:
                raise PayloadError("the task has its result already")
            messages = context.messages.plus(*parse_messages(data.new_messages))
            return attrs.evolve(
                context, final_result=data.final_result, messages=messages, notified=context.notified + 1
            )
        case TaskFailed():
            cleared = attrs.evolve(context, suspended_state=None, suspend_reason=None, question=None)
            return attrs.evolve(cleared, error=data.error, notified=context.notified + 1)
    raise PayloadError(f"{type(data).__name__} is not handled")


def _created(context: TaskContext, event: Event, data: TaskCreated) -> TaskContext:
    """Take over the input, as the first message of the conversation.

    The event is applied twice in the life of a task: by `TaskFSM.from_event`, which fills the context, and by the transition out of
    IDLE, which must not add the input again.
    """
    if context.messages:
        return context  # a task knows its input when it is made; the event itself only moves it out of IDLE
    return TaskContext(
        context.id,
        description=data.description,
        input_text=data.input_text,
        input_metadata=data.input_metadata,
        source=data.source or "user",
        task_type=data.task_type or "general",
        messages=(Entry(event.timestamp, "user", data.input_text),),
    )


def _reason_done(context: TaskContext, data: ReasonDone, state: TaskState) -> TaskContext:
    """Take over thought and plan. The messages of the thought join the conversation, the index of memory among them."""
    messages = parse_messages(data.new_messages)
    if not data.plan.steps:
        raise PayloadError("a plan without steps")
    _check_thought_was_running(context, state)
    has_index = any(entry.metadata.get("type") == MEMORY_INDEX for entry in messages)
    return attrs.evolve(
        context,
        reasoning=data.reasoning,
        plan=data.plan,
        iteration=context.iteration + 1,
        messages=context.messages.plus(*messages),
        memory_injected=context.memory_injected or has_index,
        suspended_state=TaskState.ACTING if state is TaskState.SUSPENDED else context.suspended_state,
    )


def _need_more_info(context: TaskContext, event: Event, data: NeedMoreInfo, state: TaskState) -> TaskContext:
    """Take over the question, as a message of the assistant: the answer will follow it. The task waits from now on."""
    _check_thought_was_running(context, state)
    asked = "\n\n".join(part for part in (data.reasoning.response.strip(), data.question.strip()) if part)
    return attrs.evolve(
        context,
        reasoning=data.reasoning,
        plan=None,
        question=data.question,
        iteration=context.iteration + 1,
        notified=context.notified + 1,
        messages=context.messages.plus(Entry(event.timestamp, "assistant", asked)),
        suspended_state=TaskState.REASONING,
        suspend_reason=context.suspend_reason if state is TaskState.SUSPENDED else "needs information",
    )


def _check_thought_was_running(context: TaskContext, state: TaskState) -> None:
    """Refuse the thought of a suspended task, unless it was running when the task was suspended (logs of earlier versions)."""
    was_thinking = context.suspended_state is TaskState.REASONING and context.question is None
    if state is TaskState.SUSPENDED and not was_thinking:
        raise PayloadError("no thought was running when the task was suspended")


def _tool_call_done(context: TaskContext, event: Event, data: ToolCallDone, state: TaskState) -> TaskContext:
    """Complete the step whose call has this result. A result that no open step waits for is refused, so a call counts once."""
    messages = parse_messages(data.new_messages)
    result = next((entry for entry in messages if entry.role == "tool"), None)
    if result is None or context.plan is None:
        raise PayloadError("no tool message, or no plan that asked for it")
    step = next((step for step in context.plan.open_steps if step.call and step.call.id == result.call_id), None)
    if step is None:
        raise PayloadError(f"no open step waits for call {result.call_id!r}")
    now = event.timestamp
    started = now - max(0, round(data.duration_ms))
    success = event.type is EventType.TOOL_CALL_COMPLETED
    action = ActionResult(step.index, "tool_call", data.tool_name, result.content, success, started, now)
    return _complete_step(context, context.plan, step, action, messages, state)


def _step_completed(context: TaskContext, event: Event, data: StepCompleted, state: TaskState) -> TaskContext:
    """Complete the step that responds; its message is the answer."""
    messages = parse_messages(data.new_messages)
    steps = context.plan.open_steps if context.plan is not None else ()
    step = next((step for step in steps if step.call is None), None)
    if step is None or context.plan is None:
        raise PayloadError("no open step that is not a tool call")
    answer = messages[-1].content if messages else ""
    action = ActionResult(step.index, step.action_type, None, answer, True, event.timestamp, event.timestamp)
    return _complete_step(context, context.plan, step, action, messages, state)


def _complete_step(
    context: TaskContext,
    plan: TaskPlan,
    step: PlanStep,
    action: ActionResult,
    messages: tuple[Entry, ...],
    state: TaskState,
) -> TaskContext:
    """Mark a step as completed and append its result. Raises nothing: the callers have found the step among the open ones."""
    steps = tuple(attrs.evolve(step, completed=True) if other is step else other for other in plan.steps)
    after = attrs.evolve(
        context,
        plan=attrs.evolve(plan, steps=steps),
        actions_done=context.actions_done.plus(action),
        messages=context.messages.plus(*messages),
    )
    if state is TaskState.SUSPENDED:  # the step ended after the suspension: the task goes on behind it
        return attrs.evolve(after, suspended_state=state_after_step(after))
    return after


def _resumed(context: TaskContext, event: Event, data: TaskResumed, state: TaskState) -> TaskContext:
    """Let a task go on: a suspended one with its plan, a finished one from the beginning with all it knows.

    The next state is not decided here but in `fsm._after_resume`, which needs `suspended_state` as it was before this change.
    """
    messages = parse_messages(data.new_messages)
    if state is not TaskState.SUSPENDED:
        context = _restart(context, event, data.new_input)
    return _go_on(context, messages)


def _go_on(context: TaskContext, messages: tuple[Entry, ...]) -> TaskContext:
    """Clear the reason for waiting and append the new messages.

    The count of model calls starts again at 0: the limit on them is for one piece of work, and a resume is a new one.
    """
    return attrs.evolve(
        context,
        suspended_state=None,
        suspend_reason=None,
        question=None,
        iteration=0,
        messages=context.messages.plus(*messages),
    )


def _restart(context: TaskContext, event: Event, new_input: str) -> TaskContext:
    """Let a finished task begin again with all it knows: messages and actions stay, the rest is for the new input.

    Calls that never got a result are given one first. A task that a restart failed in the middle of its plan has such calls, and
    the next request to the model would be refused because of them.
    """
    missing = [
        Entry(event.timestamp, "tool", NOT_FINISHED, call_id=made.call.id, metadata={"error": True})
        for made in open_calls(context.messages)
    ]
    return attrs.evolve(
        context,
        input_text=new_input,
        messages=context.messages.plus(*missing),
        reasoning=None,
        plan=None,
        post_reflection=None,
        final_result=None,
        error=None,
    )
