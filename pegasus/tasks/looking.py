"""What others may see of tasks: views of those in memory, logs of the others."""

from __future__ import annotations

from actors import ActorError, Reply
from pegasus.storage import StorageError
from pegasus.tasks.context import TaskContext
from pegasus.tasks.messages import TaskError, TaskView
from pegasus.tasks.office import Office
from pegasus.tasks.views import task_view


class Looking:
    """Answers questions; changes nothing."""

    def __init__(self, office: Office) -> None:
        self._office = office

    async def get(self, task_id: str) -> TaskView | None:
        entry = self._office.registry.get_or_none(task_id)
        if entry is not None:
            return entry.view
        fsm = await self._office.archive.load(task_id)
        entry = self._office.registry.get_or_none(task_id)  # it may have come to be meanwhile
        return entry.view if entry is not None else task_view(fsm) if fsm is not None else None

    async def list(self, date: str | None) -> tuple[TaskView, ...]:
        if date is None:
            return tuple(entry.view for entry in self._office.registry if entry.created)
        stored = await self._office.archive.views(date)
        held = {entry.task_id: entry.view for entry in self._office.registry}
        return tuple(held.get(view.task_id, view) for view in stored)

    async def context(self, task_id: str) -> TaskContext | None:
        fsm = await self._office.archive.load(task_id)
        return fsm.context if fsm is not None else None

    async def wait(self, reply: Reply[TaskView], task_id: str) -> None:
        try:
            entry = await self._office.recall(task_id)
        except (TaskError, StorageError, ActorError) as error:
            reply.fail(error)
            return
        if entry.is_done and entry.resumed is None:
            reply.send(entry.view)
        else:
            entry.waiting.append(reply)
