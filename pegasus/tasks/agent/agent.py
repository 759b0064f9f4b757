"""The agent: it accepts work, creates tasks, and routes requests and events. It runs no task itself.

It hears the events of all tasks on the bus. For each it finds the task by its id and hands the event over, to its actor if there
is one (`TaskScheduler.hand_over`). So tasks are moved by the bus, and by nothing else. What the agent knows of a task, it hears
there, too (TASK_UPDATED), as everybody does. An event that is not on disk yet is a request of somebody else: TASK_SUSPENDED,
TASK_RESUMED and TASK_CANCELLED move their task as the state machine says, by events that have the request as their cause.

Tasks are actors in a pool below the agent, so they show in the tree of actors and stop side by side. The agent keeps a view of each
for others, and the requests that wait for its end. Requests that wait for the disk or for a task run in tasks of their own,
so that no request delays another one.

A crash of the agent ends its tasks with it; its next run treats them as a start of the process does.

The order at the start matters. The subscription to the bus comes first, so that no event is missed from then on. Recovery comes
before the first request is handled: a `Submit` with the key of an unfinished task must find that task and not create it again. Events
of tasks that ended with a crash of the agent may come later; nobody waits for them (`TaskEntry.run`), and the logs say the same.

At the stop, running stages may finish, and then everything that still waits is cancelled. A request that was
not answered by then fails for its sender; what it has recorded is taken up at the next start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import attrs
import trio

from actors import ActorError, Inbox, Ref, Reply, open_pool
from pegasus.events import Deliver, Emit, Event, EventType, Subscribe
from pegasus.formatting import quote
from pegasus.messages import Json
from pegasus.observe import get_logger
from pegasus.policy import OWNER_MESSAGES
from pegasus.storage import Changed, StorageError
from pegasus.tasks.agent.messages import (
    Cancel,
    CancelAll,
    Continue,
    GetContext,
    GetEvents,
    GetTask,
    LatestTasks,
    LimitsChanged,
    ListPending,
    ListTasks,
    Notify,
    Resume,
    ResumeApproved,
    StoppedTask,
    Submit,
    Suspend,
    TaskAgentMessage,
    Wait,
    task_id_of,
)
from pegasus.tasks.agent.recovery import recover_tasks
from pegasus.tasks.agent.scheduler import TaskScheduler
from pegasus.tasks.agent.state import WAITING_OF_HOOK, TaskAgentState, TaskEntry, TaskNotifier, TaskRegistry
from pegasus.tasks.core.fsm import TaskContext, TaskFSM
from pegasus.tasks.core.task_events import EVENT_DATA, TaskCreated, json_object
from pegasus.tasks.core.task_states import FOR_PERSON, TaskError
from pegasus.tasks.core.task_types import DEFAULT_TASK_TYPE, with_overrides, without_overrides
from pegasus.tasks.core.views import TaskView, task_view
from pegasus.tasks.log.format import create_event
from pegasus.tasks.log.task_logs import TaskLogs
from pegasus.tasks.run.deps import TaskDeps
from pegasus.tasks.run.task import ResumeOrder, TaskActorEnded, TaskUpdate

if TYPE_CHECKING:
    from pegasus.tasks.agent.elsewhere import TasksElsewhere

OUTSIDE_EVENTS: Final = frozenset({EventType.MESSAGE_RECEIVED, EventType.WEBHOOK_TRIGGERED, EventType.SCHEDULE_FIRED})
"""Events from outside that create a task or, with a task id, answer one that waits."""
REQUESTS: Final = frozenset({EventType.TASK_SUSPENDED, EventType.TASK_RESUMED, EventType.TASK_CANCELLED})
"""Events by which somebody else moves a task, if they are not on disk."""
_KINDS: Final = {
    EventType.MESSAGE_RECEIVED: "message",
    EventType.WEBHOOK_TRIGGERED: "hook",
    EventType.SCHEDULE_FIRED: "job",
}
"""Kind of the cause of a task that an event from outside begins."""
LATELY_OVER: Final = 20
"""Newest tasks that are read for a list of what happened lately."""
HEARD: Final = OUTSIDE_EVENTS | REQUESTS | frozenset(EVENT_DATA) | {EventType.TASK_UPDATED}
"""Everything that the agent hears on the bus."""

_log = get_logger("tasks")
_T = TypeVar("_T")


async def task_agent(inbox: Inbox[TaskAgentMessage], deps: TaskDeps, logs: TaskLogs, listener: Ref[Notify]) -> None:
    """Run the task system.

    deps: everything that tasks work with. logs: those of all tasks. listener: receives the notifications of all tasks, and is asked
    again until it has taken each one. The agent is up when recovery has registered the pending tasks; their events may be
    recorded later.

    Stopped: stages that run may finish for a while (`TaskScheduler.drain`); whatever is left is taken up at the next start.
    Cancelled or crashed: all tasks end at once, with everything they have started, and stay pending.

    Example: `Child("agent", task_agent, deps, TaskLogs(persister, bus), listener)`.
    """
    async with open_pool(name="tasks") as pool, trio.open_nursery() as nursery:
        registry = TaskRegistry()
        state = TaskAgentState(deps, logs, TaskNotifier(listener), registry)
        scheduler = TaskScheduler(state, pool, nursery)
        elsewhere: TasksElsewhere | None = None
        if deps.is_shared and deps.journal is not None:
            from pegasus.tasks.agent.elsewhere import TasksElsewhere

            elsewhere = TasksElsewhere(state, scheduler, deps.journal)
        agent = _Agent(state, scheduler, nursery, elsewhere)
        await deps.bus.ask(Subscribe, inbox.ref, HEARD, True)
        nursery.start_soon(state.notifier.run, state.told)
        await recover_tasks(state, scheduler, nursery, await logs.pending())
        if elsewhere is not None:
            nursery.start_soon(elsewhere.run, nursery)
        await deps.bus.tell(Emit((Event(EventType.SYSTEM_STARTED, deps.clock(), "agent"),)))
        inbox.started()
        async for message in inbox:
            await agent.handle(message)
        state.stop_hearing()
        await deps.bus.tell(Emit((Event(EventType.SYSTEM_SHUTTING_DOWN, deps.clock(), "agent"),)))
        await scheduler.drain()
        nursery.cancel_scope.cancel()


@attrs.frozen(eq=False, repr=False)
class _Agent:
    """Routes each message to the part that it is for, and creates tasks."""

    _state: TaskAgentState
    """Tasks in memory, and what all parts of the agent work with."""
    _scheduler: TaskScheduler
    """Gives slots to tasks and runs their actors."""
    _nursery: trio.Nursery
    """Runs the work that requests cause, so that the loop of the agent never waits for a disk or a task."""
    _elsewhere: TasksElsewhere | None
    """The way to tasks of other nodes; None: there are none."""

    async def handle(self, message: TaskAgentMessage) -> None:
        """Handle one message. Work that waits is started and not waited for."""
        start, scheduler = self._answer_with, self._scheduler
        match message:
            case Deliver(events):
                await self._hear(events)
            case LimitsChanged():
                self._nursery.start_soon(scheduler.adjust)
            case Submit(reply):
                start(reply, partial(self._submit, message))
            case GetTask(reply, task_id):
                start(reply, partial(self._view, task_id))
            case ListTasks(reply, date):
                start(reply, partial(self._views, date))
            case GetEvents(reply, task_id):
                start(reply, partial(self._events, task_id))
            case ListPending(reply):
                start(reply, self._pending)
            case LatestTasks(reply, count, since):
                start(reply, partial(self._latest, count, since))
            case GetContext(reply, task_id):
                start(reply, partial(self._context, task_id))
            case Wait(reply, task_id):
                self._nursery.start_soon(self._wait, reply, task_id)
            case ResumeApproved(reply, task_id, key):
                start(reply, partial(self._resume_approved, task_id, key))
            case CancelAll(reply, by, channel, guests_only):
                start(reply, partial(self._cancel_all, by, channel, guests_only=guests_only))
            case Cancel(reply, task_id, by):
                start(reply, partial(self._cancel, task_id, by))
            case Suspend(reply, task_id):
                start(reply, partial(self._pause, task_id, "suspend"))
            case Continue(reply, task_id):
                start(reply, partial(self._pause, task_id, "continue"))
            case Resume(reply):
                start(reply, partial(self._resume, message))

    async def _hear(self, events: Sequence[Event]) -> None:
        """Hand events that are on disk over to their tasks, take over what is told of tasks, and take what asks for something."""
        written: list[Event] = []
        for event in events:
            if event.line:
                written.append(event)
            elif isinstance(event.data, TaskUpdate | TaskActorEnded):
                await self._scheduler.take_update(event.data)
            elif event.type in OUTSIDE_EVENTS and event.task_id is None:
                if "handledBy" not in event.payload:
                    self._nursery.start_soon(self._take_event, event)
            elif event.type in OUTSIDE_EVENTS | REQUESTS:
                self._nursery.start_soon(self._take_event, event)
        if written:
            await self._scheduler.hand_over(written)

    def _answer_with(self, reply: Reply[_T], work: Callable[[], Awaitable[_T]]) -> None:
        """Run the work of a request in a Trio task of its own, and answer with its result or its error.

        Only expected errors become answers. Any other is a defect and crashes the agent, whose next run recovers all tasks.
        """

        async def answer() -> None:
            """Do the work and answer. Whoever has asked may have gone meanwhile, which costs only the answer."""
            try:
                result = await work()
            except (TaskError, StorageError, ActorError) as error:
                reply.fail(error)
            else:
                reply.send(result)

        self._nursery.start_soon(answer)

    # ------------------------------------------------------------------ questions
    # A view of a task in memory is as new as the last report of its actor. A view from a log is what a replay gives; the two agree
    # as soon as the report has arrived.

    async def _view(self, name: str) -> TaskView | None:
        """Return a task, None if there is none of this id. Raises TaskError for a number that no task has.

        Memory is checked again after the log: the task may have been created meanwhile, and the caller would submit it again.
        """
        task_id = await self._state.resolve(name)
        await self._drop_old()
        tasks = self._state.registry.tasks
        stored = None if task_id in tasks else await self._state.logs.replay(task_id)
        if (entry := tasks.get(task_id)) is not None:
            return entry.view
        return task_view(stored.task, number=stored.number) if stored is not None and stored.task is not None else None

    async def _views(self, date: str | None) -> tuple[TaskView, ...]:
        """Return the tasks in memory that are on disk, or all tasks of a day (UTC, YYYY-MM-DD).

        Memory keeps no finished tasks where nodes share them, so the newest are read.
        """
        registry = self._state.registry
        others = await self._find_elsewhere()
        if date is None:
            present = (*(entry.view for entry in registry if entry.created.is_set()), *others)
            if self._elsewhere is None:
                return present
            known = {view.task_id for view in present}
            over = [view for view in await self._latest(LATELY_OVER, 0) if view.task_id not in known]
            return (*over, *present)
        stored = await self._state.logs.views_of_day(date)
        current = {entry.task_id: entry.view for entry in registry}
        return tuple(current.get(view.task_id, view) for view in stored)

    async def _pending(self) -> tuple[TaskView, ...]:
        """Return the tasks of the pending list. One whose log cannot be read is not in memory, and is left out."""
        entries = [self._state.registry.tasks.get(pending.task_id) for pending in await self._state.logs.pending()]
        return (*(entry.view for entry in entries if entry is not None), *await self._find_elsewhere())

    async def _latest(self, count: int, since: float) -> tuple[TaskView, ...]:
        """Return the newest tasks that have changed since then, oldest first. Memory is checked again behind the logs."""
        registry = self._state.registry
        await self._drop_old()
        stored = await self._state.logs.latest(count, {entry.task_id for entry in registry})
        entries = {task_id: registry.tasks.get(task_id) for task_id in stored}
        views = [entry.view if (entry := entries[task_id]) is not None else view for task_id, view in stored.items()]
        return tuple(view for view in views if view is not None and view.updated_at >= since)

    async def _context(self, name: str) -> TaskContext | None:
        """Return everything that a task knows, None if there is no such task. Raises TaskError as `_view` does."""
        fsm = await self._state.logs.load(await self._state.resolve(name))
        return fsm.context if fsm is not None else None

    async def _events(self, name: str) -> tuple[Event, ...]:
        """Return the events in the log of a task. Raises TaskError as `_view` does, StorageError."""
        return await self._state.logs.read_events(await self._state.resolve(name))

    async def _wait(self, reply: Reply[TaskView], name: str) -> None:
        """Answer when the task is over.

        The reply is kept in the entry of the task, so no Trio task waits. A crash of the agent fails it for the asker.
        """
        try:
            task_id = await self._state.resolve(name)
            if self._elsewhere is not None:
                await self._elsewhere.until_here(task_id)
            entry = await self._state.find(task_id)
        except (TaskError, StorageError, ActorError) as error:
            reply.fail(error)
            return
        if entry.is_over:
            reply.send(entry.view)
        else:
            entry.waiting.append(reply)

    # ------------------------------------------------------------------ tasks of other nodes, too

    async def _find_elsewhere(self) -> Sequence[TaskView]:
        """Return the pending tasks of other nodes. Views in memory are as new as the logs then."""
        return await self._elsewhere.views() if self._elsewhere is not None else ()

    async def _drop_old(self) -> None:
        """Let views in memory be as new as the logs."""
        if self._elsewhere is not None:
            await self._elsewhere.pending()

    async def _cancel(self, name: str, by: str) -> StoppedTask:
        """Do what `Cancel` asks. Raises TaskError, StorageError, ActorError."""
        if self._elsewhere is None:
            return await self._scheduler.cancel(name, by)
        stopped = (await self._elsewhere.ask(await self._state.resolve(name), "cancel", by)).stopped
        if stopped is None:
            raise TaskError("the node of the task has not said what it was doing")
        return stopped

    async def _cancel_all(
        self, by: str, channel: tuple[str, str] | None, *, guests_only: bool
    ) -> tuple[StoppedTask, ...]:
        """Do what `CancelAll` asks."""
        stopped = list(await self._scheduler.cancel_all(by, channel, guests_only=guests_only))

        async def cancel(task_id: str) -> None:
            with suppress(TaskError):  # it has ended meanwhile
                stopped.append(await self._cancel(task_id, by))

        async with trio.open_nursery() as nursery:
            for view in await self._find_elsewhere():
                task = TaskEntry(view)
                if (channel is None or task.is_of(*channel)) and (task.is_from_guest or not guests_only):
                    nursery.start_soon(cancel, task.task_id)
        return tuple(sorted(stopped, key=lambda each: each.task_id))

    async def _pause(self, name: str, action: str) -> TaskView:
        """Do what `Suspend` or `Continue` asks. Raises TaskError, StorageError, ActorError."""
        if self._elsewhere is None:
            scheduler = self._scheduler
            return await (scheduler.suspend(name) if action == "suspend" else scheduler.continue_paused(name))
        task_id = await self._state.resolve(name)
        await self._elsewhere.ask(task_id, action)
        view = await self._view(task_id)
        if view is None:
            raise TaskError(f"there is no task {quote(name)}")
        return view

    async def _resume(self, order: Resume) -> None:
        """Do what `Resume` asks. Raises TaskError, StorageError, ActorError."""
        given = ResumeOrder(order.input, order.key, None, order.outside, order.owner_messages)
        if self._elsewhere is None:
            await self._scheduler.resume(order.task_id, given)
        else:
            await self._elsewhere.ask(await self._state.resolve(order.task_id), "resume", order=given)

    async def _resume_approved(self, task_id: str, key: str) -> bool:
        """Do what `ResumeApproved` asks. False if the task is another node's."""
        if self._elsewhere is not None and task_id in await self._elsewhere.pending():
            return False
        await self._scheduler.resume_approved(task_id, key)
        return True

    # ------------------------------------------------------------------ creating tasks

    async def _submit(self, request: Submit) -> str:
        """Create a task and return its id when TASK_CREATED is on disk. Raises TaskError.

        A key gives a fixed task id, so a task that exists already is found by its id: in memory, or in the logs. Memory is checked
        again after the logs were read, since another request with the same key may have created the task in between. From that
        look until the task is registered nothing is awaited.
        """
        if not request.text.strip():
            raise TaskError("input is empty: say what is to be done")
        self._check_type(request)
        metadata = json_object(with_overrides(request.metadata, request.model, request.tools))
        task_id = task_id_of(request.key) if request.key else self._state.deps.new_task_id()
        if await self._is_only_on_disk(request, task_id):
            return task_id
        if request.reply.abandoned:  # e.g. by /stop, which would not find a task that is created behind it
            raise TaskError("the request was abandoned before the task was created")
        payload: dict[str, Json] = {"text": request.text, "handledBy": "agent"}
        if request.cause:
            payload["cause"] = request.cause
        received = Event(EventType.MESSAGE_RECEIVED, self._state.deps.clock(), request.source, payload=payload)
        data = TaskCreated(
            request.description, request.text, request.source, metadata, request.task_type, request.cause
        )
        entry = self._state.registry.tasks.get(task_id)  # another request with this key may have come meanwhile
        if entry is None:
            await self._create(received, data, task_id, request.priority, announce=True)
        else:
            await entry.created.wait()
        return task_id

    async def _is_only_on_disk(self, request: Submit, task_id: str) -> bool:
        """Return whether the task of this key is on disk and not in memory. `_submit` looks for a task in memory itself."""
        if not request.key or self._state.registry.tasks.get(task_id):
            return False
        return await self._state.logs.load(task_id) is not None

    def _check_type(self, request: Submit) -> None:
        """Raise TaskError for an unknown type, and for an override that names an unknown model.

        A task with a bad model would fail at its first thought; the submitter can still choose another model now.
        """
        deps = self._state.deps
        if request.task_type not in deps.types:
            known = ", ".join(deps.types)
            raise TaskError(f"there is no type {quote(request.task_type)} of task; there are: {known}")
        if request.model:
            try:
                deps.model_for(request.model)
            except ValueError as error:
                raise TaskError(str(error)) from error

    def _check_room(self, entry: TaskEntry) -> None:
        """Raise TaskError if too many tasks wait, or if a guest has as many as a guest may have.

        Guests share half of the queue, and their tasks do not count for owners: nobody else can fill an owner's. Each webhook has room
        of its own, which is that of a service and not of a person.
        """
        registry, limits = self._state.registry, self._state.deps.limits.now
        if entry.hook:
            if registry.count_waiting(guests=entry.is_from_guest, hook=entry.hook) >= WAITING_OF_HOOK:
                raise TaskError(
                    f"{WAITING_OF_HOOK} tasks of this webhook are waiting already, which is the most there may be"
                )
            return
        is_from_guest = entry.is_from_guest
        if is_from_guest and limits.guest_tasks and registry.count_of_guest(entry.sender) >= limits.guest_tasks:
            raise TaskError(
                f"this person has {limits.guest_tasks} tasks that have not ended, which is the most a guest may have "
                "(limits.guest_tasks); wait until one has ended, or end one"
            )
        room = limits.max_queued // 2 if is_from_guest else limits.max_queued
        waiting = registry.count_waiting(guests=is_from_guest)
        if waiting >= room + max(0, limits.max_active - registry.active):
            whose = " of guests" if is_from_guest else ""
            raise TaskError(
                f"{room} tasks{whose} are waiting already, which is the most there may be (tasks.max_queued)"
            )

    async def _create(
        self, cause: Event, data: TaskCreated, task_id: str, priority: int | None, *, announce: bool = False
    ) -> None:
        """Create a task and let it wait for a slot. Returns when it is on disk. Raises TaskError if too many tasks wait.

        cause: event that led to the task. priority: smaller goes first, None = the usual. announce: publish `cause` first. The task
        is in memory before anything is awaited, so a /stop finds it. One that was stopped meanwhile gets no slot.
        """
        registry = self._state.registry
        now = self._state.deps.clock()
        created = create_event(data, task_id, "agent", now, cause, priority)
        fsm = TaskFSM.from_event(created)
        entry = TaskEntry(task_view(fsm), fsm)
        self._check_room(entry)
        registry.register(entry)
        async with entry.lock:
            if announce:
                await self._state.deps.bus.tell(Emit((cause,)))
            try:
                numbers = await self._state.record_all(((entry, created),))
            except Changed:  # another node has begun the task of this key, and works on it
                registry.drop(entry)
                entry.created.set()
                return
            entry.view = attrs.evolve(entry.view, number=numbers.get(task_id, 0))
        entry.created.set()
        await self._state.deps.bus.tell(Emit((self._state.updated(entry),)))
        if not entry.is_ending:
            await self._scheduler.enqueue(created, entry)

    async def _take_event(self, event: Event) -> None:
        """Do what an event that is not on disk asks of a task, or create one. Events have no reply, so problems are logged."""
        payload = event.payload
        text = payload.get("newInput" if event.type is EventType.TASK_RESUMED else "text")
        try:
            if event.type is EventType.TASK_SUSPENDED and event.task_id is not None:
                reason = str(payload.get("suspendReason") or f"asked for by {event.source}")
                await self._scheduler.take_suspension(event.task_id, reason, event)
            elif event.type is EventType.TASK_CANCELLED and event.task_id is not None:
                await self._scheduler.cancel(event.task_id, str(payload.get("by") or event.source), event)
            elif event.task_id is not None:
                await self._check_not_paused(event.task_id)
                order = ResumeOrder(text if isinstance(text, str) else "", cause=event)
                await self._scheduler.resume(event.task_id, order)
            elif isinstance(text, str) and text.strip():
                data = self._data_of(event, text)
                await self._create(event, data, self._state.deps.new_task_id(), None)
            else:
                _log.warning("dropped an event without a text", type=event.type.name, source=event.source)
        except (TaskError, StorageError, ActorError) as error:
            _log.warning(
                "dropped an event", type=event.type.name, task=event.task_id, source=event.source, problem=str(error)
            )

    async def _check_not_paused(self, task_id: str) -> None:
        """Raise TaskError for a task that a person has paused: no event lets it go on."""
        view = await self._view(task_id)
        if view is not None and view.waits_for == FOR_PERSON:
            raise TaskError(f"task {view.number or task_id} is paused")

    def _data_of(self, event: Event, text: str) -> TaskCreated:
        """Return the data of TASK_CREATED for an event from outside. An unknown type becomes the default; overrides are dropped."""
        task_type, metadata = event.payload.get("taskType"), event.payload.get("metadata")
        if isinstance(metadata, dict):  # no program may claim that an owner has typed something
            metadata = {key: value for key, value in metadata.items() if key != OWNER_MESSAGES}
        return TaskCreated(
            description=str(event.payload.get("description") or ""),
            input_text=text,
            source=event.source,
            input_metadata=json_object(without_overrides(metadata)) if isinstance(metadata, dict) else {},
            task_type=task_type
            if isinstance(task_type, str) and self._state.deps.types.get(task_type)
            else DEFAULT_TASK_TYPE,
            cause=str(event.payload.get("cause") or f"{_KINDS[event.type]} {event.source}"),
        )
