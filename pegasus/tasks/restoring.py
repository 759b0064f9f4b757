"""At the start: carrying out what `recovery` plans for the tasks that the last run left unfinished."""

from __future__ import annotations

from pegasus.events import EventType
from pegasus.observe import get_logger
from pegasus.storage.messages import StorageError
from pegasus.tasks.context import TaskState
from pegasus.tasks.fsm import TaskFSM
from pegasus.tasks.office import ENDS, Office
from pegasus.tasks.recovery import Action, Drop, GoOn, Tell, Write, plan_recovery
from pegasus.tasks.registry import TaskEntry
from pegasus.tasks.seats import Seats
from pegasus.tasks.views import view_of

_log = get_logger("agent")


class Restoring:
    """Takes up pending tasks."""

    def __init__(self, office: Office, seats: Seats) -> None:
        self._office = office
        self._seats = seats

    async def recover(self) -> None:
        """Take up what the last run left unfinished."""
        for pending in await self._office.archive.pending():
            try:
                found = await self._office.archive.replay(pending.task_id)
            except StorageError as error:  # it stays pending; the next start will try again
                _log.error("a pending task cannot be read", task=pending.task_id, error=str(error))
                continue
            effect_of = self._office.ports.kit.doer.effect_of
            actions = plan_recovery(found, self._office.limits.recovery, effect_of, self._office.ports.clock())
            if found.task is not None:
                await self._recover_one(found.task, actions)
            else:
                _log.warning("a pending task has no log", task=pending.task_id)
                await self._office.archive.forget(pending.task_id)
        await self._seats.fill()

    async def _recover_one(self, fsm: TaskFSM, actions: tuple[Action, ...]) -> None:
        task_id = fsm.task_id
        entry = TaskEntry(view_of(fsm), notified=fsm.context.notified, created=True)
        self._office.registry.register(entry)
        if entry.is_done:
            self._office.registry.finished(entry)
        make = self._office.ports.events.create
        for action in actions:
            match action:
                case Tell(notification, last):
                    self._office.news.send_nowait((notification, last))
                case Write(type, payload):
                    entry.ending = entry.ending or type in ENDS
                    await self._office.emit(make(type, "agent", payload, task_id=task_id))
                case GoOn(state):
                    if state is not TaskState.SUSPENDED:
                        entry.fsm, entry.begin = fsm, make(EventType.SYSTEM_STARTED, "agent")
                        entry.owed = sum(isinstance(one, Write) for one in actions)
                        self._office.registry.enqueue(entry)
                case Drop(reason):
                    _log.warning("dropped a pending task", task=task_id, reason=reason)
                    await self._office.archive.forget(task_id)
