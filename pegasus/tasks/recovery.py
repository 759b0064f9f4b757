"""What is to be done with a task that was pending when the process died: pure, from its log to a list of things to do.

The things are done in this order, and doing some of them twice, because of another crash, does no harm: a notification has its
number, an event that was written already changes the next plan. It rests on the doer's rule (`next_steps`): what may have been
under way are the steps that it gives for the plan as the log has it; every step behind them was not begun.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

from pegasus.conversation import Entry
from pegasus.events import EventType
from pegasus.messages import Json
from pegasus.tasks import payloads
from pegasus.tasks.applying import RESTARTED
from pegasus.tasks.cognition.doer import next_steps, notified
from pegasus.tasks.cognition.thinker import ASK_USER, NOTIFY
from pegasus.tasks.context import PlannedCall, TaskState
from pegasus.tasks.fsm import TaskFSM
from pegasus.tasks.messages import Notification
from pegasus.tasks.replay import ReplayedTask
from pegasus.tools import Effect

UNKNOWN: Final = "this call was under way when the process stopped; it may or may not have happened"
"""What the model is told of a call that must not be run again unasked."""


@attrs.frozen
class Tell:
    """Notify the submitter; one that knows this number already takes no notice. last: then the task is not pending any more."""

    notification: Notification
    last: bool = False


@attrs.frozen
class Write:
    """Emit this event: it goes its way over the bus and the log like any other, and the task takes it up."""

    type: EventType
    payload: dict[str, Json]


@attrs.frozen
class GoOn:
    """The task goes on from here. state: IDLE if it had not begun. again: calls under way that are run again, with the same key.

    SUSPENDED: it waits, as before; else it wants a place like a new one.
    """

    state: TaskState
    again: tuple[PlannedCall, ...] = ()


@attrs.frozen
class Drop:
    """Not pending any more, with nothing to tell: it was never accepted, or its log is gone."""

    reason: str


Action: TypeAlias = Tell | Write | GoOn | Drop


def plan_recovery(
    found: ReplayedTask, mode: str, effect_of: Callable[[str], Effect | None], now: int
) -> tuple[Action, ...]:
    """What is to be done. mode: `tasks.recovery`, "fail" or "resume". effect_of: of a tool; None if there is none. now: ms.

    "fail": an unfinished task is failed and that is told (trap T26: once). "resume": it goes on; finished calls are never run
    again, and of those under way a look is run again, an idempotent one too, and of others the model is told that nobody knows.
    """
    task = found.task
    if task is None:
        return (Drop("there is no log of it"),)
    told = [Tell(note) for note in found.notifications]
    if found.is_over:
        if not told:
            return (Drop("its log is damaged: it ends without anything to tell"),)
        return (*told[:-1], Tell(told[-1].notification, last=True))
    if task.state is TaskState.COMPLETED:  # the answer was given, only the line that says so is missing
        return (*told, Write(EventType.TASK_COMPLETED, payloads.completed(task.context)))
    if mode != "resume":
        return (*told, Write(EventType.TASK_FAILED, payloads.failed(RESTARTED)))
    return (*told, *_go_on(task, found, effect_of, now))


def _go_on(
    task: TaskFSM, found: ReplayedTask, effect_of: Callable[[str], Effect | None], now: int
) -> tuple[Action, ...]:
    """Settle what was under way, then go on."""
    writes: list[Action] = []
    again: list[PlannedCall] = []
    plan = task.draft.plan
    acting = TaskState.ACTING in (task.state, task.draft.suspended_state)
    for step in next_steps(plan.steps, effect_of) if plan is not None and acting else ():
        call = step.call
        if call is None:
            continue
        known = _settled(call, task.task_id, found, effect_of, now)
        if known is None:
            again.append(call)
        else:
            writes.append(known)
    state = TaskState.IDLE if found.lines == 1 and task.state is TaskState.REASONING else task.state
    return (*writes, GoOn(state, tuple(again)))


def _settled(
    call: PlannedCall, task_id: str, found: ReplayedTask, effect_of: Callable[[str], Effect | None], now: int
) -> Write | None:
    """The event that ends a call which is not to be run again; None for one that is."""
    if call.error is not None or call.name == ASK_USER.name:
        return None  # it comes to nothing but an error, as it did
    if call.name == NOTIFY.name:
        message = call.arguments.get("message")
        if not isinstance(message, str) or message not in found.unanswered:
            return None
        result = Entry(now, "tool", notified(message, task_id), call_id=call.id)
        return Write(EventType.TOOL_CALL_COMPLETED, payloads.tool_done(call.name, 0, result))
    if effect_of(call.name) in (Effect.PURE, Effect.IDEMPOTENT):
        return None
    result = Entry(now, "tool", f"Error: {UNKNOWN}", call_id=call.id, metadata={"error": True})
    return Write(EventType.TOOL_CALL_FAILED, payloads.tool_done(call.name, 0, result))
