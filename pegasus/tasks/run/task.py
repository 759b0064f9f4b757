"""The actor of one task: it runs stage after stage, and is moved by the events that come of them when it hears them on the bus.

The agent hands the task's events over to the actor (`Deliver`), as they come from the bus, and sends the requests of people. What the
actor has to tell goes out on the bus, as the `data` of TASK_UPDATED, for the agent and for everybody else alike.

The loop of the actor (`_TaskRun.run`) is the whole life of a task:

1. Choose the next stage by the state of the task.
2. Run it, under the time that is left for the task.
3. Make events of what came of it. They are written to the log, then published (`TaskLogs.record`).
4. Hear them. The agent finds the task by its id and hands them over; the state machine takes each, and the new state says what
   the next stage is.
5. Publish the task as it is now (TASK_UPDATED), which is what the agent and everybody else know of it.

While a task has an actor, this loop is the only one that records events of it. So the order in the log is the order in which the task
took them, and a replay of the log gives the same task. An event on the bus that somebody else has published, and that is not written
yet, is a request like those of people: the agent passes it on, and the loop makes an event that says the same and names it as its
cause. Requests are only stored for the loop (`_Requests`) and, where they cannot wait, cancel the running stage.

Background commands of the task run in the nursery of the actor, beside the loop, so that they outlive a stage and end with
the actor, whatever ends it. The loop ends them earlier where somebody is told: before a result, a failure or a suspension is recorded,
and before a cancel or a stop of the process is answered. A suspended task has no commands, since it may wait for days.

A crash between 3 and 4 loses nothing: the agent replays the log of a task whose actor has crashed, and a restart of the bus or of the
persister restarts the agent, which replays the logs of all tasks. When the process stops, nobody hears the bus any more; then the loop
takes what it has written at once.

The time limit covers the stages of a task together and not each alone, because a person who waits for the result cares about the sum.
Reflections have no time limit of their own here; nobody waits for them, and the number of their model calls is bounded. They begin
some seconds after the result (`TaskDeps.reflect_after`). A task stays on the pending list until its reflection has ended, so one that
a stop prevents is made at the next start.

An error in a stage fails this task only. A defect in a tool or in a provider's client is thus reported to the submitter as the
error of the task, and does not restart the agent with all other tasks.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import attrs
import trio

from actors import Inbox, Reply
from pegasus.events import Deliver, Emit, Event, EventType
from pegasus.formatting import describe_error
from pegasus.messages import Json
from pegasus.models import ModelError
from pegasus.observe import get_logger
from pegasus.outside import Untrusted
from pegasus.policy import OwnerMessage
from pegasus.sandbox import BackgroundCommands
from pegasus.tasks.core.fsm import InvalidTransition, TaskContext, TaskFSM, open_steps, task_resumed, task_suspended
from pegasus.tasks.core.task_events import (
    NeedMoreInfo,
    ReasonDone,
    TaskCompleted,
    TaskEventData,
    TaskFailed,
    TaskResumed,
    TaskSuspended,
)
from pegasus.tasks.core.task_states import REFLECTING, STOPPED, TaskError, TaskState
from pegasus.tasks.core.task_types import TaskType
from pegasus.tasks.core.views import Notification, TaskView, notification_of, task_view
from pegasus.tasks.log.format import create_events
from pegasus.tasks.log.task_logs import TaskLogs
from pegasus.tasks.run.deps import TaskDeps
from pegasus.tasks.run.stages import Stages

# ------------------------------------------------------------------ messages, and what is told about tasks


@attrs.frozen(eq=False, repr=False)
class EndedStage:
    """Result of a CancelStage.

    Example: `EndedStage("thinking", False)` of a task that was ended in the middle of a model call.
    """

    activity: str
    """The activity, e.g. "thinking"; "reflecting" also for a reflection that was due only; "" if nothing ran or was due."""
    is_over: bool
    """The task had come to its end before the request, and that end stands: it is on disk or is being written."""


@attrs.frozen(eq=False, repr=False)
class CancelStage:
    """End the running stage with everything it has started, then fail the task, unless it is over.

    Answered when nothing of it runs any more. That the task has failed is recorded after the answer, since a disk that refuses must
    not keep `/stop` from stopping. A reflection that runs or is due is ended too; its task stays completed.

    Example: `ended = await entry.ref.ask(CancelStage, "stopped by the owner", None)`.
    """

    reply: Reply[EndedStage]
    """Fails with ActorError if the actor has ended before; the agent then records the failure."""
    error: str
    """Error of the failed task, e.g. "stopped by the owner"."""
    cause: Event | None
    """Event on the bus that asks for this, if there is one."""


@attrs.frozen(eq=False, repr=False)
class SuspendAfterStage:
    """Let the running stage finish, record what it did, then suspend the task.

    Example: `await entry.ref.tell(SuspendAfterStage("until tomorrow", None))`. A TaskUpdate reports the suspended task.
    """

    reason: str
    """Reason for the log and the view of the task."""
    cause: Event | None = None
    """Event on the bus that asks for this, if there is one."""


@attrs.frozen(eq=False, repr=False)
class GoOn:
    """Take a SuspendAfterStage back."""

    reply: Reply[bool]
    """Receives False if it is too late: the suspension is on its way to the disk. Fails with ActorError if the actor has ended."""


@attrs.frozen(eq=False, repr=False)
class FinishStage:
    """Let the running stage finish and record what it did; begin nothing new. Answered when that is on disk.

    Example: `await entry.ref.ask(FinishStage)` when the process stops. The task stays pending.
    """

    reply: Reply[None]
    """Answered when nothing of the task runs and all is on disk. Fails with ActorError if the actor ends before."""


@attrs.frozen(eq=False, repr=False)
class ResumeOrder:
    """Content of a resume, on its way from the one who asks to the log. Example: `ResumeOrder("And the red one?")`."""

    text: str
    """New input of the task; "" = go on as before."""
    key: str = ""
    """Key of the `Resume`, "" if it has none."""
    cause: Event | None = None
    """Event on the bus that asks for this, if there is one."""
    outside: tuple[Untrusted, ...] = ()
    """Labels of the text."""
    owner_messages: tuple[OwnerMessage, ...] = ()
    """Messages of owners that it comes of."""

    def data(self, state: TaskState, at: int) -> TaskResumed:
        """Return the data of TASK_RESUMED for a task in this state. at: wall clock, ms."""
        return task_resumed(self.text, state, at, self.key, self.outside, self.owner_messages)


@attrs.frozen(eq=False, repr=False)
class ResumeTask:
    """Record a resume of a completed task whose reflection runs or is due, and go on. The reflection is ended.

    Example: `await entry.ref.ask(ResumeTask, ResumeOrder("And the red one?"))`.
    """

    reply: Reply[None]
    """Answered when TASK_RESUMED is on disk. Fails with TaskError if the task cannot be resumed now."""
    order: ResumeOrder
    """Content of the resume."""


TaskMessage: TypeAlias = CancelStage | SuspendAfterStage | GoOn | FinishStage | ResumeTask | Deliver
"""Everything that the actor of a task accepts."""


@attrs.frozen(eq=False, repr=False)
class TaskUpdate:
    """Data of TASK_UPDATED: the task as it is now, and what its submitter is to be told.

    Published before each stage, after events have moved the task, and when a background command has begun or ended. So the state may
    be the same as before; that it has changed is the event TASK_STATE_CHANGED. At a start each pending task is published once.

    Example: `Event(EventType.TASK_UPDATED, clock(), "task", view.task_id, data=TaskUpdate(view, (notification,)))`.
    """

    task: TaskView
    """The task after the events, with its activity and its background commands."""
    notifications: tuple[Notification, ...] = ()
    """Notifications that the events make for the submitter."""
    run: int = 0
    """Id of the event that started the actor which tells this; 0: the agent does, about a task without one."""
    reflects: bool = False
    """True if a reflection on the result runs or is due."""
    may_have_asked: bool = True
    """False for a task that has certainly asked no owner for anything. One that was ended may have been about to."""

    @property
    def ends(self) -> bool:
        """True if the task has ended just now. One that is over already makes no notification."""
        return self.task.is_over and bool(self.notifications)


@attrs.frozen(eq=False, repr=False)
class TaskActorEnded:
    """Data of TASK_UPDATED, for the agent: the actor of a task has ended. Behind everything that the actor has told itself.

    Example: `TaskActorEnded("t1", "", start.id)` for an actor that has done its work.
    """

    task_id: str
    """Id of the task."""
    crashed: str
    """Reason, "" if it ended by itself."""
    run: int
    """Id of the event that started it."""


# ------------------------------------------------------------------ the actor


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
    start: Event,
    number: int,
) -> None:
    """Run one task until it is over, or suspended. Cancelled: the running stage ends, with everything it has started.

    Events of a stage that was cancelled are not recorded, so the task is in its log as it was before the stage.

    fsm: the task; from now on this actor alone changes it. tool_slots: slots for tool calls of all tasks together; one is held
    for a single call. start: the event that starts the task and is on disk already, which is the
    cause of what follows. number: the task's, for what it tells.
    """
    async with trio.open_nursery() as nursery:
        commands = BackgroundCommands(nursery)
        stages = Stages(fsm, task_type, deps, tool_slots, commands)
        run = _TaskRun(fsm, deps, logs, stages, commands, nursery, start, start.id, number)
        commands.changed = run.tell_soon
        nursery.start_soon(run.run, nursery.cancel_scope)
        async for message in inbox:
            run.handle(message)
        nursery.cancel_scope.cancel()


def move_task(fsm: TaskFSM, event: Event) -> tuple[Sequence[Event], Sequence[Notification]]:
    """Move a task by an event that is on disk. Returns what is to be published of its new state, and its notification.

    For an event that changes the state of the task that is TASK_STATE_CHANGED. It is not recorded: the log says the same.
    An event that the task refuses is logged and changes nothing; a replay of the log refuses it too.
    """
    before, notified = fsm.state, fsm.context.notified
    try:
        after = fsm.transition(event)
    except InvalidTransition as error:
        _log.warning("dropped an event", task=fsm.task_id, problem=str(error))
        return (), ()
    notifications = (notification_of(fsm, event),) if fsm.context.notified > notified else ()
    if after is before:
        return (), notifications
    change: dict[str, Json] = {"fromState": before.value, "toState": after.value}
    kind, at = EventType.TASK_STATE_CHANGED, event.timestamp
    return (Event(kind, at, "task", event.task_id, change, parent_id=event.id),), notifications


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

    cancel: CancelStage | None = None
    """Cancel, once one was requested."""
    resume: ResumeTask | None = None
    """Resume that is not recorded yet."""
    suspend: SuspendAfterStage | None = None
    """Suspension that is not recorded yet."""
    is_stopping: bool = False
    """True if no new stage may begin, because the process stops. This one is for good."""
    arrived: trio.Event = attrs.field(factory=trio.Event)
    """Set when a request has come in; for a task that has nothing to do."""

    @property
    def stops_stage(self) -> bool:
        """True if a request cancels the running stage."""
        return self.cancel is not None or self.resume is not None


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
    """Logs, by which events get on disk and on the bus."""
    _stages: Stages
    """The work that each state asks for."""
    _commands: BackgroundCommands
    """Background commands of the task; they end with the actor."""
    _nursery: trio.Nursery
    """Nursery of the actor."""
    _cause: Event
    """Last recorded event of the task, the cause of the next."""
    _run: int
    """Id of the event that started this actor, by which the agent knows what it tells."""
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
    _recording: deque[Event] = attrs.field(factory=deque)
    """Events that are on their way to the disk, and back over the bus."""
    _moved: trio.Event = attrs.field(factory=trio.Event)
    """Set when the last of them has moved the task, or nothing more will be heard."""
    _changes: list[Event] = attrs.field(factory=list)
    """Events to publish with the next update: the new states of the task."""
    _notifications: list[Notification] = attrs.field(factory=list)
    """Notifications to publish with the next update."""
    _requests: _Requests = attrs.field(factory=_Requests)
    """Requests that wait."""
    _cancel_replies: list[tuple[Reply[EndedStage], EndedStage]] = attrs.field(factory=list)
    """Requests to answer when the running stage and the background commands have ended, with their answers."""
    _finish_replies: list[Reply[None]] = attrs.field(factory=list)
    """Requests to answer when nothing of the task runs and everything is on disk."""

    def __attrs_post_init__(self) -> None:
        self._seconds_left = self._deps.limits.now.timeout
        if self._fsm.is_over:  # a stop has prevented its reflection
            self._reflect_at = trio.current_time() + self._deps.reflect_after

    # ------------------------------------------------------------------ requests

    def handle(self, message: TaskMessage) -> None:
        """Take an event that moves the task, or store a request for the loop and cancel the stage if it requires that. Never waits."""
        match message:
            case Deliver(events):
                for event in events:
                    if self._recording and event is self._recording[0]:
                        self._move()
                return
            case CancelStage(reply):
                self._requests.cancel = message
                activity = self._activity or (REFLECTING if self._reflect_at < math.inf else "")
                self._cancel_replies.append((reply, EndedStage(activity, self._will_be_over)))
                self._commands.request_end()  # at the same time as the stage
                if self._scope is None:
                    self._nursery.start_soon(self._answer_cancel)
                else:  # answered when the stage has ended
                    self._scope.cancel()
            case SuspendAfterStage():
                self._requests.suspend = message
                self.tell_soon()
            case GoOn(reply):
                self._requests.suspend = None
                reply.send(not any(isinstance(event.data, TaskSuspended) for event in self._recording))
                self.tell_soon()
            case ResumeTask():
                self._requests.resume = message
                if self._scope is not None:
                    self._scope.cancel()
            case FinishStage(reply):
                self._requests.is_stopping = True
                self._moved.set()  # the agent hands over nothing more
                self._finish_replies.append(reply)
        self._requests.arrived.set()

    # ------------------------------------------------------------------ the loop

    async def run(self, actor_scope: trio.CancelScope) -> None:
        """Alternate between the stages until the task is over. Then cancel the scope of the actor: nothing is left to listen for."""
        if self._fsm.state is TaskState.IDLE:
            self._changes += move_task(self._fsm, self._cause)[0]
        while True:
            requested = self._requested_events()
            may_begin = not requested and not self._requests.is_stopping
            stage = self._next_stage() if may_begin else None
            self._activity = stage.activity if stage is not None else ""
            if stage is not None and self._fsm.is_over:
                self._reflect_at = math.inf  # this stage is the reflection
            await self._tell()
            if requested:
                await self._record(requested)
                self._answer_resume()
            elif stage is not None and self._has_request_to_record:
                continue  # a request came in while the task was published; it goes first
            elif stage is not None:
                await self._record(await self._run_stage(stage))
            elif self._needs_no_actor:
                break
            else:
                await self._wait_for_request()
        await self._commands.end_all()
        await self._answer_cancel()
        self._answer_finish()
        actor_scope.cancel()

    async def _tell(self) -> None:
        """Publish the task as it is now, behind its new states."""
        is_pausing = self._fsm.is_active and self._requests.suspend is not None
        view = task_view(self._fsm, self._activity, self._number, self._commands.names, pausing=is_pausing)
        reflects = self._fsm.is_over and (self._reflect_at < math.inf or self._activity == REFLECTING)
        may_have_asked = self._fsm.context.has_asked_owner or self._fsm.state is TaskState.FAILED
        update = TaskUpdate(view, tuple(self._notifications), self._run, reflects, may_have_asked)
        told = Event(EventType.TASK_UPDATED, view.updated_at, "task", view.task_id, data=update)
        events = (*self._changes, told)
        self._changes, self._notifications = [], []
        await self._deps.bus.tell(Emit(events))

    def tell_soon(self) -> None:
        """Publish the task beside the loop: its commands have changed, or it is to pause. That it rests is told by the loop alone."""
        if self._fsm.is_active:
            self._nursery.start_soon(self._tell)

    async def _answer_cancel(self) -> None:
        """Answer those who wait for a cancel, when no background command is left."""
        await self._commands.end_all()
        for reply, ended in self._cancel_replies:
            reply.send(ended)
        self._cancel_replies.clear()

    def _requested_events(self) -> list[TaskEventData]:
        """Return what a request asks to be recorded, [] if there is none or it comes too late."""
        requests, state = self._requests, self._fsm.state
        if requests.cancel is not None:
            self._reflect_at = math.inf  # a reflection that was cancelled does not start again
            if not self._fsm.is_over:
                self._cause = requests.cancel.cause or self._cause
                return [TaskFailed(requests.cancel.error, STOPPED)]
        if (resume := requests.resume) is not None:
            if self._fsm.can_transition(EventType.TASK_RESUMED):
                self._cause = resume.order.cause or self._cause
                return [resume.order.data(state, self._deps.clock())]
            resume.reply.fail(TaskError(f"task {self._fsm.task_id} is {state.value}"))
            requests.resume = None
        if requests.suspend is not None and self._fsm.is_active:
            self._cause = requests.suspend.cause or self._cause
            return [task_suspended(self._fsm.context, state, requests.suspend.reason)]
        return []

    def _answer_resume(self) -> None:
        """Answer a resume that is on disk, and forget the requests that were for the time before it."""
        resume = self._requests.resume
        if resume is not None and self._cause.type is EventType.TASK_RESUMED:
            resume.reply.send(None)
            self._requests.resume = self._requests.suspend = self._requests.cancel = None
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
        return self._fsm.is_over or any(isinstance(event.data, _ENDS) for event in self._recording)

    @property
    def _has_request_to_record(self) -> bool:
        """True if a request is to be recorded before the next stage begins."""
        return self._requests.stops_stage or (self._requests.suspend is not None and self._fsm.is_active)

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
        if is_thought and self._requests.cancel is not None:
            return []
        return happened[:1] if is_thought and self._requests.suspend is not None else happened

    # ------------------------------------------------------------------ events

    async def _record(self, happened: Sequence[TaskEventData]) -> None:
        """Write and publish what has happened as events. Returns when they have moved the task.

        Cancelled: the events are in the log or not, and if they are, perhaps not published: observers are not promised to see all.
        """
        if not happened:
            return
        if self._commands.names and any(isinstance(data, _ENDS_OF_COMMANDS) for data in happened):
            await self._commands.end_all()
        events = create_events(happened, self._fsm.task_id, "task", self._deps.clock(), cause=self._cause)
        self._cause = events[-1]
        self._recording, self._moved = deque(events), trio.Event()
        await self._logs.record(events)
        if not self._requests.is_stopping:
            await self._moved.wait()
        while self._recording:
            self._move()

    def _move(self) -> None:
        """Let the task take the next of the events that it has recorded."""
        event = self._recording.popleft()
        changes, notifications = move_task(self._fsm, event)
        self._changes += changes
        self._notifications += notifications
        if (
            event.type is EventType.TASK_COMPLETED
            and self._deps.memory is not None
            and should_reflect(self._fsm.context)
        ):
            self._reflect_at = trio.current_time() + self._deps.reflect_after
        if not self._recording:
            self._moved.set()
