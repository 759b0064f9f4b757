"""The task as a value: its context, and the state machine, which says which events are allowed and what each changes.

Rules of the file. No I/O, no clock, no randomness. The transitions that are allowed are in TRANSITIONS and nowhere else; contexts
change in `apply_event` and nowhere else. An event that is refused changes nothing. Therefore the same events give the same task,
whether they happen now or are read from a log, and a task that was killed at any moment can be rebuilt from its log.

An event is checked twice because the checks need different things. The table needs the state and the type of the event only: it
can be shown whole in the documentation, compared with it by a test, and asked without trying (`can_transition`). The changes
need the data and the context: a result must belong to an open step, an answer must follow a plan that answers.

The normal path of a task: IDLE is left when the task gets a slot. REASONING and ACTING alternate, one model call and the steps that it
asks for. A plan without tool calls answers, and its step leads to COMPLETED. COMPLETED has two phases: the answer is given, and
after TASK_COMPLETED its result is recorded. Only in between can a stop still turn it into FAILED.

    IDLE ─► REASONING ◄─► ACTING ─► COMPLETED ─(resume)─► REASONING
                │            │
                └─► SUSPENDED ◄┘        any of these but a recorded COMPLETED ─► FAILED

Late results. A call that a crash interrupted gets its result when its task is recovered, which may be suspended. Events of stages are
accepted in SUSPENDED; they set `suspended_state` to the state in which the task would be without the suspension, and a resume
goes on there.

Notifications are counted here too. `notified` grows with each event that notifies the submitter, in a replay exactly as it did
before, so the number of a notification that is sent again is the number that it had.

A context is all that a task knows. It is serialisable, and changes by events alone, in a running task and in a replay of its log. The
two are therefore equal by construction, which is what recovery after a crash rests on.

A context belongs to one `TaskFSM` and is changed in place: each event adds to the conversation, and copying that every time
would make the cost of a task, and of the replay of its log, quadratic in its length. Nobody is surprised by such a change: the actor
of a task applies events only between two stages, and others receive a view, or a context of their own that was read from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import attrs

from pegasus.conversation import Entry, open_calls
from pegasus.events import Event, EventType
from pegasus.messages import ChannelInfo, Json, Metadata
from pegasus.outside import OUTSIDE, Untrusted, join_outside, outside_metadata, parse_outside
from pegasus.policy import MOST_MESSAGES, OWNER_MESSAGES, OwnerMessage, owner_metadata, parse_owner_messages
from pegasus.tasks.core.task_events import (
    NeedMoreInfo,
    PayloadError,
    PlanStep,
    ReasonDone,
    Reasoning,
    ReflectionDone,
    StepCompleted,
    TaskCompleted,
    TaskCreated,
    TaskFailed,
    TaskNotify,
    TaskPlan,
    TaskResumed,
    TaskSuspended,
    ToolCallDone,
    ToolCallFailed,
)
from pegasus.tasks.core.task_states import FOR_APPROVAL, FOR_PERSON, STOPPED, TaskState
from pegasus.tasks.core.task_types import DEFAULT_TASK_TYPE
from pegasus.wire import WireError, decode_json, from_wire

# ------------------------------------------------------------------ the context


@attrs.frozen
class ActionResult:
    """A completed step."""

    step_index: int
    """`PlanStep.index`."""
    action_type: str
    """`PlanStep.action_type`."""
    tool_name: str | None
    """Tool of a call, None for an answer."""
    result: str
    """Text that the model sees."""
    success: bool
    """False for a call that failed."""
    started_at: int
    """Wall clock, ms."""
    completed_at: int
    """Wall clock, ms."""


@attrs.define
class TaskContext:
    """Everything a task knows."""

    id: str
    """Id of the task."""
    description: str = ""
    """A few words for people."""
    input_text: str = ""
    """The work to do; after a resume of a finished task, the new input."""
    input_metadata: Metadata = attrs.field(factory=dict)
    """Metadata of the submitter, e.g. {"channel": {…}}; given back with every notification, so that results find their way."""
    source: str = "user"
    """Submitter, e.g. "main-agent", "cli:main"."""
    task_type: str = DEFAULT_TASK_TYPE
    """Name of a `TaskType`."""
    cause: str = ""
    """Message, job, hook or task that it comes of, as TASK_CREATED has it."""
    reasoning: Reasoning | None = None
    """Outcome of the last model call."""
    plan: TaskPlan | None = None
    """Steps that it led to."""
    actions_done: list[ActionResult] = attrs.field(factory=list)
    """All completed steps since the task was created, oldest first."""
    post_reflection: ReflectionDone | None = None
    """Outcome of the reflection, if there was one since the last resume."""
    iteration: int = 0
    """Model calls since the start or the last resume."""
    final_result: Mapping[str, Json] | None = None
    """{taskId, input, response, iterations} once TASK_COMPLETED is recorded."""
    error: str | None = None
    """Reason of a failure."""
    fail_reason: str = ""
    """STOPPED for a failed task that a person has ended, else ""."""
    suspended_state: TaskState | None = None
    """State in which a suspended task goes on."""
    suspend_reason: str | None = None
    """Reason of a suspension."""
    question: str | None = None
    """Question to the submitter that a suspended task waits for."""
    messages: list[Entry] = attrs.field(factory=list)
    """The conversation with the model. The input is its first message, so each call has it."""
    has_asked_owner: bool = False
    """True if it has been suspended for an approval."""
    memory_injected: bool = False
    """True if the index of memory is among the messages; it is added once only."""
    notified: int = 0
    """Number of notifications for the submitter so far; the next one has this number plus 1."""
    outside: tuple[Untrusted, ...] = attrs.field(init=False, eq=False, repr=False)
    """Labels of the text from outside that the task has read, what its submitter had read included. They follow from the messages:
    the state machine joins those of each message that it adds."""

    @outside.default
    def _labels_of_messages(self) -> tuple[Untrusted, ...]:
        return join_outside(*[parse_outside(entry.metadata) for entry in self.messages])

    @property
    def owner_messages(self) -> tuple[OwnerMessage, ...]:
        """Messages of owners that the task comes of: those of its submitter, and those of later answers and orders."""
        told = [entry.metadata for entry in self.messages if OWNER_MESSAGES in entry.metadata and entry.role == "user"]
        found = [each for metadata in (self.input_metadata, *told) for each in parse_owner_messages(metadata)]
        return tuple(found[-MOST_MESSAGES:])

    @cached_property
    def channel(self) -> ChannelInfo | None:
        """Channel that the task was asked for on, None if its metadata names none that can be read."""
        try:
            return from_wire(self.input_metadata["channel"], ChannelInfo) if "channel" in self.input_metadata else None
        except WireError:
            return None


# ------------------------------------------------------------------ data of events that are made in several places


def task_suspended(context: TaskContext, state: TaskState, reason: str) -> TaskSuspended:
    """Return the data of TASK_SUSPENDED for a task that is in this state now."""
    return TaskSuspended(str(state), reason, context.reasoning, context.plan)


def task_resumed(
    new_input: str,
    previous_state: TaskState,
    at: int,
    key: str = "",
    outside: Sequence[Untrusted] = (),
    owner_messages: Sequence[OwnerMessage] = (),
) -> TaskResumed:
    """Return the data of TASK_RESUMED.

    at: wall clock, ms. key, outside, owner_messages: stand with the input in the messages, as in `Resume`.
    """
    metadata: dict[str, Json] = {**outside_metadata(outside), **owner_metadata(owner_messages)}
    if key:
        metadata["key"] = key
    entries = (Entry(at, "user", new_input, metadata=metadata),) if new_input else ()
    return TaskResumed(new_input, str(previous_state), entries)


def task_completed(context: TaskContext, response: str | None, iterations: int) -> TaskCompleted:
    """Return the data of TASK_COMPLETED. response: the last answer; raw tool outputs are in the log and may be large."""
    result: Metadata = {
        "taskId": context.id,
        "input": context.input_text,
        "response": response,
        "iterations": iterations,
    }
    return TaskCompleted(result, iterations)


def last_response(context: TaskContext) -> str | None:
    """Return the text of the last answer that the task has given, None if there is none."""
    return next((done.result for done in reversed(context.actions_done) if done.action_type == "respond"), None)


# ------------------------------------------------------------------ background commands
# The conversation tells of the background commands that the task has run. They end with the actor of their task
# (`pegasus.sandbox.background`), and nothing of them is stored but the results of the calls. When a task goes on with a new actor,
# after a restart or a suspension, the model would believe that its server still runs. So it is told once, by a message behind the
# conversation, which is recorded with the next thought.

LOST_COMMANDS: Final = "lost_commands"
"""Type, in the metadata of an entry, of the message that names lost commands. Its `ids` are theirs."""

_COMMAND_TOOLS: Final = ("command_start", "command_output", "command_input", "command_stop")
"""Tools whose results tell of background commands."""


def lost_commands(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the command lines of the background commands that ran when the last of these results was given, by id.

    Those that a result showed as ended, and those that the model was told of already, are not among them.
    """
    found: dict[str, str] = {}
    for _, name, result in _command_results(entries):
        if result.get("running"):
            found[name] = str(result.get("command", ""))
        else:
            found.pop(name, None)
    return found


def all_commands(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the command lines of all background commands that the conversation tells of, by id."""
    results = _command_results(entries)
    return {name: str(result.get("command", "")) for tool, name, result in results if tool == "command_start"}


def _command_results(entries: Iterable[Entry]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield what the model was told about each command, in order: the tool that told it, the command's id, and the result.

    Of a command that was lost, the tool is "" and the result {}.
    """
    tools: dict[str, str] = {}
    for entry in entries:
        tools.update((call.id, call.name) for call in entry.calls)
        tool = tools.get(entry.call_id or "", "")
        if entry.metadata.get("type") == LOST_COMMANDS:
            ids = entry.metadata.get("ids")
            yield from (("", str(name), {}) for name in (ids if isinstance(ids, list) else ()))
        elif entry.role == "tool" and tool in _COMMAND_TOOLS:
            result = _parse_result(entry.content)
            if isinstance(name := result.get("commandId"), str):
                yield tool, name, result


def lost_commands_message(lost: Mapping[str, str], at: int) -> Entry:
    """Return the message that tells the model of its lost commands. at: wall clock, ms."""
    lines = "".join(f"\n- {name}: {line}" for name, line in lost.items())
    text = f"[System] These background commands have ended, because this task was interrupted. Start again what you need:{lines}"
    return Entry(at, "user", text, metadata={"type": LOST_COMMANDS, "ids": list(lost)})


def _parse_result(content: str) -> Mapping[str, Any]:
    """Return the result of a call; {} if it is no object, such as an error or a result that was cut."""
    try:
        result = decode_json(content)
    except ValueError:
        return {}
    return result if isinstance(result, dict) else {}


# ------------------------------------------------------------------ the state machine


IDLE, REASONING, ACTING = TaskState.IDLE, TaskState.REASONING, TaskState.ACTING
SUSPENDED, COMPLETED, FAILED = TaskState.SUSPENDED, TaskState.COMPLETED, TaskState.FAILED

DEFAULT_PRIORITY: Final = 100
"""Priority of a task whose TASK_CREATED names none; smaller goes first."""
MEMORY_INDEX: Final = "memory_index"
"""metadata "type" of the user message that holds the index of memory."""
RESTARTED: Final = "process restarted, task cancelled"
"""Error of a task that a restart interrupted; see `is_interrupted`. It stands in logs, so it must not change between versions."""
_STOPPED_BEFORE: Final = "stopped by "
"""Beginning of the error of a task that a person has ended, in logs of versions that did not write the reason."""
NOT_FINISHED: Final = '{"cancelled":true,"reason":"the task was ended before this call was finished"}'
"""Result of a call that a failed task left open: a provider refuses a conversation with a call that has no result."""


def is_interrupted(state: TaskState, error: str | None) -> bool:
    """Return whether a task has failed only because a restart interrupted it. It may be resumed: nothing is wrong with its work.

    The error is the one trace of this in the log of a task.
    """
    return state is FAILED and error == RESTARTED


def fail_reason(error: str, reason: str = "") -> str:
    """Return STOPPED for the error of a task that a person has ended, else "". reason: of the log; earlier versions had none."""
    return STOPPED if reason == STOPPED or error.startswith(_STOPPED_BEFORE) else ""


class InvalidTransition(Exception):
    """The event is not allowed now; the task is as it was. The text names the task, the event and the state.

    Example::

        try:
            task.transition(event)
        except InvalidTransition as error:   # "task t1: …"
            problems.append(str(error))      # a replay reports the line and goes on
    """


# ------------------------------------------------------------------ the table


def _after_resume(saved: TaskState | None, context: TaskContext, data: object) -> TaskState:
    """Return the state that was saved, or REASONING if a pending answer must be reconsidered because of a new message.

    saved: None for a task whose log lost the line of its suspension; the model then decides again.
    """
    answers = context.plan is not None and not _has_calls(context.plan)
    if saved is None or (isinstance(data, TaskResumed) and data.new_messages and answers):
        return REASONING
    return saved


def _after_step(saved: TaskState | None, context: TaskContext, data: object) -> TaskState:
    """Return ACTING while a step is open, then REASONING if tools were called (the model sees the results), else COMPLETED."""
    if context.plan is None:
        return COMPLETED
    if open_steps(context.plan):
        return ACTING
    return REASONING if _has_calls(context.plan) else COMPLETED


NextState: TypeAlias = Callable[[TaskState | None, TaskContext, object], TaskState]
"""Next state of a transition that depends on more than the event's type.

Arguments: the state in which the task was suspended, the context after the event, the data of the event.
"""

_E = EventType
_STEPS = (_E.TOOL_CALL_COMPLETED, _E.TOOL_CALL_FAILED, _E.STEP_COMPLETED)

TRANSITIONS: Final[Mapping[tuple[TaskState, EventType], TaskState | NextState]] = MappingProxyType(
    {
        (IDLE, _E.TASK_CREATED): REASONING,
        (REASONING, _E.REASON_DONE): ACTING,
        (REASONING, _E.NEED_MORE_INFO): SUSPENDED,
        **{(ACTING, step): _after_step for step in _STEPS},
        **{(state, _E.TASK_SUSPENDED): SUSPENDED for state in (REASONING, ACTING)},
        (SUSPENDED, _E.TASK_RESUMED): _after_resume,
        (COMPLETED, _E.TASK_RESUMED): REASONING,
        # Only a task that a restart interrupted: see `_refusal`.
        (FAILED, _E.TASK_RESUMED): REASONING,
        **{(state, _E.TASK_FAILED): FAILED for state in (IDLE, REASONING, ACTING, SUSPENDED)},
        # Only while its result is not on disk: see `_refusal`. A stop that comes before it is then reported truthfully.
        (COMPLETED, _E.TASK_FAILED): FAILED,
        # Late results: those that recovery gives to calls of a suspended task.
        **{(SUSPENDED, late): SUSPENDED for late in (_E.REASON_DONE, _E.NEED_MORE_INFO, *_STEPS)},
        # These leave the state as it is.
        **{(state, _E.TASK_NOTIFY): state for state in (REASONING, ACTING, SUSPENDED)},
        (COMPLETED, _E.TASK_COMPLETED): COMPLETED,
        (COMPLETED, _E.REFLECTION_COMPLETE): COMPLETED,
    }
)
"""All transitions: (state, event type) → next state, or the function that finds it."""


def open_steps(plan: TaskPlan) -> list[PlanStep]:
    """Return the steps that are not completed, in order."""
    return [step for step in plan.steps if not step.completed]


def _has_calls(plan: TaskPlan) -> bool:
    """Return whether any step is a tool call."""
    return any(step.call is not None for step in plan.steps)


# ------------------------------------------------------------------ the change that each event makes


def apply_event(context: TaskContext, event: Event, state: TaskState) -> None:
    """Change the context as the event demands.

    state: the state before the event, which decides whether the result of a stage moves the task or only the state that a resume
    returns to. Raises PayloadError if the event does not fit the context, which is then as it was: each function below checks
    everything before it changes anything.

    Example: `apply_event(context := TaskContext("t1"), created, TaskState.IDLE)`, then `context.input_text`.
    """
    if event.type is _E.TASK_CREATED and context.messages:
        return  # a task knows its input when it is made; the event itself only moves it out of IDLE
    known = len(context.messages)
    match data := event.data:
        case TaskCreated():
            _created(context, event, data)
        case ReasonDone():
            _reason_done(context, event, data, state)
        case NeedMoreInfo():
            _need_more_info(context, event, data, state)
        case ToolCallDone():
            _tool_call_done(context, event, data, state)
        case StepCompleted():
            _step_completed(context, event, data, state)
        case TaskResumed():
            _resumed(context, event, data, state)
        case TaskNotify():
            context.notified += 1
        case TaskSuspended():
            context.messages += data.new_messages
            context.suspend_reason, context.suspended_state = data.suspend_reason, state
            context.has_asked_owner |= data.suspend_reason == FOR_APPROVAL
        case ReflectionDone():
            context.post_reflection = data
        case TaskCompleted():
            if context.final_result is not None:
                raise PayloadError("the task has its result already")
            context.messages += data.new_messages
            context.final_result = data.final_result
            context.notified += 1
        case TaskFailed():
            context.suspended_state = context.suspend_reason = context.question = None
            context.error, context.fail_reason = data.error, fail_reason(data.error, data.reason)
            context.notified += 1
        case _:
            raise PayloadError(f"the data of {event.type.name} is missing")
    if labelled := [entry.metadata for entry in context.messages[known:] if OUTSIDE in entry.metadata]:
        context.outside = join_outside(context.outside, *map(parse_outside, labelled))


def _created(context: TaskContext, event: Event, data: TaskCreated) -> None:
    """Take over the input, as the first message of the conversation.

    The event is applied twice in the life of a task: by `TaskFSM.from_event`, which fills the context, and by the transition out of
    IDLE, which must not add the input again (`apply_event`).
    """
    context.description, context.input_text = data.description, data.input_text
    context.input_metadata = data.input_metadata
    context.source, context.task_type = data.source or "user", data.task_type or DEFAULT_TASK_TYPE
    context.cause = data.cause
    labels = outside_metadata(parse_outside(data.input_metadata))  # of what its submitter had read
    context.messages.append(Entry(event.timestamp, "user", data.input_text, metadata=labels))


def _reason_done(context: TaskContext, event: Event, data: ReasonDone, state: TaskState) -> None:
    """Take over thought and plan. The messages of the thought join the conversation, the index of memory among them."""
    if not data.plan.steps:
        raise PayloadError("a plan without steps")
    _check_thought_was_running(context, state)
    context.reasoning, context.plan = data.reasoning, data.plan
    context.iteration += 1
    context.messages += data.new_messages
    if any(entry.metadata.get("type") == MEMORY_INDEX for entry in data.new_messages):
        context.memory_injected = True
    if state is SUSPENDED:
        context.suspended_state = ACTING


def _need_more_info(context: TaskContext, event: Event, data: NeedMoreInfo, state: TaskState) -> None:
    """Take over the question, as a message of the assistant: the answer will follow it. The task waits from now on."""
    _check_thought_was_running(context, state)
    asked = "\n\n".join(part for part in (data.reasoning.response.strip(), data.question.strip()) if part)
    context.reasoning, context.plan, context.question = data.reasoning, None, data.question
    context.iteration += 1
    context.notified += 1
    context.messages.append(Entry(event.timestamp, "assistant", asked))
    context.suspended_state = REASONING
    if state is not SUSPENDED:
        context.suspend_reason = "needs information"


def _check_thought_was_running(context: TaskContext, state: TaskState) -> None:
    """Refuse the thought of a suspended task, unless it was running when the task was suspended."""
    was_thinking = context.suspended_state is REASONING and context.question is None
    if state is SUSPENDED and not was_thinking:
        raise PayloadError("no thought was running when the task was suspended")


def _tool_call_done(context: TaskContext, event: Event, data: ToolCallDone, state: TaskState) -> None:
    """Complete the step whose call has this result. A result that no open step waits for is refused, so a call counts once."""
    result = next((entry for entry in data.new_messages if entry.role == "tool"), None)
    if result is None or context.plan is None:
        raise PayloadError("no tool message, or no plan that asked for it")
    step = next((step for step in open_steps(context.plan) if step.call and step.call.id == result.call_id), None)
    if step is None:
        raise PayloadError(f"no open step waits for call {result.call_id!r}")
    now = event.timestamp
    started = now - round(max(0, min(now, data.duration_ms)))  # a damaged line may say anything
    success = not isinstance(data, ToolCallFailed)
    action = ActionResult(step.index, "tool_call", data.tool_name, result.content, success, started, now)
    _complete_step(context, data, step, action, state)


def _step_completed(context: TaskContext, event: Event, data: StepCompleted, state: TaskState) -> None:
    """Complete the step that responds; its message is the answer."""
    steps = open_steps(context.plan) if context.plan is not None else []
    step = next((step for step in steps if step.call is None), None)
    if step is None:
        raise PayloadError("no open step that is not a tool call")
    answer = data.new_messages[-1].content if data.new_messages else ""
    action = ActionResult(step.index, step.action_type, None, answer, True, event.timestamp, event.timestamp)
    _complete_step(context, data, step, action, state)


def _complete_step(
    context: TaskContext,
    data: ToolCallDone | StepCompleted,
    step: PlanStep,
    action: ActionResult,
    state: TaskState,
) -> None:
    """Mark a step as completed and append its result. Raises nothing: the callers have found the step among the open ones."""
    step.completed = True
    context.actions_done.append(action)
    context.messages += data.new_messages
    if state is SUSPENDED:  # the step ended after the suspension: the task goes on behind it
        context.suspended_state = _after_step(None, context, data)


def _resumed(context: TaskContext, event: Event, data: TaskResumed, state: TaskState) -> None:
    """Let a task go on: a suspended one with its plan, a finished one from the beginning with all it knows.

    The next state is not decided here but in `_after_resume`, which needs `suspended_state` as it was before this change.
    The count of model calls starts again at 0: the limit on them is for one piece of work, and a resume is a new one. Only after a
    pause it goes on as it was.
    """
    was_paused = context.suspend_reason == FOR_PERSON and not data.new_messages
    if state is not SUSPENDED:
        _restart(context, event, data.new_input)
    context.suspended_state = context.suspend_reason = context.question = None
    context.iteration = context.iteration if was_paused else 0
    context.messages += data.new_messages


def _restart(context: TaskContext, event: Event, new_input: str) -> None:
    """Let a finished task begin again with all it knows: messages and actions stay, the rest is for the new input.

    Calls that never got a result are given one first. A task that a restart failed in the middle of its plan has such calls, and
    the next request to the model would be refused because of them.
    """
    context.messages += [
        Entry(event.timestamp, "tool", NOT_FINISHED, call_id=made.call.id, failed=True)
        for made in open_calls(context.messages)
    ]
    context.input_text = new_input
    context.reasoning = context.plan = context.post_reflection = context.final_result = context.error = None
    context.fail_reason = ""


# ------------------------------------------------------------------ the task


@attrs.frozen
class Transition:
    """One accepted event in the history of a task.

    Example: `task.history[-1].to_state` equals `task.state`.
    """

    from_state: TaskState
    """State before the event."""
    to_state: TaskState
    """State after the event; may be the same."""
    trigger_type: EventType
    """Type of the event."""
    trigger_id: int
    """Id of the event; in a replay, the number of its line."""
    timestamp: int
    """Wall clock of the event, ms."""
    metadata: Metadata = attrs.field(factory=dict)
    """{"suspendedFrom": state} for the event that suspended the task."""


@attrs.define
class TaskFSM:
    """One task. `from_event` makes a new one; only `transition` changes it. It goes over the wire as it is.

    Example:
        task = TaskFSM.from_event(created)  # IDLE
        task.transition(created)  # REASONING
        task.context.messages[0].content  # the input
        from_wire(to_wire(task), TaskFSM) == task
    """

    task_id: str
    """Id of the task."""
    state: TaskState
    """State after the last accepted event."""
    context: TaskContext
    """Everything the task knows, after the last accepted event."""
    history: list[Transition] = attrs.field(factory=list)
    """Accepted events, oldest first."""
    created_at: int = 0
    """Wall clock of TASK_CREATED, ms."""
    updated_at: int = 0
    """Wall clock of the last accepted event, ms."""
    priority: int = DEFAULT_PRIORITY
    """Rank among tasks that wait for a slot; smaller goes first."""

    @classmethod
    def from_event(cls, event: Event) -> TaskFSM:
        """Return a new task, IDLE, of its TASK_CREATED. The same event given to `transition` starts it.

        Raises InvalidTransition for another event, or one without a task id.
        """
        if event.type is not _E.TASK_CREATED or not event.task_id:
            raise InvalidTransition(f"a task is made by TASK_CREATED with a task id, not by {event.type.name}")
        context = TaskContext(event.task_id)
        try:
            apply_event(context, event, IDLE)
        except PayloadError as error:
            raise InvalidTransition(f"task {event.task_id}: {error}") from None
        priority = DEFAULT_PRIORITY if event.priority is None else event.priority
        at = event.timestamp
        return cls(event.task_id, IDLE, context, created_at=at, updated_at=at, priority=priority)

    def can_transition(self, type: EventType) -> bool:
        """Return whether an event of this type may be accepted now; its data may still be refused."""
        return self._refusal(type) is None

    def transition(self, event: Event) -> TaskState:
        """Apply an event and return the new state. Raises InvalidTransition, with nothing changed.

        The caller has recorded the event: a transition is never undone. The saved state is read before the event is applied,
        because a resume clears it.
        """
        refusal = self._refusal(event.type)
        if refusal is not None:
            raise InvalidTransition(f"task {self.task_id}: {refusal}")
        before, saved = self.state, self.context.suspended_state
        try:
            apply_event(self.context, event, before)
        except PayloadError as error:
            raise InvalidTransition(f"task {self.task_id}: {event.type.name} in {before}: {error}") from None
        to = TRANSITIONS[before, event.type]
        self.state = to if isinstance(to, TaskState) else to(saved, self.context, event.data)
        self.updated_at = event.timestamp
        suspends = self.state is SUSPENDED and before is not SUSPENDED
        metadata: Metadata = {"suspendedFrom": before.value} if suspends else {}
        self.history.append(Transition(before, self.state, event.type, event.id, event.timestamp, metadata))
        return self.state

    def _refusal(self, type: EventType) -> str | None:
        """Return the reason why an event of this type is not allowed now, None if it is.

        Two rules depend on more than state and type: only a task that a restart interrupted may be resumed after it has
        failed, and a task that has its result cannot fail any more.
        """
        if (self.state, type) not in TRANSITIONS:
            return f"{type.name} is not allowed in {self.state}"
        if self.state is FAILED and not is_interrupted(self.state, self.context.error):
            return "it has failed; only a task that a restart interrupted may be resumed"
        if self.state is COMPLETED and type is _E.TASK_FAILED and self.context.final_result is not None:
            return f"{type.name} is not allowed in {self.state}: it has its result"
        return None

    @property
    def is_over(self) -> bool:
        """True if the task has failed, or has completed and its result is recorded: nothing is left to do but to notify."""
        return self.state is FAILED or (self.state is COMPLETED and self.context.final_result is not None)

    @property
    def is_active(self) -> bool:
        """True in REASONING and ACTING: at work, not waiting, suspended or over."""
        return self.state in (REASONING, ACTING)
