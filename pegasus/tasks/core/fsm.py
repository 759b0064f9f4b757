"""The state machine of a task: a table, and the task that follows it. No I/O, no clock, no randomness.

Rules of the file. The transitions that are allowed are in TRANSITIONS and nowhere else. The change that an event makes is in
`changes` and nowhere else. An event that is refused changes nothing. Therefore the same events give the same task, whether they
happen now or are read from a log, and a task that was killed at any moment can be rebuilt from its log.

Why a table and not methods for each state: a test compares the table with the one in the documentation, and further tests
try every pair of state and event. Whether an event is allowed can be asked without trying it (`can_transition`).

The normal path of a task: IDLE is left when the task gets a slot. REASONING and ACTING alternate, one model call and the steps that it
asks for. A plan without tool calls answers, and its step leads to COMPLETED. COMPLETED has two phases: the answer is given, and
after TASK_COMPLETED its result is recorded. Only in between can a stop still turn it into FAILED.

    IDLE ─► REASONING ◄─► ACTING ─► COMPLETED ─(resume)─► REASONING
                │            │
                └─► SUSPENDED ◄┘        any of these but a recorded COMPLETED ─► FAILED
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import attrs

from pegasus.events import Event, EventType
from pegasus.messages import Metadata
from pegasus.tasks.core.changes import RESTARTED, apply_event, state_after_step
from pegasus.tasks.core.context import TaskContext, TaskState
from pegasus.tasks.core.events import PayloadError

IDLE, REASONING, ACTING = TaskState.IDLE, TaskState.REASONING, TaskState.ACTING
SUSPENDED, COMPLETED, FAILED = TaskState.SUSPENDED, TaskState.COMPLETED, TaskState.FAILED

DEFAULT_PRIORITY: Final = 100
"""Priority of a task whose TASK_CREATED names none; smaller goes first."""


class InvalidTransition(Exception):
    """The event is not allowed now; the task is as it was. The text names the task, the event and the state."""


def _after_resume(saved: TaskState | None, context: TaskContext, event: Event) -> TaskState:
    """Return the state that was saved, or REASONING if a pending answer must be reconsidered because of a new message.

    saved: None for a task whose log lost the line of its suspension; the model then decides again.
    """
    answers = context.plan is not None and not context.plan.has_calls
    if saved is None or (event.payload.get("newMessages") and answers):
        return REASONING
    return saved


def _after_step(saved: TaskState | None, context: TaskContext, event: Event) -> TaskState:
    """Return the state after a step of the plan, with the signature of `NextState`."""
    return state_after_step(context)


NextState: TypeAlias = Callable[[TaskState | None, TaskContext, Event], TaskState]
"""Next state of a transition that depends on more than the event's type.

Arguments: the state in which the task was suspended, the context after the event, the event.
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
        (SUSPENDED, _E.MESSAGE_RECEIVED): REASONING,
        (SUSPENDED, _E.TASK_RESUMED): _after_resume,
        (COMPLETED, _E.TASK_RESUMED): REASONING,
        # Only a task that a restart interrupted: see `_refusal`.
        (FAILED, _E.TASK_RESUMED): REASONING,
        **{(state, _E.TASK_FAILED): FAILED for state in (IDLE, REASONING, ACTING, SUSPENDED)},
        # Only while its result is not on disk: see `_refusal`. A stop that comes before it is then reported truthfully.
        (COMPLETED, _E.TASK_FAILED): FAILED,
        # A stage that was running when the task was suspended ended later. Its result is kept, and decides where the task
        # goes on. Today a task suspends after its stage; logs of earlier versions and recovery need these rows.
        **{(SUSPENDED, late): SUSPENDED for late in (_E.REASON_DONE, _E.NEED_MORE_INFO, *_STEPS)},
        # These leave the state as it is.
        **{(state, _E.TASK_NOTIFY): state for state in (REASONING, ACTING, SUSPENDED)},
        (COMPLETED, _E.TASK_COMPLETED): COMPLETED,
        (COMPLETED, _E.REFLECTION_COMPLETE): COMPLETED,
    }
)
"""All transitions: (state, event type) → next state, or the function that finds it."""


@attrs.frozen
class Transition:
    """One accepted event in the history of a task."""

    from_state: TaskState
    """State before the event."""
    to_state: TaskState
    """State after the event; may be the same."""
    trigger_type: EventType
    """Type of the event."""
    trigger_id: str
    """Id of the event; in a replay, the number of its line."""
    timestamp: int
    """Wall clock of the event, ms."""
    metadata: Metadata = attrs.field(factory=dict)
    """{"suspendedFrom": state} for the event that suspended the task."""


@attrs.frozen
class Snapshot:
    """A whole task as a value that can go over the wire.

    Example: `text = encode_json(to_wire(task.snapshot()))`, then `TaskFSM.restore(from_wire(decode_json(text), Snapshot))`.
    """

    task_id: str
    """Id of the task."""
    state: TaskState
    """State after the last accepted event."""
    context: TaskContext
    """Everything the task knows."""
    history: tuple[Transition, ...] = ()
    """Accepted events, oldest first."""
    created_at: int = 0
    """Wall clock, ms."""
    updated_at: int = 0
    """Wall clock of the last accepted event, ms."""
    priority: int = DEFAULT_PRIORITY
    """Rank among tasks that wait for a slot; smaller goes first."""


class TaskFSM:
    """One task. `from_event` makes a new one, `hydrate` and `restore` an existing one; only `transition` changes it.

    Example:
        task = TaskFSM.from_event(created)  # IDLE
        task.transition(created)  # REASONING
        task.context.messages[0].content  # the input
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.task_id = snapshot.task_id
        """Id of the task."""
        self.state = snapshot.state
        """State after the last accepted event."""
        self.context = snapshot.context
        """Everything the task knows, after the last accepted event."""
        self.created_at = snapshot.created_at
        """Wall clock of TASK_CREATED, ms."""
        self.updated_at = snapshot.updated_at
        """Wall clock of the last accepted event, ms."""
        self.priority = snapshot.priority
        """Rank among tasks that wait for a slot; smaller goes first."""
        self._history = list(snapshot.history)

    @classmethod
    def from_event(cls, event: Event) -> TaskFSM:
        """Return a new task, IDLE, of its TASK_CREATED. The same event given to `transition` starts it.

        Raises InvalidTransition for another event, or one without a task id.
        """
        if event.type is not _E.TASK_CREATED or not event.task_id:
            raise InvalidTransition(f"a task is made by TASK_CREATED with a task id, not by {event.type.name}")
        try:
            context = apply_event(TaskContext(event.task_id), event, IDLE)
        except PayloadError as error:
            raise InvalidTransition(f"task {event.task_id}: {error}") from None
        priority = DEFAULT_PRIORITY if event.priority is None else event.priority
        at = event.timestamp
        return cls(Snapshot(event.task_id, IDLE, context, created_at=at, updated_at=at, priority=priority))

    @classmethod
    def hydrate(cls, task_id: str, context: TaskContext, state: TaskState) -> TaskFSM:
        """Return a task with this context and state, without a history."""
        return cls(Snapshot(task_id, state, context))

    @classmethod
    def restore(cls, snapshot: Snapshot) -> TaskFSM:
        """Return the task of a snapshot."""
        return cls(snapshot)

    def snapshot(self) -> Snapshot:
        """Return the whole task as a value."""
        return Snapshot(
            self.task_id, self.state, self.context, self.history, self.created_at, self.updated_at, self.priority
        )

    @property
    def history(self) -> tuple[Transition, ...]:
        """Every accepted event, oldest first."""
        return tuple(self._history)

    def can_transition(self, type: EventType) -> bool:
        """Return whether an event of this type may be accepted now; its payload may still be refused."""
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
            self.context = apply_event(self.context, event, before)
        except PayloadError as error:
            raise InvalidTransition(f"task {self.task_id}: {event.type.name} in {before}: {error}") from None
        to = TRANSITIONS[before, event.type]
        self.state = to if isinstance(to, TaskState) else to(saved, self.context, event)
        self.updated_at = event.timestamp
        suspends = self.state is SUSPENDED and before is not SUSPENDED
        metadata: Metadata = {"suspendedFrom": before.value} if suspends else {}
        self._history.append(Transition(before, self.state, event.type, event.id, event.timestamp, metadata))
        return self.state

    def assume(self, state: TaskState) -> None:
        """Set the state without an event: for a log that lost the line which caused it. Only a replay does this."""
        self.state = state

    def _refusal(self, type: EventType) -> str | None:
        """Return the reason why an event of this type is not allowed now, None if it is.

        Two rules depend on more than state and type: only a task that a restart interrupted may be resumed after it has
        failed, and a task that has its result cannot fail any more.
        """
        if (self.state, type) not in TRANSITIONS:
            return f"{type.name} is not allowed in {self.state}"
        if self.state is FAILED and self.context.error != RESTARTED:
            return "it has failed; only a task that a restart interrupted may be resumed"
        if self.state is COMPLETED and type is _E.TASK_FAILED and self.context.final_result is not None:
            return f"{type.name} is not allowed in {self.state}: it has its result"
        return None

    @property
    def is_over(self) -> bool:
        """The task has failed, or has completed and its result is recorded: nothing is left to do but to notify."""
        return self.state is FAILED or (self.state is COMPLETED and self.context.final_result is not None)

    @property
    def is_terminal(self) -> bool:
        """FAILED."""
        return self.state is FAILED

    @property
    def is_done(self) -> bool:
        """COMPLETED or FAILED."""
        return self.state in (COMPLETED, FAILED)

    @property
    def is_active(self) -> bool:
        """REASONING or ACTING: at work, not waiting, suspended or done."""
        return self.state in (REASONING, ACTING)
