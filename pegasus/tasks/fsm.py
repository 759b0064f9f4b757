"""The task's state machine: a table, and the task that goes by it. No I/O, no clock, no randomness.

Rules of the file: what may happen in which state stands in TRANSITIONS and nowhere else; what an event changes stands in
`applying` and nowhere else; an event that is refused changes nothing. So the same events give the same task, live and replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import attrs

from pegasus.events import Event, EventType
from pegasus.messages import Metadata
from pegasus.tasks.applying import RESTARTED, Draft, Unfit, after_step
from pegasus.tasks.context import TaskContext, TaskState

IDLE, REASONING, ACTING = TaskState.IDLE, TaskState.REASONING, TaskState.ACTING
SUSPENDED, COMPLETED, FAILED = TaskState.SUSPENDED, TaskState.COMPLETED, TaskState.FAILED

DEFAULT_PRIORITY: Final = 100
"""Of a task whose TASK_CREATED names none: that of a message (reference.md, fromEvent)."""


class InvalidTransition(Exception):
    """The event is not allowed now; the task is as it was."""


def _after_resume(saved: TaskState | None, draft: Draft, event: Event) -> TaskState:
    """Where it was; but with something new to consider, an answer that was all but given is thought over again."""
    if saved is None or (event.payload.get("newMessages") and _answers(draft)):
        return REASONING
    return saved


def _after_step(saved: TaskState | None, draft: Draft, event: Event) -> TaskState:
    return after_step(draft)


def _answers(draft: Draft) -> bool:
    return draft.plan is not None and not any(step.call for step in draft.plan.steps)


Resolve: TypeAlias = Callable[[TaskState | None, Draft, Event], TaskState]
"""The next state, where it depends: on the state the task was suspended in, what it knows after the event, and the event."""

_E = EventType
_STEPS = (_E.TOOL_CALL_COMPLETED, _E.TOOL_CALL_FAILED, _E.STEP_COMPLETED)

TRANSITIONS: Final[Mapping[tuple[TaskState, EventType], TaskState | Resolve]] = MappingProxyType(
    {
        (IDLE, _E.TASK_CREATED): REASONING,
        (REASONING, _E.REASON_DONE): ACTING,
        (REASONING, _E.NEED_MORE_INFO): SUSPENDED,
        **{(ACTING, step): _after_step for step in _STEPS},
        **{(state, _E.TASK_SUSPENDED): SUSPENDED for state in (REASONING, ACTING)},
        (SUSPENDED, _E.MESSAGE_RECEIVED): REASONING,
        (SUSPENDED, _E.TASK_RESUMED): _after_resume,
        (COMPLETED, _E.TASK_RESUMED): REASONING,
        (FAILED, _E.TASK_RESUMED): REASONING,  # only what a restart interrupted: see `_refusal`
        **{(state, _E.TASK_FAILED): FAILED for state in (IDLE, REASONING, ACTING, SUSPENDED)},
        (
            COMPLETED,
            _E.TASK_FAILED,
        ): FAILED,  # only while its result is not on disk: who stops it then is told the truth
        # What was under way when the task was suspended is kept, and decides where it goes on (trap T7).
        **{(SUSPENDED, late): SUSPENDED for late in (_E.REASON_DONE, _E.NEED_MORE_INFO, *_STEPS)},
        # These leave the state as it is.
        **{(state, _E.TASK_NOTIFY): state for state in (REASONING, ACTING, SUSPENDED)},
        (COMPLETED, _E.TASK_COMPLETED): COMPLETED,
        (COMPLETED, _E.REFLECTION_COMPLETE): COMPLETED,
    }
)

_TABLE = dict(TRANSITIONS)
SUSPENDABLE: Final = frozenset({REASONING, ACTING})
RESUMABLE: Final = frozenset({SUSPENDED, COMPLETED})
TERMINAL: Final = frozenset({FAILED})


@attrs.frozen
class Transition:
    """One accepted event. timestamp: the event's, ms. metadata: {"suspendedFrom": state} where the task was suspended."""

    from_state: TaskState
    to_state: TaskState
    trigger_type: EventType
    trigger_id: str
    timestamp: int
    metadata: Metadata = attrs.field(factory=dict)


@attrs.frozen
class Snapshot:
    """All there is to know of a task, as a value that goes over the wire. created_at, updated_at: wall clock, ms."""

    task_id: str
    state: TaskState
    context: TaskContext
    history: tuple[Transition, ...] = ()
    created_at: int = 0
    updated_at: int = 0
    priority: int = DEFAULT_PRIORITY


class TaskFSM:
    """One task. `from_event` makes a new one, `hydrate` and `restore` one that was; `transition` is the only way it changes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.task_id = snapshot.task_id
        self.state = snapshot.state
        self.created_at = snapshot.created_at
        self.updated_at = snapshot.updated_at
        self.priority = snapshot.priority
        self._draft = Draft.of(snapshot.context)
        self._context: TaskContext | None = snapshot.context
        self._past = snapshot.history
        self._history: list[tuple[TaskState, TaskState, EventType, str, int]] = []

    @classmethod
    def from_event(cls, event: Event) -> TaskFSM:
        """A new task, IDLE, of its TASK_CREATED; the same event given to `transition` starts it. Raises InvalidTransition."""
        if event.type is not _E.TASK_CREATED or not event.task_id:
            raise InvalidTransition(f"a task is made by TASK_CREATED with a task id, not by {event.type.name}")
        priority = DEFAULT_PRIORITY if event.priority is None else event.priority
        context = TaskContext(event.task_id)
        at = event.timestamp
        task = cls(Snapshot(event.task_id, IDLE, context, created_at=at, updated_at=at, priority=priority))
        try:
            task._draft.apply(event, IDLE)
        except Unfit as error:
            raise InvalidTransition(f"task {event.task_id}: {error}") from None
        task._context = None
        return task

    @classmethod
    def hydrate(cls, task_id: str, context: TaskContext, state: TaskState) -> TaskFSM:
        """A task as it is known to be, without its past."""
        return cls(Snapshot(task_id, state, context))

    @classmethod
    def restore(cls, snapshot: Snapshot) -> TaskFSM:
        """The task of a snapshot."""
        return cls(snapshot)

    def snapshot(self) -> Snapshot:
        """The whole task as a value."""
        return Snapshot(
            self.task_id, self.state, self.context, self.history, self.created_at, self.updated_at, self.priority
        )

    @property
    def context(self) -> TaskContext:
        """What the task knows now. Made anew after every change, at a cost that grows with its messages."""
        if self._context is None:
            self._context = self._draft.context()
        return self._context

    @property
    def draft(self) -> Draft:
        """What the task knows now, to be read and not to be kept: unlike `context`, it costs nothing and changes."""
        return self._draft

    @property
    def history(self) -> tuple[Transition, ...]:
        """Every event that was accepted, oldest first."""
        return (*self._past, *[_record(*it) for it in self._history])

    def can_transition(self, type: EventType) -> bool:
        """Whether an event of this type may be accepted now; what it carries may still be refused."""
        return self._refusal(type) is None

    def transition(self, event: Event) -> TaskState:
        """Take up an event; the new state. Raises InvalidTransition, with nothing changed."""
        refusal = self._refusal(event.type)
        if refusal is not None:
            raise InvalidTransition(f"task {self.task_id}: {refusal}")
        before, saved = self.state, self._draft.suspended_state
        try:
            self._draft.apply(event, before)
        except Unfit as error:
            raise InvalidTransition(f"task {self.task_id}: {event.type.name} in {before}: {error}") from None
        to = _TABLE[before, event.type]
        self.state = to if isinstance(to, TaskState) else to(saved, self._draft, event)
        self.updated_at = event.timestamp
        self._context = None
        self._history.append((before, self.state, event.type, event.id, event.timestamp))
        return self.state

    def assume(self, state: TaskState) -> None:
        """Take the task to be in this state: for a log that lost the line which said so."""
        self.state = state
        self._context = None

    def skip(self, rounds: int, state: TaskState, at: int) -> None:
        """Take the task to have thought so often, and to be in this state since then (ms): for whoever will only end it."""
        self._draft.iteration = rounds
        self.updated_at = at
        self.assume(state)

    def _refusal(self, type: EventType) -> str | None:
        if (self.state, type) not in _TABLE:
            return f"{type.name} is not allowed in {self.state}"
        if self.state is FAILED and self._draft.error != RESTARTED:
            return "it has failed; only a task that a restart interrupted may be resumed"
        if self.state is COMPLETED and type is _E.TASK_FAILED and self._draft.final_result is not None:
            return f"{type.name} is not allowed in {self.state}: it has its result"
        return None

    @property
    def is_terminal(self) -> bool:
        """Nothing can happen to it any more, except that a restart may have been all that ended it."""
        return self.state in TERMINAL

    @property
    def is_done(self) -> bool:
        """COMPLETED or FAILED."""
        return self.state in (COMPLETED, FAILED)

    @property
    def is_active(self) -> bool:
        """It is at work: not waiting, suspended or done."""
        return self.state in (REASONING, ACTING)


def _record(before: TaskState, after: TaskState, type: EventType, id: str, at: int) -> Transition:
    metadata: Metadata = {"suspendedFrom": before.value} if after is SUSPENDED and before is not SUSPENDED else {}
    return Transition(before, after, type, id, at, metadata)
