"""What the agent needs to know of tasks that are not in memory."""

from __future__ import annotations

from typing import Protocol

from pegasus.tasks.fsm import TaskFSM
from pegasus.tasks.messages import TaskView


class Archive(Protocol):
    """The logs, and the list of what is unfinished."""

    async def exists(self, task_id: str) -> bool:
        """Whether there is a task of this id."""

    async def load(self, task_id: str) -> TaskFSM | None:
        """The task as its log tells; None if there is none."""

    async def views(self, date: str) -> tuple[TaskView, ...]:
        """The tasks of a day (UTC, YYYY-MM-DD), oldest first."""

    async def forget(self, task_id: str) -> None:
        """It is finished, and who should know does: not pending any more. Not durable at once."""
