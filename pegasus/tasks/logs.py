"""The logs of tasks, as the running task system reads them: through the persister, with everything said before in them."""

from __future__ import annotations

from collections.abc import Sequence

from actors import Ref
from pegasus.observe import get_logger
from pegasus.storage import StorageError
from pegasus.tasks.fsm import TaskFSM
from pegasus.tasks.glance import glance
from pegasus.tasks.messages import TaskView
from pegasus.tasks.replay import ReplayedTask, replay
from pegasus.tasks.storage_messages import Forget, GetPending, LogsOf, Pending, PersisterMessage, ReadLogs
from pegasus.tasks.views import task_view

_log = get_logger("tasks")


class TaskLogs:
    """An `Archive`. Whatever cannot be read raises StorageError; what is damaged is logged, and the rest is given."""

    def __init__(self, persister: Ref[PersisterMessage]) -> None:
        self._persister = persister

    async def exists(self, task_id: str) -> bool:
        """Whether there is a task of this id: its log has a line."""
        return (await self.replay(task_id)).task is not None

    async def load(self, task_id: str) -> TaskFSM | None:
        """The task as its log tells; None if there is none."""
        return (await self.replay(task_id)).task

    async def replay(self, task_id: str) -> ReplayedTask:
        """All that the log tells; without a task if there is no log."""
        [found] = await self.replays((task_id,))
        if isinstance(found, StorageError):
            raise found
        return found

    async def replays(self, task_ids: Sequence[str], *, at_a_glance: bool = False) -> list[ReplayedTask | StorageError]:
        """The same for several, read together; with the error of each that cannot be read."""
        contents = await self._persister.ask(ReadLogs, tuple(task_ids))
        return [
            content if isinstance(content, StorageError) else _replayed(task_id, content, at_a_glance)
            for task_id, content in zip(task_ids, contents, strict=True)
        ]

    async def views(self, date: str) -> tuple[TaskView, ...]:
        """The tasks of a day (UTC, YYYY-MM-DD), oldest first."""
        tasks = [await self.load(task_id) for task_id in await self._persister.ask(LogsOf, date)]
        return tuple(task_view(task) for task in tasks if task is not None)

    async def pending(self) -> tuple[Pending, ...]:
        """What the last run left unfinished, and what is unfinished now; oldest first."""
        return await self._persister.ask(GetPending)

    async def forget(self, task_id: str) -> None:
        """It is finished, and who should know does: not pending any more. Not durable at once."""
        await self._persister.tell(Forget(task_id))


def _replayed(task_id: str, content: bytes, at_a_glance: bool) -> ReplayedTask:
    found = (at_a_glance and glance(content, task_id)) or replay(content, task_id)
    for problem in found.problems:
        _log.warning("something is wrong with a task's log", task=task_id, problem=problem)
    return found
