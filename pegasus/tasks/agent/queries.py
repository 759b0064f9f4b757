"""Questions about tasks: views of the tasks in memory, and of the logs for the others. Nothing is changed.

A view of a task in memory is as new as the last report of its actor. A view from a log is what a replay gives; the two agree
as soon as the report has arrived.
"""

from __future__ import annotations

from actors import ActorError, Reply
from pegasus.storage import StorageError
from pegasus.tasks.agent.state import AgentState
from pegasus.tasks.core.context import TaskContext
from pegasus.tasks.core.views import TaskError, TaskView, task_view


class Queries:
    """Answers questions. Each method raises StorageError or ActorError if the logs cannot be read.

    Example: `view = await Queries(state).view("00112233aabbccdd")`.
    """

    def __init__(self, state: AgentState) -> None:
        self._state = state

    async def view(self, task_id: str) -> TaskView | None:
        """Return a task, None if there is none.

        Memory is checked again after the log: the task may have been created meanwhile, and the caller would submit it again.
        """
        entry = self._state.registry.get_or_none(task_id)
        if entry is None:
            fsm = await self._state.archive.load(task_id)
            entry = self._state.registry.get_or_none(task_id)
            if entry is None:
                return task_view(fsm) if fsm is not None else None
        return entry.view

    async def views(self, date: str | None) -> tuple[TaskView, ...]:
        """Return the tasks in memory that are on disk, or all tasks of a day (UTC, YYYY-MM-DD)."""
        registry = self._state.registry
        if date is None:
            return tuple(entry.view for entry in registry if entry.created.is_set())
        stored = await self._state.archive.views(date)
        current = {entry.task_id: entry.view for entry in registry}
        return tuple(current.get(view.task_id, view) for view in stored)

    async def context(self, task_id: str) -> TaskContext | None:
        """Return everything that a task knows, None if there is no such task."""
        fsm = await self._state.archive.load(task_id)
        return fsm.context if fsm is not None else None

    async def wait(self, reply: Reply[TaskView], task_id: str) -> None:
        """Answer when the task is over.

        The reply is kept in the entry of the task, so no Trio task waits. A crash of the agent fails it for the asker.
        """
        try:
            entry = await self._state.find(task_id)
        except (TaskError, StorageError, ActorError) as error:
            reply.fail(error)
            return
        if entry.is_over:
            reply.send(entry.view)
        else:
            entry.waiting.append(reply)
