"""Slots: which queued task runs next, starting its actor, suspending it, resuming it later, and ending it for certain.

A task passes through these methods in this order:

* `enqueue` puts it into the queue, with the event that starts it.
* `fill` takes the most urgent task out of the queue while there are free slots, and starts its actor.
* `take_update`, the reports of the actor, frees the slot when the task is suspended or over.
* `actor_ended` comes last, and recovers from the log what a crashed actor has recorded and not reported.

At most `tasks.max_active` tasks hold a slot. Suspended and finished tasks hold none, so a question that nobody answers for a week
blocks no other task; a reflection holds none either, since the result of its task is out already.

A resume goes to the actor of the task if there is one. Usually there is one only while a completed task reflects. Otherwise the
agent records it. In both cases `is_resuming` is set before anything is awaited: a second resume is refused, and a task that looks
finished is not treated as finished while its TASK_RESUMED is on the way to the disk.

An actor may crash after it has recorded an event and before it has reported it. So the log is replayed before a crashed task is
failed: if its result is in the log, the task is completed and its submitter receives the result; if it is suspended, it stays so.
Actors are not restarted by their pool: the log decides what becomes of the task.

Ending a task "for certain" means that the answer comes when nothing of it runs: model call, tool, and every process that a tool has
started. The order of the steps in `cancel` leaves no moment at which a task could start after all. It is marked as ending before
anything is awaited, so it gets no slot from now on. If its actor is just being started, that is awaited. Then the actor ends its
stage. That the task has failed is recorded afterwards, by its actor if there is one, else by the agent.

The answer waits until the failure is on disk, so that no crash behind the answer resumes the task. It waits for RECORD_WAIT at
most: a disk that refuses must not keep a person from stopping a task that does harm. If the process dies before the failure is
recorded after all, the task is still pending, and recovery treats it as an interrupted one.

A task whose last event is being written when it is cancelled is over: nothing of it runs, and its submitter will be told its
result. The answer is then that it is not running.

A stage ends only when everything that it has started has ended: Trio leaves a nursery when its last task is done, and tools end
their processes before they return. So a cancel may take as long as the slowest tool needs to end; there is no time limit,
since an answer that comes too early would be false.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import attrs
import trio

from actors import ActorError, Child, Crashed, Exit, Killed, Mailbox, Ref, Restart, Supervisor, watch
from pegasus.events import Event
from pegasus.formatting import describe_error, quote
from pegasus.observe import get_logger
from pegasus.outside import Outside
from pegasus.policy import OwnerMessage
from pegasus.storage import StorageError
from pegasus.tasks.agent.messages import StoppedTask, TaskAgentInput
from pegasus.tasks.agent.pausing import activity_of, check_pausable
from pegasus.tasks.agent.registry import TaskEntry
from pegasus.tasks.agent.state import TaskAgentState
from pegasus.tasks.core.context import task_resumed, task_suspended
from pegasus.tasks.core.fsm import FOR_PERSON, TaskFSM, is_interrupted
from pegasus.tasks.core.task_events import STOPPED, TaskFailed, TaskState
from pegasus.tasks.core.task_types import DEFAULT_TASK_TYPE, TaskType, apply_overrides
from pegasus.tasks.core.views import TaskError, TaskView, task_view
from pegasus.tasks.run.messages import (
    CancelStage,
    EndedStage,
    FinishStage,
    ResumeTask,
    SuspendAfterStage,
    TaskActorEnded,
    TaskMessage,
    TaskUpdate,
)
from pegasus.tasks.run.task import task_actor

SHUTDOWN: Final = 5.0
"""Seconds that the actor of a task has to end after a stop request; then it is killed."""
DRAIN: Final = 5.0
"""Seconds that running stages have to finish when the process stops. Those that need longer are cancelled."""
RECORD_WAIT: Final = 1.0
"""Seconds that the answer to a cancel waits for the disk."""
MAILBOX: Final = Mailbox(64)
"""Mailbox of a task: it receives requests of people only."""

_log = get_logger("tasks")


@attrs.define(eq=False, repr=False)
class TaskScheduler:
    """Gives slots to tasks and runs their actors, children of `pool`.

    Example: `await scheduler.enqueue(entry, created)`; the task runs as soon as a slot is free.
    """

    _state: TaskAgentState
    """Tasks in memory, and what all parts of the agent work with."""
    _pool: Supervisor
    """Supervisor of the actors of tasks."""
    _nursery: trio.Nursery
    """Runs one watching task for each actor."""
    _agent: Ref[TaskAgentInput]
    """Mailbox of the agent, for the reports of the actors and of their ends."""
    _tool_slots: trio.CapacityLimiter = attrs.field(init=False)
    """Slots for tool calls that the actors of all tasks share; one is held for a single call."""

    def __attrs_post_init__(self) -> None:
        self._tool_slots = trio.CapacityLimiter(self._state.deps.limits.now.max_tools)

    # ------------------------------------------------------------------ slots

    async def enqueue(self, entry: TaskEntry, start: Event) -> None:
        """Let a task wait for a slot. start: the event that starts it, which is on disk."""
        self._state.registry.enqueue(entry, start)
        if entry.pausing is not None:  # it was to pause, and had to wait for an answer first
            await self._suspend_waiting(entry)
        await self.fill()

    async def adjust(self) -> None:
        """Follow the limits, which have changed: start what may work now. Nothing that works is ended."""
        self._tool_slots.total_tokens = self._state.deps.limits.now.max_tools
        await self.fill()

    async def fill(self) -> None:
        """Start the tasks that wait, the most urgent first, as long as there are free slots."""
        registry = self._state.registry
        limits = self._state.deps.limits.now
        while registry.active < limits.max_active:
            has_room = registry.count_guests_at_work() < limits.guest_active
            if (entry := registry.dequeue(guests=has_room)) is None:
                break
            if entry.start is None or entry.fsm is None or entry.is_ending:
                continue
            if entry.pausing is not None:
                await self._suspend_waiting(entry)
            else:
                await self._start(entry, entry.fsm, entry.start)

    async def _start(self, entry: TaskEntry, fsm: TaskFSM, start: Event) -> None:
        """Give the task a slot and start its actor.

        The slot is taken before anything is awaited, so that two callers of `fill` never give the same one. While the actor is being
        started, `starting` lets a cancel wait for it: the actor has no address yet.
        """
        self._take_slot(entry)
        entry.fsm = entry.start = None
        entry.starting, entry.ended = trio.Event(), trio.Event()
        child: Child[TaskMessage] = Child(
            f"task:{fsm.task_id}",
            task_actor,
            fsm,
            self._type_of(fsm),
            self._state.deps,
            self._state.logs,
            self._tool_slots,
            self._agent,
            start,
            entry.view.number,
            restart=Restart.TEMPORARY,
            shutdown=SHUTDOWN,
            mailbox=MAILBOX,
        )
        try:
            entry.ref = await self._pool.start_child(child)
        finally:
            entry.starting.set()
            entry.starting = None
        self._nursery.start_soon(self._watch, fsm.task_id, entry.ref)

    def _take_slot(self, entry: TaskEntry) -> None:
        """Note that a task holds a slot from now on."""
        entry.holds_slot, entry.since = True, trio.current_time()

    def _type_of(self, fsm: TaskFSM) -> TaskType:
        """Return the type of a task with its overrides; one whose type was removed gets the default, which is built in."""
        types, context = self._state.deps.types, fsm.context
        return apply_overrides(types.get(context.task_type) or types[DEFAULT_TASK_TYPE], context.input_metadata)

    async def _watch(self, task_id: str, ref: Ref[TaskMessage]) -> None:
        """Report the end of an actor to the agent, through its mailbox: behind everything that the actor has reported itself."""
        down = await watch(ref)
        await self._agent.tell(TaskActorEnded(task_id, _crash_reason(down.exit)))

    # ------------------------------------------------------------------ reports of the actors

    async def take_update(self, report: TaskUpdate) -> None:
        """Take over what the actor of a task reports, and give its slot to another task if it needs it no more."""
        entry = self._state.registry.tasks[report.task.task_id]
        self._state.update(entry, report.task, report.notifications)
        if entry.view.is_over or entry.view.state is TaskState.SUSPENDED:
            await self._free(entry)
            return
        entry.is_resuming = False
        if not entry.holds_slot:  # resumed while it was reflecting
            self._take_slot(entry)

    async def actor_ended(self, report: TaskActorEnded) -> None:
        """Record in the entry that the actor has ended, and fail the task if the actor crashed.

        Waits for the disk, so it must not run in the loop of the agent.
        """
        entry = self._state.registry.tasks[report.task_id]
        entry.ref = None
        if report.crashed:
            async with entry.lock:
                await self._catch_up(entry)
                # One that rests has lost nothing: its suspension is in the log, and it was not told of only.
                if not entry.view.is_over and entry.view.state is not TaskState.SUSPENDED:
                    await self._fail(entry, f"the task crashed: {report.crashed}")
        entry.is_resuming = False
        entry.ended.set()
        await self._free(entry)

    async def _catch_up(self, entry: TaskEntry) -> None:
        """Take over the log of a task whose actor has crashed: it may have recorded events that it did not report."""
        try:
            found = await self._state.logs.replay(entry.task_id)
        except (StorageError, ActorError) as error:  # it stays pending, so the next start notifies its submitter
            _log.error("the log of a task cannot be read", task=entry.task_id, error=str(error))
            return
        if found.task is not None:
            entry.fsm = found.task
            self._state.update(
                entry, task_view(found.task, number=entry.view.number), found.notifications[entry.notified :]
            )

    async def _fail(self, entry: TaskEntry, error: str, reason: str = "") -> None:
        """Record TASK_FAILED. A log that cannot be read now is left to the next start. The caller holds the lock of the entry."""
        try:
            await self._state.record(entry, self._state.make_event(entry, TaskFailed(error, reason)))
        except (TaskError, StorageError, ActorError) as problem:
            _log.error("the failure of a task was not recorded", task=entry.task_id, error=str(problem))

    async def stop(self, entry: TaskEntry, error: str) -> None:
        """Fail a task that a person has ended, and that has no actor, or whose actor is ending; unless it is over by then.

        error: reason for people. Returns when the failure is on disk and the slot is free. Raises nothing: a log that cannot be
        read is reported in the log of the daemon.
        """
        if entry.ref is not None:
            await entry.ended.wait()
        async with entry.lock:
            if not entry.view.is_over:
                await self._fail(entry, error, STOPPED)
        await self._free(entry)

    async def _free(self, entry: TaskEntry) -> None:
        """Give the slot of a task to another one, if it holds one."""
        if entry.holds_slot:
            entry.holds_slot = False
            await self.fill()

    # ------------------------------------------------------------------ suspend, resume

    async def suspend(self, name: str) -> TaskView:
        """Pause a task before its next step, for a person. Returns it when it is paused, or as `Suspend` says. Raises TaskError."""
        entry = await self._state.find(await self._state.resolve(name))
        check_pausable(entry)
        pausing = entry.pausing = trio.Event()
        self._state.deps.observe(entry.shown, False)
        if entry.starting is not None:
            await entry.starting.wait()
        if entry.ref is not None:
            with suppress(ActorError):  # it has crashed, and the task fails
                await entry.ref.tell(SuspendAfterStage(FOR_PERSON))
        elif entry.start is not None:
            await self._suspend_waiting(entry)
        await pausing.wait()
        return entry.view

    async def _suspend_waiting(self, entry: TaskEntry) -> None:
        """Record that a task which waits for a slot is paused. Raises StorageError, ActorError; then it waits as before."""
        self._state.registry.withdraw(entry)
        start, entry.start = entry.start, None
        try:
            async with entry.lock:
                fsm = entry.fsm
                if entry.is_ending or fsm is None:
                    return
                if fsm.state is TaskState.IDLE and start is not None:
                    fsm.transition(start)  # its TASK_CREATED, which a replay applies, too
                data = task_suspended(fsm.context, fsm.state, FOR_PERSON)
                await self._state.record(entry, self._state.make_event(entry, data))
        except BaseException:
            if start is not None and not entry.is_ending:
                self._state.registry.enqueue(entry, start)
            raise

    async def continue_paused(self, name: str) -> TaskView:
        """Let a task go on that a person has paused. Raises TaskError, StorageError."""
        entry = await self._state.find(await self._state.resolve(name))
        if entry.pausing is not None:
            entry.pausing.set()
            entry.pausing = None
            self._state.deps.observe(entry.view, False)
            if entry.ref is not None:
                with suppress(ActorError):
                    await entry.ref.tell(SuspendAfterStage(""))
        elif entry.view.waits_for == FOR_PERSON:
            await self.resume(entry.task_id, "")
        else:
            raise TaskError(f"task {entry.view.number or entry.task_id} is not paused: it {activity_of(entry.view)}")
        return entry.view

    async def resume(
        self,
        name: str,
        text: str,
        key: str = "",
        cause: Event | None = None,
        outside: tuple[Outside, ...] = (),
        owner_messages: tuple[OwnerMessage, ...] = (),
    ) -> None:
        """Resume a task. Returns when TASK_RESUMED is on disk, since the caller then confirms it to a person.

        cause: the event from outside that asks for it, if there is one. outside: labels for the text. owner_messages:
        that it comes of. Raises TaskError, StorageError.
        """
        entry = await self._state.find(await self._state.resolve(name))
        if entry.is_resuming:
            raise TaskError(f"task {name} is being resumed; only suspended and completed tasks can be resumed")
        _check_resumable(entry, text)
        entry.is_resuming = True
        try:
            if entry.ref is not None:
                try:
                    await entry.ref.ask(ResumeTask, text, key, cause, outside, owner_messages)
                    return  # `is_resuming` ends with the actor's report, which is on its way
                except ActorError:  # it has ended before it answered
                    await entry.ended.wait()
            await self._resume_by_agent(entry, text, key, cause, outside, owner_messages)
        except BaseException:
            entry.is_resuming = False
            raise
        entry.is_resuming = False

    async def _resume_by_agent(
        self,
        entry: TaskEntry,
        text: str,
        key: str,
        cause: Event | None,
        outside: tuple[Outside, ...],
        owner_messages: tuple[OwnerMessage, ...],
    ) -> None:
        """Record the resume of a task without an actor, and let it wait for a slot. Raises TaskError, StorageError."""
        async with entry.lock:
            _check_resumable(entry, text)  # its actor may have crashed meanwhile
            data = task_resumed(text, entry.view.state, self._state.deps.clock(), key, outside, owner_messages)
            event = self._state.make_event(entry, data, cause)
            await self._state.record(entry, event)
        await self.enqueue(entry, event)

    # ------------------------------------------------------------------ cancel, drain

    async def cancel(self, name: str, by: str) -> StoppedTask:
        """End a task. Returns when nothing of it runs and that it was stopped is on disk, or is not within RECORD_WAIT.

        by: name for the error of the task. Raises TaskError if the task is not running, or is being cancelled already. For a task
        that is over, a reflection that runs or is due is ended and the task stays completed.
        """
        entry = self._state.registry.tasks.get(await self._state.resolve(name))
        if entry is not None and entry.is_ending:
            raise TaskError(f"task {quote(name)} is not running: it is being stopped already")
        if entry is None or (entry.is_over and entry.ref is None):
            raise TaskError(f"task {quote(name)} is not running: it has ended")
        what = entry.view.description or entry.view.input_text
        seconds = trio.current_time() - entry.since if entry.holds_slot else 0.0
        was_over, was_waiting, error = entry.is_over, not entry.holds_slot, f"stopped by {by}"
        entry.is_ending = not was_over
        self._state.registry.withdraw(entry)
        if entry.starting is not None:
            await entry.starting.wait()
        ended: EndedStage | None = None
        if entry.ref is not None:
            with suppress(ActorError):
                ended = await entry.ref.ask(CancelStage, error)
        if ended is not None and ended.is_over:  # its report may be on its way only
            was_over, entry.is_ending = True, False
        if was_over and (ended is None or not ended.activity):
            raise TaskError(f"task {quote(name)} is not running")
        if not was_over:
            await self._record_stop(entry, error, by_actor=ended is not None)
            if entry.view.is_over and entry.view.error != error:  # its actor had ended before it could take the request
                entry.is_ending = False
                raise TaskError(f"task {quote(name)} is not running")
        doing = "waiting" if was_waiting and not was_over else ended.activity if ended is not None else ""
        return StoppedTask(entry.task_id, what, doing, seconds, entry.view.number)

    async def _record_stop(self, entry: TaskEntry, error: str, *, by_actor: bool) -> None:
        """Return when the failure of a task that was stopped is on disk, or after RECORD_WAIT; it is then recorded later.

        by_actor: the actor records it and ends. Else there is none, or it has ended without having taken the request.
        """
        recorded = trio.Event()

        async def record() -> None:
            """Wait for the record of the actor, or make it. Goes on if the caller does not wait any longer."""
            if by_actor:
                await entry.ended.wait()
            else:
                await self.stop(entry, error)
            recorded.set()

        self._nursery.start_soon(record)
        with trio.move_on_after(RECORD_WAIT):
            await recorded.wait()

    async def cancel_all(
        self, by: str, channel: tuple[str, str] | None, *, guests_only: bool = False
    ) -> tuple[StoppedTask, ...]:
        """End all tasks and reflections, or those of a channel (type, channelId), at the same time.

        guests_only: spare the tasks that an owner has asked for.
        """
        stopped: list[StoppedTask] = []

        async def cancel(task_id: str) -> None:
            """End one task. One that has ended meanwhile, or without a reflection, is none that was stopped."""
            with suppress(TaskError):
                stopped.append(await self.cancel(task_id, by))

        async with trio.open_nursery() as nursery:
            for entry in self._state.registry:
                if guests_only and not entry.is_guests:
                    continue
                has_work = (
                    not entry.is_over or entry.ref is not None
                )  # the actor of a task that is over may reflect yet
                if has_work and (channel is None or entry.is_of(*channel)):
                    nursery.start_soon(cancel, entry.task_id)
        return tuple(sorted(stopped, key=lambda each: each.task_id))

    async def drain(self) -> None:
        """Let running stages finish and what was requested be recorded, for at most DRAIN seconds.

        Whatever is left is still pending and is taken up at the next start.
        """

        async def finish(entry: TaskEntry) -> None:
            """Wait until a task has recorded the stage that runs. An actor that has ended has nothing more to record."""
            if entry.ref is not None:
                with suppress(ActorError):
                    await entry.ref.ask(FinishStage)
            async with entry.lock:  # the agent may be recording an event of it
                pass

        with trio.move_on_after(DRAIN):
            async with trio.open_nursery() as nursery:
                for entry in self._state.registry:
                    nursery.start_soon(finish, entry)


def _check_resumable(entry: TaskEntry, text: str) -> None:
    """Raise TaskError, which says why, if the task cannot be resumed."""
    state = entry.view.state
    is_resting = state in (TaskState.SUSPENDED, TaskState.COMPLETED) or is_interrupted(state, entry.view.error)
    name = entry.view.number or entry.task_id
    if entry.is_ending or not is_resting:
        raise TaskError(f"task {name} is {state.value}; only suspended and completed tasks can be resumed")
    if state is TaskState.COMPLETED and not text.strip():
        raise TaskError(f"task {name} is completed; say what it is to do now")


def _crash_reason(exit: Exit) -> str:
    """Return the reason for which an actor crashed or was killed, "" if it ended by itself."""
    match exit:
        case Crashed(error):
            return describe_error(error)
        case Killed(reason):
            return reason
        case _:
            return ""
