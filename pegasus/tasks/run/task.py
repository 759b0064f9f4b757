"""The actor of one task: it runs stage after stage, and records the events of each before it applies them.

The loop of the actor (`_TaskRun.run`) is the whole life of a task:

1. Choose the next stage by the state of the task.
2. Run it, under the time that is left for the task.
3. Record the events that came of it: one request to the persister, answered when they are on disk.
4. Apply them to the state machine, publish them on the bus, report the new state to the agent.

While a task has an actor, this loop is the only one that records events of it. So the order in the log is the order in which the task
took them, and a replay of the log gives the same task. Requests of the agent are only stored for the loop (`_Requests`) and, where
they cannot wait, cancel the running stage.

Background commands of the task run in the nursery of the actor, beside the loop, so that they outlive a stage and end with
the actor, whatever ends it. The loop ends them earlier where somebody is told: before a result, a failure or a suspension is recorded,
and before a cancel or a stop of the process is answered. A suspended task has no commands, since it may wait for days.

A crash between 3 and 4 loses nothing: the agent replays the log of a task whose actor has crashed.

The time limit covers the stages of a task together and not each alone, because a person who waits for the result cares about the sum.
Reflections have no time limit of their own here; nobody waits for them, and the number of their model calls is bounded. They begin
some seconds after the result (`TaskDeps.reflect_after`). A process that stops before that makes none.

An error in a stage fails this task only. A defect in a tool or in a provider's client is thus reported to the submitter as the
error of the task, and does not restart the agent with all other tasks.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from actors import Inbox, Ref, Reply
from pegasus.events import Emit, Event, EventType
from pegasus.formatting import describe_error
from pegasus.messages import Json
from pegasus.models import ModelError
from pegasus.observe import get_logger
from pegasus.sandbox import BackgroundCommands
from pegasus.tasks.core.context import TaskContext, task_resumed, task_suspended
from pegasus.tasks.core.fsm import InvalidTransition, TaskFSM, open_steps
from pegasus.tasks.core.task_events import (
    STOPPED,
    NeedMoreInfo,
    ReasonDone,
    TaskCompleted,
    TaskEventData,
    TaskFailed,
    TaskState,
    TaskSuspended,
)
from pegasus.tasks.core.task_types import TaskType
from pegasus.tasks.core.views import Notification, TaskError, TaskView, notification_of, task_view
from pegasus.tasks.log.format import create_events
from pegasus.tasks.log.task_logs import TaskLogs
from pegasus.tasks.run.deps import TaskDeps
from pegasus.tasks.run.messages import (
    REFLECTING,
    CancelStage,
    EndedStage,
    FinishStage,
    ResumeTask,
    SuspendAfterStage,
    TaskMessage,
    TaskReport,
    TaskUpdate,
)
from pegasus.tasks.run.stages import Stages

_log = get_logger("tasks")
_ENDS: Final = (TaskCompleted, TaskFailed)
"""Events by which a task is over."""
_ENDS_OF_COMMANDS: Final = (*_ENDS, TaskSuspended, NeedMoreInfo)
"""Events with which the background commands of a task end: nobody could use them any more, or not for a long time."""

TRIVIAL: Final = 200
"""Characters: one step or none with a shorter result teaches nothing."""


async def task_actor(
    inbox: Inbox[TaskMessage],
    fsm: TaskFSM,
    task_type: TaskType,
    deps: TaskDeps,
    logs: TaskLogs,
    tool_slots: trio.CapacityLimiter,
    agent: Ref[TaskReport],
    start: Event,
    number: int,
) -> None:
    """Run one task until it is over, or suspended. Cancelled: the running stage ends, with everything it has started.

    Events of a stage that was cancelled are not recorded, so the task is in its log as it was before the stage.

    fsm: the task; from now on this actor alone changes it. tool_slots: slots for tool calls of all tasks together; one is held
    for a single call. agent: receives the reports. start: the event that starts the task and is on disk already, which is the
    cause of what follows. number: the task's, for its reports.
    """
    async with trio.open_nursery() as nursery:
        commands = BackgroundCommands(nursery)
        stages = Stages(fsm, task_type, deps, tool_slots, commands)
        run = _TaskRun(fsm, deps, logs, agent, stages, commands, nursery, start, number)
        commands.changed = partial(nursery.start_soon, run.report)
        nursery.start_soon(run.run, nursery.cancel_scope)
        async for message in inbox:
            run.handle(message)
        nursery.cancel_scope.cancel()


def apply_events(fsm: TaskFSM, events: Sequence[Event]) -> tuple[tuple[Event, ...], tuple[Notification, ...]]:
    """Apply events to their task. Returns the events to publish, and the notifications that they make.

    Nobody hears of either, nor of the new state, before the events are on disk.
    Behind an event that changes the state of the task TASK_STATE_CHANGED is published. It is not recorded: the log says the same.
    An event that the task refuses is logged and changes nothing; a replay of the log refuses it too.
    """
    accepted: list[tuple[Event, TaskState, TaskState]] = []
    notifications: list[Notification] = []
    for event in events:
        before, notified = fsm.state, fsm.context.notified
        try:
            after = fsm.transition(event)
        except InvalidTransition as error:
            _log.warning("dropped an event", task=fsm.task_id, problem=str(error))
            continue
        accepted.append((event, before, after))
        if fsm.context.notified > notified:
            notifications.append(notification_of(fsm, event))
    published: list[Event] = []
    for event, before, after in accepted:
        published.append(event)
        if after is not before:
            change: dict[str, Json] = {"fromState": before.value, "toState": after.value}
            kind, at = EventType.TASK_STATE_CHANGED, event.timestamp
            published.append(Event(kind, at, "task", event.task_id, change, parent_id=event.id))
    return tuple(published), tuple(notifications)


def should_reflect(context: TaskContext) -> bool:
    """Return whether the task may have taught something. Trivial tasks cost no further model call."""
    result = str((context.final_result or {}).get("response") or "")
    return context.iteration > 1 or len(context.actions_done) > 1 or len(result) >= TRIVIAL


@attrs.frozen(eq=False, repr=False)
class _Stage:
    """A stage that is about to run."""

    activity: str
    """Text for people, e.g. "thinking" or the names of tools; "" for what takes no time."""
    work: Callable[[], Awaitable[list[TaskEventData]]]
    """The work; returns what is to be recorded."""


@attrs.define(eq=False, repr=False)
class _Requests:
    """Requests of the agent that wait for the loop, the most urgent first.

    request              running stage         recorded         what the stage has done
    CancelStage          is cancelled          TASK_FAILED      results of calls are kept, a thought is dropped
    ResumeTask           is cancelled          TASK_RESUMED     dropped: it is a reflection
    SuspendAfterStage    ends by itself        TASK_SUSPENDED   kept, but for the answer of a thought
    FinishStage          ends by itself        nothing          kept
    """

    cancel_error: str | None = None
    """Error for TASK_FAILED, once a cancel was requested."""
    resume: ResumeTask | None = None
    """Resume that is not recorded yet."""
    suspend_reason: str | None = None
    """Reason for TASK_SUSPENDED, once a suspension was requested."""
    is_stopping: bool = False
    """True if no new stage may begin, because the process stops. This one is for good."""
    arrived: trio.Event = attrs.field(factory=trio.Event)
    """Set when a request has come in; for a task that has nothing to do."""

    @property
    def stops_stage(self) -> bool:
        """True if a request cancels the running stage."""
        return self.cancel_error is not None or self.resume is not None


@attrs.define(eq=False, repr=False)
class _TaskRun:
    """The loop of a task.

    A task ends in several steps, and each has its name here:

    `_will_be_over`            its last event is in the log, or on the way there: a cancel comes too late
    `_fsm.is_over`             its last event is in the log: completed or failed
    `_needs_no_actor`          nothing is left to do, not even a reflection: this actor ends. So it is for a suspended task
    `_requests.is_stopping`    the process stops: no stage begins any more, whatever is left to do
    """

    _fsm: TaskFSM
    """The task. It takes an event only after that is on disk."""
    _deps: TaskDeps
    """Bus, clock, limits, and what the stages need."""
    _logs: TaskLogs
    """Logs, by which events get on disk."""
    _agent: Ref[TaskReport]
    """Receives the reports."""
    _stages: Stages
    """The work that each state asks for."""
    _commands: BackgroundCommands
    """Background commands of the task; they end with the actor."""
    _nursery: trio.Nursery
    """Nursery of the actor."""
    _cause: Event
    """Last recorded event of the task, the cause of the next."""
    _number: int
    """Number of the task, as its view has it."""
    _seconds_left: float = attrs.field(init=False)
    """Time that the stages may still take, since the start or the last resume."""
    _activity: str = ""
    """Activity of the running stage, "" if none runs."""
    _reflect_at: float = math.inf
    """Trio time at which the reflection on the result begins; inf: there is none, or it was begun. Each completion has at most one."""
    _scope: trio.CancelScope | None = None
    """Scope of the stage that runs; None while none does."""
    _recording: Sequence[TaskEventData] = ()
    """Events that are on their way to the disk."""
    _requests: _Requests = attrs.field(factory=_Requests)
    """Requests that wait."""
    _cancel_replies: list[tuple[Reply[EndedStage], EndedStage]] = attrs.field(factory=list)
    """Requests to answer when the running stage and the background commands have ended, with their answers."""
    _finish_replies: list[Reply[None]] = attrs.field(factory=list)
    """Requests to answer when nothing of the task runs and everything is on disk."""

    def __attrs_post_init__(self) -> None:
        self._seconds_left = self._deps.limits.now.timeout

    # ------------------------------------------------------------------ requests

    def handle(self, message: TaskMessage) -> None:
        """Store a request for the loop, and cancel the running stage if the request requires it. Never waits."""
        match message:
            case CancelStage(reply, error):
                self._requests.cancel_error = error
                activity = self._activity or (REFLECTING if self._reflect_at < math.inf else "")
                self._cancel_replies.append((reply, EndedStage(activity, self._will_be_over)))
                self._commands.request_end()  # at the same time as the stage
                if self._scope is None:
                    self._nursery.start_soon(self._answer_cancel)
                else:  # answered when the stage has ended
                    self._scope.cancel()
            case SuspendAfterStage(reason):
                self._requests.suspend_reason = reason or None
            case ResumeTask():
                self._requests.resume = message
                if self._scope is not None:
                    self._scope.cancel()
            case FinishStage(reply):
                self._requests.is_stopping = True
                self._finish_replies.append(reply)
        self._requests.arrived.set()

    # ------------------------------------------------------------------ the loop

    async def run(self, actor_scope: trio.CancelScope) -> None:
        """Alternate between the stages until the task is over. Then cancel the scope of the actor: nothing is left to listen for."""
        notifications: tuple[Notification, ...] = ()
        if self._fsm.state is TaskState.IDLE:
            (_, *changes), _ = apply_events(self._fsm, (self._cause,))
            await self._deps.bus.tell(
                Emit(tuple(changes))
            )  # without TASK_CREATED, which was published when it was recorded
        while True:
            requested = self._requested_events()
            may_begin = not requested and not self._requests.is_stopping
            stage = self._next_stage() if may_begin else None
            self._activity = stage.activity if stage is not None else ""
            view = self._view()
            if stage is not None and view.is_over:
                self._reflect_at = math.inf  # this stage is the reflection
            await self._agent.tell(TaskUpdate(view, notifications))
            notifications = ()
            if requested:
                notifications = await self._record(requested)
                self._answer_resume()
            elif stage is not None and self._has_request_to_record:
                continue  # a request came in while the report was sent; it goes first
            elif stage is not None:
                notifications = await self._record(await self._run_stage(stage))
            elif self._needs_no_actor:
                break
            else:
                await self._wait_for_request()
        await self._commands.end_all()
        await self._answer_cancel()
        self._answer_finish()
        actor_scope.cancel()

    async def report(self) -> None:
        """Report the background commands that run now, with the rest of the task. The end of a task is reported by the loop only."""
        if not self._fsm.is_over and self._fsm.state is not TaskState.SUSPENDED:
            await self._agent.tell(TaskUpdate(self._view()))

    def _view(self) -> TaskView:
        return task_view(self._fsm, self._activity, self._number, self._commands.names)

    async def _answer_cancel(self) -> None:
        """Answer those who wait for a cancel, when no background command is left."""
        await self._commands.end_all()
        for reply, ended in self._cancel_replies:
            reply.send(ended)
        self._cancel_replies.clear()

    def _requested_events(self) -> list[TaskEventData]:
        """Return what a request asks to be recorded, [] if there is none or it comes too late."""
        requests, state = self._requests, self._fsm.state
        if requests.cancel_error is not None:
            self._reflect_at = math.inf  # a reflection that was cancelled does not start again
            if not self._fsm.is_over:
                return [TaskFailed(requests.cancel_error, STOPPED)]
        if (resume := requests.resume) is not None:
            if self._fsm.can_transition(EventType.TASK_RESUMED):
                self._cause = resume.cause or self._cause
                now = self._deps.clock()
                return [task_resumed(resume.text, state, now, resume.key, resume.outside, resume.owner_messages)]
            resume.reply.fail(TaskError(f"task {self._fsm.task_id} is {state.value}"))
            requests.resume = None
        if requests.suspend_reason is not None and self._fsm.is_active:
            return [task_suspended(self._fsm.context, state, requests.suspend_reason)]
        return []

    def _answer_resume(self) -> None:
        """Answer a resume that is on disk, and forget the requests that were for the time before it."""
        resume = self._requests.resume
        if resume is not None and self._cause.type is EventType.TASK_RESUMED:
            resume.reply.send(None)
            self._requests.resume = self._requests.suspend_reason = self._requests.cancel_error = None
            self._reflect_at = math.inf
            self._seconds_left = self._deps.limits.now.timeout

    def _answer_finish(self) -> None:
        """Answer those who wait until nothing of the task runs and everything is on disk."""
        for reply in self._finish_replies:
            reply.send(None)
        self._finish_replies.clear()

    async def _wait_for_request(self) -> None:
        """Wait for a request, for a task that has nothing to do: the process stops, or its log has a plan without open steps.

        A task that is over waits for its reflection.
        """
        if self._requests.is_stopping:
            await self._commands.end_all()
        self._answer_finish()
        with trio.move_on_at(self._reflect_at):
            await self._requests.arrived.wait()
        self._requests.arrived = trio.Event()

    @property
    def _will_be_over(self) -> bool:
        """True if the task is over, or will be when the disk has written what is on its way there."""
        return self._fsm.is_over or any(isinstance(data, _ENDS) for data in self._recording)

    @property
    def _has_request_to_record(self) -> bool:
        """True if a request is to be recorded before the next stage begins."""
        return self._requests.stops_stage or (self._requests.suspend_reason is not None and self._fsm.is_active)

    @property
    def _needs_no_actor(self) -> bool:
        """True if nothing will happen without an event that starts the task anew."""
        if self._fsm.state is TaskState.COMPLETED and self._fsm.context.final_result is not None:
            return self._reflect_at == math.inf or self._requests.is_stopping
        return self._fsm.state in (TaskState.FAILED, TaskState.SUSPENDED)

    def _next_stage(self) -> _Stage | None:
        """Return the stage that the state asks for, None if the task has nothing to do. Changes nothing."""
        context, stages = self._fsm.context, self._stages
        match self._fsm.state:
            case TaskState.REASONING:
                return _Stage("thinking", stages.reason)
            case TaskState.ACTING if calls := stages.next_calls():
                return _Stage(", ".join(call.name for call in calls), partial(stages.act, calls))
            case TaskState.ACTING if context.plan is not None and open_steps(context.plan):
                return _Stage("", stages.answer)
            case TaskState.COMPLETED if context.final_result is None:
                return _Stage("", stages.complete)
            case TaskState.COMPLETED if trio.current_time() >= self._reflect_at:
                return _Stage(REFLECTING, stages.reflect)
        return None

    # ------------------------------------------------------------------ stages

    async def _run_stage(self, stage: _Stage) -> list[TaskEventData]:
        """Run a stage and return what is to be recorded. An error in it fails this task, and no other."""
        is_reflection = self._fsm.state is TaskState.COMPLETED
        begun = trio.current_time()
        happened: list[TaskEventData] = []
        self._scope = trio.CancelScope(deadline=math.inf if is_reflection else begun + self._seconds_left)
        try:
            with self._scope:
                happened = await stage.work()
        except ModelError as error:
            if is_reflection:
                _log.warning("the reflection was skipped", task=self._fsm.task_id, error=str(error))
            else:
                happened = [TaskFailed(str(error))]
        except Exception as error:
            _log.exception("a stage failed", error=error, task=self._fsm.task_id)
            happened = [] if is_reflection else [TaskFailed(describe_error(error))]
        if self._scope.cancelled_caught and not self._requests.stops_stage:
            happened = [TaskFailed(f"the task took longer than {self._deps.limits.now.timeout:g} s")]
        self._seconds_left -= trio.current_time() - begun
        self._scope, self._activity = None, ""
        if self._cancel_replies:
            await self._answer_cancel()
        return self._without_unwanted(happened)

    def _without_unwanted(self, happened: list[TaskEventData]) -> list[TaskEventData]:
        """Drop events that a request has made useless: the thought of a cancelled task, the answer of one that is to be suspended.

        Results of tools are kept in any case, since the calls were made.
        """
        is_thought = bool(happened) and isinstance(happened[0], ReasonDone | NeedMoreInfo)
        if is_thought and self._requests.cancel_error is not None:
            return []
        return happened[:1] if is_thought and self._requests.suspend_reason is not None else happened

    # ------------------------------------------------------------------ events

    async def _record(self, happened: Sequence[TaskEventData]) -> tuple[Notification, ...]:
        """Write what has happened as events, then apply and publish them. Returns the notifications that they make.

        Cancelled: the events are in the log or not, and if they are, perhaps not published: observers are not promised to see all.
        """
        if not happened:
            return ()
        self._recording = happened
        if self._commands.names and any(isinstance(data, _ENDS_OF_COMMANDS) for data in happened):
            await self._commands.end_all()
        events = create_events(happened, self._fsm.task_id, "task", self._deps.clock(), cause=self._cause)
        await self._logs.record(events)
        self._recording = ()
        published, notifications = apply_events(self._fsm, events)
        self._cause = events[-1]
        if isinstance(happened[-1], TaskCompleted) and self._deps.memory is not None:
            self._reflect_at = (
                trio.current_time() + self._deps.reflect_after if should_reflect(self._fsm.context) else math.inf
            )
        if published:
            await self._deps.bus.tell(Emit(published))
        return notifications
