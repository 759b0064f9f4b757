"""The places that tasks work in: who gets one, the actors that fill them, and going on after a rest."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import attrs
import trio

from actors import Child, Crashed, Exit, Killed, Mailbox, Ref, Restart, watch
from pegasus.events import Event, EventType
from pegasus.formatting import describe_error
from pegasus.observe import get_logger
from pegasus.storage import StorageError
from pegasus.tasks import payloads
from pegasus.tasks.applying import RESTARTED
from pegasus.tasks.context import TaskState
from pegasus.tasks.fsm import TaskFSM
from pegasus.tasks.messages import TaskError
from pegasus.tasks.office import Ended, Office
from pegasus.tasks.overrides import overridden
from pegasus.tasks.permits import Permits
from pegasus.tasks.registry import TaskEntry
from pegasus.tasks.task import task
from pegasus.tasks.task_messages import Begin, Handle, Hold, TaskMessage
from pegasus.tasks.types import DEFAULT
from pegasus.tasks.views import task_view

SHUTDOWN: Final = 5.0
"""Seconds a task has to end when it is told to stop."""
ROOMY: Final = Mailbox(4096)
"""A task hears of each of its calls, and a model may make many at once; a full mailbox would hold up the agent."""

_log = get_logger("agent")


class Seats:
    """At most `tasks.max_active` tasks work at a time; suspended and finished ones hold no place."""

    def __init__(self, office: Office) -> None:
        self._office = office
        limits = office.limits
        self._permits = Permits(trio.Semaphore(limits.max_calls), trio.Semaphore(limits.max_tools), office.me)

    async def fill(self) -> None:
        """Start what waits, the most urgent first, as long as there is room."""
        registry = self._office.registry
        while registry.active < self._office.limits.max_active and (entry := registry.dequeue()) is not None:
            if entry.fsm is None or entry.begin is None or entry.ending:
                continue
            await self._start(entry, entry.fsm)

    async def prepare(self, entry: TaskEntry) -> None:
        """Let a new task begin to think while it is being written, if there is a place for it; its TASK_CREATED follows."""
        registry = self._office.registry
        if entry.ending:
            return
        if entry.fsm is not None and not registry.queued and registry.active < self._office.limits.max_active:
            await self._start(entry, entry.fsm)

    async def _start(self, entry: TaskEntry, fsm: TaskFSM) -> None:
        entry.working, entry.since = True, trio.current_time()
        task_type = self._office.deps.types.get(fsm.draft.base.task_type) or self._office.deps.types.get(DEFAULT)
        if task_type is None:
            raise TaskError(f"the type {DEFAULT!r} is missing")
        child: Child[TaskMessage] = Child(
            f"task:{fsm.task_id}",
            task,
            fsm,
            overridden(task_type, fsm.draft.base.input_metadata),
            self._office.deps,
            self._permits,
            restart=Restart.TEMPORARY,
            shutdown=SHUTDOWN,
            mailbox=ROOMY,
        )
        entry.fsm, entry.starting = None, trio.Event()
        try:
            ref = entry.ref = await self._office.pool.start_child(child)
        finally:
            entry.starting.set()
            entry.starting = None
        self._office.nursery.start_soon(self._watch, fsm.task_id, ref)
        awaited, entry.owed = entry.owed, 0
        if entry.begin is not None:
            begin = entry.begin
            await ref.tell(Handle(begin) if fsm.state is TaskState.IDLE else Begin(begin, awaited))

    async def _watch(self, task_id: str, ref: Ref[TaskMessage]) -> None:
        down = await watch(ref)
        crashed = _why_crashed(down.exit)
        await self._office.me.tell(Ended(task_id, crashed))

    async def actor_ended(self, task_id: str, crashed: str) -> None:
        entry = self._office.registry.get(task_id)
        entry.ref = None
        entry.view = attrs.evolve(entry.view, doing="")
        if entry.begin is not None and not crashed:  # it had ended before it heard of it
            await self.go_on(entry, entry.begin)
        elif crashed and not entry.is_done and not entry.ending:
            await self._office.fail(entry, f"the task crashed: {crashed}")

    async def resume(self, task_id: str, text: str, key: str = "", cause: Event | None = None) -> None:
        """Answered once TASK_RESUMED is on disk: what a task was told must not be lost behind the back of who told it.

        cause: the event from outside that says this, if one does.
        """
        entry = await self._office.recall(task_id)
        state = entry.view.state
        restarted = state is TaskState.FAILED and entry.view.error == RESTARTED
        if entry.resumed is not None or not (state in (TaskState.SUSPENDED, TaskState.COMPLETED) or restarted):
            how = "is being resumed" if entry.resumed is not None else f"is {state.value}"
            raise TaskError(f"task {task_id} {how}; only suspended and completed tasks can be resumed")
        if state is TaskState.COMPLETED and not text.strip():
            raise TaskError(f"task {task_id} is completed; say what it is to do now")
        on_disk = entry.resumed = trio.Event()
        payload = payloads.resumed(text, state, self._office.deps.clock(), key)
        make = self._office.deps.events.create
        await self._office.emit(make(EventType.TASK_RESUMED, "agent", payload, task_id=task_id, cause=cause))
        await on_disk.wait()

    async def go_on(self, entry: TaskEntry, event: Event) -> None:
        """The log says REASONING now, or where it was suspended; an actor goes on from there."""
        entry.begin = event
        if entry.ref is not None:
            entry.working = True
            await entry.ref.tell(Handle(event))
            return
        fsm = None
        with suppress(StorageError):
            fsm = await self._office.archive.load(entry.view.task_id)
        if fsm is None:
            _log.error("the log of a task cannot be read", task=entry.view.task_id)
            return
        entry.fsm, entry.view = fsm, task_view(fsm)
        self._office.registry.enqueue(entry)
        await self.fill()

    async def suspend(self, task_id: str, reason: str) -> None:
        entry = self._office.registry.get_or_none(task_id)
        if entry is None or entry.ref is None or not (entry.working and entry.created):
            raise TaskError(f"task {task_id!r} is not at work")
        await entry.ref.tell(Hold(reason))


def _why_crashed(exit: Exit) -> str:
    match exit:
        case Crashed(error):
            return describe_error(error)
        case Killed(reason):
            return reason
        case _:
            return ""
