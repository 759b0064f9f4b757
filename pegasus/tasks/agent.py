"""The orchestrator of the task system (seed 001): receives an event, finds its task, hands it over. It holds no task's state.

Tasks are children of a pool that this actor opens, so they show below it in the tree and stop side by side. What it keeps of
each is a view for others, and who waits for it. Submitters hear of their tasks through the listener (`Notify`), in order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import attrs
import trio

from actors import ActorError, Inbox, Ref, Reply, open_pool
from pegasus.events import RECORDED, Deliver, Emit, Event, EventType, Subscribe, is_recorded
from pegasus.observe import get_logger
from pegasus.storage import StorageError
from pegasus.tasks.archive import Archive
from pegasus.tasks.context import TaskState
from pegasus.tasks.ending import Ending
from pegasus.tasks.fsm import InvalidTransition
from pegasus.tasks.intake import Intake, is_handled
from pegasus.tasks.log import ENDS
from pegasus.tasks.looking import Looking
from pegasus.tasks.messages import (
    Cancel,
    CancelAll,
    GetContext,
    GetTask,
    ListTasks,
    Notify,
    Resume,
    Submit,
    Suspend,
    TaskError,
    Wait,
)
from pegasus.tasks.office import Ended, Inward, Office
from pegasus.tasks.ports import TaskDeps
from pegasus.tasks.registry import TaskEntry
from pegasus.tasks.restoring import Restoring
from pegasus.tasks.seats import Seats
from pegasus.tasks.task_messages import Doing, Handle, Moved
from pegasus.tasks.telling import Telling
from pegasus.tasks.views import notification, task_view

_log = get_logger("agent")

EXTERNAL: Final = frozenset({EventType.MESSAGE_RECEIVED, EventType.WEBHOOK_TRIGGERED, EventType.SCHEDULE_FIRED})
"""Events that make a task, or (with a task id) are for one that waits (X16)."""
TASK_EVENTS: Final = RECORDED - {EventType.REFLECTION_COMPLETE}
"""Events that drive a task or are told to its submitter; what came of looking back only stands in its log."""
HANDLED_TOGETHER: Final = 16
"""Messages that are handled before anybody else gets a turn."""

_SPENT = frozenset({TaskState.SUSPENDED, TaskState.COMPLETED, TaskState.FAILED})
_T = TypeVar("_T")


async def task_agent(inbox: Inbox[Inward], deps: TaskDeps, archive: Archive, listener: Ref[Notify]) -> None:
    """Run the task system. Told to stop, it lets what runs finish for a while (trap T24); what is left is for the next start."""
    async with open_pool(name="tasks") as pool, trio.open_nursery() as nursery:
        office = Office(deps, archive, pool, nursery, inbox.ref)
        one = _Agent(office)
        await deps.bus.ask(Subscribe, inbox.ref, EXTERNAL | TASK_EVENTS, True)
        kept = _left_over(inbox)
        nursery.start_soon(Telling(office, listener).run)
        await one.restoring.recover()
        await deps.bus.tell(Emit(deps.events.create(EventType.SYSTEM_STARTED, "agent")))
        inbox.started()
        for message in kept:
            await one.handle(message)
        async for message in inbox:
            await one.handle(message)
            for _ in range(HANDLED_TOGETHER):  # a task's step sends several
                try:
                    more = inbox.receive_nowait()
                except (trio.WouldBlock, trio.EndOfChannel):
                    break
                await one.handle(more)
        await deps.bus.tell(Emit(deps.events.create(EventType.SYSTEM_SHUTTING_DOWN, "agent")))
        await one.ending.drain()
        nursery.cancel_scope.cancel()


def _left_over(inbox: Inbox[Inward]) -> list[Inward]:
    """What the mailbox kept over a restart of the agent, without what is in the logs and read from there."""
    kept: list[Inward] = []
    with suppress(trio.WouldBlock, trio.EndOfChannel):
        while True:
            message = inbox.receive_nowait()
            if not isinstance(message, Moved | Doing | Ended) and not (
                isinstance(message, Deliver) and is_recorded(message.event)
            ):
                kept.append(message)
    return kept


class _Agent:
    """Hands each message to the part that it is for, and each event to its task."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._seats = Seats(office)
        self._intake = Intake(office, self._seats)
        self._looking = Looking(office)
        self.ending = Ending(office)
        self.restoring = Restoring(office, self._seats)

    async def handle(self, message: Inward) -> None:
        """One message. What takes long is done beside, so that nothing waits for it."""
        match message:
            case Deliver(event):
                await self._event(event)
            case Moved():
                await self._moved(message)
            case Doing(task_id, what):
                if (entry := self._office.registry.get_or_none(task_id)) is not None:
                    entry.view = attrs.evolve(entry.view, doing=what)
            case Ended(task_id, crashed):
                await self._actor_ended(task_id, crashed)
            case Submit(reply):
                self._office.nursery.start_soon(self._answer, reply, partial(self._intake.submit, message))
            case GetTask(reply, task_id):
                self._office.nursery.start_soon(self._answer, reply, partial(self._looking.get, task_id))
            case ListTasks(reply, date):
                self._office.nursery.start_soon(self._answer, reply, partial(self._looking.list, date))
            case GetContext(reply, task_id):
                self._office.nursery.start_soon(self._answer, reply, partial(self._looking.context, task_id))
            case Wait(reply, task_id):
                self._office.nursery.start_soon(self._looking.wait, reply, task_id)
            case Cancel(reply, task_id, by):
                self._office.nursery.start_soon(self._answer, reply, partial(self.ending.cancel, task_id, by))
            case CancelAll(reply, by, channel):
                self._office.nursery.start_soon(self._answer, reply, partial(self.ending.cancel_all, by, channel))
            case Suspend(reply, task_id, reason):
                self._office.nursery.start_soon(self._answer, reply, partial(self._seats.suspend, task_id, reason))
            case Resume(reply, task_id, text, key):
                self._office.nursery.start_soon(self._answer, reply, partial(self._seats.resume, task_id, text, key))

    async def _actor_ended(self, task_id: str, crashed: str) -> None:
        entry = self._office.registry.get(task_id)
        if crashed or (entry.ending and not entry.is_done):
            await self._catch_up(entry)  # what was in its mailbox is gone with it, and is in the log
        await self._seats.actor_ended(task_id, crashed)

    async def _answer(self, reply: Reply[_T], work: Callable[[], Awaitable[_T]]) -> None:
        try:
            result = await work()
        except (TaskError, StorageError, ActorError) as error:
            reply.fail(error)
        else:
            reply.send(result)

    # ------------------------------------------------------------------ events

    async def _event(self, event: Event) -> None:
        if event.type in EXTERNAL:
            if not is_handled(event):
                self._office.nursery.start_soon(self._intake.external, event)
            return
        entry = self._office.registry.get_or_none(event.task_id or "")
        if entry is None:
            _log.warning("dropped an event of an unknown task", task=event.task_id, type=event.type.name)
        elif event.type is EventType.TASK_CREATED:
            entry.created = True
            entry.known.set()
            entry.begin = event
            if not entry.working:
                self._office.registry.enqueue(entry)
                await self._seats.fill()
            elif entry.ref is not None:  # else its actor is being started, and is handed it then
                await entry.ref.tell(Handle(event))
        elif event.type is EventType.TASK_RESUMED:
            entry.ending = False
            if entry.resumed is not None:
                entry.resumed.set()
                entry.resumed = None
            await self._seats.go_on(entry, event)
        elif entry.ref is not None:
            await entry.ref.tell(Handle(event))
        else:
            await self._move_here(entry, event)

    async def _move_here(self, entry: TaskEntry, event: Event) -> None:
        """The transition of a task that has no actor: it waits, is suspended, or its actor has crashed."""
        fsm = entry.fsm
        if fsm is None:
            await self._catch_up(entry)
            return
        entry.owed = max(0, entry.owed - 1)
        try:
            fsm.transition(event)
        except InvalidTransition as error:
            _log.warning("dropped an event", task=fsm.task_id, problem=str(error))
            return
        await self._moved(Moved(task_view(fsm), fsm.draft.notified, event))

    async def _catch_up(self, entry: TaskEntry) -> None:
        """Take the task to be where its log ends, and tell all that was not told: for one whose actor has left it behind."""
        try:
            found = await self._office.archive.replay(entry.task_id)
        except StorageError as error:  # it stays pending, so the next start will tell
            _log.error("the log of a task cannot be read", task=entry.task_id, error=str(error))
            return
        if found.task is None:
            return
        untold = found.notifications[entry.notified :]
        entry.view, entry.notified, entry.begin = task_view(found.task), len(found.notifications), None
        for note in untold:
            self._office.news.send_nowait((note, found.is_over and note is untold[-1]))
        if found.is_over and untold:
            self._finish(entry)
        await self._give_place(entry)

    async def _moved(self, moved: Moved) -> None:
        """A task is somewhere else now: tell who should know, and let another one have its place."""
        entry = self._office.registry.get(moved.task.task_id)
        entry.view, entry.notified = moved.task, moved.notified
        if entry.begin is not None and entry.begin.id == moved.trigger.id:
            entry.begin = None
        told = notification(moved.task, moved.notified, moved.trigger)
        over = moved.trigger.type in ENDS
        if told is not None:
            self._office.news.send_nowait((told, over))
        if over:
            self._finish(entry)
        await self._give_place(entry)

    async def _give_place(self, entry: TaskEntry) -> None:
        """To another one, if this one does not need it any more."""
        if entry.view.state in _SPENT and entry.working:
            entry.working = False
            await self._seats.fill()

    def _finish(self, entry: TaskEntry) -> None:
        for reply in entry.waiting:
            reply.send(entry.view)
        entry.waiting.clear()
        entry.fsm = entry.begin = None
        self._office.registry.finished(entry)
