"""The tasks that are not in memory: their logs, and the list of what is unfinished, as the persister keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pegasus.storage import StorageError
from pegasus.tasks.fsm import TaskFSM
from pegasus.tasks.messages import TaskView
from pegasus.tasks.replay import ReplayedTask
from pegasus.tasks.storage_messages import Pending


class Archive(Protocol):
    """What the agent asks. Each may raise StorageError or ActorError, as whoever keeps the logs does."""

    async def exists(self, task_id: str) -> bool:
        """Whether there is a task of this id."""

    async def replay(self, task_id: str) -> ReplayedTask:
        """All that the log of a task tells; without a task if there is no log."""

    async def replays(
        self, task_ids: Sequence[str], *, at_a_glance: bool = False
    ) -> Sequence[ReplayedTask | StorageError]:
        """The same for several, read together; with the error of each that cannot be read.

        at_a_glance: of a task that was at work, nobody needs to know what it did (`glance`).
        """

    async def load(self, task_id: str) -> TaskFSM | None:
        """The task as its log tells; None if there is none."""

    async def views(self, date: str) -> tuple[TaskView, ...]:
        """The tasks of a day (UTC, YYYY-MM-DD), oldest first."""

    async def pending(self) -> tuple[Pending, ...]:
        """The tasks that are unfinished, or whose end nobody may have been told; oldest first."""

    async def forget(self, task_id: str) -> None:
        """It is finished, and who should know does: not pending any more. Not durable at once."""
