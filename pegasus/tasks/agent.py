"""The orchestrator of the task system (seed 001): receives an event, finds its task, hands it over. It holds no task's state.

Tasks are children of a pool that this actor opens, so they show below it in the tree and stop side by side. What it keeps of
each is a view for others, and who waits for it. Submitters hear of their tasks through the listener (`Notify`), in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias, TypeVar

import attrs
import trio

from actors import (
    ActorError,
    Child,
    Crashed,
    Exit,
    Inbox,
    Killed,
    Mailbox,
    Ref,
    Reply,
    Restart,
    Supervisor,
    open_pool,
    watch,
)
from pegasus.events import Deliver, Emit, Event, EventType, Subscribe
from pegasus.events.bus import is_recorded
from pegasus.messages import Json, Metadata
from pegasus.observe import get_logger
from pegasus.storage.messages import StorageError
from pegasus.tasks import payloads
from pegasus.tasks.applying import RESTARTED
from pegasus.tasks.archive import Archive
from pegasus.tasks.context import TaskContext, TaskState
from pegasus.tasks.fsm import InvalidTransition, TaskFSM
from pegasus.tasks.messages import (
    AgentMessage,
    Cancel,
    CancelAll,
    GetContext,
    GetTask,
    ListTasks,
    Notification,
    Notify,
    Resume,
    Stopped,
    Submit,
    Suspend,
    TaskError,
    TaskView,
    Wait,
    task_id_of,
)
from pegasus.tasks.ports import Ports
from pegasus.tasks.recovery import Action, Drop, GoOn, Tell, Write, plan_recovery
from pegasus.tasks.task import Begin, Doing, Drain, Halt, Handle, Hold, Moved, Permits, TaskMessage, task
from pegasus.tasks.types import DEFAULT
from pegasus.tasks.views import notification, view_of

_log = get_logger("agent")

EXTERNAL: Final = frozenset({EventType.MESSAGE_RECEIVED, EventType.WEBHOOK_TRIGGERED, EventType.SCHEDULE_FIRED})
"""Events that make a task, or (with a task id) are for one that waits (X16)."""
TASK_EVENTS: Final = frozenset(
    {
        EventType.TASK_CREATED,
        EventType.TASK_SUSPENDED,
        EventType.TASK_RESUMED,
        EventType.REASON_DONE,
        EventType.STEP_COMPLETED,
        EventType.TOOL_CALL_COMPLETED,
        EventType.TOOL_CALL_FAILED,
        EventType.NEED_MORE_INFO,
        EventType.TASK_NOTIFY,
        EventType.TASK_COMPLETED,
        EventType.TASK_FAILED,
    }
)
"""Events that drive a task or are told to its submitter. Those that only record (REFLECTION_COMPLETE …) are not among them."""
REMEMBERED: Final = 200
"""Finished tasks whose views are kept in memory; older ones are read from their logs."""
SHUTDOWN: Final = 5.0
"""Seconds a task has to end when it is told to stop, and its stage to finish when the process stops."""
ROOMY: Final = Mailbox(4096)
"""A task hears of each of its calls, and a model may make many at once; a full mailbox would hold up the agent."""
ASK_AGAIN: Final = 1.0
"""Seconds until a listener that could not be reached is told again."""

_ENDS = frozenset({EventType.TASK_COMPLETED, EventType.TASK_FAILED})
_SPENT = frozenset({TaskState.SUSPENDED, TaskState.COMPLETED, TaskState.FAILED})
_T = TypeVar("_T")


@attrs.frozen(eq=False)
class _Ended:
    """The actor of a task has ended. crashed: why, if it did not end by itself."""

    task_id: str
    crashed: str


Inward: TypeAlias = AgentMessage | Moved | Doing | _Ended


@attrs.define(eq=False)
class _Entry:
    """A task that is in memory. fsm: while no actor has it. ref: of its actor, while one runs.

    begin: the event that an actor was to begin with and has not confirmed. working: it holds one of the places.
    owed: events of a recovery that are on their way to it.
    """

    view: TaskView
    fsm: TaskFSM | None = None
    ref: Ref[TaskMessage] | None = None
    notified: int = 0
    created: bool = False
    working: bool = False
    ending: bool = False
    resuming: bool = False
    since: float = 0.0
    owed: int = 0
    begin: Event | None = None
    known: trio.Event = attrs.field(factory=trio.Event)
    waiting: list[Reply[TaskView]] = attrs.field(factory=list)

    @property
    def is_done(self) -> bool:
        """Nothing more comes of it."""
        return self.view.state is TaskState.FAILED or (
            self.view.state is TaskState.COMPLETED and self.view.result is not None
        )


async def agent(inbox: Inbox[Inward], ports: Ports, archive: Archive, listener: Ref[Notify]) -> None:
    """Run the task system. Told to stop, it lets what runs finish for a while (trap T24); what is left is for the next start."""
    async with open_pool(name="tasks") as pool, trio.open_nursery() as nursery:
        one = _Agent(ports, archive, listener, pool, nursery, inbox.ref)
        await ports.bus.ask(Subscribe, inbox.ref, EXTERNAL | TASK_EVENTS, True)
        kept = _left_over(inbox)
        nursery.start_soon(one.tell_listener)
        await one.recover()
        await ports.bus.tell(Emit(ports.events.create(EventType.SYSTEM_STARTED, "agent")))
        inbox.started()
        for message in kept:
            await one.handle(message)
        async for message in inbox:
            await one.handle(message)
        await ports.bus.tell(Emit(ports.events.create(EventType.SYSTEM_SHUTTING_DOWN, "agent")))
        await one.drain()
        nursery.cancel_scope.cancel()


def _left_over(inbox: Inbox[Inward]) -> list[Inward]:
    """What the mailbox kept over a restart of the agent, without what is in the logs and read from there."""
    kept: list[Inward] = []
    with suppress(trio.WouldBlock, trio.EndOfChannel):
        while True:
            message = inbox.receive_nowait()
            if not isinstance(message, Moved | Doing | _Ended) and not (
                isinstance(message, Deliver) and is_recorded(message.event)
            ):
                kept.append(message)
    return kept


class _Agent:
    """The bookkeeping, and one method for each thing that can be said to it."""

    def __init__(
        self,
        ports: Ports,
        archive: Archive,
        listener: Ref[Notify],
        pool: Supervisor,
        nursery: trio.Nursery,
        me: Ref[Inward],
    ) -> None:
        self._ports = ports
        self._archive = archive
        self._listener = listener
        self._pool = pool
        self._nursery = nursery
        self._me = me
        self._limits = ports.limits
        self._tasks: dict[str, _Entry] = {}
        self._queue: deque[_Entry] = deque()
        self._done: deque[str] = deque()
        calls, tools = trio.Semaphore(self._limits.max_calls), trio.Semaphore(self._limits.max_tools)
        self._permits = Permits(calls, tools, me.tell)
        self._to_tell, self._news = trio.open_memory_channel[tuple[Notification, bool]](1_000_000)

    async def handle(self, message: Inward) -> None:
        """One message. What takes long is done beside, so that nothing waits for it."""
        match message:
            case Deliver(event):
                await self._event(event)
            case Moved():
                await self._moved(message)
            case Doing(task_id, what):
                if (entry := self._tasks.get(task_id)) is not None:
                    entry.view = attrs.evolve(entry.view, doing=what)
            case _Ended(task_id, crashed):
                await self._actor_ended(task_id, crashed)
            case Submit(reply):
                self._nursery.start_soon(self._answer, reply, partial(self._submit, message))
            case GetTask(reply, task_id):
                self._nursery.start_soon(self._answer, reply, partial(self._get, task_id))
            case ListTasks(reply, date):
                self._nursery.start_soon(self._answer, reply, partial(self._list, date))
            case GetContext(reply, task_id):
                self._nursery.start_soon(self._answer, reply, partial(self._context, task_id))
            case Wait(reply, task_id):
                self._nursery.start_soon(self._wait, reply, task_id)
            case Cancel(reply, task_id, by):
                self._nursery.start_soon(self._answer, reply, partial(self._cancel, task_id, by))
            case CancelAll(reply, by, channel):
                self._nursery.start_soon(self._answer, reply, partial(self._cancel_all, by, channel))
            case Suspend(reply, task_id, reason):
                self._nursery.start_soon(self._answer, reply, partial(self._suspend, task_id, reason))
            case Resume(reply, task_id, text):
                self._nursery.start_soon(self._answer, reply, partial(self._resume, task_id, text))

    async def _answer(self, reply: Reply[_T], work: Callable[[], Awaitable[_T]]) -> None:
        try:
            result = await work()
        except (TaskError, StorageError, ActorError) as error:
            reply.fail(error)
        else:
            reply.send(result)

    async def _emit(self, event: Event) -> None:
        await self._ports.bus.tell(Emit(event))

    # ------------------------------------------------------------------ new tasks

    async def _submit(self, request: Submit) -> str:
        """Answered when TASK_CREATED has come back from the bus, for then it is on disk."""
        if not request.text.strip():
            raise TaskError("input is empty: say what is to be done")
        if self._ports.kit.types.get(request.task_type) is None:
            known = ", ".join(self._ports.kit.types.names())
            raise TaskError(f"there is no type {request.task_type!r} of task; there are: {known}")
        task_id = task_id_of(request.key) if request.key else self._ports.events.new_id()
        entry = self._tasks.get(task_id)
        if entry is None and request.key and await self._archive.exists(task_id):
            return task_id
        entry = self._tasks.get(task_id)  # another one with this key may have come meanwhile
        if entry is None:
            received = self._ports.events.create(
                EventType.MESSAGE_RECEIVED, request.source, {"text": request.text, "handledBy": "agent"}
            )
            payload = payloads.created(
                request.text,
                description=request.description,
                source=request.source,
                metadata=request.metadata,
                task_type=request.task_type,
            )
            entry = await self._create(received, payload, task_id, request.priority, announce=True)
        if not entry.created:
            await entry.known.wait()
        return task_id

    async def _create(
        self, parent: Event, payload: dict[str, Json], task_id: str, priority: int | None, *, announce: bool = False
    ) -> _Entry:
        """A task of this event, which is emitted first if it is to be announced. It is known before anything is awaited."""
        if len(self._queue) >= self._limits.max_queued and self._active() >= self._limits.max_active:
            raise TaskError(
                f"{len(self._queue)} tasks are waiting already, which is the most there may be (tasks.max_queued)"
            )
        event = self._ports.events.derive(
            parent, EventType.TASK_CREATED, payload, source="agent", task_id=task_id, priority=priority
        )
        fsm = TaskFSM.from_event(event)
        entry = self._tasks[task_id] = _Entry(view_of(fsm), fsm)
        if announce:
            await self._emit(parent)
        await self._emit(event)
        return entry

    async def _external(self, event: Event) -> None:
        """A message, webhook or schedule: for a task that waits, for somebody else, or a new task (X16)."""
        text = event.payload.get("text")
        if event.task_id is not None:
            try:
                await self._resume(event.task_id, text if isinstance(text, str) else "")
            except (TaskError, StorageError, ActorError) as error:
                _log.warning("dropped a message for a task", task=event.task_id, problem=str(error))
            return
        if "handledBy" in event.payload:
            return
        if not isinstance(text, str) or not text.strip():
            _log.warning("dropped an event without a text", type=event.type.name, source=event.source)
            return
        kind, metadata = event.payload.get("taskType"), event.payload.get("metadata")
        payload = payloads.created(
            text,
            description=str(event.payload.get("description") or ""),
            source=event.source,
            metadata=metadata if isinstance(metadata, dict) else None,
            task_type=kind if isinstance(kind, str) and self._ports.kit.types.get(kind) else DEFAULT,
        )
        try:
            await self._create(event, payload, self._ports.events.new_id(), None)
        except TaskError as error:
            _log.warning("refused a task", source=event.source, problem=str(error))

    # ------------------------------------------------------------------ events

    async def _event(self, event: Event) -> None:
        if event.type in EXTERNAL:
            self._nursery.start_soon(self._external, event)
            return
        entry = self._tasks.get(event.task_id or "")
        if entry is None:
            _log.warning("dropped an event of an unknown task", task=event.task_id, type=event.type.name)
        elif event.type is EventType.TASK_CREATED:
            entry.created = True
            entry.known.set()
            entry.begin = event
            self._queue.append(entry)
            await self._fill_places()
        elif event.type is EventType.TASK_RESUMED:
            entry.resuming = entry.ending = False
            await self._go_on_after_resume(entry, event)
        elif entry.ref is not None:
            await entry.ref.tell(Handle(event))
        else:
            await self._move_here(entry, event)

    async def _move_here(self, entry: _Entry, event: Event) -> None:
        """The transition of a task that has no actor: it waits, is suspended, or its actor has crashed."""
        fsm = entry.fsm
        if fsm is None:  # the event is in the log, so what that tells is the task behind it
            with suppress(StorageError):
                fsm = await self._archive.load(entry.view.task_id)
            if fsm is None:
                return
        else:
            entry.owed = max(0, entry.owed - 1)
            try:
                fsm.transition(event)
            except InvalidTransition as error:
                _log.warning("dropped an event", task=fsm.task_id, problem=str(error))
                return
        await self._moved(Moved(view_of(fsm), fsm.context.notified, event))

    async def _moved(self, moved: Moved) -> None:
        """A task is somewhere else now: tell who should know, and let another one have its place."""
        entry = self._tasks[moved.task.task_id]
        entry.view, entry.notified = moved.task, moved.notified
        if entry.begin is not None and entry.begin.id == moved.trigger.id:
            entry.begin = None
        told = notification(moved.task, moved.notified, moved.trigger)
        over = moved.trigger.type in _ENDS
        if told is not None:
            self._to_tell.send_nowait((told, over))
        if over:
            self._finish(entry)
        if moved.task.state in _SPENT and entry.working:
            entry.working = False
            await self._fill_places()

    def _finish(self, entry: _Entry) -> None:
        for reply in entry.waiting:
            reply.send(entry.view)
        entry.waiting.clear()
        entry.fsm = None
        self._done.append(entry.view.task_id)
        while len(self._done) > REMEMBERED:
            oldest = self._tasks.get(task_id := self._done.popleft())
            if oldest is not None and oldest.is_done and oldest.ref is None and task_id not in self._done:
                del self._tasks[task_id]

    # ------------------------------------------------------------------ places

    def _active(self) -> int:
        return sum(entry.working for entry in self._tasks.values())

    async def _fill_places(self) -> None:
        """Start what waits, the most urgent first, as long as there is room."""
        while self._queue and self._active() < self._limits.max_active:
            entry = min(self._queue, key=lambda waiting: waiting.fsm.priority if waiting.fsm else 0)
            self._queue.remove(entry)
            if entry.fsm is None or entry.begin is None or entry.ending:
                continue
            entry.working, entry.since = True, trio.current_time()
            await self._start(entry, entry.fsm, entry.begin)

    async def _start(self, entry: _Entry, fsm: TaskFSM, begin: Event) -> None:
        task_type = self._ports.kit.types.get(fsm.context.task_type) or self._ports.kit.types.get(DEFAULT)
        if task_type is None:
            raise TaskError(f"the type {DEFAULT!r} is missing")
        child: Child[TaskMessage] = Child(
            f"task:{fsm.task_id}",
            task,
            fsm,
            task_type,
            self._ports,
            self._permits,
            restart=Restart.TEMPORARY,
            shutdown=SHUTDOWN,
            mailbox=ROOMY,
        )
        entry.fsm = None
        ref = entry.ref = await self._pool.start_child(child)
        self._nursery.start_soon(self._watch, fsm.task_id, ref)
        awaited, entry.owed = entry.owed, 0
        await ref.tell(Handle(begin) if fsm.state is TaskState.IDLE else Begin(begin, awaited))

    async def _watch(self, task_id: str, ref: Ref[TaskMessage]) -> None:
        down = await watch(ref)
        crashed = _why_crashed(down.exit)
        await self._me.tell(_Ended(task_id, crashed))

    async def _actor_ended(self, task_id: str, crashed: str) -> None:
        entry = self._tasks[task_id]
        entry.ref = None
        if entry.begin is not None and not crashed:  # it had ended before it heard of it
            await self._go_on_after_resume(entry, entry.begin)
        elif crashed and not entry.is_done and not entry.ending:
            await self._fail(entry, f"the task crashed: {crashed}")

    async def _fail(self, entry: _Entry, error: str) -> None:
        entry.ending = True
        make = self._ports.events.create
        await self._emit(make(EventType.TASK_FAILED, "agent", payloads.failed(error), task_id=entry.view.task_id))

    # ------------------------------------------------------------------ resume and suspend

    async def _resume(self, task_id: str, text: str) -> None:
        """Answered once TASK_RESUMED is on its way to the disk; nothing can refuse it any more."""
        entry = self._tasks.get(task_id) or await self._recall(task_id)
        state = entry.view.state
        restarted = state is TaskState.FAILED and entry.view.error == RESTARTED
        if entry.resuming or not (state in (TaskState.SUSPENDED, TaskState.COMPLETED) or restarted):
            how = "is being resumed" if entry.resuming else f"is {state.value}"
            raise TaskError(f"task {task_id} {how}; only suspended and completed tasks can be resumed")
        if state is TaskState.COMPLETED and not text.strip():
            raise TaskError(f"task {task_id} is completed; say what it is to do now")
        entry.resuming = True
        payload = payloads.resumed(text, state, self._ports.clock())
        make = self._ports.events.create
        await self._emit(make(EventType.TASK_RESUMED, "agent", payload, task_id=task_id))

    async def _recall(self, task_id: str) -> _Entry:
        """A task that is on disk only."""
        fsm = await self._archive.load(task_id)
        if fsm is None:
            raise TaskError(f"there is no task {task_id!r}")
        return self._tasks.setdefault(task_id, _Entry(view_of(fsm), notified=fsm.context.notified, created=True))

    async def _go_on_after_resume(self, entry: _Entry, event: Event) -> None:
        """The log says REASONING now, or where it was suspended; an actor goes on from there."""
        entry.begin = event
        if entry.ref is not None:
            entry.working = True
            await entry.ref.tell(Handle(event))
            return
        fsm = None
        with suppress(StorageError):
            fsm = await self._archive.load(entry.view.task_id)
        if fsm is None:
            _log.error("the log of a task cannot be read", task=entry.view.task_id)
            return
        entry.fsm, entry.view = fsm, view_of(fsm)
        self._queue.append(entry)
        await self._fill_places()

    async def _suspend(self, task_id: str, reason: str) -> None:
        entry = self._tasks.get(task_id)
        if entry is None or entry.ref is None or not entry.working:
            raise TaskError(f"task {task_id!r} is not at work")
        await entry.ref.tell(Hold(reason))

    # ------------------------------------------------------------------ ending tasks

    async def _cancel(self, task_id: str, by: str) -> Stopped:
        """End it for certain; answered when nothing of it runs. That it was stopped is written down behind that."""
        entry = self._tasks.get(task_id)
        if entry is None or (entry.is_done and entry.ref is None) or entry.ending:
            raise TaskError(f"task {task_id!r} is not running")
        what = entry.view.description or entry.view.input_text
        seconds = trio.current_time() - entry.since if entry.working else 0.0
        unfinished = not entry.is_done
        doing = "waiting" if unfinished and not entry.working else ""
        entry.ending = unfinished
        if entry in self._queue:
            self._queue.remove(entry)
        if entry.ref is not None:
            with suppress(ActorError):  # it has ended meanwhile, which is all that was wanted
                doing = await entry.ref.ask(Halt)
        if unfinished:
            await self._fail(entry, f"stopped by {by}")
        elif not doing:
            raise TaskError(f"task {task_id!r} is not running")
        return Stopped(task_id, what, doing, seconds)

    async def _cancel_all(self, by: str, channel: tuple[str, str] | None) -> tuple[Stopped, ...]:
        """All at the same time: the slowest decides."""
        stopped: list[Stopped] = []

        async def one(task_id: str) -> None:
            with suppress(TaskError):
                stopped.append(await self._cancel(task_id, by))

        async with trio.open_nursery() as nursery:
            for task_id, entry in self._tasks.items():
                if not entry.is_done and (channel is None or _channel_of(entry.view.metadata) == channel):
                    nursery.start_soon(one, task_id)
        return tuple(sorted(stopped, key=lambda each: each.task_id))

    async def drain(self) -> None:
        """Let every stage that runs finish, for as long as a stop may take; what is left is taken up at the next start."""

        async def one(ref: Ref[TaskMessage]) -> None:
            with suppress(ActorError):
                await ref.ask(Drain)

        with trio.move_on_after(SHUTDOWN):
            async with trio.open_nursery() as nursery:
                for entry in self._tasks.values():
                    if entry.ref is not None:
                        nursery.start_soon(one, entry.ref)

    # ------------------------------------------------------------------ looking

    async def _get(self, task_id: str) -> TaskView | None:
        entry = self._tasks.get(task_id)
        if entry is not None:
            return entry.view
        fsm = await self._archive.load(task_id)
        return view_of(fsm) if fsm is not None else None

    async def _list(self, date: str | None) -> tuple[TaskView, ...]:
        if date is None:
            return tuple(entry.view for entry in self._tasks.values() if entry.created)
        stored = await self._archive.views(date)
        return tuple(self._tasks[view.task_id].view if view.task_id in self._tasks else view for view in stored)

    async def _context(self, task_id: str) -> TaskContext | None:
        fsm = await self._archive.load(task_id)
        return fsm.context if fsm is not None else None

    async def _wait(self, reply: Reply[TaskView], task_id: str) -> None:
        try:
            entry = self._tasks.get(task_id) or await self._recall(task_id)
        except (TaskError, StorageError, ActorError) as error:
            reply.fail(error)
            return
        if entry.is_done and not entry.resuming:
            reply.send(entry.view)
        else:
            entry.waiting.append(reply)

    # ------------------------------------------------------------------ the listener

    async def tell_listener(self) -> None:
        """Every notification, in order, until it is taken; a task is not pending any more when its end is."""
        async for told, over in self._news:
            while True:
                try:
                    await self._listener.ask(Notify, told)
                    break
                except ActorError as error:
                    _log.info("nobody takes a notification yet", task=told.task_id, why=str(error))
                await trio.sleep(ASK_AGAIN)
            if over:
                await self._archive.forget(told.task_id)

    async def recover(self) -> None:
        """Take up what the last run left unfinished."""
        for pending in await self._archive.pending():
            try:
                found = await self._archive.replay(pending.task_id)
            except StorageError as error:  # it stays pending; the next start will try again
                _log.error("a pending task cannot be read", task=pending.task_id, error=str(error))
                continue
            effect_of = self._ports.kit.doer.effect_of
            actions = plan_recovery(found, self._limits.recovery, effect_of, self._ports.clock())
            if found.task is not None:
                await self._recover_one(found.task, actions)
            else:
                _log.warning("a pending task has no log", task=pending.task_id)
                await self._archive.forget(pending.task_id)
        await self._fill_places()

    async def _recover_one(self, fsm: TaskFSM, actions: tuple[Action, ...]) -> None:
        task_id = fsm.task_id
        entry = _Entry(view_of(fsm), notified=fsm.context.notified, created=True)
        self._tasks[task_id] = entry
        if entry.is_done:
            self._done.append(task_id)
        make = self._ports.events.create
        for action in actions:
            match action:
                case Tell(notification, last):
                    self._to_tell.send_nowait((notification, last))
                case Write(type, payload):
                    entry.ending = entry.ending or type in _ENDS
                    await self._emit(make(type, "agent", payload, task_id=task_id))
                case GoOn(state):
                    if state is not TaskState.SUSPENDED:
                        entry.fsm, entry.begin = fsm, make(EventType.SYSTEM_STARTED, "agent")
                        entry.owed = sum(isinstance(one, Write) for one in actions)
                        self._queue.append(entry)
                case Drop(reason):
                    _log.warning("dropped a pending task", task=task_id, reason=reason)
                    await self._archive.forget(task_id)


def _channel_of(metadata: Metadata) -> tuple[str, str] | None:
    channel = metadata.get("channel")
    if not isinstance(channel, dict):
        return None
    return str(channel.get("type")), str(channel.get("channelId"))


def _why_crashed(exit: Exit) -> str:
    match exit:
        case Crashed(error):
            return f"{type(error).__name__}: {error}"
        case Killed(reason):
            return reason
        case _:
            return ""
