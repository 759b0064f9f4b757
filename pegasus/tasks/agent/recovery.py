"""Recovery: the tasks that were pending when the last run ended, whether it was stopped, killed or crashed.

`plan_recovery` is pure: from the log of a task to a list of actions. Carrying out some of them twice, because of another crash,
does no harm: a notification has its number, and an event that was recorded already changes the next plan. The plan rests on the rule
of the stages (`next_steps`): calls that may have been running are those that it returns for the plan in the log; every step behind
them was not begun.

`Recovery` carries the plans out. Logs are read and events recorded many at a time, and a disk that refuses does not keep the agent
from starting: the events wait, while tasks can be listed and cancelled.

The treatment of a call that may have been running depends on its effect. Reading a file again does no harm, so the call is run again.
Sending a message again may do harm, and so may not sending it; only the model can decide, so the call gets a result which says
that its outcome is unknown. A `notify` call is settled by the log itself: its event comes before its result.

A task whose log cannot be read now is left alone and stays pending. Failing it would turn a passing fault of the disk into lost work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, TypeAlias

import attrs
import trio

from pegasus.conversation import Entry
from pegasus.events import Event, EventType
from pegasus.observe import get_logger
from pegasus.storage import StorageError
from pegasus.tasks.agent.scheduler import TaskScheduler
from pegasus.tasks.agent.state import AgentState, TaskEntry
from pegasus.tasks.core.context import (
    Payload,
    PlannedCall,
    TaskFailed,
    TaskState,
    ToolCallDone,
    last_response,
    messages_json,
    task_completed,
    to_payload,
)
from pegasus.tasks.core.fsm import RESTARTED, TaskFSM
from pegasus.tasks.core.views import Notification, task_view
from pegasus.tasks.log.replay import ReplayedTask
from pegasus.tasks.run.stages import effect_of, next_steps, notify_result
from pegasus.tasks.run.thinker import ASK_USER, NOTIFY
from pegasus.tools import Effect

UNKNOWN: Final = "this call was under way when the process stopped; it may or may not have happened"
"""Result of a call that must not be run again unasked. The model decides what to do about it."""
RECOVERED_TOGETHER: Final = 250
"""Tasks whose logs are read, and whose events are recorded, as one batch. It bounds memory: a task is held whole until then."""

_log = get_logger("agent")


# ------------------------------------------------------------------ the plan


@attrs.frozen
class NotifyAgain:
    """Send this notification; a listener that has its number already ignores it."""

    notification: Notification
    """Notification as it was made from its event in the log."""
    last: bool = False
    """The task is over with it and leaves the pending list."""


@attrs.frozen
class RecordEvent:
    """Record this event and apply it."""

    type: EventType
    """Type of the event."""
    payload: Payload
    """Its payload, complete."""


@attrs.frozen
class Continue:
    """Go on with the task: let it wait for a slot, or for an answer if it is suspended."""

    state: TaskState
    """State of the task; IDLE if it had not begun."""
    again: tuple[PlannedCall, ...] = ()
    """Calls that may have been running and are run again, with the same key."""


@attrs.frozen
class DropTask:
    """Take the task off the pending list without a notification: it was never accepted, or its log is gone."""

    reason: str
    """Text for the log of the daemon."""


RecoveryAction: TypeAlias = NotifyAgain | RecordEvent | Continue | DropTask
"""One step of a recovery plan."""


def plan_recovery(
    found: ReplayedTask, mode: str, effect_of: Callable[[str], Effect | None], now: int
) -> tuple[RecoveryAction, ...]:
    """Return the actions for a pending task, in order.

    mode: `tasks.recovery`. "fail": an unfinished task is failed, once, and its submitter notified. "resume": it goes on. Finished
    calls are never run again; of those that may have been running, pure and idempotent ones are, and for others the
    model is told that their outcome is unknown. effect_of: effect of a tool, None if there is no such tool. now: wall clock, ms.
    """
    task = found.task
    if task is None:
        return (DropTask("there is no log of it"),)
    notifications = [NotifyAgain(notification) for notification in found.notifications]
    if found.is_over:
        if not notifications:
            return (DropTask("its log is damaged: it is over and has no notification"),)
        return (*notifications[:-1], NotifyAgain(notifications[-1].notification, last=True))
    context = task.context
    if task.state is TaskState.COMPLETED:  # the answer was given, only the line that says so is missing
        payload = task_completed(context, last_response(context), context.iteration)
        return (*notifications, RecordEvent(EventType.TASK_COMPLETED, payload))
    if mode != "resume":
        return (*notifications, RecordEvent(EventType.TASK_FAILED, to_payload(TaskFailed(RESTARTED))))
    return (*notifications, *_go_on(task, found, effect_of, now))


def _go_on(
    task: TaskFSM, found: ReplayedTask, effect_of: Callable[[str], Effect | None], now: int
) -> tuple[RecoveryAction, ...]:
    """Return the actions that give every call which must not be run again a result, then go on."""
    writes: list[RecoveryAction] = []
    again: list[PlannedCall] = []
    plan = task.context.plan
    acting = TaskState.ACTING in (task.state, task.context.suspended_state)
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
    return (*writes, Continue(state, tuple(again)))


def _settled(
    call: PlannedCall, task_id: str, found: ReplayedTask, effect_of: Callable[[str], Effect | None], now: int
) -> RecordEvent | None:
    """Return the event that ends a call which must not be run again; None for a call that may.

    A `notify` call counts as made if its message is among those without a result. `ask_user` is only in a plan if its question was
    missing, which gives an error without any effect.
    """
    if call.error is not None or call.name == ASK_USER.name:
        return None  # running it again gives the same error
    if call.name == NOTIFY.name:
        message = call.arguments.get("message")
        if not isinstance(message, str) or message not in found.unanswered:
            return None
        result = Entry(now, "tool", notify_result(message, task_id), call_id=call.id)
        return _call_result(EventType.TOOL_CALL_COMPLETED, call, result)
    if effect_of(call.name) in (Effect.PURE, Effect.IDEMPOTENT):
        return None
    result = Entry(now, "tool", f"Error: {UNKNOWN}", call_id=call.id, metadata={"error": True})
    return _call_result(EventType.TOOL_CALL_FAILED, call, result)


def _call_result(type: EventType, call: PlannedCall, result: Entry) -> RecordEvent:
    """Return the event of a call that ended while the process was away."""
    return RecordEvent(type, to_payload(ToolCallDone(call.name, 0, messages_json((result,)))))


# ------------------------------------------------------------------ carrying it out


@attrs.frozen(eq=False)
class _Recovering:
    """A task whose plan is being carried out."""

    entry: TaskEntry
    """Its entry in the registry, locked while events are recorded."""
    fsm: TaskFSM
    """The task as replayed from its log."""
    actions: tuple[RecoveryAction, ...]
    """The plan."""
    events: tuple[Event, ...]
    """Events of the plan."""


class Recovery:
    """Carries out the plans of the tasks that the last run left pending.

    Example: `await Recovery(state, scheduler, nursery).run()`, once, before the agent handles requests.
    """

    def __init__(self, state: AgentState, scheduler: TaskScheduler, nursery: trio.Nursery) -> None:
        self._state = state
        self._scheduler = scheduler
        self._nursery = nursery

    async def run(self) -> None:
        """Read the logs and register all pending tasks. Their events are recorded behind that.

        Returns when every pending task is in the registry and locked. Raises StorageError or ActorError if the pending list or the
        index cannot be read; the agent then crashes and is started again. Cancelled: what was not recorded is planned anew next time.
        """
        pending = await self._state.archive.pending()
        for begin in range(0, len(pending), RECOVERED_TOGETHER):
            task_ids = [entry.task_id for entry in pending[begin : begin + RECOVERED_TOGETHER]]
            found = await self._state.archive.replays(task_ids)
            recovering = [await self._take_up(*each) for each in zip(task_ids, found, strict=True)]
            await self._nursery.start(self._carry_out, [each for each in recovering if each is not None])

    async def _take_up(self, task_id: str, found: ReplayedTask | StorageError) -> _Recovering | None:
        """Plan the recovery of a task and register it. None if nothing is to be done: no log, or one that cannot be read now."""
        if isinstance(found, StorageError):  # it stays pending, and the next start tries again
            _log.error("the log of a pending task cannot be read", task=task_id, error=str(found))
            return None
        deps = self._state.deps
        actions = plan_recovery(found, deps.limits.recovery, partial(effect_of, deps.toolbox), deps.clock())
        for action in actions:
            if isinstance(action, DropTask):
                _log.warning("dropped a pending task", task=task_id, reason=action.reason)
                await self._state.archive.forget(task_id)
        if found.task is None:
            return None
        entry = TaskEntry(task_view(found.task), found.task, notified=found.task.context.notified)
        entry.created.set()
        self._state.registry.register(entry)
        if entry.is_over:
            entry.fsm = None
            self._state.registry.finished(entry)
        records = [action for action in actions if isinstance(action, RecordEvent)]
        events = tuple(self._state.make_event(entry, action.type, action.payload) for action in records)
        return _Recovering(entry, found.task, actions, events)

    async def _carry_out(
        self, tasks: Sequence[_Recovering], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Send the old notifications, record the events of these tasks as one step, and let unfinished tasks wait for their slots.

        The locks are taken before `started`, so the event of a cancel or a resume that comes meanwhile is recorded behind these.
        """
        async with AsyncExitStack() as locks:
            for task in tasks:
                await locks.enter_async_context(task.entry.lock)
            task_status.started()
            for task in tasks:
                for action in task.actions:
                    if isinstance(action, NotifyAgain):
                        self._state.notifier.add(action.notification, is_last=action.last)
            events = [event for task in tasks for event in task.events]
            if events:
                await self._state.archive.record(events)
            for task in tasks:
                for event in task.events:
                    await self._state.apply(task.entry, task.fsm, event)
        for task in tasks:
            for action in task.actions:
                if isinstance(action, Continue) and action.state is not TaskState.SUSPENDED:
                    start = self._state.deps.events.create(EventType.SYSTEM_STARTED, "agent")
                    await self._scheduler.enqueue(task.entry, start)
