"""At the start: carrying out what `recovery` plans for the tasks that the last run left unfinished."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pegasus.events import EventType
from pegasus.observe import get_logger
from pegasus.storage import StorageError
from pegasus.tasks.context import TaskState
from pegasus.tasks.fsm import TaskFSM
from pegasus.tasks.log import ENDS
from pegasus.tasks.office import Office
from pegasus.tasks.recovery import Action, Drop, GoOn, Tell, Write, plan_recovery
from pegasus.tasks.registry import TaskEntry
from pegasus.tasks.replay import ReplayedTask
from pegasus.tasks.seats import Seats
from pegasus.tasks.views import task_view

AT_ONCE: Final = 250
"""Tasks that are held in memory, whole, before what is to become of them is written."""

_log = get_logger("agent")


@contextmanager
def _no_looking_for_garbage() -> Iterator[None]:
    """Logs become many objects that stay or go by themselves; the collector would look at all of them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()


class Restoring:
    """Takes up pending tasks."""

    def __init__(self, office: Office, seats: Seats) -> None:
        self._office = office
        self._seats = seats

    async def recover(self) -> None:
        """Take up what the last run left unfinished. Many are read together, and what is to be written of them is written together."""
        pending = await self._office.archive.pending()
        fail = self._office.limits.recovery == "fail"
        with _no_looking_for_garbage():
            for begin in range(0, len(pending), AT_ONCE):
                some = [one.task_id for one in pending[begin : begin + AT_ONCE]]
                for task_id, found in zip(
                    some, await self._office.archive.replays(some, at_a_glance=fail), strict=True
                ):
                    await self._take_up(task_id, found)
        await self._seats.fill()

    async def _take_up(self, task_id: str, found: ReplayedTask | StorageError) -> None:
        if isinstance(found, StorageError):  # it stays pending; the next start will try again
            _log.error("a pending task cannot be read", task=task_id, error=str(found))
        elif found.task is None:
            _log.warning("a pending task has no log", task=task_id)
            await self._office.archive.forget(task_id)
        else:
            mode, effect_of = self._office.limits.recovery, self._office.deps.doer.effect_of
            await self._carry_out(found.task, plan_recovery(found, mode, effect_of, self._office.deps.clock()))

    async def _carry_out(self, fsm: TaskFSM, actions: tuple[Action, ...]) -> None:
        task_id = fsm.task_id
        entry = TaskEntry(task_view(fsm), notified=fsm.draft.notified, created=True)
        self._office.registry.register(entry)
        if entry.is_done:
            self._office.registry.finished(entry)
        make = self._office.deps.events.create
        for action in actions:
            match action:
                case Tell(notification, last):
                    self._office.news.send_nowait((notification, last))
                case Write(type, payload):
                    entry.ending = entry.ending or type in ENDS
                    entry.fsm = fsm
                    await self._office.emit(make(type, "agent", payload, task_id=task_id))
                case GoOn(state):
                    if state is not TaskState.SUSPENDED:
                        entry.fsm, entry.begin = fsm, make(EventType.SYSTEM_STARTED, "agent")
                        entry.owed = sum(isinstance(one, Write) for one in actions)
                        self._office.registry.enqueue(entry)
                case Drop(reason):
                    _log.warning("dropped a pending task", task=task_id, reason=reason)
                    await self._office.archive.forget(task_id)
