"""Slots: which queued task runs next, starting its actor, suspending it, resuming it later, and ending it for certain.

A task passes through these methods in this order:

* `enqueue` puts it into the queue, with the event that starts it.
* `fill` takes the most urgent task out of the queue while there are free slots, and starts its actor.
* `hand_over` gives the actor the events of its task, which move it.
* `take_update`, what the actor tells on the bus, frees the slot when the task is suspended or over.
* `actor_ended` comes last, and recovers from the log what a crashed actor has recorded and not told.

At most `tasks.max_active` tasks hold a slot. Suspended and finished tasks hold none, so a question that nobody answers for a week
blocks no other task; a reflection holds none either, since the result of its task is out already.

A resume goes to the actor of the task if there is one. Usually there is one only while a completed task reflects. Otherwise the
agent records it. In both cases `is_resuming` is set before anything is awaited: a second resume is refused, and a task that looks
finished is not treated as finished while its TASK_RESUMED is on the way to the disk.

An actor may crash after it has recorded an event and before that has moved it. So the log is replayed before a crashed task is
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

from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Final

import attrs
import trio

from actors import ActorError, Child, Crashed, Exit, Killed, Mailbox, Ref, Restart, Supervisor, watch
from pegasus.events import Deliver, Emit, Event, EventType
from pegasus.formatting import describe_error
from pegasus.observe import get_logger
from pegasus.storage import StorageError
from pegasus.tasks.agent.messages import StoppedTask
from pegasus.tasks.agent.refusals import (
    activity_of,
    check_pausable,
    check_resting,
    check_resumable,
    check_running,
    not_running,
)
from pegasus.tasks.agent.state import TaskAgentState, TaskEntry
from pegasus.tasks.core.fsm import TaskFSM, task_suspended
from pegasus.tasks.core.task_events import TaskFailed
from pegasus.tasks.core.task_states import FOR_APPROVAL, FOR_PERSON, REFLECTING, STOPPED, TaskError, TaskState
from pegasus.tasks.core.task_types import DEFAULT_TASK_TYPE, TaskType, apply_overrides
from pegasus.tasks.core.views import TaskView, task_view
from pegasus.tasks.run.task import (
    CancelStage,
    EndedStage,
    FinishStage,
    GoOn,
    ResumeOrder,
    ResumeTask,
    SuspendAfterStage,
    TaskActorEnded,
    TaskMessage,
    TaskUpdate,
    task_actor,
)

SHUTDOWN: Final = 5.0
"""Seconds that the actor of a task has to end after a stop request; then it is killed."""
DRAIN: Final = 5.0
"""Seconds that running stages have to finish when the process stops. Those that need longer are cancelled."""
RECORD_WAIT: Final = 1.0
"""Seconds that the answer to a cancel waits for the disk."""
MAILBOX: Final = Mailbox(64)
"""Mailbox of a task: requests of people, and the events of its last step."""

_log = get_logger("tasks")


@attrs.define(eq=False, repr=False)
class TaskScheduler:
    """Gives slots to tasks and runs their actors, children of `pool`.

    Example: `await scheduler.enqueue(created, entry)`; the task runs as soon as a slot is free.
    """

    _state: TaskAgentState
    """Tasks in memory, and what all parts of the agent work with."""
    _pool: Supervisor
    """Supervisor of the actors of tasks."""
    _nursery: trio.Nursery
    """Runs one watching task for each actor."""
    _tool_slots: trio.CapacityLimiter = attrs.field(init=False)
    """Slots for tool calls that the actors of all tasks share; one is held for a single call."""

    def __attrs_post_init__(self) -> None:
        self._tool_slots = trio.CapacityLimiter(self._state.deps.limits.now.max_tools)

    # ------------------------------------------------------------------ slots

    async def enqueue(self, start: Event, *entries: TaskEntry) -> None:
        """Let tasks wait for a slot. start: the event that starts them, which is on disk.

        One that was to pause, and had to wait for an answer or for the start of the process, is suspended. That is never left to
        `fill`: it waits until the event is heard, and the agent, which hears it, waits for `fill`.
        """
        for entry in entries:
            self._state.registry.enqueue(entry, start)
            if entry.pausing is not None:
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
            # Before anything is awaited, so that two callers never give the same slot.
            entry.take_slot()
            await self.start(entry, entry.fsm, entry.start)

    async def start(self, entry: TaskEntry, fsm: TaskFSM, start: Event) -> None:
        """Start the actor of a task: of one that has a slot, or of one that is over and has a reflection left.

        While it is being started, `starting` lets a cancel wait for it: the actor has no address yet.
        """
        entry.fsm, entry.start, entry.run = None, None, start.id
        entry.reflects = fsm.is_over
        entry.starting, entry.ended = trio.Event(), trio.Event()
        child: Child[TaskMessage] = Child(
            f"task:{fsm.task_id}",
            task_actor,
            fsm,
            self._type_of(fsm),
            self._state.deps,
            self._state.logs,
            self._tool_slots,
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
        self._nursery.start_soon(self._watch, fsm.task_id, entry.ref, start.id)

    def _type_of(self, fsm: TaskFSM) -> TaskType:
        """Return the type of a task with its overrides; one whose type was removed gets the default, which is built in."""
        types, context = self._state.deps.types, fsm.context
        return apply_overrides(types.get(context.task_type) or types[DEFAULT_TASK_TYPE], context.input_metadata)

    async def _watch(self, task_id: str, ref: Ref[TaskMessage], run: int) -> None:
        """Tell of the end of an actor on the bus: behind everything that the actor has told itself."""
        down = await watch(ref)
        ended = TaskActorEnded(task_id, _crash_reason(down.exit), run)
        event = Event(EventType.TASK_UPDATED, self._state.deps.clock(), "agent", task_id, data=ended)
        await self._state.deps.bus.tell(Emit((event,)))

    # ------------------------------------------------------------------ what is heard on the bus

    async def hand_over(self, events: Sequence[Event]) -> None:
        """Give events that are on disk to whoever moves their task: its actor, else the agent.

        An actor takes its messages at once, whatever it is doing, so this does not wait for a stage.
        """
        without_actor: list[Event] = []
        for task_id, some in groupby(events, attrgetter("task_id")):
            entry = self._state.registry.tasks.get(task_id)
            if entry is not None and entry.starting is not None:
                await entry.starting.wait()
            if entry is None or entry.ref is None:
                without_actor += some
                continue
            with suppress(ActorError):  # it has crashed; then the log moves the task
                await entry.ref.tell(Deliver(tuple(some)))
        if without_actor:
            await self._state.hear(without_actor)

    async def take_update(self, told: TaskUpdate | TaskActorEnded) -> None:
        """Take over what the actor of a task tells. Other updates are old, or the agent's own."""
        task_id = told.task.task_id if isinstance(told, TaskUpdate) else told.task_id
        entry = self._state.registry.tasks.get(task_id)
        if entry is None or not told.run or told.run != entry.run:
            return
        if isinstance(told, TaskActorEnded):
            self._nursery.start_soon(self._actor_ended, entry, told.crashed)
            return
        entry.reflects = told.reflects
        self._state.update(entry, told.task, told.notifications)
        if entry.view.is_over or entry.view.state is TaskState.SUSPENDED:
            await self._state.settle(entry)
            await self._free(entry)
            return
        entry.is_resuming = False
        if not entry.holds_slot:  # resumed while it was reflecting
            entry.take_slot()

    async def _actor_ended(self, entry: TaskEntry, crashed: str) -> None:
        """Record in the entry that the actor has ended, and fail the task if it crashed. Waits for the disk."""
        entry.ref, entry.run, entry.reflects = None, 0, False
        if crashed:
            async with entry.lock:
                await self._catch_up(entry)
                # One that rests has lost nothing: its suspension is in the log, and it was not told of only.
                if not entry.view.is_over and entry.view.state is not TaskState.SUSPENDED:
                    await self._fail(entry, TaskFailed(f"the task crashed: {crashed}"))
        entry.is_resuming = False
        entry.ended.set()
        await self._state.settle(entry)
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
            told = found.notifications[entry.notified :]
            self._state.update(entry, task_view(found.task, number=entry.view.number), told)
            await self._state.deps.bus.tell(Emit((self._state.updated(entry, told),)))

    async def _fail(self, entry: TaskEntry, failed: TaskFailed, cause: Event | None = None) -> None:
        """Record TASK_FAILED. A log that cannot be read now is left to the next start. The caller holds the lock of the entry."""
        try:
            await self._state.record(entry, self._state.make_event(entry, failed, cause))
        except (TaskError, StorageError, ActorError) as problem:
            _log.error("the failure of a task was not recorded", task=entry.task_id, error=str(problem))

    async def _stop(self, entry: TaskEntry, error: str, cause: Event | None) -> None:
        """Fail a task that a person has ended, and that has no actor, or whose actor is ending; unless it is over by then.

        error: reason for people. Returns when the failure is on disk and the slot is free. Raises nothing: a log that cannot be
        read is reported in the log of the daemon.
        """
        if entry.ref is not None:
            await entry.ended.wait()
        async with entry.lock:
            if not entry.view.is_over:
                await self._fail(entry, TaskFailed(error, STOPPED), cause)
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
        await self._suspend(entry, FOR_PERSON, None)
        await pausing.wait()
        return entry.view

    async def take_suspension(self, task_id: str, reason: str, cause: Event) -> None:
        """Suspend a task before its next step, as an event on the bus asks. Raises TaskError, StorageError."""
        entry = await self._state.find(task_id)
        check_pausable(entry)
        await self._suspend(entry, reason, cause)

    async def _suspend(self, entry: TaskEntry, reason: str, cause: Event | None) -> None:
        """Let the actor of a task suspend it, or do it for one that waits for a slot."""
        if entry.starting is not None:
            await entry.starting.wait()
        if entry.ref is not None:
            with suppress(ActorError):  # it has crashed, and the task fails
                await entry.ref.tell(SuspendAfterStage(reason, cause))
        elif entry.start is not None:
            await self._suspend_waiting(entry, reason, cause)

    async def _suspend_waiting(self, entry: TaskEntry, reason: str = FOR_PERSON, cause: Event | None = None) -> None:
        """Record that a task which waits for a slot is suspended."""
        self._state.registry.withdraw(entry)
        start, entry.start = entry.start, None
        async with entry.lock:
            fsm = entry.fsm
            if entry.is_ending or fsm is None:
                return
            if fsm.state is TaskState.IDLE and start is not None:
                fsm.transition(start)  # its TASK_CREATED, which a replay applies, too
            data = task_suspended(fsm.context, fsm.state, reason)
            await self._state.record(entry, self._state.make_event(entry, data, cause))

    async def continue_paused(self, name: str) -> TaskView:
        """Let a task go on that a person has paused. Raises TaskError, StorageError."""
        entry = await self._state.find(await self._state.resolve(name))
        pausing = entry.pausing
        if pausing is not None and not await self._take_back(entry):
            await pausing.wait()
        if entry.pausing is not None:
            entry.pausing.set()
            entry.pausing = None
        elif entry.view.waits_for == FOR_PERSON:
            await self.resume(entry.task_id, ResumeOrder(""))
        elif pausing is None:
            raise TaskError(f"task {entry.view.number or entry.task_id} is not paused: it {activity_of(entry.view)}")
        return entry.view

    async def _take_back(self, entry: TaskEntry) -> bool:
        """Take a pause back that has not begun. Return False if that it begins is on its way to the disk."""
        if entry.starting is not None:
            await entry.starting.wait()
        if entry.ref is not None:
            with suppress(ActorError):
                return await entry.ref.ask(GoOn)
        return entry.view.state is TaskState.SUSPENDED  # it waits for an answer, and would pause behind that

    async def resume(self, name: str, order: ResumeOrder) -> None:
        """Resume a task. Returns when TASK_RESUMED is on disk, since the caller then confirms it to a person.

        Raises TaskError, StorageError.
        """
        entry = await self._state.find(await self._state.resolve(name))
        check_resumable(entry, order.text, name)
        entry.is_resuming = True
        try:
            if entry.ref is not None:
                try:
                    await entry.ref.ask(ResumeTask, order)
                    return  # `is_resuming` ends with what the actor tells, which is on its way
                except ActorError:  # it has ended before it answered
                    await entry.ended.wait()
            await self._resume_by_agent(entry, order)
        except BaseException:
            entry.is_resuming = False
            raise
        entry.is_resuming = False

    async def resume_approved(self, name: str, key: str) -> None:
        """Resume a task that waits for an approval, or will in a moment: its suspension is waited for. Raises StorageError.

        Returns also if there is nothing to resume: the task is over, or waits for something else.
        """
        entry = await self._state.find(await self._state.resolve(name))
        while not entry.is_over:
            if entry.view.state is TaskState.SUSPENDED and not entry.is_resuming:
                if entry.view.waits_for == FOR_APPROVAL:
                    with suppress(TaskError):  # it is being stopped
                        await self.resume(entry.task_id, ResumeOrder("", key))
                return
            await entry.rests.wait()

    async def _resume_by_agent(self, entry: TaskEntry, order: ResumeOrder) -> None:
        """Record the resume of a task without an actor, and let it wait for a slot. Raises TaskError, StorageError."""
        async with entry.lock:
            check_resting(entry, order.text)  # its actor may have crashed meanwhile
            event = self._state.make_event(entry, order.data(entry.view.state, self._state.deps.clock()), order.cause)
            await self._state.record(entry, event)
        await self.enqueue(event, entry)

    # ------------------------------------------------------------------ cancel, drain

    async def cancel(self, name: str, by: str, cause: Event | None = None) -> StoppedTask:
        """End a task. Returns when nothing of it runs and that it was stopped is on disk, or is not within RECORD_WAIT.

        by: name for the error of the task. cause: the event on the bus that asks for it, if there is one. Raises TaskError if the task
        is not running, or is being cancelled already. For a task that is over, a reflection that runs or is due is ended and the task
        stays completed.
        """
        entry = await self._state.find(await self._state.resolve(name))
        check_running(entry, name)
        what = entry.view.description or entry.view.input_text
        seconds = trio.current_time() - entry.since if entry.holds_slot else 0.0
        was_over, was_waiting, error = entry.is_over, not entry.holds_slot, f"stopped by {by}"
        entry.is_ending = not was_over
        self._state.registry.withdraw(entry)
        ended = await self._end_stage(entry, error, cause)
        if was_over and entry.ref is None and entry.reflects:  # recovery has not begun it
            entry.reflects, ended = False, EndedStage(REFLECTING, is_over=True)
            await self._state.settle(entry)
        if was_over or (ended is not None and ended.is_over):  # what it has told of its end may be on its way only
            entry.is_ending = False
            if ended is None or not ended.activity:
                raise not_running(name)
            return StoppedTask(entry.task_id, what, ended.activity, seconds, entry.view.number)
        await self._record_stop(entry, error, cause, by_actor=ended is not None)
        if entry.view.is_over and entry.view.error != error:  # its actor had ended before it could take the request
            entry.is_ending = False
            raise not_running(name)
        doing = "waiting" if was_waiting else ended.activity if ended is not None else ""
        return StoppedTask(entry.task_id, what, doing, seconds, entry.view.number)

    async def _end_stage(self, entry: TaskEntry, error: str, cause: Event | None) -> EndedStage | None:
        """Let the actor of a task end its stage. Returns what was ended, None if there is no actor or it has ended itself."""
        if entry.starting is not None:
            await entry.starting.wait()
        if entry.ref is not None:
            with suppress(ActorError):
                return await entry.ref.ask(CancelStage, error, cause)
        return None

    async def _record_stop(self, entry: TaskEntry, error: str, cause: Event | None, *, by_actor: bool) -> None:
        """Return when the failure of a task that was stopped is on disk, or after RECORD_WAIT; it is then recorded later.

        by_actor: the actor records it and ends. Else there is none, or it has ended without having taken the request.
        """
        recorded = trio.Event()

        async def record() -> None:
            """Wait for the record of the actor, or make it. Goes on if the caller does not wait any longer."""
            if by_actor:
                while not entry.view.is_over:
                    await entry.rests.wait()
            else:
                await self._stop(entry, error, cause)
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
                if guests_only and not entry.is_from_guest:
                    continue
                # The actor of a task that is over may reflect yet, and recovery may begin one that does.
                has_work = not entry.is_over or entry.ref is not None or entry.reflects
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


def _crash_reason(exit: Exit) -> str:
    """Return the reason for which an actor crashed or was killed, "" if it ended by itself."""
    match exit:
        case Crashed(error):
            return describe_error(error)
        case Killed(reason):
            return reason
        case _:
            return ""
