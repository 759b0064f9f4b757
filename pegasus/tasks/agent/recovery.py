"""Recovery: the tasks that were pending when the last run ended, whether it was stopped, killed or crashed.

`plan_recovery` is pure: from the log of a task to a plan. Carrying out a part of it twice, because of another crash,
does no harm: a notification has its number, and an event that was recorded already changes the next plan. The plan rests on the rule
of the stages (`next_steps`): calls that may have been running are those that it returns for the plan in the log; every step behind
them was not begun.

`recover_tasks` carries the plans out. Logs are read and events recorded many at a time, and a disk that refuses keeps no agent
from starting: the events wait, while tasks can be listed and cancelled.

The treatment of a call that may have been running depends on its effect. Reading a file again does no harm, so the call is run again.
Sending a message again may do harm, and so may not sending it; only the model can decide, so the call gets a result which says
that its outcome is unknown. A `notify` call is settled by the log itself: its event comes before its result.

A task whose log cannot be read now is left alone and stays pending. Failing it would turn a passing fault of the disk into lost work.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

import attrs
import trio

from pegasus.collector import collector_paused
from pegasus.conversation import Entry
from pegasus.events import Emit, Event, EventType
from pegasus.models import ToolCall
from pegasus.observe import get_logger
from pegasus.storage import StorageError
from pegasus.tasks.agent.scheduler import TaskScheduler
from pegasus.tasks.agent.state import TaskAgentState, TaskEntry
from pegasus.tasks.core.fsm import RESTARTED, TaskFSM, last_response, task_completed
from pegasus.tasks.core.task_events import TaskEventData, TaskFailed, ToolCallDone, ToolCallFailed
from pegasus.tasks.core.task_states import FOR_APPROVAL, FOR_PERSON, TaskState
from pegasus.tasks.core.views import Notification
from pegasus.tasks.log.format import PendingTask
from pegasus.tasks.log.replay import ReplayedTask
from pegasus.tasks.run.permission import ASK_PERMISSION
from pegasus.tasks.run.stages import call_key, find_effect, next_steps, notify_result
from pegasus.tasks.run.task import should_reflect
from pegasus.tasks.run.thinker import ASK_USER, NOTIFY
from pegasus.tools import Effect

UNKNOWN: Final = "this call was under way when the process stopped; it may or may not have happened"
"""Result of a call that must not be run again unasked. The model decides what to do about it."""
RECOVERED_TOGETHER: Final = 250
"""Tasks whose logs are read, and whose events are recorded, as one batch. It bounds memory: until then
the logs are held as bytes, and of tasks that go on the replayed task as well."""

_log = get_logger("tasks")


# ------------------------------------------------------------------ the plan


@attrs.frozen
class RecoveryPlan:
    """The treatment of a pending task, after its notifications were sent again. Example: `RecoveryPlan(goes_on=True)`."""

    events: tuple[TaskEventData, ...] = ()
    """Data of the events to record and apply, in order."""
    goes_on: bool = False
    """True if the task waits for a slot then; False for an ended one, or suspended."""
    reflects: bool = False
    """True if the task is over, and the stop came before its reflection."""
    dropped: str = ""
    """Reason why the task leaves the pending list without a notification: it was never accepted, or its log is gone."""


def plan_recovery(
    found: ReplayedTask,
    mode: str,
    effect_of: Callable[[str], Effect | None],
    now: int,
    awaited: Container[str] = (),
) -> RecoveryPlan:
    """Return the plan for a pending task.

    A task that is suspended because an owner is asked about a call, or because a person has paused it, waits on in both modes.

    mode: `tasks.recovery`. "fail": an unfinished task is failed, once, and its submitter notified. "resume": it goes on. Finished
    calls are never run again; of those that may have been running, pure and idempotent ones are, and for others the
    model is told that their outcome is unknown. effect_of: effect of a tool, None if there is no such tool. now: wall clock, ms.
    awaited: keys of the calls that wait for an approval. The crash came before the suspension; the call has not begun.
    """
    task = found.task
    if task is None:
        return RecoveryPlan(dropped="there is no log of it")
    context = task.context
    if found.is_over:
        if not found.notifications:
            return RecoveryPlan(dropped="its log is damaged: it is over and has no notification")
        is_completed = task.state is TaskState.COMPLETED
        return RecoveryPlan(reflects=is_completed and context.post_reflection is None and should_reflect(context))
    if task.state is TaskState.COMPLETED:  # the answer was given, only the line that says so is missing
        return RecoveryPlan((task_completed(context, last_response(context), context.iteration),))
    if task.state is TaskState.SUSPENDED and context.suspend_reason in (FOR_APPROVAL, FOR_PERSON):
        return RecoveryPlan()
    if mode != "resume":
        return RecoveryPlan((TaskFailed(RESTARTED),))
    acting = TaskState.ACTING in (task.state, context.suspended_state)
    steps = next_steps(context.plan.steps, effect_of) if context.plan is not None and acting else ()
    begun = [
        step.call for step in steps if step.call is not None and call_key(task.task_id, step.call.id) not in awaited
    ]
    results = [_result(call, task.task_id, found, effect_of, now) for call in begun]
    events = tuple(result for result in results if result is not None)
    return RecoveryPlan(events, goes_on=task.state is not TaskState.SUSPENDED)


def _result(
    call: ToolCall, task_id: str, found: ReplayedTask, effect_of: Callable[[str], Effect | None], now: int
) -> ToolCallDone | None:
    """Return the data of the event that ends a call which must not be run again; None for a call that may.

    A `notify` call counts as made if its message is among those without a result. `ask_user` is only in a plan if its question was
    missing, which gives an error without any effect.
    """
    if call.error is not None or call.name in (ASK_USER.name, ASK_PERMISSION.name):
        return None  # running it again gives the same error, and a question that was asked is found by its key
    if call.name == NOTIFY.name:
        message = call.arguments.get("message")
        if not isinstance(message, str) or message not in found.unanswered:
            return None
        result = Entry(now, "tool", notify_result(message, task_id), call_id=call.id)
        return ToolCallDone(call.name, 0, (result,))
    if effect_of(call.name) in (Effect.PURE, Effect.IDEMPOTENT):
        return None
    result = Entry(now, "tool", f"Error: {UNKNOWN}", call_id=call.id, failed=True)
    return ToolCallFailed(call.name, 0, (result,))


# ------------------------------------------------------------------ carrying it out


@attrs.frozen(eq=False, repr=False)
class _RecoveringTask:
    """A task whose plan is being carried out."""

    entry: TaskEntry
    """Its entry in the registry, locked while events are recorded."""
    notifications: tuple[Notification, ...]
    """Notifications to send again; a listener that has their numbers already ignores them."""
    events: tuple[Event, ...]
    """Events to record."""
    fsm: TaskFSM | None
    """The task, if it waits for a slot then or reflects."""


async def recover_tasks(
    state: TaskAgentState, scheduler: TaskScheduler, nursery: trio.Nursery, pending: Sequence[PendingTask]
) -> None:
    """Read the logs of the tasks that the last run, or a node that lives no more, left pending and register them.

    Their events are recorded behind that.

    Returns when every pending task is in the registry and locked. Raises StorageError or ActorError if the pending list or the
    index cannot be read; the agent then crashes and is started again. Cancelled: what was not recorded is planned anew next time.
    """
    awaited = await state.deps.awaited() if pending else frozenset()
    for begin in range(0, len(pending), RECOVERED_TOGETHER):
        task_ids = [entry.task_id for entry in pending[begin : begin + RECOVERED_TOGETHER]]
        dropped: list[str] = []
        tasks: list[_RecoveringTask] = []
        replays = await state.logs.replays(task_ids)
        with collector_paused():
            for task_id, found in zip(task_ids, replays, strict=True):
                if isinstance(found, StorageError):  # it stays pending, and the next start tries again
                    _log.error("the log of a pending task cannot be read", task=task_id, error=str(found))
                    continue
                plan = _plan(state, found, awaited)
                if plan.dropped:
                    _log.warning("dropped a pending task", task=task_id, reason=plan.dropped)
                    dropped.append(task_id)
                if found.task is not None:
                    tasks.append(_take_up(state, found.task, found, plan))
        if dropped:
            await state.logs.forget(*dropped)
        await nursery.start(_carry_out, state, scheduler, tasks)


def _plan(state: TaskAgentState, found: ReplayedTask, awaited: Container[str]) -> RecoveryPlan:
    """Return the plan for a task under the present settings, tools and time. awaited: keys of the calls that wait for an owner."""
    deps = state.deps
    return plan_recovery(found, deps.limits.now.recovery, partial(find_effect, deps.toolbox.now), deps.clock(), awaited)


def _take_up(state: TaskAgentState, fsm: TaskFSM, found: ReplayedTask, plan: RecoveryPlan) -> _RecoveringTask:
    """Register a task, and find out what its plan leads to.

    Who records another event of it waits for the lock.
    """
    entry = state.take_in(fsm, found.number)
    entry.fsm = None if entry.view.is_over else fsm
    events = tuple(state.make_event(entry, data) for data in plan.events)
    entry.reflects = plan.reflects and state.deps.memory is not None
    return _RecoveringTask(entry, found.notifications, events, fsm if plan.goes_on or entry.reflects else None)


async def _carry_out(
    state: TaskAgentState,
    scheduler: TaskScheduler,
    tasks: Sequence[_RecoveringTask],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Publish these tasks, send the old notifications, record their events as one step, and let tasks that go on wait for slots.

    The locks are taken before `started`, so the event of a cancel or a resume that comes meanwhile is recorded behind these. They
    are free: nobody has seen these entries yet.
    """
    with ExitStack() as locks:
        for task in tasks:
            task.entry.lock.acquire_nowait()
            locks.callback(task.entry.lock.release)
        task_status.started()
        if found := tuple(state.updated(task.entry) for task in tasks if not task.events):
            await state.deps.bus.tell(Emit(found))
        for task in tasks:
            for notification in task.notifications:
                is_last = task.entry.is_over and notification is task.notifications[-1]
                state.notifier.add(notification, is_last=is_last)
        if moves := [(task.entry, event) for task in tasks for event in task.events]:
            await state.record_all(moves)
    going_on = [(task.entry, task.fsm) for task in tasks if task.fsm is not None]
    if going_on:
        await state.deps.before_resuming()
    start = Event(EventType.SYSTEM_STARTED, state.deps.clock(), "agent")
    for entry, fsm in going_on:
        if fsm.is_over and entry.reflects and not entry.is_resuming:  # else somebody has ended it, or resumed the task
            await scheduler.start(entry, fsm, start)
    waiting = [entry for entry, fsm in going_on if not fsm.is_over and not entry.is_ending]  # else cancelled meanwhile
    await scheduler.enqueue(start, *waiting)
